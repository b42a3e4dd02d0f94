"""Configurations of transformers: files are read within bounds, and refused with one sentence."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from math import inf, nan
from pathlib import Path
from typing import Any

from rooflens.errors import ModelError, UnknownModel, class_of, cut
from rooflens.known_models import known_model, unknown_model
from rooflens.models.heads import families
from rooflens.opening import parsed_json, read_text

PREFIX = "hf:"
NAMES = " (a family, one of 'rooflens models', or the config.json of any other model)"
MOST_REPEATED = 4096
"""Layers, blocks or experts that are built: each is a module, and the largest models have some hundred."""
_REPEATED = re.compile(r"(?:layer|block|expert)s?$", re.IGNORECASE)
_DIVIDING = re.compile(r"(?:heads?|^(?:hidden|vocab|intermediate)_size|^head_dim|^n_embd)$")
"""Names of sizes that are divided, or divided by."""
_IN_A_FOLDER = "config.json"
"""How transformers names it beside the weights."""
_NO_JSON = {"Infinity": inf, "-Infinity": -inf, "NaN": nan}
_LONGEST = 300
"""Characters of a message of transformers."""


def configuration(name: str) -> tuple[str, Any]:
    """Return a name and its configuration: of ``hf:FAMILY``, ``hf:config.json``, or of a well-known model.

    A well-known model has several names, and one is returned.

    Raises:
        UnknownModel: no such family or model, and no such file.
        ModelError: the file cannot be used.
    """
    source = name.removeprefix(PREFIX)
    if is_file(source):
        return name, _of_file(_file(source))
    if name.startswith(PREFIX) and source in families():
        return name, _made(source, source, {})
    known = known_model(source)
    if known is None:
        raise unknown_model(source, kind="transformers family", others=families(), remedy=NAMES)
    return known.name, _made(source, known.family, {k: v for k, v in known.config.items() if k != "model_type"})


def is_file(source: str) -> bool:
    """True for a configuration in a file, or for the path of a folder that holds one."""
    return source.endswith(".json") or _file(source) != source


def _file(source: str) -> str:
    inside = Path(source) / _IN_A_FOLDER
    return str(inside) if "/" in source and os.path.isfile(inside) else source


def _of_file(source: str) -> Any:
    none = f"{source!r} is no transformers configuration: it"
    fields = _floats(parsed_json(read_text(Path(source), error=ModelError), none, ModelError))
    if not isinstance(fields, dict) or not isinstance(fields.get("model_type"), str):
        raise ModelError(f"{none} needs a JSON object with model_type")
    family = fields.pop("model_type")
    if family not in families():
        raise UnknownModel("transformers family", family, families(), f" (in {source})")
    usual: set[tuple[str, float]] | None = None
    for name, value in _numbers(fields):
        if value > MOST_REPEATED and _REPEATED.search(name):
            raise ModelError(f"{source!r}: {name} is {value}; at most {MOST_REPEATED} are built")
        if value < 1 and _DIVIDING.search(name):
            usual = set(_numbers(_made(source, family, {}).to_dict())) if usual is None else usual
            if (name, value) in usual:  # of a family that makes another size of it
                continue
            raise ModelError(f"{source!r}: {name} is {value}; it has to be a whole number of at least 1")
    return _made(source, family, fields)


def _made(source: str, family: str, fields: dict[str, Any]) -> Any:
    from transformers import AutoConfig

    try:
        config = AutoConfig.for_model(family, **fields)
    except Exception as error:
        message = cut(" ".join(str(error).split()), _LONGEST)
        raise ModelError(f"transformers refuses the configuration {source!r}: {class_of(error)}: {message}") from error
    return config


def _floats(fields: Any) -> Any:
    """Return what JSON holds, with the numbers that JSON has no word for, as transformers writes them."""
    if isinstance(fields, dict):
        word = fields.get("__float__") if len(fields) == 1 else None
        return _NO_JSON[word] if word in _NO_JSON else {name: _floats(value) for name, value in fields.items()}
    return [_floats(value) for value in fields] if isinstance(fields, list) else fields


def _numbers(fields: object) -> Iterator[tuple[str, float]]:
    """Yield the numbers of a configuration by name, with those of the configurations inside of it."""
    for name, value in fields.items() if isinstance(fields, dict) else ():
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield name, value
        yield from _numbers(value)
