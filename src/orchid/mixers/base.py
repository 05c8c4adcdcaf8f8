"""What the baselines share: sizes, checks at the door, and what their directions are called."""

from torch import Tensor, nn

from orchid.ops.checks import check_at_least, check_dtype, check_mask, check_sequence

DIRECTIONS = ("both", "forward")


class SequenceMixer(nn.Module):
    """A mixer of the contract (x (B, L, D), mask (B, L) bool or None) -> y (B, L, D).

    Args:
        d_model: D.
        max_length: the longest L.
    """

    def __init__(self, d_model: int, max_length: int) -> None:
        super().__init__()
        self.d_model = check_at_least("d_model", d_model, 1)
        self.max_length = check_at_least("max_length", max_length, 1)

    def admit(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Check the input; return it with masked positions zeroed, and ``pad`` (B, 1, L), True at those, or None."""
        check_sequence("x", x, self.d_model, self.max_length)
        check_mask("mask", mask, x)
        check_dtype("x", x, next(self.parameters()).dtype)
        if mask is None:
            return x, None
        return x.masked_fill(~mask[..., None], 0.0), ~mask[:, None, :]
