"""A process of Zope, and requests to it."""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from neo.protocol.enums import CellState
from neo.protocol.packets import AskPartitionList
from neo.simple import Cluster
from tests.plone.forms import CONTENT_TYPE, Upload, Value, encode, fill
from tests.support.patience import PATIENCE_SECONDS, wait_until
from tests.support.ports import free_range

ROOT = Path(__file__).parents[2]
#: Of the clusters.
PARTITIONS = 4
USER, PASSWORD = "admin", "secret"

_ZOPE_CONF = """\
%import neo.client
instancehome {folder}
debug-mode off
<zodb_db main>
  mount-point /
  <NEOStorage>
    master_nodes {masters}
    name {name}
    blob-dir {blobs}
  </NEOStorage>
</zodb_db>
"""

_ZOPE_INI = """\
[app:zope]
use = egg:Zope#main
zope_conf = {folder}/zope.conf

[pipeline:main]
pipeline = egg:Zope#httpexceptions zope

[server:main]
use = egg:waitress#main
host = 127.0.0.1
port = {port}
threads = 3
"""


def whole(cluster: Cluster) -> bool:
    """Return whether every cell of a cluster with one replica is up to date."""
    with cluster.admin() as admin:
        rows = admin.ask(AskPartitionList(0, PARTITIONS, None)).row_list
    return all([state for _, state in row] == 2 * [CellState.UP_TO_DATE] for row in rows)


class Answer(NamedTuple):
    """An answer over HTTP."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes


class Refused(Exception):
    """The site answered with another status than 200 or a redirection; the message has its text."""


class Zope:
    """One process of Zope on a cluster, as a context manager. ``blobs``: its cache of contents."""

    def __init__(self, folder: Path, masters: str, name: str, blobs: Path) -> None:
        self.blobs = blobs
        self._folder = folder
        self._port = free_range(1)
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir()
        values = {"folder": folder, "masters": masters, "name": name, "blobs": blobs}
        (folder / "zope.conf").write_text(_ZOPE_CONF.format(**values))
        (folder / "zope.ini").write_text(_ZOPE_INI.format(folder=folder, port=self._port))
        (folder / "inituser").write_text(f"{USER}:{PASSWORD}")

    def __enter__(self) -> Zope:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()

    # -- the process -----------------------------------------------------------------------------

    def start(self) -> None:
        """Start Zope without waiting for it."""
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "Zope2.Startup.serve", str(self._folder / "zope.ini")]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, env=environment, cwd=self._folder
            )

    def kill(self) -> None:
        """Kill Zope, as ``kill -9`` does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(PATIENCE_SECONDS)
            self._process = None

    def wait(self) -> None:
        """Wait until it answers. Raise AssertionError with its log if it ends."""

        def answers() -> bool:
            assert self._process is not None and self._process.poll() is None, self._log()
            self.request("GET", "/")
            return True

        wait_until(answers, self._log, excuses=(OSError,))

    def _log(self) -> str:
        return (self._folder / "log").read_text(errors="replace")[-5_000:]

    # -- requests --------------------------------------------------------------------------------

    def request(
        self, method: str, path: str, body: bytes | None = None, content_type: str | None = None
    ) -> Answer:
        """Send a request as the manager. Raise OSError, and Refused for an error of the site."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE_SECONDS)
        try:
            credentials = b64encode(f"{USER}:{PASSWORD}".encode()).decode()
            headers = {"Authorization": f"Basic {credentials}"}
            if content_type is not None:
                headers["Content-Type"] = content_type
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            answer = Answer(response.status, response.headers, response.read())
        except http.client.HTTPException as e:
            raise ConnectionError(f"{method} {path}: {e}") from e
        finally:
            connection.close()
        if answer.status >= 400:
            text = answer.body[:500].decode(errors="replace")
            raise Refused(f"{method} {path}: {answer.status} {text}\n{self._log()}")
        return answer

    def post(self, path: str, fields: Mapping[str, Value]) -> Answer:
        """Send a form."""
        return self.request("POST", path, encode(fields), CONTENT_TYPE)

    def submit(self, path: str, **values: Value) -> Answer:
        """Look at the forms of a page, fill them in and send them to the same page. A dot in a name is
        written as two underscores."""
        named = {name.replace("__", "."): value for name, value in values.items()}
        return self.post(path, fill(self.download(path), named))

    def upload(self, path: str, content: bytes) -> Answer:
        """Send a form with a file."""
        return self.post(path, {"file": Upload("photo.jpg", "image/jpeg", content)})

    def download(self, path: str) -> bytes:
        return self.request("GET", path).body
