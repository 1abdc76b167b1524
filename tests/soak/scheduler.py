"""Which search runs next. No IO: times are seconds since the soak began, given by the caller.

Rules:

* The next round is one of the search that is furthest behind its share: the one with the least time per
  share. A running round counts with what it is expected to take.
* No round is started that would not end before the soak does. It is expected to take as long as the
  longest round of its search so far.
* A search that failed ``FAILURES_MAX`` times in a row gets no more rounds. Something is broken that it
  would find again and again, in seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.soak.search import Search

FAILURES_MAX = 3
#: A round costs at least this, so that a search whose rounds take no time does not run alone.
LEAST_SECONDS = 1.0


@dataclass(frozen=True)
class Round:
    """A round that was started. ``number``: among the rounds of its search, from 0."""

    search: Search
    number: int
    started: float

    @property
    def name(self) -> str:
        return f"{self.search.name}-{self.number}"


@dataclass
class _Account:
    """What a search has had. ``longest``: seconds of its longest complete round."""

    rounds: int = 0
    used: float = 0.0
    longest: float | None = None
    failures: int = 0


class Scheduler:
    """``seconds``: of the soak. ``jobs``: rounds at once. ``rounds``: at most so many of each search."""

    def __init__(
        self, searches: Sequence[Search], seconds: float, jobs: int, rounds: int | None = None
    ) -> None:
        self._accounts = {search: _Account() for search in searches}
        self._seconds = seconds
        self._jobs = jobs
        self._rounds = rounds
        self.running: list[Round] = []

    def next(self, now: float) -> Round | None:
        """Return a round to start now. Return None if no slot is free, or if no search has a round that
        may begin now."""
        if len(self.running) >= self._jobs:
            return None
        able = [search for search in self._accounts if self._may_begin(search, now)]
        if not able:
            return None
        search = min(able, key=lambda search: self._time(search, now) / search.share)
        account = self._accounts[search]
        begun = Round(search, account.rounds, now)
        account.rounds += 1
        self.running.append(begun)
        return begun

    def ended(self, done: Round, now: float, failed: bool, complete: bool = True) -> None:
        """Account for a round. ``complete``: it ended by itself, so that its duration is a measure."""
        self.running.remove(done)
        account, seconds = self._accounts[done.search], now - done.started
        account.used += max(seconds, LEAST_SECONDS)
        account.failures = account.failures + 1 if failed else 0
        if complete:
            account.longest = max(seconds, account.longest or 0.0)

    def overdue(self, now: float) -> list[Round]:
        """Return the rounds that take longer than their limit."""
        return [one for one in self.running if now - one.started > one.search.limit]

    def over(self, now: float) -> bool:
        """Return whether the time is over, or nothing runs and nothing can begin any more."""
        return now >= self._seconds or not (self.running or self._waiting(now))

    def given_up(self) -> list[Search]:
        """Return the searches that failed too often in a row."""
        return [s for s, account in self._accounts.items() if account.failures >= FAILURES_MAX]

    def _waiting(self, now: float) -> bool:
        """Return whether a search can have a round, now or when its part of the soak begins."""
        later = (max(now, search.begin * self._seconds) for search in self._accounts)
        return any(map(self._may_begin, self._accounts, later))

    def _may_begin(self, search: Search, now: float) -> bool:
        account = self._accounts[search]
        most = [number for number in (self._rounds, search.rounds) if number is not None]
        return (
            self._seconds >= search.least
            and now >= search.begin * self._seconds
            and now + self._expected(search) <= self._seconds
            and account.failures < FAILURES_MAX
            and all(account.rounds < number for number in most)
        )

    def _expected(self, search: Search) -> float:
        longest = self._accounts[search].longest
        return search.seconds if longest is None else longest

    def _time(self, search: Search, now: float) -> float:
        """Return the seconds that a search has had, and will have had when its rounds have ended."""
        rounds = (one for one in self.running if one.search == search)
        return self._accounts[search].used + sum(
            max(now - one.started, self._expected(search)) for one in rounds
        )
