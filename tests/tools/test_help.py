"""What `--help` says of the commands for daily work: an example that is right, and all defaults."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Callable

import pytest

from neo.client.xa import command as resolve
from neo.export import command as export
from neo.migrate import command as migrate
from neoctl import options, verbs
from neoctl.__main__ import main

PARSERS = {
    "neoctl": options.make_parser,
    "neoexport": export.make_parser,
    "neomigrate": migrate.make_parser,
    "neoresolve": resolve.make_parser,
}


@pytest.mark.parametrize("name", PARSERS)
def test_help_has_an_example_that_is_right_and_each_default(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    make: Callable[[], argparse.ArgumentParser] = PARSERS[name]
    with pytest.raises(SystemExit) as ended:
        make().parse_args(["--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    (example,) = re.findall(r"^example:\n  (.*)$", text, re.MULTILINE)
    program, *words = shlex.split(example)
    assert program == name
    given = make().parse_args(words)
    if name == "neoctl":
        verbs.find(given.command)
        assert main(["help", *given.command]) == 0
    for action in make()._actions:
        assert action.help or not action.option_strings, f"{action.option_strings} has no help"
        if action.default not in (None, False, argparse.SUPPRESS) and action.default != []:
            said = " ".join(text.partition(action.option_strings[0] + " ")[2].split())
            assert re.match(rf".*?\(default: [^)]*{action.default:g}\)", said), action
