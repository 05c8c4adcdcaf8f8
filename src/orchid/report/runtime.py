"""The table of a runtime benchmark."""

from typing import Any

from orchid.report.markdown import device, markdown_table


def runtime_table(benchmark: dict[str, Any]) -> str:
    """Return times and how many times faster than attention in the same run, by length and mixer."""
    rows = benchmark["rows"]
    attention = {row["length"]: row for row in rows if row["mixer"] == "attention"}
    lines = []
    for row in rows:
        base = attention.get(row["length"])
        if row["mixer"] == "attention" or base is None:
            continue
        cells = [f"{row['length']:,}", row["mixer"]]
        for key in ("forward_ms", "forward_backward_ms"):
            cells += [f"{row[key]:.1f}", f"{base[key]:.1f}", f"{base[key] / row[key]:.1f}x"]
        lines.append(cells)
    caption = (
        f"Whole layer, d_model {rows[0]['d_model']}, batch {rows[0]['batch']}, {rows[0]['dtype']}, on "
        f"{device(benchmark)}, milliseconds and how many times faster than attention in the same run:"
    )
    header = ["length", "mixer", "forward", "attention", "faster", "forward + backward", "attention", "faster"]
    return f"{caption}\n\n{markdown_table(header, lines)}"
