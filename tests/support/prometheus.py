"""A Prometheus server for tests, in a temporary folder, on a free port; never the system's."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import urlopen

from tests.support.patience import PATIENCE_SECONDS
from tests.support.ports import free_range


class Refused(Exception):
    """The server does not understand an expression."""


class Prometheus:
    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/api/v1"

    def get(self, path: str, **parameters: str) -> Any:
        """Return the data of an answer. Raise Refused, or OSError while the server begins."""
        try:
            url = f"{self._url}/{path}?{urlencode(parameters)}"
            with urlopen(url, timeout=PATIENCE_SECONDS) as answer:
                return json.load(answer)["data"]
        except HTTPError as e:
            with e:
                text = e.read().decode()
            if e.code >= 500:
                raise URLError(text) from None
            raise Refused(text) from None

    def value(self, expression: str) -> list[float]:
        """Return the present values of an expression, without those that are no number."""
        found = self.get("query", query=expression)["result"]
        values = [float(sample["value"][1]) for sample in found]
        return [value for value in values if value == value]

    def up(self) -> dict[str, bool]:
        """Return whether each target answers, by its address."""
        targets = self.get("targets", state="active")["activeTargets"]
        return {target["labels"]["instance"]: target["health"] == "up" for target in targets}


@contextmanager
def running_prometheus(config: Path, folder: Path) -> Iterator[Prometheus]:
    """Run a server with this file of settings. Its data and log are in ``folder``."""
    port = free_range(1)
    command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}"]
    command.append(f"--web.listen-address=127.0.0.1:{port}")
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
    try:
        yield Prometheus(port)
    finally:
        process.terminate()
        process.wait(PATIENCE_SECONDS)
