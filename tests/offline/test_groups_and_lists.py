"""Groups of items and lists in files: exposure, agreement, and the commands that show them."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
from oracles import agreement as oracle
from oracles import exposure

from torch_recmetrics.compare import agreement
from torch_recmetrics.offline import InputError, evaluate
from torch_recmetrics.offline.commands import main

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
ITEMS = [f"item {number:02}" for number in range(30)]
GROUP = {item: ("indie", "major", "own")[number % 3] for number, item in enumerate(ITEMS)}


def lists_of(seed: int, noise: float) -> dict[str, list[str]]:
    draw = random.Random(seed)
    lists = {}
    for user in range(25):
        base = random.Random(user).sample(ITEMS[:20], 8)
        lists[f"user {user}"] = [item if draw.random() > noise else draw.choice(ITEMS[20:]) for item in base]
    return {user: list(dict.fromkeys(row)) for user, row in lists.items()}


OLD, NEW = lists_of(1, 0.0), lists_of(2, 0.4)


def table_of(lists: dict[str, list[str]]) -> Any:
    rows = [(user, item, float(-rank)) for user, row in lists.items() for rank, item in enumerate(row)]
    return pa.table(dict(zip(("user_id", "item_id", "score"), map(list, zip(*rows)))))


TRUTH = table_of({user: row[2:4] for user, row in OLD.items()}).drop(["score"])
GROUPS = pa.table({"item_id": ITEMS, "group": [GROUP[item] for item in ITEMS]})


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    tables = {"old": table_of(OLD), "new": table_of(NEW), "truth": TRUTH, "groups": GROUPS}
    for name, table in tables.items():
        parquet.write_table(table, tmp_path / f"{name}.parquet")
    return {name: str(tmp_path / f"{name}.parquet") for name in tables}


def test_groups_of_a_file() -> None:
    report = evaluate(table_of(NEW), TRUTH, ["exposure@5", "exposure_disparity@5", "ndcg@5"], groups=GROUPS)
    memberships = exposure.of_groups([sorted(set(GROUP.values())).index(GROUP[item]) for item in ITEMS], 3)
    numbers = [[ITEMS.index(item) for item in row[:5]] for row in NEW.values()]
    for place, name in enumerate(("indie", "major", "own")):
        shares = [exposure.exposure(row, memberships, place) for row in numbers]
        assert report[f"exposure@5/{name}"] == pytest.approx(sum(shares) / len(shares), abs=1e-12)  # type: ignore[arg-type]
        assert report.users is not None
        assert report.users.mean(f"exposure@5/{name}") == pytest.approx(report[f"exposure@5/{name}"])
    assert list(report.details["exposure"]) == ["exposure@5"]
    disparity = [exposure.exposure_disparity(row, memberships, ()) for row in numbers]
    assert report["exposure_disparity@5"] == pytest.approx(sum(disparity) / len(disparity), abs=1e-12)  # type: ignore[arg-type]
    several = pa.concat_tables([GROUPS, pa.table({"item_id": ITEMS[:3], "group": ["own"] * 3})])
    report = evaluate(table_of(NEW), TRUTH, "exposure@5", groups=several)
    assert sum(report[f"exposure@5/{name}"] for name in ("indie", "major", "own")) == pytest.approx(1)


def test_slices_of_shares_and_of_disparities() -> None:
    """Those of a slice are what its users alone have."""
    slices = pa.table({"user_id": list(NEW), "slice": ["even" if n % 2 == 0 else "odd" for n in range(len(NEW))]})
    metrics = ["exposure@5", "exposure_disparity@5"]
    asked: dict[str, Any] = {"groups": GROUPS, "options": {"exposure_disparity": {"per": "system"}}}
    report = evaluate(table_of(NEW), TRUTH, metrics, slices=slices, items=GROUPS.drop(["group"]), **asked)
    odd = {user: row for number, (user, row) in enumerate(NEW.items()) if number % 2}
    truth = TRUTH.filter([user in odd for user in TRUTH["user_id"].to_pylist()])
    alone = evaluate(table_of(odd), truth, metrics, items=GROUPS.drop(["group"]), **asked)
    for name, value in alone.items():
        assert report[f"{name}/odd"] == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize("weights", [(1, 1, 1), (0, 1, 1)])
def test_infinite_values_of_users(weights: tuple[int, ...]) -> None:
    """They are infinite in slices too, those of users without weight are no values, and no others are lost."""
    lists = pa.table({"user_id": [1, 1, 2, 2, 3, 3], "item_id": [1, 3, 1, 2, 1, 2], "score": [2.0, 1.0] * 3})
    truth = pa.table({"user_id": [1, 2, 3], "item_id": [1] * 3, "w": weights})
    tables = {
        "groups": pa.table({"item_id": [1, 2, 3], "group": ["a", "b", "a"]}),  # user 1 sees nothing of b
        "slices": pa.table({"user_id": [1, 2, 3], "slice": ["x", "x", "y"]}),
    }
    options = {"exposure_disparity": {"distance": "max_ratio", "target": [0.5, 0.5]}}
    metrics = ["exposure_disparity@2", "ndcg@2"]
    with pytest.warns(UserWarning, match="exposure_disparity@2: some users have an infinite value"):
        report = evaluate(lists, truth, metrics, weight="w", options=options, **tables)
    others = math.log2(3)  # 1 / (1 / log2(3))
    expected = (others if weights[0] == 0 else math.inf, others)
    assert tuple(report[f"exposure_disparity@2/{name}"] for name in "xy") == pytest.approx(expected)
    assert report["exposure_disparity@2"] == pytest.approx(expected[0])
    assert report.users is not None and list(report.users) == ["ndcg@2"]


def test_lists_are_kept_by_their_ids() -> None:
    report = evaluate(table_of(NEW), TRUTH, "ndcg@5", keep_lists=True)
    assert report.users is not None and dict(zip(report.users.user_ids or [], report.users.lists or [])) == NEW
    assert evaluate(table_of(NEW), TRUTH, "ndcg@5").users.lists is None  # type: ignore[union-attr]
    numbers = pa.table({"user_id": [1, 1, 2], "item_id": [7, 3, 9], "rank": [2, 1, 1]})
    kept = evaluate(numbers, pa.table({"user_id": [1, 2], "item_id": [3, 3]}), "mrr@5", keep_lists=True).users
    assert kept is not None and kept.lists == [[3, 7], [9]]


@pytest.mark.parametrize("shift", [0, -100, 100])
def test_kept_lists_are_those_of_any_increasing_map_of_the_scores(shift: int) -> None:
    """Lists are of 2 to 30 items; those of a batch are padded to the longest of it."""
    draw = random.Random(4)
    lists = {user: draw.sample(range(40), draw.randint(2, 30)) for user in range(30)}
    rows = [(user, item, shift - rank) for user, ranked in lists.items() for rank, item in enumerate(ranked)]
    draw.shuffle(rows)
    table = pa.table(dict(zip(("user_id", "item_id", "score"), zip(*rows))))
    truth = pa.table({"user_id": list(lists), "item_id": [3] * len(lists)})
    users = evaluate(table, truth, "ndcg@5", keep_lists=True).users
    assert users is not None and users.user_ids == list(lists)
    assert users.lists == [ranked[:20] for ranked in lists.values()]


def test_lists_of_the_same_items_share_them_whatever_their_type() -> None:
    """An id that is no number, even of a user who is not in the truth, makes text of all ids of a run."""
    truth, runs = pa.table({"user_id": [1, 2], "item_id": [7, 4]}), {}
    for name, items in {
        "numbers": [7, 4, 4, 5],
        "text": ["7", "4", "4", "5"],
        "one odd": ["7", "4", "4", "5", "zz"],
    }.items():
        users = [1, 1, 2, 2, 3][: len(items)]
        lists = pa.table({"user_id": users, "item_id": items, "score": [0.9, 0.8, 0.9, 0.8, 0.7][: len(items)]})
        runs[name] = evaluate(lists, truth, "recall", 2, keep_lists=True).users
    table = agreement(runs, ["overlap@2", "rbo"])
    assert [row.value for row in table] == [1.0] * 6


@pytest.mark.parametrize("low", [-1, -7])
def test_lists_hold_ids_below_zero(low: int) -> None:
    """-1 is an item, no padding; beside a run without such ids, whose lists hold numbers."""
    truth = pa.table({"user_id": [1, 2, 3], "item_id": [low, 4, 5]})
    of_items = {"a": [low, 4, 4, 5, 5, 4], "b": [low, 5, 4, 5, 5, 4], "c": [4, 5, 4, 5, 5, 4]}
    runs = {
        name: evaluate(
            pa.table({"user_id": [1, 1, 2, 2, 3, 3], "item_id": items, "score": [0.9, 0.8] * 3}),
            truth if low in items else truth.set_column(1, "item_id", pa.array([4, 4, 5])),
            "recall",
            2,
            keep_lists=True,
        ).users
        for name, items in of_items.items()
    }
    assert runs["a"].lists[0] == [str(low), "4"] and runs["c"].lists[0] == [4, 5]
    found = {(row.system, row.other): row.value for row in agreement(runs, ["overlap@2"])}
    assert found == pytest.approx({("a", "b"): 5 / 6, ("a", "c"): 5 / 6, ("b", "c"): 5 / 6})


def test_groups_of_a_table_have_its_names() -> None:
    """The groups 2 and 10 stand in the order of their texts: names from elsewhere would be those of the other."""
    groups = pa.table({"item_id": ITEMS, "group": [2 if GROUP[item] == "indie" else 10 for item in ITEMS]})
    found = evaluate(table_of(NEW), TRUTH, "exposure@5", groups=groups)
    expected = evaluate(table_of(NEW), TRUTH, "exposure@5", groups=GROUPS)
    assert found["exposure@5/2"] == expected["exposure@5/indie"] != found["exposure@5/10"]
    options = {"exposure": {"names": ["two", "ten"]}}
    with pytest.raises(ValueError, match=r"`names` of exposure must be left out with groups=.*\['two', 'ten'\]"):
        evaluate(table_of(NEW), TRUTH, "exposure@5", groups=groups, options=options)


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="exposure must know the groups: give groups="):
        evaluate(table_of(NEW), TRUTH, "exposure@5")
    with pytest.raises(ValueError, match="`keep_users` must be True with keep_lists=True"):
        evaluate(table_of(NEW), TRUTH, "ndcg@5", keep_users=False, keep_lists=True)
    items = pa.table({"item_id": ITEMS})
    with pytest.raises(InputError, match=r"no item of it is in .*: are the ids of the same kind"):
        evaluate(table_of(NEW), TRUTH, "exposure@5", groups=pa.table({"item_id": ["x"], "group": ["a"]}), items=items)
    with pytest.raises(InputError, match=r"no item of it is in `recommendations`.*: are the ids of the same kind"):
        evaluate(table_of(NEW), TRUTH, "exposure@5", groups=pa.table({"item_id": ["x"], "group": ["a"]}))
    several = pa.table({"item_id": ITEMS, "group": ["own", "own/new"] * 15})
    slices = pa.table({"user_id": list(NEW), "slice": ["new"] * len(NEW)})
    with pytest.raises(InputError, match=r"slice 'new' of exposure@5/own must have .*, got exposure@5/own/new again"):
        evaluate(table_of(NEW), TRUTH, "exposure@5", groups=several, slices=slices)
    old = slices.set_column(1, "slice", pa.array(["old"] * len(NEW)))
    assert "exposure@5/own/new/old" in evaluate(table_of(NEW), TRUTH, "exposure@5", groups=several, slices=old)
    with pytest.raises(InputError, match="must have a column 'group', or one column beside 'item_id'"):
        evaluate(table_of(NEW), TRUTH, "exposure@5", groups=pa.table({"item_id": ["x"], "a": [1], "b": [2]}))


def test_the_command_agreement(files: dict[str, str], capsys: Any) -> None:
    assert main(["agreement", files["old"], files["new"], "-k", "5", "--json"]) == 0
    rows = {row["metric"]: row["value"] for row in json.loads(capsys.readouterr().out)}
    wanted = [oracle.overlap(OLD[user][:5], NEW[user][:5], 5) for user in OLD]
    assert rows["overlap@5"] == pytest.approx(sum(v for v in wanted if v is not None) / len(wanted), abs=1e-12)
    assert list(rows) == ["overlap@5", "jaccard@5", "rbo", "kendall_tau@5"]
    runs = {
        name: evaluate(files[name], files["old"], "user_coverage", keep_lists=True).users for name in ("old", "new")
    }
    for own in ({}, {"level": 0.5}, {"persistence": 0.5}):
        flags = [f"--{name}={value}" for name, value in own.items()]
        assert main(["agreement", files["old"], files["new"], *flags, "--json"]) == 0
        expected = agreement(runs, ["overlap@10", "jaccard@10", "rbo", "kendall_tau@10"], **own)
        found = capsys.readouterr()
        assert found.out.strip() == expected.to_json() and found.err.count("\n") == 3  # of cutoffs beyond the lists
    fewer = {user: row for user, row in NEW.items() if user != "user 3"}
    parquet.write_table(table_of(fewer | {"stranger": ITEMS[:4]}), files["truth"])
    assert main(["agreement", files["old"], files["truth"]]) == 0
    said = capsys.readouterr().err
    assert f"1 of 25 users have no list in '{files['truth']}': they share nothing" in said
    assert f"4 rows of '{files['truth']}' are of users without a list in '{files['old']}', and are left out" in said
    assert said.count("\n") == 5
    assert main(["agreement", files["old"]]) == 2
    assert "agreement needs two files of lists" in capsys.readouterr().err


def test_compare_and_gate_show_and_hold_them(files: dict[str, str], tmp_path: Path, capsys: Any) -> None:
    pytest.importorskip("jinja2")
    common = ["--truth", files["truth"], "--groups", files["groups"]]
    runs = [f"old={files['old']}", f"new={files['new']}"]
    metrics = ["-m", "ndcg@5", "-m", "exposure@5", "--report", str(tmp_path / "out")]
    assert main(["compare", *runs, *common, *metrics]) == 0
    said = capsys.readouterr().out
    assert "old, new  overlap@10" in said and "exposure@5/indie" in said
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Exposure of groups of items" in page and "Agreement of the lists" in page
    assert page.count("<code>RBO(top_k=None, persistence=0.9") == page.count("<code>Overlap(top_k=10,") == 1
    rules = ["--not-worse", "ndcg@5=0.9", "--not-less", "overlap@10=0.2", "--not-less", "exposure@5/own=0.05"]
    assert main(["gate", files["new"], files["old"], *common, *rules]) == 0
    assert "overlap@10" in capsys.readouterr().out
    assert main(["gate", files["new"], files["old"], *common, "--not-less", "overlap@10=0.99"]) == 3
    assert main(["gate", files["new"], files["old"], *common, "--not-less", "overlap@10"]) == 2
    assert "--not-less must be METRIC=NUMBER" in capsys.readouterr().err
