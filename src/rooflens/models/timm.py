"""timm's models: ``timm:convnext_tiny``."""

from __future__ import annotations

import torch

from rooflens.errors import MissingDependency, UnknownModel
from rooflens.models.blueprint import Blueprint, Example
from rooflens.models.step import cross_entropy, sum_of_outputs
from rooflens.runs.options import Options

PREFIX = "timm:"


def blueprint(name: str, options: Options) -> Blueprint:
    """Return the blueprint of a timm model; its input size is that of the default configuration.

    Raises:
        MissingDependency: timm is not installed.
        UnknownModel: timm has no model of this name.
    """
    try:
        import timm
    except ImportError as error:
        raise MissingDependency("building a timm model", "timm", "vision") from error
    bare = name.removeprefix(PREFIX)
    if not timm.is_model(bare.split(".")[0]):
        raise UnknownModel("timm model", bare, timm.list_models(), " (timm.list_models() names them all)")
    config = timm.get_pretrained_cfg(bare.split(".")[0])
    channels, height, width = (3, 224, 224) if config is None else config.input_size
    if options.img_size is not None:
        height = width = options.img_size
    classes = 1000 if config is None else config.num_classes

    def created(**size: int) -> torch.nn.Module:
        module: torch.nn.Module = timm.create_model(bare, pretrained=False, **size)
        return module

    def build() -> torch.nn.Module:
        if options.img_size is not None:
            try:
                return created(img_size=options.img_size)
            except TypeError:  # convolutional models take any size and know no such argument
                pass
        return created()

    def example(batch: int | None) -> Example:
        n = 1 if batch is None else batch
        image = torch.randn(n, channels, height, width)
        return Example(args=(image,), targets=torch.randint(0, classes, (n,)) if classes else None)

    return Blueprint(
        name=name, images=True, build=build, example=example, loss=cross_entropy if classes else sum_of_outputs
    )
