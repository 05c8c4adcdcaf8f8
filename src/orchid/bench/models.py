"""Training throughput of whole models, forward and backward in one type, each beside its counterpart with attention."""

import gc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import nn

from orchid.bench.timing import milliseconds, peak_mib
from orchid.files import write_json
from orchid.ops.checks import check_choice
from orchid.train.environment import commit, hardware

FAMILIES = ("bert", "vit")
# Tokens a step of language, images a step of vision, on a GPU and on a CPU.
TOKENS, IMAGES = {"cuda": 65_536, "cpu": 256}, {"cuda": 512, "cpu": 2}
LENGTHS, PATCHES = {"cuda": (128, 1024, 8192), "cpu": (64, 128)}, {"cuda": (4, 2, 1), "cpu": (8, 4)}
HIDDEN = 0.3


@dataclass(frozen=True)
class Case:
    """One model at one size.

    Attributes:
        family: "bert" or "vit".
        model: its name.
        length: tokens of a sequence.
        batch: sequences or images a step.
        unit: what is counted a second: "tokens" or "images".
        build: -> (model, its loss).
    """

    family: str
    model: str
    length: int
    batch: int
    unit: str
    build: Callable[[torch.device, torch.dtype], tuple[nn.Module, Callable[[], torch.Tensor]]]

    @property
    def count(self) -> int:
        """Tokens or images a step."""
        return self.batch * self.length if self.unit == "tokens" else self.batch


def run_models_benchmark(
    console: Console, families: list[str], json_file: Path | None, *, cpu: bool, compiled: bool = False
) -> dict[str, Any]:
    """Time every model of some families, print tokens or images a second and keep them.

    With ``compiled`` each is timed twice, as it is written and by ``torch.compile``.
    """
    device = torch.device("cuda" if torch.cuda.is_available() and not cpu else "cpu")
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    cases = [case for name in families for case in list_cases(check_choice("--families", name, FAMILIES), device.type)]
    rows: list[dict[str, Any]] = []
    for case in cases:
        for form in (False, True) if compiled else (False,):
            what = f"{case.model}, {case.batch} x {case.length}{', compiled' if form else ''}"
            # A line when it is done and no spinner: its thread would take the interpreter from what is timed.
            try:
                rows.append(_time_case(case, device, dtype, compiled=form))
                console.print(f"{what}: {rows[-1]['step_ms']:.2f} ms a step", markup=False, highlight=False)
            except RuntimeError as error:  # out of memory: said, not hidden
                console.print(f"not timed: {what}: {error}", markup=False)
            gc.collect()
            if device.type == "cuda":
                torch.cuda.empty_cache()
            if json_file is not None:
                json_file.parent.mkdir(parents=True, exist_ok=True)
                facts = hardware(device) | {"torch": torch.__version__, "commit": commit()}
                write_json(json_file, {"hardware": facts, "models": rows})
    table = Table("model", "compiled", "batch x tokens", "ms a step", "a second", "MiB", box=None, padding=(0, 2, 0, 0))
    for row in rows:
        speed = f"{row['per_second']:,.0f} {row['unit']}"
        size, peak = f"{row['batch']} x {row['length']:,}", row["peak_mib"]
        table.add_row(
            row["model"],
            "yes" if row["compiled"] else "no",
            size,
            f"{row['step_ms']:.2f}",
            speed,
            "-" if peak is None else f"{peak:,.0f}",
        )
    console.print(table)
    return {"models": rows}


def list_cases(family: str, device: str) -> list[Case]:
    """Return the models of a family at every size."""
    if family == "bert":
        small = {} if device == "cuda" else {"hidden_size": 32, "num_hidden_layers": 1}
        return [
            Case(family, name, length, TOKENS[device] // length, "tokens", _bert(name, length, device, small))
            for length in LENGTHS[device]
            for name in ("orchid-bert-base", "bert-base", "m2-bert-base")
        ]
    models = {"Orchid-ViT": ("orchid", 4), "ViT": ("attention", 1), "Orchid-ViT, 2-D": ("orchid-2d", 4)}
    return [
        Case(family, name, (32 // patch) ** 2, IMAGES[device], "images", _vit(mixer, blocks, patch, IMAGES[device]))
        for patch in PATCHES[device]
        for name, (mixer, blocks) in models.items()
    ]


def _bert(name: str, length: int, kind: str, changes: dict[str, Any]) -> Callable[..., Any]:
    def build(device: torch.device, dtype: torch.dtype) -> tuple[nn.Module, Callable[[], torch.Tensor]]:
        from orchid.models.bert import OrchidBertForMaskedLM, preset
        from orchid.tasks.mlm import IGNORE, most_asked

        sizes = {"max_position_embeddings": length, "sparse_prediction": True, "hidden_dropout_prob": 0.0}
        config = preset(name, **sizes, **changes)
        built: Any = OrchidBertForMaskedLM(config)
        model = built.to(device, dtype).train()
        shape = (TOKENS[kind] // length, length)
        ids = torch.randint(1000, config.vocab_size, shape, device=device)
        labels = torch.where(torch.rand(shape, device=device) < HIDDEN, ids, IGNORE)
        most = most_asked(ids.numel(), HIDDEN)
        return model, lambda: model(input_ids=ids, labels=labels, most_predictions=most).loss

    return build


def _vit(mixer: str, blocks: int, patch: int, batch: int) -> Callable[..., Any]:
    def build(device: torch.device, dtype: torch.dtype) -> tuple[nn.Module, Callable[[], torch.Tensor]]:
        from orchid.models.vit import OrchidViT

        model = OrchidViT(32, patch, num_classes=10, mixer=mixer, blocks=blocks).to(device, dtype).train()
        images = torch.randn(batch, 3, 32, 32, device=device, dtype=dtype)
        labels = torch.randint(10, (batch,), device=device)
        return model, lambda: nn.functional.cross_entropy(model(images).float(), labels)

    return build


def _time_case(case: Case, device: torch.device, dtype: torch.dtype, *, compiled: bool) -> dict[str, Any]:
    torch.manual_seed(0)
    model, loss = case.build(device, dtype)
    if compiled:
        torch.compiler.reset()  # the model before must not count against this one's recompilations
        model.compile()

    def step() -> None:
        model.zero_grad(set_to_none=True)
        loss().backward()

    step_ms = milliseconds(step, device, graph=True)
    return {
        "family": case.family,
        "model": case.model,
        "length": case.length,
        "batch": case.batch,
        "dtype": str(dtype).removeprefix("torch."),
        "compiled": compiled,
        "parameters": sum(p.numel() for p in model.parameters()),
        "step_ms": round(step_ms, 4),
        "unit": case.unit,
        "per_second": round(1e3 * case.count / step_ms, 3),
        "peak_mib": peak_mib(step, device),
    }
