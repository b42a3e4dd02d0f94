"""A single operation as a Step, from its name and the shapes of its tensors.

Names are those of torch's operators (``convolution``, ``mm``, ``aten::layer_norm``), of custom operators with their
namespace (``mylib::gemm``), ``attention``, and the recurrent layers ``lstm``, ``gru`` and ``rnn`` with the arguments of
their modules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils._pytree import tree_map_only

from rooflens.errors import InvalidValue, UnknownName
from rooflens.models.arguments import ABSENT, EXAMPLE, WORDS, Parameter, ValueKind, read_tensor, read_value
from rooflens.models.blueprint import Example
from rooflens.models.load import make_step
from rooflens.models.step import Step, floating_tensors

KINDS: Mapping[str, ValueKind] = {
    "Tensor": "tensor",
    "List[Tensor]": "tensors",
    "List[Optional[Tensor]]": "tensors",
    "int": "int",
    "List[int]": "ints",
    "float": "float",
    "number": "number",
    "bool": "bool",
    "List[bool]": "ints",
    "str": "str",
}
"""By the type in an operator's schema, what an argument is here. Others keep their defaults."""
DEFAULTS: Mapping[str, Any] = {
    "stride": (1,),
    "padding": (0,),
    "dilation": (1,),
    "transposed": False,
    "output_padding": (0,),
    "groups": 1,
    "training": False,
    "momentum": 0.1,
    "eps": 1e-5,
    "cudnn_enabled": True,
    "half_to_float": False,
    "p": 0.5,
    "train": True,
}
"""What modules of torch take where an operator's schema has no default."""
_ATEN = "aten::"
RECURRENT = ("lstm", "gru", "rnn")
_PER_DIMENSION = ("stride", "padding", "dilation", "output_padding")


@dataclass(frozen=True, slots=True)
class Operator:
    """One form of an operation: its parameters, and the function that runs it."""

    name: str
    parameters: tuple[Parameter, ...]
    run: Callable[..., Any]

    def names(self) -> list[str]:
        return [parameter.name for parameter in self.parameters]

    def named(self, name: str) -> str:
        """Return the parameter of a name; hyphens are underscores, and the first tensor may be called input."""
        plain = name.replace("-", "_")
        return "self" if plain == "input" and "input" not in self.names() and "self" in self.names() else plain


def is_operator(name: str) -> bool:
    """True if torch or rooflens has an operation of this name."""
    return bool(_forms(name.removeprefix(_ATEN)))


def operator_names() -> set[str]:
    """Names of all operations."""
    return {"attention", *RECURRENT, *(name for name in dir(torch.ops.aten) if not name.startswith("__"))}


def operator_step(
    name: str, shapes: Sequence[Any], arguments: Mapping[str, Any], *, dtype: str, backward: bool
) -> Step:
    """Return the step that runs one operation.

    Args:
        name: see :func:`operator_names`.
        shapes: of its tensors in the order in which it takes them, less those in `arguments`.
        arguments: by name; shapes are tuples or text like ``32x128:int64``.
        dtype: a word of a case; the type of floating tensors whose shape names none.
        backward: run backward too, with gradients for every floating tensor.

    Raises:
        UnknownName: there is no such operation, or it has no such argument.
        InvalidValue: an argument is missing or cannot be read; what is needed is named.
    """
    name = name.removeprefix(_ATEN)
    if name in RECURRENT:
        return _recurrent_step(name, shapes, arguments, dtype=dtype, backward=backward)
    forms = _forms(name)
    if not forms:
        raise UnknownName("operation", name, operator_names())
    errors = []
    for form in forms:
        try:
            values, tensors = _values(form, _given(form, shapes, arguments), dtype, backward)
        except (InvalidValue, UnknownName) as error:
            errors.append(error)
        else:
            return _step(name, _module(form, values), tuple(tensors), dtype=dtype, backward=backward)
    raise errors[0]


def _forms(name: str) -> list[Operator]:
    """Return the overloads of an operation that shapes and plain values can call."""
    if name in RECURRENT:
        return [Operator(name, _recurrent_parameters(name), getattr(torch.nn, name.upper()))]
    namespace, _, own = name.rpartition("::")
    packet = getattr(torch.ops.aten, "scaled_dot_product_attention" if name == "attention" else name, None)
    if namespace:
        packet = getattr(getattr(torch.ops, namespace), own, None)
    elif packet is None:
        packet = getattr(torch.ops.rooflens, name, None)
    if not isinstance(packet, torch._ops.OpOverloadPacket):
        return []
    return [form for overload in packet.overloads() if (form := _form(name, getattr(packet, overload))) is not None]


def _form(name: str, overload: torch._ops.OpOverload) -> Operator | None:
    """Return one overload, or None if it writes into a given tensor or needs what has no text form."""
    parameters = []
    defaults = {} if "::" in name else DEFAULTS
    for argument in overload._schema.arguments:
        written = str(argument.type)
        optional = written.startswith("Optional[")
        kind = KINDS.get(written.removeprefix("Optional[").removesuffix("]") if optional else written)
        default = argument.default_value if argument.has_default_value() else ABSENT
        if default is ABSENT:
            default = None if optional else defaults.get(argument.name, ABSENT)
        if argument.is_out or (kind is None and default is ABSENT):
            return None
        parameters.append(Parameter(argument.name, kind or "str", default, argument.kwarg_only))
    # These are the functions that the trace answers with one operation, as an accelerator runs them.
    whole: dict[str, Callable[..., Any]] = {
        "attention": functional.scaled_dot_product_attention,
        "scaled_dot_product_attention": functional.scaled_dot_product_attention,
        "dropout": torch.dropout,
    }
    return Operator(name, tuple(parameters), whole.get(name, overload))


def _given(form: Operator, shapes: Sequence[Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments by the operation's own names.

    Raises:
        UnknownName, InvalidValue: one is not known, is missing or is too much.
    """
    given = {form.named(name): value for name, value in arguments.items()}
    for name in given:
        if name not in form.names():
            raise UnknownName(f"argument of {form.name}", name, form.names(), f" (it takes {', '.join(form.names())})")
    places = [p.name for p in form.parameters if p.kind == "tensor" and p.name not in given]
    if len(shapes) > len(places):
        raise InvalidValue(_too_many(form, shapes, places, given))
    given |= dict(zip(places, shapes, strict=False))
    if form.name in ("attention", "scaled_dot_product_attention") and "query" in given:
        given = {"key": given["query"]} | given
        given = {"value": given["key"]} | given
    _refuse_incomplete(form, given)
    return given


def _too_many(form: Operator, shapes: Sequence[Any], places: Sequence[str], given: Mapping[str, Any]) -> str:
    """Say which tensors the shapes are for, and how a list of tensors is given."""
    lists = [p.name for p in form.parameters if p.kind == "tensors" and p.name not in given]
    remedy = "".join(f"; name the list: --{name} 3x4,3x4" for name in lists)
    listed = ", ".join(places) or "none"
    return f"{form.name}: {len(shapes)} shapes for {len(places)} tensors that are not named: {listed}{remedy}"


def _refuse_incomplete(form: Operator, given: Mapping[str, Any]) -> None:
    missing = [p for p in form.parameters if p.needed and p.name not in given]
    if not missing:
        return
    shapes = [p.name for p in missing if p.kind == "tensor"]
    needed = [f"the shape of {', '.join(shapes)} (like {EXAMPLE})"] if shapes else []
    needed += [f"{p.name} ({WORDS[p.kind]})" for p in missing if p.kind != "tensor"]
    others = ", ".join(p.name for p in form.parameters if not p.needed and p.name not in given)
    raise InvalidValue(f"{form.name} needs {', '.join(needed)}{f'; it also takes {others}' if others else ''}")


def _values(
    form: Operator, given: Mapping[str, Any], dtype: str, backward: bool
) -> tuple[dict[str, Any], list[torch.Tensor]]:
    """Return the values of all parameters, and the tensors that they refer to by number.

    Raises:
        InvalidValue: a value cannot be read.
    """
    tensors: list[torch.Tensor] = []

    def place(parameter: Parameter, shape: Any) -> _Place:
        tensors.append(read_tensor(form.name, parameter, shape, dtype, backward))
        return _Place(len(tensors) - 1)

    values: dict[str, Any] = {}
    for parameter in form.parameters:
        value = given.get(parameter.name, parameter.default)
        if value is None or parameter.name not in given:
            values[parameter.name] = value
        elif parameter.kind == "tensor":
            values[parameter.name] = place(parameter, value)
        elif parameter.kind == "tensors":
            shapes = value.split(",") if isinstance(value, str) else value
            values[parameter.name] = [place(parameter, shape) for shape in shapes]
        else:
            values[parameter.name] = read_value(form.name, parameter, value)
    if "convolution" in form.name and "::" not in form.name:
        spatial = tensors[values["weight"].index].dim() - 2
        values = {name: _spread(name, value, spatial) for name, value in values.items()}
    return values, tensors


@dataclass(frozen=True, slots=True)
class _Place:
    """A reference to one of the step's inputs by number."""

    index: int


def _spread(name: str, value: Any, spatial: int) -> Any:
    """Repeat a number for every dimension of a convolution."""
    return [*value] * spatial if name in _PER_DIMENSION and len(value) == 1 else value


def _module(form: Operator, values: Mapping[str, Any]) -> torch.nn.Module:
    """Return a module that calls an operation with these values and its inputs."""
    by_place = [values[p.name] for p in form.parameters if not p.by_name]
    by_name = {p.name: values[p.name] for p in form.parameters if p.by_name}

    class Operation(nn.Module):
        def forward(self, *inputs: torch.Tensor) -> Any:
            args, kwargs = tree_map_only(_Place, lambda place: inputs[place.index], (by_place, by_name))
            return form.run(*args, **kwargs)

    return Operation()


def _step(name: str, module: torch.nn.Module, inputs: tuple[Any, ...], *, dtype: str, backward: bool) -> Step:
    return make_step(
        name,
        module,
        Example(args=inputs),
        dtype=dtype if dtype.startswith("amp-") else "fp32",  # tensors have their types already
        mode="train" if backward else "inference",
        loss=_sum_of_squares,
        optimizer="none",
    )


def _sum_of_squares(output: Any, targets: Any) -> torch.Tensor:
    """Sum of squares, whose gradients are as large as the outputs; a plain sum has one number, stored once."""
    total = torch.zeros(())
    for tensor in floating_tensors(output):
        total = total + (tensor * tensor.conj()).real.sum() if tensor.is_complex() else total + tensor.square().sum()
    return total


def _recurrent_parameters(name: str) -> tuple[Parameter, ...]:
    """Parameters of a recurrent module, without the input's width, which its shape gives."""
    own = {"lstm": Parameter("proj_size", "int", 0), "rnn": Parameter("nonlinearity", "str", "tanh")}.get(name)
    return (
        Parameter("input", "tensor"),
        Parameter("hidden_size", "int"),
        Parameter("num_layers", "int", 1),
        Parameter("bias", "bool", True),
        Parameter("batch_first", "bool", False),
        Parameter("dropout", "float", 0.0),
        Parameter("bidirectional", "bool", False),
        *((own,) if own else ()),
    )


def _recurrent_step(
    name: str, shapes: Sequence[Any], arguments: Mapping[str, Any], *, dtype: str, backward: bool
) -> Step:
    """Return the step of a recurrent layer, built as a module, whose sizes give its weights."""
    (form,) = _forms(name)
    given = _given(form, shapes, arguments)
    values, (inputs,) = _values(form, given, dtype, backward)
    del values["input"]
    if inputs.dim() != 3:
        raise InvalidValue(f"{name}: the input is {'x'.join(map(str, inputs.shape))}; it is steps x batch x features")
    try:
        module = form.run(inputs.shape[-1], **values, device="meta", dtype=inputs.dtype)
    except ValueError as error:
        raise InvalidValue(f"{name}: {error}") from error
    directions, batch = 1 + values["bidirectional"], inputs.shape[0 if values["batch_first"] else 1]
    widths = [values.get("proj_size") or values["hidden_size"], *([values["hidden_size"]] if name == "lstm" else [])]
    # First states are inputs, as in a model that keeps them: the layer would fill some with zeros otherwise.
    states = tuple(inputs.new_empty(values["num_layers"] * directions, batch, width) for width in widths)
    return _step(name, module, (inputs, states if name == "lstm" else states[0]), dtype=dtype, backward=backward)
