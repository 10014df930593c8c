"""The five papers' closed forms, one function each, and exact means where a paper only simulates.

Times are in seconds, loads are shares of the data set unless a function counts parts; a bad argument raises
`SettingError`. Where a paper's printed formula or number is wrong, the function's notes say so and it returns
the right one.

>>> from workbench import theory
>>> theory.cr_load(children=3, layers=2, stragglers=1) == 4 / 15
True
"""

from workbench.theory.access import (
    expected_accesses,
    missed_given_slow,
    missed_shuffled,
    missed_unshuffled,
    straggler_probability,
    survivor_distribution,
)
from workbench.theory.approximate import (
    crc_error,
    crc_error_given_slow,
    crc_errors,
    frc_error,
    frc_error_given_slow,
)
from workbench.theory.baseline_times import frc_time, rar_time, sgd_time, umw_time
from workbench.theory.cada import cada_selected, cada_time, dadam_time, gcada_time
from workbench.theory.cada_loads import communication_ratio, gcada_communication, gcada_computation
from workbench.theory.coded_reduce import cr_load, cr_resiliency, cr_stragglers, cr_workers, gc_load
from workbench.theory.many_messages import mmc_completion
from workbench.theory.multi_message import (
    clustered_gc_completion,
    gc_completion,
    lcc_completion,
    lcc_threshold,
)
from workbench.theory.necklaces import moebius, necklace_count, necklaces
from workbench.theory.order_statistics import (
    exponential_order_mean,
    exponential_order_std,
    grouped_order_mean,
    harmonic,
    max_of_minima_mean,
    order_statistic_mean,
)
from workbench.theory.parallelisation import (
    cr_parallelisation,
    cr_time_bounds,
    parallelisation_order,
    rar_parallelisation,
)
from workbench.theory.round_times import cr_time, gc_time
from workbench.theory.ye_abbe import cegc_achievable, cegc_best, cegc_survival, cegc_table, cegc_time

__all__ = [
    "cada_selected",
    "cada_time",
    "cegc_achievable",
    "cegc_best",
    "cegc_survival",
    "cegc_table",
    "cegc_time",
    "clustered_gc_completion",
    "communication_ratio",
    "cr_load",
    "cr_parallelisation",
    "cr_resiliency",
    "cr_stragglers",
    "cr_time",
    "cr_time_bounds",
    "cr_workers",
    "crc_error",
    "crc_error_given_slow",
    "crc_errors",
    "dadam_time",
    "expected_accesses",
    "exponential_order_mean",
    "exponential_order_std",
    "frc_error",
    "frc_error_given_slow",
    "frc_time",
    "gc_completion",
    "gc_load",
    "gc_time",
    "gcada_communication",
    "gcada_computation",
    "gcada_time",
    "grouped_order_mean",
    "harmonic",
    "lcc_completion",
    "lcc_threshold",
    "max_of_minima_mean",
    "missed_given_slow",
    "missed_shuffled",
    "missed_unshuffled",
    "mmc_completion",
    "moebius",
    "necklace_count",
    "necklaces",
    "order_statistic_mean",
    "parallelisation_order",
    "rar_parallelisation",
    "rar_time",
    "sgd_time",
    "straggler_probability",
    "survivor_distribution",
    "umw_time",
]
