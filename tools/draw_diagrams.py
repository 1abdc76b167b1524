"""Draw the diagrams of the documents as SVG for the site.

    make diagrams                                         # fetches Mermaid and calls
    python tools/draw_diagrams.py mermaid.min.js

A page keeps the text of a diagram in a block ``mermaid``. The picture is a file of
``docs/images/diagrams`` whose name is a checksum of the text, so that the site never shows the picture
of an older text. What is missing is drawn in headless Chromium; pictures of texts that no page has any
more are removed.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from html import unescape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "images" / "diagrams"
BLOCK = re.compile(r"^```mermaid\n(.*?)^```\n", re.DOTALL | re.MULTILINE)
DRAW_SECONDS = 120
#: Text as text and not as HTML in SVG, which programs other than browsers do not show.
PAGE = """<!doctype html><meta charset="utf-8"><body><script src="{script}"></script><script>
const diagrams = {diagrams};
mermaid.initialize({{
    startOnLoad: false, theme: "neutral", htmlLabels: false, flowchart: {{htmlLabels: false}},
    state: {{wrappingWidth: 300}}, deterministicIds: true, fontFamily: "sans-serif",
}});
(async () => {{
    for (const [name, text] of Object.entries(diagrams)) {{
        const shown = document.createElement("pre");
        shown.id = name;
        try {{ shown.textContent = (await mermaid.render("d" + name, text)).svg; }}
        catch (error) {{ shown.textContent = "error: " + error; }}
        document.body.append(shown);
    }}
}})();
</script>
"""


def name_of(text: str) -> str:
    """Return the name of the picture of a diagram, without suffix."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def texts(folder: Path) -> Iterator[str]:
    """Yield the text of each diagram in the documents below a folder."""
    for path in sorted(folder.rglob("*.md")):
        yield from BLOCK.findall(path.read_text("utf-8"))


def draw(diagrams: dict[str, str], script: Path) -> dict[str, str]:
    """Return SVG by name. Raise RuntimeError with the texts that Mermaid does not understand."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "page.html")
        source = PAGE.format(script=script.resolve().as_uri(), diagrams=json.dumps(diagrams))
        page.write_text(source, "utf-8")
        options = ["--headless", "--no-sandbox", "--virtual-time-budget=60000", "--dump-dom"]
        dumped = subprocess.run(
            ["chromium", *options, f"--user-data-dir={folder}/profile", page.as_uri()],
            capture_output=True,
            text=True,
            check=True,
            timeout=DRAW_SECONDS,
        ).stdout
    found = re.findall(r'<pre id="(\w+)">(.*?)</pre>', dumped, re.DOTALL)
    drawn = {name: unescape(svg) for name, svg in found}
    wrong = [name for name in diagrams if not drawn.get(name, "").startswith("<svg")]
    if wrong:
        raise RuntimeError("\n".join(f"{diagrams[name]}{drawn.get(name, 'not drawn')}" for name in wrong))
    return drawn


def main(script: Path) -> int:
    """Draw what is missing, remove what is not needed. Return the exit code."""
    wanted = {name_of(text): text for text in texts(ROOT / "docs")}
    PICTURES.mkdir(parents=True, exist_ok=True)
    present = {path.stem: path for path in PICTURES.glob("*.svg")}
    for name, path in present.items():
        if name not in wanted:
            path.unlink()
    missing = {name: text for name, text in wanted.items() if name not in present}
    if missing:
        for name, svg in draw(missing, script).items():
            (PICTURES / f"{name}.svg").write_text(svg + "\n", "utf-8")
    print(f"{len(missing)} drawn, {len(wanted)} diagrams are in {PICTURES}")
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: draw_diagrams.py MERMAID_JS")
    sys.exit(main(Path(sys.argv[1])))
