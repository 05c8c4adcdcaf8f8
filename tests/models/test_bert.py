"""Orchid-BERT as a Hugging Face citizen."""

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import SPECIAL, WORDS
from torch import nn

pytest.importorskip("transformers", reason="needs transformers")
from safetensors.torch import load_file, save_file
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    BertTokenizerFast,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainingArguments,
    pipeline,
)

from orchid.mixers.registry import create_mixer, list_mixers
from orchid.models.bert import (
    OrchidBertConfig,
    OrchidBertForMaskedLM,
    OrchidBertForQuestionAnswering,
    OrchidBertForSequenceClassification,
    OrchidBertForTokenClassification,
    OrchidBertModel,
    preset,
)
from orchid.models.bert.modeling import aligned_logits

HEADS = [
    OrchidBertForMaskedLM,
    OrchidBertForSequenceClassification,
    OrchidBertForTokenClassification,
    OrchidBertForQuestionAnswering,
]


def tiny(**changes: object) -> OrchidBertConfig:
    settings: dict[str, object] = {
        "vocab_size": len(SPECIAL) + len(WORDS),
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "max_position_embeddings": 24,
    }
    return OrchidBertConfig(**{**settings, **changes})


@pytest.fixture
def tokenizer(tmp_path: Path) -> BertTokenizerFast:
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("\n".join([*SPECIAL, *WORDS]) + "\n")
    return BertTokenizerFast(vocab=str(vocabulary), model_max_length=24)


def tokens(batch: int = 3, length: int = 10) -> torch.Tensor:
    return torch.randint(len(SPECIAL), len(SPECIAL) + len(WORDS), (batch, length))


@pytest.mark.parametrize(
    ("name", "millions"),
    [
        ("orchid-bert-base", 77),
        ("orchid-bert-large", 254),
        ("bert-base", 110),
        ("m2-bert-base", 80),
        ("m2-bert-large", 260),
    ],
)
def test_parameter_counts_of_the_paper(name: str, millions: float) -> None:
    with torch.device("meta"):
        model = OrchidBertForMaskedLM(preset(name))
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(millions * 1e6, rel=0.01)


def test_bert_large_has_the_published_count() -> None:
    """335.2 million with its masked-LM head; the paper rounds to 340."""
    with torch.device("meta"):
        model = OrchidBertForMaskedLM(preset("bert-large"))
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(335.2e6, rel=0.001)


class TestConfig:
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"hiden_size": 32}, "no setting 'hiden_size'.*did you mean.*hidden_size"),
            ({"mixer": "orchd"}, "mixer='orchd'"),
            ({"hidden_size": 0}, "hidden_size=0"),
            ({"classifier_pooling": "max"}, "classifier_pooling='max'"),
            ({"mixer_options": {"ordr": 2}}, "ordr"),
        ],
    )
    def test_wrong_settings_say_what_is_wrong(self, changes: dict[str, object], message: str) -> None:
        with pytest.raises((ValueError, TypeError), match=message):
            OrchidBertModel(tiny(**changes))

    def test_survives_saving(self, tmp_path: Path) -> None:
        config = tiny(mixer_options={"conditioning": "cross"}, num_labels=4, classifier_pooling="mean")
        config.save_pretrained(tmp_path)
        loaded = AutoConfig.from_pretrained(tmp_path)
        assert loaded.to_dict() | {"_name_or_path": ""} == config.to_dict()

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"hiden_size": 4}, "no setting 'hiden_size'.*did you mean.*hidden_size"),
            ({"classifier_pooling": "meen"}, "classifier_pooling='meen'"),
            ({"position_embeddings": "lerned"}, "position_embeddings='lerned'"),
            ({"hidden_size": 0}, "hidden_size=0"),
        ],
    )
    def test_changes_to_what_is_loaded_are_checked(
        self, tmp_path: Path, changes: dict[str, object], message: str
    ) -> None:
        OrchidBertModel(tiny()).save_pretrained(tmp_path)
        for load in (OrchidBertConfig.from_pretrained, AutoConfig.from_pretrained):
            with pytest.raises(ValueError, match=message):
                load(tmp_path, **changes)
        with pytest.raises((ValueError, TypeError), match=next(iter(changes))):
            AutoModelForSequenceClassification.from_pretrained(tmp_path, **changes)

    def test_changed_since(self) -> None:
        config = tiny()
        config.classifier_pooling = "meen"
        with pytest.raises(ValueError, match="classifier_pooling='meen'"):
            OrchidBertForSequenceClassification(config)

    def test_what_the_library_passes(self, tmp_path: Path) -> None:
        OrchidBertModel(tiny()).save_pretrained(tmp_path)
        given = {"mlp": "plain", "num_labels": 3, "foo": 1, "return_unused_kwargs": True}
        config, unused = AutoConfig.from_pretrained(tmp_path, **given)
        assert (config.mlp, config.num_labels, unused) == ("plain", 3, {"foo": 1})
        config = AutoConfig.from_pretrained(tmp_path, trust_remote_code=False, device_map="cpu", dtype=torch.float32)
        assert config.dtype == torch.float32
        given = {"quantization_config": {"quant_method": "torchao"}, "custom_pipelines": {}}
        tiny(**given).save_pretrained(tmp_path)
        assert OrchidBertConfig.from_pretrained(tmp_path).custom_pipelines == {}

    def test_what_is_saved_can_be_loaded(self, tmp_path: Path) -> None:
        """What the Trainer takes from a tokenizer, and what it is told at once that it could not."""
        config = tiny()
        config.bos_token_id, config.eos_token_id = 2, 3
        OrchidBertModel(config).save_pretrained(tmp_path)
        assert OrchidBertModel.from_pretrained(tmp_path).config.eos_token_id == 3
        config.my_note = "x"
        with pytest.raises(ValueError, match="no setting 'my_note'"):
            OrchidBertModel(config).save_pretrained(tmp_path)

    def test_another_mixer_leaves_the_options_of_the_first(self, tmp_path: Path) -> None:
        tiny(mixer_options={"filter_width": 8}).save_pretrained(tmp_path)
        assert OrchidBertConfig.from_pretrained(tmp_path, mixer="attention").mixer_options == {}
        assert OrchidBertConfig.from_pretrained(tmp_path, mlp="plain").mixer_options == {"filter_width": 8}

    def test_a_preset_with_another_mixer(self) -> None:
        assert preset("orchid-bert-base", mixer="attention").mixer_options == {}
        assert preset("orchid-bert-base", mixer="hyena", mixer_options={"order": 3}).mixer_options == {"order": 3}
        assert preset("orchid-bert-base", mixer="orchid").mixer_options == preset("orchid-bert-base").mixer_options


class TestSaving:
    @pytest.mark.parametrize("mixer", ["orchid", "attention", "monarch", "performer"])
    def test_bit_exact_in_a_new_process(self, tmp_path: Path, mixer: str) -> None:
        torch.manual_seed(0)
        model, ids = OrchidBertForMaskedLM(tiny(mixer=mixer)).eval(), tokens()
        model.save_pretrained(tmp_path)
        loaded = AutoModelForMaskedLM.from_pretrained(tmp_path)
        for name, value in model.state_dict().items():
            assert torch.equal(loaded.state_dict()[name], value), name
        if mixer == "orchid":  # the others' products depend on where in memory a matrix begins, in the last bit
            assert torch.equal(loaded(ids).logits, model(ids).logits)
        torch.save({"ids": ids, "logits": loaded(ids).logits}, tmp_path / "expected.pt")
        script = (
            "import sys, torch, orchid.models.bert\n"
            "from transformers import AutoModelForMaskedLM\n"
            "model = AutoModelForMaskedLM.from_pretrained(sys.argv[1])\n"
            "expected = torch.load(sys.argv[1] + '/expected.pt', weights_only=True)\n"
            "assert torch.equal(model(expected['ids']).logits, expected['logits'])\n"
        )
        subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, timeout=120)

    def test_tied_weights_are_stored_once(self, tmp_path: Path) -> None:
        from safetensors import safe_open

        model = OrchidBertForMaskedLM(tiny())
        model.save_pretrained(tmp_path)
        with safe_open(tmp_path / "model.safetensors", "pt") as stored:
            assert not {"head.decoder.weight", "orchid_bert.embeddings.word_embeddings.weight"} <= set(stored.keys())
        loaded = OrchidBertForMaskedLM.from_pretrained(tmp_path)
        assert loaded.head.decoder.weight is loaded.orchid_bert.embeddings.word_embeddings.weight

    def test_a_new_head_leaves_the_rest_as_it_was(self, tmp_path: Path) -> None:
        model = OrchidBertForMaskedLM(tiny())
        model.save_pretrained(tmp_path)
        loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path, num_labels=3)
        for name, value in model.orchid_bert.state_dict().items():
            assert torch.equal(loaded.orchid_bert.state_dict()[name], value), name
        assert float(loaded.classifier.weight.detach().std()) == pytest.approx(0.02, rel=0.3)

    def test_dtype(self, tmp_path: Path) -> None:
        OrchidBertModel(tiny()).save_pretrained(tmp_path)
        model = AutoModel.from_pretrained(tmp_path, dtype=torch.bfloat16)
        assert model.dtype == torch.bfloat16
        assert model(tokens()).last_hidden_state.dtype == torch.bfloat16


class TestInitialisation:
    """The library would draw every linear and convolution from N(0, 0.02)."""

    @pytest.mark.parametrize("name", [name for name in list_mixers() if name != "attention"])
    def test_mixers_keep_their_own(self, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """What their constructors draw is what a new model has, and one whose file lacks them."""
        drawn: list[dict[str, torch.Tensor]] = []

        def recorded(*given: Any, **options: Any) -> nn.Module:
            mixer = create_mixer(*given, **options)
            drawn.append({key: value.clone() for key, value in mixer.state_dict().items()})
            return mixer

        monkeypatch.setattr("orchid.models.block.create_mixer", recorded)
        monkeypatch.setattr("orchid.models.bert.modeling.create_mixer", recorded)
        model = OrchidBertModel(tiny(mixer=name, num_hidden_layers=1))
        stored = {key: value for key, value in model.state_dict().items() if ".mixer." not in key}
        model.config.save_pretrained(tmp_path)
        save_file(stored, tmp_path / "model.safetensors")
        loaded = OrchidBertModel.from_pretrained(tmp_path)
        assert len(drawn) == 3 and drawn[1][next(iter(drawn[1]))].is_meta
        for inside, expected in ((model, drawn[0]), (loaded, drawn[2])):
            for key, value in inside.layers[0].mixer.state_dict().items():
                assert torch.equal(value, expected[key]), key
        assert all(torch.equal(loaded.state_dict()[key], value) for key, value in stored.items())

    def test_only_what_is_missing_is_drawn(self, tmp_path: Path) -> None:
        model = OrchidBertModel(tiny(mixer="mamba"))
        model.save_pretrained(tmp_path)
        stored = load_file(tmp_path / "model.safetensors")
        del stored["layers.0.mixer.sides.0.dt_proj.weight"]
        save_file(stored, tmp_path / "model.safetensors")
        loaded = OrchidBertModel.from_pretrained(tmp_path).state_dict()
        assert all(torch.equal(loaded[key], value) for key, value in stored.items())
        bound = 2**-0.5  # of rank 2
        assert bound / 2 < float(loaded["layers.0.mixer.sides.0.dt_proj.weight"].abs().max()) <= bound

    def test_attention_starts_as_in_bert(self) -> None:
        mixer = OrchidBertModel(tiny(mixer="attention", hidden_size=128)).layers[0].mixer
        assert float(mixer.in_proj.weight.detach().std()) == pytest.approx(0.02, rel=0.05)
        assert not mixer.out_proj.bias.detach().any()

    def test_outside_the_mixers(self) -> None:
        model = OrchidBertForMaskedLM(tiny(hidden_size=128, mlp="plain", mlp_blocks=1))
        for weight in (model.head.dense.weight, model.orchid_bert.layers[0].mlp.up.weight):
            assert float(weight.detach().std()) == pytest.approx(0.02, rel=0.05)


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


class TestLibrary:
    """Pipelines and the Trainer, as a user calls them."""

    def test_fill_mask(self, tokenizer: BertTokenizerFast, tmp_path: Path) -> None:
        OrchidBertForMaskedLM(tiny()).save_pretrained(tmp_path / "m")
        tokenizer.save_pretrained(tmp_path / "m")
        fill = pipeline("fill-mask", model=str(tmp_path / "m"))
        answers = fill("the cat [MASK] on the mat")
        assert len(answers) == 5
        assert all(answer["token_str"] in [*WORDS, *SPECIAL] for answer in answers)

    def test_text_classification(self, tokenizer: BertTokenizerFast) -> None:
        model = OrchidBertForSequenceClassification(tiny(id2label={0: "no", 1: "yes"}, label2id={"no": 0, "yes": 1}))
        classify = pipeline("text-classification", model=model.eval(), tokenizer=tokenizer)
        results = classify(["the cat sat", "the big dog ran away and then home"], batch_size=2)
        alone = classify("the cat sat")
        assert {result["label"] for result in results} <= {"no", "yes"}
        assert results[0]["score"] == pytest.approx(alone[0]["score"], abs=1e-5)

    def test_feature_extraction(self, tokenizer: BertTokenizerFast) -> None:
        extract = pipeline("feature-extraction", model=OrchidBertModel(tiny()), tokenizer=tokenizer)
        assert torch.tensor(extract("the cat sat")).shape == (1, 5, 32)

    def test_sentence_transformers(self, tokenizer: BertTokenizerFast, tmp_path: Path) -> None:
        """A folder loads as it is, pools by the mean, and neither padding nor saving changes a sentence's vector."""
        library = pytest.importorskip("sentence_transformers", reason="needs sentence-transformers")
        for part in (OrchidBertModel(tiny()), tokenizer):
            part.save_pretrained(tmp_path / "model")
        model = library.SentenceTransformer(str(tmp_path / "model"), device="cpu")
        sentences = [" ".join(WORDS[:9]), WORDS[0]]
        vectors = model.encode(sentences)
        assert vectors.shape == (2, 32)
        assert abs(model.encode(sentences[1:]) - vectors[1:]).max() < 1e-6
        model.save(str(tmp_path / "saved"))
        again = library.SentenceTransformer(str(tmp_path / "saved"), device="cpu")
        assert (again.encode(sentences) == vectors).all()

    def test_trainer(self, tokenizer: BertTokenizerFast, tmp_path: Path) -> None:
        torch.manual_seed(0)
        texts = ["the cat sat on the mat", "a big dog ran away and then home"] * 16
        data = [tokenizer(text) for text in texts]
        arguments = TrainingArguments(
            str(tmp_path / "out"),
            max_steps=60,
            per_device_train_batch_size=16,
            learning_rate=1e-2,
            report_to=[],
            save_strategy="no",
            logging_steps=20,
            disable_tqdm=True,
            use_cpu=True,
            seed=0,
        )
        collator = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.3)
        model = OrchidBertForMaskedLM(tiny(sparse_prediction=True))
        trainer = Trainer(model, arguments, train_dataset=data, data_collator=collator)
        trainer.train()
        losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        assert losses[-1] < 0.7 * losses[0]
        trainer.save_model(str(tmp_path / "kept"))
        assert json.loads((tmp_path / "kept" / "config.json").read_text())["model_type"] == "orchid_bert"
        assert AutoModelForMaskedLM.from_pretrained(tmp_path / "kept").config.sparse_prediction


@pytest.mark.parametrize("head", [OrchidBertForMaskedLM, OrchidBertForSequenceClassification])
def test_accumulated_batches_train_the_same(head: type, tmp_path: Path) -> None:
    """Eight at once, or two four times: one loss and one gradient."""
    model, ids = head(tiny(hidden_dropout_prob=0.0)), tokens(8)
    labels = ids if head is OrchidBertForMaskedLM else torch.arange(8) % 2
    data = [{"input_ids": row, "labels": label} for row, label in zip(ids, labels, strict=True)]
    logged = []
    for size, pieces in ((8, 1), (2, 4)):
        arguments = TrainingArguments(
            str(tmp_path),
            max_steps=1,
            per_device_train_batch_size=size,
            gradient_accumulation_steps=pieces,
            learning_rate=0.0,
            max_grad_norm=1e9,
            report_to=[],
            save_strategy="no",
            logging_steps=1,
            disable_tqdm=True,
            use_cpu=True,
        )
        trainer = Trainer(model, arguments, train_dataset=data)
        trainer.train()
        logged.append(trainer.state.log_history[0])
    for name in ("loss", "grad_norm"):
        assert float(logged[0][name]) == pytest.approx(float(logged[1][name]), rel=1e-4), name


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
