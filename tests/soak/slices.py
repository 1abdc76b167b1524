"""A plugin of pytest: ``-p tests.soak.slices --slice N/COUNT`` runs one of COUNT parts of the tests.

A part is a piece of the collected order, so that tests of a class share their clusters.
"""

from __future__ import annotations

from collections.abc import Generator

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slice", type=_parsed, metavar="N/COUNT", help="part N of COUNT, N from 0")


def _parsed(text: str) -> tuple[int, int]:
    number, count = map(int, text.split("/"))
    if not 0 <= number < count:
        raise ValueError(text)
    return number, count


# A wrapper runs before the plugin that shuffles.
@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None]:
    chosen: tuple[int, int] | None = config.getoption("slice")
    if chosen is not None:
        number, count = chosen
        items[:] = items[len(items) * number // count : len(items) * (number + 1) // count]
    yield
