"""The site of the documents: it has all, its links lead somewhere, and it shows what forges show."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tools.draw_diagrams import BLOCK

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
BUILD_SECONDS = 120
#: Elements that are lost, or become text, where two dialects of Markdown read a page differently.
SHAPE = set("h1 h2 h3 h4 ul ol li pre code em strong table tr th td".split())


class Shape(HTMLParser):
    """Count the elements of a page; of a page of the site, those in its article."""

    def __init__(self, text: str, begun: bool) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self._inside = begun
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside = self._inside or tag == "article"
        if self._inside and tag in SHAPE:
            self.counts[tag] += 1

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag != "article"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site. A link that leads nowhere is an error, and a page that is not in the navigation."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_site_shows_what_forges_show(site: Path) -> None:
    forge = MarkdownIt("commonmark").enable("table")
    for path in sorted(DOCS.rglob("*.md")):
        text = BLOCK.sub("![a diagram](drawn.svg)\n", path.read_text("utf-8"))
        page = (site / path.relative_to(DOCS)).with_suffix(".html").read_text("utf-8")
        assert Shape(page, begun=False).counts == Shape(forge.render(text), begun=True).counts, path


def test_pages_ask_no_other_host(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 80
    for path in pages:
        loaded = re.findall(r"<(?:script|img|iframe|link)\b[^>]*", path.read_text("utf-8"))
        assert not [tag for tag in loaded if re.search(r"\b(?:src|href)=\"?(\w+:|//)", tag)], path
    assert 'class="md-search' in (site / "index.html").read_text()
