"""ONNX files as workloads: what a file decides itself, and what is left to choose. No torch is needed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rooflens.costs import cost
from rooflens.errors import InvalidValue, MissingDependency, ModelError
from rooflens.records import AS_IS, Trace
from rooflens.runs.run import Request, Run

if TYPE_CHECKING:
    from rooflens.graph import GraphFile, Sizes

UNITS = ("fp32", "tf32", "default")
"""Dtypes that say which unit multiplies fp32 tensors, and leave a file as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphWorkload:
    """What is to be estimated of a graph, checked."""

    runs: tuple[Run, ...]
    file: GraphFile

    @property
    def has_open_batch(self) -> bool:
        """True if the file leaves the batch to choose."""
        from rooflens.graph import has_open_batch

        return has_open_batch(self.file, dict(self.runs[0].options.dims))

    @property
    def tokens(self) -> int | None:
        """Tokens of a language model: no file is known to be one."""
        return None

    least_tokens = 1
    positions = None

    def trace(self, run: Run, /, *, summing: bool = False) -> Trace:
        """Read the operations of a run.

        Args:
            summing: only sums are asked for; a graph has every operation all the same.

        Raises:
            ModelError: no formula can make sense of one.
        """
        from rooflens.graph import read

        done = read(self.file, _sizes(self.file, run))
        for operation in dict.fromkeys(done.operations):
            try:
                float(cost(operation.call).work.total_flops)
            except (ArithmeticError, AssertionError, LookupError, TypeError, ValueError) as error:
                raise ModelError(
                    f"{run.case().model}: {operation.call.name} in {operation.path!r} has shapes or attributes it"
                    f" cannot have ({error})"
                ) from error
        return done


def graph_workload(asked: Request) -> GraphWorkload:
    """Check the arguments of a call, and read the file.

    Raises:
        MissingDependency: onnx is not installed.
        InvalidValue: an argument cannot be used with this file.
        UnknownModel, ModelError: the file is not there, or damaged.
    """
    model, options = str(asked.model), asked.options
    run = Run(model=model, dtype=asked.dtype or AS_IS, mode=asked.mode, options=replace(options, compile=False))
    runs = run.with_batches(asked.batch)
    _refuse(asked)
    try:
        import onnx  # noqa: F401
    except ImportError as error:
        raise MissingDependency("reading an ONNX file", "onnx", "onnx") from error
    from rooflens.graph import fixed_batch, has_open_batch, read_file

    file = read_file(model)
    dtype = _dtype(file, run.dtype)
    own = 1 if has_open_batch(file, dict(options.dims)) else fixed_batch(file)
    runs = tuple(replace(each, dtype=dtype, batch=own if asked.batch is None else each.batch) for each in runs)
    for each in runs:  # before the first of them is read
        _sizes(file, each)
    return GraphWorkload(runs=runs, file=file)


def _sizes(file: GraphFile, run: Run) -> Sizes:
    """The sizes that a run decides."""
    from rooflens.graph import decide

    options = run.options
    return decide(file, batch=run.batch, img_size=options.img_size, seq_len=options.seq_len, dims=dict(options.dims))


def _refuse(asked: Request) -> None:
    """Raise InvalidValue for arguments that a file has no use for."""
    options = asked.options
    if asked.mode != "inference":
        raise InvalidValue(
            f"{asked.model!r} is an ONNX file, a graph for inference: it has no mode {asked.mode!r}; give the PyTorch"
            " model that it was exported from"
        )
    for what, given, why in (
        ("inputs", asked.inputs is not None, "its inputs are in the file"),
        ("name", asked.name is not None, "it has its own"),
        ("loss", asked.loss is not None, "it is not trained"),
        (
            "weights",
            any((options.quantises, options.weights_group_size, options.weights_except)),
            "it has its own, and is counted as it is",
        ),
        ("channels_last", options.channels_last, "its layout is in the file"),
    ):
        if given:
            raise InvalidValue(f"{what} has no meaning for the ONNX file {asked.model!r}: {why}; leave it out")


def _dtype(file: GraphFile, asked: str) -> str:
    """The dtype of the case: the file's own, or the unit that multiplies its fp32 tensors.

    Raises:
        InvalidValue: another one than the file's.
    """
    if asked in (AS_IS, file.dtype):
        return file.dtype
    if asked in UNITS and file.floating <= {"fp32"}:
        return asked
    held = " and ".join(sorted(file.floating)) or "no floating"
    raise InvalidValue(
        f"{file.name!r} holds {held} tensors, and a file is counted as it is: leave dtype {asked!r} out, or convert"
        " the file"
    )
