"""Files as records, whoever wrote them: one list of readers.

>>> read_file(Path("report.csv"), ReadContext(name="report")).total().seconds  # doctest: +SKIP

A reader is one module with a :class:`Reader`, and one name in :mod:`rooflens.readers.reader_list`. Other packages name
theirs as entry points of the group ``rooflens.readers``.
"""

from rooflens.readers.reader import ReadContext, Reader
from rooflens.readers.reader_list import read_file, readers
