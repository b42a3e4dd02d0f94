"""What a module of a model is, and on which sizes a step calls it."""

from __future__ import annotations

from dataclasses import dataclass

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedModule:
    """A module of a model, without the modules in it.

    Attributes:
        path: dotted path, ``""`` for the model.
        kind: name of its class.
        parameters: elements of its own parameters, less those that a module before it holds too.
        trainable: those of them that need a gradient.
        shared: elements of its own parameters that a module before it holds too.
        nbytes: bytes of its own parameters and buffers, less those that a module before it holds too; None where they
            are not known.
        kernel_size: of a convolution or a pooling; empty for other modules.
        inputs: shapes of the tensors that its first call in the step was given; empty where there was none.
        outputs: shapes of those that it returned.
        calls: how often the step calls it in forward; None where that is not known, as inside of a script.
    """

    path: str
    kind: str
    parameters: int = 0
    trainable: int = 0
    shared: int = 0
    nbytes: int | None = None
    kernel_size: tuple[int, ...] = ()
    inputs: tuple[Shape, ...] = ()
    outputs: tuple[Shape, ...] = ()
    calls: int | None = None
