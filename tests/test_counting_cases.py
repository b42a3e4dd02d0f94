"""The model cases with known answers, see tests/cases."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from torch import nn
from torch.utils._pytree import tree_leaves

import rooflens as rl
from rooflens.results import RecordSet

FOLDER = Path(__file__).parent / "cases"
LAST_MODEL_CASE = 59
PATHS = sorted(path for path in FOLDER.glob("[0-9]*.py") if int(path.name[:2]) <= LAST_MODEL_CASE)

pytestmark = [
    pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel"),
    pytest.mark.filterwarnings("ignore:Using `torch.compile"),
]
TRAINED = [path for path in PATHS if re.search("backward_flops=|forward_flops_train=", path.read_text())]
each = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)


def load(path: Path) -> ModuleType:
    """The case as a module: its file name starts with a digit, so it cannot be imported by name."""
    spec = importlib.util.spec_from_file_location(f"case_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def estimate(case: ModuleType, mode: str) -> tuple[nn.Module, RecordSet]:
    model, args, kwargs = case.build()
    return model, rl.estimate(model, inputs=(args, kwargs), mode=mode, optimizer="none")


@each
def test_forward(path: Path) -> None:
    case = load(path)
    _, found = estimate(case, "inference")
    right = case.EXPECT
    total = found.total("forward")
    assert total.matmul_flops == right["forward_flops"]
    assert found.parameters == right["params"]
    assert found.coverage.uncounted == ()
    if "min_bytes" in right:
        assert total.bytes["dram"] == right["min_bytes"]


def test_names_of_layers_have_no_prefix() -> None:
    (path,) = (path for path in PATHS if path.stem == "38_compiled_module")
    case = load(path)
    _, found = estimate(case, "inference")
    assert not any(group.key.startswith(case.EXPECT["no_name_prefix"]) for group in found.by("module"))


@pytest.mark.parametrize("path", TRAINED, ids=lambda path: path.stem)
def test_training(path: Path) -> None:
    case = load(path)
    right: dict[str, Any] = case.EXPECT
    _, found = estimate(case, "train")
    assert found.total("forward").matmul_flops == right.get("forward_flops_train", right["forward_flops"])
    backward = found.total("backward")
    assert backward.matmul_flops is not None
    assert backward.matmul_flops == right.get("backward_flops", backward.matmul_flops)
    if "backward_flops_executed" in right:
        assert backward.matmul_flops + backward.recomputed_flops == right["backward_flops_executed"]


@each
def test_nothing_is_left_behind(path: Path) -> None:
    case = load(path)
    model, args, kwargs = case.build()
    state = {name: (value, value._version) for name, value in model.state_dict(keep_vars=True).items()}
    attributes = {name: set(vars(module)) for name, module in model.named_modules()}
    training = model.training
    first, second = (rl.estimate(model, inputs=(args, kwargs)) for _ in range(2))
    assert first.total().work == second.total().work
    assert model.training == training
    after = model.state_dict(keep_vars=True)
    assert after.keys() == state.keys()
    # The very same tensors, and nobody wrote into them.
    assert all(after[name] is value and value._version == version for name, (value, version) in state.items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert {name: set(vars(module)) for name, module in model.named_modules()} == attributes
    assert not any(m._forward_hooks or m._forward_pre_hooks or m._backward_hooks for m in model.modules())
    assert all(leaf.grad is None for leaf in tree_leaves((args, kwargs)) if getattr(leaf, "is_leaf", False))
