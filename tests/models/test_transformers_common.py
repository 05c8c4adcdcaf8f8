"""Hugging Face's own common model tests on Orchid-BERT, from a checkout named by ORCHID_TRANSFORMERS.

    ORCHID_TRANSFORMERS=CHECKOUT pytest -c /dev/null -rA tests/models/test_transformers_common.py

(their markers are not ours, hence the empty configuration). docs/bert_common_tests.md lists what passes and what does
not apply.
"""

import os
import sys
import unittest
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

CHECKOUT = os.environ.get("ORCHID_TRANSFORMERS")
if CHECKOUT is None:
    pytest.skip("needs ORCHID_TRANSFORMERS, a checkout of transformers", allow_module_level=True)
sys.path.insert(0, CHECKOUT)
for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
    del sys.modules[name]  # ours, under the same name as theirs
from tests.test_configuration_common import ConfigTester  # noqa: E402
from tests.test_modeling_common import ModelTesterMixin  # noqa: E402

from orchid.models.bert import (  # noqa: E402
    OrchidBertConfig,
    OrchidBertForMaskedLM,
    OrchidBertForQuestionAnswering,
    OrchidBertForSequenceClassification,
    OrchidBertForTokenClassification,
    OrchidBertModel,
)

HEADS = (
    OrchidBertForMaskedLM,
    OrchidBertForSequenceClassification,
    OrchidBertForTokenClassification,
    OrchidBertForQuestionAnswering,
)


class Tester:
    """Builds what the common tests ask for: a small configuration and a batch."""

    __test__ = False
    base_model_class = OrchidBertModel

    def __init__(self, parent: unittest.TestCase) -> None:
        self.parent = parent
        self.batch_size, self.seq_length, self.hidden_size, self.num_hidden_layers = 3, 7, 32, 2
        self.is_training = True

    def get_config(self) -> OrchidBertConfig:
        return OrchidBertConfig(
            vocab_size=99,
            hidden_size=self.hidden_size,
            num_hidden_layers=self.num_hidden_layers,
            max_position_embeddings=16,
            hidden_dropout_prob=0.0,
        )

    def prepare_config_and_inputs_for_common(self) -> tuple[OrchidBertConfig, dict[str, torch.Tensor]]:
        ids = torch.randint(1, 99, (self.batch_size, self.seq_length))
        return self.get_config(), {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


class OrchidBertCommonTest(ModelTesterMixin, unittest.TestCase):
    all_model_classes = (OrchidBertModel, *HEADS)
    has_attentions = False
    is_encoder_decoder = False

    def setUp(self) -> None:
        self.model_tester = Tester(self)
        sizes = ["hidden_size", "num_hidden_layers"]  # there are no heads
        self.config_tester = ConfigTester(
            self, config_class=OrchidBertConfig, common_properties=sizes, has_text_modality=False, hidden_size=32
        )

    def _prepare_for_class(
        self, inputs_dict: dict[str, torch.Tensor], model_class: type, return_labels: bool = False
    ) -> dict[str, torch.Tensor]:
        """Add labels: theirs go by their own models' names."""
        inputs = dict(inputs_dict)
        batch, length = inputs["input_ids"].shape
        if return_labels and model_class is OrchidBertForSequenceClassification:
            inputs["labels"] = torch.zeros(batch, dtype=torch.long)
        elif return_labels and model_class is OrchidBertForQuestionAnswering:
            inputs |= {"start_positions": torch.zeros(batch).long(), "end_positions": torch.zeros(batch).long()}
        elif return_labels and model_class is not OrchidBertModel:
            inputs["labels"] = torch.zeros(batch, length, dtype=torch.long)
        return inputs

    @contextmanager
    def _with_losses(self) -> Iterator[None]:
        """Leave out the model without a head, which they know by its name: it has no loss."""
        type(self).all_model_classes = HEADS
        try:
            yield
        finally:
            type(self).all_model_classes = (OrchidBertModel, *HEADS)

    def test_training(self) -> None:
        with self._with_losses():
            super().test_training()

    def test_training_gradient_checkpointing(self) -> None:
        with self._with_losses():
            super().test_training_gradient_checkpointing()

    def test_training_gradient_checkpointing_use_reentrant_false(self) -> None:
        with self._with_losses():
            super().test_training_gradient_checkpointing_use_reentrant_false()

    def test_training_gradient_checkpointing_use_reentrant_true(self) -> None:
        with self._with_losses():
            super().test_training_gradient_checkpointing_use_reentrant_true()

    def test_config(self) -> None:
        self.config_tester.run_common_tests()
