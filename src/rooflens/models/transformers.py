"""Models of transformers from their configuration: ``hf:llama``, ``hf:path/config.json``, ``llama-3.1-8b``.

Weights are never read, remote code is never trusted, and nothing is fetched.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.utils._pytree import tree_map_only

from rooflens.errors import InvalidValue, MissingDependency, ModelError
from rooflens.models.asked_caches import asked_cache
from rooflens.models.blueprint import Blueprint, Example
from rooflens.models.configuration import configuration
from rooflens.models.construction import build
from rooflens.models.fakes import usual_methods, without_memory
from rooflens.models.forward_inputs import (
    AUDIO_TOKENS,
    DEFAULT_TOKENS,
    IMAGE_TOKENS,
    InputSizes,
    default_tokens,
    encoder_ids,
    ids,
    label_ids,
    mark_of,
    media,
    placeholders,
    positions,
    positions_of,
    text_of,
)
from rooflens.models.heads import Purpose, head, loss_of
from rooflens.models.known_values import KnownValues
from rooflens.models.process import neutral
from rooflens.models.quiet import no_hints_of_kernels
from rooflens.models.running import running
from rooflens.models.stored_weights import KEY, stored_weights
from rooflens.runs.options import ANSWERING, GENERATING, Options

CACHE_NAMES = ("cache", "past_key_values", "cache_params", "state")
"""What the cache is called: it changed from one version of transformers to the next. ``state`` is that of RWKV."""
FILLING = {"use_cache": True, "logits_to_keep": 1}
"""Inputs of a run that fills the cache and needs only the last token's logits, where the model can leave out others."""
READERS = (("image", "get_image_features", "pixel_values"), ("audio", "get_audio_features", "input_features"))
"""What may stand among tokens, the method that makes vectors of it, and its input."""
INNER = ("model", "vlm")
"""What a model with another head is called inside of it."""
UNREAD: Mapping[str, int] = {"qwen2_audio": 4}
"""Families without such a method, and the frames of sound that become one of their tokens."""
VALUED = frozenset(
    ("image_grid_thw", "grid_thw", "image_sizes", "input_features_mask", "feature_attention_mask", "spatial_shapes")
) | {"target_sizes", "image_position_ids", "pixel_position_ids", "image_merge_sizes", "merge_sizes", "tile_fine_mask"}
"""Inputs whose values decide shapes."""
VALUES_DECIDE = (DataDependentOutputException, DynamicOutputShapeException)
LABELS = 20
"""Words of a recording."""


def blueprint(name: str, options: Options, mode: str) -> Blueprint:
    """Return the blueprint of a model of transformers, with the head that its family is for.

    Inference and train are the plain call, which gives the logits of every position and fills a cache if the model's
    configuration says so. Prefill gives the last position's logits only. Decode adds one token to a cache that holds
    `seq_len` of them. An encoder before a decoder reads as many tokens as the decoder writes, or one image or
    recording; it runs in prefill, and no more in decode. Where images or sound stand among the tokens, each sequence
    has one, but in decode, whose cache does not tell them from words. A whole answer begins with all tokens of its
    prompt; where an encoder reads these, the decoder begins with one.

    Raises:
        MissingDependency: transformers is not installed.
        UnknownModel: no such family or model, and no such file.
        ModelError: the configuration cannot be used.
        InvalidValue: the model has no such mode, or an image takes more tokens than there are.
    """
    try:
        import transformers  # noqa: F401
    except ImportError as error:
        raise MissingDependency("building a transformers model", "transformers", "llm") from error
    name, config = configuration(name)
    text = text_of(config)
    layers, has_more = getattr(text, "num_hidden_layers", None), text is not config
    published = [vars(one).pop(KEY, None) for one in (config, text)]  # before anything is built of it
    stored = next((one for one in published if one is not None), None)
    kind, purpose = head(config)
    if type(config) is not kind.config_class and type(text) is kind.config_class:
        config = text  # the language model alone, of a configuration with more
    built = Built(name, config, kind, purpose, mode, options)
    if mode in ANSWERING and built.reads_words_first:
        built = replace(built, read=options.prompt_len)
    if mode in GENERATING:
        if built.cache is None:
            raise InvalidValue(f"{name} keeps no cache that rooflens knows, so it has no mode {mode!r}")
        if built.cached and built.encodes_first:
            raise InvalidValue(
                f"{name} reads its prompt in an encoder, which no cache goes on with; leave"
                f" cached_tokens={built.cached} out"
            )
        built.empty_cache()  # what is asked of the cache is checked before anything is built
    return Blueprint(
        name=name,
        build=built.module,
        example=built.example,
        loss=loss_of(purpose),
        images="pixel_values" in built.parameters,
        tokens=built.tokens if built.reads_tokens else None,
        least_tokens=1 + sum(built.marked.values()) if built.reads_tokens else 1,
        positions=positions_of(config),
        notes=tuple(
            f"{count} tokens of each sequence stand for {'an image (--img-size)' if what == 'image' else 'sound'}"
            for what, count in built.marked.items()
        ),
        example_of_step=built.example_of_step if built.reads_tokens else None,
        stored=stored_weights(stored, layers, has_more=has_more),
    )


@dataclass(frozen=True)
class Built:
    """A class of transformers and its configuration, and the inputs for a mode.

    Attributes:
        read: tokens that an encoder reads, where they are not as many as its decoder's.
    """

    name: str
    config: Any
    kind: type[Any]
    purpose: Purpose
    mode: str
    options: Options
    read: int | None = None

    def module(self) -> torch.nn.Module:
        built: torch.nn.Module = self.kind._from_config(self.config)
        return built

    def example(self, batch: int | None) -> Example:
        """Return the inputs of a batch."""
        sizes = replace(self.sizes, batch=1 if batch is None else batch)
        if self.mode == "decode" or self.cached:
            return self._going_on(sizes)
        whole = self._whole(sizes)
        if self.mode == "prefill":
            return self._generating(whole | self.filling, ())
        if self.mode in ANSWERING:
            encoded = self._encoded(sizes) if self.encodes_first else {}
            following = tuple(self._written(sizes, at, at + 1, encoded) for at in range(self.tokens, self.seen))
            return replace(self._generating(whole | self.filling, ()), following=following)
        uses_cache = getattr(text_of(self.config), "use_cache", False) and self.mode == "inference"
        targets, keeps = self._targets(sizes), self.cache if uses_cache else None
        return Example(kwargs=whole, targets=targets, cache=keeps, known=self.has_values)

    def example_of_step(self, mode: str, options: Options) -> Callable[[int | None], Example]:
        """Return what makes the inputs of one step of a whole answer, from a batch."""
        return replace(self, mode=mode, options=options).example

    @cached_property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        return inspect.signature(self.kind.forward).parameters

    @cached_property
    def cache(self) -> str | None:
        return next((name for name in CACHE_NAMES if self.purpose.generates and name in self.parameters), None)

    @cached_property
    def seen(self) -> int:
        """Tokens of each sequence that the cache has seen after the step, or after a whole answer."""
        more = (self.options.output_len or 1) - 1 if self.mode in ANSWERING else int(self.mode == "decode")
        return self.tokens + self.cached + more

    @property
    def cached(self) -> int:
        """Tokens of each sequence that the cache has before prefill."""
        return self.options.cached_tokens or 0

    def empty_cache(self) -> Callable[[], Any] | None:
        """Return what makes the cache that is asked for; None leaves it to the model."""
        return asked_cache(self.name, self.kind, self.config, self.options, self.seen)

    @cached_property
    def filling(self) -> dict[str, Any]:
        return {name: value for name, value in FILLING.items() if name in self.parameters}

    @cached_property
    def encodes_first(self) -> bool:
        """True if an encoder runs before the decoder."""
        return {"decoder_input_ids", "encoder_outputs"} <= self.parameters.keys()

    @cached_property
    def reads_words_first(self) -> bool:
        """True if the encoder that runs before the decoder reads words, and not sound or an image alone."""
        return self.encodes_first and "input_ids" in self.parameters and self.kind.main_input_name == "input_ids"

    @cached_property
    def reads_tokens(self) -> bool:
        return "input_ids" in self.parameters or self.encodes_first

    @cached_property
    def has_values(self) -> bool:
        """True if values among the inputs decide shapes: grids, or places of images and sound among tokens."""
        return bool(self.marked or VALUED & self.parameters.keys())

    @cached_property
    def sizes(self) -> InputSizes:
        """Sizes for a batch of one."""
        return replace(self._sizes(1), tokens=self.tokens)

    def _sizes(self, tokens: int) -> InputSizes:
        named = {k: p for k, p in self.parameters.items() if p.kind is p.POSITIONAL_OR_KEYWORD and k != "self"}
        return InputSizes(
            config=self.config,
            accepted=named.keys(),
            needed=[name for name, parameter in named.items() if parameter.default is parameter.empty],
            main=self.kind.main_input_name if isinstance(self.kind.main_input_name, str) else "",
            tokens=tokens,
            batch=1,
            image=self.options.img_size,
        )

    @cached_property
    def tokens(self) -> int:
        """Tokens per sequence, with those that stand for an image or sound."""
        marked = sum(self.marked.values())
        length, given = ("prompt_len", self.options.prompt_len) if self.mode in ANSWERING else ("seq_len", self.read)
        given = given or self.options.seq_len
        asked = given or default_tokens(self.config, self.mode == "decode")
        if asked <= marked and given is not None:
            raise InvalidValue(
                f"{self.name}: an image takes {marked} tokens of each sequence, so {length} has to be at least"
                f" {marked + 1}, not {asked}"
            )
        if self.read is not None:  # the decoder begins with a token that says so
            return self.options.seq_len or 1
        return asked if asked > marked else marked + DEFAULT_TOKENS

    @cached_property
    def marked(self) -> dict[str, int]:
        """Tokens that stand for an image and for sound in each sequence, as many as the model makes vectors of."""
        words = self.kind.main_input_name == "input_ids" if self.encodes_first else "input_ids" in self.parameters
        if not words or ((self.mode == "decode" or self.cached) and not self.encodes_first):
            return {}
        given = media(self._sizes(1))
        if self.config.model_type in UNREAD:
            return {"audio": given["input_features"].shape[-1] // UNREAD[self.config.model_type]}
        marks = {"image": IMAGE_TOKENS, "audio": AUDIO_TOKENS}
        padded = {"audio": getattr(self.config, "audio_soft_tokens_per_image", 0)}  # to as many at least
        return {
            what: max(self._tried(partial(_vectors_of, reader)), padded.get(what, 0))
            for what, reader, name in READERS
            if name in given and (hasattr(self.kind, reader) or mark_of(self.config, marks[what]) is not None)
        }

    def _tried(self, ask: Callable[[Any, dict[str, Any]], Any]) -> Any:
        """Return what a function tells of the module and one image or recording; nothing is computed."""
        module = build(Blueprint(name=self.name, build=self.module, loss=loss_of(self.purpose)), "meta")
        known = KnownValues()
        with running(self.name), neutral("fp32"), no_hints_of_kernels(), known, usual_methods(), torch.no_grad():
            return ask(without_memory(module.eval(), known), media(self._sizes(1)))

    def _whole(self, sizes: InputSizes) -> dict[str, Any]:
        """Inputs of all tokens at once, with an image or sound."""
        tokens, given = sizes.tokens, media(sizes)
        if not self.reads_tokens:
            return given
        if self.encodes_first:
            return self._read(sizes, given) | {"decoder_input_ids": ids(sizes, 0, tokens)}
        words = placeholders(sizes, ids(sizes, 0, tokens), self.marked)
        return {"input_ids": words, **positions(sizes, 0, tokens), **given}

    def _read(self, sizes: InputSizes, given: dict[str, Any]) -> dict[str, Any]:
        """Inputs of the encoder: tokens, sound, an image, or tokens with an image."""
        if "input_ids" not in self.parameters or (given and self.kind.main_input_name != "input_ids"):
            return given
        words = encoder_ids(sizes, 0, self.read or sizes.tokens)
        return {"input_ids": placeholders(sizes, words, self.marked), **given}

    def _going_on(self, sizes: InputSizes) -> Example:
        """A token after the others, or a chunk of a prompt after what the cache has.

        The last of the others comes by a step of its own too: what prefill leaves is gone.
        """
        last = self.cached or self.tokens
        parts = [(begin, end) for begin, end in ((0, last - 1), (last - 1, last), (last, self.seen)) if end > begin]
        if not self.encodes_first:
            encoded = read = {}
        else:
            encoded, read = self._encoded(sizes), self._read(sizes, media(sizes))
        *prompt, step = [self._written(sizes, *part, encoded if n else read) for n, part in enumerate(parts)]
        return self._generating(step, tuple(prompt))

    def _written(self, sizes: InputSizes, begin: int, end: int, encoder: Mapping[str, Any]) -> dict[str, Any]:
        """Inputs of a step that writes some tokens; those of the encoder, or what it has made, beside them."""
        if not self.encodes_first:
            return ids_at(sizes, begin, end) | self.filling
        return {**encoder, "decoder_input_ids": ids(sizes, begin, end)} | self.filling

    def _generating(self, step: dict[str, Any], prompt: tuple[dict[str, Any], ...]) -> Example:
        return Example(
            kwargs=step,
            prompt=prompt,
            cache=self.cache,
            empty_cache=self.empty_cache(),
            seen=self.seen,
            known=self.has_values,
        )

    def _encoded(self, sizes: InputSizes) -> dict[str, Any]:
        """What the encoder has made of its input before the step: of tokens alone a vector for each."""
        from transformers.modeling_outputs import MoEModelOutput

        def outputs(module: Any, given: dict[str, Any]) -> Any:
            encoder = module.get_encoder()
            taken = inspect.signature(encoder.forward).parameters
            read = {name: value for name, value in self._read(self.sizes, given).items() if name in taken}
            return tree_map_only(torch.Tensor, _Shape.of, encoder(**read))

        try:
            tried = self._tried(outputs)
        except ModelError as error:
            words = self._read(self.sizes, media(self.sizes)).keys() == {"input_ids"}
            if not words or not isinstance(error.__cause__, VALUES_DECIDE):
                raise
            shape = (self.read or self.tokens, self.config.hidden_size)
            tried = MoEModelOutput(last_hidden_state=_Shape(shape, torch.float32))  # of a mixture
        return {"encoder_outputs": tree_map_only(_Shape, lambda shape: shape.made(sizes.batch), tried)}

    def _targets(self, sizes: InputSizes) -> Any:
        n, kind = sizes.batch, self.purpose.targets
        if kind == "tokens":
            return label_ids(sizes)
        if kind == "classes":
            return torch.randint(0, max(1, self.config.num_labels), (n,))
        if kind == "frames":
            return torch.randint(1, max(2, text_of(self.config).vocab_size), (n, LABELS))
        return torch.arange(n) if kind == "pairs" else None


def ids_at(sizes: InputSizes, begin: int, end: int) -> dict[str, Any]:
    """Return random tokens at some positions."""
    return {"input_ids": ids(sizes, begin, end), **positions(sizes, begin, end)}


@dataclass(frozen=True, slots=True)
class _Shape:
    """The shape of one sequence's tensor."""

    sizes: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, tensor: torch.Tensor) -> _Shape:
        return cls(tuple(tensor.shape[1:]), tensor.dtype)

    def made(self, batch: int) -> torch.Tensor:
        """Return random numbers, or ones where they are none."""
        shape = (batch, *self.sizes)
        if self.dtype.is_floating_point:
            return torch.randn(shape, dtype=self.dtype)
        return torch.ones(shape, dtype=self.dtype, device="cpu")


def _parts(module: Any) -> Iterator[Any]:
    """Yield a module and the model inside of it."""
    yield from (part for part in (module, *(getattr(module, name, None) for name in INNER)) if part is not None)


def _vectors_of(reader: str, module: Any, given: dict[str, Any]) -> int:
    """Return how many vectors a method of a module makes of an image or a recording."""
    methods = [method for part in _parts(module) if (method := getattr(part, reader, None)) is not None]
    if not methods:
        return 0
    method, outer = methods[0], inspect.signature(methods[0]).parameters
    handed_on = methods if any(p.kind is p.VAR_KEYWORD for p in outer.values()) else methods[:1]
    taken = {name for one in handed_on for name in inspect.signature(one).parameters}
    hidden = "args" in taken  # by a decorator
    features = method(**{name: value for name, value in given.items() if hidden or name in taken})
    held = features.pooler_output if getattr(features, "pooler_output", None) is not None else features
    held = getattr(held, "last_hidden_state", held)
    tensors = held if isinstance(held, list | tuple) else [held]
    return sum(tensor.numel() // tensor.shape[-1] for tensor in tensors)
