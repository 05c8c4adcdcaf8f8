"""The model card of an exported model: what it is, what it was trained on, how to use it."""

from typing import Any

TEMPLATE = """---
library_name: transformers
pipeline_tag: fill-mask
tags:
- orchid
- masked-language-modeling
---

# {title}

A masked language model of the Orchid-BERT family (package `orchid-torch`): mixer `{mixer}`, {layers} layers of width
{width}, sequences up to {length} tokens, {parameters:.1f} M parameters.

## Use

```python
import orchid.models.bert  # the Auto classes know Orchid-BERT from here on
from transformers import pipeline

fill = pipeline("fill-mask", model="PATH_OF_THIS_FOLDER")
fill("the capital of france is [MASK].")
```

## Training

| | |
| --- | --- |
{facts}

## Measured

| | |
| --- | --- |
{metrics}

## Limits

It knows what its training text says, with that text's errors and prejudices; it was not tuned to follow instructions or
to be truthful. Fine-tune and evaluate it on your own data before you rely on it. Say here which text it was trained on
and under which terms.
"""


def model_card(config: Any, result: dict[str, Any], parameters: int) -> str:
    """Return the card of a pre-training run: its model's configuration, its ``result.json``, the parameter count."""
    train, task = result["config"]["train"], result["config"]["task"]
    tokens = result["steps"] * train["batch_size"] * task["length"]  # a batch is that of all its pieces
    facts = {
        "recipe": result["recipe"],
        "steps, batch": f"{result['steps']:,} of {train['batch_size']:,} x {task['length']}",
        "tokens": f"{tokens:,}",
        "hidden tokens": f"{task['mask_rate']:.0%}",
        "learning rate": train["learning_rate"],
        "seed": result["seed"],
        "commit": result["commit"],
        "hardware": result["hardware"].get("gpu") or result["hardware"]["cpu"],
    }
    return TEMPLATE.format(
        title=result["recipe"].partition("/")[2],
        mixer=config.mixer,
        layers=config.num_hidden_layers,
        width=config.hidden_size,
        length=config.max_position_embeddings,
        parameters=parameters / 1e6,
        facts="\n".join(f"| {name} | {value} |" for name, value in facts.items()),
        metrics="\n".join(f"| {name} | {value:.4f} |" for name, value in result["metrics"].items()),
    )
