"""TREC's run and qrels give the numbers of ir_measures, which reads the same files; ranx is in tests/outside."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest

from torch_recmetrics.offline import InputError, evaluate

MEASURES = {"nDCG@5": "ndcg@5", "RR@10": "mrr@10", "P@5": "precision@5", "R@10": "recall@10", "AP@10": "map@10"}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder, drawn = tmp_path_factory.mktemp("trec"), random.Random(0)
    run, qrels = [], []
    for query in range(30):
        documents = drawn.sample(range(40), 20)
        for rank, document in enumerate(documents, 1):
            run.append(f"q{query} Q0 d{document} {rank} {20 - rank + drawn.random():.6f} system\n")
        relevant = drawn.sample(range(40), 8)
        qrels += [f"q{query}\t0\td{document}\t{drawn.choice([0, 1, 1, 2])}\n" for document in relevant]
    (folder / "run.txt").write_text("".join(run))
    (folder / "qrels.txt").write_text("".join(qrels))
    return str(folder / "run.txt"), str(folder / "qrels.txt")


def test_ir_measures_reads_the_same(files: tuple[str, str]) -> None:
    import ir_measures

    run, qrels = files
    report = evaluate(
        run, qrels, list(MEASURES.values()), format="trec",
        options={"ndcg": {"gain": "linear"}, "map": {"denominator": "relevant"}},
    )  # fmt: skip
    measures = [ir_measures.parse_measure(name) for name in MEASURES]
    own = ir_measures.calc_aggregate(
        measures, list(ir_measures.read_trec_qrels(qrels)), list(ir_measures.read_trec_run(run))
    )
    for name, measure in zip(MEASURES.values(), measures):
        assert report[name] == pytest.approx(own[measure], rel=1e-6), name


def test_the_suffix_says_it_too(tmp_path: Path) -> None:
    (tmp_path / "a.run").write_text("1 Q0 7 1 0.5 me\n  2 Q0 8 1 0.5 me \n\n")
    (tmp_path / "a.qrels").write_text("1 0 7 1\n2 0 8 0\n2 0 9 1\n")
    report = evaluate(tmp_path / "a.run", tmp_path / "a.qrels", "hit_rate@1")
    assert report.user_ids == [1, 2]
    assert report.users["hit_rate@1"].tolist() == [1.0, 0.0]
    (tmp_path / "c.run").write_text("1 Q0 7 1 1e300 me\n1 Q0 8 2 1e-3 me\n2 Q0 9 1 7 me\n")
    assert evaluate(tmp_path / "c.run", tmp_path / "a.qrels", "hit_rate@1")["hit_rate@1"] == 1
    (tmp_path / "a.qrels").write_text("1 0 7 1\n2 0 8\n")
    with pytest.raises(InputError, match=r"a.qrels, row 2\): it must have 4 fields, got 3"):
        evaluate(tmp_path / "a.run", tmp_path / "a.qrels")
    (tmp_path / "b.run").write_text("3 Q0 7 1 0.5 me\n3 Q0 8 2 best me\n")
    with pytest.raises(InputError, match=r"b.run, row 2\): rank and score must be numbers"):
        evaluate([tmp_path / "a.run", tmp_path / "b.run"], tmp_path / "a.qrels")


def test_packed_qrels_have_their_own_relevance_too(tmp_path: Path) -> None:
    (tmp_path / "a.run").write_text("1 Q0 7 1 0.5 me\n1 Q0 8 2 0.4 me\n")
    (tmp_path / "a.qrels.gz").write_bytes(gzip.compress(b"1 0 7 0\n1 0 8 1\n"))
    assert evaluate(tmp_path / "a.run", tmp_path / "a.qrels.gz", "mrr@5")["mrr@5"] == 0.5
