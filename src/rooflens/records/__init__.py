"""The vocabulary: observations of pieces of cases. Frozen types, no behaviour beyond arithmetic.

Importing this package needs nothing but the standard library.
"""

from rooflens.records.allocation import MemoryBlock, allocated, peak_memory, with_cache
from rooflens.records.bound import Bound, Point
from rooflens.records.device import Ceiling, CeilingOrigin, Device, Fact, Silicon
from rooflens.records.files import FORMAT, RECORD_SUFFIXES, RecordFile, is_record_file, read_records, write_records
from rooflens.records.floor import CAUSES, Cause, Floor
from rooflens.records.folders import file_name, without_folders
from rooflens.records.kv_cache import CachePart, KvCache
from rooflens.records.operation import (
    ANSWER_PHASES,
    EVERY_PHASE,
    PHASES,
    Access,
    Argument,
    Call,
    HostCalls,
    Operation,
    Phase,
    Strides,
    Tensor,
    dense_strides,
    is_training,
)
from rooflens.records.record import (
    AS_IS,
    BOUND,
    DTYPES,
    MEMORY_CAUSES,
    MODES,
    WITH_THE_BATCH,
    Case,
    Conditions,
    Environment,
    Failure,
    FailureKind,
    Memory,
    Record,
    Scalar,
    Scope,
    Source,
    Traffic,
    short_list,
)
from rooflens.records.scaling import Scaling
from rooflens.records.timing import Timing, in_sequence
from rooflens.records.trace import Cached, Mask, Trace
from rooflens.records.traced_module import Shape, TracedModule
from rooflens.records.whole_files import check_writable, write_atomically
from rooflens.records.work import COMPUTE_RESOURCES, DATA_RESOURCES, LEVELS, LINKS, PRECISIONS, UNITS, Origin, Work
