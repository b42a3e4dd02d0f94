"""What a model and its inputs hold, in whatever object: it counts, and it is as it was afterwards."""

from __future__ import annotations

from collections import OrderedDict, UserDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple

import pytest
import torch
from torch import Tensor, nn

import rooflens as rl
from rooflens.records import Memory


def memory_of(*arguments: Any, **options: Any) -> Memory:
    memory = rl.estimate(*arguments, **options).memory
    assert memory is not None
    return memory


X = torch.ones(8, 64)  # 2048 B, as every tensor here of that shape
BYTES = 2048


class Plain:
    x: Any

    def __init__(self, **given: Any) -> None:
        self.__dict__.update(given)


class Slotted:
    __slots__ = ("later", "x")

    def __init__(self, x: Any) -> None:
        self.x = x


@dataclass(frozen=True, slots=True)
class Frozen:
    x: Any
    later: list[Any] = field(default_factory=list)


class OwnDict(dict[str, Any]):
    """A dict that torch does not look into."""


class Pair(NamedTuple):
    x: Any
    later: list[Any]


def found(holder: Any) -> Tensor:
    """The tensor in a holder, however deep."""
    while not isinstance(holder, Tensor):
        if isinstance(holder, dict | UserDict):
            holder = holder["x"]
        elif isinstance(holder, list | deque) or type(holder) is tuple:
            holder = holder[0]
        elif isinstance(holder, partial):
            holder = holder.args[0]
        else:
            holder = holder.x
    return holder


HOLDERS: dict[str, Callable[[Tensor], Any]] = {
    "object": lambda t: Plain(x=t),
    "object in an object": lambda t: Plain(x=[Plain(x={"x": (t,)})]),
    "slots": Slotted,
    "frozen dataclass": Frozen,
    "namespace": lambda t: SimpleNamespace(x=t),
    "own dict": lambda t: OwnDict(x=t),
    "user dict": lambda t: UserDict(x=t),
    "ordered dict": lambda t: OrderedDict(x=t),
    "default dict": lambda t: defaultdict(list, x=t),
    "deque": lambda t: deque([t], maxlen=1),
    "tuple": lambda t: (t, "name"),
    "named tuple": lambda t: Pair(t, []),
    "list of objects": lambda t: [Plain(x=t)],
    "partial of an object": lambda t: partial(print, Plain(x=t)),
}


class Adds(nn.Module):
    """Adds what its input holds to what it holds itself."""

    def __init__(self, own: Any) -> None:
        super().__init__()
        self.own = own

    def forward(self, given: Any) -> Tensor:
        return found(self.own) + found(given)


@pytest.mark.parametrize("name", HOLDERS)
def test_what_an_object_holds_counts_by_its_cause_and_in_its_type(name: str) -> None:
    """An input of 2048 B, 2048 B of the module's own, and a result."""
    own, given = HOLDERS[name](torch.ones(8, 64)), HOLDERS[name](torch.ones(8, 64))
    memory = memory_of(Adds(own), inputs=(given,))
    assert (memory.buffers, memory.inputs, memory.peak) == (BYTES, BYTES, 3 * BYTES)
    # In bf16 all three are half as large.
    assert memory_of(Adds(own), inputs=(given,), dtype="bf16").peak == 3 * BYTES // 2
    for holder in (own, given):
        assert type(found(holder)) is Tensor
        assert found(holder).dtype is torch.float32


def stores(holder: Any, value: Any) -> None:
    """Leave a value behind, as models do that keep a cache or a history."""
    if isinstance(holder, dict | UserDict):
        holder["x"] = holder["later"] = value
    elif isinstance(holder, list | deque):
        holder.append(value)
    elif isinstance(holder, Frozen | Pair):
        holder.later.append(value)
    else:
        holder.x = holder.later = value


class Stores(nn.Module):
    """Keeps its results in an object of its own and in its input."""

    def __init__(self, own: Any, asks_values: bool) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)
        self.own = own
        self.asks_values = asks_values

    def forward(self, given: Any) -> Tensor:
        result: Tensor = self.layer(found(given))
        if self.asks_values and result.sum() > torch.inf:
            return result
        stores(self.own, result)
        stores(given, result)
        return result


STORING = [name for name in HOLDERS if name not in ("object in an object", "tuple", "partial of an object")]


@pytest.mark.parametrize("values", [False, True], ids=["by shapes", "by values"])
@pytest.mark.parametrize("name", STORING)
def test_what_a_model_stores_while_it_is_estimated_is_gone(name: str, values: bool) -> None:
    tensors = torch.ones(8, 64), torch.ones(8, 64)
    own, given = (HOLDERS[name](tensor) for tensor in tensors)
    module = Stores(own, asks_values=values)
    assert rl.estimate(module, inputs=(given,)).total().macs == 8 * 64 * 64
    for holder, tensor in zip((own, given), tensors, strict=True):
        assert found(holder) is tensor
        assert not hasattr(holder, "later") or holder.later == []
        if not isinstance(holder, Plain | Slotted | Frozen | Pair | SimpleNamespace):
            assert len(holder) == 1
    module(given)  # it runs as before


def test_a_cache_that_begins_empty_stays_empty() -> None:
    class Cache:
        def __init__(self) -> None:
            self.keys: list[Tensor] = []
            self.steps: defaultdict[str, list[int]] = defaultdict(list)
            self.seen = 0

    class Step(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cache = Cache()

        def forward(self, x: Tensor, cache: Cache) -> Tensor:
            for kept in (self.cache, cache):
                kept.keys.append(x + 1)
                kept.steps["all"].append(1)
                kept.seen += 1
            return torch.stack(cache.keys)

    module, cache = Step(), Cache()
    for mode in ("inference", "train"):
        rl.estimate(module, inputs=(X.clone().requires_grad_(), cache), mode=mode)
        for kept in (module.cache, cache):
            assert (kept.keys, dict(kept.steps), kept.seen) == ([], {}, 0)


def test_one_object_in_two_places_is_one() -> None:
    shared = Plain(x=torch.ones(8, 64))
    assert memory_of(Adds(shared), inputs=(shared,)).peak == 2 * BYTES  # and the result


GLOBAL = torch.ones(64, 64)  # 16,384 B
HEAD = nn.Linear(64, 64)


class Reaches(nn.Module):
    """Uses a tensor and a layer that are global."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = HEAD(self.layer(x) @ GLOBAL) + GLOBAL[:8]
        return result


@pytest.mark.parametrize("mode", ["inference", "train"])
def test_what_is_global_is_there_too_and_stays_as_it_is(mode: str) -> None:
    done = rl.estimate(Reaches(), inputs=X, mode=mode)
    assert done.total("forward").macs == 3 * 8 * 64 * 64
    # The global matrix, and weight and bias of the global layer (the bias is a block of 512 B).
    assert done.memory is not None
    assert done.memory.buffers == 16384 + 16384 + 512
    assert type(GLOBAL) is Tensor
    assert type(HEAD.weight.data) is Tensor
    assert HEAD.weight.grad is None


def test_a_module_in_an_object_is_exchanged_too() -> None:
    class Teaches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.teacher = Plain(x=nn.Linear(64, 64, bias=False))  # hidden, so that it is no parameter

        def forward(self, x: Tensor) -> Tensor:
            result: Tensor = self.teacher.x(x)
            return result

    module = Teaches()
    done = rl.estimate(module, inputs=X, dtype="bf16")
    assert done.parameters == 0
    assert done.memory is not None
    assert done.memory.buffers == 64 * 64 * 2
    assert module.teacher.x.weight.dtype is torch.float32


def test_what_has_threads_or_files_is_left_alone() -> None:
    import threading
    from queue import Queue

    class Beside(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.queue: Queue[int] = Queue()
            self.lock = threading.Lock()

        def forward(self, x: Tensor) -> Tensor:
            self.queue.put(1)
            return x + 1

    module = Beside()
    rl.estimate(module, inputs=X)
    # What was put there may already have been taken by somebody.
    assert (module.queue.qsize(), module.queue.unfinished_tasks) == (1, 1)


class Cache:
    """A cache of a user's own, which gets longer with each call."""

    def __init__(self) -> None:
        self.keys = torch.ones(2, 64)
        self.lengths: list[int] = []

    def longer(self, x: Tensor) -> Tensor:
        self.keys = torch.cat([self.keys, x])
        self.lengths.append(len(self.keys))
        return self.keys


class Generates(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)
        self.seen: list[tuple[int, torch.dtype]] = []

    def forward(self, x: Tensor, cache: Any) -> Tensor:
        keys = (cache if isinstance(cache, Cache) else cache["of this step"][0]).longer(self.layer(x))
        self.seen.append((len(keys), keys.dtype))
        return x @ keys.T


@pytest.mark.parametrize("wrap", [lambda cache: cache, lambda cache: {"of this step": [cache]}], ids=["bare", "deep"])
@pytest.mark.parametrize("mode", ["inference", "train"])
def test_a_measured_step_begins_with_the_same_inputs_each_time(wrap: Callable[[Cache], Any], mode: str) -> None:
    lengths: set[tuple[int, torch.dtype]] = set()

    class Tells(Generates):
        def forward(self, x: Tensor, cache: Any) -> Tensor:
            result = super().forward(x, cache)
            lengths.update(self.seen)
            return result

    cache = Cache()
    keys = cache.keys
    done = rl.measure(Tells(), inputs=(X, wrap(cache)), mode=mode, dtype="bf16", budget=0.01, isolated=False)
    assert done.total().measured_seconds
    assert lengths == {(2 + 8, torch.bfloat16)}
    assert cache.keys is keys
    assert cache.lengths == []


TABLES: dict[Any, Any] = {"others": [1]}


@cache
def table(n: int) -> Tensor:
    return torch.ones(n, n)


class Keeps(nn.Module):
    """Computes a table once, and keeps it where `place` says."""

    tables: ClassVar[list[Tensor]] = []

    def __init__(self, place: str) -> None:
        super().__init__()
        self.place = place

    @lru_cache(maxsize=2)  # noqa: B019
    def own(self, n: int) -> Tensor:
        return torch.ones(n, n)

    def forward(self, x: Tensor) -> Tensor:
        if self.place == "function":
            return x @ table(64)
        if self.place == "method":
            return x @ self.own(64)
        if self.place == "class":
            if not self.tables:
                self.tables.append(torch.ones(64, 64))
            return x @ self.tables[0]
        if self.place == "deep" and "deep" not in TABLES:
            TABLES["deep"] = {"of": [torch.ones(64, 64)]}
        elif 64 not in TABLES:
            TABLES[64] = torch.ones(64, 64)
        found: Tensor = TABLES["deep"]["of"][0] if self.place == "deep" else TABLES[64]
        return x @ found


@pytest.mark.parametrize("place", ["function", "method", "class", "global", "deep"])
def test_a_cache_outside_of_the_model_keeps_no_tensor_of_an_estimate(place: str) -> None:
    module = Keeps(place)
    for mode in ("inference", "inference"):
        assert rl.estimate(module, inputs=X, mode=mode).total().macs == 8 * 64 * 64
        assert type(module(X)) is Tensor
        assert float(module(X)[0, 0]) == 64
    # What a real call has put there stays, and is used again.
    assert rl.estimate(module, inputs=X).total().macs == 8 * 64 * 64
    assert TABLES["others"] == [1]
    TABLES.pop(64, None)
    TABLES.pop("deep", None)
    assert float(module(X)[0, 0]) == 64
