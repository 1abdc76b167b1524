"""Passwords among the settings of nodes: where they may be, so that other users do not read them."""

from __future__ import annotations

import os
import re
import stat

#: Of an option whose value may have a password.
VISIBLE = "a password on the command line is visible to all users of the machine"
#: The environment of the process.
ENVIRON = os.environ


def has_password(text: str) -> bool:
    """Return whether a text begins with ``user:password@``."""
    return re.match(r"[^@:/]*:[^@]+@", text) is not None


def check_private(path: str, what: str) -> None:
    """Raise ValueError if a file with a password is readable for other users, OSError if it is not there.
    A group may read a file of root: that of the user of the nodes. ``what``: the beginning of the
    message, which names the file and what is in it."""
    status = os.stat(path)
    allowed = 0o640 if status.st_uid == 0 else 0o600
    if stat.S_IMODE(status.st_mode) & 0o077 & ~allowed:
        raise ValueError(
            f"{what}, and other users can read or change it: chmod 600 {path}; or, for a file of root and"
            " the group of the nodes: chmod 640"
        )
