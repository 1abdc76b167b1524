"""docs/images/layers.svg against the table that the code is held to."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.layers import MAY_IMPORT

SVG = "{http://www.w3.org/2000/svg}"
PICTURE = ET.parse(Path(__file__).parents[3] / "docs" / "images" / "layers.svg")
#: Names in the picture, and how far down each is written.
DEPTH = {text.text: float(text.attrib["y"]) for text in PICTURE.iter(f"{SVG}text")}
#: Without the whole, and without commands, which may compose what stands above their package.
PACKAGES = {name for name in MAY_IMPORT if not name.endswith(".__main__")} - {"neo"}


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_every_package_is_drawn_above_what_it_may_import(package: str) -> None:
    assert package in DEPTH
    assert [below for below in MAY_IMPORT[package] if DEPTH[below] <= DEPTH[package]] == []


def test_nothing_is_drawn_that_does_not_exist() -> None:
    tops = ("neo", "pyspark", "examples")
    names = {name for name in DEPTH if name and name.startswith(tops) and " " not in name}
    assert names == PACKAGES
