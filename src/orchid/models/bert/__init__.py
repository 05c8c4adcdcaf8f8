"""Orchid-BERT for Hugging Face: importing this package registers the models with the Auto classes."""

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

from orchid.models.bert.configuration import OrchidBertConfig
from orchid.models.bert.encoder import OrchidBertModel
from orchid.models.bert.heads import (
    OrchidBertForMaskedLM,
    OrchidBertForQuestionAnswering,
    OrchidBertForSequenceClassification,
    OrchidBertForTokenClassification,
)
from orchid.models.bert.presets import PRESETS, preset

__all__ = [
    "PRESETS",
    "OrchidBertConfig",
    "OrchidBertForMaskedLM",
    "OrchidBertForQuestionAnswering",
    "OrchidBertForSequenceClassification",
    "OrchidBertForTokenClassification",
    "OrchidBertModel",
    "preset",
]

AutoConfig.register(OrchidBertConfig.model_type, OrchidBertConfig, exist_ok=True)
for auto, model in (
    (AutoModel, OrchidBertModel),
    (AutoModelForMaskedLM, OrchidBertForMaskedLM),
    (AutoModelForSequenceClassification, OrchidBertForSequenceClassification),
    (AutoModelForTokenClassification, OrchidBertForTokenClassification),
    (AutoModelForQuestionAnswering, OrchidBertForQuestionAnswering),
):
    auto.register(OrchidBertConfig, model, exist_ok=True)
