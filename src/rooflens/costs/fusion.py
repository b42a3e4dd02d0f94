"""DRAM bytes under an assumption about fusion: what operations that run as one kernel read and write.

``none``: every operation reads its inputs and writes its outputs, as eager PyTorch does. ``pointwise``: element-wise
operations, casts, dropout and fills join each other and the normalisation, softmax or reduction beside them, as
compilers do; what is made and used inside of a group does not leave the chip. ``attention``: besides, attention that is
written out (product, softmax, product) is one group, forward and backward, so that its matrix of weights never reaches
memory.

A group is never joined through an operation outside of it: that operation would have to run in its middle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from rooflens.costs.registry import Need, family_of
from rooflens.records import Access, Cause, Operation, Tensor
from rooflens.runs.options import Fusion

_POINTWISE = frozenset({"elementwise", "dropout", "fill"})
_CASTS = frozenset({"_to_copy", "clone", "copy_"})
_ANCHORS = frozenset({"normalization", "softmax", "reduction"})
_SOFTMAX = frozenset({"_softmax", "_safe_softmax"})
_PRODUCTS = frozenset({"bmm", "baddbmm"})
_OPEN = 512
"""Operations after its first one in which a group may still grow: fusion is local, so histories are short."""

BlockVersion = tuple[int, int]
"""A block of memory and how often it has been written: in-place operations make a new value."""


@dataclass(slots=True)
class _Node:
    """An operation in the flow of values."""

    operation: Operation
    index: int
    reads: list[tuple[BlockVersion, Access]]
    writes: list[tuple[BlockVersion, Access]]
    group: int
    after: frozenset[int] = frozenset()


@dataclass(slots=True)
class _ValueFlow:
    """Which operation makes a value, and which ones use it."""

    nodes: list[_Node]
    makers: dict[BlockVersion, _Node] = field(default_factory=dict)
    users: dict[BlockVersion, list[_Node]] = field(default_factory=dict)


def fused_bytes(operations: Sequence[Operation], lasting: frozenset[int], fusion: Fusion) -> dict[int, int]:
    """DRAM bytes, by index, of the operations that share a kernel; the others move what their formula says.

    Args:
        operations: in order, with the memory that they read and write.
        lasting: blocks that are used after the last operation.

    A group's first reader of a value is charged with it, and the maker with what leaves the group.
    """
    if fusion == "none":
        return {}
    flow = _flow(operations)
    _join_pointwise(flow)
    if fusion == "attention":
        _join_attention(flow)
    return dict(_charges(flow, lasting))


def attention_bytes(operations: Sequence[Operation]) -> dict[int, int]:
    """DRAM bytes, by index, of attention that is written out, as of one kernel: its matrix stays on the chip."""
    flow = _flow(operations)
    _join_attention(flow)
    return dict(_charges(flow, frozenset()))


def attention_groups(operations: Sequence[Operation]) -> dict[int, int]:
    """The number of an attention that is written out, by index of its operations."""
    flow = _flow(operations)
    _join_attention(flow)
    sizes = Counter(node.group for node in flow.nodes)
    return {node.index: node.group for node in flow.nodes if sizes[node.group] > 1}


def optimizer_needs(operations: Sequence[Operation], lasting: frozenset[int]) -> dict[int, Need]:
    """What every form of the optimizer needs, by index: each tensor read once, written once if it lasts.

    The foreach form goes over its tensors several times; a fused kernel does not, and what one pass leaves in a cache
    the next one finds there.

    Args:
        operations: in order, of all phases; lasting: blocks that are used after the last operation.
    """
    indices = [index for index, operation in enumerate(operations) if operation.phase == "optimizer"]
    flow = _flow([operations[index] for index in indices])
    for node in flow.nodes:
        node.group = 0
    return {indices[place]: _one_pass(nbytes) for place, nbytes in _charges(flow, lasting)}


def _one_pass(nbytes: int) -> Need:
    """What one operation moves of an optimizer's single pass; what moves nothing computes while others move."""
    cause: Cause = "optimizer passes"
    if not nbytes:
        formula = "In one pass that reads and writes each tensor once, this moves nothing, and computes meanwhile."
        return Need(flops={}, bytes=0, cause=cause, formula=formula)
    formula = f"In one pass that reads and writes each tensor once, this moves {nbytes:,} B."
    return Need(bytes=nbytes, cause=cause, formula=formula)


def _flow(operations: Sequence[Operation]) -> _ValueFlow:
    flow = _ValueFlow(nodes=[])
    versions: dict[int, int] = {}
    for index, operation in enumerate(operations):
        reads = [((r.block, versions.get(r.block, 0)), r) for r in _reads(operation)]
        for access in operation.writes:
            versions[access.block] = versions.get(access.block, 0) + 1
        writes = [((r.block, versions[r.block]), r) for r in operation.writes]
        node = _Node(operation, index, reads, writes, group=index)
        flow.nodes.append(node)
        for value, _ in reads:
            flow.users.setdefault(value, []).append(node)
        for value, _ in writes:
            flow.makers[value] = node
    return flow


def _reads(operation: Operation) -> Sequence[Access]:
    """What an operation reads: a copy takes its target, which comes first, and overwrites it."""
    reads, target = operation.reads, operation.writes[:1]
    return reads[1:] if operation.call.name == "copy_" and reads[:1] == target else reads


def _kind(operation: Operation) -> str:
    """``pointwise``, ``anchor`` (reads and writes its elements in one pass with its neighbours) or nothing."""
    family = family_of(operation.call.name)
    if family in _POINTWISE or operation.call.name in _CASTS:
        return "pointwise"
    return "anchor" if family in _ANCHORS else ""


def _elements(node: _Node) -> int:
    """Size of the iteration: elements of the largest tensor that is read or written."""
    return max((r.elements for _, r in (*node.reads, *node.writes)), default=0)


def _join_pointwise(flow: _ValueFlow) -> None:
    anchored: set[int] = set()
    for node in flow.nodes:
        makers = [(flow.makers.get(value), access) for value, access in node.reads]
        history = frozenset[int]().union(*(m.after for m, _ in makers if m is not None))
        kind = _kind(node.operation)
        for maker, access in makers if kind else ():
            if maker is None or not _kind(maker.operation) or maker.group in history:
                continue
            same = _elements(maker) == _elements(node) == access.elements
            crowded = kind == "anchor" and maker.group in anchored
            if same and not crowded and maker.operation.phase == node.operation.phase:
                node.group = maker.group
                break
        if kind == "anchor":
            anchored.add(node.group)
        outside = {m.group for m, _ in makers if m is not None and m.group != node.group}
        node.after = frozenset(group for group in history | outside if node.index - group < _OPEN)


def _join_attention(flow: _ValueFlow) -> None:
    """Put product, softmax and product into one group, with what is element-wise between them, and backward likewise.

    Backward's group is forward's: the matrix of weights is made again there, so that it never leaves the chip.
    """
    halves: dict[int, list[_Node]] = {}
    for node in flow.nodes:
        name = node.operation.call.name
        if name in _SOFTMAX:
            halves[node.group] = _around(flow, node)
            _absorb(halves[node.group], node.group)
        elif name == "_softmax_backward_data":
            forward = flow.makers.get(_value_of(node, "output"))
            if forward is not None:
                half = halves.get(forward.group, [])
                _absorb([*_around(flow, node), *_users_in_backward(flow, half, _elements(node))], forward.group)


def _value_of(node: _Node, argument: str) -> BlockVersion:
    """The value given as `argument`; accesses stand in the order of the tensors among the arguments."""
    names = [name for name, value in node.operation.call.arguments if isinstance(value, Tensor)]
    return node.reads[names.index(argument)][0]


def _around(flow: _ValueFlow, softmax: _Node) -> list[_Node]:
    """A softmax, the products that make its input and use its output, and what is between.

    That is element-wise, joins a column (of sinks) to the matrix, or finds the maximum of each row.
    """
    size = _elements(softmax)
    members = {softmax.index: softmax}
    for step in (_up, _down):
        waiting = [softmax]
        while waiting:
            for near in step(flow, waiting.pop(), size):
                if near.index not in members:
                    members[near.index] = near
                    if near.operation.call.name not in _PRODUCTS:
                        waiting.append(near)
    between = [node for node in members.values() if node.operation.call.name not in _PRODUCTS]
    return [*members.values(), *(near for node in between for near in _down(flow, node, size, _of_a_row))]


def _users_in_backward(flow: _ValueFlow, half: list[_Node], size: int) -> Iterator[_Node]:
    """Operations of backward that use the matrices of forward's half."""
    for maker in half:
        for value, access in maker.writes:
            for user in flow.users.get(value, ()) if access.elements == size else ():
                if user.operation.phase != maker.operation.phase and _fits(user, user):
                    yield user


def _absorb(members: list[_Node], group: int) -> None:
    """One group for all, if they hold attention's two products."""
    if sum(member.operation.call.name in _PRODUCTS for member in members) > 1:
        for member in members:
            member.group = group


def _fits(near: _Node, node: _Node) -> bool:
    name, same_phase = near.operation.call.name, near.operation.phase == node.operation.phase
    return same_phase and (name in _PRODUCTS or name == "cat" or _kind(near.operation) == "pointwise")


def _of_a_row(near: _Node, node: _Node) -> bool:
    return near.operation.phase == node.operation.phase and family_of(near.operation.call.name) == "reduction"


def _is_matrix(access: Access, size: int) -> bool:
    """True of the matrix of weights, which a column may be joined to; with one key it is as large as the column."""
    return size <= 2 * access.elements <= 2 * size


def _up(flow: _ValueFlow, node: _Node, size: int) -> Iterator[_Node]:
    for value, access in node.reads:
        maker = flow.makers.get(value)
        if maker is not None and _is_matrix(access, size) and _fits(maker, node):
            yield maker


def _down(flow: _ValueFlow, node: _Node, size: int, fits: Callable[[_Node, _Node], bool] = _fits) -> Iterator[_Node]:
    for value, access in node.writes:
        if _is_matrix(access, size):
            yield from (user for user in flow.users.get(value, ()) if fits(user, node))


def _charges(flow: _ValueFlow, lasting: frozenset[int]) -> Iterator[tuple[int, int]]:
    sizes = Counter(node.group for node in flow.nodes)
    final = {value[0]: value for node in flow.nodes for value, _ in node.writes}
    fetched: set[tuple[int, str, BlockVersion]] = set()
    for node in flow.nodes:
        if sizes[node.group] == 1:
            continue
        nbytes = 0
        for value, access in node.reads:
            maker = flow.makers.get(value)
            inside = maker is not None and maker.group == node.group
            fetch = (node.group, node.operation.phase, value)
            if not inside and fetch not in fetched:
                fetched.add(fetch)
                nbytes += access.nbytes
        for value, access in node.writes:
            kept = value[0] in lasting and final[value[0]] == value
            if kept or any(user.group != node.group for user in flow.users.get(value, ())):
                nbytes += access.nbytes
        yield node.index, nbytes
