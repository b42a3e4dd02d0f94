"""What cannot be estimated is told in a sentence that says what to do, and what needs values gets them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tests.counting import Calls
from torch import Tensor, nn

import rooflens as rl
from rooflens.errors import ModelError

LIBRARY = torch.library.Library("refusals", "DEF")
LIBRARY.define("everywhere(Tensor x) -> Tensor")
LIBRARY.impl("everywhere", lambda x: x.cumsum(0), "CPU")
LIBRARY.define("elsewhere(Tensor x) -> Tensor")
LIBRARY.impl("elsewhere", lambda x: x, "CUDA")


@torch.library.custom_op("refusals::typed", mutates_args=())
def typed(x: Tensor) -> Tensor:
    return x.cumsum(0)


def after_a_layer(operator: Callable[[Tensor], Tensor]) -> nn.Module:
    return Calls(lambda s, x: operator(s.layer(x)), layer=nn.Linear(4, 8, bias=False))


@pytest.mark.parametrize("name", ["everywhere", "typed"])
def test_an_operator_that_tells_no_shapes_is_run(name: str) -> None:
    """3 rows meet a 4 x 8 matrix; what the operator does is unknown, and is named."""
    done = rl.estimate(after_a_layer(getattr(torch.ops.refusals, name)), inputs=torch.ones(3, 4))
    assert done.total().matmul_flops == 2 * 3 * 32
    assert done.coverage.uncounted == (name,)
    (note,) = {note for record in done for note in record.notes if "register_fake" in note}
    assert f"{name} does not tell the shapes" in note.replace(".default", "")
    assert note.endswith("the step was run on the CPU with values")


def test_one_that_does_not_run_on_a_cpu_says_what_is_missing() -> None:
    with pytest.raises(ModelError, match=r"Could not run 'refusals::elsewhere'") as told:
        rl.estimate(after_a_layer(torch.ops.refusals.elsewhere), inputs=torch.ones(3, 4))
    assert "this was on the CPU with values, since" in str(told.value)
    assert "elsewhere.default does not tell the shapes of its results (torch.library.register_fake" in str(told.value)


def test_what_fails_with_values_says_that_values_were_needed() -> None:
    def work(s: nn.Module, x: Tensor) -> Tensor:
        if x.sum() > 0:
            raise ValueError("too large")
        return x

    with pytest.raises(ModelError, match=r"ValueError: too large; this was on the CPU with values, since .*depends on"):
        rl.estimate(Calls(work), inputs=torch.ones(3))


class Yields(nn.Module):
    def forward(self, x: Tensor) -> Iterator[Tensor]:
        yield x @ x


@pytest.mark.parametrize("make", [Yields, lambda: Calls(lambda s, x: map(torch.sum, [x @ x]))])
@pytest.mark.parametrize("mode", ["inference", "train"])
def test_a_generator_has_run_nothing(make: Callable[[], nn.Module], mode: str) -> None:
    with pytest.raises(ModelError, match=r"gives an iterator .*, which runs nothing before it is read: return a list"):
        rl.estimate(make(), inputs=torch.ones(3, 3, requires_grad=True), mode=mode)


EMBEDDINGS: dict[str, Callable[[], nn.Module]] = {
    "embedding": lambda: nn.Sequential(nn.Embedding(50, 8, sparse=True), nn.Flatten(), nn.Linear(16, 4)),
    "bag": lambda: nn.Sequential(nn.EmbeddingBag(50, 8, mode="sum", sparse=True), nn.Linear(8, 4)),
}


@pytest.mark.parametrize("name", EMBEDDINGS)
@pytest.mark.parametrize("options", [{"optimizer": "sgd"}, {"optimizer": "adam"}, {"dtype": "amp-fp16"}])
def test_gradients_that_are_sparse_name_the_parameter_and_a_way(name: str, options: dict[str, Any]) -> None:
    ids = torch.zeros(5, 2, dtype=torch.long)
    with pytest.raises(ModelError, match=r"gradient of '0.weight' is sparse, which (sgd with weight decay|adam) does"):
        rl.estimate(EMBEDDINGS[name](), inputs=ids, mode="train", **options)
    done = rl.estimate(EMBEDDINGS[name](), inputs=ids, mode="train", optimizer="none")
    width = 16 if name == "embedding" else 8
    assert done.total("backward").macs == 2 * 5 * width * 4


@pytest.mark.parametrize("nested", [True, False])
def test_padding_that_torch_may_leave_out_has_a_note(nested: bool) -> None:
    """Two layers; 3 sequences of 6 tokens, of which 6, 4 and 2 are no padding. All 18 rows are counted."""
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    module = nn.TransformerEncoder(layer, 2, enable_nested_tensor=nested)
    padding = torch.arange(6)[None] >= torch.tensor([6, 4, 2])[:, None]
    given = ((torch.ones(3, 6, 16),), {"src_key_padding_mask": padding})
    done = rl.estimate(module, inputs=given)
    # Per row four projections of 16 x 16 and two of 16 x 32; per pair of 3 x 36 two products of 16.
    assert done.total().macs == 2 * (18 * (4 * 256 + 2 * 512) + 3 * 36 * 32)
    told = [note for record in done for note in record.notes if "may leave out padding" in note]
    assert bool(told) is nested
    assert not [n for r in rl.estimate(module, inputs=given, mode="train") for n in r.notes if "padding" in n]
