"""Names that a shell completes: of models and of devices. Nothing heavy is imported, since each Tab waits for it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

import rooflens as rl
from rooflens.cli.command_group import say
from rooflens.cli.parameter_types import OptionType
from rooflens.known_models import known_models

_REGISTERED = re.compile(r"^@register_model\(\)\n(?:[@ )].*\n)*def (\w+)", re.MULTILINE)
"""How torchvision's own files mark a function that makes a model."""
_PREFIXES = ("timm:", "hf:")


class _Named(OptionType):
    """A word that is passed on as it is; a shell completes it with names and files."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return str(value)

    def names(self) -> Iterator[str]:
        """Yield what the word may be."""
        raise NotImplementedError

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        near = sorted({name for name in self.names() if name.lower().startswith(incomplete.lower())})
        return [*map(CompletionItem, near), *([] if near else [CompletionItem(incomplete, type="file")])]


class ModelName(_Named):
    """The name of a model, or a file that has one."""

    name = "model"

    def names(self) -> Iterator[str]:
        for model in known_models():
            yield model.name
            yield from model.hub
        yield from _PREFIXES
        yield from torchvision_names()


class DeviceName(_Named):
    """The name of a device, or a device file; one that fits several devices is the usual one of them."""

    name = "device"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return usual_name(str(value))

    def names(self) -> Iterator[str]:
        yield "measured"
        for device in rl.devices():
            yield device.name


def usual_name(word: str) -> str:
    """Return the name of the device that people mostly mean, and say so, if a word fits several; else the word."""
    if word.lower().endswith((".toml", ".json", ".txt", ".csv")) or word.lower() in ("measured", "all"):
        return word
    from rooflens.devices import as_meant

    meant, note = as_meant(word)
    told = click.get_current_context().meta.setdefault(f"{__name__}.told", set())
    if note and note not in told:
        told.add(note)
        say(note)
    return meant


def devices_option(name: str, help: str) -> Callable[[Any], Any]:
    """Return ``--device`` for several devices: repeated, or with commas as batches are."""

    def each(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> tuple[str, ...]:
        words = [part.strip() for word in given for part in word.split(",")]
        return given if len(words) == len(given) else tuple(map(usual_name, filter(None, words)))

    return click.option("--device", name, type=DeviceName(), multiple=True, callback=each, help=help)


def torchvision_names() -> Iterator[str]:
    """Yield the names of torchvision's models, read from its files: to import it takes seconds."""
    found = find_spec("torchvision")
    if found is None or found.origin is None:
        return
    folder = Path(found.origin).parent / "models"
    for file in (*folder.glob("*.py"), *folder.glob("segmentation/*.py")):
        yield from _REGISTERED.findall(file.read_text(encoding="utf-8"))
