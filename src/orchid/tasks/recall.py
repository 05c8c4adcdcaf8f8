"""Associative recall: key-value pairs from a random dictionary, then a key whose value is asked (section 4.1)."""

import torch
import torch.nn.functional as F
from torch import Tensor

from orchid.ops.checks import check_at_least, check_choice

MASK, PAD = 0, 1
SPECIAL = 2
SIGNALS = ("masked", "answer")
IGNORE = -100
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


def recall_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the cross-entropy over the asked positions, logits (B, L, V) and targets (B, L)."""
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), ignore_index=IGNORE)
