"""Orchid-BERT's tasks: masked language modelling, classification of sequences and of tokens, question answering."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.modeling_outputs import (
    BaseModelOutput,
    MaskedLMOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)

from orchid.models.bert.configuration import OrchidBertConfig
from orchid.models.bert.encoder import OrchidBertModel, OrchidBertPreTrainedModel
from orchid.nn.projections import is_plain
from orchid.ops.kernels.library import PLAIN

IGNORED = -100  # a label that is not trained
ALIGNED = 64  # features of a product that a GPU's fastest kernels take: multiples of it


class OrchidBertPredictionHead(nn.Module):
    """Linear, GELU, LayerNorm, then logits over the vocabulary."""

    def __init__(self, config: OrchidBertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (..., V) of (..., D)."""
        x = self.norm(F.gelu(self.dense(x)))
        return aligned_logits(self.decoder, x) if self.training and x.is_cuda else self.decoder(x)


def aligned_logits(decoder: nn.Linear, x: Tensor) -> Tensor:
    """Return what ``decoder`` does, (..., D) -> (..., V), from a product whose rows begin at aligned addresses.

    A GPU's library takes slow kernels where rows are 30,522 numbers: here a few follow, zeros that are cut off again.
    The result is a part of these wider rows. A decoder that is more than its matrix is called as a layer.
    """
    plain = is_plain(decoder) and type(decoder.weight) in PLAIN
    more = -decoder.out_features % ALIGNED if plain else 0
    if not more:
        y: Tensor = decoder(x)
        return y
    weight, bias = F.pad(decoder.weight, (0, 0, 0, more)), F.pad(decoder.bias, (0, more))
    return F.linear(x, weight, bias)[..., :-more]


class OrchidBertForMaskedLM(OrchidBertPreTrainedModel):
    """Predicts masked tokens."""

    _tied_weights_keys = {"head.decoder.weight": "orchid_bert.embeddings.word_embeddings.weight"}  # noqa: RUF012

    def __init__(self, config: OrchidBertConfig) -> None:
        super().__init__(config)
        self.orchid_bert = OrchidBertModel(config)
        self.head = OrchidBertPredictionHead(config)
        self.post_init()

    def get_output_embeddings(self) -> nn.Module:
        """Return the layer of the logits."""
        return self.head.decoder

    def set_output_embeddings(self, value: nn.Linear) -> None:
        """Replace the layer of the logits."""
        self.head.decoder = value

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        most_predictions: int | None = None,
        **without_effect: Any,
    ) -> MaskedLMOutput | tuple[Tensor, ...]:
        """Return logits (B, L, V) and, with labels (B, L; -100 is not trained), the loss.

        In training on a GPU the logits are a part of wider rows: ``reshape`` takes them to a single axis, not ``view``.

        With ``config.sparse_prediction``, in training, logits are those of labelled positions only, (count, V). With
        ``most_predictions`` there are always so many rows, of which some may stand for no position: a step whose shapes
        do not depend on its data can be captured as a CUDA graph. More labels than that are not trained.
        """
        outputs = self.orchid_bert(
            input_ids, attention_mask, token_type_ids, inputs_embeds, output_hidden_states, True, **without_effect
        )
        x, loss = outputs.last_hidden_state, None
        if labels is not None and self.config.sparse_prediction and self.training:
            x, labels = _labelled(x.flatten(0, 1), labels.flatten(), most_predictions)
        logits = self.head(x)
        if labels is not None:
            loss = F.cross_entropy(logits.flatten(0, -2).float(), labels.flatten(), ignore_index=IGNORED)
        return _returned(self, return_dict, MaskedLMOutput, loss, outputs, logits=logits)


def _labelled(x: Tensor, labels: Tensor, most: int | None) -> tuple[Tensor, Tensor]:
    """Return the rows of x (N, D) that have a label, and the labels; ``most`` rows exactly, where it is given."""
    labelled = labels != IGNORED
    if most is None:
        return x[labelled], labels[labelled]
    chosen = labelled.to(torch.int8).argsort(descending=True, stable=True)[:most]
    return x[chosen], labels[chosen]


class OrchidBertForSequenceClassification(OrchidBertPreTrainedModel):
    """Classifies a sequence or a pair by its first real token or the mean of its real ones; one label is regression."""

    def __init__(self, config: OrchidBertConfig) -> None:
        super().__init__(config)
        self.num_labels = int(config.num_labels or 1)
        self.orchid_bert = OrchidBertModel(config)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.dropout = _classifier_dropout(config)
        self.classifier = nn.Linear(config.hidden_size, self.num_labels)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        **without_effect: Any,
    ) -> SequenceClassifierOutput | tuple[Tensor, ...]:
        """Return logits (B, labels) and, with labels, the loss of ``config.problem_type`` (guessed if None)."""
        outputs = self.orchid_bert(
            input_ids, attention_mask, token_type_ids, inputs_embeds, output_hidden_states, True, **without_effect
        )
        x = self._pooled(outputs.last_hidden_state, attention_mask)
        logits = self.classifier(self.dropout(torch.tanh(self.dense(self.dropout(x)))))
        loss = None if labels is None else self._loss(logits, labels)
        return _returned(self, return_dict, SequenceClassifierOutput, loss, outputs, logits=logits)

    def _pooled(self, x: Tensor, attention_mask: Tensor | None) -> Tensor:
        if attention_mask is None:
            return x[:, 0] if self.config.classifier_pooling == "cls" else x.mean(dim=1)
        if self.config.classifier_pooling == "cls":  # where padding stands in front, the first token is further on
            first = attention_mask.bool().int().argmax(dim=1)
            return x.gather(1, first[:, None, None].expand(-1, 1, x.shape[2])).squeeze(1)
        real = attention_mask.bool()[..., None]
        return x.masked_fill(~real, 0.0).sum(dim=1) / real.sum(dim=1).clamp(min=1).to(x.dtype)

    def _loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        if self.config.problem_type is None:
            if self.num_labels == 1:
                self.config.problem_type = "regression"
            else:
                whole = not labels.is_floating_point()
                self.config.problem_type = "single_label_classification" if whole else "multi_label_classification"
        if self.config.problem_type == "regression":
            return F.mse_loss(logits.float().squeeze(-1), labels.float().view(logits.squeeze(-1).shape))
        if self.config.problem_type == "single_label_classification":
            return F.cross_entropy(logits.float(), labels.view(-1))
        return F.binary_cross_entropy_with_logits(logits.float(), labels.float())


class OrchidBertForTokenClassification(OrchidBertPreTrainedModel):
    """Classifies every token."""

    def __init__(self, config: OrchidBertConfig) -> None:
        super().__init__(config)
        self.num_labels = int(config.num_labels or 1)
        self.orchid_bert = OrchidBertModel(config)
        self.dropout = _classifier_dropout(config)
        self.classifier = nn.Linear(config.hidden_size, self.num_labels)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        **without_effect: Any,
    ) -> TokenClassifierOutput | tuple[Tensor, ...]:
        """Return logits (B, L, labels) and, with labels (B, L; -100 is not trained), the loss."""
        outputs = self.orchid_bert(
            input_ids, attention_mask, token_type_ids, inputs_embeds, output_hidden_states, True, **without_effect
        )
        logits, loss = self.classifier(self.dropout(outputs.last_hidden_state)), None
        if labels is not None:
            loss = F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), ignore_index=IGNORED)
        return _returned(self, return_dict, TokenClassifierOutput, loss, outputs, logits=logits)


class OrchidBertForQuestionAnswering(OrchidBertPreTrainedModel):
    """Finds the span of an answer."""

    def __init__(self, config: OrchidBertConfig) -> None:
        super().__init__(config)
        self.orchid_bert = OrchidBertModel(config)
        self.qa_outputs = nn.Linear(config.hidden_size, 2)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        **without_effect: Any,
    ) -> QuestionAnsweringModelOutput | tuple[Tensor, ...]:
        """Return start and end logits (B, L) and, with positions (B,), the loss; positions outside are not trained."""
        outputs = self.orchid_bert(
            input_ids, attention_mask, token_type_ids, inputs_embeds, output_hidden_states, True, **without_effect
        )
        start, end = self.qa_outputs(outputs.last_hidden_state).unbind(dim=-1)
        loss = None
        if start_positions is not None and end_positions is not None:
            length = start.shape[1]
            spans = ((start, start_positions.view(-1)), (end, end_positions.view(-1)))
            losses = [F.cross_entropy(logits.float(), at.clamp(0, length), ignore_index=length) for logits, at in spans]
            loss = (losses[0] + losses[1]) / 2
        return _returned(
            self, return_dict, QuestionAnsweringModelOutput, loss, outputs, start_logits=start, end_logits=end
        )


def _classifier_dropout(config: OrchidBertConfig) -> nn.Dropout:
    own = config.classifier_dropout
    return nn.Dropout(config.hidden_dropout_prob if own is None else own)


def _returned(
    model: OrchidBertPreTrainedModel,
    return_dict: bool | None,
    kind: type,
    loss: Tensor | None,
    outputs: BaseModelOutput,
    **logits: Tensor,
) -> Any:
    """Return an output object, or the tuple of what is in it."""
    wants_dict = model.config.return_dict if return_dict is None else return_dict
    if wants_dict:
        return kind(loss=loss, **logits, hidden_states=outputs.hidden_states)
    parts = (loss, *logits.values(), outputs.hidden_states)
    return tuple(part for part in parts if part is not None)
