"""The file of those who may sign in on the web page: a name and a hash of its password on each line.

The hash is scrypt (RFC 7914) of Python's library, with its parameters and its salt::

    ada:scrypt:15:8:1:SALT:HASH

``neoctl password`` writes it.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from base64 import b64decode, b64encode
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from neo.node.passwords import check_private

#: Cost of a new hash: 32 MiB and a tenth of a second.
LOG_N, R, P = 15, 8, 1
#: Bounds of the parameters in a file, and so of what an attempt costs: 128 MiB.
LOG_N_MAX, R_MAX, P_MAX = 17, 8, 4
SALT_BYTES = 16
HASH_BYTES = 32
#: Bounds of a password, in characters. Whoever has got the file can guess without the bounds of attempts.
PASSWORD_MIN = 12
PASSWORD_MAX = 200
#: Bound of the file: it is read for each attempt.
FILE_MAX = 64 * 1024

NAME = re.compile(r"[A-Za-z0-9][\w.@-]{0,63}", re.ASCII)


class Hash(NamedTuple):
    log_n: int
    r: int
    p: int
    salt: bytes
    hash: bytes

    def matches(self, password: str) -> bool:
        return hmac.compare_digest(self.hash, _scrypt(password, self.log_n, self.r, self.p, self.salt))

    def __str__(self) -> str:
        words = [b64encode(part).decode() for part in (self.salt, self.hash)]
        return ":".join(["scrypt", str(self.log_n), str(self.r), str(self.p), *words])


def _scrypt(password: str, log_n: int, r: int, p: int, salt: bytes) -> bytes:
    n, text = 1 << log_n, password.encode("utf-8", "surrogatepass")
    return hashlib.scrypt(text, salt=salt, n=n, r=r, p=p, maxmem=256 * n * r, dklen=HASH_BYTES)


def hash_password(password: str) -> Hash:
    """Return a new hash. Raise ValueError if the password is too short or too long."""
    if not PASSWORD_MIN <= len(password) <= PASSWORD_MAX:
        raise ValueError(f"a password has {PASSWORD_MIN} to {PASSWORD_MAX} characters")
    salt = secrets.token_bytes(SALT_BYTES)
    return Hash(LOG_N, R, P, salt, _scrypt(password, LOG_N, R, P, salt))


def check_name(name: str) -> None:
    """Raise ValueError if nobody can have this name."""
    if not NAME.fullmatch(name):
        raise ValueError(
            f"{name!r} is no name: write up to 64 letters, digits, '.', '_', '-' and '@', the first a"
            " letter or digit"
        )


#: Of a name that is not in the file: an attempt with it takes as long as with another.
NOBODY = Hash(LOG_N, R, P, bytes(SALT_BYTES), bytes(HASH_BYTES))


class Accounts:
    """``path``: of the file. It is read each time, so that a change counts at once. May be called by any
    thread."""

    def __init__(self, path: str) -> None:
        self._path = path
        #: One hash at a time: its memory is bounded, however many browsers try.
        self._computing = Lock()

    def read(self) -> dict[str, Hash]:
        """Return the hashes by name. Raise ValueError if the file cannot be read, is readable for other
        users, or has other lines."""
        try:
            check_private(self._path, f"file {self._path!r} has hashes of passwords")
            with open(self._path, encoding="utf-8") as file:
                text = file.read(FILE_MAX + 1)
        except OSError as e:
            raise ValueError(
                f"file of passwords {self._path!r} cannot be read: {e.strerror}; make it with: neoctl"
                f" password {self._path} NAME"
            ) from None
        except UnicodeDecodeError:
            raise ValueError(f"file of passwords {self._path!r} is no text") from None
        if len(text) > FILE_MAX:
            raise ValueError(f"file of passwords {self._path!r} has more than {FILE_MAX} bytes")
        return dict(self._parse(n, line) for n, line in enumerate(text.splitlines(), 1) if line.strip())

    def _parse(self, number: int, line: str) -> tuple[str, Hash]:
        with suppress(ValueError):
            name, kind, *numbers, salt, found = line.strip().split(":")
            log_n, r, p = map(int, numbers)
            hash = Hash(log_n, r, p, b64decode(salt, validate=True), b64decode(found, validate=True))
            bounded = 0 < log_n <= LOG_N_MAX and 0 < r <= R_MAX and 0 < p <= P_MAX
            whole = len(hash.salt) >= SALT_BYTES and len(hash.hash) == HASH_BYTES
            if kind == "scrypt" and NAME.fullmatch(name) and bounded and whole:
                return name, hash
        raise ValueError(
            f"file of passwords {self._path!r}, line {number}: not what 'neoctl password' writes"
        )

    def verify(self, name: str, password: str) -> Hash | None:
        """Return the hash of a name if the password is its, else None. Raise ValueError as read does."""
        accounts = self.read()
        with self._computing:
            matches = accounts.get(name, NOBODY).matches(password)
        return accounts[name] if matches and name in accounts else None

    def still(self, name: str, hash: Hash) -> bool:
        """Return whether the file has this name with this hash."""
        try:
            return self.read().get(name) == hash
        except ValueError:
            return False

    def set(self, name: str, hash: Hash) -> None:
        """Write a name and its hash into the file, which is made if there is none. Raise OSError,
        ValueError.

        A new file of root is for the group of its folder, too: that of the nodes.
        """
        check_name(name)
        path = Path(self._path)
        accounts = {**(self.read() if path.exists() else {}), name: hash}
        owner = path.stat() if path.exists() else None
        new = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with open(file, "w", encoding="utf-8") as output:
                if owner is not None:
                    os.fchown(file, owner.st_uid, owner.st_gid)
                    os.fchmod(file, owner.st_mode & 0o777)
                elif os.geteuid() == 0:
                    os.fchown(file, 0, path.absolute().parent.stat().st_gid)
                    os.fchmod(file, 0o640)
                output.writelines(f"{each}:{found}\n" for each, found in accounts.items())
                output.flush()
                os.fsync(file)
            new.replace(path)
        finally:
            new.unlink(missing_ok=True)
