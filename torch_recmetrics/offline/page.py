"""The page of a report: one HTML file that needs nothing from outside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch_recmetrics.compare.extras import needed
from torch_recmetrics.compare.user_values import UserValues
from torch_recmetrics.offline.texts import number, words

TEMPLATE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }}</title></head>
<body>
<h1>{{ title }}</h1>
<table>
<tr><th>metric</th><th>value</th></tr>
{% for name, value in values.items() %}
<tr><td>{{ name }}</td><td>{{ value | number }}</td></tr>
{% endfor %}
</table>
</body>
</html>
"""


def page_of(content: Mapping[str, Any], users: UserValues | None) -> str:
    """The page as text.

    Args:
        content: what ``Report.to_dict`` gives.
        users: the values of the users, for the pictures of their distribution.
    """
    jinja2 = needed("jinja2", "Report.to_html")
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters |= {"number": lambda value: "-" if value is None else number(value), "words": words}
    return str(environment.from_string(TEMPLATE).render(content, users=users))
