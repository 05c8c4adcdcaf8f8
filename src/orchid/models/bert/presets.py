"""The sizes of the paper's tables: Orchid-BERT, BERT and M2-BERT, base and large."""

from typing import Any

from orchid.models.bert.configuration import OrchidBertConfig
from orchid.ops.checks import check_choice

ORCHID = {
    "mixer": "orchid",
    "mlp": "gated",
    "mlp_blocks": 4,
    "mixer_options": {"residual_conv": True, "filter_width": 128},
}
BERT = {"mixer": "attention", "mlp": "plain", "mlp_blocks": 1}
M2 = {"mixer": "monarch", "mlp": "gated", "mlp_blocks": 4}
PRESETS: dict[str, dict[str, Any]] = {
    "orchid-bert-base": ORCHID,
    "orchid-bert-large": {**ORCHID, "hidden_size": 1536},
    "bert-base": BERT,
    "bert-large": {**BERT, "hidden_size": 1024, "num_hidden_layers": 24},
    "m2-bert-base": M2,
    "m2-bert-large": {**M2, "hidden_size": 1536},
}


def preset(name: str, **changes: Any) -> OrchidBertConfig:
    """Return the configuration called ``name``, with changes; another mixer has options of its own."""
    settings = dict(PRESETS[check_choice("name", name, PRESETS)])
    if changes.get("mixer", settings["mixer"]) != settings["mixer"]:
        settings.pop("mixer_options", None)
    return OrchidBertConfig(**{**settings, **changes})
