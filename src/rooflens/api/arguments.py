"""The arguments of a public function: as a mapping, since many say what is run, and checked by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from rooflens.errors import UnknownOption

P = ParamSpec("P")
R = TypeVar("R")


def given_to(function: Callable[..., Any], variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call among the local variables of the function, without what it computed itself."""
    code = inspect.unwrap(function).__code__
    return {name: variables[name] for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]}


def named_options(
    others: Callable[..., Any] | None = None, without: Collection[str] = ()
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator: of an option that a function has not, its caller is told which was meant and which are known.

    Args:
        others: the function that takes all other options.
        without: options of that function that are not passed on.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        own = inspect.signature(function).parameters
        more = () if others is None else (name for name in _options(others) if name not in (*own, *without))
        known = (*_options(function), *more)
        accepted = {*own, *known}

        @wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> R:
            for name in kwargs:
                if name not in accepted:
                    raise UnknownOption(function.__name__, name, known)
            return function(*args, **kwargs)

        return called

    return decorate


def _options(function: Callable[..., Any]) -> Iterator[str]:
    """Yield the parameters that a function takes by name alone."""
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY:
            yield name
