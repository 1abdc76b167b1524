"""neomigrate of damaged files: a copy is complete, or the command says what is missing."""

from __future__ import annotations

import logging
import os
import re
import warnings
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from ZODB import DB
from ZODB.Connection import TransactionMetaData
from ZODB.FileStorage import FileStorage
from ZODB.FileStorage.format import DATA_HDR_LEN
from ZODB.MappingStorage import MappingStorage

from neo.export import main as export
from neo.migrate import MigrateError, compare, copy_from, main
from neo.migrate.datafs import DataFile
from neo.migrate.listing import records
from neo.protocol.ids import ZERO_TID
from tests.support.seeds import seed
from tests.tools import damage
from tests.tools.damage import Damaged, Whole

Capture = pytest.CaptureFixture[str]
ROUNDS = int(os.environ.get("NEO_DAMAGE_ROUNDS", "160"))
PLACE = re.compile(r"bytes \d+ to \d+|Data\.fs\.index|Ignoring index")


class Sample:
    """An undamaged database, and its content."""

    def __init__(self, folder: Path) -> None:
        path = folder / "whole.fs"
        damage.make(path)
        self.path = path
        self.data = path.read_bytes()
        self.index = Path(f"{path}.index").read_bytes()
        self.whole: list[Whole] = damage.layout(path)
        self.originals = damage.originals(self.whole)

    def copy(self, path: Path, indexed: bool = True) -> Path:
        path.write_bytes(self.data)
        name = Path(f"{path}.index")
        name.unlink(missing_ok=True)
        if indexed:
            name.write_bytes(self.index)
        return path


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Sample:
    return Sample(tmp_path_factory.mktemp("sample"))


def test_a_copy_of_a_damaged_file_is_complete_or_says_what_is_missing(
    sample: Sample, tmp_path: Path, capsys: Capture
) -> None:
    first = seed("DAMAGE")
    for number in range(first, first + ROUNDS):
        random = Random(number)
        kind, indexed = random.choice(damage.KINDS), random.random() < 0.5
        path = sample.copy(tmp_path / "Data.fs", indexed or kind.startswith("index"))
        done = damage.damage(random, kind, path, sample.whole)
        try:
            check_report(sample, path, done, indexed, capsys)
            check_salvage(sample, path, done)
        except Exception as e:
            raise AssertionError(f"NEO_DAMAGE_SEED={number} NEO_DAMAGE_ROUNDS=1: {done}") from e


def check_report(sample: Sample, path: Path, done: Damaged, indexed: bool, capsys: Capture) -> None:
    code = main([str(path), str(path.parent / "copy.fs"), "--dry-run", "--quiet"])
    out, err = capsys.readouterr()
    if code:
        assert PLACE.search(err), err
        return
    lost = sample.originals.keys() - readable(path).keys()
    if "was never finished" in err:
        assert PLACE.search(err), err
        assert lost <= {sample.whole[-1].tid}
    else:
        assert not damage.is_seen(sample.whole, done, indexed)
        assert not lost or done.kind.startswith("cut") or changed_tid(sample, done)
        assert re.search(rf"Would copy {len(readable(path))} transactions", out)


def test_a_damaged_destination_is_different_or_cannot_be_read(
    sample: Sample, tmp_path: Path, capsys: Capture
) -> None:
    """ZODB reads the destination: every error of that is reported in a sentence."""
    first = seed("DAMAGE")
    for number in range(first, first + ROUNDS // 4):
        random = Random(number)
        kind, indexed = random.choice(damage.KINDS), random.random() < 0.5
        path = sample.copy(tmp_path / "copy.fs", indexed or kind.startswith("index"))
        done = damage.damage(random, kind, path, sample.whole)
        try:
            words = [str(sample.path), str(path), "--verify", "--dry-run", "--quiet"]
            if main(words) == 0:
                with closing(FileStorage(str(path), read_only=True)) as storage:
                    assert damage.contents(storage) == sample.originals
            else:
                assert capsys.readouterr().err.startswith("neomigrate: ")
        except Exception as e:
            raise AssertionError(f"NEO_DAMAGE_SEED={number} NEO_DAMAGE_ROUNDS=4: {done}") from e


def readable(path: Path) -> dict[bytes, Any]:
    """Return the content that is copied of a file that can be opened."""
    try:
        with closing(DataFile(str(path))) as file:
            return damage.contents(file)
    except MigrateError as e:
        assert "is empty" in str(e) or "is not a FileStorage" in str(e)  # noqa: PT017
        return {}


def check_salvage(sample: Sample, path: Path, done: Damaged) -> None:
    found = readable(path)
    changed, may_lack = damage.touched(sample.whole, done), damage.may_lack(sample.whole, done)
    assert found.keys() <= sample.originals.keys() or changed_tid(sample, done), "invented"
    assert sample.originals.keys() - found.keys() <= may_lack, "intact, and left out"
    for tid, (texts, rows) in found.items():
        if tid not in sample.originals:
            continue
        expected_texts, expected = sample.originals[tid]
        if rows.keys() != expected.keys():
            assert damage.is_unknown_oid(sample.whole, done)
        if tid not in may_lack:
            assert (texts, rows) == (expected_texts, expected)
    assert changed or done.start >= len(sample.data) or found == sample.originals


def changed_tid(sample: Sample, done: Damaged) -> bool:
    """Return whether a tid was changed that is in one place only, as that of an empty transaction."""
    return any(
        not each.rows and each.start < done.end and done.start < each.start + 8
        for each in sample.whole
    )


def test_no_record_is_copied_under_an_oid_that_another_one_denies(
    sample: Sample, tmp_path: Path
) -> None:
    """The first revision of an object has one oid, the second another: either may be right."""
    owner = {row.position: each for each in sample.whole for row in each.rows}
    second, row = next(
        (each, row)
        for each in sample.whole
        for row in each.rows
        if row.previous and not row.back and not row_at(owner[row.previous], row.previous).previous
    )
    first = owner[row.previous]
    path = sample.copy(tmp_path / "Data.fs", indexed=False)
    data = bytearray(sample.data)
    data[row.previous + 6] ^= 1
    path.write_bytes(data)
    found = readable(path)
    assert first.tid not in found
    assert second.tid not in found
    assert len(found) >= len(sample.whole) - 4
    assert all(found[tid] == sample.originals[tid] for tid in found)


def test_a_pointer_to_the_undoing_of_a_creation_means_the_same_when_it_is_zero(
    sample: Sample, tmp_path: Path, capsys: Capture
) -> None:
    """Both say that the object does not exist: nothing is lost, and nothing is reported."""
    row = next(row for each in sample.whole for row in each.rows if row.back and row.data is None)
    path = sample.copy(tmp_path / "Data.fs", indexed=False)
    data = bytearray(sample.data)
    start = row.position + DATA_HDR_LEN
    data[start : start + 8] = bytes(8)
    path.write_bytes(data)
    assert readable(path) == sample.originals
    done = Damaged("zeros", start, start + 8, frozenset(range(start, start + 8)))
    check_report(sample, path, done, False, capsys)


def test_an_undo_whose_pointer_is_zero_is_copied_as_a_deletion(
    sample: Sample, tmp_path: Path, capsys: Capture
) -> None:
    """The same bytes are those of a deleted object: nothing tells one from the other."""
    each, row = next(
        (each, row) for each in sample.whole for row in each.rows if row.back and row.data is not None
    )
    path = sample.copy(tmp_path / "Data.fs", indexed=False)
    data = bytearray(sample.data)
    start = row.position + DATA_HDR_LEN
    changed = frozenset(start + n for n in range(8) if data[start + n])
    data[start : start + 8] = bytes(8)
    path.write_bytes(data)
    assert readable(path)[each.tid][1][row.oid] is None
    check_report(sample, path, Damaged("zeros", start, start + 8, changed), False, capsys)


def row_at(each: Whole, position: int) -> damage.Row:
    return next(row for row in each.rows if row.position == position)


def damaged_in_the_middle(sample: Sample, path: Path) -> list[Whole]:
    """Copy the sample without the lengths of two neighbours to whose data nothing refers."""
    data = bytearray(sample.copy(path).read_bytes())
    for lost in pairwise(sample.whole[12:]):
        tids = {each.tid for each in lost}
        if damage.lost_data(sample.whole, tids) == tids:
            break
    else:
        raise AssertionError("all transactions are referred to")
    for each in lost:
        data[each.start + 8 : each.start + 16] = bytes(8)
    path.write_bytes(data)
    return list(lost)


def test_damage_is_refused_before_anything_is_copied(
    sample: Sample, tmp_path: Path, capsys: Capture
) -> None:
    path, copy = tmp_path / "Data.fs", tmp_path / "copy.fs"
    lost = damaged_in_the_middle(sample, path)
    before = sample.whole[sample.whole.index(lost[0]) - 1].tid
    behind = sample.whole[sample.whole.index(lost[1]) + 1].tid
    start, end = lost[0].start, lost[1].end
    demo = tmp_path / "demo.conf"
    demo.write_text(
        f"<demostorage over>\n <filestorage base>\n path {path}\n </filestorage>\n</demostorage>"
    )
    for words in (
        [str(path), str(copy), "--verify"],
        [str(path), str(copy), "--dry-run"],
        [f"file://{path}?read_only=1", str(copy)],
        ["over", str(copy), "--config", str(demo)],
    ):
        assert main([*words, "--quiet"]) == 1
        err = capsys.readouterr().err
        place = f"bytes {start} to {end}, between transaction 0x{before.hex()} and 0x{behind.hex()}"
        assert place in err
        assert "neomigrate --salvage" in err
        assert not copy.exists()


def test_a_damaged_file_is_not_exported(sample: Sample, tmp_path: Path, capsys: Capture) -> None:
    path, folder = tmp_path / "Data.fs", tmp_path / "out"
    damaged_in_the_middle(sample, path)
    words = ["--parquet", str(folder), "--quiet", "--jobs", "1"]
    assert export([str(path), *words]) == 1
    assert "is damaged; nothing is copied. Lost are\n  bytes " in capsys.readouterr().err
    assert not (folder / "current").exists()
    # Complete data beside a damaged index is exported; the exit code reports the index.
    sample.copy(path)
    Path(f"{path}.index").write_bytes(b"")
    assert export([str(path), *words]) == 1
    assert ".index cannot be read" in capsys.readouterr().err
    assert (folder / "current").exists()
    Path(f"{path}.index").unlink()
    assert export([str(path), *words]) == 0


def test_salvage_copies_both_sides_and_no_later_copy_skips_the_gap(
    sample: Sample, tmp_path: Path, capsys: Capture
) -> None:
    path, copy = tmp_path / "Data.fs", tmp_path / "copy.fs"
    lost = damaged_in_the_middle(sample, path)
    words = [str(path), str(copy), "--quiet", "--salvage"]
    assert main([*words, "--verify"]) == 1
    out, err = capsys.readouterr()
    assert f"bytes {lost[0].start} to {lost[1].end}, between" in err
    assert "the copy is not complete" in err
    assert "are equal" in out
    with closing(FileStorage(str(copy))) as storage:
        found = damage.contents(storage)
    assert found.keys() == sample.originals.keys() - {each.tid for each in lost}
    assert all(found[tid] == sample.originals[tid] for tid in found)
    # A second run has nothing to copy, and still says what is lost.
    assert main(words) == 1
    assert "the copy is not complete" in capsys.readouterr().err
    assert main([str(sample.path), str(copy), "--quiet"]) == 1
    err = capsys.readouterr().err
    assert f"lacks {len(lost)} transactions of the source, from 0x{lost[0].tid.hex()}" in err


def test_a_salvaged_copy_without_its_end_is_finished_later(
    sample: Sample, tmp_path: Path, capsys: Capture
) -> None:
    path, copy = sample.copy(tmp_path / "Data.fs"), tmp_path / "copy.fs"
    os.truncate(path, sample.whole[-4].end)
    assert main([str(path), str(copy), "--quiet"]) == 1
    err = capsys.readouterr().err
    assert f"bytes {sample.whole[-4].end} to {len(sample.data)}, between transaction" in err
    assert "the end: " in err
    assert main([str(path), str(copy), "--quiet", "--salvage"]) == 1
    assert main([str(sample.path), str(copy), "--quiet", "--verify"]) == 0


def test_a_packed_copy_is_continued(sample: Sample, tmp_path: Path, capsys: Capture) -> None:
    """A pack of the copy removes transactions that the source has: they are not missing."""
    copy = tmp_path / "copy.fs"
    with (
        closing(DataFile(str(sample.path))) as source,
        closing(FileStorage(str(copy))) as destination,
    ):
        with closing(copy_from(ZERO_TID, source, destination)) as steps:
            for _ in range(30):
                next(steps)
    with closing(DB(FileStorage(str(copy)))) as db:
        db.pack()
    assert main([str(sample.path), str(copy), "--quiet"]) == 0
    assert "Copied" in capsys.readouterr().out


def test_a_source_that_ends_early_is_not_copied_in_silence(tmp_path: Path) -> None:
    class Short(MappingStorage):
        def iterator(self, start: Any = None, stop: Any = None) -> Any:
            yield from list(super().iterator(start, stop))[:3]

    short = Short()
    db = DB(short)
    for number in range(5):
        with db.transaction() as connection:
            connection.root()["number"] = number
    with closing(FileStorage(str(tmp_path / "copy.fs"))) as copy:
        with pytest.raises(MigrateError, match="cannot be read after transaction 0x.* its last"):
            list(copy_from(ZERO_TID, short, copy))
        assert len(list(copy.iterator())) == 3
        with pytest.raises(MigrateError, match="cannot be read after"):
            list(compare(short, copy))
    db.close()


def test_no_warning_passes_in_silence(
    sample: Sample, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = DataFile.iterator

    def warning(self: DataFile, *bounds: Any) -> Any:
        logging.getLogger("ZODB.FileStorage").warning("one %s", "of the log")
        warnings.warn("one of Python", stacklevel=1)
        warnings.warn("about code", ResourceWarning, stacklevel=1)
        return plain(self, *bounds)

    monkeypatch.setattr(DataFile, "iterator", warning)
    assert main([str(sample.path), str(tmp_path / "copy.fs"), "--quiet", "--dry-run"]) == 1
    err = capsys.readouterr().err
    assert "neomigrate: warning: one of the log\n" in err
    assert "neomigrate: warning: UserWarning: one of Python\n" in err
    assert "neomigrate: warning: ResourceWarning" not in err


def test_a_transaction_that_is_being_written_is_not_missing(
    tmp_path: Path, capsys: Capture
) -> None:
    path = tmp_path / "Data.fs"
    damage.make(path)
    with closing(FileStorage(str(path))) as storage:
        before = storage.getSize()
        unfinished = TransactionMetaData()
        storage.tpc_begin(unfinished)
        storage.store(b"\0" * 7 + b"\x77", ZERO_TID, b"data", "", unfinished)
        storage.tpc_vote(unfinished)
        assert main([str(path), str(tmp_path / "copy.fs"), "--quiet"]) == 0
        assert f"bytes {before} to " in capsys.readouterr().err
        storage.tpc_abort(unfinished)


def test_transactions_that_are_written_meanwhile_are_no_damage(
    sample: Sample, tmp_path: Path
) -> None:
    """The file ends inside a transaction when it is opened, and has grown when that transaction is
    read."""
    path = sample.copy(tmp_path / "Data.fs", indexed=False)
    end = sample.whole[20].start + 100
    path.write_bytes(sample.data[:end])
    plain = os.pread

    def growing(fd: int, size: int, position: int) -> bytes:
        if position > sample.whole[19].start:
            path.write_bytes(sample.data)
        return plain(fd, size, position)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("neo.migrate.records.os.pread", growing)
        file = DataFile(str(path))
    with closing(file):
        assert not file.gaps
        assert damage.contents(file) == sample.originals


def test_dry_run_compares_with_what_the_destination_has(
    sample: Sample, tmp_path: Path, capsys: Capture
) -> None:
    path, copy = tmp_path / "Data.fs", tmp_path / "copy.fs"
    damaged_in_the_middle(sample, path)
    main([str(path), str(copy), "--quiet", "--salvage"])
    assert main([str(sample.path), str(copy), "--quiet", "--dry-run"]) == 1
    assert "lacks" in capsys.readouterr().err


def test_a_copy_that_was_cut_is_continued_and_its_warnings_are_said(
    sample: Sample, tmp_path: Path, capsys: Capture
) -> None:
    copy = sample.copy(tmp_path / "copy.fs")
    os.truncate(copy, sample.whole[-1].start + 30)
    assert main([str(sample.path), str(copy), "--quiet", "--verify"]) == 0
    out, err = capsys.readouterr()
    assert "Copied 1 transaction," in out
    assert "warning: Ignoring index" in err


def test_a_length_of_petabytes_is_damage() -> None:
    class Transaction:
        tid = b"\0" * 7 + b"\1"

        def __iter__(self) -> Any:
            raise MemoryError

    with pytest.raises(MigrateError, match="0x0000000000000001 cannot be read: a length in it"):
        list(records(Transaction()))
