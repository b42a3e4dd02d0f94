"""How the configuration of a model says that its weights are stored, as options of an estimate.

Checkpoints that are quantised name their method in ``quantization_config``. It is read as data: nothing of it runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rooflens.errors import cut
from rooflens.runs.options import WITHOUT_GRADIENTS, Options
from rooflens.runs.run import Run

KEY = "quantization_config"
_OF_WEIGHTS = ("weights", "weights_group_size", "weights_except")
_HERE = "here they are in the dtype, in which rooflens runs it"
_LAST = "lm_head"
_INT_BITS = {4: "int4", 8: "int8"}
_USUAL_GROUPS = {"int4": 128, "int8": -1}
_NAME = re.compile(r"[\w.*-]{1,200}")
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")
_MOST_NAMES = 2_000
_LONGEST = 40
"""Characters of the name of a method."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredWeights:
    """How the weights of a published model are stored.

    Attributes:
        method: as the configuration names it.
        options: those of an estimate that say the same; none where rooflens does not know the form.
    """

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def of_run(self, run: Run, rates: Iterable[bool] = ()) -> Run:
        """A run whose weights are stored so; itself if its options say how, or if weights change or are cast first.

        Args:
            rates: for each device, whether it has a rate for products on fp8.
        """
        told, mine = run.options.weights is not None, run.options
        if told or not self.options or run.mode not in WITHOUT_GRADIENTS or run.dtype.startswith("amp-"):
            return run
        if self.options["weights"] == "fp8" and not all(rates):  # all stay as they are
            return replace(run, options=replace(mine, weights_except=None))
        said: dict[str, Any] = (
            {} if mine.weights_group_size is None else {"weights_group_size": mine.weights_group_size}
        )
        if mine.weights_except is not None:
            said["weights_except"] = ",".join(filter(None, (self.options.get("weights_except"), mine.weights_except)))
        return replace(run, options=replace(mine, **{**self.options, **said}))

    def note(self, options: Options) -> str:
        """What a reader must know of a run's weights; nothing where its options name another format."""
        published = f"the configuration stores weights in {self.method} ({KEY})"
        typed = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        if options.weights is None and typed:
            where = " where a device has a rate for products on fp8" if self.options["weights"] == "fp8" else ""
            return f"{published}, and {_HERE}: an estimate with {typed} counts them so{where}"
        if options.weights is None:
            return (
                f"{published}, in a form that rooflens does not know, and {_HERE}: an estimate with"
                " weights='int4' (or int8, fp8, nf4, mxfp4) counts one that is near"
            )
        if typed and all(getattr(options, name) == self.options.get(name) for name in _OF_WEIGHTS[:2]):
            stay, kept = options.weights_except or "", self.options.get("weights_except", "")
            more = stay.removeprefix(kept).lstrip(",") if stay.startswith(kept) else None
            but = f", but for {more}" if more else ""
            return (
                ""
                if more is None
                else f"{published}, and so they are counted{but}; weights='none' counts them in the dtype"
            )
        return ""


def stored_weights(given: object, layers: object, *, has_more: bool = False) -> StoredWeights | None:
    """Return what a ``quantization_config`` says; None where there is none.

    Args:
        layers: of the model; names that are there for each of them become one pattern.
        has_more: it has more than a language model: which parts GPTQ stores in fewer bits is then not said.
    """
    if given is None:
        return None
    table = given if isinstance(given, dict) else {}
    named = str(table.get("quant_method", "a form without a name"))
    method = cut(" ".join(re.sub(r"[^\w -]", " ", named).split()), _LONGEST)
    known = method in _FORMS and not (method == "gptq" and has_more)
    form = _FORMS[method](table) if known else None
    names = None if form is None else _names(_kept(method, table), layers if isinstance(layers, int) else 0)
    if form is None or names is None:
        return StoredWeights(method=method)
    return StoredWeights(method=method, options=form | ({"weights_except": ",".join(names)} if names else {}))


def _grouped(bits: object, group: object) -> dict[str, Any] | None:
    """Integers of so many bits, with so many in a group; -1 is an output channel."""
    weights = _INT_BITS.get(bits) if type(bits) is int else None
    if weights is None or type(group) is not int:
        return None
    if group == _USUAL_GROUPS[weights]:
        return {"weights": weights}
    return {"weights": weights, "weights_group_size": group} if group > 0 else None


def _gptq(table: Mapping[str, Any]) -> dict[str, Any] | None:
    of_some = table.get("dynamic") or table.get("modules_in_block_to_quantize")
    return None if of_some else _grouped(table.get("bits"), table.get("group_size", 128))


def _awq(table: Mapping[str, Any]) -> dict[str, Any] | None:
    return _grouped(table.get("bits", table.get("w_bit", 4)), table.get("group_size", table.get("q_group_size", 128)))


def _bitsandbytes(table: Mapping[str, Any]) -> dict[str, Any] | None:
    if table.get("load_in_4bit", table.get("_load_in_4bit")) is True:  # nf4 and fp4 differ in what a code stands for
        return {"weights": "nf4-double" if table.get("bnb_4bit_use_double_quant") is True else "nf4"}
    return {"weights": "int8"} if table.get("load_in_8bit", table.get("_load_in_8bit")) is True else None


def _compressed_tensors(table: Mapping[str, Any]) -> dict[str, Any] | None:
    """One scheme for all linear layers: integers beside activations in 16 bits, or both in fp8."""
    groups = table.get("config_groups")
    schemes = list(groups.values()) if isinstance(groups, dict) else []
    if len(schemes) != 1 or not isinstance(schemes[0], dict) or schemes[0].get("targets") != ["Linear"]:
        return None
    weights, activations = schemes[0].get("weights"), schemes[0].get("input_activations")
    if not isinstance(weights, dict):
        return None
    bits, kind = weights.get("num_bits"), weights.get("type")
    if kind == "float" and bits == 8:
        both = isinstance(activations, dict) and (activations.get("num_bits"), activations.get("type")) == (8, "float")
        return {"weights": "fp8"} if both else None
    if kind != "int" or activations is not None:
        return None
    group = {"channel": -1, "group": weights.get("group_size")}.get(str(weights.get("strategy")))
    return _grouped(bits, group)


_FORMS: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any] | None]] = {
    "mxfp4": lambda _: {"weights": "mxfp4"},
    "fp8": lambda _: {"weights": "fp8"},
    "fbgemm_fp8": lambda _: {"weights": "fp8"},
    "gptq": _gptq,
    "awq": _awq,
    "bitsandbytes": _bitsandbytes,
    "compressed-tensors": _compressed_tensors,
}
"""Options of an estimate, by method."""
_KEPT_AS = {"bitsandbytes": "llm_int8_skip_modules", "compressed-tensors": "ignore"}
_ADDS_LAST = ("awq", "gptq")


def _kept(method: str, table: Mapping[str, Any]) -> object:
    """Names of modules that stay. Where none are named, quantisers of transformers leave out the last layer."""
    named = [] if method == "gptq" else table.get(_KEPT_AS.get(method, "modules_to_not_convert"))
    if method == "gptq" and table.get(_LAST) is True:
        return []
    if method == "compressed-tensors":
        return named or []
    if named is None:
        return [_LAST]
    return [*named, _LAST] if method in _ADDS_LAST and isinstance(named, list) else named


def _names(given: object, layers: int) -> list[str] | None:
    """Names and patterns as ``weights_except`` takes them; None where they are something else."""
    if not isinstance(given, list) or len(given) > _MOST_NAMES or not all(isinstance(name, str) for name in given):
        return None
    names = [_pattern(name) for name in given]
    if not all(map(_NAME.fullmatch, names)):
        return None
    return list(dict.fromkeys(_of_all_layers(names, layers)))


def _pattern(name: str) -> str:
    """A pattern for a name; of a regular expression, which may match the beginning of one, where it says no more."""
    if not name.startswith("re:"):
        return name
    pattern = name.removeprefix("re:").removeprefix("^").replace(".*", "*").replace(r"\.", ".")
    return pattern.removesuffix("$") if pattern.endswith(("$", "*")) else f"{pattern}*"


def _of_all_layers(names: Iterable[str], layers: int) -> Iterator[str]:
    """One pattern for names that are there for each of some layers, and all others as they are."""
    numbers: dict[str, set[str]] = {}
    every = set(map(str, range(layers)))
    listed = [(name, _NUMBER.sub("*", name, count=1), _NUMBER.search(name)) for name in names]
    for _, pattern, found in listed:
        if found is not None:
            numbers.setdefault(pattern, set()).add(found[0])
    for name, pattern, found in listed:
        yield pattern if found is not None and numbers[pattern] >= every and every else name
