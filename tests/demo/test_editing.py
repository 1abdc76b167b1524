"""Reviewers at the same time, undo, and the past."""

from __future__ import annotations

import io
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import transaction

from examples.demo import editing, scenes
from examples.demo.model import Note
from examples.demo.show import Show

TOPICS = ["alpha", "beta", "gamma"]
# More notes than one bucket of the BTree holds: it splits while several write to it.
MANY = [f"topic {number}" for number in range(40)]


def count(db: Any) -> tuple[int, int]:
    with db.transaction() as connection:
        return editing.count_notes(connection)


def by_threads(db: Any, reviewers: Sequence[str], topics: list[str]) -> list[editing.Reviewed]:
    with ThreadPoolExecutor(len(reviewers)) as pool:
        return list(pool.map(lambda name: editing.review(db, name, topics), reviewers))


def test_no_note_is_lost_when_reviewers_write_at_the_same_time(db: Any) -> None:
    editing.open_desk(db)
    work = by_threads(db, ("Ada", "Grace", "Hedy"), MANY)
    assert [each.notes for each in work] == [len(MANY)] * 3
    assert count(db) == (3 * len(MANY), 3 * len(MANY))


def test_one_reviewer_alone_has_nothing_to_merge(db: Any) -> None:
    editing.open_desk(db)
    assert editing.review(db, "Ada", TOPICS) == ("Ada", len(TOPICS), 0, 0)


def test_a_concurrent_change_is_merged_not_repeated(
    db: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    editing.open_desk(db)
    intruder = iter([True])

    def note_during_which_somebody_else_commits(*what: str) -> Note:
        if next(intruder, False):
            editing.review(db, "Grace", ["alpha"])
        return Note(*what)

    # Grace's note must be there first: two inserts into an empty BTree cannot be merged.
    editing.review(db, "Barbara", ["alpha"])
    monkeypatch.setattr(editing, "Note", note_during_which_somebody_else_commits)
    assert editing.review(db, "Ada", ["beta"]) == ("Ada", 1, 1, 0)
    assert count(db) == (3, 3)


def test_a_transaction_that_never_succeeds_raises_its_conflict(
    db: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    editing.open_desk(db)
    attempts = []

    def conflict(*_: object) -> Note:
        attempts.append(1)
        raise transaction.interfaces.TransientError("somebody was faster")

    monkeypatch.setattr(editing, "Note", conflict)
    with pytest.raises(transaction.interfaces.TransientError, match="faster"):
        editing.review(db, "Ada", TOPICS)
    assert len(attempts) == editing.ATTEMPTS_MAX
    assert count(db) == (0, 0)


def test_a_second_visit_finds_the_notes_of_the_first(db: Any) -> None:
    assert editing.open_desk(db) == 0
    editing.review(db, "Ada", TOPICS)
    assert editing.open_desk(db) == len(TOPICS)


def test_undo_takes_back_the_described_transaction_alone(db: Any) -> None:
    editing.open_desk(db)
    with db.transaction("right") as connection:
        connection.root()["right"] = 1
    with db.transaction("wrong") as connection:
        connection.root()["desk"].headline.text = "oops"
    editing.review(db, "Ada", TOPICS)
    assert scenes.headline(db) == "oops"
    assert editing.take_back(db, "wrong")["description"] == "wrong"
    assert scenes.headline(db) == "Reviews are open."
    with db.transaction() as connection:
        assert connection.root()["right"] == 1


def test_undo_of_an_unknown_transaction_says_which(db: Any) -> None:
    with pytest.raises(LookupError, match="no such note"):
        editing.take_back(db, "no such note")


def test_the_scenes_show_what_the_database_says(db: Any) -> None:
    out = io.StringIO()
    show = Show(out)
    before = scenes.edit_together(
        show, db, ("Ada", "Grace"), TOPICS, lambda names, topics: by_threads(db, names, topics)
    )
    scenes.undo_a_mistake(show, db)
    scenes.look_back(show, db, before)
    text = out.getvalue()
    assert "The counter says 6 and there are 6 notes: none was lost." in text
    assert "after the mistake:   Everything is perfect" in text
    assert "after its undo:      Reviews are open." in text
    assert ": 0 notes" in text
    assert "now: 6 notes" in text


def test_a_lost_change_is_not_shown_as_success(db: Any) -> None:
    def lazy(names: Sequence[str], topics: list[str]) -> list[editing.Reviewed]:
        editing.review(db, "Ada", topics[:-1])
        return [editing.Reviewed("Ada", len(topics), 0, 0)]

    with pytest.raises(scenes.PromiseBroken, match="says 2 and there are 2 notes, but 3"):
        scenes.edit_together(Show(io.StringIO()), db, ("Ada",), TOPICS, lazy)


def test_a_past_that_shows_the_present_is_not_shown_as_success(db: Any) -> None:
    editing.open_desk(db)
    editing.review(db, "Ada", TOPICS)
    with pytest.raises(scenes.PromiseBroken, match="past"):
        scenes.look_back(Show(io.StringIO()), db, db.lastTransaction())
