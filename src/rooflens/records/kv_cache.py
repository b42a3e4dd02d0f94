"""KvCache: what a language model keeps of the tokens it has seen, as numbers of its own."""

from __future__ import annotations

from dataclasses import dataclass

from rooflens.errors import InvalidValue


@dataclass(frozen=True, slots=True, kw_only=True)
class CachePart:
    """Tensors of a cache that are alike, mostly one per layer.

    Attributes:
        name: what transformers calls it: keys, values, conv_states, recurrent_states, indexer_keys ...
        shape: sizes as the next step sees them.
        dtype: element type of its storage.
        tensors: how many there are.
        held: bytes of each one's storage: a window is a view of what it was cut from.
        used: bytes of each that the next step needs: those of the window, or of the filled part of a static cache.
        compression: tokens for which one of its entries stands.
        per_token: bytes that the next token of every sequence adds to each; where entries stand for several tokens, the
            share of one.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    tensors: int
    held: int
    used: int
    per_token: float
    compression: int = 1

    def __post_init__(self) -> None:
        if self.tensors < 1 or min(self.held, self.used, self.per_token, *self.shape, 0) < 0:
            raise InvalidValue(f"{self} cannot be part of a cache: no number of it is negative, and there is a tensor")


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCache:
    """What a cache holds after a step. All numbers are bytes of tensors, without the allocator's rounding.

    Attributes:
        batch: sequences; `tokens`: how many tokens of each it has seen.
        parts: its tensors.
    """

    batch: int
    tokens: int
    parts: tuple[CachePart, ...]

    def __post_init__(self) -> None:
        if min(self.batch, self.tokens) < 1:
            raise InvalidValue(f"a cache cannot hold {self.tokens} tokens of {self.batch} sequences")

    @property
    def held(self) -> int:
        """Bytes that it takes in memory."""
        return sum(part.tensors * part.held for part in self.parts)

    @property
    def used(self) -> int:
        """Bytes of it that the next step needs: never more than `held`."""
        return sum(part.tensors * part.used for part in self.parts)

    @property
    def per_token(self) -> float:
        """Bytes that the next token of one sequence adds: none of a state, or of a window that is full."""
        return sum(part.tensors * part.per_token for part in self.parts) / self.batch
