"""Errors of an export."""

from __future__ import annotations


class ExportError(Exception):
    """The export cannot be made; the message says why and what to do."""


class PackedError(ExportError):
    """A pack removed revisions that the export had not read yet, so it cannot continue."""
