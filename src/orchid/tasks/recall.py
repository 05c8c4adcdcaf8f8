"""Associative recall: key-value pairs from a random dictionary, then a key whose value is asked (section 4.1)."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from orchid.models.sequence import SequenceConfig, SequenceModel
from orchid.ops.checks import check_at_least, check_choice

MASK, PAD = 0, 1
SPECIAL = 2
SIGNALS = ("masked", "answer")
IGNORE = -100
TEST_BATCH = 500
# Streams of examples never meet: a batch's seed is its stream's offset plus its index.
_STREAM = 1 << 60


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
        generator = torch.Generator(device).manual_seed(self.stream(split, seed) + index)
        tokens, answer = self._sequences(generator, size, device)
        targets = torch.full_like(tokens, IGNORE)
        targets[:, -1] = answer
        if split == "train" and self.signal == "masked":
            hidden = torch.rand(size, self.length // 2, generator=generator, device=device) < self.mask_share
            values, asked = tokens[:, 1::2], targets[:, 1::2]
            hidden[:, -1] = False
            asked.masked_scatter_(hidden, values[hidden])
            values.masked_fill_(hidden, MASK)
        return tokens, targets

    @staticmethod
    def stream(split: str, seed: int) -> int:
        """Return the first generator seed of a split; splits and seeds have disjoint ranges of 2**32 batches."""
        number = ("train", "test").index(check_choice("split", split, ("train", "test")))
        if not 0 <= seed < 1 << 28:
            raise ValueError(f"seed={seed} must lie in 0 ... 2**28 - 1")
        return number * _STREAM + (seed << 32)

    def _sequences(self, generator: torch.Generator, size: int, device: torch.device | str) -> tuple[Tensor, Tensor]:
        """Return tokens (size, length) with the last value masked, and that value (size,)."""
        pairs = self.length // 2 - 1
        dictionary = torch.randint(self.values, (size, self.keys), generator=generator, device=device)
        keys = torch.randint(self.keys, (size, pairs), generator=generator, device=device)
        occurs = torch.zeros(size, self.keys, dtype=torch.bool, device=device).scatter_(1, keys, True)
        lottery = torch.rand(size, self.keys, generator=generator, device=device).masked_fill_(~occurs, -1.0)
        keys = torch.cat((keys, lottery.argmax(dim=1, keepdim=True)), dim=1)
        values = dictionary.gather(1, keys) + SPECIAL + self.keys
        tokens = torch.stack((keys + SPECIAL, values), dim=2).flatten(1)
        answer = tokens[:, -1].clone()
        tokens[:, -1] = MASK
        return tokens, answer

    def best_guess(self, tokens: Tensor) -> Tensor:
        """Return the guess (B,) of one who knows which values occur, and how often, but not which key each has."""
        counts = F.one_hot(tokens[:, 1:-1:2], self.vocab_size).sum(dim=1)
        counts[:, :SPECIAL] = 0
        return counts.argmax(dim=1)


class RecallTask:
    """Recall as the engine sees it: fresh examples every step, a fixed test set of one query each.

    Args:
        recall: the generator.
        model: the model's settings.
        seed: of the training examples.
        test_size: examples in the test set, the same for every seed.
    """

    def __init__(self, recall: Recall, model: SequenceConfig, seed: int, test_size: int) -> None:
        self.recall, self.model, self.seed, self.test_size = recall, model, seed, test_size

    def build_model(self) -> SequenceModel:
        """Return the model: tokens in, a distribution over the vocabulary at every position out."""
        vocab_size = self.recall.vocab_size
        return self.model.build(self.recall.length, vocab_size=vocab_size, out_features=vocab_size)

    def train_batch(self, index: int, size: int, device: Any) -> tuple[Tensor, Tensor]:
        """Return the tokens and targets of a step."""
        return self.recall.batch("train", self.seed, index, size, device)

    def loss(self, model: nn.Module, batch: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """Return the summed cross-entropy over the asked positions, and their number."""
        tokens, targets = batch
        logits = model(tokens).flatten(0, 1).float()
        total = F.cross_entropy(logits, targets.flatten(), ignore_index=IGNORE, reduction="sum")
        return total, (targets != IGNORE).sum()

    def evaluate(self, model: nn.Module, device: Any) -> dict[str, float]:
        """Return the accuracy on the query's value, and that of the best guess without its key."""
        right = guessed = 0
        for index, size in enumerate(_chunks(self.test_size, TEST_BATCH)):
            # Drawn on the CPU, so that the test set is the same on every device.
            tokens, targets = (t.to(device) for t in self.recall.batch("test", 0, index, size))
            right += int((model(tokens)[:, -1].argmax(dim=-1) == targets[:, -1]).sum())
            guessed += int((self.recall.best_guess(tokens) == targets[:, -1]).sum())
        return {"test/accuracy": right / self.test_size, "test/best_guess": guessed / self.test_size}


@dataclass(kw_only=True)
class RecallConfig:
    """Recall's settings."""

    vocab_size: int
    length: int
    signal: str = "masked"
    mask_share: float = 0.3
    test_size: int = 2000

    def build(self, model: SequenceConfig, seed: int) -> RecallTask:
        """Return the task."""
        recall = Recall(self.vocab_size, self.length, self.signal, self.mask_share)
        return RecallTask(recall, model, seed, check_at_least("test_size", self.test_size, 1))


def _chunks(total: int, size: int) -> list[int]:
    return [min(size, total - start) for start in range(0, total, size)]
