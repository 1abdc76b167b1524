"""Why a fetch from another node ended."""

from __future__ import annotations


class FetchFailed(Exception):
    """A fetch ends, because the rows of the source cannot be used or stored; the message gives the
    reason. The fetch may be repeated later, or from another source."""


class NoSource(FetchFailed):
    """No other node has a readable cell, so none can be asked."""
