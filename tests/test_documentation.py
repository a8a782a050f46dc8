"""What the pages show beside code: pictures that exist and say what the package computes, links between metrics."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import sys
import textwrap
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from torch_recmetrics.core.ranking.ranking import RankingStats
from torch_recmetrics.metrics import ranking

DOCS = Path(__file__).parents[1] / "docs"
ROOT = DOCS.parent
LINK = re.compile(r"(?<!!)\[[^\]]*\]\((?!https?:)([^)\s#]+)[^)\s]*\)")
PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")


@pytest.fixture(scope="module")
def pictures() -> Any:
    pytest.importorskip("matplotlib")
    spec = importlib.util.spec_from_file_location("docs_pictures", DOCS / "pictures.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def pages() -> Iterator[Any]:
    with mock.patch.object(sys, "path", [*sys.path, str(DOCS)]):
        yield importlib.import_module("pages")
    for name in ("pages", "library_table"):
        del sys.modules[name]


def test_every_link_to_a_file_leads_to_one() -> None:
    """Of the files that a code host shows; `docs/links.py` looks at the built pages, anchors included."""
    found = 0
    for page in (
        *ROOT.glob("*.md"),
        *ROOT.glob("examples/**/*.md"),
        *DOCS.glob("*.md"),
        *DOCS.glob("coming_from/*.md"),
    ):
        for target in LINK.findall(re.sub(r"(?ms)^```.*?^```$", "", page.read_text("utf-8"))):
            if not target.startswith("metrics/"):  # written by the build
                assert (page.parent / target).exists(), f"{page.name} links {target}"
                found += 1
    assert found > 100


def test_marks_of_blocks_begin_their_lines() -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        for line in page.read_text("utf-8").splitlines():
            assert ":::" not in line.lstrip(":"), f"{page}: {line}"
            assert not re.match(r"`[^|]*` : ", line), f"{page}: {line}"  # of a list of definitions


def test_a_dead_link_of_a_built_page_is_found(tmp_path: Path) -> None:
    pytest.importorskip("sphinx")
    with mock.patch.object(sys, "path", [*sys.path, str(DOCS)]):
        dead_links = importlib.import_module("links").dead_links
    del sys.modules["links"]
    (tmp_path / "a").mkdir()
    (tmp_path / "b c.html").write_text('<h1 id="top&amp;x">b</h1>')
    (tmp_path / "a" / "page.html").write_text(
        '<a href="../b%20c.html#top%26x">1</a> <a href="#here">2</a> <i id="here"></i> <a href="https://x.org/y">3</a>'
        '<pre>&lt;a href="no.html"&gt;</pre> <a\n href="#gone">4</a>'
        '<a href="../b%20c.html#gone">5</a> <img src="p.png">'
    )
    found = list(dead_links(tmp_path))
    assert {page.name for page, _ in found} == {"page.html"}
    assert [link for _, link in found] == ["#gone", "../b%20c.html#gone", "p.png"]


def test_related_metrics_are_others_that_exist(pages: Any) -> None:
    metrics = {name for name, thing in pages.public().items() if pages.is_metric(thing)}
    assert set(pages.RELATED) == metrics - {"Sliced", "UserBootstrap"}, "each has a line in RELATED of docs/pages.py"
    for name, others in pages.RELATED.items():
        assert set(others) <= metrics - {name}


def test_each_metric_of_relevance_has_its_formula_on_the_page() -> None:
    text = (ROOT / "docs/definitions.md").read_text("utf-8")
    for name in (own for own in ranking.__all__ if own[0].isupper()):
        assert f"| {{class}}`~torch_recmetrics.{name}` |" in text, f"docs/definitions.md has no row of {name}"


def test_the_example_of_a_metric_is_the_code_of_the_package() -> None:
    (block,) = re.findall(r"   ```python\n(.*?)   ```", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.DOTALL)
    (shown,) = ast.parse(textwrap.dedent(block)).body
    code = ast.parse((ROOT / "torch_recmetrics/metrics/ranking.py").read_text("utf-8"))
    (own,) = [node for node in code.body if isinstance(node, ast.ClassDef) and node.name == "HitRate"]
    assert isinstance(shown, ast.ClassDef) and shown.name == own.name

    def parts(node: ast.ClassDef) -> list[str]:
        return [ast.unparse(part) for part in node.body[1:]]  # behind the docstring

    assert [ast.unparse(base) for base in shown.bases] == [ast.unparse(base) for base in own.bases]
    assert parts(shown) == parts(own)


def test_the_recipe_names_every_reading_of_a_ranking_and_no_other() -> None:
    recipe = (ROOT / "CONTRIBUTING.md").read_text("utf-8").partition("| reading |")[2].partition("\n\n")[0]
    named = {*re.findall(r"`(\w+)[`(]", recipe), "gain_sum"}
    made = {name for name, own in vars(RankingStats).items() if callable(own) or isinstance(own, cached_property)}
    readings = {name for name in made if not name.startswith("_")}
    assert named == readings | {"n_relevant"}


def test_pictures_and_tables_of_the_demo_are_of_one_run() -> None:
    image = pytest.importorskip("PIL.Image")
    pages = {name: (ROOT / name).read_text("utf-8") for name in ("docs/demo.md", "README.md")}
    for picture in ("movielens_curves", "compare_forest", "compare_slices"):
        with image.open(DOCS / "images" / f"{picture}.png") as opened:
            told = opened.text["Description"].split("\n\n")
        assert told[-1] in pages["docs/demo.md"], picture
        if picture == "compare_forest":  # the second of two comparisons, and the lists that it compares
            assert told[-2] in pages["docs/demo.md"] and told[-2] in pages["README.md"]


def test_the_page_of_a_metric_shows_its_libraries_and_picture(pages: Any) -> None:
    page = pages.metric_pages()["recall.rst"]
    assert "implicit" in page
    assert "``Recall(top_k=K, denominator='min', pooled=True)``" in page
    assert "/images/which/recall.png" in page
    assert ":doc:`Precision <precision>`" in page


def test_every_picture_of_a_page_is_there_and_says_what_it_shows() -> None:
    pages = [page for page in DOCS.rglob("*.md") if "_build" not in page.parts]
    found = [(page, text, target) for page in pages for text, target in PICTURE.findall(page.read_text("utf-8"))]
    assert found
    for page, text, target in found:
        assert (page.parent / target).is_file(), f"{page.name} shows {target}"
        assert len(text) > 20, f"{page.name} says nothing about {target}"


def test_the_numbers_beside_a_list_are_the_metrics(pictures: Any) -> None:
    told = dict(PICTURE.findall((DOCS / "which_metric.md").read_text("utf-8")))
    checked = 0
    for text, target in told.items():
        name = Path(target).stem
        if name not in pictures.RANKED:
            continue
        lists = (pictures.GRADED if name in pictures.READS_GRADES else pictures.PLAIN).values()
        numbers = {float(number) for number in re.findall(r"\d+(?:\.\d+)?", text)}
        assert numbers == {float(f"{value:.2f}") for value in pictures.values(name, lists)}, name
        checked += 1
    assert checked >= 8


def test_the_numbers_in_other_pictures(pictures: Any) -> None:
    """What the page says of them in words."""
    assert pictures.auc().axes[0].get_title(loc="left") == "BinaryAUC 0.80, GroupAUC 0.45"
    assert [text.get_text() for text in pictures.popularity().axes[0].texts][1] == "0.03"  # of the catalogue
    assert pictures.power_law().axes[0].get_title(loc="left") == "gamma 1.52"
    order, twice = (text.get_text() for text in pictures.calibration().axes[0].get_legend().get_texts())
    assert order.split(",")[0] == twice.split(",")[0]
    assert (order[-4:], twice[-4:]) == ("1.00", "2.00")


@pytest.mark.parametrize("name", ["ndcg", "auc"])
def test_a_picture_is_drawn(pictures: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "FOLDER", tmp_path)
    pictures.save(pictures.ranked_list(name) if name in pictures.RANKED else pictures.OTHERS[name](), name)
    drawn, kept = (tmp_path / f"{name}.png").read_bytes(), (DOCS / "images" / "which" / f"{name}.png").read_bytes()
    assert drawn[16:24] == kept[16:24]  # width and height
