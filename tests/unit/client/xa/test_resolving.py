"""The resolver: what is prepared gets the outcome of the coordinator, whoever died where."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import Mock

import pytest
from ZODB.Connection import TransactionMetaData

from neo.client import xa
from neo.client.errors import ConfigurationError
from neo.client.xa import command
from neo.client.xa.branches import xid_prefix
from neo.protocol.enums import ErrorCode
from neo.protocol.ids import p64
from neo.protocol.packets import (
    AnswerTransactionInformation,
    AskFinishPrepared,
    AskTransactionInformation,
)
from tests.unit.client.committing import refusing
from tests.unit.client.prepared_master import Cluster, clusters
from tests.unit.client.xa.joined import Bank, World

XID, OTHER = xid_prefix("first") + b"0123", xid_prefix("first") + b"4567"
FOREIGN = b"of-another-coordinator"
TID = p64(1600)


@pytest.fixture
def world() -> Iterator[World]:
    with clusters("first", "second") as found:
        yield World(found)


def resolve(
    world: World, *names: str, older_than: float = 60.0, dry_run: bool = False
) -> list[str]:
    """Settle. ``names``: of the databases that are given besides the coordinator; all by default."""
    others = {"second": world.storage2, "bank": world.bank}
    given = [others[name] for name in names or others]
    settled = xa.resolve(world.storage1, given, older_than, dry_run, now=lambda: world.first.now)
    lines = [f"{line}{' (failed)' * line.failed}" for line in settled]
    return [line.removeprefix(xid_prefix("first").decode()) for line in lines]


def committed_in(world: World, *names: str) -> None:
    """Let the coordinator have committed a transaction of these databases."""
    world.first.put(XID, "committed", 5.0, TID)
    listed = {"xid": XID.decode(), "xid_branches": ["first", *names]}
    extended(world, TransactionMetaData("", "", listed).extension_bytes)


def extended(world: World, extension: bytes) -> None:
    """Let the transactions of the coordinator have this extension."""
    world.first.scripted.storages[1].answers[AskTransactionInformation] = lambda m: (
        AnswerTransactionInformation(m.tid, b"", b"", extension, False, [])
    )


def prepared_in_both(world: World, xid: bytes = XID) -> None:
    """Let a transaction be prepared in the two databases that are not the coordinator."""
    world.second.put(xid, "prepared")
    world.bank.prepared.append(xid)


def test_what_the_coordinator_committed_is_committed_everywhere_and_forgotten(
    world: World,
) -> None:
    committed_in(world, "second", "bank")
    prepared_in_both(world)
    assert resolve(world) == [
        "0123: committed in second, as in first",
        "0123: committed in bank, as in first",
    ]
    assert world.second.decisions == [(XID, True)] and world.bank.prepared == []
    assert world.forgotten()
    assert resolve(world) == [], "again: idempotent"


def test_an_outcome_is_kept_for_a_database_that_is_not_given(world: World) -> None:
    """It may be prepared there, and would be rolled back if the outcome were forgotten."""
    committed_in(world, "second", "bank")
    prepared_in_both(world)
    assert resolve(world, "second") == [
        "0123: committed in second, as in first",
        "0123: committed; its outcome is kept for bank",
    ]
    assert world.first.states() == {XID: "committed"}
    assert resolve(world)[0] == "0123: committed in bank, as in first"
    assert world.forgotten()


def test_an_outcome_is_kept_while_a_database_does_not_answer(world: World) -> None:
    committed_in(world, "bank")
    world.bank.prepared.append(XID)
    world.bank.recover = Mock(side_effect=RuntimeError("broken"))  # type: ignore[method-assign]
    assert resolve(world) == [
        "database 'bank' cannot be asked: broken (failed)",
        "0123: committed; its outcome is kept for bank",
    ]
    assert world.first.states() == {XID: "committed"}


@pytest.mark.parametrize("extension", [b"", b"no pickle"])
def test_an_outcome_whose_databases_are_not_known_is_kept(world: World, extension: bytes) -> None:
    committed_in(world)
    extended(world, extension)
    (line,) = resolve(world)
    assert line.startswith("0123: committed; its outcome is kept: its databases are not known")
    assert world.first.states() == {XID: "committed"}


def test_what_the_coordinator_prepared_long_ago_is_rolled_back_there_first(world: World) -> None:
    world.first.put(XID, "prepared", age=61.0)
    world.second.put(XID, "prepared", age=30.0)
    world.bank.prepared.append(XID)
    assert resolve(world) == [
        "0123: rolled back in first, the coordinator",
        "0123: rolled back in second, as in first",
        "0123: rolled back in bank, as in first",
    ]
    assert world.first.decisions == world.second.decisions == [(XID, False)]
    assert world.bank.prepared == []
    assert world.first.states() == {XID: "rolled back"}, "it keeps a slow application out"


def test_an_application_at_work_is_left_alone(world: World) -> None:
    world.first.put(XID, "prepared", age=59.0)
    world.second.put(XID, "prepared", age=58.0)
    assert resolve(world) == ["0123: left alone: prepared 59 s ago in first, second"]
    assert world.states() == [["prepared"], ["prepared"]]
    assert resolve(world, older_than=59.0) != []
    assert world.states() == [["rolled back"], ["rolled back"]]


def test_only_the_clock_of_the_coordinator_counts(world: World) -> None:
    """An application at work would fail if the clock of another database were behind."""
    world.first.put(XID, "prepared", age=-5.0)
    world.second.put(XID, "prepared", age=3600.0)
    assert resolve(world) == ["0123: left alone: prepared 0 s ago in first, second"]
    assert world.states() == [["prepared"], ["prepared"]]


def test_what_the_coordinator_does_not_know_is_rolled_back_everywhere(world: World) -> None:
    """Specification 24.13: the coordinator remembers it first, so that it cannot be prepared there."""
    prepared_in_both(world)
    resolve(world)
    assert world.first.states() == {XID: "rolled back"}
    assert world.second.states() == {XID: "rolled back"} and world.bank.prepared == []


def test_transactions_of_other_coordinators_are_not_touched(world: World) -> None:
    world.first.put(FOREIGN, "prepared", age=1e6)
    world.second.put(FOREIGN, "prepared", age=1e6)
    assert resolve(world, older_than=0.0) == []
    assert world.states() == [["prepared"], ["prepared"]]


def test_transactions_for_which_another_database_decides_are_only_named(world: World) -> None:
    """This one does not know their outcomes, and would roll back what was committed."""
    theirs = xid_prefix("second") + b"0123"
    world.second.put(theirs, "prepared", age=1e6)
    world.bank.prepared.append(theirs)
    assert resolve(world, older_than=0.0) == [
        f"{theirs.decode()}: left alone: another coordinator decides about it"
    ]
    assert world.bank.prepared == [theirs] and world.second.decisions == []


def test_an_application_that_finished_meanwhile_is_not_rolled_back(world: World) -> None:
    """It had prepared when the resolver looked, and has forgotten the outcome when it asks for that."""
    world.second.put(XID, "prepared")
    recover = world.bank.recover

    def finishes() -> dict[bytes, float | None]:
        world.second.rows.clear()
        return recover()

    world.bank.recover = finishes  # type: ignore[method-assign]
    assert resolve(world) == []
    assert world.first.decisions == world.second.decisions == []


def test_a_commit_while_the_resolver_gives_up_wins(world: World) -> None:
    world.first.put(XID, "prepared", age=99.0)
    world.second.put(XID, "prepared", age=99.0)
    finish = world.first.scripted.master.answers[AskFinishPrepared]

    def forestalled(m: AskFinishPrepared) -> object:
        world.first.put(XID, "committed", 99.0, TID)
        return finish(m)

    world.first.scripted.master.answers[AskFinishPrepared] = forestalled  # type: ignore[assignment]
    committed = "0123: committed in second, as in first"
    committed_in(world, "second")
    world.first.put(XID, "prepared", age=99.0)
    assert resolve(world) == [committed]
    assert world.second.decisions == [(XID, True)]


def test_a_database_that_refuses_is_tried_again_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed_in(world, "bank")
    world.bank.prepared.append(XID)
    with monkeypatch.context() as patches:
        patches.setattr(world.bank, "commit", Mock(side_effect=RuntimeError("disk full")))
        assert resolve(world) == ["0123: not committed in bank: disk full (failed)"]
    assert world.first.states() == {XID: "committed"}
    assert resolve(world) == ["0123: committed in bank, as in first"]


def test_a_process_that_was_faster_is_no_failure(world: World) -> None:
    committed_in(world, "bank")
    world.bank.prepared.append(XID)

    def fails(xid: bytes) -> None:
        world.bank.prepared.clear()
        raise RuntimeError("there is no such prepared transaction")

    world.bank.commit = fails  # type: ignore[method-assign]
    assert resolve(world) == []


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("step", range(12))
def test_a_resolver_may_die_anywhere(
    world: World, committed: bool, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if committed:
        committed_in(world, "second", "bank")
    else:
        world.first.put(XID, "prepared", age=99.0)
    world.second.put(XID, "prepared", age=99.0)
    world.bank.prepared.append(XID)
    left = [step]
    with monkeypatch.context() as patches:
        for method in ("recover", "commit", "rollback", "forget", "outcome", "commits"):
            for kind in (xa.NEOBranch, Bank):
                if hasattr(kind, method):
                    patches.setattr(kind, method, dying(getattr(kind, method), left))
        try:
            resolve(world)
        except KeyboardInterrupt:
            pass
    resolve(world)
    assert world.bank.prepared == [] and "prepared" not in [
        *map(str, world.second.states().values())
    ]
    decided = "committed" if committed else "rolled back"
    undone = [row.state for row in world.second.rows.values() if row.state != decided]
    assert undone == [] and resolve(world) == []
    assert world.first.states() == ({} if committed else {XID: "rolled back"})


def dying(method: Callable[..., Any], left: list[int]) -> Callable[..., Any]:
    """Return a method that ends its process after so many calls of such methods."""

    def call(*arguments: Any) -> Any:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return method(*arguments)

    return call


def test_a_dry_run_changes_nothing(world: World) -> None:
    committed_in(world, "second")
    world.second.put(XID, "prepared")
    world.first.put(OTHER, "prepared", age=99.0)
    world.bank.prepared.append(OTHER)
    assert resolve(world, dry_run=True) == [
        "4567: would be rolled back in first, bank",
        "0123: would be committed in second, as in first",
    ]
    assert world.first.decisions == world.second.decisions == []
    assert world.bank.prepared == [OTHER]


def test_a_transition_is_waited_for(world: World) -> None:
    world.first.put(XID, "committing")
    assert resolve(world) == ["0123: left alone: first is committing it"]


def test_the_coordinator_is_a_neo_database(world: World) -> None:
    with pytest.raises(ConfigurationError, match="must be a NEO database"):
        xa.resolve(world.bank, [])


def test_two_databases_of_one_name_are_refused(world: World) -> None:
    """Only one of them would be asked, and the outcome forgotten that the other one needs."""
    for name in ("bank", "first"):
        other = Bank()
        other.name = name
        with pytest.raises(ConfigurationError, match=f"two databases are named '{name}'"):
            xa.resolve(world.storage1, [world.storage1, world.bank, other])


#: Nothing listens there.
NOWHERE = "neo://a@127.0.0.1:1?wait_timeout=0"


# -- the command ---------------------------------------------------------------------------------


def uri(cluster: Cluster) -> str:
    return f"neo://{cluster.scripted.name}@{cluster.scripted.masters}"


def test_the_command_settles_and_prints(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    world.first.put(XID, "prepared", age=99.0)
    options = ["--coordinator", uri(world.first), uri(world.second)]
    assert command.main([*options, "--dry-run", "--older-than", "5"]) == 0
    assert capsys.readouterr().out == f"{XID.decode()}: would be rolled back in first\n"
    assert command.main([*options, "--older-than", "5"]) == 0
    assert capsys.readouterr().out == f"{XID.decode()}: rolled back in first, the coordinator\n"
    assert command.main(options) == 0
    assert capsys.readouterr().out == "nothing is in doubt\n"


def test_the_command_fails_if_something_stays_in_doubt(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    world.first.put(XID, "prepared", age=99.0)
    denies = refusing(ErrorCode.DENIED)
    world.first.scripted.master.answers[AskFinishPrepared] = denies
    assert command.main(["--coordinator", uri(world.first)]) == 1
    assert "not rolled back: rollback of prepared transaction" in capsys.readouterr().err


def test_the_command_settles_the_rest_if_a_cluster_does_not_answer(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """Otherwise objects would stay locked everywhere while one cluster is away."""
    world.first.put(XID, "prepared", age=99.0)
    world.second.put(XID, "prepared", age=99.0)
    assert command.main(["--coordinator", uri(world.first), NOWHERE, uri(world.second)]) == 1
    printed = capsys.readouterr()
    assert f"{NOWHERE} cannot be asked" in printed.err
    assert "rolled back in second, as in first" in printed.out
    assert world.states() == [["rolled back"], ["rolled back"]]


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (["--coordinator", "bank"], 2, "the coordinator is a NEO database"),
        (["--coordinator", "neo://a"], 2, "is not neo://name@host:port"),
        (["--coordinator", NOWHERE, "nonsense"], 2, "is neither neo://name@host:port nor NAME=DSN"),
        (["--coordinator", NOWHERE], 1, "did not answer"),
    ],
)
def test_the_command_says_what_is_wrong(
    words: list[str], code: int, error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(words) == code
    assert error in capsys.readouterr().err


def test_the_command_takes_all_names_that_an_application_can_give(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    xa.DBAPIBranch("my-bank.2", lambda: None)
    assert command.main(["--coordinator", uri(world.first), "my-bank.2=host=/nowhere"]) == 1
    assert "database 'my-bank.2' cannot be asked" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["-1", "soon", "nan"])
def test_the_age_is_a_number_of_seconds(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as e:
        command.main(["--coordinator", "neo://a@b:1", "--older-than", text])
    assert e.value.code == 2 and "is not a number of seconds" in capsys.readouterr().err
