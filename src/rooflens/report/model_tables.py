"""Tables of well-known models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rooflens.known_models import KnownModel
from rooflens.report.table import COUNT, Column, Table, build

_COLUMNS = (
    Column("name", "name", align="left"),
    Column("parameters", "parameters", COUNT),
    Column("family", "family", align="left"),
    Column("hub", "on the hub", read="hub.0", align="left", show="room"),
    Column("source", "source", align="left", show="files"),
)
_NOTES = (
    "Parameters are as published, tied ones once. Other names of the hub find a model too; case does not matter.",
    "Other models: hf:FAMILY, hf:config.json; names of torchvision; timm:NAME; path/file.py:function.",
)


def model_table(listed: Sequence[KnownModel]) -> Table:
    """Return a row for each model."""
    return build(f"{len(listed)} models", _COLUMNS, listed, notes=_NOTES)


def described_model(model: KnownModel) -> dict[str, Any]:
    """Return everything about a model, for a program."""
    return {
        "name": model.name,
        "hub": list(model.hub),
        "parameters": model.parameters,
        "source": model.source,
        "config": dict(model.config),
    }
