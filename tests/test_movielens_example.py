"""The main example: the split leaks nothing, mistakes get one line, and real runs agree on one process and on two."""

from __future__ import annotations

import json
import re
import statistics
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("pytorch_lightning")

from fixtures.examples import ROOT, assert_one_line_and_no_file, logged, printed
from oracles import item_values, lists

from examples.movielens import sampled
from examples.movielens.data import History, InteractionData, TrainPairs, leave_last_out
from examples.movielens.log import InputError, Log, read_log, simulate_log
from examples.movielens.models import WARM_FROM
from examples.movielens.report import METRICS, VARIETY, read_result
from torch_recmetrics.compare import UserValues

REAL_DATA = ROOT.parent / "shared" / "data" / "ml-latest-small"
RATINGS = "userId,movieId,rating,timestamp\n"
MOVIES = "movieId,title,genres\n5,Five (2000),Drama|Comedy\n3,Three,(no genres listed)\n4,'Four',Comedy\n"


def log_of(rows: list[tuple[int, int, int]], num_items: int = 9) -> Log:
    user_ids, item_ids, times = np.array(rows).T
    return Log(user_ids, item_ids, times, np.zeros((num_items, 1), bool), int(user_ids.max()) + 1)


class TestSplit:
    def test_nothing_of_a_user_is_later_than_the_held_out_item_and_nothing_is_lost(self) -> None:
        log = simulate_log(60, 80, seed=3)
        split = leave_last_out(log, min_interactions=20)
        time = {(user, item): at for user, item, at in zip(log.user_ids, log.item_ids, log.times)}
        held_out = dict(zip(split.val_user_ids.tolist(), split.val_item_ids.tolist()))
        train = list(zip(split.train_user_ids.tolist(), split.train_item_ids.tolist()))
        assert 0 < len(held_out) < log.num_users
        for user, item in train:
            if user in held_out:
                assert item != held_out[user]
                assert time[user, item] <= time[user, held_out[user]]
        assert sorted([*train, *held_out.items()]) == sorted(time)

    def test_equal_times_go_by_the_order_of_the_file(self) -> None:
        split = leave_last_out(log_of([(0, 7, 5), (0, 2, 9), (0, 8, 9), (0, 1, 9)]), min_interactions=2)
        assert split.val_item_ids.tolist() == [1]
        assert split.train_item_ids.tolist() == [7, 2, 8]

    def test_an_item_that_comes_back_counts_at_its_first_time(self) -> None:
        split = leave_last_out(log_of([(0, 7, 1), (0, 2, 2), (0, 3, 3), (0, 7, 9)]), min_interactions=3)
        assert split.val_item_ids.tolist() == [3]
        assert split.train_item_ids.tolist() == [7, 2]

    def test_a_user_with_few_items_is_trained_on_whole(self) -> None:
        log = log_of([(0, 1, 1), (0, 2, 2), (1, 1, 1), (1, 2, 2), (1, 3, 3)])
        split = leave_last_out(log, min_interactions=3)
        assert (split.val_user_ids.tolist(), split.val_item_ids.tolist()) == ([1], [3])
        assert split.train_user_ids.tolist() == [0, 0, 1, 1]

    def test_the_simulated_log_is_the_same_again_and_another_with_another_seed(self) -> None:
        first, again, other = simulate_log(30, 40), simulate_log(30, 40), simulate_log(30, 40, seed=1)
        assert all(
            np.array_equal(getattr(first, name), getattr(again, name)) for name in ("item_ids", "times", "genres")
        )
        assert not np.array_equal(first.times, other.times)


class TestBatches:
    def test_history_pads_and_finds(self) -> None:
        history = History(torch.tensor([0, 0, 2]), torch.tensor([4, 1, 3]), num_users=3, num_items=5)
        assert history.padded(torch.tensor([2, 0, 1])).tolist() == [[3, -1], [4, 1], [-1, -1]]
        found = history.contains(torch.tensor([0, 0, 1, 2]), torch.tensor([1, 3, 4, 3]))
        assert found.tolist() == [True, False, False, True]

    def test_negatives_are_items_that_the_user_has_not_met(self) -> None:
        data = InteractionData(simulated_users=20, simulated_items=30, num_negatives=50)
        met = set(zip(data.split.train_user_ids.tolist(), data.split.train_item_ids.tolist()))
        batch = data.train_data.__getitems__(list(range(len(data.train_data))))
        drawn = {
            (user, item) for user, row in zip(batch.user_ids.tolist(), batch.negative_ids.tolist()) for item in row
        }
        assert not drawn & met
        assert isinstance(data.train_data, TrainPairs) and batch.negative_ids.shape[1] == 50

    def test_validation_rows_carry_their_number_and_only_training_items_are_seen(self) -> None:
        data = InteractionData(simulated_users=20, simulated_items=30)
        batch = data.val_data.__getitems__([4, 0, 4])
        assert batch.sample_ids.tolist() == [4, 0, 4]
        assert not (batch.seen_ids == batch.target_ids).any()


class TestReading:
    def write(self, directory: Path, ratings: str | None, movies: str | None = MOVIES) -> Path:
        for name, text in (("ratings.csv", ratings), ("movies.csv", movies)):
            if text is not None:
                (directory / name).write_text(text)
        return directory

    def test_columns_go_by_name_and_ids_become_positions(self, tmp_path: Path) -> None:
        log = read_log(self.write(tmp_path, "timestamp,userId,movieId\n30,70,4\n10,60,3\n20,70,5\n"))
        assert log.user_ids.tolist() == [1, 0, 1]
        assert log.item_ids.tolist() == [1, 0, 2]
        assert log.times.tolist() == [30, 10, 20]
        assert log.genres.tolist() == [[False, False], [True, False], [True, True]]

    @pytest.mark.parametrize(
        ("ratings", "movies", "words"),
        [
            (None, MOVIES, ["ratings.csv", "No such file"]),
            ("", MOVIES, ["ratings.csv", "empty"]),
            (RATINGS, MOVIES, ["ratings.csv", "no row"]),
            ("userId,movieId,rating\n1,3,5\n", MOVIES, ["no column timestamp", "userId,movieId,rating"]),
            (RATINGS + "1,3,5,9\nanna,3,5,9\n", MOVIES, ["line 3", "userId", "integer", "'anna'"]),
            (RATINGS + "1,3,5,99999999999999999999\n", MOVIES, ["line 2", "timestamp", "64-bit"]),
            (RATINGS + "1,3,5\n", MOVIES, ["line 2", "4 columns expected, got 3"]),
            (RATINGS + "1,8,5,9\n", MOVIES, ["movieId 8", "movies.csv"]),
            (RATINGS + "1,3,5,9\n", "movieId,title\n3,Three\n", ["movies.csv", "no column genres"]),
            (RATINGS + "1,3,5,9\n", MOVIES + "3,Again,Drama\n", ["movies.csv, line 5", "movieId 3", "twice"]),
        ],
    )
    def test_what_does_not_fit_is_named(self, tmp_path: Path, ratings: str, movies: str, words: list[str]) -> None:
        with pytest.raises(InputError) as caught:
            read_log(self.write(tmp_path, ratings, movies))
        assert "\n" not in str(caught.value)
        assert all(word in str(caught.value) for word in words), str(caught.value)

    def test_a_binary_file_is_named(self, tmp_path: Path) -> None:
        (self.write(tmp_path, "") / "ratings.csv").write_bytes(bytes(range(128, 256)))
        with pytest.raises(InputError, match="UTF-8"):
            read_log(tmp_path)

    def test_nobody_to_validate_is_said(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="no user has 5"):
            InteractionData(str(self.write(tmp_path, RATINGS + "1,3,5,9\n1,4,5,10\n2,3,5,9\n2,4,5,9\n2,5,5,9\n")))

    def test_who_has_met_every_item_still_gets_a_negative(self, tmp_path: Path) -> None:
        data = InteractionData(str(self.write(tmp_path, RATINGS + "1,3,5,9\n1,4,5,10\n1,5,5,11\n")), min_interactions=3)
        assert data.train_data.__getitems__([0, 1]).negative_ids.tolist() == [[2], [2]]

    @pytest.mark.skipif(not REAL_DATA.is_dir(), reason="the MovieLens directory is not beside the checkout")
    def test_the_real_log(self) -> None:
        log = read_log(REAL_DATA)
        assert (log.num_users, log.num_items, len(log.user_ids), log.genres.shape[1]) == (671, 9125, 100_004, 19)
        assert len(leave_last_out(log).val_user_ids) == 671


RUNS = ("mf/MatrixFactorization.parquet", "two_tower/TwoTower.parquet")
CONFIG = str(ROOT / "configs" / "movielens_mf.yaml")
# 341 users of whom an odd number is validated, so that two processes get a row twice.
SMALL = ["--data.simulated_users", "341", "--data.simulated_items", "200", "--data.batch_size", "256"]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Both models trained on two processes; the directory and what was printed."""
    cwd = tmp_path_factory.mktemp("demo")
    words = ["--run_dir", "out", *SMALL, "--trainer.max_epochs", "6"]
    return cwd, printed("-m", "examples.movielens.demo", *words, cwd=cwd)


@pytest.mark.processes
class TestRuns:
    def test_the_demo_leaves_table_picture_logs_and_checkpoints(self, demo: tuple[Path, str]) -> None:
        cwd, printed = demo
        table = (cwd / "out" / "table.md").read_text()
        assert printed.count(table) == 1
        head, _, *rows = ([word.strip() for word in line.split("|")[1:-1]] for line in table.splitlines())
        assert head == ["", "Popularity", "MatrixFactorization", "TwoTower"]
        assert [name for name, *_ in rows] == list(METRICS)
        result = read_result(cwd / "out" / "mf")
        low, high = result.intervals["val_mrr"]
        assert rows[4][2] == f"{result.values['val_mrr']:.4f} [{low:.4f}, {high:.4f}]" and low < high
        assert rows[6][1] == f"{result.popularity['val_coverage@10']:.4f}"  # a count over items has no interval
        assert (cwd / "out" / "curves.png").read_bytes().startswith(b"\x89PNG")
        for run_dir in (cwd / "out" / "mf", cwd / "out" / "two_tower"):
            assert str(Path("out", run_dir.name, "checkpoints", "best.ckpt")) in printed
            assert (run_dir / "checkpoints" / "best.ckpt").is_file()
            assert list(run_dir.glob("tensorboard/version_0/events.*"))

    @pytest.mark.parametrize("name", ["mf", "two_tower"])
    def test_the_kept_checkpoint_is_the_best_epoch_and_beats_popularity(
        self, demo: tuple[Path, str], name: str
    ) -> None:
        result = json.loads((demo[0] / "out" / name / "result.json").read_text())
        of_epochs = logged(demo[0] / "out" / name, "val_ndcg@10")
        assert len(of_epochs) == 6
        assert result["values"]["val_ndcg@10"] == pytest.approx(max(of_epochs), abs=1e-12)
        assert result["values"]["val_ndcg@10"] > result["popularity"]["val_ndcg@10"]

    def test_what_the_baseline_shows_is_weighed_as_defined(self, demo: tuple[Path, str]) -> None:
        data = InteractionData(simulated_users=341, simulated_items=200)
        counts, genres = data.item_counts.tolist(), data.genres.tolist()
        shown = []
        for row in range(len(data.val_data)):
            seen = set(data.val_data.__getitems__([row]).seen_ids[0].tolist())
            unseen = [item for item in range(200) if item not in seen]
            shown.append(sorted(unseen, key=lambda item: -counts[item])[:10])
        novelties = [item_values.novelty(items, counts, 341) for items in shown]
        alike = [lists.ils(items, lambda i, j: lists.cosine(genres[i], genres[j])) for items in shown]
        expected = {
            "val_ils@10": statistics.fmean(alike),
            "val_coverage@10": lists.coverage(shown, 200),
            "val_gini@10": lists.gini(shown, 200),
            "val_novelty@10": statistics.fmean(novelties),
        }
        for name in ("mf", "two_tower"):
            shown = json.loads((demo[0] / "out" / name / "result.json").read_text())["popularity"]
            assert {key: shown[key] for key in expected} == pytest.approx(expected, abs=1e-6)

    def test_diversity_is_logged_at_every_epoch(self, demo: tuple[Path, str]) -> None:
        for name in ("mf", "two_tower"):
            curves = json.loads((demo[0] / "out" / name / "result.json").read_text())["curves"]
            for metric in METRICS:
                assert [epoch for epoch, _ in curves[f"val_{metric}"]] == [1, 2, 3, 4, 5, 6]
            assert all(len({value for _, value in curves[f"val_{metric}"]}) > 1 for metric in VARIETY)

    def test_one_process_and_two_validate_to_the_same_numbers(self, demo: tuple[Path, str]) -> None:
        values = json.loads((demo[0] / "out" / "mf" / "result.json").read_text())["values"]
        words = ["--config", CONFIG, *SMALL, "--ckpt_path", "out/mf/checkpoints/best.ckpt", "--run_dir", "one"]
        printed("-m", "examples.movielens", "validate", *words, "--trainer.devices", "1", cwd=demo[0])
        data = InteractionData(simulated_users=341, simulated_items=200)
        assert len(data.val_data) % 2 == 1
        for name in METRICS:
            assert logged(demo[0] / "one", f"val_{name}") == pytest.approx([values[f"val_{name}"]], abs=1e-6)

    def test_two_processes_leave_the_values_of_all_users(self, demo: tuple[Path, str]) -> None:
        data = InteractionData(simulated_users=341, simulated_items=200)
        result = read_result(demo[0] / "out" / "mf")
        for name, values in (("MatrixFactorization", result.values), ("Popularity", result.popularity)):
            users = UserValues.load(demo[0] / "out" / "mf" / f"{name}.parquet")
            assert users.sample_ids.tolist() == list(range(len(data.val_data)))
            assert set(users) == {f"val_{metric}" for metric in METRICS} - {"val_coverage@10", "val_gini@10"}
            for metric in users:
                assert users.mean(metric) == pytest.approx(values[metric], abs=1e-6)
        slices = json.loads((demo[0] / "out" / "mf" / "slices.json").read_text())
        assert sorted(slices["cold"] + slices["warm"]) == users.sample_ids.tolist()
        known = [int((data.val_data.__getitems__([row]).seen_ids >= 0).sum()) for row in slices["cold"]]
        assert slices["warm"] and max(known) < WARM_FROM

    def test_the_comparison_says_which_model_is_better_and_whether_that_is_beyond_chance(
        self, demo: tuple[Path, str]
    ) -> None:
        text = printed("-m", "examples.compare", "--run_dir", "out", cwd=demo[0])
        out = demo[0] / "out" / "compare"
        runs = [UserValues.load(demo[0] / "out" / path) for path in RUNS]
        difference = (runs[1]["val_ndcg@10"] - runs[0]["val_ndcg@10"]).mean()
        better, other = ("TwoTower", "MatrixFactorization")[:: 1 if difference > 0 else -1]
        (said,) = [line for line in text.splitlines() if " is better than " in line]
        assert said.startswith(f"{better} is better than {other}: val_ndcg@10")
        p = float(re.search(r"chance: p = (0\.\d+) over \d+ users", text)[1])
        assert ("That is beyond chance" in text) == (p <= 0.05) != ("That may be chance" in text)
        slices = [line.split()[0] for line in text.splitlines() if " users  0." in line]
        assert slices == ["all", "cold", "warm"]
        outcome = json.loads((out / "verdict.json").read_text())["outcome"]
        assert f"Does TwoTower replace MatrixFactorization? {outcome}" in text
        assert (out / "table.md").read_text().count("| TwoTower | val_ndcg@10 |") == 2
        for picture in ("forest.png", "slices.png"):
            assert (out / picture).read_bytes().startswith(b"\x89PNG")

    def test_a_mistake_gets_one_line_and_a_non_zero_exit(self, tmp_path: Path) -> None:
        message = "error: data.path must be a directory with ratings.csv and movies.csv, got 'nowhere'"
        assert_one_line_and_no_file(message, "-m", "examples.movielens.demo", "--data", "nowhere", cwd=tmp_path)


def test_point_26_a_path_with_nul_and_movies_without_genres_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"data\.path must be a directory"):
        read_log("a\0b")
    (tmp_path / "ratings.csv").write_text("userId,movieId,timestamp\n1,1,1\n")
    (tmp_path / "movies.csv").write_text("movieId,genres\n1,(no genres listed)\n2,\n")
    with pytest.raises(InputError, match=r"movies\.csv: no movie has a genre"):
        read_log(tmp_path)


def test_sampled_candidates_of_three_models(tmp_path: Path) -> None:
    """Of scores that are known: with a sharp model full and naive numbers may differ in their order."""
    pytest.importorskip("matplotlib")
    generator = torch.Generator().manual_seed(0)
    scores = {name: torch.rand((50, 160), generator=generator) for name in ("a", "b", "c")}
    wanted, others = torch.arange(50), torch.ones((50, 160), dtype=torch.bool)
    others[wanted, wanted] = False
    scores["a"][wanted, wanted] += 0.5
    users = sampled.Users(scores, wanted, others)
    full, drawn = sampled.full_values(users), list(sampled.drawn_values(users, 2))
    assert full["a"] == max(full.values())
    assert [list(draw) for draw in drawn] == [list(sampled.METHODS)] * 2
    assert all(draw["naive"]["a"] > full["a"] for draw in drawn)
    text = sampled.report(full, drawn)
    assert "100 sampled negatives: mean and standard deviation of 2 draws\nof the negatives" in text
    sampled.draw_picture(tmp_path / "sampled.png", full, drawn, text)
    assert (tmp_path / "sampled.png").stat().st_size > 10_000
