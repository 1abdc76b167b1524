"""Contents, and what a folder has of them."""

from __future__ import annotations

from pathlib import Path

from neo.protocol.blobs import Content, content_hash


def content_of(data: bytes) -> Content:
    made = content_hash()
    made.update(data)
    return Content(len(data), made.digest())


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("[0-9a-f][0-9a-f]/*"))


def parts(folder: Path) -> list[str]:
    return [path.name for path in folder.glob("parts/*")]
