"""Views and calls of modules, by module and phase: what the host does beside launching operations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tests.counting import Calls
from tests.onnx_graphs import constant, counted, node
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import rooflens as rl
from rooflens.records import HostCalls, Record
from rooflens.results import RecordSet

Counts = dict[str, tuple[int, int | None]]


def of(estimate: RecordSet, phase: str) -> Counts:
    """(views, module calls) by path."""
    host_calls = whole(estimate).host_calls
    assert host_calls is not None
    return {each.path: (each.views, each.module_calls) for each in host_calls if each.phase == phase}


def whole(estimate: RecordSet) -> Record:
    (record,) = (record for record in estimate if record.scope == "model")
    return record


def inference(module: nn.Module, *args: Any) -> Counts:
    return of(rl.estimate(module, inputs=args), "forward")


def trained(module: nn.Module, *args: Any) -> RecordSet:
    return rl.estimate(module, inputs=args, mode="train", optimizer="none")


def test_each_module_is_called_once_and_a_linear_layer_transposes_its_weight() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    assert inference(model, torch.randn(5, 3)) == {"": (0, 1), "0": (1, 1), "1": (0, 1), "2": (1, 1)}


def test_views_belong_to_the_module_that_makes_them() -> None:
    class Split(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            first, second = x.view(2, 3, 4).chunk(2, dim=-1)  # 2: view, split
            return (first.transpose(0, 1) + second.permute(1, 0, 2)).unsqueeze(0)[..., 0]  # 4, the last two one each

    # flatten(1) of (1, 3, 2) is one view; relu and the sum are operations.
    model = Calls(lambda self, x: F.relu(self.split(x)).flatten(1), split=Split())
    assert inference(model, torch.randn(2, 12)) == {"": (1, 1), "split": (6, 1)}


def test_what_copies_and_what_only_allocates_is_no_view() -> None:
    def function(_: nn.Module, x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        out.copy_(x.t().contiguous())  # t is a view, contiguous copies
        return out.squeeze_().t_()  # views in place

    assert inference(Calls(function), torch.randn(3, 3)) == {"": (3, 1)}


def test_a_shared_module_has_the_calls_under_its_first_name() -> None:
    shared = nn.ReLU()
    model = Calls(lambda self, x: self.b(self.a(x)) + F.relu(x), a=shared, b=shared)
    assert inference(model, torch.randn(3)) == {"": (0, 1), "a": (0, 2)}


def test_a_forward_that_is_called_directly_is_no_module_call() -> None:
    model = Calls(lambda self, x: self.inner.forward(x), inner=nn.Linear(3, 3))
    assert inference(model, torch.randn(2, 3)) == {"": (1, 1)}


def test_backward_has_views_and_calls_no_module() -> None:
    # The sum of the outputs is the loss; its gradient is expanded, which belongs to the loss. Of the layer: addmm was
    # given the weight's transpose, so the product for its gradient takes the transposed gradient (t), and the result is
    # transposed (t) and transposed back to the weight's shape (t); the bias's gradient loses the dimension that was
    # summed (view); each of the two gradients is stored detached (2).
    estimate = trained(nn.Linear(3, 4), torch.randn(5, 3))
    assert of(estimate, "forward")[""] == (1, 1)
    backward = of(estimate, "backward")
    assert backward["(loss)"] == (1, 0)
    assert backward[""] == (6, 0)


def test_recomputation_calls_the_modules_again_in_backward() -> None:
    model = Calls(lambda self, x: checkpoint(self.layer, x, use_reentrant=False), layer=nn.Linear(3, 4))
    estimate = trained(model, torch.randn(5, 3))
    assert of(estimate, "forward")["layer"] == (1, 1)
    plain = trained(Calls(lambda self, x: self.layer(x), layer=nn.Linear(3, 4)), torch.randn(5, 3))
    (views, _), (plain_views, plain_calls) = of(estimate, "backward")["layer"], of(plain, "backward")["layer"]
    assert of(estimate, "backward")["layer"][1] == 1
    assert plain_calls == 0
    assert views >= plain_views + 1  # the weight is transposed again


def test_a_graph_has_views_and_no_known_module_calls(tmp_path: Path) -> None:
    nodes = [
        node("Reshape", "x split", "a", name="/head/Reshape"),  # a view
        node("Transpose", "a", "b", name="/head/Transpose", perm=[0, 2, 1, 3]),  # a view
        node("Relu", "b", "c", name="/head/Relu"),
        node("Reshape", "c join", "d", name="/head/Reshape_1"),  # moves the elements: a copy
        node("Split", "d", "e f", name="/Split", axis=2, num_outputs=2),  # one view operation of two results
        node("Add", "e f", "y", name="/Add"),
        node("Identity", "y", "z", name="/Identity"),  # nothing at all
        node("Shape", "z", "s", name="/Shape"),  # a question
    ]
    held = [constant("split", [2, 5, 4, 8]), constant("join", [2, 5, 32])]
    found = counted(tmp_path, nodes, {"x": (2, 5, 32)}, "z s", held)
    assert [record.name for record in found if record.scope == "op"] == ["relu", "clone", "add"]
    assert of(found, "forward") == {"head": (2, None), "": (1, None)}


def test_files_keep_them(tmp_path: Path) -> None:
    estimate = trained(nn.Sequential(nn.Linear(3, 4), nn.ReLU()), torch.randn(5, 3))
    assert whole(rl.read(estimate.save(tmp_path / "a.jsonl"))).host_calls == whole(estimate).host_calls
    older = rl.read(Path(__file__).parent / "data" / "records" / "format_2.jsonl")
    assert whole(older).host_calls is None
    assert HostCalls(path="0", phase="forward", views=1, module_calls=1) in (whole(estimate).host_calls or ())
