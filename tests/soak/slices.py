"""A plugin of pytest: ``-p tests.soak.slices --slice N/COUNT`` runs one of COUNT parts of the tests.

A part has names that follow each other, so that tests of a class share their clusters.
"""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slice", type=_parsed, metavar="N/COUNT", help="part N of COUNT, N from 0")


def _parsed(text: str) -> tuple[int, int]:
    number, count = map(int, text.split("/"))
    if not 0 <= number < count:
        raise ValueError(text)
    return number, count


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    chosen: tuple[int, int] | None = config.getoption("slice")
    if chosen is None:
        return
    number, count = chosen
    # By name, because another plugin may have shuffled them.
    names = sorted(item.nodeid for item in items)
    mine = set(names[len(names) * number // count : len(names) * (number + 1) // count])
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in mine])
    items[:] = [item for item in items if item.nodeid in mine]
