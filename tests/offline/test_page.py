"""The page of a report: every section is drawn, ids are text and nothing else, nothing is asked for from outside."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import torch
from fixtures import browser, drawn

from torch_recmetrics.compare import UserValues, compare
from torch_recmetrics.offline import Input, Report
from torch_recmetrics.offline.reports.page import certainty, group_pictures
from torch_recmetrics.offline.reports.pictures import against_cutoff, forest, histogram, roc, ticks
from torch_recmetrics.users.texts import p_text

ROGUE = '<script>alert(1)</script><img src="http://localhost/x.png" onerror="alert(2)">&"\'{{ 7 * 7 }}'
SECTIONS = ["Against the cutoff", "Over users", "By slice", "By popularity of the item", "ROC", "Compared"]


def users(seed: int) -> UserValues:
    draw = torch.Generator().manual_seed(seed)
    values = torch.rand(3, 200, generator=draw, dtype=torch.float64)
    columns = {f"ndcg@{k}": values[place] * (values[0] > 0.3) for place, k in enumerate((5, 10, 20))}
    return UserValues(torch.arange(200), columns | {ROGUE: (values[1] > 0.5).double()})


def full_report() -> Report:
    of_users = users(1)
    values = {name: of_users.mean(name) for name in of_users}
    return Report(
        {**values, "gauc": math.nan},
        {name: (value - 0.02, value + 0.02) for name, value in values.items()},
        {"users": 200, "users_without_list": 3},
        of_users,
        [ROGUE] * 200,
        {name: f"definition of {name}" for name in values},
        [Input("recommendations", ROGUE, 1000, "ab" * 32), Input("truth", "x" * 120, 17)],
        {
            "slices": {"ndcg@10": {ROGUE: (0.2, 0.1, 0.3), "warm": 0.4, "cold": None, "y" * 90: (0.1, None, None)}},
            "popularity": {"recall@10": {"1 to 3": 0.1, "4 to 90": 0.5}},
            "roc": {"all": {"fpr": [0.0, 0.1, 1.0], "tpr": [0.0, 0.8, 1.0], "auc": 0.85}},
            "comparison": compare({"popularity": users(2), ROGUE: of_users}, baseline="popularity", num_draws=50),
        },
        title=ROGUE,
    )


class Elements(HTMLParser):
    """What a browser would make of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.links: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.links += [value or "" for name, value in attrs if name in ("src", "href") or name.startswith("on")]

    def handle_data(self, data: str) -> None:
        self.text += data


def test_every_section_is_there() -> None:
    page = full_report().to_html()
    found = Elements(page)
    headings = re.findall("<h2>(.*?)</h2>", page)
    assert headings == ["Values", "Counts", *SECTIONS, "Definitions", "Inputs", "Versions"]
    assert found.tags["svg"] == found.tags["figure"] == 1 + 2 + 1 + 1 + 1 + 1
    assert "0.85" in found.text
    assert "ab" * 32 in found.text
    assert str(torch.__version__) in found.text
    for picture in re.findall("<svg.*?</svg>", page):
        ET.fromstring(picture)


def test_what_was_warned_of_stands_below_the_title() -> None:
    text = Elements(Report({"mrr": 0.5}, notes=["the ids look foreign", "are they?"]).to_html()).text
    assert text.index("1 value") < text.index("the ids look foreign.") < text.index("are they?") < text.index("0.5000")
    assert "are they?." not in text


def test_names_are_text() -> None:
    found = Elements(full_report().to_html())
    assert not found.tags.keys() & {"script", "img", "iframe", "object"}
    assert found.links == ["data:,"]
    assert "http" not in "".join(found.links)
    assert ROGUE in found.text


def test_a_comparison_names_its_baseline_and_has_signs_and_intervals() -> None:
    table = compare({"popularity": users(2), "new": users(1)}, baseline="popularity", num_draws=50, level=0.9)
    table.rows[0] = replace(table.rows[0], difference=0.0123, low=0.0011, high=0.02)
    table.rows[1] = replace(table.rows[1], difference=-0.0123, low=-0.02, high=math.nan)
    report = Report({}, details={"comparison": table})
    page = report.to_html()
    assert "The baseline is popularity" in Elements(page).text
    assert "90 % interval" in page
    rows = [Elements(row).text for row in re.findall("<tr><td>new.*?</tr>", page)]
    assert rows[0].startswith("new, ndcg@5+0.0123[+0.0011, +0.0200]")
    assert rows[1].startswith("new, ndcg@10-0.0123[-0.0200, -]")
    assert {(row["baseline"], row["level"]) for row in report.to_dict()["details"]["comparison"]} == {
        ("popularity", 0.9)
    }


def test_a_column_has_one_precision() -> None:
    table = compare({"popularity": users(2), "new": users(1)}, baseline="popularity", num_draws=50)
    table.rows[0] = replace(table.rows[0], difference=0.0141, low=-0.0008314, high=0.02904, p=0.00004, p_corrected=1e-9)
    table.rows[1] = replace(table.rows[1], difference=-0.0004019, low=-0.02, high=0.00004)
    values = {"ndcg@5": 0.25, "arp@5": 12345.678, "recall@5": 0.0004, "gauc": math.nan}
    slices = {"ndcg@5": {"cold": (0.0004019, 0.0001, 0.01), "warm": (0.5, 0.4, 0.6)}}
    page = Report(values, {"recall@5": (0.0, 0.0123)}, details={"comparison": table, "slices": slices}).to_html()
    rows = [Elements(row).text for row in re.findall("<tr><td>new.*?</tr>", page)]
    assert rows[0].startswith("new, ndcg@5+0.0141[-0.0008, +0.0290]< 0.0001< 0.0001")
    assert rows[1].startswith("new, ndcg@10-0.0004[-0.0200, +0.0000]")
    assert re.findall('<td class="number value">(.*?)</td>', page)[:4] == ["0.2500", "12345.6780", "0.0004", "-"]
    assert "[0.0000, 0.0123]" in page
    assert re.findall(r'text-anchor="end" class="tick">([+-]?\d\.\d{3,})</text>', page)[:2] == ["0.0004", "0.5000"]
    assert {"+0.0141", "-0.0004"} <= set(re.findall(r'text-anchor="end" class="tick">(.*?)</text>', page))


def test_a_comparison_says_how_it_was_made_and_what_each_row_found() -> None:
    runs = {"old": users(2), "new": users(1), "other": users(3)}
    for column in (runs["new"]["ndcg@5"], runs["new"]["ndcg@10"]):
        column[:3] = math.nan
    table = compare(runs, baseline="old", metrics=("ndcg@5", "ndcg@20"), num_draws=1500, correction="bh", level=0.9)
    page = Report({}, details={"comparison": table}).to_html()
    made = "197 to 200 users; test: randomization, 1,500 draws, seed 0; Benjamini-Hochberg correction over 4 rows"
    for note in (f"{made}; 90 % intervals, not corrected", *table.notes):
        assert f"<p>{note}.</p>" in page
    assert len(table.notes) == 1
    heads = re.findall("<th(?: [^>]*)?>([^<]*)</th>", page.partition("<h2>Compared</h2>")[2].partition("</thead>")[0])
    assert heads == [
        "system, metric", "difference", "90 % interval", "p", "p (bh)", "d_z", "wins / ties / losses",
        "users for 80% power",
    ]  # fmt: skip
    for row in table:
        (line,) = re.findall(f"<tr><td>{row.system}, {row.metric}</td>.*?</tr>", page)
        cells = re.findall("<td[^>]*>(.*?)</td>", line)
        assert cells[2:] == [
            f"[{row.low:+.4f}, {row.high:+.4f}]",
            p_text(row.p),
            p_text(row.p_corrected),
            f"{row.effect:+.3f}",
            f"{row.wins} / {row.ties} / {row.losses}",
            f"{row.users_needed:,.0f}",
        ]
        assert re.findall('data-head="(.*?)"', line) == heads[1:]
    unpaired = compare({"old": {"a": (0.3, 0.1)}, "new": {"a": (0.4, 0.1)}}, "old", correction=None)
    page = Report({}, details={"comparison": unpaired}).to_html()
    assert "<p>no paired test; no correction over 1 row; 95 % intervals, not corrected.</p>" in page
    assert "<p>unpaired: from means and standard errors" in page
    (cells,) = (re.findall("<td[^>]*>(.*?)</td>", line) for line in re.findall("<tr><td>new.*?</tr>", page))
    assert cells[3:] == ["0.4795", "-", "-", "-"]


def test_a_row_that_is_beyond_chance_after_the_correction_alone_is_coloured() -> None:
    table = compare({"old": users(2), "new": users(1)}, baseline="old", num_draws=50)
    found = {"low": 0.01, "high": 0.03, "p": 0.01}
    table.rows = [replace(table.rows[0], **found, p_corrected=p) for p in (0.04, 0.06)]
    page = Report({}, details={"comparison": table}).to_html()
    assert "difference from old with its interval; grey: p (holm) above 0.05" in page
    assert re.findall('class="dot (.*?)"', page) == ["", "unsure"]


def test_a_picture_of_differences_says_where_it_has_not_all_of_them() -> None:
    table = compare({"old": users(2), "new": users(1)}, baseline="old", num_draws=50)
    for rows, told in ((40, "above 0.05</span>"), (41, "above 0.05; the first 40 of 41</span>")):
        table.rows = [replace(table.rows[0], metric=f"m{place}") for place in range(rows)]
        page = Report({}, details={"comparison": table}).to_html()
        assert told in page
        assert page.count("<circle") == 40


def test_a_picture_of_groups_says_where_it_has_not_all_of_them() -> None:
    for groups, note in ((40, "means over users"), (41, "the first 40 of 41")):
        values = {f"group {number}": 0.5 for number in range(groups)}
        (picture,) = group_pictures({"ndcg@10": values}, "means over users")
        assert picture.note == note and picture.svg.count("<circle") == 40


def test_a_row_whose_p_is_what_the_level_allows_is_beyond_chance() -> None:
    assert [certainty({"p_corrected": p, "level": 0.5}) for p in (0.25, 0.5, 0.75, None)] == [
        "",
        "",
        "unsure",
        "unsure",
    ]
    assert certainty({"p_corrected": 0.1, "level": 0.9}) == ""  # 1 - 0.9 is a little less than 0.1


def test_definitions_of_a_comparison_stand_once() -> None:
    table = compare({"old": users(2), "new": users(1)}, baseline="old", num_draws=50)
    lines = {"old: ndcg@5": "NDCG", "new: ndcg@5": "NDCG", "old: other": "A", "new: other": "B", "alone": "C"}
    page = Report(dict.fromkeys(lines, 0.5), definitions=lines, details={"comparison": table}).to_html()
    shown = re.findall("<tr><td>(.*?)</td><td><code>(.*?)</code></td></tr>", page)
    assert shown == [("ndcg@5", "NDCG"), ("other", "A"), ("new: other", "B"), ("alone", "C")]


def test_long_names_break_where_words_end() -> None:
    page = Report({"hit_rate@10/new/<b>": 0.5}, inputs=[Input("truth", "data/test.parquet")]).to_html()
    assert "<td>hit_<wbr>rate@10/<wbr>new/<wbr>&lt;b&gt;</td>" in page
    assert "data/<wbr>test.parquet" in page


def test_a_report_of_one_value_needs_no_picture() -> None:
    page = Report({"coverage": 0.5}, versions={}).to_html()
    assert re.findall("<h2>(.*?)</h2>", page) == ["Values", "Versions"]
    assert "<svg" not in page
    assert "0.5000" in page


def test_a_metric_at_two_cutoffs_is_drawn_against_them() -> None:
    drawn = Report({"ndcg@5": 0.2, "ndcg@10": 0.3, "mrr@5": 0.4}, versions={}).to_html()
    assert drawn.count("<svg") == 1
    assert "<svg" not in Report({"ndcg@5": 0.2, "mrr@5": 0.4}, versions={}).to_html()
    groups = {"slices": {"ndcg@5": {"v@1": 0.1, "v@2": 0.3}}, "exposure": {"exposure@5": {"v@1": 0.1, "v@2": 0.3}}}
    values = {f"{name}/{group}": 0.2 for own in groups.values() for name in own for group in own[name]}
    assert "against the cutoff" not in Report(values, details=groups).to_html()


@pytest.mark.parametrize(("n_metrics", "more"), [(12, False), (13, True), (14, True)])
def test_a_page_says_where_it_has_not_all_pictures(n_metrics: int, more: bool) -> None:
    stems = [f"metric_{number:02}" for number in range(n_metrics)]
    values = {f"{stem}@{k}": 0.5 for stem in stems for k in (5, 10)}
    page = Report(values, details={"slices": {name: {"new": 0.5} for name in stems}}).to_html()
    assert page.count("<figure>") == 24
    assert page.count("The first 12 are shown.") == 2 * more


def test_a_whole_list_is_the_deepest() -> None:
    """A metric without a cutoff stands before those with one, or behind them."""
    for names in (("mrr", "mrr@10"), ("mrr@10", "mrr")):
        page = Report({}, users=UserValues([1, 2], {name: [0.5, 1.0] for name in names})).to_html()
        assert "users by their mrr<" in page
        assert "users by their mrr@10" not in page


def test_users_are_drawn_by_their_weight() -> None:
    """Who has no value or weight 0 is left out; of the other two the first has nine tenths of the weight."""
    values, weights = [0.0, 1.0, 0.5, math.nan], [0.18, 0.02, 0.0, 5.0]
    weighted = UserValues([1, 2, 3, 4], {"recall@1": values}, weights=weights)
    page = Report({"recall@1": weighted.mean("recall@1")}, users=weighted).to_html()
    assert "2 users by their weight, mean 0.1000, 90% have 0" in page
    (picture,) = re.findall("<svg.*?</svg>", page)
    heights = [float(bar.get("height", 0)) for bar in ET.fromstring(picture) if bar.tag == "rect"]
    assert heights[0] == pytest.approx(9 * heights[-1], abs=1)
    assert sum(height > 0 for height in heights) == 2
    plain = UserValues([1, 2], {"recall@1": [0.0, 1.0]})
    assert "2 users, mean 0.5000, 50% have 0" in Report({"recall@1": 0.5}, users=plain).to_html()


@pytest.mark.parametrize(("low", "high"), [(0, 0), (0, 1e-9), (-3, 12), (0.2, 0.21), (-1e6, 5), (0, 1)])
def test_ticks_cover_the_range(low: float, high: float) -> None:
    marks = ticks(low, high)
    assert marks[0] <= low <= high <= marks[-1]
    assert 2 <= len(marks) <= 8
    assert marks == sorted(set(marks))


def test_pictures_of_odd_values() -> None:
    pictures = [
        against_cutoff("one", {5: (0.0, None, None)}),
        against_cutoff("below", {5: (-1.0, -2.0, 0.5), 10: (3.0, None, None)}),
        histogram("none", [0, 0], (0.0, 1.0), 0.5),
        histogram("many", [10**9, 1], (-2.0, 5.0), 0.0),
        forest("nothing", []),
        forest("nan", [("a", (math.nan, None, None), "")], zero=True),
        forest("many", [(f"row {n}", (n / 100, n / 100 - 1, n / 100 + 1), "") for n in range(1000)], signed=True),
        roc("long", [n / 5000 for n in range(5001)], [n / 5000 for n in range(5001)]),
        roc("none", [], []),
    ]
    for picture in pictures:
        drawn = ET.fromstring(picture)
        width, height = map(float, drawn.attrib["viewBox"].split()[2:])
        for axis, end in (("x", width), ("y", height)):
            names = (axis, f"c{axis}", f"{axis}1", f"{axis}2")
            assert all(0 <= float(value) <= end for e in drawn.iter() for name, value in e.items() if name in names)
        assert len(picture) < 40_000
    assert len(re.findall("<circle", pictures[6])) == len(re.findall('class="whisker', pictures[6])) == 40
    assert re.findall('class="tick">([^<]+)<', pictures[3])[-3:] == ["-2", "1.5", "5"]


def test_pictures_are_those_that_were_looked_at() -> None:
    """Who changes them writes the file again, ``python -m tests.fixtures.drawn``, and looks at it in a browser."""
    assert drawn.pictures().splitlines() == drawn.LOOKED_AT.read_text("utf-8").splitlines()


def test_places_in_pictures() -> None:
    """Of worked examples: 286 units between the edges of a histogram, 148 between those of a forest, 270 of a ROC."""

    def ticks_of(picture: str) -> list[tuple[float, str]]:
        texts = [e for e in ET.fromstring(picture) if e.tag == "text" and e.get("class") == "tick"]
        return [(float(e.attrib["x"]), str(e.text)) for e in texts]

    def lines_of(picture: str, kind: str) -> list[tuple[float, ...]]:
        lines = [e for e in ET.fromstring(picture) if e.tag == "line" and e.get("class") == kind]
        return [tuple(float(e.attrib[name]) for name in ("x1", "y1", "x2", "y2")) for e in lines]

    drawn = histogram("few", [1, 4], (-2.0, 6.0), 2.0)
    assert ticks_of(drawn)[-3:] == [(44, "-2"), (187, "2"), (330, "6")]
    assert lines_of(drawn, "mean") == [(187, 8, 187, 144)]
    assert ticks_of(against_cutoff("two", {5: (0.4, None, None), 10: (0.5, None, None)}))[-2:] == [
        (59, "5"),
        (325, "10"),
    ]
    assert lines_of(roc("chance", [0.0, 1.0], [0.0, 1.0]), "mean") == [(44, 280, 314, 10)]
    rows = [("a", (0.4, 0.3, 0.5), ""), ("b", (0.8, 0.7, 0.9), "")]
    assert (130, "0") in ticks_of(forest("above", rows))
    below = [(name, tuple(-own for own in bar), kind) for name, bar, kind in rows]
    assert (278, "0") in ticks_of(forest("below", below))  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "above"), [("ndcg@10", False), ("exposure@10/Documentary", True)])
def test_labels_of_rows_are_not_cut(name: str, above: bool) -> None:
    """Short ones stand before their rows; where one is long, all stand above theirs, from the left edge on."""
    drawn = ET.fromstring(forest("rows", [("mrr", (0.5, None, None), ""), (name, (0.4, 0.3, 0.5), "")]))
    (group,) = (g for g in drawn if any(e.tag == "title" and e.text == name for e in g))
    label, point = group.find("text"), [e for e in drawn if e.tag == "circle"][1]
    assert label is not None and label.text == name
    assert (label.get("text-anchor") == "start" and label.get("x") == "0.0") == above
    assert (float(label.attrib["y"]) < float(point.attrib["cy"]) - 8) == above


@pytest.mark.processes
@pytest.mark.skipif(browser.PROGRAM is None, reason=browser.MISSING)
def test_in_a_browser(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    full_report().to_html(path)
    colours = set()
    with browser.Browser() as page:
        for width, dark in ((1280, False), (390, True), (970, True), (390, False), (1280, True)):
            page.open(path, width, dark=dark)
            assert page.value("document.documentElement.scrollWidth <= innerWidth"), width
            sizes = page.value("[...document.querySelectorAll('svg')].map(s => s.getBBox().width * s.clientHeight)")
            assert len(sizes) == 7
            assert min(sizes) > 10_000
            inside = """[...document.querySelectorAll('svg')].every(s => {
                const all = s.getBBox(), box = s.viewBox.baseVal;
                return all.x >= -1 && all.y >= -1 && all.x + all.width <= box.width + 1 && all.height <= box.height + 1
            })"""
            assert page.value(inside), "a picture is cut"
            colours.add((dark, page.value("getComputedStyle(document.body).backgroundColor")))
            in_page = "[...document.querySelectorAll('td')].every(d => d.getBoundingClientRect().right <= innerWidth)"
            assert page.value(in_page), "a table is cut"
            assert page.complaints() == []
            assert page.requests() == [path.resolve().as_uri()]
        noisy = tmp_path / "noisy.html"
        noisy.write_text("<script>console.error('no')</script><img src='nowhere.png'>")
        page.open(noisy, 390)
        assert page.complaints()
        assert len(page.requests()) == 2
    assert colours == {(False, "rgb(255, 255, 255)"), (True, "rgb(18, 22, 28)")}
