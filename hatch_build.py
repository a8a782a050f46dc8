"""The README as a package index shows it: nothing but its text is there, so a relative link would lead nowhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

CODE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
PICTURE = re.compile(r"!\[([^\]]*)\]\((?!https?:)([^)\s]+)\)")
LINK = re.compile(r"\[([^\]]*)\]\((?!https?:|#)([^)\s]+)\)")
NOTE = "Files and folders that are named here are in the source distribution.\n"


def without_links(readme: str) -> str:
    """Pictures become the sentences that describe them, links the names of the files."""
    parts = CODE.split(readme)
    for i in range(0, len(parts), 2):  # the others are blocks of code
        text = PICTURE.sub(r"*\1: `\2`*", parts[i])
        parts[i] = LINK.sub(lambda link: f"`{link[2]}`" if link[1] in link[2] else f"{link[1]} (`{link[2]}`)", text)
    return f"{''.join(parts)}\n{NOTE}"


class CustomMetadataHook(MetadataHookInterface):
    """Takes the place of `readme = "README.md"`."""

    def update(self, metadata: dict[str, Any]) -> None:
        readme = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": without_links(readme)}
