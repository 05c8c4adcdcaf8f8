"""Each baseline against its published definition, written the slow way: a recurrence, a dense matrix, a count."""

import math

import pytest
import torch
import torch.nn.functional as F
from helpers import assert_close
from torch import Tensor

from orchid.mixers import performer
from orchid.mixers.attention import Attention, rotate
from orchid.mixers.ckconv import CKConv
from orchid.mixers.h3 import H3, ShiftSSM
from orchid.mixers.hyena import Hyena, HyenaFilter
from orchid.mixers.mamba import Mamba, SelectiveSSM
from orchid.mixers.monarch import MonarchMixer
from orchid.mixers.performer import Performer
from orchid.mixers.s4 import S4
from orchid.mixers.state_space import DiagonalSSM
from orchid.nn.mlp import MLP
from orchid.ops.long_conv import long_conv

BATCH, LENGTH, LONGEST, WIDTH = 2, 11, 16, 6


@pytest.fixture
def x() -> Tensor:
    return torch.randn(BATCH, LENGTH, WIDTH, dtype=torch.float64)


def parameters(module: torch.nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def project(layer: torch.nn.Linear, x: Tensor) -> Tensor:
    """A linear layer by its definition, on (B, L, in) -> (B, L, out)."""
    y = torch.einsum("oi,bli->blo", layer.weight, x)
    return y if layer.bias is None else y + layer.bias


def short(conv: torch.nn.Module, x: Tensor) -> Tensor:
    """A causal depthwise convolution by its definition, on (B, L, D)."""
    taps = conv.weight.shape[1]
    padded = F.pad(x, (0, 0, taps - 1, 0))
    return sum(conv.weight[:, j] * padded[:, j : j + x.shape[1]] for j in range(taps)) + conv.bias


def causal_matrix(kernel: Tensor, length: int) -> Tensor:
    """S_h of the Hyena paper: (D, L, L), lower triangular, h[t - s] at (t, s)."""
    matrix = torch.zeros(kernel.shape[0], length, length, dtype=kernel.dtype)
    for t in range(length):
        for s in range(t + 1):
            matrix[:, t, s] = kernel[:, t - s]
    return matrix


def hyena_matrix(conv: HyenaFilter, length: int) -> Tensor:
    """The filter's Toeplitz matrix (D, L, L), its kernel evaluated lag by lag from the published formulas."""

    def kernel(side: torch.nn.Module) -> Tensor:
        n, bands, columns = conv.max_length, (conv.embedding - 1) // 2, []
        for t in range(length):
            frequencies = torch.linspace(1e-4, bands - 1, bands, dtype=torch.float64)
            angles = [-2 * math.pi * f * t / n for f in frequencies.tolist()]
            z = torch.tensor([t / (n - 1), *map(math.cos, angles), *map(math.sin, angles)], dtype=torch.float64)
            for weight, bias in zip(side.weights, side.biases, strict=True):
                z = torch.sin(conv.frequency * (weight @ z + bias))
            slow, fast = math.log(1e-2) / 1.5, math.log(1e-2) / 0.3
            rates = torch.linspace(slow, fast, conv.channels, dtype=torch.float64).abs()
            columns.append((side.output @ z) * torch.exp(-rates * t / (n - 1)))
        return torch.stack(columns, dim=1)

    matrix = causal_matrix(kernel(conv.sides[0]), length)
    if len(conv.sides) == 2:
        reverse = F.pad(kernel(conv.sides[1]), (1, 0))[:, :length]  # lag -1 is its first value
        matrix = matrix + causal_matrix(reverse, length).transpose(1, 2)
    return matrix + torch.diag_embed(conv.skip[:, None].expand(-1, length))


class TestHyena:
    @pytest.mark.parametrize("direction", ["forward", "both"])
    @pytest.mark.parametrize("order", [2, 3])
    def test_is_the_product_of_gates_and_toeplitz_matrices(self, x: Tensor, order: int, direction: str) -> None:
        mixer = Hyena(WIDTH, LONGEST, order=order, direction=direction, filter_width=8).double()
        *gates, v = short(mixer.short_conv, project(mixer.in_proj, x)).split(WIDTH, dim=-1)
        for conv, gate in zip(mixer.filters, reversed(gates[1:]), strict=True):
            v = torch.einsum("dts,bsd->btd", hyena_matrix(conv, LENGTH), gate * v)
        assert_close("y", mixer(x), project(mixer.out_proj, gates[0] * v))


class TestMonarchMixer:
    @pytest.mark.parametrize("residual", [True, False])
    @pytest.mark.parametrize("direction", ["forward", "both"])
    def test_is_a_gated_toeplitz_product_with_a_residual_one(self, x: Tensor, direction: str, residual: bool) -> None:
        mixer = MonarchMixer(WIDTH, LONGEST, direction=direction, residual_conv=residual, filter_width=8).double()
        x1, x2, v = short(mixer.short_conv, project(mixer.in_proj, x)).split(WIDTH, dim=-1)
        y = x2 * torch.einsum("dts,bsd->btd", hyena_matrix(mixer.filters[0], LENGTH), x1 * v)
        if residual:
            y = y + torch.einsum("dts,bsd->btd", hyena_matrix(mixer.filters[1], LENGTH), x)
        assert_close("y", mixer(x), project(mixer.out_proj, y))

    def test_its_convolution_is_a_product_of_monarch_matrices(self) -> None:
        """M^-1 (M k * M x) with M the DFT as two block-diagonal matrices, a twiddle and permutations."""
        p, n = 4, 16
        grid = torch.arange(p, dtype=torch.float64).outer(torch.arange(p, dtype=torch.float64))
        wave = torch.exp(-2j * math.pi * grid / p)
        blocks = torch.block_diag(*[wave] * p)
        twiddle = torch.exp(-2j * math.pi * grid / n)

        def permuted(z: Tensor) -> Tensor:
            return z.unflatten(-1, (p, p)).transpose(-1, -2).flatten(-2)

        def monarch(z: Tensor) -> Tensor:
            return permuted((permuted(permuted(z) @ blocks * twiddle.flatten())) @ blocks)

        x, k = torch.randn(2, n // 2, dtype=torch.float64)
        padded = [F.pad(t, (0, n // 2)).to(torch.complex128) for t in (x, k)]
        assert_close("M x", monarch(padded[0]), torch.fft.fft(padded[0]))
        y = (monarch((monarch(padded[0]) * monarch(padded[1])).conj()).conj() / n).real[: n // 2]
        assert_close("y", long_conv(x[None], k[None])[0], y)

    @pytest.mark.parametrize(("width", "depth", "published"), [(768, 12, 80e6), (1536, 12, 260e6), (1792, 12, 341e6)])
    def test_parameters_of_m2_bert(self, width: int, depth: int, published: float) -> None:
        """M2-BERT: gated block-diagonal MLPs, token, position and type embeddings, a dense prediction head."""
        with torch.device("meta"):
            mixer = MonarchMixer(width, 128)
            mlp = MLP(width, kind="gated", blocks=4, expansion=4, dropout=0.0)
        layer = parameters(mixer) + parameters(mlp) + 4 * width
        embeddings = (30528 + 128 + 2) * width + 2 * width
        head = width * width + 3 * width + 30528
        assert depth * layer + embeddings + head == pytest.approx(published, rel=0.02)


class TestCKConv:
    @pytest.mark.parametrize("direction", ["forward", "both"])
    @pytest.mark.parametrize("gated", [False, True])
    def test_is_the_sum_over_a_continuous_kernel(self, x: Tensor, direction: str, gated: bool) -> None:
        mixer = CKConv(WIDTH, LONGEST, direction=direction, gated=gated).double()
        mixer.skip.data.normal_()
        net, omega = mixer.psi, mixer.omega

        def psi(position: float) -> Tensor:
            z = torch.tensor([position], dtype=torch.float64)
            for weight, bias in zip(net.weights, net.biases, strict=True):
                z = torch.sin(omega * (weight @ z + bias))
            return (net.output @ z + net.output_bias) / math.sqrt(LONGEST)

        signal = x
        if gated:
            x1, x2, v = short(mixer.short_conv, project(mixer.in_proj, x)).split(WIDTH, dim=-1)
            signal = x1 * v
        y = mixer.skip * signal
        for t in range(LENGTH):
            for s in range(t + 1 if direction == "forward" else LENGTH):
                lag = (t - s) / (LONGEST - 1)
                y[:, t] += psi(2 * lag - 1 if direction == "forward" else lag) * signal[:, s]
        assert_close("y", mixer(x), project(mixer.out_proj, x2 * y if gated else y))

    def test_a_window_is_a_gaussian_around_lag_zero(self) -> None:
        torch.manual_seed(0)
        plain, windowed = (CKConv(WIDTH, LONGEST, window=width).double() for width in (None, 0.3))
        windowed.load_state_dict(plain.state_dict(), strict=False)
        lags = torch.arange(LONGEST, dtype=torch.float64)
        for ours, whole, lag in zip(windowed.kernels(LONGEST), plain.kernels(LONGEST), (lags, -lags - 1), strict=True):
            gaussian = torch.exp(-((lag / (LONGEST - 1) / windowed.window.exp()) ** 2) / 2)
            assert_close("kernel", ours, whole * gaussian)
        assert windowed.window.exp().item() == pytest.approx(0.3)
        with pytest.raises(ValueError, match=r"window=0.3 needs direction='both', not 'forward'"):
            CKConv(WIDTH, LONGEST, window=0.3, direction="forward")


def diagonal_recurrence(ssm: DiagonalSSM, u: Tensor, side: int = 0) -> Tensor:
    """s[t] = exp(dt A) s[t-1] + (exp(dt A) - 1) / A u[t], y = 2 Re(C s), without the skip term; u (..., D, L)."""
    a = torch.complex(-ssm.log_decay.exp(), ssm.frequency)
    decay = torch.exp(ssm.log_step.exp()[:, None] * a)
    c = torch.view_as_complex(ssm.output)[side]
    state, outputs = torch.zeros(*u.shape[:-1], a.shape[1], dtype=torch.complex128), []
    for t in range(u.shape[-1]):
        state = decay * state + (decay - 1) / a * u[..., t, None]
        outputs.append(2 * (c * state).sum(dim=-1).real)
    return torch.stack(outputs, dim=-1)


def shift_recurrence(ssm: ShiftSSM, u: Tensor, side: int = 0) -> Tensor:
    """s[t] = S s[t-1] + e_1 u[t], y = C s, with S the shift matrix, without the skip term."""
    size = ssm.output.shape[-1]
    shift = torch.diag(torch.ones(size - 1, dtype=u.dtype), -1)
    state, outputs = torch.zeros(*u.shape[:-1], size, dtype=u.dtype), []
    for t in range(u.shape[-1]):
        state = state @ shift.T
        state[..., 0] += u[..., t]
        outputs.append((ssm.output[side] * state).sum(dim=-1))
    return torch.stack(outputs, dim=-1)


def both_ways(recurrence: object, ssm: torch.nn.Module, u: Tensor) -> Tensor:
    """The recurrence, plus a second one that reads what is to come, plus the skip term."""
    y = recurrence(ssm, u) + ssm.skip[:, None] * u
    if len(ssm.output) == 2:
        later = F.pad(u.flip(-1), (1, 0))[..., :-1]  # strictly later inputs: the present belongs to the forward side
        y = y + recurrence(ssm, later, side=1).flip(-1)
    return y


@pytest.mark.parametrize("direction", ["forward", "both"])
class TestStateSpaces:
    def test_s4_is_a_recurrence(self, x: Tensor, direction: str) -> None:
        mixer = S4(WIDTH, LONGEST, state=8, direction=direction).double()
        mixer.ssm.log_step.data += 2  # steps long enough to forget within the sequence
        y = both_ways(diagonal_recurrence, mixer.ssm, x.transpose(1, 2)).transpose(1, 2)
        a, b = project(mixer.out_proj, F.gelu(y)).chunk(2, dim=-1)
        assert_close("y", mixer(x), a * torch.sigmoid(b))

    @pytest.mark.parametrize("head_size", [1, 3])
    @pytest.mark.parametrize("state", [4, 64])
    def test_h3_is_two_recurrences(self, x: Tensor, direction: str, head_size: int, state: int) -> None:
        """Also with a shift state longer than the sequence."""
        mixer = H3(WIDTH, LONGEST, head_size=head_size, state=state, direction=direction).double()
        q, k, v = project(mixer.in_proj, x).transpose(1, 2).split(WIDTH, dim=1)
        k = both_ways(shift_recurrence, mixer.shift, k)
        y = torch.zeros_like(v)
        for head in range(WIDTH // head_size):
            for i in range(head_size):
                for j in range(head_size):
                    row, column = head * head_size + i, head * head_size + j
                    u = torch.zeros(BATCH, WIDTH // head_size, LENGTH, dtype=torch.float64)
                    u[:, head] = k[:, row] * v[:, column]
                    y[:, column] += q[:, row] * both_ways(diagonal_recurrence, mixer.diagonal, u)[:, head]
        assert_close("y", mixer(x), project(mixer.out_proj, y.transpose(1, 2)))


def test_s4d_starts_as_s4d_lin() -> None:
    ssm = DiagonalSSM(3, state=64, direction="forward")
    assert torch.allclose(-ssm.log_decay.exp(), torch.tensor(-0.5))
    assert torch.allclose(ssm.frequency, math.pi * torch.arange(32))
    assert ((ssm.log_step.exp() >= 0.001) & (ssm.log_step.exp() <= 0.1)).all()


class TestMamba:
    def scan(self, ssm: SelectiveSSM, u: Tensor) -> Tensor:
        """The selective scan of algorithm 2, token by token; u (B, L, E)."""
        u = F.silu(short(ssm.short_conv, u))
        d, b, c = project(ssm.x_proj, u).split([ssm.rank, ssm.state, ssm.state], dim=-1)
        dt = F.softplus(project(ssm.dt_proj, d))
        a = -ssm.log_decay.exp()
        state, outputs = torch.zeros(*u[:, 0].shape, ssm.state, dtype=u.dtype), []
        for t in range(u.shape[1]):
            state = torch.exp(dt[:, t, :, None] * a) * state + (dt[:, t] * u[:, t])[..., None] * b[:, t, None]
            outputs.append((state * c[:, t, None]).sum(dim=-1) + ssm.skip * u[:, t])
        return torch.stack(outputs, dim=1)

    @pytest.mark.parametrize("direction", ["forward", "both"])
    def test_is_the_selective_scan(self, x: Tensor, direction: str) -> None:
        mixer = Mamba(WIDTH, LONGEST, direction=direction).double()
        u, z = project(mixer.in_proj, x).chunk(2, dim=-1)
        y = self.scan(mixer.sides[0], u)
        if direction == "both":
            y = y + self.scan(mixer.sides[1], u.flip(1)).flip(1)
        assert_close("y", mixer(x), project(mixer.out_proj, y * F.silu(z)))

    def test_parameters_of_mamba_130m(self) -> None:
        """24 layers of width 768 with one norm each, a final norm, tied embeddings of 50,280 tokens."""
        with torch.device("meta"):
            mixer = Mamba(768, 2048, direction="forward")
        assert 24 * (parameters(mixer) + 768) + 768 + 50280 * 768 == 129_135_360


class TestPerformer:
    def test_is_its_dense_matrix(self, x: Tensor) -> None:
        mixer = Performer(WIDTH, LONGEST, heads=2).double()
        q, k, v = (t.unflatten(-1, (2, 3)).transpose(1, 2) for t in project(mixer.in_proj, x).chunk(3, dim=-1))

        def exponents(t: Tensor) -> Tensor:
            t = t / 3**0.25
            return torch.einsum("md,bhld->bhlm", mixer.features, t) - (t**2).sum(dim=-1, keepdim=True) / 2

        query, key = exponents(q), exponents(k)
        query = (query - query.max(dim=-1, keepdim=True).values).exp() + 1e-4
        key = (key - key.flatten(2).max(dim=-1).values[:, :, None, None]).exp() + 1e-4
        matrix = query @ key.transpose(-1, -2)
        y = (matrix / matrix.sum(dim=-1, keepdim=True)) @ v
        assert_close("y", mixer(x), project(mixer.out_proj, y.transpose(1, 2).flatten(-2)))

    def test_approaches_softmax_attention(self, x: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
        """Errors of a mean over m features fall as 1 / sqrt(m), once the floor under the features is taken away."""
        monkeypatch.setattr(performer, "FLOOR", 0.0)
        torch.manual_seed(0)
        exact = Attention(WIDTH, LONGEST, heads=2).double()
        weights, errors = exact.state_dict(), []
        for features in (64, 16384):
            mixer = Performer(WIDTH, LONGEST, heads=2, features=features).double()
            mixer.load_state_dict({**weights, "features": mixer.features})
            errors.append((mixer(x) - exact(x)).norm() / exact(x).norm())
        assert errors[1] < 0.02 and errors[1] < errors[0] / 4, errors

    def test_features_are_orthogonal_in_blocks(self) -> None:
        features = Performer(8, 4, heads=1, features=12).features
        gram = features[:8] @ features[:8].T
        assert_close("gram", gram, torch.diag(gram.diagonal()), 1e-5)


class TestAttention:
    def test_rotary_scores_see_distances_only(self) -> None:
        q, k = torch.randn(2, 1, 8, dtype=torch.float64).expand(2, 20, 8)
        scores = rotate(q) @ rotate(k).T
        for distance in (-7, 0, 3):
            diagonal = scores.diagonal(distance)
            assert_close("scores", diagonal, diagonal[:1].expand_as(diagonal))
        assert scores[0].std() > 0.01

    def test_rotation_of_one_pair(self) -> None:
        turned = rotate(torch.tensor([[1.0, 0.0]] * 4, dtype=torch.float64))
        angle = torch.arange(4, dtype=torch.float64)
        assert_close("turned", turned, torch.stack((angle.cos(), angle.sin()), dim=-1), 1e-6)

    def test_short_convolution_of_queries_keys_and_values(self, x: Tensor) -> None:
        mixer = Attention(WIDTH, LONGEST, heads=1, short_conv=3).double()
        q, k, v = short(mixer.short_conv, project(mixer.in_proj, x)).chunk(3, dim=-1)
        y = torch.softmax(q @ k.transpose(1, 2) / math.sqrt(WIDTH), dim=-1) @ v
        assert_close("y", mixer(x), project(mixer.out_proj, y))
