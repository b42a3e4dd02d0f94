"""The arguments of a public function, as a mapping: those that say what is run are many, and the same in several."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def given_to(function: Callable[..., Any], variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call among the local variables of the function, without what it computed itself."""
    code = function.__code__
    return {name: variables[name] for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]}
