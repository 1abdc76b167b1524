"""A primary that is asked to end, and whose resignation no other master can confirm."""

from __future__ import annotations

from tests.unit.master.masters import Masters


def test_a_primary_waits_for_its_resignation_for_a_moment_only() -> None:
    """Specification 19.30."""
    masters = Masters(3)
    masters.start()
    primary = masters.until_serving()
    masters.run(1)
    for other in {0, 1, 2} - {primary}:
        masters.processes[other].pause()
    masters.processes[primary].terminate()
    assert masters.serving() == []
    masters.run(1.4)
    assert masters.processes[primary].alive
    masters.run(0.2)
    assert masters.processes[primary].exit_code == 0
