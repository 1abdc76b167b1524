"""What is printed where there is no terminal."""

from __future__ import annotations

import io

import pytest

from examples.demo.show import Show, readable


def test_plain_text_has_no_escape_sequence_and_no_trailing_space() -> None:
    out = io.StringIO()
    show = Show(out)
    show.scene("Title")
    show.say("sentence", "red")
    show.table("Table", ("name", "number"), [("one", 1), ("two", 2000)])
    show.quote("command", "\x1b[31mred\x1b[0m\nsecond")
    text = out.getvalue()
    assert "\x1b" not in text
    assert text.splitlines() == [
        "",
        "1. Title",
        "   sentence",
        "",
        "   Table",
        "   name   number",
        "   one         1",
        "   two     2,000",
        "",
        "   $ command",
        "   red",
        "   second",
    ]


def test_an_empty_table_says_so() -> None:
    out = io.StringIO()
    Show(out).table("Table", ("name",), [])
    assert out.getvalue().split() == ["Table", "none"]


def test_brackets_are_text_not_markup() -> None:
    out = io.StringIO()
    Show(out).say("[red]list[int][/red]")
    assert "[red]list[int][/red]" in out.getvalue()


def test_a_long_cell_is_cut_and_a_lone_one_is_not() -> None:
    out = io.StringIO()
    Show(out).table("Table", ("a", "b"), [("x" * 99, 1)])
    Show(out).table("Table", ("a",), [("y" * 200,)])
    assert "x" * 51 + "…" in out.getvalue()
    assert out.getvalue().count("y") == 200


def test_plain_progress_is_ten_lines_and_the_end() -> None:
    out = io.StringIO()
    with Show(out).progress(1005, "things") as advance:
        for done in range(1, 1006):
            advance(done, "")
    lines = out.getvalue().splitlines()
    assert lines[0] == "   100 of 1,005 things"
    assert lines[-1] == "   1,005 of 1,005 things"
    assert len(lines) == 11


def test_a_terminal_gets_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    out = io.StringIO()
    show = Show(out)
    show.scene("Title")
    with show.progress(2, "things") as advance:
        advance(2, "the last")
    assert "\x1b[" in out.getvalue()


@pytest.mark.parametrize(("seconds", "text"), [(0.0123, "12.3 ms"), (1.0, "1.0 s"), (75, "75.0 s")])
def test_durations_are_readable(seconds: float, text: str) -> None:
    assert readable(seconds) == text
