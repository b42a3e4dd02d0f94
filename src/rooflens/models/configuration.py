"""Configuration files of transformers: read within bounds, and refused with one sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rooflens.errors import ModelError, UnknownModel
from rooflens.opening import parsed_json, read_text

MOST_REPEATED = 4096
"""Layers, blocks or experts that are built: each is a module, and the largest models have some hundred."""
_REPEATED = re.compile(r"(?:layer|block|expert)s?$", re.IGNORECASE)
_DIVIDING = re.compile(r"(?:heads?|^(?:hidden|vocab|intermediate)_size|^head_dim|^n_embd)$")
"""Names of sizes that are divided, or divided by."""
_LONGEST = 300
"""Characters of a message of transformers."""


def configuration(source: str) -> Any:
    """Return the configuration of a family, or that of a ``.json`` file.

    Raises:
        UnknownModel: no such family with a causal language model, and no such file.
        ModelError: the file cannot be used.
    """
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as FAMILIES

    if not source.endswith(".json"):
        if source not in FAMILIES:
            raise UnknownModel(
                "transformers family", source, FAMILIES, " (name a family of causal language models, or a config.json)"
            )
        return _made(source, source, {})
    none = f"{source!r} is no transformers configuration: it"
    fields = parsed_json(read_text(Path(source), error=ModelError), none, ModelError)
    if not isinstance(fields, dict) or not isinstance(fields.get("model_type"), str):
        raise ModelError(f"{none} needs a JSON object with model_type")
    family = fields.pop("model_type")
    if family not in FAMILIES:
        raise UnknownModel("transformers family", family, FAMILIES, f" (in {source})")
    for name, value in _numbers(fields):
        if value > MOST_REPEATED and _REPEATED.search(name):
            raise ModelError(f"{source!r}: {name} is {value}; at most {MOST_REPEATED} are built")
        if value < 1 and _DIVIDING.search(name):
            raise ModelError(f"{source!r}: {name} is {value}; it has to be a whole number of at least 1")
    return _made(source, family, fields)


def _made(source: str, family: str, fields: dict[str, Any]) -> Any:
    from transformers import AutoConfig

    try:
        config = AutoConfig.for_model(family, **fields)
        config.get_text_config().vocab_size  # noqa: B018 - of which random tokens are made
    except Exception as error:
        message = " ".join(str(error).split())[:_LONGEST]
        raise ModelError(
            f"transformers refuses the configuration {source!r}: {type(error).__name__}: {message}"
        ) from error
    return config


def _numbers(fields: object) -> Iterator[tuple[str, float]]:
    """Yield the numbers of a configuration by name, with those of the configurations inside of it."""
    for name, value in fields.items() if isinstance(fields, dict) else ():
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield name, value
        yield from _numbers(value)
