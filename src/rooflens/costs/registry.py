"""Which formula serves which operation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from rooflens.errors import InvalidValue, class_of, first_line
from rooflens.plugins import OPERATIONS, plugins
from rooflens.records import AS_IS, PHASES, Call, Cause, Device, Floor, Phase, Traffic, Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What a formula returns.

    Attributes:
        flops: FLOP per resource.
        bytes: DRAM bytes; None where the call's distinct inputs and outputs are what moves.
        kernel_flops: FLOP that a kernel executes where that is less than what is counted (causal attention).
        need: what every implementation needs, where this one does more.
        missing: operations without a formula among those that the call stands for: the FLOP are a lower bound.
    """

    flops: Mapping[str, float] = field(default_factory=dict)
    bytes: float | None = None
    kernel_flops: Mapping[str, float] | None = None
    need: Need | None = None
    missing: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """What every implementation needs of an operation, where the code as written does more.

    Attributes:
        flops: FLOP per resource; None where they are those that its kernel executes.
        bytes: DRAM bytes; None where they are those of the operation.
        cause: why the code does more.
        formula: how the numbers follow from sizes, in one sentence.
    """

    flops: Mapping[str, float] | None = field(default=None, hash=False)
    bytes: float | None = None
    cause: Cause
    formula: str = ""

    def of(self, work: Work, arithmetic: Arithmetic, family: str) -> Floor:
        """The floor of a call whose kernel executes `work`."""
        flops = work.flops if self.flops is None else _in_precision(self.flops, arithmetic.of(family))
        moved = work.bytes if self.bytes is None else {"dram": min(self.bytes, work.bytes["dram"])}
        return Floor(work=replace(work, flops=flops, bytes=moved), cause=self.cause, formula=self.formula)


class Uncounted(Exception):
    """A formula does not hold for this call; the operation is listed as uncounted."""


Formula = Callable[[Call], Demand]


@dataclass(frozen=True, slots=True)
class RegisteredFormula:
    """A formula, and the phases in which its operation runs where nothing is recomputed; `custom` if a user's."""

    family: str
    formula: Formula
    phases: frozenset[Phase] = frozenset(PHASES)
    custom: bool = False


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """What torch's switches make of fp32 operands.

    Attributes:
        products: precision in which fp32 matrix products run (``fp32`` or ``tf32``).
        convolutions: the same for cuDNN's convolutions and recurrent layers.
    """

    products: str = "fp32"
    convolutions: str = "fp32"

    def of(self, family: str) -> str:
        return self.convolutions if family in ("convolution", "recurrent") else self.products


def arithmetic_of(dtype: str, device: Device | None) -> Arithmetic:
    """The precision of products on fp32 tensors under a case's dtype.

    ``default`` (and a module left as it is) follows torch's own switches: TF32 for cuDNN's convolutions and recurrent
    layers, fp32 for products; a device without TF32 computes both in fp32.
    """
    if dtype == "tf32":
        return Arithmetic(products="tf32", convolutions="tf32")
    if dtype in ("default", AS_IS) and (device is None or device.ceiling("matmul.tf32") is not None):
        return Arithmetic(convolutions="tf32")
    return Arithmetic()


@dataclass(frozen=True, slots=True)
class Cost:
    """Family and work of one call; `kernel_work` where a kernel executes less than is counted; `floor` of a record."""

    family: str
    work: Work
    kernel_work: Work | None = None
    floor: Floor | None = None


ENTRIES: dict[str, RegisteredFormula] = {}
"""By name: filled by the modules of the families, which the package imports. Custom operators have their namespace."""


@dataclass(slots=True)
class _Plugins:
    """The formulas of other packages: they are registered once, and what their modules import may come back here."""

    asked: bool = False

    def load(self) -> None:
        if not self.asked:
            self.asked = True
            list(plugins(OPERATIONS, lambda plugin: plugin() if callable(plugin) else plugin))


_PLUGINS = _Plugins()


def register(family: str, *names: str) -> Callable[[Formula], Formula]:
    """Register a formula for operations of a family; registering a name twice is an error."""

    def add(formula: Formula) -> Formula:
        for name in names:
            if name in ENTRIES:
                raise ValueError(f"operation {name!r} has a formula already, in family {ENTRIES[name].family!r}")
            ENTRIES[name] = RegisteredFormula(family, formula)
        return formula

    return add


def entry_of(name: str) -> RegisteredFormula | None:
    """The formula of an operation: in-place, foreach and functional forms share that of the plain one."""
    load_plugins()
    plain = name.removeprefix("_foreach_").rstrip("_") if name.startswith("_foreach_") else name.removesuffix("_")
    plain = plain.removesuffix("_functional")
    return ENTRIES.get(name) or ENTRIES.get(plain)


def load_plugins() -> None:
    """Let other packages register their formulas, if they have not yet."""
    _PLUGINS.load()


def is_custom(qualified: str) -> bool:
    """True if somebody registered a formula for this operator, given with its namespace."""
    load_plugins()
    return "::" in qualified and qualified in ENTRIES


def runs_in(name: str, phase: Phase) -> bool:
    """True if an operation runs in a phase where nothing is recomputed."""
    entry = entry_of(name)
    return entry is None or phase in entry.phases


def families() -> dict[str, tuple[str, ...]]:
    """The operations that have a formula, by family."""
    listed: dict[str, list[str]] = {}
    for name, entry in ENTRIES.items():
        listed.setdefault(entry.family, []).append(name)
    return {family: tuple(sorted(names)) for family, names in sorted(listed.items())}


def family_of(name: str) -> str:
    """The family of an operation, ``other`` if it has no formula."""
    entry = entry_of(name)
    return "other" if entry is None else entry.family


@lru_cache(maxsize=100_000)
def cost(call: Call, arithmetic: Arithmetic = Arithmetic()) -> Cost:
    """The work of a call. Equal calls share the answer."""
    return evaluate(call, arithmetic)


def evaluate(call: Call, arithmetic: Arithmetic) -> Cost:
    """The work of a call; sizes may be plain integers or spelled ones.

    Raises:
        InvalidValue: the formula of a custom operator fails; the message names the operator.
    """
    entry = entry_of(call.name)
    moved: dict[str, float] = {"dram": call.reads + call.writes}
    if entry is None:
        return Cost("other", Work(bytes=moved, missing=frozenset({call.name})))
    try:
        return _counted(entry, call, moved, arithmetic)
    except Uncounted:
        return Cost(entry.family, Work(bytes=moved, missing=frozenset({call.name})))
    except Exception as error:  # the code of a stranger may raise anything
        if not entry.custom:
            raise
        reason = f"{class_of(error)}: {first_line(error)}"
        raise InvalidValue(f"the formula registered for {call.name!r} fails: {reason}") from error


def _counted(entry: RegisteredFormula, call: Call, moved: dict[str, float], arithmetic: Arithmetic) -> Cost:
    """What a formula says of a call that moves these bytes, unless the formula says otherwise."""
    demand = entry.formula(call)
    if demand.bytes is not None:
        moved = {"dram": demand.bytes}
    precision = arithmetic.of(entry.family)
    work = Work(flops=_in_precision(demand.flops, precision), bytes=moved, missing=demand.missing)
    executed = None
    if demand.kernel_flops is not None:
        executed = Work(flops=_in_precision(demand.kernel_flops, precision), bytes=moved)
    floor = None if demand.need is None else demand.need.of(executed or work, arithmetic, entry.family)
    return Cost(entry.family, work, executed, floor)


def traffic(call: Call, nbytes: float) -> Traffic:
    """The DRAM bytes of a call, by what is moved: outputs, inputs, and the rest is weights.

    Where a formula lets a call move less than it touches (a gather, an argument that is not read), weights are what is
    left of `nbytes`. Where it lets it move more (a loop), what it reads again counts as inputs.
    """
    outputs = min(call.writes, nbytes)
    inputs = min(call.reads - call.weight_reads, nbytes - outputs)
    weights = min(call.weight_reads, nbytes - outputs - inputs)
    return Traffic(weights=weights, inputs=nbytes - outputs - weights, outputs=outputs)


def _in_precision(flops: Mapping[str, float], precision: str) -> dict[str, float]:
    """Matrix work on fp32 operands in the precision that the switches give it; empty demands left out."""
    return {f"matmul.{precision}" if resource == "matmul.fp32" else resource: n for resource, n in flops.items() if n}
