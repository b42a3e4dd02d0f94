"""The arguments of a public function: as a mapping, since many say what is run, and checked by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
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
        more = () if others is None else (name for name in option_names(others) if name not in (*own, *without))
        known = (*option_names(function), *more)
        accepted = {*own, *known}

        @wraps(function)
        def called(*args: P.args, **kwargs: P.kwargs) -> R:
            if not kwargs.keys() <= accepted:
                check_names(function.__name__, (name for name in kwargs if name not in accepted), known)
            return function(*args, **kwargs)

        return called

    return decorate


def check_names(function: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise UnknownOption for the first name that a function has no option of."""
    names = tuple(dict.fromkeys(known))
    for name in given:
        if name not in names:
            raise UnknownOption(function, name, names)


def option_names(function: Callable[..., Any]) -> Iterator[str]:
    """Yield the parameters that a function takes by name alone."""
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.KEYWORD_ONLY:
            yield name
