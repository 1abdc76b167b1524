"""A Plone site on a cluster, from its creation to its move into files and back.

``python -m tests.plone.story [FOLDER]`` in an environment with Plone; ``make plone`` makes one. Each
chapter prints a line. Whatever is stored is read back byte by byte in each chapter.
"""

from __future__ import annotations

import random
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from contextlib import closing
from pathlib import Path

from App.Undo import encode64

from neo.client import Storage
from neo.simple import Cluster
from tests.plone.forms import Upload
from tests.plone.site import PARTITIONS, Zope, whole
from tests.support.cluster import AWAY, simple_cluster
from tests.support.patience import wait_until

DATABASE = "/Control_Panel/Database/main"
SITE = "/Plone"
SAVE = {"form__buttons__save": "Save"}


def picture(seed: str, width: int = 900, height: int = 600) -> bytes:
    """Return a picture in the format PNG, which cannot be compressed well."""
    noise = random.Random(seed)
    rows = b"".join(b"\0" + noise.randbytes(3 * width) for _ in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 1)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )


def width_of(image: bytes) -> int:
    """Return the width of a picture in the format PNG."""
    assert image[:4] == b"\x89PNG", image[:20]
    width: int = struct.unpack(">I", image[16:20])[0]
    return width


class Story:
    """``kept``: what each address of the site must answer."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kept: dict[str, bytes] = {}
        self._number = 0
        self._began = time.monotonic()

    def tell(self, text: str) -> None:
        print(f"{time.monotonic() - self._began:6.1f} s  {text}", flush=True)

    def zope(self, cluster: Cluster, cache: str = "cache") -> Zope:
        """Return a new process of Zope, which does not run yet."""
        self._number += 1
        name = f"zope{self._number}"
        return Zope(self.folder / name, cluster.masters, cluster.name, self.folder / cache)

    def check(self, zope: Zope) -> None:
        """Read everything back."""
        zope.wait()
        for path, content in self.kept.items():
            assert zope.download(path) == content, f"{path} differs"

    # -- chapters ----------------------------------------------------------------------------------

    def build(self, zope: Zope) -> None:
        """Create a site with a page, two images and a file."""
        zope.wait()
        self.tell("Zope with Plone runs")
        zope.submit("/@@plone-addsite", site_id=SITE[1:], title="A site on NEO")
        self.tell("the site is created")
        zope.submit(f"{SITE}/++add++Document", IDublinCore__title="A page", **SAVE)
        assert b"A page" in zope.download(f"{SITE}/a-page")
        for name in ("photo", "another"):
            image = Upload(f"{name}.png", "image/png", picture(name))
            self._add(zope, "Image", image)
            self.kept[f"{SITE}/{name}.png/@@images/image"] = image.content
        document = random.Random("file").randbytes(5_000_000)
        self._add(zope, "File", Upload("long.bin", "application/octet-stream", document))
        self.kept[f"{SITE}/long.bin/@@download/file"] = document
        self.check(zope)
        self.tell("a page, two images and a file are there")
        scaled = zope.download(f"{SITE}/photo.png/@@images/image/preview")
        assert 0 < width_of(scaled) <= 400
        self.tell(f"an image is scaled to {width_of(scaled)} pixels")

    def _add(self, zope: Zope, kind: str, upload: Upload) -> None:
        zope.submit(f"{SITE}/++add++{kind}", **{kind.lower(): upload}, **SAVE)

    def edit_and_undo(self, zope: Zope, storage: Storage) -> None:
        photo = f"{SITE}/photo.png"
        path, new = f"{photo}/@@images/image", picture("edited")
        old, self.kept[path] = self.kept[path], new
        zope.submit(
            f"{photo}/edit",
            image=Upload("photo.png", "image/png", new),
            image__action="replace",
            **SAVE,
        )
        self.check(zope)
        self.tell("an image is replaced")
        last = storage.undoInfo(0, 1)[0]
        assert b"photo.png" in last["description"], last
        undone = {"transaction_info:list": encode64(last["id"]).strip()}
        zope.post(f"{DATABASE}/manage_undo_transactions", undone)
        self.kept[path] = old
        self.check(zope)
        self.tell("this is undone")

    def pack(self, zope: Zope, cluster: Cluster) -> None:
        before = files(cluster)
        zope.post(f"{DATABASE}/manage_pack", {"days:float": "0"})
        wait_until(lambda: len(files(cluster)) < len(before), "nothing is removed", excuses=AWAY)
        self.check(zope)
        self.tell(f"packed: {len(before)} contents before, {len(files(cluster))} after")

    def kill(self, cluster: Cluster) -> None:
        """Kill a storage node, read with an empty cache, write, and kill the other one."""
        cluster.kill("storage1")
        with self.zope(cluster, "cache of the second") as zope:
            self.check(zope)
            late = Upload("late.png", "image/png", picture("late"))
            self._add(zope, "Image", late)
            self.kept[f"{SITE}/late.png/@@images/image"] = late.content
        cluster.restart("storage1")
        wait_until(lambda: whole(cluster), "the node does not come back", excuses=AWAY)
        cluster.kill("storage2")
        with self.zope(cluster, "cache of the third") as zope:
            self.check(zope)
        cluster.restart("storage2")
        wait_until(lambda: whole(cluster), "the node does not come back", excuses=AWAY)
        self.tell("each storage node was killed; all is read from the other one")

    def restart(self, cluster: Cluster) -> None:
        """Restart everything."""
        names = [*cluster.processes]
        for name in names:
            cluster.kill(name)
        for name in names:
            cluster.restart(name)
        cluster.wait_running()
        with self.zope(cluster, "cache of the fourth") as zope:
            self.check(zope)
        self.tell("everything was killed and started again; all is there")

    def migrate(self, *arguments: str) -> None:
        subprocess.run([sys.executable, "-m", "neo.migrate", *arguments, "--verify"], check=True)

    def leave_and_return(self, cluster: Cluster) -> None:
        """Copy the site into files, and these into another cluster (``docs/plone.md``)."""
        data, blobs = f"{self.folder}/Data.fs", f"{self.folder}/blobstorage"
        self.migrate(cluster.uri, data, "--blobs-to", blobs)
        self.tell("the site is in a FileStorage with a folder of blobs")
        with simple_cluster(self.folder / "second", storages=1, name="second") as second:
            self.migrate(data, second.uri, "--blobs", blobs)
            with self.zope(second, "cache of the fifth") as zope:
                self.check(zope)
        self.tell("from there it was copied into another cluster; all is there")


def files(cluster: Cluster) -> set[str]:
    """Return the names of the contents of all storage nodes."""
    return {path.name for path in cluster.folder.glob("storage*.blobs/??/*")}


def tell_story(folder: Path) -> None:
    story = Story(folder)
    place = folder / "cluster"
    with simple_cluster(place, storages=2, replicas=1, partitions=PARTITIONS) as cluster:
        with story.zope(cluster) as zope:
            story.build(zope)
            with closing(Storage(cluster.masters, cluster.name)) as storage:
                story.edit_and_undo(zope, storage)
            story.pack(zope, cluster)
        story.kill(cluster)
        story.restart(cluster)
        story.leave_and_return(cluster)
    story.tell("all is well")


if __name__ == "__main__":
    if sys.argv[1:]:
        tell_story(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory(prefix="neo-plone-") as temporary:
            tell_story(Path(temporary))
