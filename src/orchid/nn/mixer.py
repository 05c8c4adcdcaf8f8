"""Read second: ``OrchidMixer``, the layer."""

import math
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn

from orchid.nn.conditioning import CrossConditioning, PhaseConditioning, SpatialConv, SpectralConv
from orchid.nn.data_dependent_conv import DataDependentConv
from orchid.nn.fused import (
    BACKENDS,
    fused_convolution,
    fused_residual,
    settings_obstacle,
    takes_kernels,
)
from orchid.nn.projections import from_channels, to_channels
from orchid.nn.short_conv import ShortConv, masked
from orchid.nn.static_kernel import StaticKernel
from orchid.ops.checks import (
    check_at_least,
    check_choice,
    check_context,
    check_dtype,
    check_flag,
    check_fraction,
    check_mask,
    check_odd,
    check_positive,
    check_sequence,
    check_tensor,
)
from orchid.ops.circulant import product_dtype
from orchid.ops.depthwise import PADDINGS
from orchid.ops.kernels.launch import interpreter_on
from orchid.ops.precision import full_precision
from orchid.ops.spectral_conv import SIGMAS, spectral_conv
from orchid.ops.transforms import NORMS, get_transform

CONDITIONINGS = ("phase", "cross", "static")
BOUNDARIES = ("circular", "linear")
GRIDS = ("stretch", "extend")


class Streams(NamedTuple):
    """What flows through the layer.

    Attributes:
        v: the signal of the chain, (B, D, L).
        gates: s_1 ... s_(m+1), (B, D, L) each.
        u: the conditioning sequence of the next stage, (B, D, M).
        pad: True at masked positions of v, (B, 1, L), or None.
        u_pad: likewise of u, (B, 1, M).
    """

    v: Tensor
    gates: tuple[Tensor, ...]
    u: Tensor
    pad: Tensor | None
    u_pad: Tensor | None


class OrchidMixer(nn.Module):
    r"""Orchid's gated data-dependent convolution: a drop-in, bidirectional, O(L log L) replacement for attention.

    With v, s_1, ..., s_(m+1) projections of x, each through a short Conv1d, a chain of order m + 1/2 computes

    .. math::
        y = s_{m+1} \odot \bigl(h_m * (s_m \odot \cdots (h_1 * (s_1 \odot v)))\bigr),
        \qquad h_i = h_{0,i} + h_{x,i}(u_i),

    and projects y back. Each kernel is a static implicit filter h0 plus a conditioning network of the data:

    - ``"phase"``, Type I (eq. adaconv1):  hx_f = Conv1d_f(\|T(Conv1d_t(u))\|);
    - ``"cross"``, Type II (eq. adaconv2): hx_f = Conv1d_f(conj(T(Conv1d_k(u))) * sigma(T(Conv1d_q(u))));
    - ``"static"``: no hx, the control.

    The first stage is conditioned on v before its short convolution (or on ``context``), later ones on their input.

    The operator lives on a fixed length N = ``max_length``: a shorter input is one whose tail is masked, so padding
    never changes a valid output. The price is that an input of length L < N costs as much in the transforms as one
    of length N. The layer is not causal and cannot be made so.

    Args:
        d_model: D, channels in and out.
        max_length: N, the longest input.
        order: m; the paper's chain "of order 1.5" is ``order=1``.
        conditioning: "phase", "cross" or "static".
        transform: "dft" or "dct" (DCT-II).
        norm: scaling of the transform inside the conditioning network, "ortho" or "backward".
        boundary: "circular" (transform length n = N) or "linear" (n = 2 N, nothing wraps around).
        kernel_size: K of every short Conv1d, odd.
        spatial_layers: Conv1d layers in time of the conditioning network.
        spectral_layers: Conv1d layers over bins of the conditioning network.
        sigma: nonlinearity of "cross": "identity", "tanh", "sigmoid", "softsign" or "softshrink".
        short_padding: "causal", "same" or "circular" (causal, wrapped at N: the layer then commutes with shifts).
        residual_conv: add a static long convolution of the un-projected input before the output projection.
        filter_embedding: size of the static kernel's positional embedding, odd.
        filter_width: hidden size of the static kernel's network.
        dropout: on the output.
        backend: "torch", "triton" (fused GPU kernels, an error where they do not serve) or "auto" (the kernels on a
            CUDA device where they serve, else torch; the log says why).
        filter_grid: length of the time grid the static kernel was trained on, when that is not ``max_length``
            (``resample(..., grid="extend")`` sets it).

    Shape:
        x (B, L, D) with L <= N -> (B, L, D).

    Example:
        >>> mixer = OrchidMixer(d_model=16, max_length=128)
        >>> mixer(torch.randn(2, 100, 16)).shape
        torch.Size([2, 100, 16])
    """

    def __init__(
        self,
        d_model: int,
        max_length: int,
        *,
        order: int = 1,
        conditioning: str = "phase",
        transform: str = "dft",
        norm: str = "ortho",
        boundary: str = "circular",
        kernel_size: int = 3,
        spatial_layers: int = 1,
        spectral_layers: int = 1,
        sigma: str = "identity",
        short_padding: str = "causal",
        residual_conv: bool = False,
        filter_embedding: int = 5,
        filter_width: int = 64,
        dropout: float = 0.0,
        backend: str = "auto",
        filter_grid: float | None = None,
    ) -> None:
        super().__init__()
        self.d_model = check_at_least("d_model", d_model, 1)
        self.max_length = check_at_least("max_length", max_length, 1)
        self.order = check_at_least("order", order, 1)
        self.conditioning = check_choice("conditioning", conditioning, CONDITIONINGS)
        self.transform = get_transform(transform)
        self.norm = check_choice("norm", norm, NORMS)
        self.boundary = check_choice("boundary", boundary, BOUNDARIES)
        self.kernel_size = check_odd("kernel_size", kernel_size)  # the frequency Conv1d is centred on its bin
        self.spatial_layers = check_at_least("spatial_layers", spatial_layers, 0)
        self.spectral_layers = check_at_least("spectral_layers", spectral_layers, 0)
        self.sigma = check_choice("sigma", sigma, SIGMAS)
        if sigma != "identity" and conditioning != "cross":
            raise ValueError(f"sigma={sigma!r} belongs to conditioning='cross', not to {conditioning!r}")
        self.short_padding = check_choice("short_padding", short_padding, PADDINGS)
        self.filter_embedding = check_odd("filter_embedding", filter_embedding)
        self.filter_width = check_at_least("filter_width", filter_width, 1)
        self.backend = check_choice("backend", backend, BACKENDS)
        self.filter_grid = None if filter_grid is None else check_positive("filter_grid", filter_grid)

        self.n = max_length if boundary == "circular" else 2 * max_length
        streams = order + 2
        self.in_proj = nn.Linear(d_model, streams * d_model)
        self.short_conv = ShortConv(streams * d_model, max_length, kernel_size, padding=short_padding)
        self.stages = nn.ModuleList(
            DataDependentConv(self._static_kernel(), self._conditioning(), n=self.n, transform=self.transform)
            for _ in range(order)
        )
        self.residual_conv = (
            DataDependentConv(self._static_kernel(), None, n=self.n, transform=self.transform)
            if check_flag("residual_conv", residual_conv)
            else None
        )
        self.out_proj = nn.Linear(d_model, d_model)
        self.dropout = nn.Dropout(check_fraction("dropout", dropout))
        self._look_around()
        if backend == "triton" and self._obstacle is not None:
            raise ValueError(f"backend='triton' cannot serve: {self._obstacle}; use 'auto' or 'torch'")

    def _look_around(self) -> None:
        """Find out whether the kernels serve these settings on this machine."""
        self._obstacle, self._interpreted = settings_obstacle(self), interpreter_on()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._look_around()  # it may have been pickled on another

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        context: Tensor | None = None,
        context_mask: Tensor | None = None,
    ) -> Tensor:
        """Mix x along its length.

        Args:
            x: (B, L, D), L <= max_length.
            mask: (B, L) bool, True at real tokens, anywhere; None is all True. What stands at a masked position,
                NaN included, reaches no valid output; the output there has no meaning.
            context: (B, M, D), M <= max_length: the sequence that conditions the kernel in place of x.
            context_mask: (B, M) bool beside ``context``.

        Returns:
            (B, L, D).
        """
        check_tensor("x", x)
        fused = self._fused(x)
        x, projected, pad, u, u_pad = self._project(x, mask, context, context_mask, biased=not fused)
        y = self._fused_mix(projected, pad, u, u_pad) if fused else self._mix(projected, pad, u, u_pad)
        if self.residual_conv is not None:
            # short ones are matrix products, which need no kernel of ours; those of the DCT have none
            by_kernels = fused and self.transform.name == "dft" and product_dtype(x, self.n) is None
            y = fused_residual(self, y, x) if by_kernels else y + self.residual_conv(x.transpose(1, 2))
        return self.dropout(from_channels(self.out_proj, y))

    def _mix(self, projected: Tensor, pad: Tensor | None, u: Tensor | None, u_pad: Tensor | None) -> Tensor:
        """Return what stands between the projections, (B, D, L)."""
        streams = self._short_convolved(projected, pad, u, u_pad)
        return streams.gates[-1] * self._chain(streams, self.order).v

    def _fused_mix(self, projected: Tensor, pad: Tensor | None, u: Tensor | None, u_pad: Tensor | None) -> Tensor:
        """Return the same of projections without their bias, by the kernels."""
        flat, u_flat = (None if p is None else p.squeeze(1) for p in (pad, u_pad))
        return fused_convolution(self, projected, flat, u, u_flat)

    def _fused(self, x: Tensor) -> bool:
        """Return whether the fused kernels take this input; asked for by name they must."""
        return takes_kernels(self.backend, self._obstacle, x, self._inside, interpreted=self._interpreted)

    def _inside(self) -> tuple[nn.Module, ...]:
        """Return the modules that the kernels take the place of, with all inside them."""
        own = (self.short_conv, self.stages)
        return own if self.residual_conv is None else (*own, self.residual_conv)

    def freeze(self) -> Self:
        """Stop training the layer, keep what depends on its parameters alone, and return it: for prediction.

        Loading weights or moving the layer forgets what was kept; ``unfreeze`` makes it train again.
        """
        self.requires_grad_(False)
        for module in self.modules():
            if isinstance(module, StaticKernel):
                module.freeze()
        return self

    def unfreeze(self) -> Self:
        """Undo ``freeze``."""
        for module in self.modules():
            if isinstance(module, StaticKernel):
                module.unfreeze()
        return self.requires_grad_(True)

    def kernel(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        context: Tensor | None = None,
        context_mask: Tensor | None = None,
        *,
        stage: int = 1,
    ) -> Tensor:
        """Return the kernel h0 + hx of a stage in time, (B, D, n): lags 0 ... n - 1, negative lags wrapped."""
        if check_at_least("stage", stage, 1) > self.order:
            raise ValueError(f"stage={stage} must lie in 1 ... order={self.order}")
        h_f = self._spectrum(stage, self._chain(self._streams(x, mask, context, context_mask), stage - 1))
        with full_precision(h_f):
            return self.transform.kernel(h_f, self.n)

    def values(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the short-convolved v, (B, L, D)."""
        return self._streams(x, mask, None, None).v.transpose(1, 2)

    def mixing_matrix(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        context: Tensor | None = None,
        channel: int = 0,
        context_mask: Tensor | None = None,
    ) -> Tensor:
        """Return A = diag(s_2) Conv(h) diag(s_1) of one channel, (B, L, L): what attention maps are to attention.

        ``A @ values(x)[..., channel]`` is that channel before residual convolution and output projection.
        """
        if self.order != 1:
            raise ValueError(f"mixing_matrix needs order=1; this layer has order={self.order}")
        if check_at_least("channel", channel, 0) >= self.d_model:
            raise ValueError(f"channel={channel} must lie in 0 ... {self.d_model - 1}")
        streams = self._streams(x, mask, context, context_mask)
        s1, s2 = streams.gates
        h_f = self._spectrum(1, streams)[:, channel, None]  # (B, 1, F)
        length = x.shape[1]
        with full_precision(h_f):
            impulses = torch.eye(length, device=h_f.device, dtype=h_f.real.dtype if h_f.is_complex() else h_f.dtype)
            responses = spectral_conv(impulses[None], h_f, n=self.n, transform=self.transform)  # (B, source, target)
        matrix = responses.transpose(1, 2).to(s1.dtype)
        return s2[:, channel, :, None] * matrix * s1[:, channel, None, :]

    @torch.no_grad()
    def resample(self, max_length: int, *, grid: str = "stretch") -> Self:
        """Return this layer for another ``max_length``; the same length gives the same layer.

        ``grid="stretch"`` stretches the static kernel's time grid with the length, keeping its response in cycles per
        sequence; ``"extend"`` keeps it in cycles per token and continues it to larger lags. Either way the taps of
        the frequency Conv1d now span another bandwidth (their bins lie closer or further apart), so a resampled
        layer is a starting point for training, not the same function.
        """
        check_choice("grid", grid, GRIDS)
        check_at_least("max_length", max_length, 1)
        ratio = max_length / self.max_length
        options = self._options()
        if grid == "extend":
            options["filter_grid"] = self.filter_grid or float(self.max_length)
        elif self.filter_grid is not None:
            options["filter_grid"] = self.filter_grid * ratio
        layer = type(self)(self.d_model, max_length, **options)
        layer.to(device=self.short_conv.weight.device, dtype=self.short_conv.weight.dtype)
        layer.load_state_dict(self.state_dict())
        for parameter, own in zip(layer.parameters(), self.parameters(), strict=True):
            parameter.requires_grad_(own.requires_grad)
        # The filter divides by sqrt(n); a stretched kernel must divide by n to keep its spectrum, an extended
        # one by what it had.
        scale = math.sqrt(ratio) if grid == "extend" else 1 / math.sqrt(ratio)
        for module in layer.modules():
            if isinstance(module, StaticKernel):
                module.filter.output.mul_(scale)
        return layer.train(self.training)

    def extra_repr(self) -> str:
        """Show the options in ``print(module)``."""
        return f"{self.d_model}, {self.max_length}, " + ", ".join(f"{k}={v!r}" for k, v in self._options().items())

    def _options(self) -> dict[str, Any]:
        return {
            "order": self.order,
            "conditioning": self.conditioning,
            "transform": self.transform.name,
            "norm": self.norm,
            "boundary": self.boundary,
            "kernel_size": self.kernel_size,
            "spatial_layers": self.spatial_layers,
            "spectral_layers": self.spectral_layers,
            "sigma": self.sigma,
            "short_padding": self.short_padding,
            "residual_conv": self.residual_conv is not None,
            "filter_embedding": self.filter_embedding,
            "filter_width": self.filter_width,
            "dropout": self.dropout.p,
            "backend": self.backend,
            "filter_grid": self.filter_grid,
        }

    def _static_kernel(self) -> StaticKernel:
        grid = None if self.filter_grid is None else self.filter_grid * self.n / self.max_length
        return StaticKernel(
            self.d_model,
            self.n,
            transform=self.transform,
            embedding=self.filter_embedding,
            width=self.filter_width,
            grid=grid,
        )

    def _conditioning(self) -> nn.Module | None:
        if self.conditioning == "static":
            return None
        spectral = SpectralConv(self.spectral_layers, self.d_model, self.kernel_size)
        if self.conditioning == "phase":
            return PhaseConditioning(self._spatial_conv(), spectral, n=self.n, transform=self.transform, norm=self.norm)
        key, query = self._spatial_conv(), self._spatial_conv()
        return CrossConditioning(
            key, query, spectral, n=self.n, transform=self.transform, norm=self.norm, sigma=self.sigma
        )

    def _spatial_conv(self) -> SpatialConv:
        return SpatialConv(self.spatial_layers, self.d_model, self.max_length, self.kernel_size, self.short_padding)

    def _chain(self, streams: Streams, stages: int) -> Streams:
        """Run the first stages of the chain: v becomes the output of the last of them, and conditions the next."""
        for stage, gate in zip(self.stages[:stages], streams.gates, strict=False):
            z = masked(stage(gate * streams.v, streams.u, streams.u_pad), streams.pad)
            streams = streams._replace(v=z, u=z, u_pad=streams.pad)
        return streams

    def _spectrum(self, stage: int, streams: Streams) -> Tensor:
        """Return h_f of a stage as (B, D, F), also where it is the same for every sample."""
        h_f: Tensor = self.stages[stage - 1].spectrum(streams.u, streams.u_pad)  # type: ignore[operator]
        return h_f.expand(streams.u.shape[0], -1, -1)

    def _streams(self, x: Tensor, mask: Tensor | None, context: Tensor | None, context_mask: Tensor | None) -> Streams:
        """Check, mask, project and short-convolve."""
        _, projected, pad, u, u_pad = self._project(x, mask, context, context_mask, biased=True)
        return self._short_convolved(projected, pad, u, u_pad)

    def _short_convolved(
        self, projected: Tensor, pad: Tensor | None, u: Tensor | None, u_pad: Tensor | None
    ) -> Streams:
        """Mask what the projection's bias left behind, then short-convolve."""
        projected = masked(projected, pad)
        if u is None:
            u, u_pad = projected[:, : self.d_model], pad
        else:
            u = masked(u, u_pad)
        v, *gates = self.short_conv(projected, pad).split(self.d_model, dim=1)
        return Streams(v, tuple(gates), u, pad, u_pad)

    def _project(
        self, x: Tensor, mask: Tensor | None, context: Tensor | None, context_mask: Tensor | None, *, biased: bool
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]:
        """Check, mask and project: x, its streams and their pad, and those of the context, if there is one."""
        x, pad = self._checked("x", x, "mask", mask)
        check_context(context, context_mask, x, self.conditioning)
        projected = to_channels(self.in_proj, x, biased=biased)
        if context is None:
            return x, projected, pad, None, None
        context, u_pad = self._checked("context", context, "context_mask", context_mask)
        return x, projected, pad, to_channels(self.in_proj, context, self.d_model, biased=biased), u_pad

    def _checked(self, name: str, x: Tensor, mask_name: str, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
        check_sequence(name, x, self.d_model, self.max_length)
        check_mask(mask_name, mask, x)
        check_dtype(name, x, self.short_conv.weight.dtype)
        if mask is None:
            return x, None
        pad = ~mask
        return x.masked_fill(pad[..., None], 0.0), pad[:, None]
