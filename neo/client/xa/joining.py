"""The application's side: transactions of a manager that commit in several databases, or in none.

Theory of operation
-------------------
All databases of a transaction, the *branches*, vote and prepare under one xid while the manager calls
tpc_vote. The commit in the coordinator's database is the decision (decision 38). The manager calls
tpc_finish in the order of the sort keys, and the coordinator's is the least: so it commits first, and the
others follow. When all have ended, the outcomes are forgotten.

The transaction manager gives up after an exception in tpc_finish and calls tpc_abort of all. What that
does depends on the state of the transaction here, never on the exception:

| state | an abort ... |
|---|---|
| not decided, or the coordinator refused to commit | rolls back |
| the coordinator did not answer | leaves the branch prepared: the resolver knows later |
| committed | commits the branch all the same |

A branch that cannot be reached after the decision is no error for the application, because the
transaction is committed. It is logged, and left to the resolver.

Rules
-----
* The coordinator prepares first. So a resolver that finds a transaction prepared anywhere else, and not
  in the coordinator, knows that it was rolled back.
* All transactions lock in the order of the sort keys: a database is asked for locks when those in the one
  before are granted. Otherwise two transactions could wait for each other, which no cluster would notice.
* A branch that is prepared is rolled back only in a state in which the coordinator cannot commit.
* The outcome of the coordinator is forgotten only when no branch is prepared any more.
* A transaction with one branch is committed as if there were no coordination.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from enum import Enum
from functools import partial
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

from ZODB.Connection import TransactionMetaData
from ZODB.POSException import StorageError, StorageTransactionError

from neo.client.commit.prepared import PreparedTransaction
from neo.client.commit.transaction import ClientTransaction
from neo.client.errors import ConfigurationError, OutcomeUnknownError, TransactionLostError
from neo.client.storage import NEOStorage
from neo.client.xa.branches import Branch, Session, new_xid
from neo.client.xa.evidence import BRANCHES_KEY, PROOFS_KEY, XID_KEY, Fate, Proving, note
from neo.protocol.ids import format_xid

logger = logging.getLogger("neo.client")

#: Random bytes of an xid: enough that two are never equal while a coordinator has one last transaction.
RANDOM_BYTES = 8


class State(Enum):
    ACTIVE = "not decided"
    COMMITTED = "the coordinator has committed"
    ROLLED_BACK = "the coordinator has refused to commit"
    UNKNOWN = "the coordinator was asked to commit, and has not answered"


S = TypeVar("S", bound=Session, covariant=True)


class Participant(Branch, Protocol[S]):
    """A branch in which the application works with sessions."""

    def begin(self, xid: bytes) -> S:
        """Begin a transaction that will be prepared under this xid, or committed at once."""


class Unit:
    """One transaction of a manager, in all its branches. Used by the thread that commits.

    ``extension``: the dictionary of the manager's transaction, which the transactions of all branches
    share.
    """

    def __init__(self, extension: dict[str, Any], xid: bytes, coordinator: NEOStorage) -> None:
        self.extension = extension
        self.xid = xid
        self.state = State.ACTIVE
        #: Whether several branches take part. Known from the first vote on.
        self.shared = False
        #: By name of a database: the proof that it had prepared this transaction.
        self.proofs: dict[str, str] = {}
        self._voting = False
        self._coordinator = coordinator
        # User and description of the transaction. The metadata itself is not kept: it keeps the unit.
        self._texts: tuple[Any, Any] = ("", "")
        # By name, for sessions that have a proof.
        self._proofs: dict[str, Callable[[], str]] = {}
        # Names of the branches that have not ended.
        self._open: list[str] = []
        self._prepared: list[NEOStorage] = []
        # The storage's transaction that asked for locks last.
        self._locking: ClientTransaction | None = None
        self._left = False
        # The transaction in the coordinator's database, if the application did not change that.
        self._decision: TransactionMetaData | None = None

    def join(self, name: str, metadata: Any, proof: Callable[[], str] | None = None) -> None:
        """Add a branch, or another transaction of a branch that has joined."""
        self._texts = metadata.user, metadata.description
        self._open.append(name)
        if proof is not None:
            self._proofs[name] = proof

    def lock(self, begun: ClientTransaction) -> None:
        """Wait for all locks in the last storage, before the next storage asks for its locks. Raise the
        errors of settle()."""
        last, self._locking = self._locking, begun
        if last is not begun and last is not None:
            last.settle()

    def vote(self) -> None:
        """Prepare to vote, before each branch does. The first call finds out what takes part."""
        if self._voting:
            return
        self._voting = True
        self.shared = len(set(self._open)) > 1
        if not self.shared:
            return
        for name in self._open:
            if self._open.count(name) > 1:
                raise StorageTransactionError(
                    f"two connections to database {name!r} take part in a transaction with other"
                    " databases: use one of them, and undo in a transaction of its own"
                )
        coordinator, extension = self._coordinator, self.extension
        extension[XID_KEY] = format_xid(self.xid)
        extension[BRANCHES_KEY] = sorted({*self._open, coordinator.getName()})
        if proofs := {name: proof() for name, proof in self._proofs.items()}:
            extension[PROOFS_KEY] = self.proofs = proofs
        if coordinator.getName() not in self._open:
            self._decision = TransactionMetaData(*self._texts, extension)
            coordinator.tpc_begin(self._decision)
            coordinator.tpc_vote(self._decision)

    def prepared(self, storage: NEOStorage) -> None:
        self._prepared.append(storage)

    def decide(self, commit: Callable[[], bytes]) -> bytes:
        """Commit in the coordinator's database. Raise what ``commit`` raises."""
        self.state = State.UNKNOWN
        try:
            tid = commit()
        except TransactionLostError:
            self.state = State.ROLLED_BACK
            raise
        except StorageError as e:
            logger.error(
                "the outcome of transaction %s is not known; neoresolve settles it: %s",
                format_xid(self.xid),
                e,
            )
            raise
        self.state = State.COMMITTED
        return tid

    def check_decided(self) -> None:
        """Make the decision, unless that was done. Raise the errors of the coordinator's tpc_finish."""
        if self.state is State.ACTIVE and self._decision is not None:
            self._coordinator.tpc_finish(self._decision)
        if self.state is not State.COMMITTED:
            raise StorageTransactionError(
                f"the coordinator {self._coordinator.getName()!r} must come first in tpc_finish, and"
                " succeed"
            )

    def abort(self) -> bool:
        """Return whether the branch that is being aborted shall be rolled back."""
        if self._decision is not None and self.state is not State.COMMITTED:
            decision, self._decision = self._decision, None
            self._coordinator.tpc_abort(decision)
        return self.state in (State.ACTIVE, State.ROLLED_BACK)

    def leave(self, name: str, error: object) -> None:
        """Leave a branch that stays prepared to the resolver."""
        self._left = True
        logger.error(
            "transaction %s stays prepared in %r: %s; neoresolve settles it: %s",
            format_xid(self.xid),
            name,
            self.state.value,
            error,
        )

    def contradict(self, name: str, decided: Fate, fate: Fate) -> None:
        """Keep the outcome, because a branch ended the transaction in another way, or in an unknown
        one."""
        self._left = True
        logger.error(
            "transaction %s is %s in %r, but in %r it is %s; a person decided, or the database is another"
            " one: correct the data, or the address",
            format_xid(self.xid),
            decided.value,
            self._coordinator.getName(),
            name,
            fate.value,
        )

    def end(self, name: str) -> None:
        """Note that a branch has ended, or was left. After the last one, forget the outcomes."""
        if name in self._open:
            self._open.remove(name)
        if not self._open and not self._left and self.state is not State.UNKNOWN:
            prepared, self._prepared = self._prepared, []
            for storage in prepared:
                storage.forget_prepared(self.xid, wait=False)


class SessionManager(Generic[S]):
    """The data manager of a session: what the transaction manager calls."""

    def __init__(self, unit: Unit, branch: Participant[S], manager: Any) -> None:
        self.transaction_manager = manager
        self.session = branch.begin(unit.xid)
        self._unit = unit
        self._branch = branch
        #: Whether the work is committed, rolled back, or left to the resolver.
        self.ended = False

    def savepoint(self) -> SessionSavepoint:
        """Implement transaction.savepoint()."""
        make = getattr(self.session, "savepoint", None)
        return SessionSavepoint(self._branch.name, make() if make is not None else None)

    def sortKey(self) -> str:
        """Return a key that sorts after the keys of storages, because a branch that is alone commits in
        tpc_vote."""
        return f"~xa {self._branch.name}"

    def abort(self, transaction: Any) -> None:
        """Undo the work. The manager also calls this after the end, when the coordinator may have
        committed: an exception from outside can keep it from calling tpc_abort."""
        if not self.ended:
            self.tpc_abort(transaction)

    def tpc_begin(self, transaction: Any) -> None:
        if transaction.extension is not self._unit.extension:
            raise StorageTransactionError(
                "the extension of the transaction was replaced: use setExtendedInfo()"
            )
        proof = getattr(self.session, "proof", None)
        self._unit.join(self._branch.name, transaction, proof)

    def commit(self, transaction: Any) -> None:
        """Do nothing: the statements were executed before."""

    def tpc_vote(self, transaction: Any) -> None:
        self._unit.vote()
        if self._unit.shared:
            self.session.prepare()
        else:
            self.session.commit()
            self.ended = True

    def tpc_finish(self, transaction: Any) -> None:
        if not self.ended:
            self._unit.check_decided()
            self._commit()
            self._unit.end(self._branch.name)

    def tpc_abort(self, transaction: Any) -> None:
        unit = self._unit
        rolls_back = unit.abort()
        if not self.ended:
            if rolls_back:
                self._rollback()
            elif unit.state is State.COMMITTED:
                self._commit()
            else:
                self._leave("nothing is rolled back meanwhile")
        unit.end(self._branch.name)

    def _commit(self) -> None:
        self.ended = True
        try:
            self.session.commit()
        except Exception as e:  # noqa: BLE001 - of any driver; it is logged
            if self._holds():
                self._leave(e)
            elif (fate := self._fate(Fate.COMMITTED)) is not Fate.COMMITTED:
                self._unit.contradict(self._branch.name, Fate.COMMITTED, fate)
        except BaseException as e:
            self._leave(e)  # an exception from outside
            raise

    def _holds(self) -> bool:
        """Return whether the transaction may still be prepared: a resolver may have been faster."""
        try:
            return self._unit.xid in self._branch.recover()
        except Exception:  # noqa: BLE001 - of any driver; the error of the commit is logged
            return True

    def _fate(self, decided: Fate) -> Fate:
        """Return the fate of a transaction that is not prepared any more. A resolver executed what was
        ``decided``, or a person intervened. If the branch gives no proofs, return ``decided``."""
        branch: object = self._branch
        if not isinstance(branch, Proving):
            return decided
        try:
            proof = self._unit.proofs.get(self._branch.name)
            return branch.fate(self._unit.xid, proof, 0.0)
        except Exception:  # noqa: BLE001 - of any driver; the resolver asks again
            return Fate.FORGOTTEN

    def _rollback(self) -> None:
        self.ended = True
        try:
            self.session.rollback()
        except Exception as e:  # noqa: BLE001 - of any driver; it is logged
            try:
                if self._unit.xid in self._branch.recover():
                    self._branch.rollback(self._unit.xid)
                elif self._fate(Fate.ROLLED_BACK) is Fate.COMMITTED:
                    self._unit.contradict(self._branch.name, Fate.ROLLED_BACK, Fate.COMMITTED)
            except Exception:  # noqa: BLE001 - the first error is logged
                self._leave(e)

    def _leave(self, error: object) -> None:
        self.ended = True
        self._unit.leave(self._branch.name, error)
        self.session.leave()


class SessionSavepoint:
    """A savepoint of a session. ``back``: goes back to it; None if the database has none."""

    def __init__(self, name: str, back: Callable[[], None] | None) -> None:
        self._name = name
        self._back = back

    def rollback(self) -> None:
        if self._back is None:
            raise StorageTransactionError(
                f"the session of database {self._name!r} has no savepoints: abort the whole transaction,"
                " or give the session a method savepoint()"
            )
        self._back()


class Coordination:
    """Databases whose transactions have one outcome. See :func:`join`. Thread-safe."""

    def __init__(
        self, manager: Any, coordinator: NEOStorage, random: Callable[[int], bytes] = os.urandom
    ) -> None:
        self._manager = manager
        self._coordinator = coordinator
        self._random = random
        # By the storage's transaction, from tpc_begin to the end. Weak: an interrupt can keep the end
        # from coming here, and the transaction's id() may then belong to another one.
        self._units: WeakKeyDictionary[Any, Unit] = WeakKeyDictionary()
        # All that are in use, by the identity of their extension.
        self._by_extension: WeakValueDictionary[int, Unit] = WeakValueDictionary()

    def session(self, branch: Participant[S], manager: Any = None) -> S:
        """Return the session of the current transaction in a database that is not ZODB's. The first call
        begins it. ``manager``: of the transaction, by default that of join()."""
        used = self._manager if manager is None else manager
        transaction = used.get()
        try:
            joined: SessionManager[S] | None = transaction.data(branch)
        except KeyError:
            joined = None
        if joined is None or joined.ended:
            # A session also ends when a savepoint is rolled back that is older than its first call.
            joined = SessionManager(self._unit(transaction.extension), branch, used)
            try:
                transaction.join(joined)
            except BaseException:
                joined.abort(transaction)  # the transaction is being committed, or has failed
                raise
            transaction.set_data(branch, joined)
        return joined.session

    def _unit(self, extension: dict[str, Any]) -> Unit:
        unit = self._by_extension.get(id(extension))
        if unit is None:
            last = self._coordinator.lastTransaction()
            xid = new_xid(self._coordinator.getName(), last, self._random(RANDOM_BYTES))
            unit = self._by_extension[id(extension)] = Unit(extension, xid, self._coordinator)
        return unit

    # -- called by storages ------------------------------------------------------------------------

    def sort_key(self, storage: NEOStorage, key: str) -> str:
        return f"!{key}" if storage is self._coordinator else key

    def begun(self, storage: NEOStorage, metadata: Any) -> None:
        """Add a storage's transaction to that of its manager: their connections share its extension."""
        extension = getattr(metadata, "extension", None)
        if extension is not None:
            unit = self._unit(extension)
            unit.join(storage.getName(), metadata)
            self._units[metadata] = unit

    def locking(self, metadata: Any, begun: ClientTransaction) -> None:
        """Wait for the locks in other databases before ``begun`` asks for more."""
        unit = self._units.get(metadata)
        if unit is not None:
            unit.lock(begun)

    def voting(self, metadata: Any) -> None:
        unit = self._units.get(metadata)
        if unit is not None:
            unit.vote()

    def voted(self, storage: NEOStorage, metadata: Any) -> None:
        unit = self._units.get(metadata)
        if unit is not None:
            if unit.shared:
                try:
                    storage.tpc_prepare(metadata, unit.xid)
                except OutcomeUnknownError as e:
                    raise TransactionLostError(f"nothing is committed anywhere: {e}") from e
                unit.prepared(storage)
            else:
                del self._units[metadata]

    def note(self, metadata: Any) -> bytes:
        """Return the text of a transaction that is being prepared."""
        unit = self._units.get(metadata)
        return b"" if unit is None else note(unit.proofs)

    def finish(
        self,
        storage: NEOStorage,
        metadata: Any,
        prepared: PreparedTransaction,
        callback: Callable[[bytes], object],
    ) -> bytes:
        """Commit a prepared transaction. Return its tid, or if it is left to the resolver, its ttid."""
        unit = self._units.get(metadata)
        if unit is None:
            return prepared.finish(callback)
        try:
            if storage is self._coordinator:
                return unit.decide(partial(prepared.finish, callback))
            unit.check_decided()
            return self._commit(unit, storage, prepared, callback)
        finally:
            if prepared.ended:
                self._ended(unit, storage, metadata)

    def _commit(
        self,
        unit: Unit,
        storage: NEOStorage,
        prepared: PreparedTransaction,
        callback: Callable[[bytes], object],
    ) -> bytes:
        prepared.keep()
        try:
            return prepared.finish(callback)
        except StorageError as e:
            unit.leave(storage.getName(), e)
            prepared.hide()
            return prepared.ttid
        except BaseException as e:
            unit.leave(storage.getName(), e)  # from outside, or of the callback
            raise

    def _ended(self, unit: Unit, storage: NEOStorage, metadata: Any) -> None:
        self._units.pop(metadata, None)
        unit.end(storage.getName())

    def abort(
        self, storage: NEOStorage, metadata: Any, begun: ClientTransaction | PreparedTransaction
    ) -> None:
        """Abort a transaction, unless its coordinator has decided, or may have decided, to commit."""
        # Forget the unit first: if an exception interrupts the rest, the storage ends the transaction
        # without this coordination.
        unit = self._units.pop(metadata, None)
        if unit is None or unit.abort():
            begun.abort()
        elif isinstance(begun, PreparedTransaction):
            begun.keep()
            if unit.state is State.COMMITTED:
                self._commit(unit, storage, begun, begun.distribute)
            else:
                unit.leave(storage.getName(), "nothing is rolled back meanwhile")
            begun.abort()
        if unit is not None:
            self._ended(unit, storage, metadata)


def join(manager: Any, participants: Iterable[Any], coordinator: Any) -> Coordination:
    """Give each transaction one outcome in all participants. ``manager``: the transaction manager of the
    sessions. A participant is a ZODB.DB on a NEO storage, a NEO storage, or a branch such as DBAPIBranch;
    the coordinator is one of the first two kinds. Call this once in a process, for all threads, before
    any transaction begins. Raise ConfigurationError.
    """
    listed = [neo_storage(p) or p for p in participants]
    decides = neo_storage(coordinator)
    if decides is None:
        raise ConfigurationError(f"the coordinator must be a NEO database, not {coordinator!r}")
    for participant in listed:
        if not isinstance(participant, NEOStorage) and not hasattr(participant, "recover"):
            raise ConfigurationError(
                f"{participant!r} is neither a NEO database nor a branch; if another storage wraps that"
                " of NEO, name the wrapped one"
            )
    names = [p.getName() if isinstance(p, NEOStorage) else p.name for p in listed]
    if decides not in listed:
        raise ConfigurationError("the coordinator must be one of the participants")
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(f"two participants are named {name!r}: rename one of them")
    storages = [p for p in listed if isinstance(p, NEOStorage)]
    for storage in storages:
        if storage.coordinated:
            raise ConfigurationError(
                f"database {storage.getName()!r} was joined before: call join once, with all databases"
            )
    coordination = Coordination(manager, decides)
    for storage in storages:
        storage.coordinate(coordination)
    return coordination


def neo_storage(participant: Any) -> NEOStorage | None:
    """Return the storage of a ZODB.DB, or the argument if it is one; None for anything else."""
    storage = getattr(participant, "storage", participant)
    return storage if isinstance(storage, NEOStorage) else None
