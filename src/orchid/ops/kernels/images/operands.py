"""What every launch of the layer of images reads."""

from typing import NamedTuple

from torch import Tensor


class Images(NamedTuple):
    """The arguments of ``fused_image_mix`` as the kernels take them."""

    p: Tensor
    offset: Tensor
    weight: Tensor
    bias: Tensor
    spatial: Tensor
    spectral: Tensor
    static: Tensor
    height: int
    width: int

    @property
    def batch(self) -> int:
        """B."""
        return self.p.shape[0]

    @property
    def channels(self) -> int:
        """D."""
        return self.p.shape[1] // 3

    @property
    def sides(self) -> int:
        """Conditioning images."""
        return self.spatial.shape[0]

    @property
    def taps(self) -> int:
        """K."""
        return self.weight.shape[2]

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """D, B, H, W."""
        return self.channels, self.batch, self.height, self.width

    @property
    def columns(self) -> int:
        """F, columns of a half spectrum."""
        return self.width // 2 + 1
