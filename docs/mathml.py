"""Formulas as MathML, which browsers draw themselves: no script, and the same pages without a network."""

from __future__ import annotations

import html
import re

from docutils import nodes
from docutils.utils.math import MathError, latex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

logger = logging.getLogger(__name__)

# What LaTeX has and the converter lacks.
SPELLINGS = {r"\\dots\b": r"\\ldots"}


def mathml(node: nodes.math | nodes.math_block, *, as_block: bool) -> str:
    formula = node.astext()
    for written, understood in SPELLINGS.items():
        formula = re.sub(written, understood, formula)
    try:
        return latex2mathml.tex2mathml(formula, as_block=as_block)
    except MathError as error:
        logger.warning("formula %r: %s", formula, error, location=node)
        return f"<code>{html.escape(formula)}</code>"


def visit_inline(translator: HTML5Translator, node: nodes.math) -> None:
    translator.body.append(mathml(node, as_block=False))
    raise nodes.SkipNode


def visit_block(translator: HTML5Translator, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="math">{mathml(node, as_block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
