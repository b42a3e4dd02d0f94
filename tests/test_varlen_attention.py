"""Attention over sequences of unequal length is counted by their lengths. Expected numbers are derived by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.test_replaced_calls import of_function
from tests.test_trace import find, names, traced
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention.varlen import varlen_attn, varlen_attn_out

import rooflens as rl
from rooflens.costs import cost
from rooflens.costs.attention import seen_keys
from rooflens.errors import ModelError
from rooflens.results import RecordSet
from rooflens.trace.varlen_calls import KERNELS

LENGTHS = [30, 30, 30, 33]
TOKENS = 123
PAIRS = 3 * 30 * 30 + 33 * 33
PRODUCTS = 4 * PAIRS * 2 * (16 + 16)
"""4 heads, queries, keys and values 16 wide."""
ENDS = torch.tensor([0, 30, 60, 90, 123], dtype=torch.int32)

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")


class Attends(nn.Module):
    def __init__(self, causal: bool = False) -> None:
        super().__init__()
        self.causal = causal

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(query, key, value, is_causal=self.causal)


class SelfAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(64, 192)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.unflatten(-1, (4, 16)).transpose(1, 2) for t in self.project(x).chunk(3, -1))
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2)


def jagged(lengths: list[int], *shape: int) -> Tensor:
    made: Tensor = torch.nested.nested_tensor([torch.randn(n, *shape) for n in lengths], layout=torch.jagged)
    return made


def heads(lengths: list[int]) -> Tensor:
    made: Tensor = jagged(lengths, 64).unflatten(-1, (4, 16)).transpose(1, 2)
    return made


def strided(lengths: list[int]) -> Tensor:
    made: Tensor = torch.nested.nested_tensor([torch.randn(4, n, 16) for n in lengths])
    return made


class Varlen(nn.Module):
    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options

    def forward(self, query: Tensor, key: Tensor, *ends: Tensor) -> Tensor:
        return varlen_attn(query, key, key, ends[0], ends[-1], 33, 33, **self.options)  # type: ignore[return-value]


class Flash(nn.Module):
    def forward(self, query: Tensor, key: Tensor, *ends: Tensor) -> Tensor:
        attended: Tensor = torch.ops.aten._flash_attention_forward(
            query, key, key, ends[0], ends[-1], 33, 33, 0.0, False, False
        )[0]
        return attended


class Efficient(nn.Module):
    def forward(self, query: Tensor, key: Tensor, *ends: Tensor) -> Tensor:
        query, key = query.unsqueeze(0), key.unsqueeze(0)
        attended: Tensor = torch.ops.aten._efficient_attention_forward(
            query, key, key, None, ends[0], ends[-1], 33, 33, 0.0, 0, True
        )[0]
        return attended


class Cudnn(nn.Module):
    def forward(self, query: Tensor, key: Tensor, *ends: Tensor) -> Tensor:
        attended: Tensor = torch.ops.aten._cudnn_attention_forward(
            query, key, key, None, ends[0], ends[-1], 33, 33, False
        )[0]
        return attended


class VarlenInto(nn.Module):
    def forward(self, query: Tensor, key: Tensor, *ends: Tensor) -> Tensor:
        out = torch.empty_like(query)
        varlen_attn_out(out, query, key, key, ends[0], ends[-1], 33, 33)
        return out


def counted(module: nn.Module, *inputs: Tensor) -> RecordSet:
    est: RecordSet = rl.estimate(module, inputs=inputs)
    assert est.coverage.uncounted == ()
    return est


@pytest.mark.parametrize("tensors", [heads, strided])
def test_nested_tensors_attend_within_each_sequence(tensors: Any) -> None:
    est = counted(Attends(), *(tensors(LENGTHS) for _ in range(3)))
    assert est.total().matmul_flops == PRODUCTS == 969_984
    record = next(r for r in est if r.kind == "attention")
    assert record.work is not None
    assert record.work.bytes == {"dram": 4 * 4 * TOKENS * 64}  # three tensors in, one out, 64 fp32 numbers a token


@pytest.mark.parametrize("tensors", [heads, strided])
def test_keys_may_have_other_lengths_than_queries(tensors: Any) -> None:
    keys = tensors([5, 6, 7, 8])
    est = counted(Attends(), tensors(LENGTHS), keys, keys)
    assert est.total().matmul_flops == 4 * (30 * (5 + 6 + 7) + 33 * 8) * 2 * (16 + 16)


def test_self_attention_of_a_jagged_batch_in_training() -> None:
    """Forward two products per pair, backward four; the projection forward, and its weights' gradient back."""
    module = SelfAttention()
    done = traced(module, jagged(LENGTHS, 64), mode="inference")
    assert names(done, "forward")["varlen_attention"] == 1
    est = rl.estimate(
        module, inputs=jagged(LENGTHS, 64), mode="train", optimizer="none", loss=lambda out, _: out.values().sum()
    )
    projection = 2 * TOKENS * 64 * 192
    assert est.total("forward").matmul_flops == projection + PRODUCTS
    assert est.total("backward").matmul_flops == projection + 2 * PRODUCTS


@pytest.mark.parametrize("module", [Varlen(), VarlenInto(), Flash(), Efficient(), Cudnn()])
def test_kernels_called_by_name_attend_within_each_sequence(module: nn.Module) -> None:
    query, key = torch.randn(TOKENS, 4, 16), torch.randn(TOKENS, 4, 16)
    est = counted(module, query, key, ENDS)
    assert est.total().matmul_flops == PRODUCTS
    assert any("lengths of sequences are values" in note for note in est.notes)


def test_grouped_heads_and_other_keys() -> None:
    """2 heads of keys serve 4 of queries; queries of 2 and 3 tokens have keys of 7 and 5."""
    query, key = torch.randn(5, 4, 16), torch.randn(12, 2, 16)
    ends = torch.tensor([0, 2, 5], dtype=torch.int32), torch.tensor([0, 7, 12], dtype=torch.int32)
    est = counted(Varlen(enable_gqa=True), query, key, *ends)
    assert est.total().matmul_flops == 4 * (2 * 7 + 3 * 5) * 2 * (16 + 16)


@pytest.mark.parametrize(("window", "seen"), [((-1, 0), 2 * (1 + 2 + 3)), ((1, 0), 2 * (1 + 2 + 2))])
def test_a_window_is_what_a_kernel_executes(window: tuple[int, int], seen: int) -> None:
    """Two sequences of three: all pairs are counted, those in the window take time."""
    query = torch.randn(6, 4, 16)
    done = traced(Varlen(window_size=window), query, query, torch.tensor([0, 3, 6], dtype=torch.int32))
    call = find(done, "varlen_attention").call
    work = cost(call)
    assert work.work.matmul_flops == 4 * 2 * 9 * 2 * (16 + 16)
    assert work.kernel_work is not None
    assert work.kernel_work.matmul_flops == 4 * seen * 2 * (16 + 16)


def test_equal_lengths_need_no_values() -> None:
    """A call that says nowhere where sequences begin and end has 2 of 33 tokens."""

    class Dense(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            attended: Tensor = torch.ops.aten._flash_attention_forward(x, x, x, None, None, 33, 33, 0.0, False, False)[
                0
            ]
            return attended

    est = counted(Dense(), torch.randn(2, 33, 4, 16))
    assert (est.total().matmul_flops, est.notes) == (4 * 2 * 33 * 33 * 2 * (16 + 16), ())


def test_a_cache_in_pages_is_read_as_far_as_it_is_used() -> None:
    """One query each for 5 and 3 tokens of a cache of 4 pages with 4 tokens; 64 fp32 numbers a token."""
    query, cache = torch.randn(2, 4, 16), torch.randn(4, 4, 4, 16)

    class Paged(nn.Module):
        def forward(self, query: Tensor, cache: Tensor, ends: Tensor, lengths: Tensor, pages: Tensor) -> Tensor:
            options: dict[str, Any] = {"seqused_k": lengths, "block_table": pages}
            return varlen_attn(query, cache, cache, ends, None, 1, 8, **options)  # type: ignore[return-value]

    ends, used = torch.tensor([0, 1, 2], dtype=torch.int32), torch.tensor([5, 3], dtype=torch.int32)
    pages = torch.tensor([[0, 2], [3, 1]], dtype=torch.int32)
    est = counted(Paged(), query, cache, ends, used, pages)
    assert est.total().matmul_flops == 4 * (5 + 3) * 2 * (16 + 16)
    assert est.total().bytes == {"dram": 4 * 64 * (2 + 2 * 8 + 2)}


def test_results_are_those_of_attention() -> None:
    """The kernel for the CPU agrees with attention of each sequence alone, where the last query is at the last key."""
    query, key = torch.randn(5, 2, 8), torch.randn(9, 2, 8)
    run = torch.ops.rooflens.varlen_attention
    output, _ = run(query, key, key, [2, 3], [4, 5], [-1, 0], True, 0.0, False)
    for rows, columns in ((slice(0, 2), slice(0, 4)), (slice(2, 5), slice(4, 9))):
        q, k = query[rows].transpose(0, 1), key[columns].transpose(0, 1)
        mask = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool).tril(2)
        alone = F.scaled_dot_product_attention(q, k, k, mask).transpose(0, 1)
        assert torch.allclose(output[rows], alone, atol=1e-6)


@pytest.mark.parametrize(("queries", "keys"), [(3, 3), (2, 5), (5, 2)])
@pytest.mark.parametrize("window", [(-1, 0), (1, 0), (0, 0), (2, 1), (-1, 1)])
@pytest.mark.parametrize("from_end", [True, False])
def test_pairs_in_a_window(queries: int, keys: int, window: tuple[int, int], from_end: bool) -> None:
    before, after = window
    shift = keys - queries if from_end else 0
    expected = sum(
        (before < 0 or k >= q + shift - before) and (after < 0 or k <= q + shift + after)
        for q in range(queries)
        for k in range(keys)
    )
    assert seen_keys(queries, keys, before, after, from_end) == expected


class Masked(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(x, x, x, attn_mask=torch.zeros(33, 33))


@pytest.mark.parametrize("name", KERNELS)
def test_a_replaced_kernel_has_the_parameters_of_its_schema(name: str) -> None:
    namespace, _, operator = name.partition("::")
    overload = getattr(getattr(torch.ops, namespace), operator).default
    assert of_function(KERNELS[name]) == [
        ("query" if a.name == "self" else a.name, a.kwarg_only, a.has_default_value())
        for a in overload._schema.arguments
    ]


@pytest.mark.parametrize("layout", [torch.jagged, torch.strided])
@pytest.mark.parametrize("layer", [nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), None])
def test_a_layer_of_attention_takes_nested_tensors(layout: torch.layout, layer: nn.Module | None) -> None:
    """8 tokens in sequences of 5 and 3, 2 heads of 8; projections of 16 x 48 and 16 x 16, and two of 16 x 32."""
    inputs = torch.nested.nested_tensor([torch.randn(5, 16), torch.randn(3, 16)], layout=layout)
    attention = 2 * 8 * 16 * (48 + 16) + 2 * (25 + 9) * 2 * (8 + 8)
    module = Itself() if layer is None else layer.eval()
    assert counted(module, inputs).total().matmul_flops == attention + (0 if layer is None else 2 * 8 * 2 * 16 * 32)


class Itself(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.MultiheadAttention(16, 2, batch_first=True).eval()

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.layer(x, x, x, need_weights=False)[0]
        return output


class Makes(nn.Module):
    def __init__(self, function: str) -> None:
        super().__init__()
        self.function, self.layer = function, nn.Linear(16, 8)

    def forward(self, *parts: Tensor) -> Tensor:
        output: Tensor = self.layer(getattr(torch.nested, self.function)(list(parts)))
        return output


@pytest.mark.parametrize("name", ["nested_tensor", "as_nested_tensor"])
def test_a_model_may_make_nested_tensors(name: str) -> None:
    """5 and 3 rows meet a matrix of 16 x 8."""
    module = Makes(name)
    assert counted(module, torch.randn(5, 16), torch.randn(3, 16)).total().matmul_flops == 2 * 8 * 16 * 8


def test_what_has_no_count_is_an_error() -> None:
    with pytest.raises(ModelError, match="without a mask"):
        rl.estimate(Masked(), inputs=heads(LENGTHS))
    uneven = torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(3, 4)])
    with pytest.raises(ModelError, match="differ in dimensions"):
        rl.estimate(Attends(), inputs=(uneven, uneven, uneven))
    tokens = torch.randn(123, 4, 16)
    with pytest.raises(ModelError, match="does not hold sequences of 124 tokens"):
        rl.estimate(Flash(), inputs=(tokens, tokens, torch.tensor([0, 124], dtype=torch.int32)))


class Attending(nn.Module):
    """Self-attention as an encoder calls it."""

    def __init__(self, heads: int, weights: bool) -> None:
        super().__init__()
        self.layer, self.weights = nn.MultiheadAttention(16 * heads, heads, batch_first=True), weights

    def forward(self, x: Tensor) -> Any:
        return self.layer(x, x, x, need_weights=self.weights)[0]


@pytest.mark.parametrize(
    ("heads", "weights", "names"),
    [
        (2, False, ["addmm", "attention", "addmm"]),  # torch's native path: one packed product, no copies
        (3, False, None),  # an odd number of heads
        (2, True, None),
    ],
)
def test_attention_in_eval_runs_natively(heads: int, weights: bool, names: list[str] | None) -> None:
    x = torch.randn(4, 10, 16 * heads)
    estimate = rl.estimate(Attending(heads, weights).eval(), inputs=(x,))
    found = [r.name for r in estimate if r.call is not None]
    assert (found == names) if names else "clone" in found
