"""Sphinx: the pages of this folder, and those that pages.py writes from the package."""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.util.inspect import stringify_signature

sys.path.insert(0, str(Path(__file__).parent))

import pages

import torch_recmetrics

project = "torch-recmetrics"
author = "The torch-recmetrics authors"
copyright = author
version = release = torch_recmetrics.__version__

extensions = ["links", "mathml", "myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
exclude_patterns = ["_build"]
suppress_warnings = ["config.cache"]

# A link to a public name that leads nowhere is an error. Other projects' pages would need a network to be looked up.
nitpicky = True
nitpick_ignore_regex = [
    ("py:.*", r"(?!torch_recmetrics\b).*"),
    ("py:.*", r"torch_recmetrics\.(core|metrics|wrappers)\..*"),
]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 90
myst_enable_extensions = ["colon_fence", "dollarmath", "deflist"]
myst_heading_anchors = 3

html_theme = "furo"
html_math_renderer = "mathml"
html_title = f"torch-recmetrics {version}"
html_static_path = ["static"]
html_css_files = ["style.css"]
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
pygments_style = "a11y-light"  # the comments of "friendly" are hard to read

FACTS = re.compile(r"^(Undefined|Range|Source): ?")
OWN_CLASS = re.compile(r":class:`~?(\w+)`")


def name_the_facts(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """The docstrings' `Undefined:`, `Range:` and `Source:` become paragraphs of their own, names of ours links."""
    spread: list[str] = []
    for text in lines:
        line = OWN_CLASS.sub(lambda m: f":class:`~torch_recmetrics.{m[1]}`" if m[1] in pages.NAMES else m[0], text)
        # "Undefined: ...  Range: ..." may share a line
        for part in re.split(r"(?:^|(?<=\s\s))(?=(?:Undefined|Range|Source): )", line):
            fact = FACTS.match(part)
            if fact is not None:
                spread += ["", FACTS.sub(f"**{fact[1]}:** ", part)]
            elif part or not line:
                spread.append(part)
    lines[:] = spread


def signature_to_learn(
    app: Sphinx, what: str, name: str, thing: type, options: object, signature: str, returned: str
) -> tuple[str, str | None] | None:
    """A dataclass is made by the package, not by the reader: its fields are no arguments to learn.

    Where a class has a `__new__`, as FromSampled, its options are those of `__init__`.
    """
    if what == "class" and dataclasses.is_dataclass(thing):
        return "", None
    if what == "class" and "**kwargs" in (signature or ""):
        own = stringify_signature(inspect.signature(thing), show_return_annotation=False, unqualified_typehints=True)
        return own, None
    return None


def lead_back(app: Sphinx, page: str, template: str, context: dict[str, object], doctree: object) -> None:
    """The links of a source page back to the documentation: viewcode takes one prefix for all that a module defines."""

    def public_name(link: re.Match[str]) -> str:
        documented = app.env.domains["py"].objects
        names = (link[1], re.sub(r"^torch_recmetrics\.", "torch_recmetrics.functional.", link[1]))
        return "#" + next((name for name in names if name in documented), link[1]) + '"'

    if page.startswith("_modules/"):
        context["body"] = re.sub(r'(?<=html)#([\w.]+)"', public_name, str(context["body"]))


def setup(app: Sphinx) -> None:
    app.connect("html-page-context", lead_back)
    app.connect("autodoc-process-signature", signature_to_learn)
    app.connect("autodoc-process-docstring", name_the_facts, priority=400)
    pages.write_all()
