"""Errors of a copy."""

from __future__ import annotations


class MigrateError(Exception):
    """The copy cannot be made; the message says why and what to do."""
