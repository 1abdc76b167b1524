"""The budget of a commit: each step, and each piece."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench import budget
from tests.bench.budget import COMMIT, STATEMENT, STEPS, Piece, Pieces, measure, report


@pytest.mark.parametrize(
    "shape, parts", [("embedded", {"client", "nodes"}), ("one-process", {"client", "server"})]
)
def test_a_commit_is_taken_to_pieces(tmp_path: Path, shape: str, parts: set[str]) -> None:
    result = measure(shape, tmp_path, operations=20, trace=False)
    assert list(result.steps) == [*STEPS, "together"]
    assert all(micros > 0 for micros in result.steps.values())
    assert result.costs["load"].keys() == result.costs["commit"].keys() == parts
    for costs in result.costs.values():
        assert all(cost.us > 0 for cost in costs.values())
    client, nodes = result.pieces["client"], result.pieces[(parts - {"client"}).pop()]
    assert client["encoding"].times >= 4, "begin, store, vote and finish"
    assert "sync" not in client and STATEMENT not in client
    assert {STATEMENT, COMMIT, "sync", "encoding", "messages as objects"} <= nodes.keys()
    assert 1 <= nodes["sync"].times < 3
    lines = list(report(shape, result))
    assert f"| tpc_finish | {result.steps['tpc_finish']:,.0f} |" in lines
    assert sum(line.startswith("| commit: ") for line in lines) == len(parts)


def test_a_piece_inside_another_is_counted_once() -> None:
    class Outer:
        def outer(self) -> None:
            for _ in range(2):
                self.inner()

        def inner(self) -> None:
            sum(range(20_000))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(budget, "METHODS", [("outer", Outer, ("outer",)), ("inner", Outer, ("inner",))])
        with Pieces().measured() as pieces:
            Outer().outer()
        found = pieces.now()
        Outer().outer()
    assert pieces.now() == found, "nothing is measured afterwards"
    assert (found["outer"].times, found["inner"].times) == (1, 2)
    # The work is done inside.
    assert found["outer"].cpu < found["inner"].cpu


def test_pieces_are_subtracted_one_by_one() -> None:
    assert Piece(3, 30.0, 300.0) - Piece(1, 10.0, 100.0) == Piece(2, 20.0, 200.0)
