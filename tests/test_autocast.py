"""The casts of CUDA's autocast, name by name, against those that torch itself makes.

The oracle needs no GPU: fake tensors say that they lie on one, so torch's own kernels for its autocast run.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

import rooflens as rl
from rooflens.errors import ModelError
from rooflens.trace.autocast import CAST_DOWN, CAST_UP, REFUSED, RESULT_UP, WIDEST, cuda_casts, listed
from rooflens.trace.replaced_calls import AcceleratorCalls

BF16, FP16, FP32, INT = torch.bfloat16, torch.float16, torch.float32, torch.int64
VIEWS = frozenset(
    {
        *("alias", "detach", "expand", "permute", "select", "slice", "squeeze", "t", "transpose", "unbind"),
        *("unsqueeze", "view", "_unsafe_view", "_reshape_alias", "as_strided", "split", "unsafe_chunk", "diagonal"),
    }
)
pytestmark = pytest.mark.filterwarnings("ignore")
Make = Callable[..., Tensor]
Seen = tuple[str, tuple[str, ...], tuple[str, ...]]
"""Name of an operation, and element types of what it takes and gives."""


class Casts(TorchDispatchMode):
    """Notes the element types of every operation but views."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[Seen] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func._schema.name.split("::")[1]
        if func.namespace != "prim" and name not in VIEWS:
            self.seen.append((name, dtypes((args, kwargs)), dtypes(result)))
        return result


def dtypes(values: Any) -> tuple[str, ...]:
    return tuple(str(t.dtype)[6:] for t in torch.utils._pytree.tree_leaves(values) if isinstance(t, Tensor))


def on_cuda(call: Callable[[Make], Any], lower: torch.dtype) -> list[Seen]:
    """What torch runs for a call under its own autocast for CUDA."""
    before = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
    with FakeTensorMode():
        torch.set_autocast_enabled("cuda", True)
        torch.set_autocast_dtype("cuda", lower)
        try:
            with Casts() as casts:
                call(lambda *shape, dtype=lower: torch.empty(shape, dtype=dtype, device="cuda"))
        finally:
            torch.set_autocast_enabled("cuda", before[0])
            torch.set_autocast_dtype("cuda", before[1])
    return [one for one in casts.seen if one[0] != "empty"]


def ours(call: Callable[[Make], Any], lower: torch.dtype) -> list[Seen]:
    """What the trace sees of it."""
    mode = FakeTensorMode()

    def make(*shape: int, dtype: torch.dtype = lower) -> Tensor:
        with torch._C.DisableTorchFunction():
            return FakeTensor(mode, torch.empty(shape, dtype=dtype, device="meta"), torch.device("cpu"))

    with mode, AcceleratorCalls(), cuda_casts(), torch.autocast("cpu", lower), Casts() as casts:
        call(make)
    return [one for one in casts.seen if one[0] != "empty"]


def forms(name: str, *given: Any, **more: Any) -> dict[str, Callable[[Tensor], Any]]:
    """A call as a function of torch, of its special or linear algebra, and as a method, where there are such."""
    places = {"torch": torch, "torch.special": torch.special, "torch.linalg": torch.linalg, "F": F, "Tensor": Tensor}
    short = name.removeprefix("linalg_")
    functions = {f"{place}.{short}": getattr(where, short, None) for place, where in places.items()}
    return {
        named: (lambda x, function=function: function(x, *given, **more))  # type: ignore[misc]
        for named, function in functions.items()
        if function is not None
    }


UNARY = (
    *("acos", "arccos", "asin", "arcsin", "cosh", "erfinv", "exp", "expm1", "exp2", "log", "log10", "log2", "log1p"),
    *("reciprocal", "rsqrt", "sinh", "tan", "sqrt", "sin", "tanh", "sigmoid", "gelu", "silu", "softplus", "prod"),
    *("sum", "mean", "std", "norm", "linalg_norm", "linalg_vector_norm", "linalg_matrix_norm", "linalg_matrix_sqrth"),
    *("trace", "exp_", "log_", "neg"),
)
IN_DIM = ("cumprod", "cumsum", "log_softmax", "logsumexp", "prod", "softmax", "softmin", "sum", "mean", "normalize")
UPSAMPLED = {
    "nearest": (1, 2, 3),
    "nearest-exact": (1, 2, 3),
    "linear": (1,),
    "bilinear": (2,),
    "bicubic": (2,),
    "trilinear": (3,),
    "area": (1, 2, 3),
}
LOSSES = (
    *("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div", "poisson_nll_loss", "soft_margin_loss"),
    *("binary_cross_entropy_with_logits", "hinge_embedding_loss", "multilabel_soft_margin_loss"),
)


def calls() -> dict[str, Callable[[Make], Any]]:
    """Calls by name: `m` makes a tensor of the lower type."""
    of_a_matrix: dict[str, Callable[[Tensor], Any]] = {}
    for name in UNARY:
        of_a_matrix |= forms(name)
    for name in IN_DIM:
        of_a_matrix |= {f"{form}, dim": call for form, call in forms(name, dim=-1).items()}
    of_a_matrix |= forms("pow", 2) | forms("renorm", 2, 0, 1.0) | forms("pdist")
    of_a_matrix |= {
        "x ** 2": lambda x: x**2,
        "2 ** x": lambda x: 2**x,
        "x ** x": lambda x: x**x,
        "1 / x": lambda x: 1 / x,
        "norm of rows": lambda x: x.norm(p=2, dim=1, keepdim=True),
        "norm, 1": lambda x: x.norm(1),
        "torch.norm, rows": lambda x: torch.norm(x, 3, dim=1),
        "torch.norm, both dims": lambda x: torch.norm(x, dim=(0, 1)),
        "torch.norm, fp64": lambda x: torch.norm(x, dtype=torch.float64),
        "torch.frobenius_norm": lambda x: torch.ops.aten.frobenius_norm.dim(x, [0]),
        "aten.norm": torch.ops.aten.norm.Scalar,
        "aten.norm, rows": lambda x: torch.ops.aten.norm.ScalarOpt_dim(x, 2, [1]),
        "linalg.matrix_norm, 1": lambda x: torch.linalg.matrix_norm(x, 1),
        "linalg.cond": lambda x: torch.linalg.norm(x, float("inf")),
        "softmax to fp64": lambda x: x.softmax(-1, dtype=torch.float64),
        "softmax to fp32": lambda x: x.softmax(-1, dtype=FP32),
        "log_softmax to fp32": lambda x: F.log_softmax(x, -1, dtype=FP32),
        "sum to fp64": lambda x: x.sum(dtype=torch.float64),
        "cross_entropy": lambda x: F.cross_entropy(x, torch.zeros(4, dtype=INT, device=x.device)),
        "nll_loss": lambda x: F.nll_loss(x, torch.zeros(4, dtype=INT, device=x.device)),
        "nll_loss2d": lambda x: F.nll_loss(x[None, :, None], torch.zeros((1, 1, 4), dtype=INT, device=x.device)),
        "multi_margin_loss": lambda x: F.multi_margin_loss(x, torch.zeros(4, dtype=INT, device=x.device)),
        "multilabel_margin_loss": lambda x: F.multilabel_margin_loss(x, torch.zeros_like(x, dtype=INT)),
        "group_norm": lambda x: F.group_norm(x, 2),
        "layer_norm": lambda x: F.layer_norm(x, (4,)),
        "native_layer_norm": lambda x: torch.native_layer_norm(x, (4,), None, None, 1e-5),
        "rms_norm": lambda x: F.rms_norm(x, (4,)),
        "torch.rms_norm": lambda x: torch.rms_norm(x, (4,)),
        "pixel_unshuffle": lambda x: F.pixel_unshuffle(x[None, None], 2),
        "pad": lambda x: F.pad(x[None], (1, 1), mode="reflect"),
        "avg_pool3d": lambda x: F.avg_pool3d(x[None, None], 1),
        "adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(x[None], 2),
        "index_put": lambda x: x.index_put((torch.zeros(2, dtype=INT, device=x.device),), x.new_ones(4)),
        "nuclear_norm": lambda x: torch.norm(x.float(), "nuc"),
        "torch.nuclear_norm": torch.ops.aten.nuclear_norm,
        "torch.nuclear_norm, dims": lambda x: torch.ops.aten.nuclear_norm.dim(x, [0, 1]),
        "upsample, antialias": lambda x: F.interpolate(x[None, None], size=3, mode="bilinear", antialias=True),
        "upsample, bicubic aa": lambda x: F.interpolate(x[None, None], size=3, mode="bicubic", antialias=True),
        "quantile": lambda x: x.float().quantile(0.5),
        "fft": lambda x: torch.fft.fft(x.float()).abs(),
    }
    of_two: dict[str, Callable[[Tensor, Tensor], Any]] = {
        **{loss: getattr(F, loss) for loss in LOSSES},
        **{name: getattr(torch, name) for name in ("mm", "matmul", "dist", "cdist", "atan2", "pow")},
        **{f"x.{name}": getattr(Tensor, name) for name in ("mm", "matmul", "dist", "atan2", "pow", "true_divide")},
        "cosine_similarity": torch.cosine_similarity,
        "dot": lambda x, y: torch.dot(x[0], y[0]),
        "x.dot": lambda x, y: x[0].dot(y[0]),
        "vdot": lambda x, y: torch.vdot(x[0], y[0]),
        "x.vdot": lambda x, y: x[0].vdot(y[0]),
        "inner": lambda x, y: torch.inner(x[0], y[0]),
        "mv": lambda x, y: torch.mv(x, y[0]),
        "x.mv": lambda x, y: x.mv(y[0]),
        "x @ y": lambda x, y: x @ y,
        "addmm": lambda x, y: torch.addmm(x, x, y),
        "x.addmm": lambda x, y: x.addmm(x, y),
        "addmv": lambda x, y: torch.addmv(x[0], x, y[0]),
        "x.addmv": lambda x, y: x[0].addmv(x, y[0]),
        "addr": lambda x, y: torch.addr(x, x[0], y[0]),
        "x.addr": lambda x, y: x.addr(x[0], y[0]),
        "bmm": lambda x, y: torch.bmm(x[None], y[None]),
        "addbmm": lambda x, y: torch.addbmm(x, x[None], y[None]),
        "baddbmm": lambda x, y: torch.baddbmm(x[None], x[None], y[None]),
        "chain_matmul": lambda x, y: torch.chain_matmul(x, y, x),
        "linalg.multi_dot": lambda x, y: torch.linalg.multi_dot([x, y, x]),
        "linalg.vecdot": torch.linalg.vecdot,
        "einsum": lambda x, y: torch.einsum("ij,jk->ik", x, y),
        "linear": F.linear,
        "prelu": lambda x, y: F.prelu(x, y[0]),
        "bilinear": lambda x, y: F.bilinear(x, y, x[None]),
        "tensordot": lambda x, y: torch.tensordot(x, y, 1),
        "cross": lambda x, y: torch.cross(x[:, :3], y[:, :3], dim=1),
        "linalg.cross": lambda x, y: torch.linalg.cross(x[:, :3], y[:, :3]),
        "addcdiv": lambda x, y: torch.addcdiv(x, x, y),
        "x.addcmul": lambda x, y: x.addcmul(x, y),
        "scatter_add": lambda x, y: y.scatter_add(0, torch.zeros_like(x, dtype=INT), y),
        "grid_sampler": lambda x, y: F.grid_sample(x[None, None], y[None, None, :, :2], align_corners=False),
        "cat": lambda x, y: torch.cat([x, y]),
        "stack": lambda x, y: torch.stack([x, y]),
        "pairwise_distance": F.pairwise_distance,
        "margin_ranking_loss": lambda x, y: F.margin_ranking_loss(x, y, x),
        "triplet_margin_loss": lambda x, y: F.triplet_margin_loss(x, y, x),
        "cosine_embedding_loss": lambda x, y: F.cosine_embedding_loss(x, y, x[0]),
        "layer_norm, fp32 weight": lambda x, y: F.layer_norm(x, (4,), y[0], y[0]),
        "rms_norm, fp32 weight": lambda x, y: F.rms_norm(x, (4,), y[0]),
        "group_norm, fp32 weight": lambda x, y: F.group_norm(x, 2, y[0], y[0]),
        "conv1d": lambda x, y: F.conv1d(x[None], y[:, :, None]),
        "conv1d, same": lambda x, y: F.conv1d(x[None], y[:, :, None], padding="same"),
        "conv2d": lambda x, y: F.conv2d(x[None, :, None], y[:, :, None, None]),
        "conv3d": lambda x, y: F.conv3d(x[None, :, None, None], y[:, :, None, None, None]),
        "conv_transpose1d": lambda x, y: F.conv_transpose1d(x[None], y[:, :, None]),
        "conv_transpose2d": lambda x, y: F.conv_transpose2d(x[None, :, None], y[:, :, None, None]),
        "conv_transpose3d": lambda x, y: F.conv_transpose3d(x[None, :, None, None], y[:, :, None, None, None]),
        "conv_tbc": lambda x, y: torch.conv_tbc(x[None], y[None], y[0]),
        "aten.convolution": lambda x, y: torch.convolution(x[None], y[:, :, None], None, [1], [0], [1], False, [0], 1),
        "rnn_tanh_cell": lambda x, y: torch.rnn_tanh_cell(x, x, y, y),
        "rnn_relu_cell": lambda x, y: torch.rnn_relu_cell(x, x, y, y),
    }
    made: dict[str, Callable[[Make], Any]] = {}
    for name, call in of_a_matrix.items():
        made |= {name: partial(on_matrices, call, [None]), f"{name} of fp32": partial(on_matrices, call, [FP32])}
    for name, both in of_two.items():
        made |= {
            name: partial(on_matrices, both, [None, None]),
            f"{name} and fp32": partial(on_matrices, both, [None, FP32]),
            f"{name} of fp32": partial(on_matrices, both, [FP32, FP32]),
        }
    return made | {
        f"interpolate, {mode}, {n}d": partial(upsampled, mode, n) for mode, dims in UPSAMPLED.items() for n in dims
    }


def on_matrices(call: Callable[..., Any], types: list[torch.dtype | None], make: Make) -> Any:
    return call(*(make(4, 4) if dtype is None else make(4, 4, dtype=dtype) for dtype in types))


def upsampled(mode: str, dims: int, make: Make) -> Any:
    return F.interpolate(make(1, 2, *[4] * dims), scale_factor=2, mode=mode)


CALLS = calls()
ALIKE_ELSEWHERE = frozenset(
    {
        *("_convolution", "_cudnn_rnn", "cudnn_convolution", "cudnn_convolution_transpose"),  # convolution calls these
        *("_scaled_dot_product_flash_attention", "scaled_dot_product_attention"),  # attention is an operation of ours
        *("_thnn_fused_gru_cell", "_thnn_fused_lstm_cell", "gru_cell", "lstm_cell"),  # fake tensors cannot run these
    }
)
"""Operators of torch's lists that the oracle cannot compare."""


def outcome(run: Callable[[Callable[[Make], Any], torch.dtype], list[Seen]], name: str, lower: torch.dtype) -> Any:
    """What a call runs, or its error."""
    try:
        return run(CALLS[name], lower)
    except (RuntimeError, NotImplementedError, TypeError, ValueError) as error:
        return type(error).__name__, str(error).partition("\n")[0]


def operator_names(key: str) -> set[str]:
    return {name.partition(".")[0] for name in listed(key)}


@pytest.mark.parametrize("kind", ["", " and fp32", " of fp32"])
def test_a_call_has_the_casts_that_torch_makes_on_cuda(kind: str) -> None:
    names = [name for name in CALLS if name.endswith(kind) and (kind or not name.endswith("fp32"))]
    assert len(names) > 50
    assert {n: outcome(ours, n, BF16) for n in names} == {n: outcome(on_cuda, n, BF16) for n in names}


def test_fp16_has_a_softmax_that_reads_it_and_writes_fp32() -> None:
    names = [name for name in CALLS if any(word in name for word in ("soft", "norm", "sum", "prod"))]
    assert {n: outcome(ours, n, FP16) for n in names} == {n: outcome(on_cuda, n, FP16) for n in names}
    assert ours(lambda m: m(4, 4).softmax(1), FP16) == [("_softmax", ("float16",), ("float32",))]


@pytest.mark.parametrize(("dtype", "read"), [("fp16", "fp16"), ("bf16", "fp32")])
def test_a_softmax_that_asks_for_fp32_is_one_kernel_for_fp16_only(dtype: str, read: str) -> None:
    records = rl.estimate(Net(lambda x: x.softmax(-1, dtype=FP32)), inputs=torch.randn(4, 4), dtype=dtype)
    (softmax,) = [r for r in records if r.name == "_softmax"]
    assert softmax.call is not None
    assert softmax.work is not None
    assert (softmax.call.inputs[0].dtype, softmax.call.outputs[0].dtype) == (read, "fp32")
    assert softmax.work.bytes["dram"] == 16 * (2 if read == "fp16" else 4) + 16 * 4
    assert ("_to_copy" in {r.name for r in records}) == (read == "fp32")


def test_such_a_softmax_trains() -> None:
    net = Net(lambda x: x.softmax(-1, dtype=FP32))
    records = rl.estimate(net, inputs=torch.randn(4, 4), dtype="fp16", mode="train", optimizer="none")
    (gradient,) = [r for r in records if r.name == "_softmax_backward_data"]
    assert gradient.call is not None
    assert gradient.call.outputs[0].dtype == "fp16"


def test_every_operator_that_torch_casts_is_compared() -> None:
    ours_alone = CAST_DOWN | CAST_UP | RESULT_UP | WIDEST | REFUSED
    assert not operator_names("AutocastCUDA") - operator_names("AutocastCPU") - ours_alone - ALIKE_ELSEWHERE
    spelled = " ".join(CALLS).replace(".", "_") + " upsample_nearest upsample_linear"
    uncalled = {n for n in operator_names("AutocastCUDA") if n not in spelled and "upsample" not in n}
    assert uncalled <= ALIKE_ELSEWHERE


def test_a_norm_by_method_reads_the_lower_type_without_a_copy() -> None:
    """g = norm over (1, 2) of (8, 56, 56, 256) bf16: every element read once, 8 x 256 results of 4 bytes written."""

    class Response(torch.nn.Module):
        def forward(self, x: Tensor) -> Any:
            return x.norm(p=2, dim=(1, 2), keepdim=True)

    model = torch.nn.Sequential(torch.nn.Linear(64, 256), Response())
    records = rl.estimate(model, inputs=torch.randn(8, 56, 56, 64), mode="train", dtype="amp-bf16")
    (norm,) = [r for r in records if r.scope == "op" and r.path == "1" and r.phase == "forward"]
    assert norm.work is not None
    assert norm.work.bytes["dram"] == 8 * 56 * 56 * 256 * 2 + 8 * 256 * 4


def test_autocast_that_a_model_turns_off_is_off() -> None:
    def call(make: Make) -> Any:
        with torch.autocast("cpu", enabled=False):
            return make(4).exp()

    assert ours(call, BF16) == [("exp", ("bfloat16",), ("bfloat16",))]


class Net(torch.nn.Module):
    def __init__(self, call: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.layer, self.call = torch.nn.Linear(4, 4), call

    def forward(self, x: Tensor) -> Any:
        return self.call(self.layer(x))


def types(call: Callable[[Tensor], Any], dtype: str) -> dict[str, str]:
    """The element type of the first result of each operation."""
    records = rl.estimate(Net(call), inputs=torch.randn(4, 4), dtype=dtype)
    return {r.name: r.call.outputs[0].dtype for r in records if r.call is not None and r.name != "_to_copy"}


@pytest.mark.parametrize(
    "off", [partial(torch.autocast, "cuda", enabled=False), lambda: torch.cuda.amp.autocast(False)]
)
def test_what_a_model_turns_off_for_cuda_is_off(off: Callable[[], Any]) -> None:
    def call(x: Tensor) -> Tensor:
        with off():
            return x.exp()

    assert types(call, "amp-bf16") == {"addmm": "bf16", "exp": "bf16"}


def test_what_a_model_turns_on_for_cuda_is_on() -> None:
    def call(x: Tensor) -> Tensor:
        with torch.autocast("cuda", dtype=FP16):
            return (x @ x).tan()

    assert types(call, "fp32") == {"addmm": "fp32", "mm": "fp16", "tan": "fp32"}
    assert types(call, "amp-bf16") == {"addmm": "bf16", "mm": "fp16", "tan": "fp32"}


def test_a_model_that_asks_hears_that_autocast_is_on() -> None:
    def call(x: Tensor) -> Tensor:
        return x.to(torch.get_autocast_dtype("cuda")).sin() if torch.is_autocast_enabled() else x

    before = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
    assert types(call, "amp-bf16") == {"addmm": "bf16", "sin": "bf16"}
    assert types(call, "fp32") == {"addmm": "fp32"}
    assert before == (torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda"))


class InSingle(torch.autograd.Function):
    """A function that asks for fp32, as kernels of other packages do."""

    @staticmethod
    @partial(torch.amp.custom_fwd, device_type="cuda", cast_inputs=FP32)
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.sin()


def test_a_function_gets_its_inputs_in_the_type_that_it_asks_for() -> None:
    assert types(InSingle.apply, "amp-bf16") == {"addmm": "bf16", "sin": "fp32"}


def test_an_encoder_layer_has_no_fast_path_under_autocast() -> None:
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    records = rl.estimate(layer, inputs=torch.randn(2, 3, 8), dtype="amp-bf16")
    assert "attention" in {r.name for r in records}


def test_a_loss_that_torch_refuses_is_refused_unless_autocast_is_off() -> None:
    def off(x: Tensor) -> Tensor:
        with torch.autocast("cuda", enabled=False):
            return F.binary_cross_entropy(x.float().sigmoid(), torch.ones(4, 4))

    assert types(off, "amp-bf16")["binary_cross_entropy"] == "fp32"
    with pytest.raises(ModelError, match="BCELoss are unsafe to autocast"):
        types(lambda x: F.binary_cross_entropy(x.sigmoid(), x), "amp-bf16")


def test_no_other_thread_has_the_casts() -> None:
    def plain() -> torch.dtype:
        with torch.autocast("cpu", BF16):
            return torch.ones(4, dtype=BF16).exp().dtype

    with cuda_casts(), ThreadPoolExecutor(1) as pool:
        assert (plain(), pool.submit(plain).result()) == (FP32, BF16)
    assert plain() is BF16
