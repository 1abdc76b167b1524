"""From what was typed to an open storage: a path, a URI, or a section of a ZConfig file."""

from __future__ import annotations

import io
import re
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import ZConfig
from ZODB.FileStorage import FileStorage

from neo.migrate.copying import MigrateError

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:")
# Storages by themselves, or inside the database section of an application.
_SCHEMA = """
<schema>
  <import package="ZODB"/>
  <multisection type="ZODB.storage" name="*" attribute="storages"/>
  <multisection type="ZODB.database" name="*" attribute="databases"/>
</schema>
"""


def open_source(text: str, config: Path | None) -> Any:
    """The storage to read. Raises MigrateError."""
    opener = _from_config(text, config) or _from_uri(text)
    if opener is not None:
        return _open(text, opener)
    if not Path(text).is_file():
        raise MigrateError(_unknown(text, config, "there is no such file"))
    return _open(text, lambda: FileStorage(text, read_only=True))


def open_destination(text: str, config: Path | None, dry_run: bool) -> Any | None:
    """The storage to write, made if it is a new file. Raises MigrateError.

    ``dry_run``: nothing is made; None when there is nothing yet.
    """
    opener = _from_config(text, config) or _from_uri(text)
    if opener is not None:
        return _open(text, opener)
    path = Path(text)
    if not path.exists():
        if path.suffix != ".fs":
            raise MigrateError(_unknown(text, config, "a new file must be called *.fs"))
        if not path.absolute().parent.is_dir():
            raise MigrateError(f"{text!r} cannot be made: its folder does not exist")
        if dry_run:
            return None
    return _open(text, lambda: FileStorage(text, read_only=dry_run))


def _unknown(text: str, config: Path | None, reason: str) -> str:
    section = f", or a section of {config}" if config else ""
    return (
        f"{text!r} is no storage: {reason}; write the path of a FileStorage, "
        f"a URI such as neo://name@host:port{section}"
    )


def _open(text: str, opener: Any) -> Any:
    try:
        return opener()
    except Exception as e:
        raise MigrateError(f"storage {text!r} cannot be opened: {e}") from e


def _from_uri(text: str) -> Any | None:
    """A factory, None when the text is not a URI."""
    scheme = _SCHEME.match(text)
    if scheme is None or Path(text).exists():
        return None
    name = scheme[0].rstrip(":")
    found = list(entry_points(group="zodburi.resolvers", name=name))
    if not found:
        raise MigrateError(
            f"no installed package opens {name}: addresses such as {text!r}; "
            "zodburi opens file: and zeo:, zodb-neo opens neo: and neos:"
        )
    try:
        factory, _ = found[0].load()(text)
    except (ValueError, KeyError, TypeError) as e:
        raise MigrateError(f"address {text!r} is wrong: {e}") from e
    return factory


def _from_config(text: str, config: Path | None) -> Any | None:
    """The ``open`` of a section of the file, None when it has no such section."""
    if config is None:
        return None
    schema = ZConfig.loadSchemaFile(io.StringIO(_SCHEMA))
    try:
        parsed, _ = ZConfig.loadConfig(schema, str(config.absolute()))
    except ZConfig.ConfigurationError as e:
        raise MigrateError(f"configuration file {str(config)!r}: {e}") from None
    for section in parsed.storages:
        if section.name == text.lower():
            return section.open
    for section in parsed.databases:
        if section.name == text.lower():
            return section.config.storage.open
    return None
