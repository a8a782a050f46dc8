"""Files and frames in, numbers and a report out: what is measured outside training, by the same metrics.

DuckDB reads, joins and sorts; it and the other packages of the extra ``offline`` are imported where they are used.
U users, B events or users of a batch, K cutoff.
"""

from torch_recmetrics.offline.evaluation import evaluate
from torch_recmetrics.offline.inputs.sources import InputError
from torch_recmetrics.offline.item_to_item import item_to_item
from torch_recmetrics.offline.off_policy import off_policy
from torch_recmetrics.offline.overlap import Overlap, overlap
from torch_recmetrics.offline.reports.report import Input, Report

__all__ = ["Input", "InputError", "Overlap", "Report", "evaluate", "item_to_item", "off_policy", "overlap"]
