"""Render the documents as HTML, and refuse a link that leads nowhere.

    python tools/render_docs.py docs build/docs

Links to files of the project and to headings are checked; links to the web are not. For broken links
print one line each, and exit with code 1.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from html import escape
from pathlib import Path
from urllib.parse import unquote, urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ max-width: 52rem; margin: 2rem auto; padding: 0 1rem; font: 1rem/1.5 sans-serif }}
pre, code {{ font-family: monospace; background: #f4f4f4 }}
pre {{ padding: .6rem; overflow-x: auto }}
table {{ border-collapse: collapse }}
td, th {{ border: 1px solid #ccc; padding: .2rem .5rem; text-align: left; vertical-align: top }}
</style></head><body>
{body}
</body></html>
"""


def slug(heading: str) -> str:
    """Return the anchor of a heading, as the usual forges make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def parse(path: Path) -> list[Token]:
    """Return the tokens of a document; headings get their anchors."""
    tokens = MarkdownIt("commonmark").enable("table").parse(path.read_text("utf-8"))
    for opening, content in zip(tokens, tokens[1:], strict=False):
        if opening.type == "heading_open":
            text = "".join(child.content for child in content.children or ())
            opening.attrSet("id", slug(text))
    return tokens


def links(tokens: list[Token]) -> Iterator[Token]:
    """Yield every link and picture. The caller may change their targets."""
    for token in tokens:
        for child in token.children or ():
            if child.type in ("link_open", "image"):
                yield child


def broken_links(documents: dict[Path, list[Token]]) -> Iterator[str]:
    """Yield one line for each broken link."""
    anchors = {
        path: {token.attrGet("id") for token in tokens} for path, tokens in documents.items()
    }
    for path, tokens in documents.items():
        for link in links(tokens):
            target = str(link.attrGet("href") or link.attrGet("src"))
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            file = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not file.exists():
                yield f"{path}: {target}: there is no such file"
            elif parts.fragment and file in anchors and parts.fragment not in anchors[file]:
                yield f"{path}: {target}: there is no such heading"


def render(path: Path, tokens: list[Token]) -> str:
    """Return one document as a page; links between documents lead to pages."""
    for link in links(tokens):
        target = str(link.attrGet("href") or "")
        if target and not urlsplit(target).scheme:
            link.attrSet("href", re.sub(r"\.md(#|$)", r".html\1", target))
    markdown = MarkdownIt("commonmark").enable("table")
    body = markdown.renderer.render(tokens, markdown.options, {})
    return PAGE.format(title=escape(path.stem), body=body)


def main(source: Path, target: Path) -> int:
    """Render every document under ``source`` into ``target``."""
    source = source.resolve()
    documents = {path: parse(path) for path in sorted(source.rglob("*.md"))}
    broken = list(broken_links(documents))
    for line in broken:
        print(line, file=sys.stderr)
    if broken:
        return 1
    for path in source.rglob("*"):
        copy = target / path.relative_to(source)
        if path.is_file() and path not in documents:
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
    for path, tokens in documents.items():
        page = (target / path.relative_to(source)).with_suffix(".html")
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(render(path, tokens), "utf-8")
    print(f"{len(documents)} documents are in {target}")
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: render_docs.py SOURCE TARGET")
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
