"""The tables of masked language modelling and GLUE, rendered from measured runs; what was not run is shown as such."""

from pathlib import Path
from typing import Any

from orchid.files import atomic
from orchid.report.markdown import Run, device, grouped, markdown_table, seeds, spread
from orchid.tasks.glue_data import GLUE, is_sample
from orchid.tasks.words import RECIPE

FIGURE = "mlm_loss.png"
WITHOUT = "no model, counted words"
NAMES = {"orchid": "Orchid-BERT", "bert": "BERT", "m2": "M2-BERT"}
COLOURS = {"orchid": "#c2185b", "bert": "#212121", "m2": "#1565c0"}
TEXTS = {"wiki": "WikiText-103", "books": "held-out books"}


def model_key(run: Run) -> str:
    """Return "orchid", "bert" or "m2" of a pre-training run."""
    return str(run["recipe"]).split("-")[1]


def outside_embeddings(run: Run) -> int:
    """Return how many parameters of a pre-trained model stand outside its embeddings and the tied head."""
    import torch

    from orchid.models.bert import OrchidBertForMaskedLM, preset

    model, length = run["config"]["model"], run["config"]["task"]["length"]
    with torch.device("meta"):
        built: Any = OrchidBertForMaskedLM(preset(model["preset"], **model["changes"], max_position_embeddings=length))
    words, positions = built.config.vocab_size, built.config.max_position_embeddings
    width, segments = built.config.hidden_size, built.config.type_vocab_size
    return sum(p.numel() for p in built.parameters()) - (words + positions + segments) * width - words


def tokens(run: Run, step: int) -> int:
    """Return the tokens seen up to a step."""
    config = run["config"]
    return int(step * config["train"]["batch_size"] * config["task"]["length"])


def mlm_table(runs: list[Run]) -> str:
    """Return the losses of every model after equal tokens."""
    lines = []
    for group in grouped(runs, lambda run: (run["recipe"], run["config"]["train"]["steps"])):
        first = group[0]
        sizes = first["config"]["model"]["changes"]
        lines.append(
            [
                f"{NAMES[model_key(first)]} ({sizes.get('hidden_size', '')} x {sizes.get('num_hidden_layers', '')})",
                f"{outside_embeddings(first) / 1e6:.1f} M",
                f"{tokens(first, first['config']['train']['steps']) / 1e6:.0f} M",
                *(spread([run["metrics"][f"valid/{name}/loss"] for run in group], "{:.3f}") for name in TEXTS),
                spread([100 * run["metrics"]["valid/accuracy"] for run in group]),
                seeds(group),
            ]
        )
    if not lines:
        return ""
    done = {model_key(run) for run in runs}
    lines += [[name, *["not run"] * 6] for key, name in NAMES.items() if key not in done]
    caption = (
        f"Equal recipe and equal tokens, length 128, 30 % hidden, on {device(runs[0])}; cross-entropy of the hidden "
        "tokens of texts not trained on."
    )
    header = ["model", "parameters outside embeddings", "tokens", *TEXTS.values(), "accuracy, %", "seeds"]
    return f"{caption}\n\n{markdown_table(header, lines)}"


def glue_results_table(runs: dict[str, list[Run]]) -> str:
    """Return the development scores of every task, by pre-trained model."""
    lines = []
    for start, found in runs.items():
        cells = []
        for name, spec in GLUE.items():
            own = [run for run in found if run["config"]["task"]["name"] == name]
            scores = [100 * run["metrics"][f"dev/{spec.metric}"] for run in own]
            cells.append(f"{spread(scores)} [{len(own)}]" if own else "not run")
        lines.append([WITHOUT if found[0]["recipe"] == RECIPE else start, *cells])
    if not lines:
        return ""
    caption = (
        "Development sets (MNLI: the matched one alone), the paper's rates, decay and epochs for the 77M model, number "
        "of seeds in brackets; all seeds of a model start from one pre-training run. Fine-tuned from the models above, "
        "which are far smaller than the paper's and were trained for far fewer steps. MNLI's training set is a sample "
        "of 9,000 rows, and RTE, STS-B and MRPC start from the model fine-tuned on it."
    )
    caption = "\n\n".join([caption, *_apart(runs)])
    header = ["model", *(f"{name} ({spec.metric})" for name, spec in GLUE.items())]
    return f"{caption}\n\n{markdown_table(header, lines)}"


def _apart(runs: dict[str, list[Run]]) -> list[str]:
    """Return what sets some rows of the GLUE table apart from others."""
    counted = [run["config"]["task"] for own in runs.values() for run in own if run["recipe"] == RECIPE]
    mean = [start for start, own in runs.items() if any(map(_by_the_mean, own))]
    found = [f"Classified by the mean over tokens where the paper takes the first: {', '.join(mean)}."] if mean else []
    if counted:
        trained = [task["name"] for task in counted if is_sample(Path(task["train"]))]
        scored = [task["name"] for task in counted if any(is_sample(Path(name)) for name in task["dev"])]
        parts = {"trained on": trained, "scored on": scored}
        samples = " and ".join(f"{what} {', '.join(names)}" for what, names in parts.items() if names)
        found.append(
            "The row without a model is a linear classifier of counted words: a score below it says nothing of a "
            "model's language."
        )
        found += [f"Samples take the place of its official files where it is {samples}."] * bool(samples)
    return found


def _by_the_mean(run: Run) -> bool:
    task = run["config"]["task"]
    return task.get("pooling") == "mean" and GLUE[task["name"]].base.pooling != "mean"


def bert_sections(runs: list[Run], glue: dict[str, list[Run]]) -> list[str]:
    """Return RESULTS.md's sections on language."""
    sections = []
    if table := mlm_table(runs):
        picture = f"![Loss over tokens, and over seconds](docs/assets/{FIGURE})"
        sections.append(f"## Masked language modelling\n\n{table}\n\n{picture}")
    if table := glue_results_table(glue):
        sections.append(f"## GLUE\n\n{table}")
    return sections


def draw_mlm(runs: list[Run], folder: Path) -> list[Path]:
    """Draw validation losses over tokens and over seconds into ``folder``; return the picture, if there is one."""
    if not runs:
        return []
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 7.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = {"million tokens": lambda run, entry: tokens(run, entry["step"]) / 1e6, "seconds": lambda _, e: e["seconds"]}
    for row, (label, place) in zip(figure.subplots(2, 2), axes.items(), strict=True):
        for panel, (key, title) in zip(row, TEXTS.items(), strict=True):
            for run in runs:
                entries = [entry for entry in run["history"] if f"valid/{key}/loss" in entry]
                losses, name = [entry[f"valid/{key}/loss"] for entry in entries], model_key(run)
                places = [place(run, entry) for entry in entries]
                panel.plot(places, losses, "o-", ms=3, color=COLOURS[name], label=NAMES[name])
            panel.set(title=f"masked-LM loss on {title}", xlabel=label)
            panel.grid(alpha=0.25)
            panel.legend(frameon=False)
    folder.mkdir(parents=True, exist_ok=True)
    with atomic(folder / FIGURE) as temporary:
        figure.savefig(temporary, dpi=110, format="png", metadata={"Software": None})
    return [folder / FIGURE]
