"""Count every classification model of torchvision and compare with what is known of it.

    python benchmarks/torchvision_models.py [NAME ...]

Known are the parameters that torchvision states for its weights, and that backward is twice forward, less the
gradients of what needs none. Prints a line for each model, and ends with 1 if anything differs. `make test` does the
same with a few models that take little time.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import torchvision

import rooflens as rl

AUXILIARY = {
    "vit_h_14": -(37 * 37 - 16 * 16) * 1280,
    "googlenet": 512 * 128 + 528 * 128 + 2 * (2 * 128) + 2 * (2048 * 1024 + 1024) + 2 * (1024 * 1000 + 1000),
}
"""Parameters that the published weights do not have, or have besides.

GoogLeNet: two auxiliary heads of a 1x1 convolution to 128 with batch norm (from 512 and 528 channels), 2048 to 1024 and
1024 to 1000. ViT-H/14: the first weights are for images of 518 (37 x 37 patches), rooflens builds it at 224 (16 x 16):
fewer embeddings of 1280.
"""


def models() -> list[str]:
    """Names of the classification models."""
    names: list[str] = torchvision.models.list_models(module=torchvision.models)
    return names


def published_parameters(name: str) -> int:
    """The number of parameters that torchvision states for its first weights of a model."""
    parameters: int = next(iter(torchvision.models.get_model_weights(name))).meta["num_params"]
    return parameters


def differences(name: str) -> Iterator[str]:
    """What an estimate of a training step says other than what is known."""
    records = rl.estimate(name, batch=2, mode="train")
    coverage = records.coverage
    if coverage.uncounted or not coverage.counted == coverage.operations > 20:
        yield f"counted {coverage.counted} of {coverage.operations}, not {coverage.uncounted}"
    parameters = published_parameters(name) + AUXILIARY.get(name, 0)
    if records.parameters != parameters:
        yield f"{records.parameters} parameters, published {parameters}"
    # What needs no gradient: the image, which enters the first layer, and the table of relative positions, which enters
    # the first layer of Swin v2's bias networks.
    forward, backward = (records.total(phase).matmul_flops for phase in ("forward", "backward"))
    products = [(r.path, r.work.matmul_flops) for r in records.where(phase="forward") if r.work is not None]
    image = next(flops for _, flops in products if flops)
    tables = sum(flops or 0 for path, flops in products if path.endswith("cpb_mlp.0"))
    if not forward or not image or backward != 2 * forward - image - tables:
        yield f"backward {backward}, forward {forward}, image {image}, tables {tables}"


def main() -> int:
    wrong = 0
    for name in sys.argv[1:] or models():
        found = list(differences(name))
        wrong += bool(found)
        print(f"{name}: {'; '.join(found) or 'as known'}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
