"""ONNX files as cases: what a file decides itself, and what is left to choose. No torch is needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from rooflens.api.cases import batches_of, check_numbers, options_of
from rooflens.costs import Fusion, cost
from rooflens.errors import InvalidValue, MissingDependency, ModelError
from rooflens.models import Loss, check_words
from rooflens.records import AS_IS, Case, Scalar, Trace
from rooflens.sources.environment import without_home

if TYPE_CHECKING:
    from rooflens.graph import GraphFile

UNITS = ("fp32", "tf32", "default")
"""Words that say of fp32 tensors which unit multiplies them; they leave a file as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphRequest:
    """What is to be estimated of a graph, checked."""

    name: str
    file: GraphFile
    batches: tuple[int | None, ...]
    dtype: str
    img_size: int | None
    seq_len: int | None
    dims: Mapping[str, int]
    options: tuple[tuple[str, Scalar], ...]

    @property
    def has_open_batch(self) -> bool:
        """Whether the file leaves the batch to choose."""
        from rooflens.graph import has_open_batch

        return has_open_batch(self.file, self.dims)

    def cases(self, device: str | None) -> list[Case]:
        """One case per batch."""
        return [
            Case(model=self.name, device=device, batch=batch, dtype=self.dtype, options=self.options)
            for batch in self.batches
        ]

    def tracer(self) -> Callable[[int | None], Trace]:
        """Reads the operations of a batch; a graph whose operations no formula can make sense of is an error."""
        return partial(_trace, self)


def graph_request(
    model: str,
    *,
    inputs: Any,
    batch: int | Sequence[int] | None,
    dtype: str | None,
    mode: str,
    loss: Loss | None,
    optimizer: str,
    fused: bool,
    img_size: int | None,
    seq_len: int | None,
    channels_last: bool,
    fusion: Fusion,
    causal: bool,
    name: str | None,
    dims: Mapping[str, int] | None,
) -> GraphRequest:
    """Check the arguments of a call, and read the file.

    Args:
        dims: open sizes by name.
        (others): as in :func:`rooflens.estimate`.

    Raises:
        MissingDependency: onnx is not installed.
        InvalidValue: an argument cannot be used with this file.
        UnknownModel, ModelError: the file is not there, or damaged.
    """
    check_numbers(batch, img_size, seq_len)
    check_words(dtype or AS_IS, mode, optimizer)
    _refuse(model, mode=mode, inputs=inputs, name=name, loss=loss, channels_last=channels_last)
    options = options_of(
        mode=mode,
        img_size=img_size,
        seq_len=seq_len,
        channels_last=False,
        fusion=fusion,
        causal=causal,
        optimizer=optimizer,
        fused=fused,
    )
    try:
        import onnx  # noqa: F401
    except ImportError as error:
        raise MissingDependency("reading an ONNX file", "onnx", "onnx") from error
    from rooflens.graph import decide, fixed_batch, has_open_batch, read_file

    file, dims = read_file(model), dict(dims or {})
    own = 1 if has_open_batch(file, dims) else fixed_batch(file)
    batches = batches_of(own if batch is None else batch)
    for size in batches:  # before the first of them is read
        decide(file, batch=size, img_size=img_size, seq_len=seq_len, dims=dims)
    if dims:
        options["dims"] = ", ".join(f"{name}={size}" for name, size in sorted(dims.items()))
    return GraphRequest(
        name=without_home(model),
        file=file,
        batches=batches,
        dtype=_dtype(file, dtype),
        img_size=img_size,
        seq_len=seq_len,
        dims=dims,
        options=tuple(sorted(options.items())),
    )


def _trace(asked: GraphRequest, batch: int | None) -> Trace:
    from rooflens.graph import decide, read

    sizes = decide(asked.file, batch=batch, img_size=asked.img_size, seq_len=asked.seq_len, dims=asked.dims)
    done = read(asked.file, sizes)
    for operation in dict.fromkeys(done.operations):
        try:
            float(cost(operation.call).work.total_flops)
        except (ArithmeticError, AssertionError, LookupError, TypeError, ValueError) as error:
            raise ModelError(
                f"{asked.name}: {operation.call.name} in {operation.path!r} has shapes or attributes it cannot have"
                f" ({error})"
            ) from error
    return done


def refuse_dims(dims: Mapping[str, int] | None) -> None:
    """Sizes by name are those that an ONNX file leaves open.

    Raises:
        InvalidValue: there are some, for another model.
    """
    if dims:
        raise InvalidValue(f"dims={dict(dims)} are sizes that an ONNX file leaves open; other models have none")


def _refuse(model: str, *, mode: str, inputs: object, name: str | None, loss: object, channels_last: bool) -> None:
    """Arguments that a file has no use for."""
    if mode != "inference":
        raise InvalidValue(
            f"{model!r} is an ONNX file, a graph for inference: it has no mode {mode!r}; give the PyTorch model that it"
            " was exported from"
        )
    for what, given, why in (
        ("inputs", inputs is not None, "its inputs are in the file"),
        ("name", name is not None, "it has its own"),
        ("loss", loss is not None, "it is not trained"),
        ("channels_last", channels_last, "its layout is in the file"),
    ):
        if given:
            raise InvalidValue(f"{what} has no meaning for the ONNX file {model!r}: {why}; leave it out")


def _dtype(file: GraphFile, asked: str | None) -> str:
    """The dtype of the case: the file's own, or the unit that multiplies its fp32 tensors.

    Raises:
        InvalidValue: another one than the file's.
    """
    if asked in (None, file.dtype):
        return file.dtype
    if asked in UNITS and file.floating <= {"fp32"}:
        return str(asked)
    held = " and ".join(sorted(file.floating)) or "no floating"
    raise InvalidValue(
        f"{file.name!r} holds {held} tensors, and a file is counted as it is: leave dtype {asked!r} out, or convert"
        " the file"
    )
