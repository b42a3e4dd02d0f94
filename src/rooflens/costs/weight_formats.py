"""Weights of products in fewer bits than the model has them: a traced step becomes the one on quantised weights.

What changes is the operand of each product: its type, its bytes, and what the product computes beside it. So the flow
of values, floors and fusion see a step like any other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache

from rooflens.errors import InvalidValue
from rooflens.records import Access, Call, Operation, Tensor, Trace, TracedModule, allocated

_OPERANDS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("mm", "bmm", "_grouped_mm"), ("self", "mat2")),
    **dict.fromkeys(("addmm", "_addmm_activation"), ("mat1", "mat2")),
    "baddbmm": ("batch1", "batch2"),
    "mv": ("self", "vec"),
    "grouped_mm_fallback": ("input", "weight"),
}
"""Products with weights, and the arguments that may be weights: the left factor and the right one."""
_WIDE = ("fp64", "fp32", "fp16", "bf16")


_BYTES_OF_SHARED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFormat:
    """How quantised weights are stored, and what a product computes to use them.

    Attributes:
        dtype: of the codes.
        bits: of a code.
        scale_bits: of what the weights of a group share: a scale, and a zero point where there is one.
        group: neighbours along the inner size that share it; None are all of an output channel, 0 all of a tensor.
        flat: groups go on over the ends of rows.
        scales_in: scales in a group of their own, which share one in 32 bits; 0 where each stands for itself.
        steps: vector FLOP to dequantise a weight: by its scale, and its zero point.
        source: where it is from.
        kept_by: whose checkpoints keep the last layer of a language model in 16 bits.
    """

    dtype: str
    bits: int
    scale_bits: int
    group: int | None
    flat: bool = False
    scales_in: int = 0
    steps: int = 1
    source: str
    kept_by: str

    def sizes(self, elements: int, inner: int) -> tuple[int, int]:
        """Bytes of the codes of so many weights, and of their scales; sums go over `inner` of them."""
        group = inner if self.group is None else self.group or elements
        scales = -(-elements // max(1, group))
        shared = -(-scales // self.scales_in) * _BYTES_OF_SHARED if self.scales_in else 0
        return -(-elements * self.bits // 8), scales * self.scale_bits // 8 + shared


WEIGHT_FORMATS: Mapping[str, WeightFormat] = {
    "int8": WeightFormat(
        dtype="int8",
        bits=8,
        scale_bits=16,
        group=None,
        kept_by="bitsandbytes",
        source="LLM.int8(), arXiv:2208.07339: a scale for each output, in 16 bits as torch's _weight_int8pack_mm has",
    ),
    "int4": WeightFormat(
        dtype="int4",
        bits=4,
        scale_bits=32,
        group=128,
        steps=2,
        kept_by="GPTQ and AWQ",
        source="GPTQ and AWQ, arXiv:2210.17323 and 2306.00978; scale and zero point in 16 bits each, as torch's"
        " _weight_int4pack_mm takes them",
    ),
    "fp8": WeightFormat(
        dtype="float8_e4m3fn",
        bits=8,
        scale_bits=32,
        group=0,
        kept_by="fp8 checkpoints",
        source="e4m3, arXiv:2209.05433; one scale for a tensor",
    ),
    "nf4": WeightFormat(
        dtype="nf4",
        bits=4,
        scale_bits=32,
        group=64,
        flat=True,
        kept_by="bitsandbytes",
        source="QLoRA, arXiv:2305.14314, its scales in fp32",
    ),
    "nf4-double": WeightFormat(
        dtype="nf4",
        bits=4,
        scale_bits=8,
        group=64,
        flat=True,
        scales_in=256,
        kept_by="bitsandbytes",
        source="QLoRA, arXiv:2305.14314, with double quantization: scales in 8 bits, a second one in fp32 for 256",
    ),
    "mxfp4": WeightFormat(
        dtype="mxfp4",
        bits=4,
        scale_bits=8,
        group=32,
        kept_by="checkpoints like gpt-oss",
        source="OCP Microscaling Formats (MX) Specification 1.0",
    ),
}
"""By the name of the option."""


def weight_format(weights: str, group_size: int | None) -> WeightFormat:
    """The format of a name, with another group where one is given."""
    known = WEIGHT_FORMATS[weights]
    return known if group_size is None else replace(known, group=group_size)


def weight_flops(call: Call) -> float:
    """Vector FLOP of a product on quantised weights, beside the product itself.

    A scale that a whole output channel shares multiplies results, any other one each weight. Weights in fp8 meet
    activations that are scaled to fp8, and both scales multiply the results.
    """
    factors = [call.tensor(name) for name in _OPERANDS[call.name]]
    of_weight, rows = sorted(
        factors, key=lambda tensor: tensor.dtype != WEIGHT_FORMATS[str(call["weight_format"])].dtype
    )
    used = of_weight.elements
    if call.name == "_grouped_mm":  # a group without rows has no use for its matrix
        used = used // max(1, of_weight.shape[0]) * min(of_weight.shape[0], rows.shape[0])
    return flops_beside(call, rows.elements, call.outputs[0].elements, used)


def flops_beside(call: Call, inner: float, outer: float, used: float) -> float:
    """The same for a product of other rows with the same weights.

    Args:
        inner: elements of the operand, or result, that lies along the size that weights are summed over.
        outer: elements of the other one, which lies along the output channels.
        used: weights that take part.
    """
    if call.get("weight_format") is None:
        return 0
    if call["weight_format"] == "fp8":
        return inner + outer
    if call["weights_group_size"] is None:
        return outer
    return WEIGHT_FORMATS[str(call["weight_format"])].steps * used


def weight_formula(call: Call) -> str:
    """How a product on quantised weights is counted, in words; nothing of any other product."""
    weights = call.get("weight_format")
    if weights is None:
        return ""
    group = call["weights_group_size"]
    form = weight_format(str(weights), None if group is None else call.integer("weights_group_size"))
    shared = "an output channel" if group is None else f"{group} weights" if group else "a tensor"
    second = f", {8 * _BYTES_OF_SHARED} for {form.scales_in} of these" if form.scales_in else ""
    stored = f"Weights in {weights}: {form.bits} bits each, and {form.scale_bits} bits for {shared}{second}."
    if weights == "fp8":
        return f"{stored} Activations are scaled to fp8 (1 each), the product runs on fp8, results are scaled (1 each)."
    if group is None:
        return f"{stored} The product runs in the type of the activations, and results are scaled (1 each)."
    return f"{stored} Each is dequantised ({form.steps} FLOP), and the product runs in the type of the activations."


def with_weights(trace: Trace, weights: str, group_size: int | None = None, kept: str | None = None) -> Trace:
    """A traced step with the parameters that only products read in another format.

    A parameter that something else reads too, as an embedding that is the last layer's weight, stays as it is.

    Args:
        kept: modules whose parameters stay: names or patterns with commas between them.

    Raises:
        InvalidValue: no parameter can be quantised, or groups do not divide an inner size.
    """
    form = weight_format(weights, group_size)
    names = [name.strip() for name in (kept or "").split(",") if name.strip()]
    stored = {access.block: access for access in trace.parameter_blocks}
    inner = _inner_sizes(trace.operations, stored, names)
    if not inner:
        raise InvalidValue(
            f"weights={weights!r} quantises parameters that products alone read, and this step has none: autocast casts"
            " them first (give dtype bf16 or fp16), an embedding tied to the last layer stays, and so do convolutions"
            + ("" if kept is None else f" and what weights_except={kept!r} names")
        )
    for path, size in inner.values():
        _check_group(form, weights, path, size)
    saved = sum(
        allocated(stored[block].nbytes) - sum(map(allocated, form.sizes(stored[block].elements, size)))
        for block, (_, size) in inner.items()
    )
    memory, made = trace.memory, [_quantised(o, weights, form, inner) for o in trace.operations]
    if memory is not None and memory.peak is not None and memory.parameters is not None:
        memory = replace(memory, peak=memory.peak - saved, parameters=memory.parameters - saved)
    smaller = Counter[str]()
    for block, (path, size) in inner.items():
        smaller[path] += stored[block].nbytes - sum(form.sizes(stored[block].elements, size))
    count, of = sum(stored[block].elements for block in inner), trace.parameters
    last = _of_vocabulary(trace.operations, stored, inner, form) if trace.serving else ""
    return replace(
        trace,
        operations=tuple(made),
        memory=memory,
        held=None if trace.held is None else tuple(held - saved for held in trace.held),
        modules=None if trace.modules is None else tuple(_lighter(one, smaller[one.path]) for one in trace.modules),
        notes=(
            *trace.notes,
            f"weights={weights}: of {of:,} parameters {count:,}, which products alone read, are quantised{last}",
            *_unknown_names(trace, names),
        ),
    )


def _is_in(path: str, name: str) -> bool:
    """True for the module of a name or pattern, which may be the end of its path, and for all that is inside of it."""
    return fnmatchcase(f".{path}.", f"*.{name}.*")


def _unknown_names(trace: Trace, names: Sequence[str]) -> Iterator[str]:
    """A note on names that no module has."""
    paths = {one.path for one in trace.modules or ()} | {operation.path for operation in trace.operations}
    unknown = [name for name in names if not any(_is_in(path, name) for path in paths)]
    if unknown:
        more = f" and {len(unknown) - 3} more names" if len(unknown) > 3 else ""
        yield f"weights_except: no module is called {', '.join(unknown[:3])}{more}"


def _of_vocabulary(
    operations: Iterable[Operation],
    stored: Mapping[int, Access],
    inner: Mapping[int, tuple[str, int]],
    form: WeightFormat,
) -> str:
    """How many of the weights that are quantised make logits, in words: those of a language model's last product."""
    *_, last = (block for operation in operations for block, _ in _weights(operation, stored))
    if last not in inner:  # tied to the embedding, or kept
        return ""
    elements, path = stored[last].elements, inner[last][0]
    told = f", {elements:,} of them in the last layer, {path}"
    return f"{told}, which {form.kept_by} keep in 16 bits: weights_except={path!r} does too" if path else told


def _lighter(module: TracedModule, less: int) -> TracedModule:
    """A module with fewer bytes; unknown where the weights that it reads are not its own."""
    known = module.nbytes is not None and module.nbytes >= less
    return replace(module, nbytes=module.nbytes - less if module.nbytes is not None and known else None)


def _inner_sizes(
    operations: tuple[Operation, ...], stored: Mapping[int, Access], kept: Sequence[str]
) -> dict[int, tuple[str, int]]:
    """By block of the parameters that only products read, a module that reads it and the size that sums go over.

    Those of modules that are `kept` are left out.
    """
    inner: dict[int, tuple[str, int]] = {}
    others: set[int] = set()
    stays = cache(lambda path: any(_is_in(path, name) for name in kept))
    for operation in operations:
        weights = {} if stays(operation.path) else dict(_weights(operation, stored))
        others |= {access.block for access in operation.reads if access.block not in weights}
        others |= {access.block for access in operation.writes}
        for block, name in weights.items():
            tensor = operation.call.tensor(name)
            right = name != _OPERANDS[operation.call.name][0]
            inner.setdefault(block, (operation.path, tensor.shape[-2 if right else -1]))
    return {block: found for block, found in inner.items() if block not in others}


def _weights(operation: Operation, blocks: Mapping[int, object]) -> Iterator[tuple[int, str]]:
    """Block and argument of a product's weights; nothing where it is not known which operand is which."""
    call = operation.call
    operands = [(name, value) for name, value in call.arguments if isinstance(value, Tensor)]
    if call.name not in _OPERANDS or len(operands) != len(operation.reads):
        return
    found = [
        (access.block, name)
        for (name, value), access in zip(operands, operation.reads, strict=True)
        if name in _OPERANDS[call.name]
        and access.block in blocks
        and access.elements == value.elements
        and len(value.shape) > 1
        and value.dtype in _WIDE
    ]
    if len(found) == 1:
        yield found[0]


def _quantised(
    operation: Operation, weights: str, form: WeightFormat, inner: Mapping[int, tuple[str, int]]
) -> Operation:
    """An operation with its weight in a format; itself if it has none that is quantised."""
    for block, name in _weights(operation, inner):
        call, size = operation.call, inner[block][1]
        reads = tuple(
            replace(access, nbytes=sum(form.sizes(access.elements, size))) if access.block == block else access
            for access in operation.reads
        )
        nbytes = next(access.nbytes for access in reads if access.block == block)
        less = next(access.nbytes for access in operation.reads if access.block == block) - nbytes
        arguments = tuple(
            (given, replace(call.tensor(name), dtype=form.dtype, nbytes=nbytes) if given == name else value)
            for given, value in call.arguments
        )
        made = replace(
            call,
            arguments=(*arguments, ("weight_format", weights), ("weights_group_size", form.group)),
            reads=call.reads - less,
            weight_reads=call.weight_reads - less,
        )
        return replace(operation, call=made, reads=reads)
    return operation


def _check_group(form: WeightFormat, weights: str, path: str, inner: int) -> None:
    """Raise InvalidValue for groups that do not divide an inner size."""
    if not form.group or form.flat or inner % form.group == 0:
        return
    fitting = [str(2**n) for n in range(1, 11) if inner % 2**n == 0]
    may = f"weights_group_size may be {', '.join(fitting)}" if fitting and weights != "mxfp4" else "leave weights out"
    stays = f", or weights_except={path!r} leaves it as it is" if path else ""
    raise InvalidValue(
        f"weights={weights!r} has groups of {form.group}, and {path or 'the model'} sums over {inner} weights, which do"
        f" not fall into such groups: {may}{stays}"
    )
