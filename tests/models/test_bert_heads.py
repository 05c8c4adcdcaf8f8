"""What Orchid-BERT computes: every head, masks and padding, losses."""

from functools import partial

import pytest
import torch
from torch import nn

pytest.importorskip("transformers", reason="needs transformers")

from tiny_bert import HEADS, tiny, tokens

from orchid.models.bert import (
    OrchidBertForMaskedLM,
    OrchidBertForSequenceClassification,
    OrchidBertModel,
)
from orchid.models.bert.heads import aligned_logits


class TestForward:
    def test_the_first_token_behind_padding(self) -> None:
        """Padded in front or behind, the classifier reads [CLS]."""
        model, ids = (
            OrchidBertForSequenceClassification(tiny(position_embeddings="none", mixer="attention")).eval(),
            tokens(2, 9),
        )
        padding = torch.zeros(2, 5, dtype=torch.long)
        mask = torch.cat((torch.ones_like(ids), padding), dim=1)
        behind = model(torch.cat((ids, padding), dim=1), attention_mask=mask).logits
        front = model(torch.cat((padding, ids), dim=1), attention_mask=mask.flip(1)).logits
        assert torch.allclose(front, behind, atol=1e-5)
        assert torch.allclose(model(ids).logits, behind, atol=1e-5)

    @pytest.mark.parametrize("mixer", ["orchid", "attention", "monarch"])
    def test_padding_changes_nothing(self, mixer: str) -> None:
        model, ids = OrchidBertModel(tiny(mixer=mixer)).eval(), tokens(2, 9)
        padded = torch.cat((ids, torch.zeros(2, 11, dtype=torch.long)), dim=1)
        mask = torch.arange(20).lt(9).long().expand(2, -1)
        plain, beside = model(ids).last_hidden_state, model(padded, attention_mask=mask).last_hidden_state[:, :9]
        assert torch.allclose(plain, beside, atol=1e-5)

    @pytest.mark.parametrize("positions", ["learned", "sinusoidal", "none"])
    @pytest.mark.parametrize("mixer", ["orchid", "attention", "hyena"])
    def test_padding_in_front_changes_nothing(self, mixer: str, positions: str) -> None:
        model, ids = OrchidBertModel(tiny(mixer=mixer, position_embeddings=positions)).eval(), tokens(2, 9)
        padded = torch.cat((torch.zeros(2, 11, dtype=torch.long), ids), dim=1)
        mask = torch.arange(20).ge(11).long().expand(2, -1)
        plain, beside = model(ids).last_hidden_state, model(padded, attention_mask=mask).last_hidden_state[:, 11:]
        assert torch.allclose(plain, beside, atol=1e-5)

    @pytest.mark.parametrize(
        ("mask", "message"),
        [
            (torch.zeros(2, 9), "attention_mask has dtype torch.float32"),
            (
                torch.ones(2, 1, 1, 9, dtype=torch.long),
                r"attention_mask has shape \(2, 1, 1, 9\); expected .*= \(2, 9\)",
            ),
            (torch.ones(2, 8, dtype=torch.long), r"attention_mask has shape \(2, 8\)"),
        ],
    )
    def test_masks_that_mean_something_else(self, mask: torch.Tensor, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            OrchidBertForSequenceClassification(tiny())(tokens(2, 9), attention_mask=mask)

    def test_every_parameter_learns(self) -> None:
        ids = tokens()
        labels = {"labels": torch.tensor([0, 1, 1])}, {"labels": ids % 2}
        spans = {"start_positions": torch.tensor([1, 2, 3]), "end_positions": torch.tensor([3, 4, 99])}
        for head, given in zip(HEADS, ({"labels": ids}, *labels, spans), strict=True):
            model = head(tiny(mixer_options={"residual_conv": True}))
            model(ids, token_type_ids=torch.zeros_like(ids), **given).loss.backward()
            assert all(p.grad is not None for p in model.parameters()), head.__name__

    def test_sparse_prediction_has_the_same_loss(self) -> None:
        torch.manual_seed(0)
        dense, ids = OrchidBertForMaskedLM(tiny(hidden_dropout_prob=0.0)), tokens()
        sparse = OrchidBertForMaskedLM(tiny(hidden_dropout_prob=0.0, sparse_prediction=True))
        sparse.load_state_dict(dense.state_dict())
        labels = torch.where(torch.rand(ids.shape) < 0.3, ids, -100)
        ours, theirs = sparse(ids, labels=labels), dense(ids, labels=labels)
        assert ours.logits.shape == (int((labels != -100).sum()), sparse.config.vocab_size)
        assert torch.allclose(ours.loss, theirs.loss)
        assert sparse.eval()(ids, labels=labels).logits.shape == theirs.logits.shape

    @pytest.mark.parametrize("vocabulary", [100, 128])
    def test_aligned_logits_are_the_logits(self, vocabulary: int) -> None:
        decoder, x = torch.nn.Linear(8, vocabulary).double(), torch.randn(2, 5, 8).double()
        results = []
        for function in (decoder, partial(aligned_logits, decoder)):
            decoder.zero_grad()
            logits, leaf = function(x), x.clone().requires_grad_()
            function(leaf).square().sum().backward()
            results.append([logits, leaf.grad, decoder.weight.grad, decoder.bias.grad])
            assert logits.view(-1, vocabulary).shape == (10, vocabulary)  # as users write it
        assert results[1][0].stride(-2) == 128  # rows of the product, of which the logits are a part
        for expected, got in zip(*results, strict=True):
            assert torch.allclose(expected, got, rtol=1e-12, atol=1e-12)

    def test_a_decoder_that_is_more_than_its_matrix_is_called(self) -> None:
        class Adapted(torch.nn.Linear):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return super().forward(x) + 1

        class Quantised(torch.nn.Parameter):
            pass

        hooked, quantised, x = torch.nn.Linear(8, 100), torch.nn.Linear(8, 100), torch.randn(2, 8)
        hooked.register_forward_hook(lambda module, given, y: y + 1)
        quantised.weight = Quantised(quantised.weight.detach())
        assert type(quantised.weight) is Quantised
        for decoder in (hooked, quantised, Adapted(8, 100), torch.nn.Linear(8, 100, bias=False)):
            logits = aligned_logits(decoder, x)
            assert logits.is_contiguous() and torch.equal(logits, decoder(x))

    @pytest.mark.gpu
    @pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
    def test_training_on_a_gpu_has_the_same_logits(self) -> None:
        model, ids = OrchidBertForMaskedLM(tiny(hidden_dropout_prob=0.0)).cuda(), tokens().cuda()
        training, evaluated = model.train()(ids).logits, model.eval()(ids).logits
        assert training.shape == evaluated.shape and torch.allclose(training, evaluated, atol=1e-4)
        assert training.stride(-2) == 64 and evaluated.is_contiguous()

    @pytest.mark.parametrize(
        ("labels", "num_labels", "kind"),
        [
            (torch.tensor([0.5, 1.0, 2.0]), 1, "regression"),
            (torch.tensor([0, 1, 2]), 3, "single_label_classification"),
            (torch.tensor([[0.0, 1.0], [1.0, 1.0], [0.0, 0.0]]), 2, "multi_label_classification"),
        ],
    )
    def test_kinds_of_labels(self, labels: torch.Tensor, num_labels: int, kind: str) -> None:
        model = OrchidBertForSequenceClassification(tiny(num_labels=num_labels, classifier_pooling="mean"))
        assert torch.isfinite(model(tokens(), labels=labels).loss)
        assert model.config.problem_type == kind

    def test_tuples_hidden_states_and_embeddings(self) -> None:
        model, ids = OrchidBertModel(tiny()).eval(), tokens()
        (plain,) = model(ids, return_dict=False)
        outputs = model(inputs_embeds=model.get_input_embeddings()(ids), output_hidden_states=True)
        assert torch.equal(outputs.last_hidden_state, plain)
        assert len(outputs.hidden_states) == 3
        with pytest.raises(ValueError, match="exactly one of input_ids and inputs_embeds"):
            model()

    @pytest.mark.parametrize("head", [OrchidBertModel, *HEADS])
    def test_arguments_without_a_meaning(self, head: type) -> None:
        model, ids = head(tiny()).eval(), tokens()
        plain = model(ids, return_dict=False)[0]
        assert torch.equal(model(ids, return_dict=False, output_attentions=False, use_cache=False)[0], plain)
        for name in ("lables", "position_ids"):
            with pytest.raises(TypeError, match=f"takes no argument '{name}'"):
                model(ids, **{name: ids})

    def test_too_long(self) -> None:
        with pytest.raises(ValueError, match="25 tokens, more than max_position_embeddings=24"):
            OrchidBertModel(tiny())(tokens(1, 25))

    def test_checkpointing_changes_nothing(self) -> None:
        torch.manual_seed(0)
        model, ids = OrchidBertForMaskedLM(tiny(hidden_dropout_prob=0.0)).train(), tokens()
        gradients = []
        for _ in range(2):
            model.zero_grad()
            model(ids, labels=ids).loss.backward()
            gradients.append([p.grad.clone() for p in model.parameters()])
            model.gradient_checkpointing_enable()
        assert model.is_gradient_checkpointing
        assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))

    def test_more_tokens(self) -> None:
        model = OrchidBertForMaskedLM(tiny())
        model.resize_token_embeddings(40)
        assert model(tokens()).logits.shape[-1] == 40
        assert isinstance(model.get_output_embeddings(), nn.Linear)


def test_a_fixed_number_of_predictions_trains_the_same() -> None:
    config = tiny(sparse_prediction=True, hidden_dropout_prob=0.0)
    model, ids = OrchidBertForMaskedLM(config).train(), tokens(2)
    labels = torch.full_like(ids, -100)
    labels[0, 3], labels[1, 7] = 9, 11
    results = []
    for most in (None, 2, 6):
        output = model(input_ids=ids, labels=labels, most_predictions=most)
        results.append((output.loss, *torch.autograd.grad(output.loss, list(model.parameters()), allow_unused=True)))
    assert output.logits.shape[0] == 6
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            torch.testing.assert_close(a, b)
