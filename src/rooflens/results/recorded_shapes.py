"""Whether a profiled step is the one that an estimate counts, by the sizes of tensors that the profiler recorded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from rooflens.records import Record

CallSizes = tuple[tuple[int, ...], ...]
COMPARED = ("convolution", "embedding", "attention", "addmm", "mm", "native_batch_norm", "native_layer_norm")
"""Operations that every implementation of a step calls with the same sizes; those that tell most come first."""
_SHOWN = 2


def sizes_of(record: Record) -> CallSizes | None:
    """Return the sizes of the tensors that a call takes, less those without dimensions; None where not known."""
    return record.shapes if record.call is None else tuple(t.shape for t in record.call.inputs if t.shape)


def mismatch(profile: Iterable[Record], estimate: Iterable[Record], mode: str) -> str | None:
    """Return how a profiled step differs from an estimated one, in words; None where nothing shows that it does.

    It does if no call of an operation has sizes that a call in the estimate has.
    """
    ran, counted = _sizes_by_name(profile), _sizes_by_name(estimate)
    for name in COMPARED:
        theirs, ours = ran.get(name, []), counted.get(name, [])
        if theirs and ours and not set(theirs) & set(ours):
            facts = dict(_facts(name, ours[0], mode))
            others = [f"{fact} {size}" for fact, size in _facts(name, theirs[0], mode) if facts.get(fact, size) != size]
            told = f", so {' and '.join(others)} ran" if others else ""
            what = f"{name} (batch x keys)" if name == "attention" else name
            return f"{what} takes {_words(theirs[0])} in the profile and {_words(ours[0])} in the estimate{told}"
    return None


def _sizes_by_name(records: Iterable[Record]) -> Mapping[str, list[CallSizes]]:
    """The sizes of compared operations, in the order of their calls."""
    found: dict[str, list[CallSizes]] = {}
    for record in records:
        sizes = sizes_of(record) if record.name in COMPARED else None
        alike = None if sizes is None else _that_any_code_has(record.name, sizes)
        if alike:
            found.setdefault(record.name, []).append(alike)
    return found


def _that_any_code_has(name: str, sizes: CallSizes) -> CallSizes | None:
    """The sizes that do not depend on how a step is written: of attention the sequences and the tokens in each."""
    if name == "embedding":
        return sizes[1:2]
    if name == "attention":
        return ((sizes[0][0], sizes[1][2]),) if [*map(len, sizes[:2])] == [4, 4] else None
    return sizes


def _words(sizes: CallSizes) -> str:
    return " and ".join("x".join(map(str, size)) for size in sizes[:_SHOWN])


def _facts(name: str, sizes: CallSizes, mode: str) -> Iterator[tuple[str, int]]:
    """What sizes tell of a case."""
    first = sizes[0]
    if name in ("embedding", "attention") or (name == "convolution" and len(first) == 4):
        yield "batch", first[0]
    if name == "convolution" and len(first) == 4 and first[2] == first[3]:
        yield "img_size", first[2]
    if name == "attention" or (name == "embedding" and len(first) == 2 and mode != "decode"):
        yield "seq_len", first[1] - (mode == "decode")
