"""Which parameters are matrices."""

from torch import Tensor, nn

from orchid.nn.block_diagonal import BlockDiagonalLinear


def linear_weights(model: nn.Module) -> list[Tensor]:
    """Return the matrices of a model's linear layers, maps of patches among them: what a weight decay is meant for."""
    kinds = (nn.Linear, nn.Conv2d, BlockDiagonalLinear)
    return [layer.weight for layer in model.modules() if isinstance(layer, kinds)]
