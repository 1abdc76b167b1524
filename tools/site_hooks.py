"""What MkDocs does not do by itself with our documents; mkdocs.yml names this file.

Documents are written for a forge and for a terminal. So README.md, CHANGELOG.md and the licence are
above the folder of the pages, diagrams are texts, which ``tools/draw_diagrams.py`` has drawn, and a
folder has an index and no navigation.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

# MkDocs reads this file by its path: import the tool beside it.
ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]
from tools.draw_diagrams import BLOCK, PICTURES, name_of  # noqa: E402

DOCS = ROOT / "docs"
#: Documents outside of docs/, and their pages.
OUTSIDE = {"README.md": "readme.md", "CHANGELOG.md": "changelog.md", "LICENSE.txt": "licence.md"}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Replace each folder in the navigation by its pages."""
    config.nav = [_whole(entry) for entry in config.nav or ()]
    return config


def _whole(entry: Any) -> Any:
    if isinstance(entry, dict):
        return {title: _whole(value) for title, value in entry.items()}
    if isinstance(entry, list):
        return [_whole(value) for value in entry]
    if entry.endswith("/"):
        pages = sorted(path.name for path in (DOCS / entry).glob("*.md"))
        return [f"{entry}{name}" for name in sorted(pages, key=lambda name: name != "index.md")]
    return entry


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the documents that are above the folder of the pages."""
    for source, name in OUTSIDE.items():
        text = (ROOT / source).read_text("utf-8").replace("](docs/", "](")
        if not source.endswith(".md"):
            text = f"# Licence\n\n```text\n{text}```\n"
        for other, page in OUTSIDE.items():
            text = text.replace(f"]({other}", f"]({page}")
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return a document with links to pages, and pictures of diagrams.

    Raise PluginError if a picture is missing.
    """
    up = "../" * page.file.src_uri.count("/")
    for source, name in OUTSIDE.items():
        markdown = markdown.replace(f"]({up}../{source}", f"]({up}{name}")

    def picture(block: re.Match[str]) -> str:
        drawn = PICTURES / f"{name_of(block[1])}.svg"
        if not drawn.exists():
            raise PluginError(f"{page.file.src_uri}: a diagram is new or has changed: make diagrams")
        heading = re.findall(r"^#+ (.*)$", block.string[: block.start()], re.MULTILINE)[-1]
        return f"![Diagram: {heading}]({up}{drawn.relative_to(DOCS).as_posix()})\n"

    return BLOCK.sub(picture, markdown)
