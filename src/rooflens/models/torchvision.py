"""torchvision's classification and segmentation models by name."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from rooflens.errors import InvalidValue, MissingDependency
from rooflens.models.blueprint import Blueprint, Example
from rooflens.models.step import cross_entropy
from rooflens.runs.options import Options

CLASSIFICATION, SEGMENTATION = "torchvision.models", "torchvision.models.segmentation"


def names() -> list[str]:
    """Names of all models; none without torchvision."""
    try:
        from torchvision.models import list_models, segmentation
    except ImportError:
        return []
    import torchvision

    return [*list_models(module=torchvision.models), *list_models(module=segmentation)]


def blueprint(name: str, options: Options) -> Blueprint | None:
    """Return the blueprint of a torchvision model, or None if the name is unknown.

    Raises:
        InvalidValue: torchvision has the model, but for another task whose inputs are not plain images.
    """
    try:
        from torchvision.models import get_model_builder, list_models
    except ImportError as error:
        if error.name != "torchvision":
            raise
        return None
    if name not in list_models():
        return None
    builder = get_model_builder(name)
    package = builder.__module__.rpartition(".")[0]
    if package not in (CLASSIFICATION, SEGMENTATION):
        raise InvalidValue(
            f"{name!r} is a model of {package}, whose inputs are no plain images; write a file with a function that"
            " returns (model, inputs) and give it as path/file.py:function"
        )
    size = options.img_size or _own_size(name)
    arguments: dict[str, Any] = {"weights": None}
    if package == SEGMENTATION:
        arguments["weights_backbone"] = None
    arguments |= _size_arguments(builder, size)
    classes = _classes(name, package)
    shape = (size, size) if package == SEGMENTATION else ()

    def example(batch: int | None) -> Example:
        n = 1 if batch is None else batch
        return Example(args=(torch.randn(n, 3, size, size),), targets=torch.randint(0, classes, (n, *shape)))

    return Blueprint(name=name, images=True, build=lambda: builder(**arguments), example=example, loss=cross_entropy)


def require() -> None:
    """Raise MissingDependency if torchvision is not installed."""
    try:
        import torchvision  # noqa: F401
    except ImportError as error:
        raise MissingDependency("building a torchvision model", "torchvision", "vision") from error


def _weights(name: str) -> list[Any]:
    from torchvision.models import get_model_weights

    return list(get_model_weights(name))


def _own_size(name: str) -> int:
    """Return height and width of the images for which the model was first published.

    Weights carry the crop with which they are evaluated. The oldest set (V1) has the original size; models without one
    take the smallest crop.
    """
    sizes = {}
    for weights in _weights(name):
        preset = weights.transforms()
        crop = getattr(preset, "crop_size", None) or getattr(preset, "resize_size", None)
        if crop:
            sizes[weights.name] = crop[0]
    first = next((size for key, size in sizes.items() if key.endswith("IMAGENET1K_V1")), None)
    return first or min(sizes.values(), default=224)


def _size_arguments(builder: Any, size: int) -> dict[str, Any]:
    """Return the arguments that set the image size, of models whose layers depend on it."""
    module = inspect.getmodule(builder)
    source = module.__name__.rpartition(".")[2] if module is not None else ""
    if source == "vision_transformer":
        return {"image_size": size}
    if source == "maxvit":
        return {"input_size": (size, size)}
    return {}


def _classes(name: str, package: str) -> int:
    """Return how many classes the weights were trained for."""
    categories = [len(w.meta["categories"]) for w in _weights(name) if w.meta.get("categories")]
    return categories[0] if categories else (21 if package == SEGMENTATION else 1000)
