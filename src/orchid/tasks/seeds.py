"""Random streams of data: one for every batch of every split and seed."""

import hashlib

import torch
from torch import Tensor

from orchid.ops.checks import check_at_least, check_choice

SPLITS = ("train", "test", "valid")


def generator_seed(split: str, seed: int, index: int, device: torch.device | str) -> int:
    """Return the seed of a batch's random generator; no two batches of any split and seed share one on a device.

    Split, seed and index are fields of the number. A CUDA generator tells all 64 bits of its seed apart; that of the
    CPU (a Mersenne Twister) reads the lower 32 only, so there the fields are narrower. Numbers that do not fit their
    fields are hashed: two batches share one with a chance of 2^-32 then. "set" is the split of what a finite training
    set is drawn with.
    """
    wide = torch.device(device).type == "cuda"
    splits = (*SPLITS, "set") if wide else ("test", "train", "valid", "set")
    number = splits.index(check_choice("split", split, (*SPLITS, "set")))
    seed_bits, index_bits = (28, 32) if wide else (12, 18)
    check_at_least("seed", seed, 0)
    if seed >> seed_bits or index >> index_bits:
        hashed = hashlib.blake2b(f"{split} {seed} {index}".encode(), digest_size=7 if wide else 4)
        return int.from_bytes(hashed.digest(), "little")
    return (number << (seed_bits + index_bits)) + (seed << index_bits) + index


def held_out(count: int, held: int) -> tuple[Tensor, Tensor]:
    """Return the numbers of the training images that choices are made on, (held,), and of the rest, for any seed."""
    if held >= count:
        raise ValueError(f"task.valid_images={held} are all of {count} images")
    generator = torch.Generator().manual_seed(0)
    valid, train = torch.randperm(count, generator=generator).tensor_split([held])
    return valid, train


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
