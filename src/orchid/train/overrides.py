"""Settings from outside: ``--set a.b=c``, and those that a run has stored."""

import dataclasses
import json
import types
import typing
from typing import Any

from orchid.ops.checks import did_you_mean
from orchid.train.config import Experiment

# What a recipe is, and what the paper reports for it.
FIXED = ("recipe", "paper")
# What is found in the data, or in the model that is started from, and cannot be set.
FOUND = (
    "task.digest",
    "task.classes",
    "task.vocab_size",
    "task.pad_token_id",
    "task.vocabulary",
    "model.digest",
)


def apply_overrides(experiment: Experiment, assignments: list[str]) -> None:
    """Apply ``a.b=value``s, in place, then check the whole; what is wrong is an error that names what is right."""
    for assignment in assignments:
        _apply(experiment, assignment)
    experiment.train.check()


def _apply(experiment: Experiment, assignment: str) -> None:
    path, separator, text = assignment.partition("=")
    if not separator or not path:
        raise ValueError(f"--set {assignment!r} is not of the form key=value, such as train.steps=100")
    *parents, last = path.split(".")
    if path.partition(".")[0] in FIXED:
        raise ValueError(f"{path!r} cannot be set: it belongs to the recipe; choose another recipe")
    if path in FOUND:
        raise ValueError(f"{path!r} cannot be set: it is found in what the run reads")
    target: Any = experiment
    for depth, key in enumerate(parents):
        _known(target, key, ".".join(parents[:depth]))
        target = target[key] if isinstance(target, dict) else getattr(target, key)
    if isinstance(target, dict):
        target[last] = _literal(text)
        return
    _known(target, last, ".".join(parents))
    if dataclasses.is_dataclass(getattr(target, last)):
        raise ValueError(f"{path!r} cannot be set; set the keys below it, or choose another recipe")
    kind = typing.get_type_hints(type(target))[last]
    setattr(target, last, _coerce(path, text, kind))


def _known(target: Any, key: str, path: str) -> None:
    if isinstance(target, dict):
        names = list(target)
    elif dataclasses.is_dataclass(target):
        names = [f.name for f in dataclasses.fields(target)]
    else:
        raise ValueError(f"{path!r} has no keys below it")
    if key not in names:
        where = f"{path!r}" if path else "the configuration"
        raise ValueError(f"{where} has no key {key!r}{did_you_mean(key, names)} (it has {', '.join(names)})")


def _literal(text: str) -> Any:
    words = {"True": True, "False": False, "None": None}
    if text in words:
        return words[text]
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _coerce(path: str, text: str, kind: Any) -> Any:
    value = _literal(text)
    for option in _options(kind):
        if option is str:
            return text
        if _fits(value, option):
            return float(value) if option is float else value
    raise ValueError(f"{path}={text!r} must be of type {_wanted(kind)}")


def _options(kind: Any) -> tuple[Any, ...]:
    return typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)


def _wanted(kind: Any) -> str:
    return " or ".join(getattr(option, "__name__", str(option)) for option in _options(kind))


def _fits(value: Any, option: Any) -> bool:
    """Return whether a value is of a type; whole numbers are of type float too, True and False are no numbers."""
    if option is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    origin = typing.get_origin(option) or option
    return isinstance(value, origin) and isinstance(value, bool) == (origin is bool)


def _default(known: "dataclasses.Field[Any]", where: str, *, whole: bool) -> Any:
    if not whole and known.default is not dataclasses.MISSING:
        return known.default
    if not whole and known.default_factory is not dataclasses.MISSING:
        return known.default_factory()
    raise ValueError(f"{where} lacks the key {known.name!r}")


def replace_settings(target: Any, stored: Any, path: str = "") -> None:
    """Set every field of a configuration from stored plain data, in place; what does not fit is an error.

    A setting that there was not when the data were stored has its default, which is how it was then, whatever the
    recipe has made of it since.
    """
    where = f"{path!r}" if path else "the configuration"
    if not isinstance(stored, dict):
        raise ValueError(f"{where} is {stored!r}, where its keys and values should be")
    kinds = typing.get_type_hints(type(target))
    for known in dataclasses.fields(target):
        if known.name not in stored:
            setattr(target, known.name, _default(known, where, whole=not path))
    for name, value in stored.items():
        _known(target, name, path)
        current, own = getattr(target, name), f"{path}.{name}" if path else name
        if dataclasses.is_dataclass(current):
            replace_settings(current, value, own)
        elif any(_fits(value, option) for option in _options(kinds[name])):
            setattr(target, name, value)
        else:
            raise ValueError(f"{own}={value!r} must be of type {_wanted(kinds[name])}")
