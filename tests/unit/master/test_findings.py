"""The words of a check report, which clients of the protocol read."""

from __future__ import annotations

from neo.master.maintenance.check import Finding


def test_findings_have_their_words() -> None:
    """Specification 11.16."""
    words = "running unknown alone equal behind corrupted undecided failed"
    assert {finding.value for finding in Finding} == set(words.split())
