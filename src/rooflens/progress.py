"""What a long task tells while it runs."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[float, str], None]
"""Takes the share that is done, 0 to 1, and what is being done."""
