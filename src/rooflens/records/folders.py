"""Text without the folders of the machine on which it was written: records name files, and not where they lay."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path

_USUAL = ("home", "Users", "root", "tmp", "var", "usr", "opt", "etc", "mnt", "media", "data", "scratch", "work", "srv")
"""Folders of a root that text of another machine may name."""
_INSIDE = r"[^\s/\\'\":,;()\[\]]"


def without_folders(text: str) -> str:
    """Return text in which a file has its name alone, or its path below the working folder.

    >>> without_folders("cannot read '/home/ann/my models/net.py': no such file")
    "cannot read 'net.py': no such file"
    """
    if "/" not in text and "\\" not in text:
        return text
    for folder in _ours():
        text = re.sub(rf"(?<![\w/.~-]){re.escape(folder)}/", "", text)
    text = _quoted().sub(lambda match: f"{match[1]}{_name(match[2])}{match[1]}", text)
    return _plain().sub(lambda match: _name(match[0]), text)


def file_name(path: str, *, below_here: bool = True) -> str:
    """Return the path of a file below the working folder, or its name without a folder; a relative path as it is.

    Args:
        below_here: false where the working folder may be another one each time.

    >>> file_name("/srv/models/net.py:build"), file_name("models/net.py:build")
    ('net.py:build', 'models/net.py:build')
    """
    whole = os.path.expanduser(path)
    if not os.path.isabs(whole):
        return path
    here = next((folder for folder in _ours() if below_here and whole.startswith(f"{folder}/")), None)
    return os.path.basename(whole) if here is None else whole.removeprefix(f"{here}/")


def _name(path: str) -> str:
    """Return the last name of a path; a home folder has none, since that is its user's."""
    parts = [part for part in re.split(r"[/\\]", path) if part]
    home = (len(parts) <= 2 and parts[:1] in (["home"], ["Users"])) or parts == ["root"]
    return "~" if home or path.rstrip("/") == str(Path.home()) else parts[-1]


def _ours() -> tuple[str, ...]:
    """Return the working folder, unless it is a root or a home, whose name tells enough."""
    try:
        here = os.getcwd()
    except FileNotFoundError:  # it was removed
        return ()
    return () if here == "/" else (here,)


@cache
def _roots() -> str:
    """Return a pattern of what absolute paths begin with: folders that this machine has, and usual ones.

    Anything else after a slash may be a unit, or the name of an operation in an ONNX file.
    """
    there = [entry.name for entry in os.scandir("/") if entry.is_dir()]
    names = "|".join(map(re.escape, dict.fromkeys((*_USUAL, *there))))
    return rf"(?:~{_INSIDE}*|/(?:{names})(?=[/\s'\":,;)\]]|$)|[A-Za-z]:\\{_INSIDE}*)"


@cache
def _quoted() -> re.Pattern[str]:
    r"""Return the pattern of a quoted absolute path, which may hold spaces."""
    return re.compile(rf"(['\"])({_roots()}(?:[/\\][^'\"\n]*)?)\1")


@cache
def _plain() -> re.Pattern[str]:
    return re.compile(rf"(?<![\w/.:~\\-]){_roots()}(?:[/\\]+{_INSIDE}+)*[/\\]?")
