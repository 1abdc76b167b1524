"""Zope on a cluster: uploads over HTTP, read back, undone, packed, after kill -9 of a storage node.

Two processes of Zope share a cache of contents, as on a machine with several instances of Plone.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from typing import NamedTuple

import pytest
from App.Undo import encode64
from ZODB import DB

from tests.plone.album import Album
from tests.plone.site import PARTITIONS, Zope, whole
from tests.support.cluster import AWAY, Cluster
from tests.support.patience import PATIENCE_SECONDS, wait_until

CONTENT = random.Random(24).randbytes(3_000_000)
DATABASE = "/Control_Panel/Database/main"
_numbers = count(1)


class Site(NamedTuple):
    """A cluster with two copies of each object, and two processes of Zope."""

    cluster: Cluster
    one: Zope
    two: Zope

    def album(self) -> str:
        """Add an album. Return its path."""
        name = f"album{next(_numbers)}"
        with closing(DB(self.cluster.storage())) as db, db.transaction() as connection:
            connection.root()["Application"]._setObject(name, Album(name))
        return f"/{name}"

    def files(self) -> set[str]:
        """Return the names of the contents of all storage nodes."""
        found = self.cluster.simple.folder.glob("storage*.blobs/??/*")
        return {path.name for path in found}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("zope")
    with Cluster(storages=2, replicas=1, partitions=PARTITIONS, folder=folder / "cluster") as cluster:
        where = cluster.simple.masters, cluster.simple.name, folder / "cache"
        with Zope(folder / "one", *where) as one:
            one.wait()  # it makes the application
            with Zope(folder / "two", *where) as two:
                two.wait()
                yield Site(cluster, one, two)


def test_upload_is_read_by_every_process(site: Site) -> None:
    album = site.album()
    for content in (CONTENT, b"", b"small"):
        site.one.upload(f"{album}/upload", content)
        for zope in (site.one, site.two):
            answer = zope.request("GET", f"{album}/download")
            assert answer.body == content
            # The number is in another record than the content.
            assert answer.headers["X-Length"] == str(len(content))


def test_undo_in_the_management_pages_brings_the_content_back(site: Site) -> None:
    album = site.album()
    site.one.upload(f"{album}/upload", CONTENT)
    site.one.upload(f"{album}/upload", b"a mistake")
    with closing(site.cluster.storage()) as storage:
        last = storage.undoInfo(0, 1)[0]
    assert last["description"] == f"{album}/upload".encode()
    undone = {"transaction_info:list": encode64(last["id"]).strip()}
    site.two.post(f"{DATABASE}/manage_undo_transactions", undone)
    assert site.one.download(f"{album}/download") == CONTENT


def test_pack_in_the_control_panel_removes_old_contents_only(site: Site) -> None:
    album = site.album()
    site.one.upload(f"{album}/upload", b"old" + CONTENT)
    before = site.files()
    site.one.upload(f"{album}/upload", b"new" + CONTENT)
    added = site.files() - before
    assert added
    site.two.post(f"{DATABASE}/manage_pack", {"days:float": "0"})
    wait_until(lambda: len(site.files() & before) < len(before), "nothing is removed")
    assert added <= site.files()
    assert site.one.download(f"{album}/download") == b"new" + CONTENT


def test_of_two_uploads_at_the_same_time_one_wins_as_a_whole(site: Site) -> None:
    album = site.album()
    contents = [CONTENT[:1_000_000], CONTENT[1_000_000:]]
    uploads = [
        threading.Thread(target=zope.upload, args=(f"{album}/upload", content))
        for zope, content in zip((site.one, site.two), contents, strict=True)
    ]
    for thread in uploads:
        thread.start()
    for thread in uploads:
        thread.join(PATIENCE_SECONDS)
    answer = site.one.request("GET", f"{album}/download")
    assert answer.body in contents
    assert answer.headers["X-Length"] == str(len(answer.body))


def test_killed_storage_nodes_lose_nothing(site: Site) -> None:
    """Each node is killed in turn. What was uploaded meanwhile is on the other one when it is back."""
    cluster = site.cluster.simple
    albums = {site.album(): b"%d" % number + CONTENT for number in range(2)}
    for number, (album, content) in enumerate(albums.items(), 1):
        cluster.kill(f"storage{number}")
        site.one.upload(f"{album}/upload", content)
        assert site.two.download(f"{album}/download") == content
        cluster.restart(f"storage{number}")
        wait_until(lambda: whole(site.cluster.simple), "the node does not come back", excuses=AWAY)
    cluster.kill("storage1")
    try:
        # A process without any cache reads from the node that is left.
        where = cluster.masters, cluster.name
        with Zope(cluster.folder.parent / "three", *where, cluster.folder.parent / "empty") as three:
            three.wait()
            for album, content in albums.items():
                assert three.download(f"{album}/download") == content
    finally:
        cluster.restart("storage1")
        wait_until(lambda: whole(site.cluster.simple), "the node does not come back", excuses=AWAY)
