"""The generated parts of docs/configuration.md: the options of every command and of the client."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterable
from importlib import resources

from neo.admin.__main__ import OPTIONS as ADMIN
from neo.client import uri
from neo.master.__main__ import OPTIONS as MASTER
from neo.node.config import COMMON, Option
from neo.storage.__main__ import OPTIONS as STORAGE
from tools.docs_protocol import table

_KINDS = {
    "natural": "number, 0 or more",
    "positive": "number, 1 or more",
    "master_nid": "node id",
    "seconds": "seconds",
    "names": "names",
    "parse_address": "address",
    "parse_addresses": "addresses",
    "boolean": "true or false",
}


def _text(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("*", "\\*")


# -- the roles -------------------------------------------------------------------------------------


def _default(option: Option) -> str:
    if option.required:
        return "**required**"
    if option.default is None or option.default is False:
        return "" if not option.flag else "false"
    return f"`{option.default}`"


def _names(option: Option) -> str:
    long = f"`--{option.name.replace('_', '-')}`"
    return f"`-{option.short}` {long}" if option.short else long


def _kind(option: Option) -> str:
    if option.flag:
        return "flag"
    return _KINDS.get(getattr(option.parse, "__name__", ""), "text")


def options(chosen: Iterable[Option]) -> str:
    rows = [
        [
            "(command line only)" if option.command_line_only else f"`{option.name}`",
            _names(option),
            _kind(option),
            _default(option),
            _text(option.help),
        ]
        for option in chosen
    ]
    return table(["in neo.conf", "on the command line", "value", "default", "meaning"], rows)


def _own(chosen: tuple[Option, ...]) -> str:
    return options(option for option in chosen if option not in COMMON)


# -- the client ------------------------------------------------------------------------------------


def _keys() -> dict[str, tuple[list[str], ElementTree.Element]]:
    """Return the spellings of each key and its element, by the name with underscores."""
    text = resources.files("neo.client").joinpath("component.xml").read_text("utf-8")
    section = ElementTree.fromstring(text).find("sectiontype")
    assert section is not None
    keys: dict[str, tuple[list[str], ElementTree.Element]] = {}
    for key in section.iter("key"):
        spelling = key.get("name", "")
        keys.setdefault(spelling.replace("-", "_"), ([], key))[0].append(spelling)
    return keys


def _meaning(key: ElementTree.Element) -> str:
    text = _text(key.findtext("description") or "")
    return text if key.get("default") is None else f"{text} Default: `{key.get('default')}`."


def zconfig() -> str:
    rows = [
        [
            " or ".join(f"`{spelling}`" for spelling in spellings),
            key.get("datatype", "text").rpartition(".")[2],
            _meaning(key),
        ]
        for spellings, key in _keys().values()
    ]
    return table(["key", "value", "meaning"], rows)


def uri_options() -> str:
    keys = _keys()
    rows = [[f"`{name}`", _meaning(keys[name][1])] for name in uri._OPTIONS]
    return table(["option", "meaning"], rows)


PARTS: dict[str, Callable[[], str]] = {
    "common": lambda: options(COMMON),
    "master": lambda: _own(MASTER),
    "storage": lambda: _own(STORAGE),
    "admin": lambda: _own(ADMIN),
    "zconfig": zconfig,
    "uri": uri_options,
}
