"""Values of users: order, refusals, and the file."""

from __future__ import annotations

import itertools
import json
import os
import stat
import threading
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from torch_recmetrics.compare import UserValues
from torch_recmetrics.users import user_values
from torch_recmetrics.users.extras import write_text

NAN = float("nan")


def example() -> UserValues:
    return UserValues(
        torch.tensor([9, 2, 5]),
        {"ndcg@10": torch.tensor([0.5, NAN, 0.1]), "hit_rate@10": torch.tensor([True, False, True])},
        definitions={"ndcg@10": "NDCG(top_k=10)"},
        weights=[1.0, 2.0, 0.0],
        candidates="sampled(100)",
        summaries={"coverage@10": (0.25, 0.01)},
    )


def assert_same(one: UserValues, other: UserValues) -> None:
    assert torch.equal(one.sample_ids, other.sample_ids)
    assert list(one) == list(other)
    for name in one:
        torch.testing.assert_close(one[name], other[name], rtol=0, atol=0, equal_nan=True)
    if one.weights is None:
        assert other.weights is None
    else:
        assert torch.equal(one.weights, other.weights)
    for name in ("definitions", "candidates", "versions", "summaries", "user_ids"):
        assert getattr(one, name) == getattr(other, name)


def test_users_are_in_ascending_order() -> None:
    users = example()
    assert users.sample_ids.tolist() == [2, 5, 9]
    assert users.sample_ids.dtype == torch.int64
    assert users["hit_rate@10"].tolist() == [0.0, 1.0, 1.0]
    assert users["ndcg@10"].dtype == torch.float64
    assert users["ndcg@10"].isnan().tolist() == [True, False, False]
    assert users.weights is not None and users.weights.tolist() == [2.0, 0.0, 1.0]


def test_users_in_any_order_are_the_same_users() -> None:
    """All that is said of a user goes with its id."""
    columns: dict[str, list[Any]] = {
        "ids": [3, 5, 7, 9], "values": [0.5, 1.0, 0.25, 0.0], "weights": [1.0, 2.0, 0.5, 0.0],
        "user_ids": ["c", "e", "g", "i"], "lists": [[1, 2], [3], [2, 4], []],
    }  # fmt: skip

    def made(order: tuple[int, ...]) -> UserValues:
        own = {name: [column[place] for place in order] for name, column in columns.items()}
        more = {name: own[name] for name in ("weights", "user_ids", "lists")}
        return UserValues(own["ids"], {"mrr": own["values"]}, **more)

    first = made((0, 1, 2, 3))
    assert (first.user_ids, first.lists) == (columns["user_ids"], columns["lists"])
    for order in itertools.permutations(range(4)):
        assert_same(made(order), first)
        assert made(order).lists == first.lists


def test_it_is_a_mapping_of_names() -> None:
    users = example()
    assert list(users) == list(users.keys()) == ["ndcg@10", "hit_rate@10"]
    assert "ndcg@10" in users and "mrr" not in users
    assert len(users) == 3
    assert users.definitions == {"ndcg@10": "NDCG(top_k=10)", "hit_rate@10": "hit_rate@10"}
    assert repr(users) == "UserValues(3 users, ndcg@10, hit_rate@10, weights, candidates='sampled(100)')"
    with pytest.raises(KeyError, match="did you mean 'ndcg@10'"):
        users["ndgc@10"]


def test_the_mean_is_weighted_over_defined_values() -> None:
    assert example().mean("ndcg@10") == pytest.approx(0.5)
    assert example().mean("hit_rate@10") == pytest.approx(1 / 3)


def test_a_user_twice_with_the_same_values_counts_once() -> None:
    users = UserValues([4, 1, 4], {"a": [0.5, NAN, 0.5]})
    assert users.sample_ids.tolist() == [1, 4]
    assert users["a"][1] == 0.5
    twice_undefined = UserValues([4, 4], {"a": [NAN, NAN]})
    assert len(twice_undefined) == 1


def test_what_is_given_is_not_shared() -> None:
    ids, values = torch.tensor([1, 2]), torch.tensor([0.0, 1.0], dtype=torch.float64)
    users = UserValues(ids, {"a": values})
    ids += 1
    values += 1
    assert users.sample_ids.tolist() == [1, 2]
    assert users["a"].tolist() == [0.0, 1.0]


def test_columns_of_frames_go_by_their_place() -> None:
    frame = pd.DataFrame({"user": [7, 3, 5], "mrr": [0.7, 0.3, 0.5]}, index=[9, 8, 4])
    for ids, values in ((frame.user, frame.mrr), (frame.user.to_numpy()[::-1][::-1], frame.mrr[::-1][::-1])):
        users = UserValues(ids, {"mrr": values})
        assert users.sample_ids.tolist() == [3, 5, 7]
        assert users["mrr"].tolist() == [0.3, 0.5, 0.7]
    assert UserValues(frame.user.to_numpy()[::-1], {"mrr": frame.mrr[::-1]})["mrr"].tolist() == [0.3, 0.5, 0.7]


def test_no_users_at_all() -> None:
    users = UserValues([], {"a": []})
    assert len(users) == 0
    assert np.isnan(users.mean("a"))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([1, 1], {"a": [0.5, 0.6]}), ValueError, "user 1 twice, with a 0.5 and 0.6"),
        (([1, 1], {"a": [0.5, NAN]}), ValueError, "user 1 twice"),
        (([1, 2], {"a": [0.5]}), ValueError, r"`values\['a'\]` must have one entry for each of the 2"),
        (([1.0, 2.0], {"a": [0.5, 1.0]}), TypeError, "`sample_ids` must be integers, got torch.float64"),
        (([True, False], {"a": [0.5, 1.0]}), TypeError, "`sample_ids` must be integers, got torch.bool"),
        (([[1, 2]], {"a": [0.5, 1.0]}), ValueError, r"`sample_ids` must have shape \(U,\)"),
        (([1, 2], {"a": [[0.5, 1.0]]}), ValueError, "must have shape"),
        (([1, 2], {"a": torch.tensor([1j, 2j])}), TypeError, "must be real numbers"),
        (([1, 2], {"a": [0.5, float("inf")]}), ValueError, "finite or nan, got inf for user 2"),
        (([1, 2], {"a": "text"}), TypeError, "must be a tensor"),
        (([1, 2], {3: [0.5, 0.5]}), TypeError, "`values` must be a dict"),
        (([1, 2], [0.5, 0.5]), TypeError, "`values` must be a dict"),
        (([1, 2], {"weight": [0.5, 0.5]}), ValueError, "must not have the name 'weight'"),
        (([1, 2], {"user_id": [0.5, 0.5]}), ValueError, "must not have the name 'user_id'"),
    ],
)
def test_bad_input_is_refused(arguments: tuple[object, ...], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        UserValues(*arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"weights": [1.0, -1.0]}, ValueError, "`weights` must be finite and >= 0, got -1.0 for user 2"),
        ({"weights": [1.0, NAN]}, ValueError, "`weights` must be finite"),
        ({"weights": [1.0]}, ValueError, "one entry for each"),
        ({"definitions": {"b": "B()"}}, ValueError, "`definitions` has 'b'"),
        ({"definitions": {"a": 3}}, TypeError, "`definitions` must be a dict"),
        ({"definitions": 5}, TypeError, "`definitions` must be a dict, .*, got int"),
        ({"definitions": torch.tensor([1, 2])}, TypeError, "`definitions` must be a dict, .*, got Tensor"),
        ({"candidates": 100}, TypeError, "`candidates` must be a word"),
        ({"versions": 5}, TypeError, "`versions` must be a dict, .*, got int"),
        ({"summaries": {"a": (0.5, 0.1)}}, ValueError, "`summaries` has 'a'"),
        ({"summaries": [("b", (0.5, 0.1))]}, TypeError, "`summaries` must be a dict"),
        ({"summaries": {"b": 0.5}}, TypeError, "a value and its standard error"),
        ({"summaries": {"b": (0.5, -0.1)}}, ValueError, "standard error >= 0"),
        (
            {"user_ids": ["a", "a"]},
            ValueError,
            "`user_ids` must be different for each user, as text, got 'a' for user 1",
        ),
        ({"user_ids": [1, "1"]}, ValueError, "for each user, as text, got '1' for user 1 and user 2"),
        ({"user_ids": np.array([7, 7])}, ValueError, "for each user, as text, got 7 for user 1 and user 2"),
        ({"user_ids": ["x"]}, ValueError, "`user_ids` must have one id for each of the 2 `sample_ids`, got 1"),
        ({"user_ids": 5}, TypeError, "`user_ids` must hold an id for each user, .*, got int"),
        ({"user_ids": torch.tensor(5)}, TypeError, "`user_ids` must hold an id for each user, .*, got Tensor"),
        ({"user_ids": "xy"}, TypeError, "`user_ids` must hold an id for each user, .*, got str"),
        ({"user_ids": {"x", "y"}}, TypeError, "`user_ids` must hold an id for each user, .*, got set"),
        ({"lists": 5}, TypeError, "`lists` must hold a list of ids for each user, .*, got int"),
        ({"lists": np.array(5)}, TypeError, "`lists` must hold a list of ids for each user, .*, got ndarray"),
        ({"user_ids": ["x", None]}, ValueError, "`user_ids` must name every user, got None"),
        ({"user_ids": pd.Series(["x", float("nan")])}, ValueError, "`user_ids` must name every user, got nan"),
        ({"user_ids": pd.Series([4, None], dtype="Int64")}, ValueError, "`user_ids` must name every user, got <NA>"),
    ],
)
def test_bad_options_are_refused(options: dict[str, object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        UserValues([1, 2], {"a": [0.5, 1.0]}, **options)  # type: ignore[arg-type]


def test_two_weights_of_one_user_are_refused() -> None:
    with pytest.raises(ValueError, match="user 1 twice, with weight"):
        UserValues([1, 1], {"a": [0.5, 0.5]}, weights=[1.0, 2.0])


def test_one_own_id_of_two_users_is_refused_where_a_user_comes_twice() -> None:
    with pytest.raises(ValueError, match="different for each user, as text, got 'x' for user 1 and user 3"):
        UserValues([3, 1, 3, 2], {"a": [0.5, 0.5, 0.5, 0.5]}, user_ids=["x", "x", "x", "y"])


def test_two_own_ids_of_one_user_are_refused() -> None:
    with pytest.raises(ValueError, match="`user_ids` must give user 1 one id, got 'x' and 'y'"):
        UserValues([1, 1], {"a": [0.5, 0.5]}, user_ids=["x", "y"])


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "users.parquet"
    example().save(path)
    assert_same(UserValues.load(path), example())
    plain = UserValues([-(2**62), 3], {"a": [0.1, 0.2]})
    plain.save(str(path))  # in the place of the first
    assert_same(UserValues.load(str(path)), plain)
    assert [file.name for file in tmp_path.iterdir()] == ["users.parquet"]


def test_any_reader_of_parquet_understands_the_file(tmp_path: Path) -> None:
    example().save(tmp_path / "users.parquet")
    table = pq.read_table(tmp_path / "users.parquet")
    assert table.column_names == ["sample_id", "weight", "ndcg@10", "hit_rate@10"]
    assert table["sample_id"].to_pylist() == [2, 5, 9]


def test_the_users_own_ids_go_with_their_numbers(tmp_path: Path) -> None:
    one, two, three = (uuid.UUID(int=number) for number in (1, 2, 3))
    for given, kept in (
        (["z", "x", "y", "z"], ["x", "y", "z"]),
        (np.array([-7, 2**40, 3, -7]), [2**40, 3, -7]),
        (list(np.array([-7, 2**40, 3, -7])), [2**40, 3, -7]),
        ([2**63, 1, 5, 2**63], ["1", "5", str(2**63)]),  # no integers of Parquet
        ([-(2**63) - 1, 1, 5, -(2**63) - 1], ["1", "5", str(-(2**63) - 1)]),
        ([three, one, two, three], [str(one), str(two), str(three)]),
        (pa.chunked_array([[-7, 2**40], [3, -7]]), [2**40, 3, -7]),
    ):
        users = UserValues([9, 2, 5, 9], {"a": [0.9, 0.2, 0.5, 0.9]}, user_ids=given)
        users.save(tmp_path / "users.parquet")
        for found in (users, UserValues.load(tmp_path / "users.parquet"), users.with_summaries({"b": (0.5, 0.1)})):
            assert found.user_ids == kept
            assert found.select([9, 5]).user_ids == kept[1:]
        table = pq.read_table(tmp_path / "users.parquet")
        assert table.column_names == ["sample_id", "user_id", "a"]
        assert table["user_id"].to_pylist() == kept
    nobody = UserValues([], {"a": []}, user_ids=[])
    nobody.save(tmp_path / "users.parquet")
    assert UserValues.load(tmp_path / "users.parquet").user_ids == []
    pq.write_table(table.set_column(1, "user_id", pa.array([0.5, 1, 2])), tmp_path / "users.parquet")
    with pytest.raises(ValueError, match="column 'user_id' must be int64 or string without nulls, got double"):
        UserValues.load(tmp_path / "users.parquet")


def test_a_frame() -> None:
    frame = example().to_frame()
    assert frame.index.tolist() == [2, 5, 9] and frame.index.name == "sample_id"
    assert list(frame.columns) == ["ndcg@10", "hit_rate@10", "weight"]
    assert frame.loc[9, "ndcg@10"] == 0.5


def test_an_interrupted_save_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "users.parquet"
    example().save(path)
    before = path.read_bytes()

    def half(table: object, draft: Path, **_: object) -> None:
        draft.write_bytes(b"PAR1")
        raise OSError("no space left")

    monkeypatch.setattr(pq, "write_table", half)
    with pytest.raises(OSError, match="no space left"):
        example().save(path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["users.parquet"]


def test_a_name_may_be_as_long_as_the_file_system_has_them(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 255)
    example().save(path)
    assert len(UserValues.load(path)) == len(example())


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match="`path` must be a file, got the folder"):
        example().save(tmp_path)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="in a folder that exists"):
        example().save(tmp_path / "none" / "users.parquet")
    with pytest.raises(FileNotFoundError, match="there is no file"):
        UserValues.load(tmp_path / "none.parquet")
    with pytest.raises(FileNotFoundError, match="there is no file"):
        UserValues.load(tmp_path)


def test_every_truncated_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "users.parquet"
    UserValues(list(range(1000)), {"a": torch.rand(1000)}).save(path)
    whole = path.read_bytes()
    for length in (0, 1, 4, 100, len(whole) // 2, len(whole) - 8, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"is no Parquet file, or not a whole one: .*(Parquet|magic|footer)"):
            UserValues.load(path)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "users.parquet"
    UserValues(list(range(1000)), {"a": torch.rand(1000)}).save(path)
    whole, columns = path.read_bytes(), pq.read_metadata(path).row_group(0)
    for column in map(columns.column, range(columns.num_columns)):
        place = column.dictionary_page_offset + column.total_compressed_size // 4
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        with pytest.raises(ValueError, match="is damaged: "):
            UserValues.load(path)


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.parquet"
    path.write_text("user,item\n1,2\n")
    with pytest.raises(ValueError, match="is no Parquet file"):
        UserValues.load(path)
    pq.write_table(pa.table({"sample_id": [1], "a": [0.5]}), path)
    with pytest.raises(ValueError, match=r"not one that UserValues\.save wrote"):
        UserValues.load(path)


@pytest.mark.parametrize(("lists", "version"), [(None, 1), ([[3, 1], [2]], 2)])
def test_files_say_the_oldest_format_that_can_hold_them(
    tmp_path: Path, lists: list[list[int]] | None, version: int
) -> None:
    """So that whoever has an older version reads what it knows."""
    path = tmp_path / "users.parquet"
    UserValues([1, 2], {"a": [0.5, 1.0]}, lists=lists).save(path)
    assert json.loads(pq.read_schema(path).metadata[user_values.FORMAT])["format_version"] == version


@pytest.mark.parametrize(
    "lists",
    [
        [[4, 2], [9]],
        [(4, 2), np.array([9])],
        [torch.tensor([4, 2]), torch.tensor([9, -1])],
        np.array([[4, 2], [9, -1]]),
        torch.tensor([[4, 2], [9, -1]]),
        pd.Series([np.array([4, 2]), np.array([9])]),
        pa.chunked_array([[[4, 2]], [[9]]]),
    ],
    ids=lambda lists: type(lists).__name__,
)
def test_lists_are_what_people_have(lists: Any) -> None:
    assert UserValues([1, 2], {"a": [0.5, 1.0]}, lists=lists).lists == [[4, 2], [9]]


@pytest.mark.parametrize("item", [np.int64(4), np.uint8(4), torch.tensor(4), np.str_("4")], ids=type)
def test_ids_in_lists_may_be_scalars_of_others(item: Any) -> None:
    lists = UserValues([1, 2], {"a": [0.5, 1.0]}, lists=[[item], []]).lists
    assert lists in ([[4], []], [["4"], []]) and type(lists[0][0]) in (int, str)


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        ([[1]], "`lists` must have a list of ids for each of the 2 `sample_ids`, got 1"),
        (["ab", "c"], r"`lists\[0\]` must hold the ids of a user, best first, got str"),
        ([[4], b"c"], r"`lists\[1\]` must hold the ids of a user, best first, got bytes"),
        ([{3, 1}, {2}], r"`lists\[0\]` must hold the ids of a user, best first, got set"),
        ([1, 2], r"`lists\[0\]` must hold the ids of a user, best first, got int"),
        (torch.tensor([1, 2]), r"`lists\[0\]` must hold the ids of a user, best first, got int"),
        ([[2**63], [1]], r"`lists` must hold integers from 0 to 2\^63 - 1, padded with -1, or text"),
        ([[4, 7, 4], [1]], "`lists` must hold an item once in a list"),
    ],
    ids=str,
)
def test_lists_of_something_else_are_refused(lists: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        UserValues([1, 2], {"a": [0.5, 1.0]}, lists=lists)


@pytest.mark.parametrize("weights", [None, [1.0, 2.0]])
def test_a_summary_may_be_called_weight(weights: Any) -> None:
    """It is the name of a column of the file, not of a metric."""
    users = UserValues([1, 2], {"a": [0.5, 1.0]}, weights=weights, summaries={"weight": (1, 0)})
    assert users.with_summaries({"weight": (2, 0)}).summaries == {"weight": (2.0, 0.0)}
    with pytest.raises(ValueError, match="`definitions` has 'weight', of which `values` has none"):
        UserValues([1, 2], {"a": [0.5, 1.0]}, weights=weights, definitions={"weight": "x"})


def test_a_file_is_replaced_where_its_link_leads(tmp_path: Path) -> None:
    target, link = tmp_path / "users.parquet", tmp_path / "latest.parquet"
    users = UserValues([1], {"a": [0.5]})
    users.save(target)
    target.chmod(0o600)
    link.symlink_to(target.name)
    UserValues([1], {"a": [1.0]}).save(link)
    assert link.is_symlink() and UserValues.load(target)["a"].tolist() == [1.0]
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_a_pipe_takes_what_is_written(tmp_path: Path) -> None:
    pipe, found = tmp_path / "pipe", list[str]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: found.append(pipe.read_text(encoding="utf-8")), daemon=True)
    reader.start()
    write_text(pipe, "text")
    reader.join(20)
    assert found == ["text"] and pipe.is_fifo()


def about(**changes: object) -> dict[bytes, bytes]:
    known = {"format_version": 1, "definitions": {}, "candidates": None, "versions": {}, "summaries": {}}
    return {user_values.FORMAT: json.dumps({**known, **changes}).encode()}


@pytest.mark.parametrize(
    ("columns", "metadata", "message"),
    [
        (
            {"sample_id": [1]},
            about(format_version=3),
            "newer torch-recmetrics .format 3, this one reads up to 2.: upgr",
        ),
        ({"sample_id": [1]}, about(format_version="x"), "metadata that UserValues.save did not write"),
        ({"sample_id": [1]}, {user_values.FORMAT: b"{"}, "metadata that UserValues.save did not write"),
        ({"sample_id": [1]}, {user_values.FORMAT: b'{"format_version": 1}'}, "definitions is missing"),
        ({"a": [0.5]}, about(), "has no column 'sample_id'"),
        ({"sample_id": [1.5]}, about(), "column 'sample_id' must be int64"),
        ({"sample_id": [1], "a": ["x"]}, about(), "column 'a' must be double"),
        ({"sample_id": [1, 1], "a": [0.5, 0.6]}, about(), "user 1 twice"),
    ],
)
def test_files_that_save_does_not_write(
    tmp_path: Path, columns: dict[str, list[object]], metadata: dict[bytes, bytes], message: str
) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table(columns).replace_schema_metadata(metadata), path)
    with pytest.raises(ValueError, match=message):
        UserValues.load(path)


def test_a_summary_may_have_no_error_at_all() -> None:
    assert UserValues([1], {"a": [1.0]}, summaries={"coverage": (1.0, 0.0)}).summaries == {"coverage": (1.0, 0.0)}


def test_some_of_the_users() -> None:
    users = UserValues(
        [4, 1, 3],
        {"a": [1.0, 2.0, 3.0]},
        weights=[1.0, 2.0, 3.0],
        candidates="full",
        definitions={"a": "A()"},
        summaries={"coverage": (0.5, 0.1)},
    )
    some = users.select(torch.tensor([4, 1, 4]))
    assert (some.sample_ids.tolist(), some["a"].tolist(), some.weights.tolist()) == ([1, 4], [2.0, 1.0], [2.0, 1.0])
    assert (some.candidates, some.definitions, some.versions) == ("full", {"a": "A()"}, users.versions)
    assert not some.summaries and not len(users.select([]))
    with pytest.raises(ValueError, match="`sample_ids` must name users that there are, got 2"):
        users.select([1, 2])
    mask = users["a"] > 1
    for ids, kind in (([3.0], "float64"), (mask, "bool")):
        with pytest.raises(TypeError, match=rf"`sample_ids` must be integers, got torch\.{kind}: give the ids"):
            users.select(ids)  # type: ignore[arg-type]
    assert users.select(users.sample_ids[mask])["a"].tolist() == [2.0, 3.0]


def test_the_truth_stays_with_the_values(tmp_path: Path) -> None:
    users = UserValues([7, 3], {"mrr": [0.5, 1.0]}, truth="sha256:9f2c", hidden=True)
    users.save(tmp_path / "users.parquet")
    for found in (users, users.select([3]), users.with_summaries({"b": (0.5, 0.1)})):
        assert found.truth == "sha256:9f2c" and found.hidden is True
    loaded = UserValues.load(tmp_path / "users.parquet")
    assert loaded.truth == "sha256:9f2c" and loaded.hidden is True
    columns = {"sample_id": [1], "a": [0.5]}
    pq.write_table(pa.table(columns).replace_schema_metadata(about()), tmp_path / "older.parquet")
    older = UserValues.load(tmp_path / "older.parquet")
    assert older.truth is None and older.hidden is None
    pq.write_table(pa.table(columns).replace_schema_metadata(about(truth=5)), tmp_path / "other.parquet")
    with pytest.raises(ValueError, match="`truth` must be a word such as 'sha256:9f2c', got 5"):
        UserValues.load(tmp_path / "other.parquet")


def test_further_summaries_are_added() -> None:
    users = UserValues(
        [7, 3], {"mrr": [0.5, 1.0]}, definitions={"mrr": "MRR"}, weights=[1.0, 2.0], candidates="full",
        versions={"torch": "2"}, summaries={"coverage": (0.5, 0.1), "gini": (0.2, 0.1)},
    )  # fmt: skip
    found = {"value": torch.tensor(0.25), "standard_error": torch.tensor(0.5), "low": torch.tensor(0.0)}
    more = users.with_summaries({"coverage": found, "entropy": (3, 1)})
    assert more.summaries == {"coverage": (0.25, 0.5), "gini": (0.2, 0.1), "entropy": (3.0, 1.0)}
    assert users.summaries["coverage"] == (0.5, 0.1)
    assert torch.equal(more["mrr"], users["mrr"]) and torch.equal(more.sample_ids, users.sample_ids)
    assert torch.equal(more.weights, users.weights)
    for name in ("definitions", "candidates", "versions"):
        assert getattr(more, name) == getattr(users, name)
    with pytest.raises(ValueError, match="`summaries` has 'mrr'"):
        users.with_summaries({"mrr": (0.5, 0.1)})
    with pytest.raises(TypeError, match="a value and its standard error"):
        users.with_summaries({"gini": {"value": 0.5}})
    with pytest.raises(TypeError, match="must be a dict"):
        users.with_summaries((0.5, 0.1))
