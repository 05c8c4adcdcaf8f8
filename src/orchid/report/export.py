"""A pre-training run as a Hugging Face folder: weights, configuration, tokenizer, model card."""

from pathlib import Path
from typing import Any

from orchid.files import atomic
from orchid.models.bert.card import model_card
from orchid.recipes import get_recipe
from orchid.report.runs import load_run
from orchid.tasks.glue import GlueConfig
from orchid.tasks.mlm import MaskedLMConfig, MaskedLMTask
from orchid.tasks.tokenizer import check_tokenizer_of, fit_tokenizer, load_tokenizer
from orchid.train.engine import Engine
from orchid.train.run_folder import RunFolder


def export_run(run: Path, out: Path, tokenizer: Path | None) -> Engine:
    """Write a pre-training run's model into ``out`` for from_pretrained; what does not fit is told before."""
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
        check_tokenizer_of(engine.task.data()[0], chosen, tokenizer)
        fit_tokenizer(chosen, tokenizer, model.config)
    result = folder.read_result()
    parameters = sum(p.numel() for p in model.parameters())
    card = None if result is None else model_card(model.config, result, parameters)
    model.config.sparse_prediction = False  # for pre-training: others expect logits of every token
    model.save_pretrained(out)
    if chosen is not None:
        chosen.save_pretrained(out)
    if card is not None:  # a run that has not ended has nothing to tell yet
        with atomic(out / "README.md") as temporary:
            temporary.write_text(card, encoding="utf-8")
    return engine
