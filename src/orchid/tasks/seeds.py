"""Random streams of data: one for every batch of every split and seed."""

import torch
from torch import Tensor

from orchid.ops.checks import check_choice

SPLITS = ("train", "test", "valid")


def generator_seed(split: str, seed: int, index: int, device: torch.device | str) -> int:
    """Return the seed of a batch's random generator; no two batches of any split and seed share one on a device.

    Split, seed and index are fields of the number. A CUDA generator tells all 64 bits of its seed apart; that of the
    CPU (a Mersenne Twister) reads the lower 32 only, so there the fields are narrower. "set" is the split of what a
    finite training set is drawn with.
    """
    wide = torch.device(device).type == "cuda"
    splits = (*SPLITS, "set") if wide else ("test", "train", "valid", "set")
    number = splits.index(check_choice("split", split, (*SPLITS, "set")))
    seed_bits, index_bits = (28, 32) if wide else (12, 18)
    for name, value, bits in (("seed", seed, seed_bits), ("batch", index, index_bits)):
        if not 0 <= value < 1 << bits:
            raise ValueError(f"{name}={value} must lie in 0 ... 2**{bits} - 1 on device {torch.device(device).type!r}")
    return (number << (seed_bits + index_bits)) + (seed << index_bits) + index


class EpochOrder:
    """The order in which a finite set is seen: another permutation every epoch, all of them decided by a seed."""

    def __init__(self, count: int, seed: int) -> None:
        self.count, self.seed = count, seed
        self._kept: tuple[int, Tensor] = (-1, torch.empty(0))

    def batch(self, index: int, size: int) -> Tensor:
        """Return the numbers of a batch, (size,): a pure function of its index."""
        places = torch.arange(index * size, (index + 1) * size)
        epochs = places // self.count
        return torch.cat([self._permutation(e)[places[epochs == e] % self.count] for e in epochs.unique().tolist()])

    def _permutation(self, epoch: int) -> Tensor:
        if self._kept[0] != epoch:
            generator = torch.Generator().manual_seed(generator_seed("set", self.seed, epoch, "cpu"))
            self._kept = (epoch, torch.randperm(self.count, generator=generator))
        return self._kept[1]
