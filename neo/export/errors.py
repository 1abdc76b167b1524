"""Why an export cannot be made."""

from __future__ import annotations


class ExportError(Exception):
    """The message says why, and what to do."""


class PackedError(ExportError):
    """A pack removed what the export had still to read: what was begun is of no use any more."""
