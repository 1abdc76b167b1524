"""The tables: ``schema/*.sql`` is what is executed (specification 14)."""

from __future__ import annotations

import re
from importlib import resources

from neo.storage.backend.api import FILL_ANEW, BackendFailure

#: Version of the format, kept in the ``version`` row of ``config``.
VERSION = 3

#: Tables of a node, in the order in which a reset drops them. MariaDB has ``bigdata`` too.
TABLES = ("config", "pt", "trans", "obj", "data", "ttrans", "tobj")

VIEWS = ("show_pt", "show_trans", "show_ttrans", "show_obj", "show_tobj", "show_data")


def statements(name: str) -> list[str]:
    """Return the statements of ``schema/<name>.sql``; no string or comment there has a semicolon."""
    text = resources.files("neo.schema").joinpath(f"{name}.sql").read_text("utf-8")
    text = re.sub(r"--[^\n]*", "", text)
    return [s.strip() for s in text.split(";") if s.strip()]


def check_version(found: str | None, database: str, oldest: int = VERSION) -> None:
    """Raise BackendFailure for an unknown format. ``oldest``: the oldest one that can be migrated."""
    if found is None:
        raise BackendFailure(
            f"{database}: there is a 'config' table without version: this is not a database of a"
            " NEO storage node. Give another database"
        )
    if found.isdecimal() and int(found) > VERSION:
        raise BackendFailure(
            f"{database}: the format of the database is {found}, newer than {VERSION}, the newest"
            " this program knows. Upgrade the program of this storage node"
        )
    if not found.isdecimal() or int(found) < oldest:
        raise BackendFailure(
            f"{database}: the format of the database is {found!r}, older than {oldest}. Open it once"
            f" with the NEO release that wrote it and that upgrades to format {oldest}. {FILL_ANEW}"
        )
