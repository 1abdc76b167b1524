"""Commands of the web page: what they are, and what executes them."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Refused(Exception):
    """A command cannot be executed. ``hint``: what to do."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class Wanted(NamedTuple):
    """A command: ``abort`` and the id of an operation, ``end`` and the ttid of a transaction, or
    ``tweak`` and nothing."""

    action: str
    subject: str


class Shown(NamedTuple):
    """What a command will do. ``command``: the same for a shell. ``will``: a sentence. ``text``: what
    neoctl says about it. ``seal``: names what was shown; it is another one when the command would do
    something else."""

    command: str
    will: str
    text: str
    seal: str


class Commander(Protocol):
    """Called by threads of requests."""

    def preview(self, wanted: Wanted) -> Shown:
        """Return what a command will do. Raise Refused."""

    def execute(self, wanted: Wanted, seal: str) -> str:
        """Execute a command, if it does what was shown, and return its result. Raise Refused."""
