"""Finds a well-known model by its name, or by its name on the hub. Case and separators never matter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from rooflens.errors import UnknownModel
from rooflens.opening import parsed_toml


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownModel:
    """A model whose configuration is public.

    Attributes:
        name: its name here.
        hub: its names on the hub; the configuration is that of the first.
        parameters: as published, tied ones once.
        config: the configuration of transformers: its `model_type`, and what differs from the defaults of that type.
    """

    name: str
    hub: tuple[str, ...]
    parameters: int
    config: Mapping[str, Any]

    @property
    def family(self) -> str:
        return str(self.config["model_type"])

    @property
    def source(self) -> str:
        return f"config.json of {self.hub[0]} on huggingface.co"

    def has(self, word: str) -> bool:
        """True if one of the names has a word in it."""
        return any(word.casefold() in name.casefold() for name in (self.name, *self.hub))


@cache
def known_models() -> tuple[KnownModel, ...]:
    """Every model of the catalogue, family by family."""
    entries = (files("rooflens.known_models") / "catalogue").iterdir()
    texts = {entry.name: entry.read_text(encoding="utf-8") for entry in entries if entry.name.endswith(".toml")}
    return tuple(_read(name, table) for file in sorted(texts) for name, table in parsed_toml(texts[file], file).items())


def known_model(name: str) -> KnownModel | None:
    """Return the model of a name, None if there is none: ``llama-3.1-8b``, ``meta-llama/Llama-3.1-8B``.

    >>> known_model("hf:meta-llama/Llama-3.1-8B").name
    'llama-3.1-8b'
    """
    spelt = name.removeprefix("hf:")
    owner, _, bare = spelt.rpartition("/")
    model = _spellings().get(_compact(spelt)) or _spellings().get(_compact(bare))
    return model if model is not None and owner.casefold() in ("", *map(_owner, model.hub)) else None


def unknown_model(name: str, *, kind: str = "model", others: Iterable[str] = (), remedy: str = "") -> UnknownModel:
    """Return the error for a name that no model has; near names are listed, `others` among them."""
    on_hub = (hub.lower() for model in known_models() for hub in model.hub if "/" in name)
    return UnknownModel(kind, name, {*others, *on_hub, *(model.name for model in known_models())}, remedy)


def _owner(hub: str) -> str:
    return hub.rpartition("/")[0].casefold()


def _read(name: str, table: Mapping[str, Any]) -> KnownModel:
    config = table["config"] | dict.fromkeys(table.get("none", ()))
    return KnownModel(name=name, hub=tuple(table["hub"]), parameters=table["parameters"], config=config)


@cache
def _spellings() -> Mapping[str, KnownModel]:
    """Models by name, by name on the hub, and by that without its owner."""
    return {
        _compact(spelling): model
        for model in known_models()
        for hub in model.hub
        for spelling in (model.name, hub, hub.rpartition("/")[2])
    }


def _compact(text: str) -> str:
    """A name without case and separators."""
    return "".join(filter(str.isalnum, text.casefold()))
