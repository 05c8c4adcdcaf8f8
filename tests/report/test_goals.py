"""Goals beside what was measured: the least favourable case counts, a miss is shown, what was not measured is not."""

from orchid.report.goals import goals_table


def row(mixer: str, backend: str, batch: int, length: int, ms: float, timed: str = "layer") -> dict[str, object]:
    times = {"forward_ms": ms, "forward_backward_ms": 3 * ms, "peak_mib": 100.0 * ms, "timed": timed}
    case = {"mixer": mixer, "backend": backend, "dtype": "bfloat16", "batch": batch, "length": length, "d_model": 8}
    return case | times


def cells(table: str, goal: str) -> list[str]:
    (line,) = [line for line in table.splitlines() if line.startswith(f"| {goal}")]
    return [cell.strip() for cell in line.split("|")[2:-1]]


def test_the_least_favourable_case_counts() -> None:
    rows = [row("orchid", "triton", 1, length, 1.0) for length in (2048, 4096, 131072)]
    rows += [row("attention", "flash", 1, length, ms) for length, ms in ((2048, 0.5), (4096, 1.5), (131072, 20.0))]
    rows += [row("orchid", "torch", 1, length, ms) for length, ms in ((2048, 9.0), (4096, 2.5), (131072, 4.0))]
    rows += [row("orchid", "triton", 16, 8192, 0.95, "mixer"), row("orchid", "triton", 1024, 128, 0.5, "mixer")]
    table = goals_table({"rows": rows}, [])
    assert cells(table, "1 x 131,072, forward |") == ["at most 4 ms", "1.00 ms", "yes"]
    assert cells(table, "1 x 131,072, forward, times") == ["at least 28x", "20.00x", "**missed**"]
    assert cells(table, "1 x 131,072, share") == ["at most 0.5", "0.25", "yes"]
    assert cells(table, "batch 1 from 4,096 on") == ["at least 1x", "1.50x", "yes"]
    assert cells(table, "from 1,024 on") == ["at least 3x", "2.50x", "**missed**"]
    assert cells(table, "the mixer alone") == ["at most 0.9 ms", "0.95 ms", "**missed**"]
    assert "64 x 2,048" not in table and "rows of 128" not in table


def test_models_beside_those_with_attention() -> None:
    speeds = {"Orchid-ViT": 30.0, "ViT": 20.0, "Orchid-ViT, 2-D": 5.0}
    models = [{"family": "vit", "model": m, "length": 1024, "per_second": s} for m, s in speeds.items()]
    table = goals_table(None, [{"models": models}])
    assert cells(table, "Orchid-ViT at 1,024 tokens") == ["at least 2x", "1.50x", "**missed**"]
    assert table.count("Orchid-ViT at") == 1
    assert goals_table(None, []) == ""
