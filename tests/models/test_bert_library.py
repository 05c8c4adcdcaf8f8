"""Orchid-BERT in the library's pipelines, its Trainer and sentence-transformers."""

import json
from pathlib import Path

import pytest
import torch
from helpers import SPECIAL, WORDS

pytest.importorskip("transformers", reason="needs transformers")
from tiny_bert import tiny, tokens
from transformers import (
    AutoModelForMaskedLM,
    BertTokenizerFast,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainingArguments,
    pipeline,
)

from orchid.models.bert import (
    OrchidBertForMaskedLM,
    OrchidBertForSequenceClassification,
    OrchidBertModel,
)


@pytest.fixture
def tokenizer(tmp_path: Path) -> BertTokenizerFast:
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("\n".join([*SPECIAL, *WORDS]) + "\n")
    return BertTokenizerFast(vocab=str(vocabulary), model_max_length=24)


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
