"""What the tests share: a named comparison, and the mixer written with the reference functions."""

import io
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from orchid import OrchidMixer
from orchid.nn.conditioning import CrossConditioning, PhaseConditioning
from orchid.nn.static_kernel import StaticKernel
from orchid.ops import reference

# Error relative to the reference's root mean square. float64: a few thousand roundings of 1e-16; float32: of 6e-8.
# Gradients of parameters sum over batch and length, which costs a further factor.
TOLERANCE = {torch.float64: 1e-12, torch.float32: 2e-5}


def option_id(options: dict[str, object]) -> str:
    """Name a case by its options."""
    return ",".join(f"{k}={v}" for k, v in options.items()) or "default"


def relative_error(actual: Tensor, expected: Tensor) -> float:
    """Root mean square of the difference over that of the expected value."""
    wide = torch.complex128 if expected.is_complex() else torch.float64
    actual, expected = actual.detach().to(wide), expected.detach().to(wide)
    scale = expected.abs().square().mean().sqrt()
    return float((actual - expected).abs().square().mean().sqrt() / scale.clamp_min(1e-30))


def assert_close(name: str, actual: Tensor, expected: Tensor, tolerance: float | None = None) -> None:
    assert actual.shape == expected.shape, f"{name}: shape {tuple(actual.shape)}, expected {tuple(expected.shape)}"
    assert torch.isfinite(actual).all(), f"{name}: not finite"
    limit = TOLERANCE[actual.real.dtype] if tolerance is None else tolerance
    if expected.detach().abs().max() == 0:
        assert actual.detach().abs().max() <= limit, f"{name}: expected zero, worst {actual.abs().max():.2e}"
        return
    error = relative_error(actual, expected)
    worst = (actual - expected).detach().abs().flatten().argmax().item()
    assert error <= limit, f"{name}: relative error {error:.2e} > {limit:.0e}, worst at flat index {worst}"


def static_spectrum(static: StaticKernel, n: int, kind: str) -> Tensor:
    filter_ = static.filter
    h0 = reference.static_kernel(
        [*filter_.weights, filter_.output], list(filter_.biases), filter_.frequency, n=n, grid=filter_.grid
    )
    return reference.spectrum_from_kernel(h0, kind) + static.delta[:, None]


def reference_mixer(
    mixer: OrchidMixer,
    x: Tensor,
    mask: Tensor | None = None,
    context: Tensor | None = None,
    context_mask: Tensor | None = None,
) -> Tensor:
    """Compute ``mixer(x, mask, context, context_mask)`` with ``ops/reference.py`` alone, padding to N by hand."""
    kind, n, length, width = mixer.transform.name, mixer.n, mixer.max_length, mixer.d_model
    batch = x.shape[0]

    def padded(sequence: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor]:
        keep = torch.ones(sequence.shape[:2], dtype=torch.bool) if valid is None else valid
        keep = reference.zero_pad(keep, length)
        sequence = reference.zero_pad(sequence.transpose(1, 2), length)
        return torch.where(keep[:, None], sequence, 0.0), keep[:, None].to(sequence.dtype)

    def project(sequence: Tensor, keep: Tensor) -> Tensor:
        weight, bias = mixer.in_proj.weight, mixer.in_proj.bias
        return (torch.einsum("oi,bil->bol", weight, sequence) + bias[:, None]) * keep

    def spectrum(stage: torch.nn.Module, keep: Tensor, u: Tensor) -> Tensor:
        h_f = static_spectrum(stage.static, n, kind).expand(batch, -1, -1)
        network = stage.conditioning
        common = {"n": n, "kind": kind, "norm": mixer.norm, "padding": mixer.short_padding, "keep": keep}
        if isinstance(network, PhaseConditioning):
            spatial = [layer.weight for layer in network.spatial]
            h_f = h_f + reference.phase_conditioning(u, spatial, list(network.spectral.weights), **common)
        elif isinstance(network, CrossConditioning):
            key, query = [layer.weight for layer in network.key], [layer.weight for layer in network.query]
            h_f = h_f + reference.cross_conditioning(
                u, key, query, list(network.spectral.weights), nonlinearity=mixer.sigma, **common
            )
        return h_f

    x_n, keep = padded(x, mask)
    projected = project(x_n, keep)
    if context is None:
        u, u_keep = projected[:, :width], keep
    else:
        c_n, u_keep = padded(context, context_mask)
        u = project(c_n, u_keep)[:, :width]
    short = reference.short_convolution(
        projected, mixer.short_conv.weight, mixer.short_conv.bias, padding=mixer.short_padding
    )
    v, *gates = (short * keep).split(width, dim=1)
    keeps = [u_keep] + [keep] * (mixer.order - 1)
    spectra = [partial(spectrum, stage, k) for stage, k in zip(mixer.stages, keeps, strict=True)]
    y = reference.gated_chain(v, gates, u, spectra, kind=kind, boundary=mixer.boundary, keep=keep)
    if mixer.residual_conv is not None:
        h_f = static_spectrum(mixer.residual_conv.static, n, kind).expand(batch, -1, -1)
        y = y + reference.data_dependent_convolution(x_n, h_f, kind=kind, boundary=mixer.boundary)
    y = torch.einsum("oi,bil->blo", mixer.out_proj.weight, y) + mixer.out_proj.bias
    return y[:, : x.shape[1]]


WORDS = ["the", "a", "cat", "dog", "sat", "ran", "on", "mat", "rug", "and", "then", "away", "home", "big", "small"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def word_tokenizer(folder: Path) -> Path:
    """Write a tokenizer of a few words into a folder."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    vocabulary = {word: number for number, word in enumerate([*SPECIAL, *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    special = [(token, vocabulary[token]) for token in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=special
    )
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def word_shards(folder: Path) -> Path:
    """Write shards of a few hundred words under a folder; return theirs."""
    from orchid.tasks.tokenize_text import build_shards

    text = folder / "text"
    text.mkdir()
    lines = [" ".join(WORDS[(i * j) % len(WORDS)] for j in range(1, 30)) for i in range(1, 40)]
    (text / "words.txt").write_text("\n\n".join(lines) + "\n")
    build_shards(text, word_tokenizer(folder / "tokenizer"), folder / "shards")
    return folder / "shards"


def glue_folder(folder: Path) -> tuple[Path, Path]:
    """Write a few examples of every GLUE task and a small pre-trained model with its tokenizer; return both folders."""
    from transformers import PreTrainedTokenizerFast

    from orchid.models.bert import OrchidBertForMaskedLM, preset
    from orchid.tasks.glue_data import GLUE

    data, start = folder / "glue", folder / "start"
    for spec in GLUE.values():
        (data / spec.name).mkdir(parents=True)
        header = list(spec.columns) or ["index", *spec.texts, spec.label]
        for stem in ("train", "dev_matched" if spec.name == "MNLI" else "dev"):
            lines = [] if spec.columns else ["\t".join(header)]
            for i in range(12):
                label = spec.labels[i % len(spec.labels)] if spec.labels else f"{i % 6}.0"
                text = " ".join(WORDS[(i * j) % len(WORDS)] for j in range(1, 6))
                cells = dict.fromkeys(spec.texts, text) | {spec.label: label}
                lines.append("\t".join(cells.get(name, "x") for name in header))
            (data / spec.name / f"{stem}.tsv").write_text("\n".join(lines) + "\n")
    special = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    file = word_tokenizer(folder / "tokenizer") / "tokenizer.json"
    PreTrainedTokenizerFast(tokenizer_file=str(file), **special).save_pretrained(start)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "max_position_embeddings": 16}
    OrchidBertForMaskedLM(preset("orchid-bert-base", vocab_size=len(SPECIAL) + len(WORDS), **sizes)).save_pretrained(
        start
    )
    return data, start


def imagenette_folder(folder: Path, images: int = 20) -> Path:
    """Write Imagenette's two files with a few random images each; return their folder."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(0)
    for name in ("train", "val"):
        parts = []
        for _ in range(images):
            file = io.BytesIO()
            Image.fromarray(generator.integers(0, 256, (96, 96, 3), np.uint8)).save(file, "png")
            parts.append(file.getvalue())
        offsets = np.cumsum([0, *map(len, parts)])
        data, labels = np.frombuffer(b"".join(parts), np.uint8), generator.integers(0, 10, images).astype(np.uint8)
        np.savez(folder / f"{name}.npz", data=data, offsets=offsets, labels=labels)
    return folder


def imagenet_folder(folder: Path, classes: int = 3, images: int = 6) -> Path:
    """Write FOLDER/train/CLASS/image and FOLDER/val with a few random images each; return FOLDER."""
    generator = np.random.default_rng(0)
    for split in ("train", "val"):
        for number in range(classes):
            own = folder / split / f"n{number:08}"
            own.mkdir(parents=True)
            for image in range(images):
                pixels = generator.integers(0, 256, (40, 50, 3), np.uint8)
                Image.fromarray(pixels).save(own / f"{image}.png")
    return folder


def plain_transform(config: object) -> Callable[[Image.Image], Tensor]:
    """Stand in for timm's pipeline: resize, and a random brightness that tells seeds apart."""

    def transform(image: Image.Image) -> Tensor:
        size = config.image_size
        pixels = np.asarray(image.resize((size, size)), np.float32) / 255
        return torch.from_numpy(pixels).permute(2, 0, 1) * random.random()

    return transform


def cifar_folder(folder: Path, images: int = 20) -> Path:
    """Write CIFAR-10's binary batches with a few random images each; return their folder."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(0)
    for name in ("test_batch", *(f"data_batch_{number}" for number in range(1, 6))):
        rows = torch.randint(256, (images, 1 + 3 * 32 * 32), generator=generator, dtype=torch.uint8)
        rows[:, 0] %= 10
        (folder / f"{name}.bin").write_bytes(rows.numpy().tobytes())
    return folder
