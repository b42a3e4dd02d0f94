"""Exports of Nsight Systems: ``nsys export --type sqlite``.

A database is data of somebody else: it is opened read-only, only known columns of plain tables are read, and nothing in
it (views, triggers, functions) is run.
"""

from rooflens.sources.profile.nsys.activity_records import cards_of, records_of
from rooflens.sources.profile.nsys.database import MAGIC
from rooflens.sources.profile.nsys.export import Export, read_export
