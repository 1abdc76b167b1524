"""Sets of cells as texts (specification 27.72)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neo.topology.cell_texts import decode_cells, encode_cells

CELLS = st.lists(st.tuples(st.integers(0, 200), st.integers(1, 9)))


@pytest.mark.parametrize(
    ("cells", "text"),
    [
        ([], ""),
        ([(0, 4)], "4:0"),
        ([(8, 5), (0, 4), (7, 4), (1, 4), (2, 4), (3, 4)], "4:0-3,7;5:8"),
    ],
)
def test_partitions_in_a_row_are_one_range(cells: list[tuple[int, int]], text: str) -> None:
    assert encode_cells(cells) == text


@given(CELLS)
def test_the_cells_are_read_back(cells: list[tuple[int, int]]) -> None:
    read = decode_cells(encode_cells(cells))
    assert sorted(read) == sorted(set(cells)) and len(read) == len(set(cells))


@pytest.mark.parametrize("text", ["4", "4:", "4:a", "x:1", ";4:1,", "4:3-1", "4:0-99999999999"])
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        decode_cells(text)
