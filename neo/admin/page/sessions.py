"""Who is signed in on the web page, and who tries to be. Methods may be called by any thread."""

from __future__ import annotations

import hashlib
import secrets
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock

from neo.admin.page.accounts import Hash

#: A session ends this long after its last command, and this long after its begin.
IDLE_SECONDS = 30 * 60.0
LIFE_SECONDS = 8 * 3600.0
#: Bound of sessions, of all names: another one ends the oldest.
SESSIONS_MAX = 16
#: Attempts to sign in that failed or are being made, in this time: of one address, and of all.
ATTEMPT_SECONDS = 300.0
ATTEMPTS_MAX = 5
ALL_ATTEMPTS_MAX = 20
TOKEN_BYTES = 32

#: Seconds of a clock that never jumps.
Clock = Callable[[], float]


@dataclass
class Session:
    """``token``: what each command must repeat, because a browser adds the cookie to requests that
    another site makes. ``used``: time of the last command."""

    name: str
    hash: Hash
    token: str
    began: float
    used: float


class Sessions:
    """Sessions by the hash of their cookie, so that the time of a look-up tells nothing about others."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = Lock()
        self._sessions: dict[bytes, Session] = {}

    def begin(self, name: str, hash: Hash) -> tuple[str, Session]:
        """Return the cookie of a new session, and the session."""
        cookie, now = secrets.token_urlsafe(TOKEN_BYTES), self._clock()
        session = Session(name, hash, secrets.token_urlsafe(TOKEN_BYTES), now, now)
        with self._lock:
            self._expire()
            while len(self._sessions) >= SESSIONS_MAX:
                del self._sessions[next(iter(self._sessions))]
            self._sessions[_key(cookie)] = session
        return cookie, session

    def find(self, cookie: str) -> Session | None:
        """Return the session of a cookie, None if there is none any more."""
        with self._lock:
            self._expire()
            return self._sessions.get(_key(cookie))

    def touch(self, session: Session) -> None:
        """Note a command of a session."""
        session.used = self._clock()

    def end(self, cookie: str) -> None:
        """Idempotent."""
        with self._lock:
            self._sessions.pop(_key(cookie), None)

    def _expire(self) -> None:
        now = self._clock()
        for key, session in list(self._sessions.items()):
            if now - session.used >= IDLE_SECONDS or now - session.began >= LIFE_SECONDS:
                del self._sessions[key]


def _key(cookie: str) -> bytes:
    return hashlib.sha256(cookie.encode("utf-8", "surrogatepass")).digest()


class Attempts:
    """Bounds how often a password is tried."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = Lock()
        #: When and from where, the oldest first.
        self._made: deque[tuple[float, str]] = deque()

    def admit(self, address: str) -> float:
        """Note an attempt and return 0, or return the seconds after which one is admitted."""
        with self._lock:
            now = self._clock()
            while self._made and now - self._made[0][0] >= ATTEMPT_SECONDS:
                self._made.popleft()
            own = [at for at, other in self._made if other == address]
            waits = [own[-ATTEMPTS_MAX]] if len(own) >= ATTEMPTS_MAX else []
            if len(self._made) >= ALL_ATTEMPTS_MAX:
                waits.append(self._made[-ALL_ATTEMPTS_MAX][0])
            if waits:
                return max(waits) + ATTEMPT_SECONDS - now
            self._made.append((now, address))
            return 0.0

    def forgive(self, address: str) -> None:
        """Forget the attempts of an address from which somebody has signed in."""
        with self._lock:
            self._made = deque(each for each in self._made if each[1] != address)
