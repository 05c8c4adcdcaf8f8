"""A small Orchid-BERT for the tests of it."""

import pytest
import torch
from helpers import SPECIAL, WORDS

pytest.importorskip("transformers", reason="needs transformers")
from orchid.models.bert import (
    OrchidBertConfig,
    OrchidBertForMaskedLM,
    OrchidBertForQuestionAnswering,
    OrchidBertForSequenceClassification,
    OrchidBertForTokenClassification,
)

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


def tokens(batch: int = 3, length: int = 10) -> torch.Tensor:
    return torch.randint(len(SPECIAL), len(SPECIAL) + len(WORDS), (batch, length))
