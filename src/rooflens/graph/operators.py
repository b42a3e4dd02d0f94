"""What is known of ONNX operators by name alone: the tables of operators.toml."""

from __future__ import annotations

import tomllib
from importlib.resources import files

_TABLES = tomllib.loads(files(__package__).joinpath("operators.toml").read_text(encoding="utf-8"))
COMPUTED_BEFOREHAND: frozenset[str] = frozenset(_TABLES["computed_beforehand"])
UNARY: dict[str, str] = _TABLES["unary"]
BINARY: dict[str, str] = _TABLES["binary"]
VARIADIC: dict[str, str] = _TABLES["variadic"]
OF_FIRST_INPUT: dict[str, str] = _TABLES["of_first_input"]
RANDOM: dict[str, str] = _TABLES["random"]
SHAPED_LIKE: dict[str, str] = _TABLES["shaped_like"]
NO_WEIGHTS: dict[str, list[int]] = _TABLES["no_weights"]
INTEGER_WEIGHTS: dict[str, list[int]] = _TABLES["integer_weights"]
