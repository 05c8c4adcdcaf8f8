"""The runtime benchmark: wrong entries are not timed, what cannot run is said, rows are what others read."""

import io
import json
from pathlib import Path

import pytest
import torch
from rich.console import Console

from orchid.bench.entries import Entry, FusedAttention, list_entries
from orchid.bench.runtime import Wrong, best_attention, check_entry, run_benchmark
from orchid.mixers.registry import create_mixer, list_mixers
from orchid.report.readme import KERNELS, speed_sentence
from orchid.report.runtime import before_of, mixer_table, runtime_table, runtime_title, skipped_list, torch_table
from orchid.report.runtime_figure import PAPER, PAPER_LENGTHS, draw_runtime, drawn_of

CPU = torch.device("cpu")


def bench(**settings: object) -> dict:
    defaults = {
        "lengths": [16],
        "d_model": 8,
        "batch": 2,
        "mixers": ["attention", "orchid"],
        "json_file": None,
        "cpu": True,
    }
    return run_benchmark(Console(quiet=True), **{**defaults, **settings})


def test_rows(tmp_path: Path) -> None:
    report = bench(json_file=tmp_path / "a" / "rows.json")
    assert json.loads((tmp_path / "a" / "rows.json").read_text())["rows"] == report["rows"]
    assert [(row["mixer"], row["timed"]) for row in report["rows"]] == [
        ("attention", "layer"),
        ("orchid", "layer"),
        ("orchid", "mixer"),
    ]
    assert all(row["forward_ms"] > 0 and row["batch"] == 2 and row["timing"] == "clock" for row in report["rows"])


def test_every_entry_is_told_when_it_is_done() -> None:
    console = Console(file=io.StringIO(), width=200)
    report = run_benchmark(console, lengths=[16], d_model=8, batch=2, mixers=["orchid"], json_file=None, cpu=True)
    ms = report["rows"][0]["forward_ms"]
    assert f"2 x 16 orchid (torch, float32): {ms:.3f} ms forward" in console.file.getvalue()  # type: ignore[attr-defined]


def test_the_torch_backend_of_before_is_beside_the_kernels() -> None:
    def row(backend: str, ms: float) -> dict:
        case = {"batch": 1, "length": 64, "d_model": 8, "timed": "layer", "dtype": "bfloat16"}
        return {"mixer": "orchid", "backend": backend, **case, "forward_ms": ms, "forward_backward_ms": 3 * ms}

    gpu = {"gpu": "G", "commit": "0123456789"}
    now = {"hardware": gpu, "rows": [row("torch", 4.0), row("triton", 2.0)]}
    before = {"hardware": gpu, "rows": [row("torch", 8.0)]}
    on_cpu = {"hardware": {"device": "cpu"}, "rows": [row("torch", 1.0)]}
    assert before_of([on_cpu, now, before]) is before and before_of([on_cpu, now]) is None
    assert torch_table(now, None) == ""
    table = torch_table(now, before)
    assert "commit 0123456" in table and "| 1 x 64 | 2.000 | 2.0x | 4.0x | 6.000 | 2.0x | 4.0x |" in table


def test_every_mixer_is_right() -> None:
    entries = list_entries(CPU, None)
    assert [entry.mixer for entry in entries] == list_mixers()
    for entry in entries:
        check_entry(entry, entry.build(8, 16), torch.randn(1, 16, 8))


class TestWrongEntries:
    class Wrong(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = super().forward(x)
            return y if x.dtype == torch.float64 else y * 1.01

    def test_are_refused(self) -> None:
        entry = Entry("linear", "torch", torch.float32, lambda d, n: self.Wrong(d, d))
        with pytest.raises(Wrong, match=r"its output is off by 1\.0e-02: a wrong result is not timed"):
            check_entry(entry, entry.build(8, 16), torch.randn(1, 16, 8))

    def test_are_listed_and_not_timed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        wrong = Entry("linear", "torch", torch.float32, lambda d, n: self.Wrong(d, d))
        monkeypatch.setattr("orchid.bench.runtime.list_entries", lambda device, mixers: [wrong])
        report = bench()
        assert report["rows"] == [] and "off by" in report["skipped"][0]["reason"]
        assert "linear (torch): its output is off" in skipped_list(report)


@pytest.mark.parametrize("raised", [AssertionError(), NotImplementedError("\n no such width \n")])
def test_whatever_a_peer_raises_is_said(monkeypatch: pytest.MonkeyPatch, raised: Exception) -> None:
    def build(d_model: int, length: int) -> torch.nn.Module:
        raise raised

    peer = Entry("peer", "package", torch.float32, build, checkable=False)
    monkeypatch.setattr("orchid.bench.runtime.list_entries", lambda device, mixers: [peer])
    (case,) = bench()["skipped"]
    assert case["reason"] in ("AssertionError", "no such width")


def test_attention_backends_are_attention() -> None:
    layer = FusedAttention(8, 16, torch.nn.attention.SDPBackend.MATH)
    plain = create_mixer("attention", 8, 16)
    plain.load_state_dict(layer.layer.state_dict())
    x = torch.randn(2, 16, 8)
    assert torch.allclose(layer(x), plain(x), atol=1e-6)


def row(mixer: str, backend: str, milliseconds: float, **changes: object) -> dict:
    base = {"mixer": mixer, "backend": backend, "dtype": "bfloat16", "batch": 1, "length": 2048, "d_model": 768}
    times = {"forward_ms": milliseconds, "forward_backward_ms": 3 * milliseconds, "peak_mib": 10.0}
    return {**base, "timed": "layer", "timing": "graph", **times, **changes}


class TestReport:
    rows = (row("attention", "flash", 2.0), row("attention", "cudnn", 1.0), row("orchid", "triton", 0.25))

    def test_ratios_are_to_the_fastest_attention(self) -> None:
        assert best_attention(self.rows, self.rows[2], "forward_ms") == 1.0
        assert best_attention(self.rows, {**self.rows[2], "length": 4096}, "forward_ms") is None
        table = runtime_table({"rows": self.rows, "hardware": {"gpu": "a GPU"}})
        line = table.splitlines()[-1]
        times = "0.250 | 1.000 | 4.0x | 0.750 | 3.000 | 4.0x | 10 | 10"
        assert line == f"| 1 x 2,048 | orchid (triton, bfloat16) | {times} |"
        alone = runtime_table({"rows": self.rows, "hardware": {"gpu": "a GPU"}, "remarks": ["A remark."]}, KERNELS)
        assert f"| 1 x 2,048 | {times} |\n\nA remark." in alone
        none = runtime_table({"rows": self.rows, "hardware": {"gpu": "a GPU"}}, KERNELS, [(1, 4096)])
        assert none.splitlines()[-1].startswith("| --- ")

    def test_a_sentence_of_the_longest_and_the_least(self) -> None:
        short = [row("attention", "flash", 1.0, length=64), row("orchid", "triton", 2.0, length=64, batch=1)]
        sentence = speed_sentence({"rows": [*self.rows, *short], "hardware": {"gpu": "a GPU"}})
        assert "At 2,048 tokens" in sentence and "**1/4 of the time**" in sentence
        assert "1 x 64, forward: 0.5 times attention's speed" in sentence
        assert speed_sentence({"rows": [row("orchid", "triton", 1.0)], "hardware": {"gpu": "a GPU"}}) == ""

    def test_titles_tell_benchmarks_apart(self) -> None:
        peer = row("mamba-2", "mamba_ssm", 1.0)
        assert runtime_title({"rows": self.rows, "hardware": {"gpu": "G"}}) == "Runtime of a layer on G"
        assert runtime_title({"rows": [*self.rows, peer], "hardware": {"gpu": "G"}}).endswith("on G, beside mamba-2")

    def test_the_mixer_alone_is_beside_the_torch_backend(self) -> None:
        alone = [row("orchid", backend, ms, timed="mixer") for backend, ms in (("torch", 8.0), ("triton", 0.5))]
        line = mixer_table({"rows": [*self.rows, *alone]}).splitlines()[-1]
        assert line == "| 1 x 2,048 | 0.500 | 8.000 | 16.0x | 1.500 | 24.0 | 16.0x |"
        assert mixer_table({"rows": self.rows}) == ""

    def test_figure(self, tmp_path: Path) -> None:
        benchmark = {"rows": self.rows, "hardware": {"gpu": "a GPU"}}
        longer = {**benchmark, "rows": [*self.rows, row("orchid", "triton", 0.5, length=4096)]}
        cpu = {"rows": longer["rows"], "hardware": {}}
        assert drawn_of([cpu]) is None and drawn_of([benchmark, longer, cpu, benchmark]) is longer
        batches = {**longer, "rows": [*longer["rows"], row("orchid", "triton", 1.0, batch=2)]}
        assert drawn_of([longer, batches]) is drawn_of([batches, longer]) is batches
        (picture,) = draw_runtime([benchmark], tmp_path)
        assert picture.stat().st_size > 10_000

    def test_papers_points(self) -> None:
        """Milliseconds as plotted; unfused attention ends where its memory did."""
        assert PAPER["forward"]["Orchid"][-1] == 52.989 and PAPER["backward"]["Orchid"][-1] == 150.543
        assert all(len(times) in (4, len(PAPER_LENGTHS)) for panel in PAPER.values() for times in panel.values())
