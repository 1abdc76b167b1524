"""A simulated :class:`~neo.storage.blobs.disk.ContentDisk`: the folder of contents of one process."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from errno import EINVAL, EIO, ENOENT
from functools import partial
from pathlib import Path

from neo.archive.room import Disk
from neo.protocol.blobs import Content
from neo.storage.backend.api import BackendFailure
from neo.storage.blobs.disk import BUCKETS, ContentMismatch, Done
from tests.simulator.content_volume import (
    CALL_SECONDS,
    SYNC_SECONDS,
    ContentVolume,
    File,
    checksum_of,
    is_upload,
)
from tests.simulator.disk_host import DiskHost
from tests.simulator.world import Event

#: The folder of contents, as the process sees it.
CONTENTS = Path("/contents")
#: Bytes that are free on a disk that is not full.
FREE_BYTES = 1 << 40

#: A step of a call, after which the next one begins. It returns nothing while more steps follow.
Step = Callable[[], None]


class _Call:
    """A call: it takes effect step by step, a while after each other, when the earlier calls for the
    same part and content have ended."""

    def __init__(self, keys: tuple[str, ...], steps: list[tuple[float, Step]], done: Done) -> None:
        self.keys = keys
        self.steps = deque(steps)
        self.done = done
        self.event: Event | None = None


class SimContentDisk:
    """The folder of a machine, as one process sees it."""

    def __init__(self, volume: ContentVolume, host: DiskHost) -> None:
        self._volume = volume
        self._host = host
        self._queues: dict[str, deque[_Call]] = {}
        self._closed = False
        self._stores = 0

    # -- life --------------------------------------------------------------------------------------

    def condemn(self) -> None:
        self._check_usable()
        self._volume.condemned = True

    def open(self, identity: str | None, needed: bool = True) -> str:
        self._check_usable()
        volume = self._volume
        if volume.condemned:
            volume.condemned = False
            if identity is None:
                self._erase()
        self._check_identity(identity, needed)
        volume.owner = self
        self._closed = False
        if volume.identity is None:
            volume.identity = volume.random.randbytes(16).hex()
        volume.opened()
        return volume.identity

    def _check_usable(self) -> None:
        volume = self._volume
        if volume.owner is not None:
            raise BackendFailure(f"{volume.name}: another process uses this folder of contents")
        if volume.health.failing or volume.health.full:
            raise BackendFailure(f"{volume.name}: the folder of contents cannot be used")

    def _check_identity(self, identity: str | None, needed: bool) -> None:
        """Raise BackendFailure if folder and database do not belong together. A crash may have left a
        new folder without a database that knows it."""
        volume = self._volume
        if not volume.contents.now and (identity is None or not needed):
            return
        if volume.identity != identity:
            what = "is empty" if volume.identity is None else "belongs to another database"
            raise BackendFailure(f"{volume.name}: the folder of contents {what}")

    def _erase(self) -> None:
        volume = self._volume
        volume.identity = None
        volume.faulty.clear()
        for names in (volume.contents, volume.parts):
            names.now.clear()
            names.durable.clear()

    def close(self) -> None:
        """Let the calls that have begun take effect, without callbacks."""
        if self._closed:
            return
        begun = [call for queue in self._queues.values() for call in queue if call.event]
        self.abandon()
        for call in dict.fromkeys(begun):
            try:
                for _, step in call.steps:
                    step()
            except (OSError, ContentMismatch):
                continue

    def abandon(self) -> None:
        """End without any effect: the process was killed, or it closes."""
        self._closed = True
        for queue in self._queues.values():
            for call in queue:
                if call.event is not None:
                    call.event.cancel()
        self._queues.clear()
        if self._volume.owner is self:
            self._volume.owner = None

    # -- calls -------------------------------------------------------------------------------------

    def _call(self, keys: tuple[str, ...], done: Done, *steps: tuple[float, Step]) -> None:
        """Begin a call when those before it for the same keys have ended."""
        if self._closed:
            return
        call = _Call(keys, list(steps), done)
        for key in keys:
            self._queues.setdefault(key, deque()).append(call)
        self._begin(call)

    def _begin(self, call: _Call) -> None:
        if call.event is None and all(self._queues[key][0] is call for key in call.keys):
            self._plan(call)

    def _plan(self, call: _Call) -> None:
        volume = self._volume
        seconds = volume.seconds(call.steps[0][0])
        name = f"{volume.name} {call.keys[0][:12]}"
        call.event = volume.world.call_later(seconds, lambda: self._step(call), name)

    def hurry(self) -> None:
        """Let calls that are in progress end soon: the disk is not slow any more."""
        begun = [call for queue in self._queues.values() for call in queue if call.event]
        for call in dict.fromkeys(begun):
            assert call.event is not None
            call.event.cancel()
            self._plan(call)

    def _step(self, call: _Call) -> None:
        _, step = call.steps.popleft()
        try:
            step()
        except (OSError, ContentMismatch) as e:
            self._end(call, e)
        else:
            if call.steps:
                self._plan(call)
            else:
                self._end(call, None)

    def _end(self, call: _Call, error: Exception | None) -> None:
        for key in call.keys:
            queue = self._queues[key]
            queue.popleft()
            if not queue:
                del self._queues[key]
        self._host.from_thread(self._callback, call.done, error)
        for key in call.keys:
            if key in self._queues:
                self._begin(self._queues[key][0])

    def _callback(self, done: Done, error: Exception | None) -> None:
        if not self._closed:
            done(error)

    # -- parts -------------------------------------------------------------------------------------

    def append(self, part: str, offset: int, data: bytes, done: Done) -> None:
        self._call((part,), done, (CALL_SECONDS, partial(self._write, part, offset, data)))

    def _write(self, part: str, offset: int, data: bytes) -> None:
        volume = self._volume
        file = File() if not offset else volume.parts.now.get(part)
        if file is None:
            raise volume.error(ENOENT, f"part {part} does not exist")
        if len(file.data) != offset:
            raise volume.error(EINVAL, f"part {part} has {len(file.data)} bytes, not {offset}")
        volume.parts.now[part] = file
        self._append(file, data)

    def _append(self, file: File, data: bytes) -> None:
        error = self._volume.write_error()
        if error is not None:
            data = data[: self._volume.random.randrange(len(data) + 1)]
        file.data += data
        if error is not None:
            raise error

    def resume(self, part: str, done: Callable[[int | Exception], None]) -> None:
        found: list[int] = []

        def look() -> None:
            if (error := self._volume.read_error()) is not None:
                raise error
            file = self._volume.parts.now.get(part)
            found.append(0 if file is None else len(file.data))

        def ended(error: Exception | None) -> None:
            done(found[0] if error is None else error)

        self._call((part,), ended, (CALL_SECONDS, look))

    def fetched(self, done: Callable[[list[str] | Exception], None]) -> None:
        found: list[str] = []

        def look() -> None:
            if (error := self._volume.read_error()) is not None:
                raise error
            found.extend(sorted(part for part in self._volume.parts.now if not is_upload(part)))

        def ended(error: Exception | None) -> None:
            done(found if error is None else error)

        self._call(("fetched",), ended, (CALL_SECONDS, look))

    def keep(self, part: str, content: Content, done: Done) -> None:
        """A part is compared and synced, gets its name, and then the folder is synced."""
        name = content.checksum.hex()

        def sync() -> None:
            file = self._volume.parts.now.get(part)
            if file is None:
                raise self._volume.error(ENOENT, f"part {part} does not exist")
            try:
                self._sync(file, content)
            except (OSError, ContentMismatch):
                self._delete(part)  # what a failed sync did not write, a later one does not write either
                raise

        self._call(
            (part, name),
            done,
            (SYNC_SECONDS, sync),
            (CALL_SECONDS, partial(self._rename, part, name)),
            (SYNC_SECONDS, partial(self._sync_folder, name)),
        )

    def store(self, data: bytes, content: Content, lost: bool, done: Done) -> None:
        """A content is written to a file of its name, which is synced, and then the folder is. If there
        is one, or the content is lost, it is written to a part."""
        self._stores += 1
        name, part = content.checksum.hex(), f"whole-{self._stores}"
        names, file = self._volume.contents, File()

        def write() -> None:
            if not lost and name not in names.now:
                names.now[name] = file
                self._append(file, data)
            else:
                self._write(part, 0, data)

        def sync() -> None:
            if part in self._volume.parts.now:
                self._sync(self._volume.parts.now[part], content)
            else:
                self._sync(file, content)

        def rename() -> None:
            if part in self._volume.parts.now:
                self._rename(part, name)

        def ended(error: Exception | None) -> None:
            self._delete(part)
            if error is not None and names.now.get(name) is file:
                del names.now[name]
            done(error)

        self._call(
            (name,),
            ended,
            (CALL_SECONDS, write),
            (SYNC_SECONDS, sync),
            (CALL_SECONDS, rename),
            (SYNC_SECONDS, partial(self._sync_folder, name)),
        )

    def _sync(self, file: File, content: Content) -> None:
        volume = self._volume
        if len(file.data) != content.size or checksum_of(file.data) != content.checksum.hex():
            raise ContentMismatch(f"a file is not content {content}")
        if volume.health.failing:
            file.tainted = True
            raise volume.error(EIO, "a sync failed")
        if (error := volume.write_error()) is not None:
            raise error
        file.sync()

    def _rename(self, part: str, name: str) -> None:
        self._volume.contents.now[name] = self._volume.parts.now.pop(part)
        self._volume.parts.sync(part)

    def _sync_folder(self, name: str) -> None:
        volume = self._volume
        if volume.health.failing:
            raise volume.error(EIO, "a sync of the folder failed")
        volume.contents.sync(name)
        if volume.contents.durable[name].durable == volume.contents.durable[name].data:
            volume.faulty.discard(name)

    def drop(self, part: str) -> None:
        self._call((part,), _ignore, (CALL_SECONDS, lambda: self._delete(part)))

    def _delete(self, part: str) -> None:
        self._volume.parts.now.pop(part, None)

    # -- contents ----------------------------------------------------------------------------------

    def read(
        self, checksum: bytes, offset: int, length: int, done: Callable[[bytes | Exception], None]
    ) -> None:
        found: list[bytes] = []

        def read() -> None:
            file = self._file(checksum.hex())
            found.append(file.data[offset : offset + length])

        def ended(error: Exception | None) -> None:
            done(found[0] if error is None else error)

        self._call((checksum.hex(),), ended, (CALL_SECONDS, read))

    def _file(self, name: str) -> File:
        volume = self._volume
        if (error := volume.read_error()) is not None:
            raise error
        if name not in volume.contents.now:
            raise FileNotFoundError(ENOENT, f"no such content: {name} [{volume.name}]")
        return volume.contents.now[name]

    def verify(self, content: Content, done: Done) -> None:
        name = content.checksum.hex()

        def compare() -> None:
            data = self._file(name).data
            if len(data) != content.size or checksum_of(data) != name:
                raise ContentMismatch(f"content {content}: its file is damaged")

        self._call((name,), done, (CALL_SECONDS, compare))

    def remove(self, checksum: bytes, done: Done) -> None:
        volume, name = self._volume, checksum.hex()

        def remove() -> None:
            if volume.health.failing and volume.random.random() < 0.5:
                volume.left.add(name)
                raise volume.error(EIO, f"content {name} cannot be deleted")
            volume.contents.now.pop(name, None)
            volume.faulty.discard(name)

        self._call((name,), done, (CALL_SECONDS, remove))

    def names(self, bucket: int, done: Callable[[list[bytes] | Exception], None]) -> None:
        assert 0 <= bucket < BUCKETS, bucket
        found: list[bytes] = []

        def look() -> None:
            if (error := self._volume.read_error()) is not None:
                raise error
            names = (bytes.fromhex(name) for name in sorted(self._volume.contents.now))
            found.extend(name for name in names if name[0] == bucket)

        def ended(error: Exception | None) -> None:
            done(found if error is None else error)

        self._call((f"bucket {bucket}",), ended, (CALL_SECONDS, look))

    def file(self, checksum: bytes) -> Path:
        """Return a path for those that copy contents into the simulated archives."""
        return CONTENTS / checksum.hex()

    def room(self) -> Disk:
        return Disk(0 if self._volume.health.full else FREE_BYTES, FREE_BYTES, "contents")


def _ignore(error: Exception | None) -> None:
    """Do nothing: nobody waits for the end of the call."""
