"""Which argument gives which library's number: the table of the documentation and of the tests.

`K` stands for the cutoff. Each row is computed on both sides by tests/outside/test_library_table.py where its library
can be imported; the others were read in the source of the version that is named. `python docs/library_table.py` writes
docs/libraries.md.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PAGE = Path(__file__).with_name("libraries.md")
HEAD = """\
# Which argument gives which library's number

Two libraries may give one name to two numbers. In each row below, both sides give the same number. `K` stands for the
cutoff.

The tests compute both sides of every row whose library can be installed beside the package. They use users with fewer
and with more than K relevant items, and graded relevance where the metric reads it; no two scores are equal. *Read in
its source* marks the libraries that are not computed. What the options mean is in [definitions](definitions.md). Code
before and after is in [coming from another library](coming_from/index.md).

This page is written by `python docs/library_table.py`.
"""


@dataclass(frozen=True)
class Row:
    """One number of another library and what gives it here."""

    library: str
    theirs: str
    metric: str
    options: dict[str, Any] = field(default_factory=dict)
    cut: bool | None = True  # False: over the whole list; None: the metric has no cutoff
    note: str = ""

    @property
    def ours(self) -> str:
        cutoff = [] if self.cut is None else ["top_k=K" if self.cut else "top_k=None"]
        return f"{self.metric}({', '.join([*cutoff, *(f'{name}={value!r}' for name, value in self.options.items())])})"


@dataclass(frozen=True)
class Library:
    """A library, the version that the rows were compared with, and what holds for all its rows."""

    name: str
    version: str
    tested: bool = True  # False: read in its source
    note: str = ""


LIBRARIES = [
    Library(
        "torchmetrics",
        "1.9.0",
        note='A user without relevant items counts 0 by default: give `empty_target_action="neg"` here. Items with '
        "scores of 0 or less count as not relevant in MAP, MRR, precision and recall: compare on positive scores.",
    ),
    Library(
        "scikit-learn",
        "1.9.1",
        note='A user without relevant items counts 0 in `ndcg_score` (`"neg"`), and 1 in '
        '`label_ranking_average_precision_score` (`"pos"`). Equal scores are averaged in `ndcg_score`, as here.',
    ),
    Library("ranx", "0.3.21", note="Users without relevant items are not in the qrels."),
    Library(
        "trec_eval",
        "pytrec_eval-terrier 0.5.11",
        note="Equal scores are ordered by the name of the document. Users without relevant items are not in the qrels.",
    ),
    Library("ir_measures", "0.4.3", note="Here with its default providers; see trec_eval."),
    Library("PyG", "torch-geometric 2.8.1", note='Users without relevant items are left out (`"skip"`).'),
    Library(
        "ignite",
        "pytorch-ignite 0.5.5",
        note='`ignore_zero_hits=True`, its default, is our `"skip"`, False `"neg"`. '
        'Equal scores stay in the order of the input in its NDCG: give ours `ties="stable"`. In its hit rate they '
        "stand in that of `torch.topk`, and K must not be above the number of items.",
    ),
    Library(
        "Keras-RS",
        "0.4.0",
        note='A user without relevant items counts 0 (`"neg"`). Its sample weights also weigh lists without relevant '
        "items.",
    ),
    Library(
        "RePlay",
        "replay-rec 0.22.0",
        note="Users without relevant items are not in its ground truth. Its torch builder gives the same numbers, and "
        'there such a user counts 0 (`"neg"`).',
    ),
    Library(
        "RecTools",
        "0.19.0",
        note="Users without relevant items are not in its interactions. NDCG divides by the ideal DCG of K relevant "
        "items unless `divide_by_achievable=True`; MAP with `divide_by_k=True` divides by K.",
    ),
    Library("RecBole", "1.2.1", note="Only users with relevant items are evaluated."),
    Library(
        "torcheval",
        "0.0.7",
        note='Of equal scores the relevant item counts first (`ties="optimistic"`) in its hit rate and reciprocal '
        "rank. Its AUC of a single class is 0.5, ours nan.",
    ),
    Library(
        "torchrec",
        "1.9.2",
        note="`AUCMetric` with groups counts a group of one class as 0.5; `GAUCMetric` and ours leave it out. Equal "
        "scores count in the order in which they are sorted there, one half here. Its normalized entropy is a quotient "
        "of log losses in bits, the same number. Its NDCG is reported as 1 - NDCG by default; a session without "
        'relevant items counts 0 there (`"neg"`). A session must be in one batch.',
    ),
    Library(
        "LensKit",
        "2025.8.1",
        note="Discounts 1 / log2(max(r, 2)), so ranks 1 and 2 count alike. No option gives its `rank_biased_overlap`, "
        "which divides by the weight of the first n ranks where RBO goes on as the lists were. It has no metric with "
        "propensities; one is proposed, of which `RBP(propensities=...)` is the kind.",
    ),
    Library(
        "implicit",
        "0.7.3",
        note="Users without relevant items do not count.",
    ),
    Library(
        "FuxiCTR",
        "2.3.10",
        note="Groups of one class are left out of its AUCs, as here. A group without clicks counts 0 in its NDCG "
        '(`empty_target_action="neg"`).',
    ),
    Library(
        "TF-Ranking",
        "0.5.5",
        tested=False,
        note='A list without relevant items counts 0 (`"neg"`). DCG is divided by the weight of the list.',
    ),
    Library(
        "Elliot",
        "0.3.1",
        tested=False,
        note="It is on no package index. Only users with a list and a relevant item are evaluated. Its MAP is the mean "
        "of the precisions at 1 to K, which no option gives: [the code](coming_from/elliot.md).",
    ),
    Library(
        "SciPy",
        "1.17.1",
        tested=False,
        note="Computed by tests/metrics/test_agreement.py: it takes the place of each item in two lists.",
    ),
    Library("rbo", "0.1.3", tested=False, note="Computed by tests/metrics/test_agreement.py where it is installed."),
    Library(
        "obp",
        "0.5.5",
        tested=False,
        note="`pscore` is our `logged`, the probability in `action_dist` of what was shown our `policy`. Early "
        "versions divide the whole of SNDR by the mean weight, and 0.4.1 calls `lambda_` of switch-dr `tau`. Its "
        "intervals are bootstraps of rows. Computed by tests/metrics/test_off_policy.py where it is installed.",
    ),
    Library(
        "jurity",
        "2.1.0",
        tested=False,
        note="It takes the items that a new policy recommends, so our `policy` is 1 where the logged item is "
        "recommended and 0 elsewhere, and `expected` and `expected_policy` are what the model says of the recommended "
        "item. Computed by tests/metrics/test_off_policy.py where it and pandas 2 are installed.",
    ),
]

LINEAR = {"gain": "linear"}
RELEVANT = {"denominator": "relevant"}
RETRIEVED = {"denominator": "retrieved"}
FROM_2 = {"min_relevance": 2, "empty_target_action": "neg"}
UNIFORM = {"weighting": "uniform"}
BINARY = "for relevance of 0 and 1"

ROWS = [
    Row("torchmetrics", "RetrievalHitRate(top_k=K)", "HitRate"),
    Row("torchmetrics", "RetrievalPrecision(top_k=K)", "Precision"),
    Row("torchmetrics", "RetrievalPrecision(top_k=K, adaptive_k=True)", "Precision", RETRIEVED),
    Row("torchmetrics", "RetrievalRecall(top_k=K)", "Recall"),
    Row("torchmetrics", "RetrievalMAP(top_k=K)", "MAP", {"denominator": "hits"}),
    Row("torchmetrics", "RetrievalMRR(top_k=K)", "MRR"),
    Row("torchmetrics", "RetrievalNormalizedDCG(top_k=K)", "NDCG", LINEAR),
    Row("torchmetrics", "RetrievalRPrecision()", "RPrecision", cut=False),
    Row("torchmetrics", "BinaryAveragePrecision()", "AveragePrecision", cut=None),
    Row("torchmetrics", "RetrievalAUROC()", "GroupAUC", UNIFORM, cut=None, note="it counts a group of one class as 0"),
    Row("torchmetrics", "BinaryAUROC()", "BinaryAUC", cut=None),
    Row("scikit-learn", "ndcg_score(k=K)", "NDCG", LINEAR),
    Row("scikit-learn", "dcg_score(k=K)", "DCG", LINEAR),
    Row("scikit-learn", "label_ranking_average_precision_score()", "MAP", RELEVANT, cut=False),
    Row("scikit-learn", "roc_auc_score()", "BinaryAUC", cut=None),
    Row("scikit-learn", "roc_auc_score(max_fpr=0.2)", "BinaryAUC", {"max_fpr": 0.2}, cut=None),
    Row("scikit-learn", "average_precision_score()", "AveragePrecision", cut=None),
    Row("scikit-learn", "log_loss()", "LogLoss", cut=None),
    Row("ranx", "hit_rate@K", "HitRate"),
    Row("ranx", "precision@K", "Precision"),
    Row("ranx", "recall@K", "Recall"),
    Row("ranx", "recall@K-l2", "Recall", FROM_2),
    Row("ranx", "f1@K", "F1"),
    Row("ranx", "map@K", "MAP", RELEVANT),
    Row("ranx", "mrr@K", "MRR"),
    Row("ranx", "dcg@K", "DCG", LINEAR),
    Row("ranx", "dcg_burges@K", "DCG"),
    Row("ranx", "hits@K", "DCG", {"discount": "none"}, note=BINARY),
    Row("ranx", "ndcg@K", "NDCG", LINEAR),
    Row("ranx", "ndcg_burges@K", "NDCG"),
    Row("ranx", "r-precision", "RPrecision", cut=False),
    Row("ranx", "rbp.80", "RBP", cut=False, note=BINARY),
    Row("ranx", "rbp.50", "RBP", {"persistence": 0.5}, cut=False, note=BINARY),
    Row("trec_eval", "success_K", "HitRate"),
    Row("trec_eval", "P_K", "Precision"),
    Row("trec_eval", "recall_K", "Recall"),
    Row("trec_eval", "relative_P_K", "Recall", {"denominator": "min"}),
    Row("trec_eval", "map_cut_K", "MAP", RELEVANT),
    Row("trec_eval", "map", "MAP", RELEVANT, cut=False),
    Row("trec_eval", "recip_rank", "MRR", cut=False),
    Row("trec_eval", "Rprec", "RPrecision", cut=False),
    Row("trec_eval", "ndcg_cut_K", "NDCG", LINEAR),
    Row("trec_eval", "ndcg", "NDCG", LINEAR, cut=False),
    Row("ir_measures", "Success@K", "HitRate"),
    Row("ir_measures", "P@K", "Precision"),
    Row("ir_measures", "R@K", "Recall"),
    Row("ir_measures", "AP@K", "MAP", RELEVANT),
    Row("ir_measures", "AP(rel=2)@K", "MAP", RELEVANT | FROM_2),
    Row("ir_measures", "SetP", "Precision", cut=False),
    Row("ir_measures", "RR@K", "MRR"),
    Row("ir_measures", "ERR@K", "ERR", note="rounded to five digits by gdeval"),
    Row("ir_measures", "Rprec", "RPrecision", cut=False),
    Row("ir_measures", "nDCG@K", "NDCG", LINEAR),
    Row("ir_measures", "nDCG(dcg='exp-log2')@K", "NDCG", note="rounded to five digits by gdeval"),
    Row("PyG", "LinkPredHitRatio(k=K)", "HitRate"),
    Row("PyG", "LinkPredPrecision(k=K)", "Precision"),
    Row("PyG", "LinkPredRecall(k=K)", "Recall"),
    Row("PyG", "LinkPredF1(k=K)", "F1"),
    Row("PyG", "LinkPredMAP(k=K)", "MAP"),
    Row("PyG", "LinkPredMRR(k=K)", "MRR"),
    Row("PyG", "LinkPredNDCG(k=K)", "NDCG", note=BINARY),
    Row("PyG", "LinkPredNDCG(k=K, weighted=True)", "NDCG", LINEAR),
    Row("ignite", "HitRate(top_k=[K])", "HitRate"),
    Row("ignite", "NDCG(top_k=[K])", "NDCG"),
    Row("ignite", "NDCG(top_k=[K], gain_function='linear_rank')", "NDCG", LINEAR),
    Row("Keras-RS", "PrecisionAtK(k=K)", "Precision", RETRIEVED),
    Row("Keras-RS", "RecallAtK(k=K)", "Recall"),
    Row("Keras-RS", "MeanAveragePrecision(k=K)", "MAP", RELEVANT),
    Row("Keras-RS", "MeanReciprocalRank(k=K)", "MRR"),
    Row("Keras-RS", "DCG(k=K)", "DCG"),
    Row("Keras-RS", "NDCG(k=K)", "NDCG"),
    Row("RePlay", "HitRate(K)", "HitRate"),
    Row("RePlay", "Precision(K)", "Precision"),
    Row("RePlay", "Recall(K)", "Recall"),
    Row("RePlay", "MAP(K)", "MAP"),
    Row("RePlay", "MRR(K)", "MRR"),
    Row("RePlay", "NDCG(K)", "NDCG", note=BINARY),
    Row("RecTools", "HitRate(k=K)", "HitRate"),
    Row("RecTools", "Precision(k=K)", "Precision"),
    Row("RecTools", "Recall(k=K)", "Recall"),
    Row("RecTools", "F1Beta(k=K)", "F1"),
    Row("RecTools", "F1Beta(k=K, beta=2.0)", "F1", {"beta": 2.0}),
    Row("RecTools", "Precision(k=K, r_precision=True)", "Recall", {"denominator": "min"}),
    Row("RecTools", "MAP(k=K)", "MAP", RELEVANT),
    Row("RecTools", "MRR(k=K)", "MRR"),
    Row("RecTools", "NDCG(k=K, divide_by_achievable=True)", "NDCG", note=BINARY),
    Row("RecBole", "Hit@K", "HitRate"),
    Row("RecBole", "Precision@K", "Precision"),
    Row("RecBole", "Recall@K", "Recall"),
    Row("RecBole", "MAP@K", "MAP"),
    Row("RecBole", "MRR@K", "MRR"),
    Row("RecBole", "NDCG@K", "NDCG", note=BINARY),
    Row("RecBole", "GAUC", "GroupAUC", {"weighting": "positives"}, cut=None),
    Row("RecBole", "AUC", "BinaryAUC", cut=None),
    Row("RecBole", "LogLoss", "LogLoss", cut=None),
    Row("torcheval", "hit_rate(k=K)", "HitRate", {"ties": "optimistic"}, note="one relevant item for each user"),
    Row("torcheval", "retrieval_precision(k=K)", "Precision"),
    Row("torcheval", "retrieval_precision(k=K, limit_k_to_size=True)", "Precision", RETRIEVED),
    Row("torcheval", "reciprocal_rank(k=K)", "MRR", {"ties": "optimistic"}, note="one relevant item for each user"),
    Row("torcheval", "binary_auroc()", "BinaryAUC", cut=None),
    Row("torcheval", "binary_normalized_entropy()", "NormalizedEntropy", cut=None),
    Row("torcheval", "weighted_calibration()", "Calibration", cut=None),
    Row("torchrec", "RecallSessionMetric(top_threshold=K)", "HitRate", {"pooled": True}),
    Row("torchrec", "1 - NDCGMetric(exponential_gain=True)", "NDCG", cut=False),
    Row("torchrec", "1 - NDCGMetric()", "NDCG", LINEAR, cut=False),
    Row("torchrec", "AUCMetric", "BinaryAUC", cut=None),
    Row("torchrec", "GAUCMetric", "GroupAUC", UNIFORM, cut=None, note="it leaves out groups of equal scores"),
    Row("torchrec", "NEMetric", "NormalizedEntropy", cut=None),
    Row("torchrec", "CalibrationMetric", "Calibration", cut=None),
    Row("LensKit", "Hit(n=K)", "HitRate"),
    Row("LensKit", "Precision(n=K)", "Precision", RETRIEVED, note="it leaves out empty lists"),
    Row("LensKit", "Recall(n=K)", "Recall", {"denominator": "min"}),
    Row("LensKit", "RecipRank(n=K)", "MRR"),
    Row("LensKit", "AveragePrecision(n=K)", "MAP", note="for lists of K or more"),
    Row("LensKit", "RBP(n=K)", "RBP", {"persistence": 0.85}, note=BINARY),
    Row("LensKit", "NDCG(n=K)", "NDCG", {"discount": "log2_from_two"}, note=BINARY),
    Row("LensKit", "NDCG(n=K, gain='rating')", "NDCG", {"gain": "linear", "discount": "log2_from_two"}),
    Row("LensKit", "DCG(n=K, gain='rating')", "DCG", {"gain": "linear", "discount": "log2_from_two"}),
    Row("implicit", "mean_average_precision_at_k(K)", "MAP"),
    Row("implicit", "ndcg_at_k(K)", "NDCG", note=BINARY),
    Row("implicit", "precision_at_k(K)", "Recall", {"denominator": "min", "pooled": True}),
    Row("FuxiCTR", "AUC", "BinaryAUC", cut=None),
    Row("FuxiCTR", "logloss", "LogLoss", cut=None),
    Row("FuxiCTR", "gAUC", "GroupAUC", cut=None),
    Row("FuxiCTR", "avgAUC", "GroupAUC", UNIFORM, cut=None),
    Row("FuxiCTR", "NDCG(k=K)", "NDCG", note=BINARY),
    Row("FuxiCTR", "MRR", "MRR", cut=False, note="one relevant item for each user"),
    Row("TF-Ranking", "HitsMetric(topn=K)", "HitRate"),
    Row("TF-Ranking", "PrecisionMetric(topn=K)", "Precision"),
    Row("TF-Ranking", "RecallMetric(topn=K)", "Recall"),
    Row("TF-Ranking", "MeanAveragePrecisionMetric(topn=K)", "MAP", RELEVANT),
    Row("TF-Ranking", "MRRMetric(topn=K)", "MRR"),
    Row("TF-Ranking", "NDCGMetric(topn=K)", "NDCG"),
    Row("Elliot", "HR", "HitRate"),
    Row("Elliot", "Precision", "Precision"),
    Row("Elliot", "Recall", "Recall"),
    Row("Elliot", "F1", "F1"),
    Row("Elliot", "MRR", "MRR"),
    Row("Elliot", "nDCG", "NDCG", note="relevance is the rating - relevance_threshold + 1"),
    Row("Elliot", "nDCGRendle2020", "NDCG", note=BINARY),
    Row("SciPy", "stats.kendalltau(places, reference_places)", "KendallTau", note="of the items that both lists hold"),
    Row(
        "SciPy",
        "stats.kendalltau(places, reference_places)",
        "KendallTau",
        {"missing": "tied"},
        note="of the items of both lists, those that one lacks at one place behind its end",
    ),
    Row("rbo", "RankingSimilarity(S, T).rbo_ext(p=0.9)", "RBO", cut=False),
    Row("obp", "InverseProbabilityWeighting()", "OffPolicyValue", {"estimator": "ips"}, cut=None),
    Row(
        "obp",
        "InverseProbabilityWeighting(lambda_=2)",
        "OffPolicyValue",
        {"estimator": "ips", "max_weight": 2},
        cut=None,
    ),
    Row("obp", "SelfNormalizedInverseProbabilityWeighting()", "OffPolicyValue", cut=None),
    Row("obp", "DirectMethod()", "OffPolicyValue", {"estimator": "dm"}, cut=None),
    Row("obp", "DoublyRobust()", "OffPolicyValue", {"estimator": "dr"}, cut=None),
    Row("obp", "SelfNormalizedDoublyRobust()", "OffPolicyValue", {"estimator": "sndr"}, cut=None),
    Row("obp", "SwitchDoublyRobust(lambda_=2)", "OffPolicyValue", {"estimator": "switch-dr", "switch": 2}, cut=None),
    Row("obp", "SlateIndependentIPS()", "SlateOffPolicyValue", cut=None),
    Row("obp", "SlateRewardInteractionIPS()", "SlateOffPolicyValue", {"assumption": "cascade"}, cut=None),
    Row("obp", "SlateStandardIPS()", "SlateOffPolicyValue", {"assumption": "standard"}, cut=None),
    Row("jurity", "CTR(k=1, estimation='ips')", "OffPolicyValue", {"estimator": "ips"}, cut=None),
    Row("jurity", "CTR(k=1, estimation='dr')", "OffPolicyValue", {"estimator": "dr"}, cut=None),
    Row("jurity", "CTR(k=1)", "OffPolicyValue", cut=None, note="where all items were logged as often"),
]


def markdown() -> Iterator[str]:
    """The lines of the page: a section for each library."""
    yield from HEAD.splitlines()
    for library in LIBRARIES:
        how = "" if library.tested else ", read in its source"
        note = textwrap.wrap(f"{library.version}{how}. {library.note}", 120, break_long_words=False)
        yield from ("", f"## {library.name}", "", *note, "")
        yield from ("| Theirs | Ours |", "| --- | --- |")
        for row in ROWS:
            if row.library == library.name:
                note = f" ({row.note})" if row.note else ""
                yield f"| `{row.theirs}` | `{row.ours}`{note} |"


def text() -> str:
    return "\n".join(markdown()) + "\n"


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
