"""What a call of a module did, and what two calls of equal modules have in common."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from rooflens.records import Access, Operation
from rooflens.trace.equal_modules import Same, frozen, own_tensors, places
from rooflens.trace.lifetimes import Lifetimes, MadeBlock
from rooflens.trace.recorder import Counts

BlockRole = tuple[Literal["made", "own", "given", "state", "other"], int]
"""Whose a block of memory is, and which one: the call's, the module's, an argument's, the module's part of a cache; any
other block keeps its number."""


Seen = TypeVar("Seen")


class Unlike(Exception):
    """What equal modules did is not the same, or more than can be told: each has to run."""


class NotRepeated(Exception):
    """What a layer took over from another one cannot be all that it does: the step has to be run without that."""


@dataclass(frozen=True, slots=True)
class Touched:
    """Memory that an operation reads or writes, as an :class:`Access`."""

    role: BlockRole
    nbytes: int
    elements: int


@dataclass(frozen=True, slots=True)
class SeenOperation:
    """An operation, with its path below that of the module that was called."""

    operation: Operation
    layout: Hashable
    path: str
    reads: tuple[Touched, ...]
    writes: tuple[Touched, ...]
    held: int

    @property
    def beside_memory(self) -> Hashable:
        """What it is, whichever memory it touches in whichever module."""
        return replace(self.operation, path=""), self.layout, self.path, self.held


@dataclass(frozen=True, slots=True)
class NewTensor:
    """A tensor that a call returned, whole and dense, in the block that was made as number `made`; None is not seen."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    made: int | None

    def is_like(self, tensor: Tensor) -> bool:
        """True if a tensor has the same sizes, in a block of its own."""
        whole = tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()
        return whole and (tuple(tensor.shape), tensor.stride(), tensor.dtype) == (self.shape, self.strides, self.dtype)

    def new(self, like: FakeTensor) -> Tensor:
        """Return another such tensor."""
        with torch.utils._mode_utils.no_dispatch(), torch._C.DisableTorchFunction():
            meta = torch.empty_strided(self.shape, self.strides, dtype=self.dtype, device="meta")
            return FakeTensor(like.fake_mode, meta, like.fake_device)


@dataclass(frozen=True, slots=True)
class HandedBack:
    """A leaf among a call's arguments that it returned as it is."""

    place: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenCall:
    """What a call of a module did.

    Attributes:
        path: of the module.
        operations: in order; `begin` is the place of the first among those of the step.
        made: the blocks that it made.
        first: number of the first of these.
        moments: from its begin to its end.
        died: when older blocks died, by role.
        views, module_calls: how many, by path below the module's and phase.
        output: what it returned, with :class:`NewTensor` and :class:`HandedBack` in place of its leaves.
        untouched: numbers of the blocks of its part of a cache that no operation of it reads or writes.
        states: numbers of the blocks of its part of a cache, which differ from call to call.
    """

    path: str
    operations: tuple[SeenOperation, ...]
    begin: int
    made: tuple[MadeBlock, ...]
    first: int
    moments: int
    died: tuple[tuple[BlockRole, int], ...]
    views: Counts
    module_calls: Counts
    output: Any
    untouched: tuple[int, ...] = field(compare=False)
    states: tuple[int, ...] = field(default=(), compare=False)

    @property
    def beside_operations(self) -> tuple[Any, ...]:
        """What it did besides its operations, whichever module was called in whichever place of the step."""
        return self.made, self.moments, self.views, self.module_calls, self.output

    @property
    def returned(self) -> frozenset[int]:
        """The blocks that it returned, of those that it made."""
        results = (leaf.made for leaf in leaves(self.output) if isinstance(leaf, NewTensor))
        return frozenset(made for made in results if made is not None)

    @property
    def kept(self) -> tuple[int, ...]:
        """The blocks that it made and that outlive it, though it did not return them."""
        return tuple(n for n, block in enumerate(self.made) if block.death is None and n not in self.returned)


def shared(one: SeenCall, other: SeenCall, lifetimes: Lifetimes) -> SeenCall:
    """Return what two calls did in the same way: the second, with its part of a cache told from what others use too.

    Raises:
        Unlike: they did not do the same.
    """
    matching = _Matching(lifetimes)
    operations = tuple(_each(matching.operation, one.operations, other.operations))
    died = tuple(_each(matching.death, one.died, other.died))
    untouched = tuple(_each(matching.untouched, one.untouched, other.untouched))
    if one.beside_operations != other.beside_operations:
        raise Unlike
    return replace(other, operations=operations, died=died, untouched=untouched, states=matching.states())


def _each(match: Callable[[Seen, Seen], Seen], ones: Sequence[Seen], others: Sequence[Seen]) -> Iterator[Seen]:
    if len(ones) != len(others):
        raise Unlike
    yield from map(match, ones, others)


class _Matching:
    """Matches what two calls did, and finds the blocks that each has for itself in a cache."""

    def __init__(self, lifetimes: Lifetimes) -> None:
        self._blocks = lifetimes.blocks
        self._states: dict[tuple[int, int], int] = {}

    def states(self) -> tuple[int, ...]:
        """The blocks of the second call."""
        for side in zip(*self._states, strict=True):
            if len(set(side)) < len(side):
                raise Unlike
        return tuple(block for _, block in self._states)

    def operation(self, one: SeenOperation, other: SeenOperation) -> SeenOperation:
        if one.beside_memory != other.beside_memory:
            raise Unlike
        reads, writes = (
            tuple(_each(self._access, mine, theirs))
            for mine, theirs in ((one.reads, other.reads), (one.writes, other.writes))
        )
        return replace(other, reads=reads, writes=writes)

    def untouched(self, one: int, other: int) -> int:
        self._role(("other", one), ("other", other))
        return other

    def death(self, one: tuple[BlockRole, int], other: tuple[BlockRole, int]) -> tuple[BlockRole, int]:
        role = self._role(one[0], other[0])
        if role[0] != "state" or one[1] != other[1]:  # an argument is let go by the caller alone
            raise Unlike
        return role, one[1]

    def _access(self, one: Touched, other: Touched) -> Touched:
        if (one.nbytes, one.elements) != (other.nbytes, other.elements):
            raise Unlike
        return replace(other, role=self._role(one.role, other.role))

    def _role(self, one: BlockRole, other: BlockRole) -> BlockRole:
        if one == other:
            return one
        if one[0] != "other" or other[0] != "other" or min(one[1], other[1]) < 0:
            raise Unlike
        mine, theirs = self._blocks[one[1]], self._blocks[other[1]]
        if {mine.cause, theirs.cause} != {"kv_cache"} or mine.nbytes != theirs.nbytes:
            raise Unlike
        return "state", self._states.setdefault((one[1], other[1]), len(self._states))


class CallArguments:
    """The arguments of a call."""

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.leaves = list(leaves((args, kwargs)))
        self._form = _form((args, kwargs))

    def kind(self, places_known: frozenset[int], first: bool) -> Hashable:
        """Return what calls share that give arguments of the same sizes.

        Args:
            places_known: places in a stack that the called module knows.
            first: a cache is as it was when the step began, and says which kind of part it has for the module.
        """
        storages: dict[int, int] = {}
        told = tuple(_told(leaf, storages) for leaf in self.leaves)
        parts = tuple(_parts(leaf, places_known) for leaf in self.leaves) if first else ()
        return self._form, told, parts

    @property
    def fake(self) -> FakeTensor | None:
        """A fake tensor among them."""
        return next((leaf for leaf in self.leaves if type(leaf) is FakeTensor), None)

    def place_of(self, leaf: object) -> int | None:
        return next((n for n, given in enumerate(self.leaves) if given is leaf), None)


def leaves(structure: Any) -> Iterator[Any]:
    """Yield what stands in nested tuples, lists and dicts."""
    if type(structure) in (tuple, list):
        for item in structure:
            yield from leaves(item)
    elif type(structure) is dict:
        for item in structure.values():
            yield from leaves(item)
    else:
        yield structure


def rebuilt(structure: Any, made: Any) -> Any:
    """Return the structure with what `made` gives for each of its leaves."""
    if type(structure) in (tuple, list):
        return type(structure)(rebuilt(item, made) for item in structure)
    if type(structure) is dict:
        return {name: rebuilt(item, made) for name, item in structure.items()}
    return made(structure)


def _form(structure: Any) -> Hashable:
    if type(structure) in (tuple, list):
        return type(structure), tuple(map(_form, structure))
    if type(structure) is dict:
        return dict, tuple((name, _form(item)) for name, item in structure.items())
    return None


def _told(leaf: Any, storages: dict[int, int]) -> Hashable:
    if type(leaf) is not FakeTensor or leaf.constant is not None or leaf.layout is not torch.strided:
        return Same(leaf) if isinstance(leaf, Tensor) else frozen(leaf)
    storage = leaf.untyped_storage()
    place = storages.setdefault(storage._cdata, len(storages))
    strides, offset = leaf.stride(), leaf.storage_offset()
    return tuple(leaf.shape), strides, offset, leaf.dtype, leaf.requires_grad, storage.nbytes(), place


def _parts(leaf: object, places_known: frozenset[int]) -> Hashable:
    """What a cache says of its parts for a module: their classes and what they are set to."""
    parts = _parts_of(leaf, places_known)
    return tuple((type(part), tuple((k, frozen(v)) for k, v in vars(part).items())) for part in parts)


def _parts_of(leaf: object, places_known: frozenset[int]) -> list[Any]:
    """The parts of a cache for a module; none of anything else."""
    if isinstance(leaf, Tensor | nn.Module) or not hasattr(leaf, "__dict__"):
        return []
    inside = [leaf, *(value for value in vars(leaf).values() if hasattr(value, "__dict__"))]
    stacks = [stack for one in inside if isinstance(stack := vars(one).get("layers"), list)]
    return [stack[place] for stack in stacks for place in sorted(places_known) if place < len(stack)]


def cached_tensors(module: nn.Module, given: CallArguments) -> Iterator[Tensor]:
    """Yield the tensors in a module's part of a cache among its arguments."""
    known = places(module)
    for leaf in given.leaves:
        for part in _parts_of(leaf, known):
            yield from (value for value in leaves(list(vars(part).values())) if isinstance(value, Tensor))


def output_of(structure: Any, given: CallArguments, first: int | None, lifetimes: Lifetimes) -> Any:
    """Return what a call returned, described.

    Args:
        first: number of the first block that the call made; None where blocks are not followed.

    Raises:
        Unlike: something in it cannot be made again from a description.
    """
    storages = {leaf.untyped_storage()._cdata for leaf in given.leaves if type(leaf) is FakeTensor}

    def described(leaf: Any) -> Any:
        place = given.place_of(leaf) if isinstance(leaf, Tensor) or hasattr(leaf, "__dict__") else None
        if place is not None:
            return HandedBack(place)
        if not isinstance(leaf, Tensor):
            if leaf is None or isinstance(leaf, bool | int | float | str):
                return leaf
            raise Unlike
        whole = type(leaf) is FakeTensor and leaf.layout is torch.strided and leaf.constant is None
        if not whole or leaf.requires_grad or leaf.numel() * leaf.element_size() != leaf.untyped_storage().nbytes():
            raise Unlike
        number, storage = lifetimes.number(leaf), leaf.untyped_storage()._cdata
        if given.fake is None or storage in storages or (number >= 0 if first is None else number < first):
            raise Unlike
        storages.add(storage)
        return NewTensor(tuple(leaf.shape), leaf.stride(), leaf.dtype, None if first is None else number - first)

    return rebuilt(structure, described)


def roles_in(module: nn.Module, given: CallArguments, lifetimes: Lifetimes) -> dict[int, BlockRole]:
    """Return the roles of the blocks of a module's tensors and of its arguments, by number."""
    roles: dict[int, BlockRole] = {}
    for n, leaf in enumerate(given.leaves):
        if isinstance(leaf, Tensor):
            roles.setdefault(lifetimes.number(leaf), ("given", n))
    for n, tensor in enumerate(own_tensors(module)):
        roles[lifetimes.number(tensor)] = ("own", n)
    return roles


def touched_by(accesses: Sequence[Access], roles: dict[int, BlockRole], first: int) -> tuple[Touched, ...]:
    """Return the memory behind some accesses by role."""

    def role(block: int) -> BlockRole:
        return ("made", block - first) if block >= first else roles.get(block, ("other", block))

    return tuple(Touched(role(a.block), a.nbytes, a.elements) for a in accesses)
