"""A link or an anchor of a built page that leads nowhere is a warning, so that `make docs` fails."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sphinx.application import Sphinx
from sphinx.util import logging

TAG = re.compile(r"<[a-z][^<>]*>")
ANCHOR = re.compile(r'\sid="([^"]*)"')
LINK = re.compile(r'\s(?:href|src)="([^"]*)"')


def dead_links(folder: Path) -> Iterator[tuple[Path, str]]:
    """The page and the link, of every link within the folder that leads to no file or to no anchor of its page."""
    anchors: dict[Path, set[str]] = {}
    links: dict[Path, set[str]] = {}
    for page in sorted(folder.resolve().rglob("*.html")):
        tags = " ".join(TAG.findall(page.read_text(encoding="utf-8")))
        anchors[page] = {html.unescape(name) for name in ANCHOR.findall(tags)}
        links[page] = {html.unescape(link) for link in LINK.findall(tags)}
    for page, found in links.items():
        for link in sorted(found):
            url = urlsplit(link)
            if url.scheme or url.netloc:
                continue
            target = (page.parent / unquote(url.path)).resolve() if url.path else page
            if not target.exists() or (url.fragment and unquote(url.fragment) not in anchors.get(target, ())):
                yield page, link


def check_links(app: Sphinx, failure: Exception | None) -> None:
    if failure is None and app.builder.format == "html":
        for page, link in dead_links(Path(app.outdir)):
            where = page.relative_to(Path(app.outdir).resolve())
            logging.getLogger("links").warning("%s: the link %s leads nowhere", where, link, type="links")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("build-finished", check_links)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
