"""The resolver: settle what a crash of the application left prepared.

It asks the coordinator's database, whose outcome is the decision, and does the same everywhere else. It
may run at any time, beside the application, several times at once, and die anywhere: each step can be
repeated, and none depends on what an earlier run remembered.

Rules
-----
* Only transactions for which the given coordinator decides are touched: the xid says so.
* A transaction is rolled back in the coordinator first. From then on it cannot be committed, and not even
  be prepared there (specification 24.13). If that is refused, it was committed meanwhile.
* An xid that the coordinator does not know is rolled back only if it is the right database: it has the
  transaction that was its last one when the xid was given (specification 24.50).
* What is prepared in the coordinator for less than ``older_than`` is left alone: the application may be
  at work.
* What to do in the other databases is read from them after the outcome was read. An application that
  finished meanwhile, and forgot the outcome, left nothing prepared there.
* The outcome of a commit is forgotten when a list that is read after it shows that none of the
  transaction's databases holds it any more, and each of them proves that it has committed it
  (specification 24.43). All of them must be given. The coordinator forgets first, because the others'
  outcomes prove. A rollback is never forgotten here: it keeps a slow application from preparing.
* What a database did against the decision is reported until an operator acknowledges it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from neo.client.commit.prepared import COMMITTED, PREPARED, ROLLED_BACK, ROLLING_BACK
from neo.client.errors import ConfigurationError, NEOStorageError, RefusedError
from neo.client.xa.branches import Branch, NEOBranch, witness, xid_prefix
from neo.client.xa.evidence import Fate, Proving
from neo.client.xa.joining import neo_storage
from neo.protocol.ids import format_xid, time_from_tid

#: Seconds for which a transaction may be prepared before the resolver takes its application for dead.
OLDER_THAN = 60.0
#: Seconds for which the master remembers outcomes (specification 24.15).
REMEMBERED = 30 * 86400.0
#: Seconds for which the resolver warns of exchanged coordinators after a transaction showed them.
WARNED = 86400.0
#: Commits of the coordinator that one run examines, to forget their outcomes.
FORGOTTEN_MAX = 1000

Held = dict[bytes, float | None]
Holders = dict[str, float | None]


class Settled(NamedTuple):
    """What the resolver did. ``xid``: None if a whole database is concerned. ``failed``: whether the
    resolver must run again."""

    xid: bytes | None
    words: str
    failed: bool = False

    def __str__(self) -> str:
        return self.words if self.xid is None else f"{format_xid(self.xid)}: {self.words}"


def resolve(
    coordinator: Any,
    branches: Iterable[Any],
    older_than: float = OLDER_THAN,
    dry_run: bool = False,
    now: Callable[[], float] = time.time,
    acknowledged: Iterable[str] = (),
) -> list[Settled]:
    """Settle all transactions of this package that are prepared. Return what was done, in words.

    ``coordinator`` and ``branches`` are what :func:`join` takes; the coordinator may be one of the
    branches. ``older_than``: seconds. ``dry_run``: change nothing, and say what would be done. ``now``:
    the clock. ``acknowledged``: xids, as they are printed, of contradictions that the operator has seen:
    they are forgotten. Raise ConfigurationError, and the errors of the coordinator's cluster.
    """
    storage = neo_storage(coordinator)
    if storage is None:
        raise ConfigurationError(f"the coordinator must be a NEO database, not {coordinator!r}")
    others: dict[str, Branch] = {}
    for participant in branches:
        its_storage = neo_storage(participant)
        branch = participant if its_storage is None else NEOBranch(its_storage)
        if branch.name == storage.getName() and its_storage is not None:
            continue  # the coordinator
        if branch.name in (storage.getName(), *others):
            raise ConfigurationError(f"two databases are named {branch.name!r}: give each one once")
        others[branch.name] = branch
    return Resolver(NEOBranch(storage), others, older_than, dry_run, now, acknowledged).run()


class Resolver:
    """One run. ``others``: the databases besides the coordinator's, by name."""

    def __init__(
        self,
        coordinator: NEOBranch,
        others: dict[str, Branch],
        older_than: float,
        dry_run: bool,
        now: Callable[[], float],
        acknowledged: Iterable[str] = (),
    ) -> None:
        self._coordinator = coordinator
        self._others = others
        self._older_than = older_than
        self._dry_run = dry_run
        self._now = now
        self._acknowledged = frozenset(acknowledged)
        # Acknowledged xids that were not found.
        self._unknown = set(self._acknowledged)
        self._done: list[Settled] = []
        # For each undecided transaction, by name of a database: the proof that the database had prepared
        # it.
        self._proofs: dict[bytes, dict[str, str]] = {}

    def run(self) -> list[Settled]:
        undecided = self._coordinator.undecided()
        decided = {xid: since for xid, (since, _) in undecided.items()}
        self._proofs = {xid: proofs for xid, (_, proofs) in undecided.items()}
        candidates: dict[bytes, None] = dict.fromkeys(decided)
        for held in self._held(report=True).values():
            candidates |= dict.fromkeys(held)
        ours = xid_prefix(self._coordinator.name)
        states = {xid: self._state(xid) for xid in candidates if xid.startswith(ours)}
        held_now = self._held()
        for xid, state in states.items():
            holders = {name: held[xid] for name, held in held_now.items() if xid in held}
            self._settle(xid, state, decided.get(xid), holders)
        for xid in candidates:
            if xid not in states:
                self._say(xid, "left alone: another coordinator decides about it")
        self._warn_of_exchanged()
        self._forget()
        self._contradicted()
        for text in sorted(self._unknown):
            self._say(None, f"{text}: there is no contradiction to acknowledge", failed=True)
        return self._done

    def _say(self, xid: bytes | None, words: str, failed: bool = False) -> None:
        self._done.append(Settled(xid, words, failed))

    def _state(self, xid: bytes) -> str | None:
        outcome = self._coordinator.outcome(xid)
        return None if outcome is None else outcome.state

    def _held(self, report: bool = False) -> dict[str, Held]:
        """Return what is prepared now in each database that answers. ``report`` the others."""
        found: dict[str, Held] = {}
        for name, branch in self._others.items():
            try:
                found[name] = branch.recover()
            except Exception as e:  # noqa: BLE001 - of any driver; it is reported
                if report:
                    self._say(None, f"database {name!r} cannot be asked: {e}", failed=True)
        return found

    def _settle(self, xid: bytes, state: str | None, since: float | None, holders: Holders) -> None:
        if state is None and not holders:
            return  # the application has finished meanwhile
        if state == PREPARED:
            # Without a time, it was prepared after the list was read.
            age = 0.0 if since is None else max(0.0, self._now() - since)
            if age < self._older_than:
                self._say(xid, f"left alone: prepared {age:.0f} s ago in {self._names(holders)}")
                return
        if state in (None, PREPARED, ROLLING_BACK):
            state = self._give_up(xid, state, since, holders)
        if state == COMMITTED:
            self._tell(xid, holders, "commit", "committed")
        elif state == ROLLED_BACK:
            self._tell(xid, holders, "rollback", "rolled back")
        elif state is not None:
            self._say(xid, f"left alone: {self._coordinator.name} is {state} it")

    def _names(self, holders: Holders) -> str:
        return ", ".join([self._coordinator.name, *holders])

    def _warn_of_exchanged(self) -> None:
        """Report databases that decide for this coordinator, and it for them."""
        known = self._coordinator.known(self._now() - WARNED)
        for name, branch in self._others.items():
            prefix = xid_prefix(name)
            if isinstance(branch, NEOBranch) and any(xid.startswith(prefix) for xid in known):
                self._say(
                    None,
                    f"warning: {name} decides about transactions in {self._coordinator.name}, and is"
                    " given as its participant: applications that share databases need the same"
                    " coordinator, otherwise their transactions can wait for each other",
                )

    def _forgotten(self, xid: bytes, holders: Holders) -> bool:
        """Return whether the coordinator has committed a transaction whose outcome it does not
        remember."""
        times = [since for since in holders.values() if since is not None]
        if (first := witness(xid)) is not None:
            since = time_from_tid(first)
        else:
            since = min(times) if len(times) == len(holders) else self._now() - REMEMBERED
        return self._coordinator.has_committed(xid, since)

    def _must_keep(self, xid: bytes, holders: Holders) -> bool:
        """Return whether a transaction stays prepared although the coordinator does not know its xid, and
        report why."""
        name, first = self._coordinator.name, witness(xid)
        if first is not None and not self._coordinator.has_transaction(first):
            words = f"{name} does not have transaction {first.hex()}, which was its last one before"
            if self._is_acknowledged(xid, words):
                return False
            self._say(
                xid,
                f"not rolled back in {', '.join(holders)}: {words}: it is another database than the"
                " coordinator, or lost transactions, or was packed; correct the address, or to roll"
                f" back: neoresolve --acknowledge {format_xid(xid)}",
                failed=True,
            )
            return True
        if self._forgotten(xid, holders):
            self._say(
                xid,
                f"not rolled back: {name} has committed it, and has forgotten that:"
                f" commit it by hand in {', '.join(holders)}",
                failed=True,
            )
            return True
        return False

    def _committed_by_hand(self, xid: bytes, since: float, holders: Holders) -> bool:
        """Report a database that has committed what the coordinator has not decided, unless that is
        acknowledged. Return whether there is one."""
        name = self._coordinator.name
        found = False
        for other, branch in self._others.items():
            if other in holders or not isinstance(branch, Proving):
                continue
            try:
                fate = branch.fate(xid, self._proofs.get(xid, {}).get(other), since)
            except Exception:  # noqa: BLE001 - it was reported when it was asked first
                continue
            words = f"not decided in {name}, but in {other} it is {fate.value}"
            if fate is Fate.COMMITTED and not self._is_acknowledged(xid, words):
                found = True
                advice = (
                    f"neoctl commit {format_xid(xid)} in {name}, or to roll back:"
                    f" neoresolve --acknowledge {format_xid(xid)}"
                )
                self._say(xid, f"contradiction: {words}; {advice}", failed=True)
        return found

    def _give_up(
        self, xid: bytes, state: str | None, since: float | None, holders: Holders
    ) -> str | None:
        """Roll back in the coordinator, which makes it certain. Return the outcome."""
        if state is None and self._must_keep(xid, holders):
            return None
        if state == PREPARED and since is not None and self._committed_by_hand(xid, since, holders):
            return None
        if self._dry_run:
            self._say(xid, f"would be rolled back in {self._names(holders)}")
            return None
        try:
            self._coordinator.rollback(xid)
        except RefusedError as e:
            state = self._state(xid)
            if state not in (COMMITTED, ROLLED_BACK):
                self._say(xid, f"not rolled back: {e}", failed=True)
                return None
            return state
        self._say(xid, f"rolled back in {self._coordinator.name}, the coordinator")
        return ROLLED_BACK

    def _tell(self, xid: bytes, holders: Holders, method: str, word: str) -> None:
        """Execute the decision in the databases that hold the transaction."""
        for name in holders:
            if self._dry_run:
                self._say(xid, f"would be {word} in {name}, as in {self._coordinator.name}")
                continue
            branch = self._others[name]
            try:
                (branch.commit if method == "commit" else branch.rollback)(xid)
            except Exception as e:  # noqa: BLE001 - of any driver; it is reported
                if self._holds(branch, xid):
                    self._say(xid, f"not {word} in {name}: {e}", failed=True)
                continue
            self._say(xid, f"{word} in {name}, as in {self._coordinator.name}")

    def _holds(self, branch: Branch, xid: bytes) -> bool:
        """Return whether a transaction may still be prepared: another process may have been faster."""
        try:
            return xid in branch.recover()
        except Exception:  # noqa: BLE001 - the first error is reported
            return True

    # -- the end ---------------------------------------------------------------------------------

    def _forget(self) -> None:
        commits = self._coordinator.commits(FORGOTTEN_MAX)
        held = self._held()
        given = {self._coordinator.name, *held}
        participants = self._coordinator.participants(commits.values())
        for xid, names in zip(commits, participants, strict=True):
            if any(xid in its for its in held.values()):
                continue
            if names is None:
                words = "committed; its outcome is kept: its databases are not known, because the history"
                advice = f"look at all of them, then: neoctl forget {format_xid(xid)}"
                self._say(xid, f"{words} does not name them any more; {advice}")
                continue
            if missing := names.keys() - given:
                words = f"committed; its outcome is kept for {', '.join(sorted(missing))}"
                self._say(xid, words)
                continue
            others = {n: p for n, p in names.items() if n != self._coordinator.name}
            proved = [
                self._proves(xid, commits[xid], name, proof) for name, proof in others.items()
            ]
            if all(proved):
                self._end(
                    xid, [self._coordinator, *(self._others[name] for name in sorted(others))]
                )

    def _end(self, xid: bytes, branches: list[Branch]) -> None:
        if self._dry_run:
            return
        try:
            for branch in branches:
                branch.forget(xid)
        except NEOStorageError as e:
            self._say(xid, f"its outcome is not forgotten yet: {e}", failed=True)

    def _proves(self, xid: bytes, tid: bytes, name: str, proof: str | None) -> bool:
        """Return whether a database has committed what the coordinator committed."""
        branch = self._others[name]
        if not isinstance(branch, Proving):
            return True
        try:
            fate = branch.fate(xid, proof, time_from_tid(tid))
        except Exception as e:  # noqa: BLE001 - of any driver; it is reported
            self._say(xid, f"committed; {name} cannot tell what became of it: {e}", failed=True)
            return False
        if fate in (Fate.COMMITTED, Fate.UNPROVEN):
            return True
        return self._contradicts(xid, Fate.COMMITTED, name, fate)

    def _contradicts(self, xid: bytes, decided: Fate, name: str, fate: Fate) -> bool:
        """Report a contradiction, unless it is acknowledged. Return whether it is."""
        words = f"{decided.value} in {self._coordinator.name}, but in {name} it is {fate.value}"
        if self._is_acknowledged(xid, words):
            return True
        advice = f"correct the data or the address, or: neoresolve --acknowledge {format_xid(xid)}"
        self._say(xid, f"contradiction: {words}; {advice}", failed=True)
        return False

    def _is_acknowledged(self, xid: bytes, words: str) -> bool:
        """Return whether the operator has acknowledged what these words say."""
        text = format_xid(xid)
        if text not in self._acknowledged:
            return False
        self._unknown.discard(text)
        self._say(xid, f"{'would be ' * self._dry_run}acknowledged: {words}")
        return True

    def _contradicted(self) -> None:
        """Report what NEO databases committed although the coordinator rolled it back."""
        rolled_back = self._coordinator.rolled_back()
        for name, branch in self._others.items():
            if not rolled_back or not isinstance(branch, NEOBranch):
                continue
            try:
                committed = branch.committed()
            except Exception:  # noqa: BLE001 - it was reported when it was asked first
                continue
            for xid in committed:
                if xid in rolled_back and self._contradicts(
                    xid, Fate.ROLLED_BACK, name, Fate.COMMITTED
                ):
                    self._end(xid, [branch])
