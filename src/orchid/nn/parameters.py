"""Lists of parameters."""

from torch import Tensor, nn


class Parameters(nn.ParameterList):
    """Parameters that are asked for by a call, as those of any other module are.

    Who places weights where they are needed when a module is called, as offloading to the CPU or to a disk does, finds
    them so; a list that is only read would stay where it is.
    """

    __call__ = nn.Module.__call__  # the library's list refuses to be called

    def forward(self) -> list[Tensor]:
        """Return them."""
        return list(self)
