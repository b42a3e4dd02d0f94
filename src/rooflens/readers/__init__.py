"""Files as records, whoever wrote them: one list of readers.

>>> read_file(Path("report.csv"), Context(name="report")).total().seconds  # doctest: +SKIP

A reader is one module with a :class:`Reader`, and one line in :mod:`rooflens.readers.registry`. Another package names
its readers as entry points of the group ``rooflens.readers``.
"""

from rooflens.readers.reader import Context, Reader
from rooflens.readers.registry import read_file, readers

__all__ = ["Context", "Reader", "read_file", "readers"]
