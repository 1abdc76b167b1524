"""Why a fetch from another node ended."""

from __future__ import annotations


class FetchFailed(Exception):
    """What the source sends cannot be used, or kept; the message says why. The fetch may be tried again
    later, or from another source."""


class NoSource(FetchFailed):
    """No other node has a readable cell, so none can be asked."""
