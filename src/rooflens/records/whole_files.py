"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rooflens.errors import OutputError


def check_writable(path: Path) -> None:
    """Raise OutputError if the folder of `path` cannot be made or written, before the work is done."""
    with _naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Raise an error of the system as OutputError, which names the path."""
    try:
        yield
    except OSError as error:
        raise OutputError(f"cannot write {str(path)!r}: {error.strerror}; choose another place with -o") from error


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write under a temporary name in the folder of `path`, then rename; OutputError if that cannot be written."""
    data = content.encode() if isinstance(content, str) else content
    with _naming(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.chmod(temporary, 0o666 & ~_umask())
            os.replace(temporary, path)
        finally:
            Path(temporary).unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
