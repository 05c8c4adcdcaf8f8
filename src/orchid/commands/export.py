"""A pre-training run as a Hugging Face folder: weights, configuration, tokenizer, model card."""

import json
import shutil
from pathlib import Path
from typing import Any

from orchid.commands.runs import load_run
from orchid.files import TEMPORARY, is_temporary, remove_strays
from orchid.models.bert.card import model_card
from orchid.models.bert.configuration import OrchidBertConfig
from orchid.recipes import get_recipe
from orchid.tasks.glue import GlueConfig
from orchid.tasks.mlm import MaskedLMConfig, MaskedLMTask
from orchid.tasks.tokenizer import check_tokenizer_of, fit_tokenizer, load_tokenizer
from orchid.train.engine import Engine
from orchid.train.run_folder import RunFolder

# What an export may consist of.
WRITTEN = {
    "README.md",
    "added_tokens.json",
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
}


def export_run(run: Path, out: Path, tokenizer: Path | None) -> Engine:
    """Write a pre-training run's model as the folder ``out`` for from_pretrained; what does not fit is told before.

    An earlier export is replaced; a folder with anything else in it is an error.
    """
    check_out(out)
    folder = RunFolder(run)
    task = get_recipe(folder.read_config()["recipe"]).build().task
    if isinstance(task, GlueConfig):
        own = run / "model"
        where = f"its model is in {own} already" if own.is_dir() else "`orchid glue` writes the models it fine-tunes"
        raise ValueError(f"{run} is a fine-tuning run: {where}; export takes a pre-training run")
    if not isinstance(task, MaskedLMConfig):
        raise ValueError(f"the model of {run} is not a Hugging Face model")
    engine = load_run(run, cpu=True)
    model: Any = engine.model
    chosen = None
    if tokenizer is not None:
        assert isinstance(engine.task, MaskedLMTask)
        chosen = load_tokenizer(tokenizer)
        check_tokenizer_of(engine.task, chosen, tokenizer)
        fit_tokenizer(chosen, tokenizer, model.config)
    result = folder.read_result()
    parameters = sum(p.numel() for p in model.parameters())
    card = None if result is None else model_card(model.config, result, parameters)
    model.config.sparse_prediction = False  # for pre-training: others expect logits of every token
    out.mkdir(parents=True, exist_ok=True)
    remove_strays(out)
    whole = out / f".export{TEMPORARY}"
    whole.mkdir()
    try:
        model.save_pretrained(whole)
        if chosen is not None:
            chosen.save_pretrained(whole)
        if card is not None:  # a run that has not ended has nothing to tell yet
            (whole / "README.md").write_text(card, encoding="utf-8")
        # file by file: the folder itself may be linked, mounted, or where the user stands
        for stale in WRITTEN.difference(path.name for path in whole.iterdir()):
            (out / stale).unlink(missing_ok=True)
        for path in sorted(whole.iterdir(), reverse=True):  # the weights before the configuration
            path.replace(out / path.name)
    finally:
        shutil.rmtree(whole, ignore_errors=True)
    return engine


def check_out(out: Path) -> None:
    """Accept a folder that exists only if it is empty, or an earlier export and nothing else."""
    found = [] if not out.is_dir() else sorted(path.name for path in out.iterdir() if not is_temporary(path))
    if not found:
        return
    strays = [name for name in found if name not in WRITTEN]
    if not strays and "config.json" in found:
        try:
            if json.loads((out / "config.json").read_text()).get("model_type") == OrchidBertConfig.model_type:
                return
        except (ValueError, AttributeError):
            pass
    raise ValueError(
        f"--out {out} holds something else than an earlier export, such as {(strays or found)[0]}; name a new folder"
    )
