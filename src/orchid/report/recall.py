"""The tables of associative recall, rendered from measured runs; what was not run is shown as such."""

import statistics
from typing import Any

from orchid.recipes import list_recipes
from orchid.recipes.recall import ABLATIONS, FIGURE_ROWS, LONG_ROWS, MODELS, VOCABULARIES
from orchid.recipes.recall_paper import LENGTHS, paper_accuracy
from orchid.report.markdown import (
    PASS,
    Run,
    device,
    grouped,
    markdown_table,
    model_name,
    percent,
    seeds,
    spread,
    steps_to,
)

FIGURES = {"curves": "recall_curves.png", "grid": "recall_grid.png", "ablations": "recall_ablations.png"}


def recipe_name(row: str, vocab_size: int, length: int) -> str:
    """Return the recipe of a table's cell."""
    return f"recall/v{vocab_size}-{row}" if length == 128 else f"recall/v{vocab_size}-l{length}-{row}"


def cell(runs: list[Run], row: str, vocab_size: int, length: int) -> list[Run]:
    """Return the runs of a table's cell."""
    return [run for run in runs if run["recipe"] == recipe_name(row, vocab_size, length)]


def row_name(row: str) -> str:
    """Return how a row is shown: its mixer and options."""
    model = MODELS[row]
    return model.mixer + "".join(f", {key}={value}" for key, value in model.options.items())


def recall_sections(runs: list[Run], tuning: list[dict[str, Any]]) -> list[str]:
    """Return RESULTS.md's sections on recall."""
    parts = [
        ("Associative recall over the vocabulary (table icl2)", vocabulary_table(runs), "curves"),
        ("Associative recall over the length (table icl)", length_table(runs), None),
        ("Associative recall over length and vocabulary (figure synthetics1)", grid_table(runs), "grid"),
        ("Ablations", ablation_table(runs), "ablations"),
        ("What the ablations say about the paper's conclusions", ablation_verdicts(runs), None),
        ("Other training signals, and the paper's recipe", signal_table(runs), None),
        ("Learning rates", tuning_table(tuning), None),
    ]
    sections = []
    for title, text, figure in parts:
        if text:
            picture = f"\n\n![{title}](docs/assets/{FIGURES[figure]})" if figure else ""
            sections.append(f"## {title}\n\n{text}{picture}")
    demo = [run for run in runs if run["recipe"].startswith("recall/demo-")]
    return [*sections, *(f"## The demo\n\n{text}" for text in [demo_table(demo)] if text)]


def vocabulary_table(runs: list[Run]) -> str:
    """Return accuracies by model and vocabulary at length 128, ours beside the paper's."""
    mine = [run for row in MODELS for size in VOCABULARIES for run in cell(runs, row, size, 128)]
    if not mine:
        return ""
    rows = []
    for row in MODELS:
        cells = [row_name(row)]
        for size in VOCABULARIES:
            same = cell(runs, row, size, 128)
            steps = spread([steps_to(run, PASS) for run in same], "{:,.0f}") if same else ""
            cells += [percent(same), steps, _paper(row, size, 128)]
        same = [run for size in VOCABULARIES for run in cell(runs, row, size, 128)]
        rows.append([*cells, seeds(same), f"{same[0]['parameters']:,}" if same else "", _minutes(same)])
    guesses = [_guess(mine, size) for size in VOCABULARIES]
    rows.append(["best guess", *(text for guess in guesses for text in (guess, "", "")), "", "", ""])
    header = ["model"]
    for size in VOCABULARIES:
        header += [f"vocabulary {size}", f"steps to {PASS:.0%}", "paper"]
    first = mine[0]
    chance = ", ".join(f"{100 / (size // 2 - 1):.1f}" for size in VOCABULARIES)
    caption = (
        f"Length 128, training signal `{first['config']['task']['signal']}`, {first['steps']:,} steps of "
        f"{first['config']['train']['batch_size']} fresh examples for every model, right answers in %, mean over the "
        f"seeds and the range, on {device(first)}. Chance is {chance} %; the best guess knows which values occur and "
        f"how often, but not which key each has. {_shared(mine)}"
    )
    return f"{caption}\n\n{markdown_table([*header, 'seeds', 'parameters', 'minutes'], rows)}\n\n{NOTES}"


def vocabulary_row_table(runs: list[Run], vocab_size: int) -> str:
    """Return the models' accuracies at one vocabulary, length 128, and the steps to them, ours beside the paper's."""
    rows, mine = [], [run for row in MODELS for run in cell(runs, row, vocab_size, 128)]
    for row in MODELS:
        if same := cell(runs, row, vocab_size, 128):
            steps = spread([steps_to(run, PASS) for run in same], "{:,.0f}")
            told = [percent(same), steps, _paper(row, vocab_size, 128)]
            rows.append([row_name(row), f"{same[0]['parameters']:,}", *told, seeds(same)])
    if not rows:
        return ""
    rows.append(["best guess without keys", "", _guess(mine, vocab_size), "", "", ""])
    first = mine[0]
    caption = (
        f"Vocabulary {vocab_size}, length 128, {first['steps']:,} steps of {first['config']['train']['batch_size']} "
        f"fresh examples for every model, on {device(first)}. The paper's baselines come from other work, with causal "
        "models and an unstated training signal."
    )
    header = ["model", "parameters", "right answers, %", f"steps to {PASS:.0%}", "paper", "seeds"]
    return f"{caption}\n\n{markdown_table(header, rows)}"


NOTES = (
    "The paper does not state its training signal, and its baselines come from other work with causal models. "
    "Baselines here have their published initialisation and are bidirectional; `ckconv, gated=True` stands between the "
    "gates of Hyena, as in the literature's comparison. `attention` has learned positions and nothing else that shows "
    "a token its neighbour; `attention, short_conv=3` has the short convolution that Orchid, Hyena and Mamba have."
)


def length_table(runs: list[Run], rows: tuple[str, ...] = LONG_ROWS, sizes: tuple[int, ...] = (20,)) -> str:
    """Return accuracies by model and length, ours beside the paper's."""
    lengths = LENGTHS if sizes == (20,) else LENGTHS[:-1]
    mine = [run for row in rows for size in sizes for length in lengths for run in cell(runs, row, size, length)]
    if not any(run["config"]["task"]["length"] > 128 for run in mine):
        return ""
    lines = []
    for row in rows:
        for size in sizes:
            label = row_name(row) if len(sizes) == 1 else f"{row_name(row)}, vocabulary {size}"
            cells = [label]
            for length in lengths:
                exists = recipe_name(row, size, length) in list_recipes()
                cells += [percent(cell(runs, row, size, length)) if exists else "-", _paper(row, size, length)]
            lines.append(cells)
    header = ["model", *(text for length in lengths for text in (f"{length:,}", "paper"))]
    long = [run for run in mine if run["config"]["task"]["length"] > 128]
    batches = sorted({(r["config"]["task"]["length"], r["config"]["train"]["batch_size"]) for r in long})
    steps = ", ".join(f"{batch} at {length:,}" for length, batch in batches)
    caption = (
        f"Vocabulary {', '.join(map(str, sizes))}, training signal `{long[0]['config']['task']['signal']}`; "
        f"beyond length 128: {long[0]['steps']:,} steps, sequences a step {steps}. Right answers in %, seeds "
        f"{seeds(long)}, on {device(long[0])}. Attention runs in bfloat16 beyond length 128, where fused kernels exist "
        "for it, everything else in float32."
    )
    return f"{caption}\n\n{markdown_table(header, lines)}"


def grid_table(runs: list[Run]) -> str:
    """Return the numbers of figure synthetics1."""
    return length_table(runs, FIGURE_ROWS, VOCABULARIES)


def ablation_runs(runs: list[Run], name: str) -> list[Run]:
    """Return the runs of an ablation."""
    return [run for run in runs if run["recipe"] == f"recall/ablation-{name}"]


def accuracy_at(run: Run, step: int) -> float:
    """Return the accuracy of the evaluation at a step."""
    return next(float(entry["test/accuracy"]) for entry in run["history"] if entry["step"] == step)


def mean_error(run: Run) -> float:
    """Return the mean error over all evaluations of a run: the area above its learning curve."""
    return statistics.mean(1 - float(entry["test/accuracy"]) for entry in run["history"])


def ablation_table(runs: list[Run]) -> str:
    """Return the ablations, fastest first."""
    mine = [run for name in ABLATIONS for run in ablation_runs(runs, name)]
    if not mine:
        return ""
    marks = [mine[0]["steps"] // 8, mine[0]["steps"] // 4, mine[0]["steps"] // 2, mine[0]["steps"]]
    rows = []
    for name, options in ABLATIONS.items():
        same = ablation_runs(runs, name)
        label = ", ".join(f"{key}={value}" for key, value in options.items()) or "default (phase, dft, ortho, 1 + 1)"
        if not same:
            rows.append((float("inf"), [label, *["not run"] * (len(marks) + 2), ""]))
            continue
        errors = [100 * mean_error(run) for run in same]
        cells = [label, spread(errors), spread([steps_to(run, PASS) for run in same], "{:,.0f}")]
        cells += [spread([100 * accuracy_at(run, step) for run in same]) for step in marks]
        rows.append((statistics.mean(errors), [*cells, seeds(same)]))
    rows.sort(key=lambda row: row[0])
    task, train = mine[0]["config"]["task"], mine[0]["config"]["train"]
    missing = sum(len(ablation_runs(runs, name)) < len({run["seed"] for run in mine}) for name in ABLATIONS)
    gaps = " Rows with fewer seeds than the others lack a run that diverged or was not run." if missing else ""
    caption = (
        f"Orchid with one change at a time: vocabulary {task['vocab_size']}, length {task['length']}, training signal "
        f"`{task['signal']}`, {mine[0]['steps']:,} steps of {train['batch_size']}, learning rate "
        f"{train['learning_rate']:g} for all, on {device(mine[0])}. Sorted by the mean error over all evaluations "
        f"(the area above the learning curve, in %): the smaller, the faster it learns.{gaps}"
    )
    header = ["options", "mean error", f"steps to {PASS:.0%}", *(f"after {step:,}" for step in marks), "seeds"]
    return f"{caption}\n\n{markdown_table(header, [cells for _, cells in rows])}"


# The paper's conclusions: what should learn faster (appendix, model architecture ablation), and against what.
CONCLUSIONS = [
    ("The DCT learns faster than the DFT (Type I, orthonormal)", "phase-dct", ["phase"]),
    ("The DCT learns faster than the DFT (Type II, orthonormal)", "cross-dct", ["cross"]),
    ("Orthonormal transforms learn faster (Type I, DFT)", "phase", ["phase-backward"]),
    ("Orthonormal transforms learn faster (Type I, DCT)", "phase-dct", ["phase-dct-backward"]),
    ("Orthonormal transforms learn faster (Type II, DFT)", "cross", ["cross-backward"]),
    ("Space + frequency is the best placement", "phase", ["placement-two-space", "placement-two-frequency"]),
    (
        "No nonlinearity (identity) is best in Type II",
        "cross",
        ["cross-tanh", "cross-sigmoid", "cross-softsign", "cross-softshrink"],
    ),
    ("Type I learns faster than Type II (DFT)", "phase", ["cross"]),
    ("A data-dependent kernel learns faster than a static one", "phase", ["static"]),
]


def ablation_verdicts(runs: list[Run]) -> str:
    """Return each conclusion of the paper with what was measured: it holds, it does not, or seeds overlap."""
    rows = []
    for text, better, others in CONCLUSIONS:
        first = [100 * mean_error(run) for run in ablation_runs(runs, better)]
        rest = {name: [100 * mean_error(run) for run in ablation_runs(runs, name)] for name in others}
        if not first or not all(rest.values()):
            rows.append([text, "not run", ""])
            continue
        if all(max(first) < min(errors) for errors in rest.values()):
            verdict = "holds"
        elif any(min(first) > max(errors) for errors in rest.values()):
            verdict = "does not hold"
        else:
            verdict = "undecided: the seeds overlap"
        numbers = [f"{better} {spread(first)}", *(f"{name} {spread(errors)}" for name, errors in rest.items())]
        rows.append([text, verdict, "; ".join(numbers)])
    if all(row[1] == "not run" for row in rows):
        return ""
    caption = (
        'Mean error over the learning curve in %, mean and range over the seeds; "holds" or not where the ranges do '
        "not overlap."
    )
    return f"{caption}\n\n{markdown_table(['the paper says', 'here', 'mean error'], rows)}"


def signal_table(runs: list[Run]) -> str:
    """Return the runs that train on the answer alone, and those of the paper's own recipe."""
    rows = []
    for name, recipe in list_recipes().items():
        if name.startswith(("recall/answer-", "recall/paper-")):
            same = [run for run in runs if run["recipe"] == name]
            experiment = recipe.build()
            task, train = experiment.task, experiment.train
            examples = f"{task.train_size:,}" if task.train_size else "fresh"
            settings = f"{train.steps:,} of {train.batch_size}, rate {train.learning_rate:g}"
            paper = experiment.paper.get("test/accuracy")
            shown = "-" if paper is None else f"{100 * paper:.1f}"
            best = [100 * max(entry["test/accuracy"] for entry in run["history"]) for run in same]
            cells = [f"`{name}`", str(task.vocab_size), task.signal, examples, settings, percent(same)]
            rows.append([*cells, spread(best) if best else "", shown, seeds(same), _minutes(same)])
    if not any(run["recipe"].startswith(("recall/answer-", "recall/paper-")) for run in runs):
        return ""
    caption = (
        "`answer` trains the query's value alone, `masked` a share of all values. `paper-*` is the paper's recipe to "
        "the letter: orthonormal DCT, Type I, AdamW at 5e-4 after 1,000 warm-up steps, weight decay 0.1, three + three "
        "Conv1d at vocabulary 40; batch and set size, which it does not state, are those of the code its protocol "
        "comes from. `best` is the highest of all evaluations on the test set: what stopping early could at most have "
        "given."
    )
    header = [
        "recipe",
        "vocabulary",
        "signal",
        "examples",
        "steps",
        "right answers (%)",
        "best",
        "paper",
        "seeds",
        "minutes",
    ]
    return f"{caption}\n\n{markdown_table(header, rows)}"


def tuning_table(tuning: list[dict[str, Any]]) -> str:
    """Return the trials that chose the learning rates."""
    if not tuning:
        return ""
    rates = sorted({float(rate) for choice in tuning for rate in choice["trials"]})
    rows = []
    for choice in tuning:
        losses = [choice["trials"].get(f"{rate:g}", {}).get("loss") for rate in rates]
        cells = ["not run" if loss is None else f"{loss:.4f}" for loss in losses]
        rows.append([f"`{choice['recipe']}`", *cells, f"{choice['chosen']:g}"])
    first = tuning[0]
    caption = (
        f"Validation loss after {first['steps']:,} steps (a quarter) with seed {first['seed']}, which no result uses. "
        "The rate chosen serves every vocabulary and length of its row."
    )
    return f"{caption}\n\n{markdown_table(['recipe', *(f'{rate:g}' for rate in rates), 'chosen'], rows)}"


def fused_table(fused: list[Run], runs: list[Run]) -> str:
    """Return runs through the fused kernels beside the same recipes on the torch backend, seed by seed."""
    rows = []
    for run in fused:
        twin = next((other for other in runs if (other["recipe"], other["seed"]) == (run["recipe"], run["seed"])), None)
        cells = [f"`{run['recipe']}`", str(run["seed"])]
        for one in (run, twin):
            cells += ["-", "-"] if one is None else _score_and_steps(one)
        rows.append(cells)
    caption = f"Right answers in %, and steps to {PASS:.0%}, on {device(fused[0])}."
    header = ["recipe", "seed", "kernels", "steps", "torch", "steps"]
    return f"{caption}\n\n{markdown_table(header, rows)}"


def _score_and_steps(run: Run) -> list[str]:
    return [f"{100 * run['metrics']['test/accuracy']:.1f}", spread([steps_to(run, PASS)], "{:,.0f}")]


def demo_table(runs: list[Run]) -> str:
    """Return the demo's runs; a row is one model over its seeds."""
    if not runs:
        return ""
    first, rows = runs[0], []
    for same in grouped(runs, lambda run: run["recipe"]):
        scores = [100 * run["metrics"]["test/accuracy"] for run in same]
        passed = spread([steps_to(run, PASS) for run in same], "{:.0f}")
        seconds = statistics.mean(run["seconds"] for run in same)
        cells = [model_name(same[0]), spread(scores), passed, seeds(same)]
        rows.append((statistics.mean(scores), [*cells, f"{same[0]['parameters']:,}", f"{seconds:.0f}"]))
    rows.sort(key=lambda row: row[0], reverse=True)
    guess = statistics.mean(100 * run["metrics"]["test/best_guess"] for run in runs)
    task = first["config"]["task"]
    caption = (
        f"Associative recall, vocabulary {task['vocab_size']}, length {task['length']}, training signal "
        f"`{task['signal']}`, {first['steps']} steps of {first['config']['train']['batch_size']}, on {device(first)}; "
        "mean over the seeds, and the range:"
    )
    header = ["model", "right answers (%)", f"steps to {PASS:.0%}", "seeds", "parameters", "seconds"]
    guesser = ["best guess that only knows which values occur", f"{guess:.1f}", "", "", "", ""]
    return f"{caption}\n\n{markdown_table(header, [*(cells for _, cells in rows), guesser])}"


def _paper(row: str, vocab_size: int, length: int) -> str:
    value = paper_accuracy(row.removesuffix("-conv"), vocab_size, length).get("test/accuracy")
    return "-" if value is None else f"{100 * value:.1f}"


def _guess(runs: list[Run], vocab_size: int) -> str:
    same = [run for run in runs if run["config"]["task"]["vocab_size"] == vocab_size]
    return f"{100 * statistics.mean(run['metrics']['test/best_guess'] for run in same):.1f}" if same else ""


def _minutes(runs: list[Run]) -> str:
    return f"{statistics.mean(run['seconds'] for run in runs) / 60:.1f}" if runs else ""


def _shared(runs: list[Run]) -> str:
    jobs = max(run["hardware"].get("jobs", 1) for run in runs)
    return f"Minutes are of runs that shared the GPU with others, up to {jobs} at a time." if jobs > 1 else ""
