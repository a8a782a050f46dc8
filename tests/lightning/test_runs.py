"""Every way to have metrics in Lightning, on one, two and three processes: the value of one process."""

from __future__ import annotations

import csv
import math
import re
from pathlib import Path
from typing import Any

import pytest
from fixtures.lightning_users import N_USERS, NAMES, OF_THREE, STRENGTHS, data, expected, learnt

import torch_recmetrics
from torch_recmetrics.compare import t_test

pytestmark = [pytest.mark.timeout(300), pytest.mark.processes]
pytest.importorskip("pytorch_lightning", reason="Lightning is not installed")

EXACT = {"abs": 1e-12, "rel": 0, "nan_ok": True}
Ran = tuple[int, Path, list[Any]]


def named(values: dict[str, float], prefix: str = "val_", suffix: str = "", at: str = "@") -> dict[str, float]:
    return {f"{prefix}{name.replace('@', at)}{suffix}": value for name, value in values.items()}


def two_loaders() -> dict[str, float]:
    first = named(expected(), suffix="/dataloader_idx_0")
    return first | named(expected(7, 1), suffix="/dataloader_idx_1")


VALIDATIONS = {
    "callback_default_sampler": named(expected()),
    "callback_large_batches": named(expected()),
    "callback_batches_of_one": named(expected()),
    "callback_shuffled": named(expected()),
    "callback_wrapped_sampler": named(expected(rows=list(range(0, N_USERS, 2)))),
    "callback_pair": named(expected()),
    "callback_embeddings": named(expected()),
    "callback_half_embeddings": named(expected()),  # issue 12, point 10
    "callback_as_many_items_as_rows": named(expected(23)),  # two ranks: 12 rows, one of them repeated, and 12 items
    "callback_jagged": named(expected()),
    "callback_by_name": named(expected()),  # issue 14, point 3: the batch that no step returned
    "callback_by_method": named(expected()),
    "callback_by_function": named(expected()),
    "callback_combined_loader": named(expected()),  # issue 12, point 24: one stream, one name
    "callback_bfloat16": named(expected()),
    "callback_process_without_batch": named(expected()),
    "callback_at": named(expected(), prefix="dev/", at="_at_"),
    "callback_two_loaders": two_loaders(),
    "callback_ready_collection": named(expected(), prefix="mine_"),
    "collection_in_step": named(expected()),
    "collection_at_end": named(expected()),
    "collection_process_without_batch": named(expected()),
    "collection_bfloat16": named(expected()),
    "plain_collection": named(expected()),
    "single_metric": {"val_ndcg@10": expected()["ndcg@10"]},
    "collection_two_loaders": two_loaders(),
}


def in_runs(*names: str) -> pytest.MarkDecorator:
    """A test of these plays, each with one process and two, and some with three."""
    return pytest.mark.parametrize(
        ("ran", "name"),
        [
            pytest.param(world, name, id=f"{world} processes-{name}")
            for world in (1, 2, 3)
            for name in names
            if world < 3 or name in OF_THREE
        ],
        indirect=["ran"],
    )


of_two = pytest.mark.parametrize("ran", [1, 2], indirect=True, ids=["1 processes", "2 processes"])


@in_runs(*VALIDATIONS)
def test_validate_logs_the_value_of_one_process(name: str, ran: Ran) -> None:
    for rank, told in enumerate(ran[2]):
        assert told[name] == pytest.approx(VALIDATIONS[name], **EXACT), f"process {rank}"


def test_limited_batches(ran: Ran) -> None:
    """Two batches of one row on each process."""
    world, _, told = ran
    wanted = named(expected(rows=list(range(2 * world))))
    for of_rank in told:
        assert of_rank["callback_limited_batches"] == pytest.approx(wanted, **EXACT)


def test_padding_counts_where_it_is_asked_for_or_cannot_be_known(ran: Ran) -> None:
    """It must count in the tests above, or they prove nothing; and of an unknown sampler no row may be dropped."""
    world, _, told = ran
    padded = [row % N_USERS for row in range(math.ceil(N_USERS / world) * world)]
    wanted = named(expected(rows=padded))
    assert (wanted != named(expected())) == (world > 1)
    for of_rank in told:
        assert of_rank["callback_padding_kept"] == pytest.approx(wanted, **EXACT)
        assert of_rank["callback_unknown_sampler"] == pytest.approx(wanted, **EXACT)


FITS = ["fit_callback_first", "fit_callback_last", "fit_collection_in_step", "fit_collection_at_end"]


@in_runs(*FITS)
def test_training_stops_and_keeps_by_the_metric(name: str, ran: Ran) -> None:
    """Epoch 2 is best, epoch 3 is worse, patience 1: four epochs; the last value stands, and validate repeats it."""
    _, folder, told = ran
    last, best = named(expected(strength=STRENGTHS[3])), named(expected(strength=STRENGTHS[2]))
    for of_rank in told:
        outcome = of_rank[name]
        assert (outcome["epochs"], outcome["stopped"]) == (4, 3)
        assert outcome["best"] == pytest.approx(best["val_ndcg@10"], abs=1e-7)
        assert outcome["values"] == pytest.approx(last, **EXACT)
        assert outcome["validated"] == pytest.approx(last, **EXACT)
        assert outcome["of best"] == pytest.approx(best, **EXACT)
        assert (
            outcome["kept"] == f"epoch=2-val_ndcg@10={best['val_ndcg@10']:.3f}-val_ndcg@1={best['val_ndcg@1']:.3f}.ckpt"
        )
    assert (folder / name / "kept" / told[0][name]["kept"]).exists()


@of_two
def test_a_value_of_one_of_several_loaders_is_monitored(ran: Ran) -> None:
    best = expected(7, 1, strength=STRENGTHS[2])["ndcg@10"]
    for of_rank in ran[2]:
        outcome = of_rank["monitor_one_of_two_loaders"]
        assert outcome["epochs"] == 4
        assert outcome["best"] == pytest.approx(best, abs=1e-7)
        assert outcome["kept"].endswith("best.ckpt")


@of_two
def test_values_of_a_step_and_of_the_epoch(ran: Ran) -> None:
    for of_rank in ran[2]:
        logged = of_rank["collection_on_step"]
        of_epoch = {f"{name}_epoch": value for name, value in named(expected()).items()}
        assert {name: logged[name] for name in of_epoch} == pytest.approx(of_epoch, **EXACT)
        assert {f"{name}_step" for name in named(expected())} <= set(logged)


@in_runs("fit_callback_first", "fit_callback_last")
def test_trainer_test_has_names_of_its_own(name: str, ran: Ran) -> None:
    wanted = named(expected(strength=STRENGTHS[3]), prefix="test_")
    for of_rank in ran[2]:
        assert of_rank[name]["tested"] == pytest.approx(wanted, **EXACT)


@in_runs(*FITS)
def test_csv_logger(name: str, ran: Ran) -> None:
    _, folder, _ = ran
    with (folder / name / "csv" / "version_0" / "metrics.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["val_ndcg@10"]]
    of_epochs = [named(expected(strength=strength)) for strength in STRENGTHS[:4]]
    logged = [{name: float(row[name]) for name in of_epochs[0]} for row in rows[:4]]
    assert len(rows) >= 4  # the sanity check logs nothing; validate adds rows of its own
    for row, wanted in zip(logged, of_epochs):
        assert row == pytest.approx(wanted, abs=1e-6)


@in_runs(*FITS)
def test_tensorboard_logger(name: str, ran: Ran) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = accumulator.EventAccumulator(str(ran[1] / name / "board" / "version_0"))
    events.Reload()
    for metric in NAMES:
        in_time = sorted(events.Scalars(f"val_{metric}"), key=lambda event: event.wall_time)  # of several files
        logged = [event.value for event in in_time[:4]]
        assert logged == pytest.approx([expected(strength=s)[metric] for s in STRENGTHS[:4]], abs=1e-6), metric


@in_runs("fit_callback_first", "fit_callback_last")
def test_the_first_process_alone_shows_a_table_after_each_validation(name: str, ran: Ran) -> None:
    told = ran[2]
    assert [len(of_rank[name]["tables"]) for of_rank in told] == [4] + [0] * (len(told) - 1)
    lines = told[0][name]["tables"][2].splitlines()
    values = expected(strength=STRENGTHS[2])
    assert lines[1].split() == ["validation,", "epoch", "2", "@1", "@10"]
    name_of, *cells = re.split(r"\s{2,}", lines[3])
    shown = [cell.split(" +- ")[0] for cell in cells]
    assert [name_of, *shown] == ["ndcg", f"{values['ndcg@1']:.4f}", f"{values['ndcg@10']:.4f}"]
    assert all(re.fullmatch(r"\d\.\d{4} \+- 0\.\d{4}", cell) for cell in cells)


@of_two
def test_a_checkpoint_from_before_the_metrics_is_resumed(ran: Ran) -> None:
    for of_rank in ran[2]:
        outcome = of_rank["old_checkpoint"]
        assert outcome["epochs"] == 2
        assert outcome["values"] == pytest.approx(named(expected(strength=STRENGTHS[1])), **EXACT)


def test_processes_agree_to_the_last_bit(ran: Ran) -> None:
    told = [{name: value for name, value in of_rank.items() if name in VALIDATIONS} for of_rank in ran[2]]
    assert all(str(of_rank) == str(told[0]) for of_rank in told)


def test_stopping_beyond_chance_and_the_baseline(ran: Ran) -> None:
    """Issue 15, point 6: every rank decides alike, as one process does; a rank may have no batch."""
    _, scores, truths = data()
    users = [
        torch_recmetrics.functional.ndcg(learnt(scores, truths, strength), target_ids=truths, top_k=10)
        for strength in STRENGTHS
    ]
    best, waited, epoch = 0, 0, 0
    while waited < 2:
        epoch += 1
        better = t_test(users[epoch], users[best], level=0.9).low > 0
        best, waited = (epoch, 0) if better else (best, waited + 1)
    assert 0 < best < epoch < 5
    for rank, of_rank in enumerate(ran[2]):
        outcome = of_rank["significant_stopping"]
        assert (outcome["epochs"], outcome["stopped"]) == (epoch + 1, epoch)
        assert outcome["sample_ids"] == list(range(N_USERS))
        assert outcome["values"] == pytest.approx(users[best].tolist(), **EXACT)
        assert outcome["without batch"] == pytest.approx(users[0].tolist(), **EXACT)
        difference = float((users[best] - users[0]).nanmean())
        wanted = [[f"epoch {best}", pytest.approx(difference, abs=1e-12)]] if rank == 0 else []
        assert outcome["compared"] == wanted


@pytest.mark.parametrize("ran", [2], indirect=True, ids=["2 processes"])
def test_accelerate_in_two_processes(ran: Ran) -> None:
    """issue 14, point 6: accelerate repeats one of the 301 users, and its sample id makes it count once."""
    found = [of_rank["accelerate_loop"] for of_rank in ran[2]]
    if not found[0]:
        pytest.skip("accelerate is run in two processes, where it is installed")
    from examples.clients.accelerate_loop import main

    assert found == [pytest.approx(main(epochs=0), abs=1e-12)] * 2
