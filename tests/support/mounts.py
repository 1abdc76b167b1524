"""Commands with mounts of their own."""

from __future__ import annotations

import os

#: Begins a command. Another user than root becomes root in a user namespace that has only its own mounts.
OWN_MOUNTS = ["unshare", "--mount"] if os.getuid() == 0 else ["unshare", "--mount", "-Ur"]
