"""Fine-tuning on a GLUE task: pairs of sentences to a class or a score (section 4.2)."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from orchid.digests import file_digest, joint_digest
from orchid.files import atomic
from orchid.ops.checks import check_at_least, check_choice, check_fraction
from orchid.tasks.glue_data import GLUE, Example, GlueSpec, find_files, read_examples, score
from orchid.tasks.seeds import EpochOrder
from orchid.tasks.tokenizer import start_tokenizer

EVALUATED = 128  # examples evaluated together
MODEL_FILES = (".safetensors", ".json", ".txt")


@dataclass
class Encoded:
    """Examples as tensors: ids, segments and mask (N, L) int64, labels (N,) float32."""

    ids: Tensor
    segments: Tensor
    mask: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)


def encode(examples: list[Example], tokenizer: Any, length: int) -> Encoded:
    """Tokenise examples, the longer sentence of a pair cut first, padded to ``length``."""
    firsts = [example.first for example in examples]
    seconds = None if examples[0].second is None else [str(example.second) for example in examples]
    given = tokenizer(
        firsts,
        seconds,
        truncation=True,
        max_length=length,
        padding="max_length",
        return_token_type_ids=True,
        return_tensors="pt",
    )
    segments = given["token_type_ids"]
    if seconds is not None and not segments.any():
        warnings.warn("the tokenizer does not tell the sentences of a pair apart (token_type_ids)", stacklevel=2)
    labels = torch.tensor([example.label for example in examples])
    return Encoded(given["input_ids"], segments, given["attention_mask"], labels)


class GlueTask:
    """Fine-tunes a pre-trained model; a batch is a pure function of its step."""

    def __init__(self, config: "GlueConfig", model: "StartConfig", seed: int) -> None:
        from orchid.models.bert.configuration import POOLINGS

        self.spec = GLUE[check_choice("task.name", config.name, GLUE)]
        if not config.data or not model.start:
            raise ValueError("task.data must name a folder of GLUE tasks and model.start a pre-trained model's folder")
        self.config, self.model = config, model
        check_at_least("task.length", config.length, 8)
        if config.dropout is not None:
            check_fraction("task.dropout", config.dropout)
        self.pooling = check_choice("task.pooling", config.pooling or self.spec.base.pooling, POOLINGS)
        train, dev = find_files(Path(config.data), self.spec)
        tokenizer = self.tokenizer = start_tokenizer(Path(model.start), config.length)
        self.train = encode(read_examples(train, self.spec), tokenizer, config.length)
        self.dev = {
            path.name.split(".")[0]: encode(read_examples(path, self.spec), tokenizer, config.length) for path in dev
        }
        self._order = EpochOrder(len(self.train), seed)

    def identify(self) -> None:
        """Keep what tells these examples, and the model that is started from, from others at the same places."""
        self.config.digest = examples_digest(Path(self.config.data), self.spec)
        self.model.digest = model_digest(Path(self.model.start))

    def build_model(self) -> nn.Module:
        """Return the pre-trained model with a new head."""
        from transformers import AutoModelForSequenceClassification

        import orchid.models.bert  # noqa: F401  registers it

        labels = self.spec.labels or (self.spec.label,)
        dropout = {} if self.config.dropout is None else {"hidden_dropout_prob": self.config.dropout}
        return AutoModelForSequenceClassification.from_pretrained(
            self.model.start,
            id2label=dict(enumerate(labels)),
            label2id={label: number for number, label in enumerate(labels)},
            classifier_pooling=self.pooling,
            problem_type="single_label_classification" if self.spec.labels else "regression",
            ignore_mismatched_sizes=True,
            **dropout,
        )

    def train_batch(self, index: int, size: int, device: Any) -> tuple[Tensor, ...]:
        """Return ids, segments, mask and labels of a step."""
        rows = self._order.batch(index, size)
        parts = (self.train.ids, self.train.segments, self.train.mask, self.train.labels)
        return tuple(part[rows].to(device) for part in parts)

    def loss(self, model: nn.Module, batch: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """Return the summed cross-entropy, or squared error of a score, and the number of examples."""
        ids, segments, mask, labels = batch
        logits = model(input_ids=ids, attention_mask=mask, token_type_ids=segments).logits.float()
        count = torch.full((), len(labels), device=labels.device)
        if not self.spec.labels:
            return F.mse_loss(logits.squeeze(-1), labels, reduction="sum"), count
        return F.cross_entropy(logits, labels.long(), reduction="sum"), count

    def evaluate(self, model: nn.Module, device: Any) -> dict[str, float]:
        """Return the task's metric on the development set, the mean over MNLI's two."""
        predicted = self.predictions(model, device)
        scores = [score(self.spec.metric, predicted[name], part.labels.numpy()) for name, part in self.dev.items()]
        own = {f"{name}/{self.spec.metric}": value for name, value in zip(self.dev, scores, strict=True)}
        return {f"dev/{self.spec.metric}": float(np.mean(scores)), **(own if len(scores) > 1 else {})}

    @torch.no_grad()
    def predictions(self, model: nn.Module, device: Any) -> dict[str, np.ndarray]:
        """Return the predicted classes or scores of every development file."""
        found = {}
        for name, part in self.dev.items():
            logits = []
            for rows in torch.arange(len(part)).split(EVALUATED):
                inputs = {"input_ids": part.ids, "token_type_ids": part.segments, "attention_mask": part.mask}
                logits.append(
                    model(**{key: value[rows].to(device) for key, value in inputs.items()}).logits.float().cpu()
                )
            joined = torch.cat(logits)
            found[name] = (joined.argmax(dim=-1) if self.spec.labels else joined.squeeze(-1)).numpy()
        return found

    def write_predictions(self, model: nn.Module, device: Any, folder: Path) -> list[Path]:
        """Write FOLDER/predictions.tsv (one for each of several development files): index, prediction, label."""
        written = []
        for name, predicted in self.predictions(model, device).items():
            path = folder / ("predictions.tsv" if len(self.dev) == 1 else f"predictions-{name}.tsv")
            lines = ["index\tprediction\tlabel"]
            for index, (value, label) in enumerate(zip(predicted, self.dev[name].labels.tolist(), strict=True)):
                lines.append(f"{index}\t{self._shown(float(value))}\t{self._shown(label)}")
            with atomic(path) as temporary:
                temporary.write_text("\n".join(lines) + "\n")
            written.append(path)
        return written

    def _shown(self, value: float) -> str:
        return self.spec.labels[int(value)] if self.spec.labels else f"{value:.3f}"


@dataclass(kw_only=True)
class GlueConfig:
    """Settings of a GLUE task.

    Attributes:
        name: the task.
        data: the folder of all tasks.
        length: tokens of an example.
        pooling: of the classifier, "cls" or "mean"; empty is the paper's for the task.
        dropout: of the hidden layers; None is that of the model's configuration.
        digest: of the examples' files, once they have been read.
    """

    name: str
    data: str = ""
    length: int = 128
    pooling: str = ""
    dropout: float | None = None
    digest: str = ""

    def build(self, model: "StartConfig", seed: int) -> GlueTask:
        """Return the task."""
        return GlueTask(self, model, seed)


@dataclass(kw_only=True)
class StartConfig:
    """The model to start from.

    Attributes:
        start: a Hugging Face folder.
        digest: of its weights, settings and tokenizer, once they have been read.
    """

    start: str = ""
    digest: str = ""


def examples_digest(data: Path, spec: GlueSpec) -> str:
    """Return a digest of a task's examples."""
    train, dev = find_files(data, spec)
    return joint_digest(file_digest(path) for path in (train, *dev))


def model_digest(folder: Path) -> str:
    """Return a digest of a Hugging Face model: its weights, settings and tokenizer."""
    files = sorted(path for path in folder.iterdir() if path.suffix in MODEL_FILES and path.is_file())
    return joint_digest(part for path in files for part in (path.name, file_digest(path)))


def steps_for(examples: int, epochs: int, batch_size: int) -> int:
    """Return the optimizer steps of some epochs, the last batch of which may begin another."""
    return max(1, -(-examples * epochs // batch_size))
