"""Masked language modelling: a share of the tokens hidden, each to be told from the rest (section 4.2)."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from orchid.digests import joint_digest
from orchid.ops.checks import check_at_least, check_fraction
from orchid.tasks.seeds import EpochOrder, generator_seed
from orchid.tasks.shards import Shards, Special

IGNORE = -100
# Of the hidden tokens: shown as [MASK], shown as a random token; the rest is shown as it is.
MASKED, RANDOM = 0.8, 0.1
EVALUATED = 128  # rows evaluated together


def hide(
    rows: Tensor, rate: float, special: Special, vocab_size: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Return what the model sees and what it is asked (-100 elsewhere), both (B, L), of token ids (B, L).

    Special tokens, [UNK] and [MASK] among them, are never asked. Everything is drawn on the generator's device.
    """
    chance, kind = (torch.rand(rows.shape, generator=generator, device=rows.device) for _ in range(2))
    words = torch.randint(vocab_size, rows.shape, generator=generator, device=rows.device)
    asked = chance < rate
    for token in (special.cls, special.sep, special.pad, special.unk, special.mask):
        asked &= rows != token
    shown = torch.where(asked & (kind < MASKED), special.mask, rows)
    shown = torch.where(asked & (kind >= MASKED) & (kind < MASKED + RANDOM), words, shown)
    return shown, rows.masked_fill(~asked, IGNORE)


def shortened(rows: Tensor, share: float, special: Special, generator: torch.Generator) -> Tensor:
    """Return rows (B, L) of which a share is cut to a random length, L / 16 and more, [SEP] at its end, then padding.

    Rows are packed full otherwise, and a model that has never seen padding meets it first in fine-tuning.
    """
    (batch, length), device = rows.shape, rows.device
    cut = torch.rand(batch, 1, generator=generator, device=device) < share
    last = torch.randint(min(length - 1, max(2, length // 16)), length, (batch, 1), generator=generator, device=device)
    place = torch.arange(length, device=device)
    short = torch.where(place < last, rows, torch.where(place == last, special.sep, special.pad))
    return torch.where(cut, short, rows)


def most_asked(tokens: int, rate: float) -> int:
    """Return how many of ``tokens`` tokens are asked at most: eight standard deviations above what is expected."""
    return min(tokens, math.ceil(tokens * rate + 8 * math.sqrt(tokens * rate * (1 - rate))) + 1)


def folder_names(folders: list[Path]) -> list[str]:
    """Return the folders' names, with as many of those above them as tell them apart; one given twice is an error."""
    whole = [folder.absolute().parts for folder in folders]
    for depth in range(1, max(map(len, whole)) + 1):
        names = ["/".join(parts[-depth:]) for parts in whole]
        if len(set(names)) == len(names):
            return names
    raise ValueError(f"task.valid={','.join(map(str, folders))!r} names a folder twice")


class MaskedLMTask:
    """Rows of tokens in an order that a seed and the epoch decide; a batch is a pure function of its step."""

    def __init__(self, config: "MaskedLMConfig", model: "EncoderConfig", seed: int) -> None:
        self.config, self.model, self.seed = config, model, seed
        check_at_least("task.length", config.length, 2)
        if not check_fraction("task.mask_rate", config.mask_rate):
            raise ValueError("task.mask_rate=0 asks for nothing")
        check_fraction("task.short_share", config.short_share)
        self._data: tuple[Shards, list[Shards]] | None = None
        self._order: EpochOrder | None = None

    def build_model(self) -> nn.Module:
        """Return the masked-LM model for the shards' vocabulary and this length; only its shape needs no shards."""
        from orchid.models.bert import OrchidBertForMaskedLM, preset

        changes: dict[str, Any] = {"hidden_dropout_prob": 0.0, **self.model.changes}
        if self.config.vocab_size:  # known without the shards, which may be gone
            changes |= {"vocab_size": self.config.vocab_size, "pad_token_id": self.config.pad_token_id}
        elif self.config.train or torch.get_default_device().type != "meta":
            train, _ = self.data()
            changes |= {"vocab_size": train.vocab_size, "pad_token_id": train.special.pad}
        sizes = {"max_position_embeddings": self.config.length, "sparse_prediction": True}
        return OrchidBertForMaskedLM(preset(self.model.preset, **{**sizes, **changes}))

    def data(self) -> tuple[Shards, list[Shards]]:
        """Return the shards for training and for validation; what is wrong with them is an error."""
        if self._data is None:
            if not self.config.train or not self.config.valid:
                raise ValueError(
                    "--set task.train=FOLDER and task.valid=FOLDER must name shards; "
                    "`orchid tokenize` makes them of a folder of text"
                )
            train, *valid = (Shards(Path(name)) for name in (self.config.train, *self.config.valid.split(",")))
            folder_names([shards.folder for shards in valid])
            for shards in valid:
                if train.tokenizer != shards.tokenizer:
                    raise ValueError(
                        f"{train.folder} and {shards.folder} were tokenised differently; tokenize one of them again"
                    )
            for shards in (train, *valid):
                if not shards.count(self.config.length):
                    raise ValueError(
                        f"{shards.folder} has {shards.tokens} tokens, fewer than one row of {self.config.length}"
                    )
            self._data = (train, valid)
        return self._data

    def identify(self) -> None:
        """Keep what tells these shards from others in the same folders, and what a model of theirs needs to know."""
        train, valid = self.data()
        self.config.digest = joint_digest(shards.fingerprint() for shards in (train, *valid))
        self.config.vocab_size, self.config.pad_token_id = train.vocab_size, train.special.pad
        self.config.vocabulary = train.vocabulary or ""

    def train_batch(self, index: int, size: int, device: Any) -> tuple[Tensor, ...]:
        """Return what is seen and what is asked at a step; where rows are cut short, also which tokens are real."""
        train, valid = self.data()
        if self._order is None:
            for shards in (train, *valid):
                shards.verify()  # before the first step, not at a later one that meets what is damaged
            self._order = EpochOrder(train.count(self.config.length), self.seed)
        rows = train.rows(self._order.batch(index, size), self.config.length).to(device, non_blocking=True)
        generator = torch.Generator(device).manual_seed(generator_seed("train", self.seed, index, device))
        if not self.config.short_share:
            return hide(rows, self.config.mask_rate, train.special, train.vocab_size, generator)
        rows = shortened(rows, self.config.short_share, train.special, generator)
        real = (rows != train.special.pad).long()
        return *hide(rows, self.config.mask_rate, train.special, train.vocab_size, generator), real

    def loss(self, model: nn.Module, batch: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """Return the summed cross-entropy over the asked tokens, and their number; of none the sum is 0."""
        shown, asked, *real = batch
        count = (asked != IGNORE).sum()
        most = most_asked(asked.numel(), self.config.mask_rate)
        mask = real[0] if real else None
        mean = model(input_ids=shown, attention_mask=mask, labels=asked, most_predictions=most).loss
        return torch.where(count > 0, mean * count, 0.0), count  # the mean of nothing is not a number

    def evaluate(self, model: nn.Module, device: Any) -> dict[str, float]:
        """Return loss and accuracy on the first rows of the validation shards, always the same tokens hidden.

        Of several folders each has its own, under the folder's name, beside those of all tokens together.
        """
        _, folders = self.data()
        names = folder_names([shards.folder for shards in folders])
        for shards in folders:
            shards.verify()
        parts = {name: self._evaluate(model, shards, device) for name, shards in zip(names, folders, strict=True)}
        if len(parts) > 1:
            parts[""] = torch.stack(list(parts.values())).sum(dim=0)
        else:
            parts = {"": next(iter(parts.values()))}
        metrics: dict[str, float] = {}
        for name, sums in parts.items():
            loss, right, asked_for = sums.tolist()
            prefix = f"valid/{name}/" if name else "valid/"
            metrics |= {f"{prefix}loss": loss / asked_for, f"{prefix}accuracy": right / asked_for}
        return metrics

    def _evaluate(self, model: nn.Module, valid: Shards, device: Any) -> Tensor:
        """Return the summed loss, the number of right answers and of questions."""
        total = min(self.config.valid_rows, valid.count(self.config.length))
        generator = torch.Generator().manual_seed(generator_seed("valid", 0, 0, "cpu"))
        sums = torch.zeros(3, dtype=torch.float64)
        for numbers in torch.arange(total).split(EVALUATED):
            rows = valid.rows(numbers, self.config.length)
            shown, asked = hide(rows, self.config.mask_rate, valid.special, valid.vocab_size, generator)
            shown, asked = shown.to(device), asked.to(device)
            there = asked != IGNORE
            logits = model(input_ids=shown).logits[there].float()
            loss = F.cross_entropy(logits, asked[there], reduction="sum")
            right = (logits.argmax(dim=-1) == asked[there]).sum()
            sums += torch.stack((loss, right, there.sum())).double().cpu()
        return sums


@dataclass(kw_only=True)
class MaskedLMConfig:
    """Settings of masked language modelling.

    Attributes:
        train: folder of shards.
        valid: folder of shards, or several, comma separated; metrics have the name of each.
        length: tokens a row, [CLS] included.
        mask_rate: share of the tokens hidden.
        short_share: share of the rows that are cut short and padded in training.
        valid_rows: rows evaluated, of each folder.
        digest: of the shards, once they have been read, as what follows.
        vocab_size: of their tokenizer.
        pad_token_id: likewise.
        vocabulary: a digest of its tokens and ids.
    """

    train: str = ""
    valid: str = ""
    length: int = 128
    mask_rate: float = 0.3
    short_share: float = 0.0
    valid_rows: int = 2048
    digest: str = ""
    vocab_size: int = 0
    pad_token_id: int = 0
    vocabulary: str = ""

    def build(self, model: "EncoderConfig", seed: int) -> MaskedLMTask:
        """Return the task."""
        return MaskedLMTask(self, model, seed)


@dataclass(kw_only=True)
class EncoderConfig:
    """The encoder to train: one of ``orchid.models.bert.PRESETS``, with changes."""

    preset: str = "orchid-bert-base"
    changes: dict[str, Any] = field(default_factory=dict)
