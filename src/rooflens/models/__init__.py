"""From a name, a file or a module to a Step: module, inputs, and what a mode runs."""

from rooflens.models.blueprint import Blueprint, Example
from rooflens.models.construction import build
from rooflens.models.forms import split_inputs
from rooflens.models.kv_caches import begun_cache, cache_tensors, kv_cache, valid_parts
from rooflens.models.load import check_not_generating, check_words, find, make_example, make_step
from rooflens.models.process import kept_switches, neutral
from rooflens.models.running import Executable, compiled, eager, placed, replayed, running, switches
from rooflens.models.settings import changed_while_running, settings
from rooflens.models.step import (
    Loss,
    Step,
    as_result,
    check_whole,
    is_compiled,
    make_optimizer,
    sum_of_outputs,
    unwrapped,
    with_results,
)
from rooflens.models.userfile import CallAgain
from rooflens.models.workload import Workload, workload, workload_of
