"""Write the manual pages of all commands into a folder, for the Debian package.

    python tools/manual_pages.py FOLDER

The page of ``neoctl`` is what ``neoctl man`` prints; those of the others have what ``--help`` says.
"""

from __future__ import annotations

import configparser
import contextlib
import importlib
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path

from neo import __version__
from neoctl.manual import roff

ROOT = Path(__file__).parents[1]
#: Lines of the help are as long on each machine.
COLUMNS = "78"


def commands() -> dict[str, Callable[[], object]]:
    """Return the functions of the commands that the installation makes, by name."""
    config = configparser.ConfigParser(interpolation=None)
    config.read(ROOT / "setup.cfg")
    lines = config["options.entry_points"]["console_scripts"].strip().splitlines()
    found = {}
    for line in lines:
        name, _, place = line.partition(" = ")
        module, _, function = place.partition(":")
        found[name] = getattr(importlib.import_module(module), function)
    return found


def said(name: str, main: Callable[[], object], word: str) -> str:
    """Return what a command prints."""
    sys.argv = [name, word]
    with contextlib.redirect_stdout(io.StringIO()) as output, contextlib.suppress(SystemExit):
        main()
    return output.getvalue()


def page(name: str, text: str) -> str:
    """Return the manual page of a command from the text of its help."""
    usage, description, rest = (*text.split("\n\n", 2), "")[:3]
    summary = " ".join(description.split())
    first = summary.partition(". ")[0].rstrip(".")
    return "\n".join(
        [
            f'.TH {name.upper()} 1 "" "NEO {__version__}" "User Commands"',
            *(".SH NAME", f"{name} \\- {roff(first[:1].lower() + first[1:])}"),
            *(".SH SYNOPSIS", ".nf", *map(roff, usage.removeprefix("usage: ").splitlines()), ".fi"),
            *(".SH DESCRIPTION", roff(summary)),
            *(".PP", ".nf", *map(roff, rest.rstrip().splitlines()), ".fi"),
            "",
        ]
    )


def main(folder: Path) -> None:
    """Write all pages."""
    os.environ["COLUMNS"] = COLUMNS
    for name, command in commands().items():
        own = name == "neoctl"
        text = said(name, command, "man" if own else "--help")
        (folder / f"{name}.1").write_text(text if own else page(name, text))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
