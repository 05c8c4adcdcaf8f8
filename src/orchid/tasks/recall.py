"""Associative recall: key-value pairs from a random dictionary, then a key whose value is asked (section 4.1)."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from orchid.models.sequence import SequenceConfig, SequenceModel
from orchid.ops.checks import check_at_least, check_choice
from orchid.tasks.seeds import SPLITS, generator_seed

MASK, PAD = 0, 1
SPECIAL = 2
SIGNALS = ("masked", "answer")
IGNORE = -100
TEST_BATCH = 500  # examples drawn together; part of what the test set is
TEST_TOKENS = 1 << 18  # tokens evaluated together


class Recall:
    """A generator of recall examples; every batch is a pure function of (split, seed, index).

    ::

        position   0   1   2   3   4   5   6   7         keys a b c, values 1 2 3
        tokens     a   2   b   1   a   2   b   _         a random dictionary per sequence: a -> 2, b -> 1
        asked                                  1         the query b, its value asked at the last position

    The vocabulary counts as in the literature: ``vocab_size`` includes the two special symbols (mask and padding); the
    rest is half keys, half values. Keys are drawn with replacement; the query is uniform among the keys that occur.

    Training signals: ``"masked"`` hides a share of all values (and always the last) and asks for each of them, the
    natural signal for a bidirectional layer; ``"answer"`` asks for the query's value alone. The test is always one
    query, its value asked, everything else visible.

    Args:
        vocab_size: symbols in all, special ones included.
        length: tokens in a sequence, even.
        signal: "masked" or "answer".
        mask_share: share of the values hidden by "masked".
    """

    def __init__(self, vocab_size: int, length: int, signal: str = "masked", mask_share: float = 0.3) -> None:
        self.vocab_size = check_at_least("vocab_size", vocab_size, SPECIAL + 2)
        self.length = check_at_least("length", length, 4)
        if length % 2:
            raise ValueError(f"length={length} must be even: keys and values alternate")
        self.signal = check_choice("signal", signal, SIGNALS)
        if not 0 < mask_share < 1:
            raise ValueError(f"mask_share={mask_share!r} must lie between 0 and 1")
        self.mask_share = mask_share
        self.keys = (vocab_size - SPECIAL) // 2
        self.values = vocab_size - SPECIAL - self.keys

    def batch(
        self, split: str, seed: int, index: int, size: int, device: torch.device | str = "cpu"
    ) -> tuple[Tensor, Tensor]:
        """Return tokens and targets, (size, length) each; targets are ``IGNORE`` where nothing is asked."""
        generator = self._generator(split, seed, index, device)
        signal = self.signal if split == "train" else "answer"
        return self._hide(self._sequences(generator, size, device), generator, signal)

    def set_batch(self, examples: Tensor, seed: int, index: int, size: int) -> tuple[Tensor, Tensor]:
        """Return the training batch of a step over a finite set ``examples`` (n, length), in epochs.

        Every epoch is a new permutation; which values "masked" hides is drawn anew every time.
        """
        device, count = examples.device, examples.shape[0]
        position = torch.arange(index * size, (index + 1) * size, device=device)
        first, last = index * size // count, ((index + 1) * size - 1) // count
        orders = []
        for epoch in range(first, last + 1):
            generator = self._generator("set", seed, epoch + 1, device)
            orders.append(torch.randperm(count, generator=generator, device=device))
        rows = torch.cat(orders)[position - first * count]
        return self._hide(examples[rows], self._generator("train", seed, index, device), self.signal)

    def _generator(self, split: str, seed: int, index: int, device: torch.device | str) -> torch.Generator:
        return torch.Generator(device).manual_seed(generator_seed(split, seed, index, device))

    def examples(self, seed: int, count: int, device: torch.device | str = "cpu") -> Tensor:
        """Return ``count`` whole sequences (count, length), nothing hidden: a finite training set."""
        return self._sequences(self._generator("set", seed, 0, device), count, device)

    def _hide(self, tokens: Tensor, generator: torch.Generator, signal: str) -> tuple[Tensor, Tensor]:
        """Split sequences into what is shown and what is asked: the last value, and with "masked" a share of all."""
        keys, values = tokens[:, 0::2], tokens[:, 1::2]
        if signal == "masked":
            hidden = torch.rand(values.shape, generator=generator, device=tokens.device) < self.mask_share
        else:
            hidden = torch.zeros_like(values, dtype=torch.bool)
        hidden[:, -1] = True
        nothing = torch.full_like(keys, IGNORE)
        shown = torch.stack((keys, values.masked_fill(hidden, MASK)), dim=2).flatten(1)
        asked = torch.stack((nothing, values.masked_fill(~hidden, IGNORE)), dim=2).flatten(1)
        return shown, asked

    def _sequences(self, generator: torch.Generator, size: int, device: torch.device | str) -> Tensor:
        """Return whole sequences (size, length): pairs, then a key that occurred and its value."""
        pairs = self.length // 2 - 1
        dictionary = torch.randint(self.values, (size, self.keys), generator=generator, device=device)
        keys = torch.randint(self.keys, (size, pairs), generator=generator, device=device)
        occurs = torch.zeros(size, self.keys, dtype=torch.bool, device=device).scatter_(1, keys, True)
        lottery = torch.rand(size, self.keys, generator=generator, device=device).masked_fill_(~occurs, -1.0)
        keys = torch.cat((keys, lottery.argmax(dim=1, keepdim=True)), dim=1)
        values = dictionary.gather(1, keys) + SPECIAL + self.keys
        return torch.stack((keys + SPECIAL, values), dim=2).flatten(1)

    def best_guess(self, tokens: Tensor) -> Tensor:
        """Return the guess (B,) of one who knows which values occur, and how often, but not which key each has."""
        values = tokens[:, 1:-1:2]
        counts = torch.zeros(len(tokens), self.vocab_size, dtype=values.dtype, device=values.device)
        counts.scatter_add_(1, values, torch.ones_like(values))
        counts[:, :SPECIAL] = 0
        return counts.argmax(dim=1)


class RecallTask:
    """Recall as the engine sees it: examples for every step, a fixed test set of one query each.

    Args:
        recall: the generator.
        model: the model's settings.
        seed: of the training examples.
        train_size: examples in a finite training set; 0 draws fresh ones every step.
        test_size: examples in the test set, the same for every seed.
        evaluate_on: "test", or "valid" for choices: an equally large set of its own.
    """

    def __init__(
        self, recall: Recall, model: SequenceConfig, seed: int, *, train_size: int, test_size: int, evaluate_on: str
    ) -> None:
        self.recall, self.model, self.seed = recall, model, seed
        self.train_size = check_at_least("train_size", train_size, 0)
        self.test_size = check_at_least("test_size", test_size, 1)
        self.evaluate_on = check_choice("evaluate_on", evaluate_on, SPLITS[1:])
        self._train_set: Tensor | None = None
        self._test_set: Tensor | None = None

    def build_model(self) -> SequenceModel:
        """Return the model: tokens in, a distribution over the vocabulary at every position out."""
        vocab_size = self.recall.vocab_size
        return self.model.build(self.recall.length, vocab_size=vocab_size, out_features=vocab_size)

    def train_batch(self, index: int, size: int, device: Any) -> tuple[Tensor, Tensor]:
        """Return the tokens and targets of a step."""
        if not self.train_size:
            return self.recall.batch("train", self.seed, index, size, device)
        if self._train_set is None:
            self._train_set = self.recall.examples(self.seed, self.train_size, device)
        return self.recall.set_batch(self._train_set, self.seed, index, size)

    def loss(self, model: nn.Module, batch: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """Return the summed cross-entropy over the asked positions, and their number."""
        tokens, targets = batch
        logits = model(tokens).flatten(0, 1).float()
        total = F.cross_entropy(logits, targets.flatten(), ignore_index=IGNORE, reduction="sum")
        return total, (targets != IGNORE).sum()

    def evaluate(self, model: nn.Module, device: Any) -> dict[str, float]:
        """Return accuracy and loss on the query's value, and the accuracy of the best guess without its key."""
        if self._test_set is None:
            # Drawn on the CPU, so that it is the same on every device.
            drawn = [
                self.recall.batch(self.evaluate_on, 0, index, size)
                for index, size in enumerate(_chunks(self.test_size, TEST_BATCH))
            ]
            whole = torch.cat([torch.cat((tokens[:, :-1], targets[:, -1:]), dim=1) for tokens, targets in drawn])
            self._test_set = whole.to(device, torch.int32)
        sums = torch.zeros(3, dtype=torch.float64)
        for whole in self._test_set.split(max(1, TEST_TOKENS // self.recall.length)):
            tokens, answer = whole.long(), whole[:, -1].long()
            tokens[:, -1] = MASK
            logits = model(tokens)[:, -1].float()
            right, guessed = logits.argmax(dim=-1) == answer, self.recall.best_guess(tokens) == answer
            loss = F.cross_entropy(logits, answer, reduction="sum")
            sums += torch.stack((right.sum(), loss, guessed.sum())).cpu()
        names = ("accuracy", "loss", "best_guess")
        return {
            f"{self.evaluate_on}/{name}": float(value) / self.test_size for name, value in zip(names, sums, strict=True)
        }


@dataclass(kw_only=True)
class RecallConfig:
    """Recall's settings."""

    vocab_size: int
    length: int
    signal: str = "masked"
    mask_share: float = 0.3
    train_size: int = 0
    test_size: int = 2000
    evaluate_on: str = "test"

    def build(self, model: SequenceConfig, seed: int) -> RecallTask:
        """Return the task."""
        recall = Recall(self.vocab_size, self.length, self.signal, self.mask_share)
        return RecallTask(
            recall,
            model,
            seed,
            train_size=self.train_size,
            test_size=self.test_size,
            evaluate_on=self.evaluate_on,
        )


def _chunks(total: int, size: int) -> list[int]:
    return [min(size, total - start) for start in range(0, total, size)]
