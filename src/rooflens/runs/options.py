"""The table of options: all that a run has beside model, batch, dtype and mode, one line for each.

From it are made the options of the command line, the check of Python arguments, the keys of study files, what a worker
is sent, what a case says, and which options tell two steps apart. A new option is a line here and its use; the promised
signatures in Python are held against the table by a test.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal

from rooflens.errors import InvalidValue
from rooflens.runs.option import Option, option

if TYPE_CHECKING:
    from rooflens.records import Scalar

Fusion = Literal["none", "pointwise", "attention"]
FUSIONS: tuple[Fusion, ...] = ("none", "pointwise", "attention")
TRAINING = ("train",)
PREFILLING = ("prefill",)
ANSWERING = ("generate",)
"""The mode of a whole answer: prefill, and a step of decode for each further token."""
GENERATING = ("prefill", "decode", *ANSWERING)
"""Modes of a language model that fill a cache, or go on with one."""
WITHOUT_GRADIENTS = ("inference", *GENERATING)
_CACHE = "the cache of a language model, which mode {mode!r} does not go on with"
_WEIGHTS = "weights that stay as they are, and mode {mode!r} changes them"
_TRAINING: Mapping[str, Any] = {"modes": TRAINING, "about": "a training step, which mode {mode!r} is not"}
WEIGHTS = ("none", "int8", "int4", "fp8", "nf4", "nf4-double", "mxfp4")
OF_GROUPS = ("int8", "int4", "nf4", "nf4-double")
"""Formats of weights whose groups have a size to choose."""
CACHES = ("dynamic", "static")
KV_DTYPES = ("fp8", "int8", "int4")
STATE_DTYPES = ("fp32", "bf16", "int8")
OPTIMIZERS = ("none", "sgd", "adam", "adamw")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a run.

    Raises:
        InvalidValue: a value is unknown, of the wrong kind or too small.
    """

    optimizer: str = option(
        "sgd",
        "Optimizer of a training step; none stops after backward.",
        choices=OPTIMIZERS,
        nothing=("none",),
        **_TRAINING,
    )
    fused: bool = option(False, "Use torch's fused optimizer, not its foreach form.", **_TRAINING)
    optimizer_dtype: str | None = option(
        None,
        "Type of the optimizer's state; default: that of the parameters. int8: bitsandbytes' layout, not run.",
        kind=str,
        choices=STATE_DTYPES,
        **_TRAINING,
    )
    master_weights: bool = option(
        False,
        "Keep copies of 16-bit parameters in fp32, which the optimizer updates.",
        **_TRAINING,
    )
    checkpoint: bool = option(
        False,
        "Keep only the inputs of blocks of layers; backward computes the rest again.",
        **_TRAINING,
    )
    accumulation_steps: int = option(
        1,
        "Micro-batches in a training step, each of the batch.",
        least=1,
        **_TRAINING,
    )
    compile: bool = option(False, "Use torch.compile; an estimate then fuses element-wise work.")
    img_size: int | None = option(
        None,
        "Height and width of images; default: the model's own.",
        kind=int,
        least=1,
        several=True,
    )
    seq_len: int | None = option(None, "Tokens per sequence.", kind=int, least=1, several=True)
    cached_tokens: int | None = option(
        None,
        "Tokens of each sequence in the cache before prefill: earlier chunks of the prompt, or a cached prefix.",
        kind=int,
        least=1,
        modes=PREFILLING,
        about="tokens that prefill finds in its cache, and mode {mode!r} is none",
        several=True,
    )
    prompt_len: int | None = option(
        None,
        "Tokens of the prompt of a whole answer.",
        kind=int,
        least=1,
        modes=ANSWERING,
        concerns="answer",
        several=True,
    )
    output_len: int | None = option(
        None,
        "Tokens of its output: the first comes from prefill, each other one from a step of decode.",
        kind=int,
        least=1,
        modes=ANSWERING,
        concerns="answer",
        several=True,
    )
    kv_cache: str = option(
        "dynamic",
        "dynamic grows with each token, static has a fixed length.",
        choices=CACHES,
        modes=GENERATING,
        about=_CACHE,
    )
    kv_cache_len: int | None = option(
        None,
        "Room of a static cache; default: the tokens of the step.",
        kind=int,
        least=1,
        modes=GENERATING,
        about=_CACHE,
    )
    kv_dtype: str | None = option(
        None,
        "Type of cached keys and values; default: that of the model.",
        kind=str,
        choices=KV_DTYPES,
        modes=GENERATING,
        about=_CACHE,
    )
    kv_group_size: int | None = option(
        None,
        "Numbers that share a scale; default: 64, or the most below that divide a head.",
        kind=int,
        least=1,
        modes=GENERATING,
        about=_CACHE,
    )
    weights: str | None = option(
        None,
        "Format of stored weights; default: that of the model's configuration. none: that of the dtype.",
        kind=str,
        choices=WEIGHTS,
        nothing=("none",),
        modes=WITHOUT_GRADIENTS,
        concerns="weights",
        about=_WEIGHTS,
    )
    weights_group_size: int | None = option(
        None,
        "Weights that share a scale; default: 128 in int4, 64 in nf4, an output channel in int8.",
        kind=int,
        least=1,
        modes=WITHOUT_GRADIENTS,
        concerns="weights",
        about=_WEIGHTS,
    )
    weights_except: str | None = option(
        None,
        "Modules whose weights stay, by name or pattern: lm_head,*.gate. What is inside of one stays too.",
        kind=str,
        modes=WITHOUT_GRADIENTS,
        concerns="weights",
        about=_WEIGHTS,
    )
    price_per_hour: float | None = option(
        None,
        "Price of the device in any currency: costs of tokens, samples and steps follow.",
        kind=float,
        concerns="price",
    )
    channels_last: bool = option(False, "Lay images out with channels last.")
    dims: tuple[tuple[str, int], ...] = option(
        (), "A size that the ONNX file leaves open. Repeatable.", kind=dict, concerns="graph"
    )
    causal: bool = option(False, "Count the half of causal attention that its kernel computes.", concerns="counting")
    fusion: Fusion = option(
        "none",
        "Operations that share a kernel; results that pass between them stay on the chip.",
        choices=FUSIONS,
        concerns="counting",
    )
    cuda_graph: bool = option(
        False, "Replay the step from CUDA graphs, so that the host does not launch each kernel.", concerns="launching"
    )
    flush: bool = option(False, "Empty the caches before each sample.", concerns="running")
    profile: bool = option(
        False, "Also profile one step: the time of every operation and module.", concerns="running", recorded=False
    )
    gpus: int = option(
        1,
        "GPUs that train together, each with a whole batch; one alone, and the all-reduce alone, are timed too.",
        least=1,
        concerns="running",
    )

    def __post_init__(self) -> None:
        for name, line in OPTIONS.items():
            line.check(getattr(self, name))
        if self.kv_cache_len is not None and self.kv_cache != "static":
            raise InvalidValue(
                f"kv_cache_len={self.kv_cache_len} is the length of a static cache; give kv_cache='static' too"
            )
        if self.kv_group_size is not None and self.kv_dtype not in ("int8", "int4"):
            raise InvalidValue(
                f"kv_group_size={self.kv_group_size} says how many numbers share a scale in an int8 or int4 cache, and"
                f" kv_dtype is {self.kv_dtype}"
            )

        self._check_optimizer()
        if self.checkpoint and self.cuda_graph:
            raise InvalidValue(
                "checkpoint=True saves the state of random numbers before each block, which torch refuses while it"
                " captures a CUDA graph; leave one of the two out"
            )
        if self.weights is not None:  # else the configuration of the model may say it
            self.check_weights()
        if (self.prompt_len is None) != (self.output_len is None):
            given, lacking = ("prompt_len", "output_len") if self.output_len is None else ("output_len", "prompt_len")
            raise InvalidValue(
                f"{given}={getattr(self, given)} is a length of a whole answer, which has a prompt and an output; give"
                f" {lacking} too"
            )

    def check_weights(self) -> None:
        """Raise InvalidValue if something is said of a format of weights, and they have none or another one."""
        if self.weights_group_size is not None and self.weights not in OF_GROUPS:
            raise InvalidValue(
                f"weights_group_size={self.weights_group_size} says how many weights share a scale in"
                f" {', '.join(OF_GROUPS)}, and weights is {self.weights}"
            )
        if self.weights_except is not None and not self.quantises:
            raise InvalidValue(
                f"weights_except={self.weights_except!r} names modules whose weights keep their type, and no weights"
                " are given another one; give weights too"
            )

    def _check_optimizer(self) -> None:
        """Raise InvalidValue if an optimizer that torch has not is asked of torch, or none is there to have state."""
        asked = [name for name in ("optimizer_dtype", "master_weights") if getattr(self, name) != OPTIONS[name].default]
        if asked and self.optimizer == "none":
            raise InvalidValue(f"{asked[0]} is about the state of an optimizer, and optimizer is none; leave one out")
        if asked and self.fused:
            raise InvalidValue(
                f"fused=True is a kernel of torch's, which updates parameters with state of their own type; leave out"
                f" fused or {asked[0]}"
            )

    @property
    def quantises(self) -> bool:
        """True if weights have another format than that of the dtype."""
        return self.weights not in (None, "none")

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Options:
        """The options among the arguments of a call; sizes by name may be a mapping."""
        given = {name: arguments[name] for name in OPTIONS if name in arguments}
        return cls(**given | {"dims": tuple(sorted(dict(given.get("dims") or ()).items()))})

    @classmethod
    def from_case(cls, options: Iterable[tuple[str, Scalar]]) -> Options:
        """The options that a case names, which somebody else may have written; which run of it is none."""
        given: dict[str, Any] = {name: value for name, value in options if name != RUN}
        unknown = next((name for name in given if name not in OPTIONS), None)
        if unknown is not None:
            raise InvalidValue(f"there is no option {unknown!r}; known: {', '.join(OPTIONS)}")
        if "dims" in given:
            given["dims"] = _sizes_in(given["dims"])
        return cls(**given)

    def in_case(self, mode: str) -> tuple[tuple[str, Scalar], ...]:
        """What a case in `mode` says of them: what is not the default and means something, sorted by name."""
        named: dict[str, Scalar] = {}
        for name, line in OPTIONS.items():
            value = getattr(self, name)
            if line.recorded and value != line.default and line.runs_in(mode):
                named[name] = ", ".join(f"{of}={size}" for of, size in value) if line.kind is dict else value
        if self.optimizer == "none":
            named.pop("fused", None)
        if not self.quantises:
            named.pop("weights", None)
        return tuple(sorted(named.items()))

    def check_mode(self, mode: str) -> None:
        """Raise InvalidValue if an option is given in a mode that has nothing of what it is about."""
        if mode in ANSWERING:
            self._check_answer()
        elif self.output_len is not None:
            raise InvalidValue(
                f"prompt_len={self.prompt_len} and output_len={self.output_len} are the lengths of a whole answer, and"
                f" mode {mode!r} is one step; leave the mode out, or give seq_len instead of the lengths"
            )
        for name, line in OPTIONS.items():
            value = getattr(self, name)
            if line.about and not line.runs_in(mode) and value not in (line.default, *line.nothing):
                raise InvalidValue(
                    f"{name}={value!r} is about {line.about.format(mode=mode)}; give mode"
                    f" {' or '.join(line.modes)}, or leave it out"
                )

    def _check_answer(self) -> None:
        """Raise InvalidValue if a whole answer has no lengths, or another one."""
        if self.output_len is None:
            raise InvalidValue(
                "mode 'generate' is a whole answer; give prompt_len and output_len, its lengths in tokens"
            )
        if self.seq_len is not None:
            raise InvalidValue(
                f"seq_len={self.seq_len} is the length of one step, and prompt_len={self.prompt_len} and"
                f" output_len={self.output_len} are those of a whole answer; leave one of them out"
            )
        if self.cuda_graph and self.kv_cache != "static":
            raise InvalidValue(
                "cuda_graph=True replays one step of decode for all of a whole answer, and its cache grows with each;"
                " give kv_cache='static', or leave cuda_graph out"
            )

    def of_source(self, source: str) -> Options:
        """The same, less what means nothing to a source. In an estimate, a compiler fuses element-wise work."""
        kept = {name: getattr(self, name) for name, line in OPTIONS.items() if source in line.sources}
        if source == "estimate" and self.compile and self.fusion == "none":
            kept["fusion"] = "pointwise"
        return Options(**kept)


def _sizes_in(written: Scalar) -> tuple[tuple[str, int], ...]:
    """The sizes that a case writes as ``height=8, width=4``."""
    sizes = [size.rpartition("=") for size in str(written).split(", ")]
    if not all(name and size.isdecimal() for name, _, size in sizes):
        raise InvalidValue(f"dims is {written!r}; it has to be sizes by name, like 'height=8, width=4'")
    return tuple((name, int(size)) for name, _, size in sizes)


OPTIONS: Mapping[str, Option] = {f.name: replace(f.metadata["option"], name=f.name) for f in fields(Options)}
"""The table: each option by its name."""
OF_STEP = tuple(line.name for line in OPTIONS.values() if line.concerns in ("step", "weights", "answer"))
"""Options that tell two steps apart, however they are counted, run or paid for."""
SWEPT = tuple(line.name for line in OPTIONS.values() if line.several)
"""Options of which several values may be asked for at once."""
COUNTING = frozenset(line.name for line in OPTIONS.values() if line.concerns == "counting")
"""Options that say how an estimate counts, and not what runs."""
RUN = "run"
"""Which run of its case something is, where several were observed piece by piece. Nobody gives it."""
FIRST_RUN = 1
"""The run of a case that names none."""
_RUN_SO = ("launching", "running")
RUNNING = frozenset(line.name for line in OPTIONS.values() if line.concerns in _RUN_SO and line.recorded) | {RUN}
"""Options that say how a step was run, and not what it computes."""
PRICED = frozenset(line.name for line in OPTIONS.values() if line.concerns == "price")
"""Options that say what a step costs."""
