"""Evidence: the values of users, paired tests of two runs, the decision to go live, and checks of the harness.

Nothing is resampled but users. Standard tests come from SciPy and statsmodels, files from pyarrow, each imported where
it is needed. U users, B draws, V vectors of the users that are resampled together.
"""

from torch_recmetrics.compare.agreement import Agreement, AgreementRow, agreement
from torch_recmetrics.compare.comparison import Comparison, ComparisonRow, compare
from torch_recmetrics.compare.gate import Gate, RuleVerdict, Verdict
from torch_recmetrics.compare.preflight import Check, Preflight, preflight
from torch_recmetrics.compare.randomization import randomization_test
from torch_recmetrics.compare.statistics import (
    ChiSquare,
    McNemar,
    PairedResult,
    bootstrap_test,
    chi_square,
    corrected,
    mcnemar,
    t_test,
    users_needed,
    wilcoxon_test,
)
from torch_recmetrics.users.user_values import UserValues

__all__ = [
    "Agreement",
    "AgreementRow",
    "Check",
    "ChiSquare",
    "Comparison",
    "ComparisonRow",
    "Gate",
    "McNemar",
    "PairedResult",
    "Preflight",
    "RuleVerdict",
    "UserValues",
    "Verdict",
    "agreement",
    "bootstrap_test",
    "chi_square",
    "compare",
    "corrected",
    "mcnemar",
    "preflight",
    "randomization_test",
    "t_test",
    "users_needed",
    "wilcoxon_test",
]
