"""Forms of HTML pages: found, filled in and sent as a browser does."""

from __future__ import annotations

from collections.abc import Mapping
from html.parser import HTMLParser
from typing import NamedTuple

BOUNDARY = "a-boundary-that-no-content-has"
CONTENT_TYPE = f"multipart/form-data; boundary={BOUNDARY}"
#: Inputs of these kinds are sent only if somebody presses or ticks them.
_PRESSED = frozenset({"submit", "button", "image", "reset", "file"})
_TICKED = frozenset({"checkbox", "radio"})


class Upload(NamedTuple):
    """A file that a form sends."""

    filename: str
    content_type: str
    content: bytes


Value = str | Upload


class _Reader(HTMLParser):
    """Collects the fields of all forms of a page that are sent as they are, and the names of all."""

    def __init__(self) -> None:
        super().__init__()
        self.fields: dict[str, Value] = {}
        self.names: set[str] = set()
        self._select = self._area = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        name = given.get("name", "")
        if tag in ("input", "textarea", "select", "button") and name:
            self.names.add(name)
        if tag == "input" and name:
            kind = given.get("type", "text").lower()
            if kind not in _PRESSED and (kind not in _TICKED or "checked" in given):
                self.fields[name] = given.get("value", "")
        elif tag == "textarea":
            self._area = name
            self.fields[name] = ""
        elif tag == "select":
            self._select = name
        elif tag == "option" and self._select and "selected" in given:
            self.fields[self._select] = given.get("value", "")

    def handle_endtag(self, tag: str) -> None:
        if tag == "select":
            self._select = ""
        elif tag == "textarea":
            self._area = ""

    def handle_data(self, data: str) -> None:
        if self._area:
            self.fields[self._area] = f"{self.fields[self._area]}{data}"


def fill(page: bytes, values: Mapping[str, Value]) -> dict[str, Value]:
    """Return what a browser sends for the forms of a page. ``values``: by name of the field, or the end
    of its name. Raise AssertionError if the page has no such field."""
    reader = _Reader()
    reader.feed(page.decode("utf-8", errors="replace"))
    fields = dict(reader.fields)
    for wanted, value in values.items():
        found = [name for name in reader.names if name == wanted or name.endswith(f".{wanted}")]
        assert len(found) == 1, f"{wanted}: {found or sorted(reader.names)}"
        fields[found[0]] = value
    return fields


def encode(fields: Mapping[str, Value]) -> bytes:
    """Return the body of a request with CONTENT_TYPE."""
    parts = []
    for name, value in fields.items():
        head = f'Content-Disposition: form-data; name="{name}"'
        if isinstance(value, Upload):
            head += f'; filename="{value.filename}"\r\nContent-Type: {value.content_type}'
            data = value.content
        else:
            data = value.encode()
        parts.append(f"--{BOUNDARY}\r\n{head}\r\n\r\n".encode() + data + b"\r\n")
    return b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()
