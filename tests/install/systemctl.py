#!/usr/bin/python3
"""Stand in for ``systemctl`` on a machine without systemd: ``daemon-reload``, ``enable --now UNIT...``.

It executes what ``ExecStart`` of a unit says, as the unit's user and in its folder, and returns when the
process has said that it is ready. It uses Python's library alone, because it runs on a clean machine.
"""

from __future__ import annotations

import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path

UNITS = Path("/usr/lib/systemd/system")
RUN = Path("/run/units")
#: A start on a machine that does much else.
READY_SECONDS = 300


def start(unit: str) -> None:
    """Start a unit. Raise SystemExit if its process ends, or is not ready in time."""
    template, _, number = unit.partition("@")
    text = (UNITS / f"{template}@.service").read_text()
    said = dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))
    words = shlex.split(said["ExecStart"].replace("%i", number))
    address = RUN / f"{unit}.notify"
    address.unlink(missing_ok=True)
    user = ["setpriv", f"--reuid={said['User']}", f"--regid={said['Group']}", "--init-groups"]
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready,
        open(f"/var/log/{unit}.log", "ab") as log,
    ):
        ready.bind(str(address))
        address.chmod(0o666)
        ready.settimeout(1)
        process = subprocess.Popen(
            [*user, "--no-new-privs", *words],
            cwd=said["WorkingDirectory"],
            umask=int(said["UMask"], 8),
            env={"PATH": "/usr/bin:/bin", "NOTIFY_SOCKET": str(address), "LANG": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        (RUN / f"{unit}.pid").write_text(str(process.pid))
        for _ in range(READY_SECONDS):
            try:
                if ready.recv(100) == b"READY=1":
                    return
            except TimeoutError:
                if process.poll() is not None:
                    break
    raise SystemExit(f"{unit} is not ready (exit code {process.poll()}): see /var/log/{unit}.log")


def main(words: list[str]) -> None:
    """Do what the words say. Raise SystemExit for others."""
    RUN.mkdir(exist_ok=True)
    if words == ["daemon-reload"]:
        return
    if words[:2] != ["enable", "--now"]:
        raise SystemExit(f"no systemd runs here: {words}")
    for unit in words[2:]:
        start(unit)


if __name__ == "__main__":
    main(sys.argv[1:])
