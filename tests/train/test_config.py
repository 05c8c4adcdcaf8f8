import json
from typing import Any

import pytest
import torch

from orchid.models.sequence import SequenceModel
from orchid.recipes import get_recipe, list_recipes
from orchid.train.config import Experiment, TrainConfig
from orchid.train.optim import learning_rate, param_groups
from orchid.train.overrides import apply_overrides, replace_settings


@pytest.fixture
def experiment() -> Experiment:
    return get_recipe("recall/demo-orchid").tiny()


def test_overrides(experiment: Experiment) -> None:
    changes = ["train.steps=7", "train.learning_rate=1", "task.signal=answer", "seed=3"]
    # Neither is right without the other: the whole is checked, not each step on the way.
    changes += ["train.accumulate=3", "train.batch_size=9"]
    changes += ["model.options.conditioning=cross", "model.options.residual_conv=False"]
    apply_overrides(experiment, changes)
    assert (experiment.train.steps, experiment.train.learning_rate) == (7, 1.0)
    assert experiment.model.options == {"conditioning": "cross", "residual_conv": False}
    assert (experiment.task.signal, experiment.seed) == ("answer", 3)


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("train.step=7", "'train' has no key 'step'; did you mean 'steps'"),
        ("tran.steps=7", "the configuration has no key 'tran'; did you mean 'train'"),
        ("train.steps=many", r"train.steps='many' must be of type int"),
        ("train.steps=1.5", r"train.steps='1.5' must be of type int"),
        ("train.steps=true", r"must be of type int"),
        ("train.steps=0", r"train.steps=0 must be at least 1"),
        ("train.schedule=cosin", r"train.schedule='cosin' is not one of"),
        ("train.accumulate=3", r"train.accumulate=3 must divide train.batch_size"),
        ("train.learning_rate=-1", r"must not be negative"),
        ("train.learning_rate=NaN", r"train.learning_rate=nan must be finite"),
        ("train.learning_rate=1e400", r"train.learning_rate=inf must be finite"),
        ("train.weight_decay=Infinity", r"train.weight_decay=inf must be finite"),
        ("train.clip=NaN", r"train.clip=nan must be finite"),
        ("train.beta2=5", r"train.beta2=5.0 must lie in \[0, 1\)"),
        ("train.beta2=NaN", r"train.beta2=nan must lie in \[0, 1\)"),
        ("train", "not of the form key=value"),
        ("train={}", "'train' cannot be set"),
        ("recipe=other", "'recipe' cannot be set"),
        ("paper={}", "'paper' cannot be set"),
        ("paper.foo=hello", "'paper.foo' cannot be set: it belongs to the recipe"),
        ("train.steps.x=1", "'train.steps' has no keys below it"),
    ],
)
def test_bad_overrides(experiment: Experiment, assignment: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        apply_overrides(experiment, [assignment])


@pytest.mark.parametrize("recipe", list_recipes())
def test_stored_settings_come_back(recipe: str) -> None:
    stored = get_recipe(recipe).tiny().to_dict()
    experiment = get_recipe(recipe).build()
    replace_settings(experiment, json.loads(json.dumps(stored)))
    assert experiment.to_dict() == stored


def test_settings_that_there_were_not_yet_have_their_defaults() -> None:
    """Whatever the recipe has made of them since."""
    stored = get_recipe("vision/cifar10-hyena-vit-p4").build().to_dict()
    del stored["model"]["options"], stored["task"]["mixup"], stored["train"]["compile"]
    experiment = get_recipe("vision/cifar10-hyena-vit-p4").build()
    assert experiment.model.options and experiment.task.mixup and experiment.train.compile
    replace_settings(experiment, stored)
    assert experiment.model.options == {} and experiment.task.mixup == 0.0 and not experiment.train.compile


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ({"model": 3}, "'model' is 3, where its keys and values should be"),
        ({"model": None}, "lacks the key 'model'"),
        ({"seed": "x"}, "seed='x' must be of type int"),
        ({"train": {"step": 3}}, "step"),
        ({"colour": 3}, "the configuration has no key 'colour'"),
    ],
)
def test_stored_settings_that_do_not_fit(experiment: Experiment, damage: dict[str, Any], message: str) -> None:
    stored = {key: value for key, value in (experiment.to_dict() | damage).items() if value is not None}
    with pytest.raises(ValueError, match=message):
        replace_settings(experiment, stored)


def test_learning_rate_schedules() -> None:
    config = TrainConfig(steps=110, batch_size=1, learning_rate=1.0, warmup=10)
    assert [learning_rate(config, s) for s in (0, 9, 10)] == [0.1, 1.0, 1.0]
    assert learning_rate(config, 60) == pytest.approx(0.5)
    config.schedule = "linear"
    assert learning_rate(config, 35) == pytest.approx(0.75)
    config.schedule = "constant"
    assert learning_rate(config, 109) == 1.0


def test_only_matrices_of_linear_layers_decay() -> None:
    model = SequenceModel(8, 16, depth=1, out_features=4, vocab_size=6, blocks=2, positions="learned")
    decayed, kept = param_groups(model, 0.1)
    names = {id(p): n for n, p in model.named_parameters()}
    assert decayed["weight_decay"] == 0.1 and kept["weight_decay"] == 0.0
    assert sorted(names[id(p)] for p in decayed["params"]) == [
        "blocks.0.mixer.in_proj.weight",
        "blocks.0.mixer.out_proj.weight",
        "blocks.0.mlp.down.weight",
        "blocks.0.mlp.up.weight",
        "head.weight",
    ]
    assert len(decayed["params"]) + len(kept["params"]) == len(list(model.parameters()))
    assert all(isinstance(p, torch.nn.Parameter) for p in kept["params"])


def test_a_tied_embedding_does_not_decay() -> None:
    """The head's matrix is the word embedding."""

    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.middle, self.head = torch.nn.Embedding(6, 4), torch.nn.Linear(4, 4), torch.nn.Linear(4, 6)
            self.head.weight = self.words.weight

    model = Tied()
    decayed, kept = param_groups(model, 0.1)
    assert [p is model.middle.weight for p in decayed["params"]] == [True]
    assert any(p is model.words.weight for p in kept["params"])
