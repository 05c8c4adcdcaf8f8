"""The eight GLUE tasks: files, columns, labels, metrics, and the paper's settings for each (table HP_all_glue)."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from orchid.ops.checks import check_choice
from orchid.tasks.corpus import read_lines

ENTAILMENT = ("entailment", "not_entailment")
NLI = ("entailment", "neutral", "contradiction")
BINARY = ("0", "1")
ENDINGS = (".tsv", ".tsv.xz", ".tsv.gz")


@dataclass(frozen=True)
class Settings:
    """How the paper fine-tunes a task.

    Attributes:
        learning_rate: at its peak.
        weight_decay: of a step, where it is ``decoupled``; else it is multiplied by the rate.
        epochs: over the training set.
        decoupled: see above.
        pooling: of the classifier.
    """

    learning_rate: float
    weight_decay: float
    epochs: int
    decoupled: bool
    pooling: str = "cls"


@dataclass(frozen=True)
class GlueSpec:
    """One task.

    Attributes:
        name: as the benchmark spells it.
        texts: columns of the sentence or the pair.
        label: column of the label.
        labels: in the order of their ids; none is a score, a regression.
        metric: "accuracy", "f1", "matthews" or "spearman".
        base: the paper's settings for the 77M model.
        large: for the 254M model.
        paper: what the paper reports for the 77M model, a fraction.
        examples: in the official training set.
        columns: of a file without a header.
        from_mnli: start from the model fine-tuned on MNLI.
        ragged: the official files have a few lines that are cut short, which nobody uses.
    """

    name: str
    texts: tuple[str, ...]
    label: str
    labels: tuple[str, ...]
    metric: str
    base: Settings
    large: Settings
    paper: float
    examples: int
    columns: tuple[str, ...] = ()
    from_mnli: bool = False
    ragged: bool = False


GLUE = {
    spec.name: spec
    for spec in (
        GlueSpec(
            "MNLI", ("sentence1", "sentence2"), "label", NLI, "accuracy",
            Settings(5e-5, 5e-6, 3, True), Settings(5e-5, 5e-6, 3, True), (0.7953 + 0.8052) / 2, 392702,
        ),
        GlueSpec(
            "RTE", ("sentence1", "sentence2"), "label", ENTAILMENT, "accuracy",
            Settings(5e-5, 0.01, 6, False), Settings(1e-5, 1e-6, 3, True), 0.704, 2490, from_mnli=True,
        ),
        GlueSpec(
            "QNLI", ("question", "sentence"), "label", ENTAILMENT, "accuracy",
            Settings(5e-5, 1e-5, 10, False, "mean"), Settings(5e-5, 1e-5, 10, True), 0.8616, 104743,
        ),
        GlueSpec(
            "QQP", ("question1", "question2"), "is_duplicate", BINARY, "f1",
            Settings(3e-5, 0.01, 10, False), Settings(3e-5, 3e-6, 5, True), 0.872, 363846, ragged=True,
        ),
        GlueSpec(
            "SST-2", ("sentence",), "label", BINARY, "accuracy",
            Settings(3e-5, 3e-6, 3, True), Settings(3e-5, 3e-6, 3, True), 0.9205, 67349,
        ),
        GlueSpec(
            "STS-B", ("sentence1", "sentence2"), "score", (), "spearman",
            Settings(7e-5, 0.01, 10, False), Settings(7e-5, 3e-6, 10, True), 0.8663, 5749, from_mnli=True,
        ),
        GlueSpec(
            "CoLA", ("sentence",), "label", BINARY, "matthews",
            Settings(5e-5, 5e-6, 10, True), Settings(5e-5, 5e-6, 10, False), 0.5176, 8551,
            columns=("source", "label", "mark", "sentence"),
        ),
        GlueSpec(
            "MRPC", ("#1 String", "#2 String"), "Quality", BINARY, "f1",
            Settings(5e-5, 0.01, 10, False), Settings(8e-5, 8e-6, 10, True), 0.9053, 3668, from_mnli=True,
        ),
    )
}  # fmt: skip


@dataclass(frozen=True)
class Example:
    """A sentence or a pair, and its label's id or score."""

    first: str
    second: str | None
    label: float


def find_file(folder: Path, spec: GlueSpec, *stems: str) -> Path:
    """Return the first of FOLDER/TASK/STEM.tsv (.xz, .gz) that exists."""
    for stem in stems:
        for ending in ENDINGS:
            path = folder / spec.name / f"{stem}{ending}"
            if path.is_file():
                return path
    raise ValueError(f"{folder / spec.name} has no {' or '.join(f'{stem}.tsv' for stem in stems)} (or .xz, .gz)")


def find_files(folder: Path, spec: GlueSpec) -> tuple[Path, list[Path]]:
    """Return the training file and the development files: two for MNLI where both are there."""
    train = find_file(folder, spec, "train", "train_sample")
    if spec.name != "MNLI":
        return train, [find_file(folder, spec, "dev", "dev_sample")]
    matched = find_file(folder, spec, "dev_matched", "dev_sample")
    try:
        return train, [matched, find_file(folder, spec, "dev_mismatched")]
    except ValueError:
        return train, [matched]


def is_sample(path: Path) -> bool:
    """Return whether a file has a part of the official examples only."""
    return path.name.partition(".")[0].endswith("_sample")


def read_examples(path: Path, spec: GlueSpec) -> list[Example]:
    """Return the examples of a TSV file; what is wrong with a line is an error that names it."""
    lines = [line.rstrip("\r\n").split("\t") for line in read_lines(path)]
    if not lines:
        raise ValueError(f"{path} is empty")
    header, rows, first = (list(spec.columns), lines, 1) if spec.columns else (lines[0], lines[1:], 2)
    if spec.label not in header:  # the official files of MNLI have annotators' labels beside the one agreed on
        header = [spec.label if name == "gold_label" else name for name in header]
    missing = [name for name in (*spec.texts, spec.label) if name not in header]
    if missing:
        raise ValueError(f"{path}, line 1: no column {missing[0]!r} among {', '.join(header)}")
    texts, label = [header.index(name) for name in spec.texts], header.index(spec.label)
    while rows and rows[-1] == [""]:
        rows.pop()
    examples = []
    for number, row in enumerate(rows, first):
        if spec.ragged and len(row) < len(header):
            continue
        if len(row) != len(header):
            raise ValueError(f"{path}, line {number}: {len(row)} columns; expected {len(header)}")
        words = [row[column] for column in texts]
        examples.append(Example(words[0], words[1] if len(words) > 1 else None, _label(path, number, row[label], spec)))
    if not examples:
        raise ValueError(f"{path} has no examples")
    return examples


def _label(path: Path, number: int, text: str, spec: GlueSpec) -> float:
    if spec.labels:
        if text not in spec.labels:
            raise ValueError(f"{path}, line {number}: label {text!r} is not one of {', '.join(spec.labels)}")
        return float(spec.labels.index(text))
    try:
        score = float(text)
    except ValueError:
        raise ValueError(f"{path}, line {number}: score {text!r} is not a number") from None
    if not 0 <= score <= 5:
        raise ValueError(f"{path}, line {number}: score {score} is not in 0 ... 5")
    return score


Scores = np.ndarray
METRICS: dict[str, Callable[[Scores, Scores], float]] = {
    "accuracy": lambda predicted, true: float((predicted == true).mean()),
    "f1": lambda predicted, true: _f1(predicted, true),
    "matthews": lambda predicted, true: _correlation(predicted, true),
    "spearman": lambda predicted, true: _correlation(_ranks(predicted), _ranks(true)),
}


def score(metric: str, predicted: Scores, true: Scores) -> float:
    """Return a metric of predictions (classes or scores) against the truth; a correlation of a constant is 0."""
    return METRICS[check_choice("metric", metric, METRICS)](np.asarray(predicted), np.asarray(true))


def _f1(predicted: Scores, true: Scores) -> float:
    hits = float(((predicted == 1) & (true == 1)).sum())
    named = float((predicted == 1).sum() + (true == 1).sum())
    return 2 * hits / named if named else 0.0


def _correlation(a: Scores, b: Scores) -> float:
    """Pearson's; of two binary variables it is Matthews'."""
    a, b = a - a.mean(), b - b.mean()
    size = float(np.sqrt((a * a).sum() * (b * b).sum()))
    return float((a * b).sum()) / size if size else 0.0


def _ranks(values: Scores) -> Scores:
    """Return ranks, tied values sharing the mean of theirs."""
    _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    means: Scores = (last - (counts - 1) / 2)[group]
    return means
