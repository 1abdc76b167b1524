"""Order in which masters are tried to find the primary (specification 4.35 to 4.41)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from neo.protocol.packets import Address, NotPrimaryMaster

#: A silent master is skipped this often. The other masters are tried for longer than an election takes.
PASSED_OVER = 8
#: Pause before the same master is tried again, so that a cluster without a primary is not flooded
#: (specification 2.33).
RETRY_SECONDS = 1.0
#: First pause among several masters; it doubles.
FIRST_RETRY_SECONDS = 0.05


class MasterCandidates:
    """Known masters in turn. A master named by a secondary as the primary goes first."""

    def __init__(self, addresses: Iterable[Address]) -> None:
        self.addresses = list(dict.fromkeys(addresses))
        if not self.addresses:
            raise ValueError("no master is configured: set 'masters'")
        self._next = 0
        self._hint: Address | None = None
        #: How often a silent master is still skipped.
        self._silent: dict[Address, int] = {}

    def silent(self, address: Address) -> None:
        """Note that a master did not answer in time. It is skipped for a while."""
        self._silent[address] = PASSED_OVER

    def take(self) -> Address:
        if self._hint is not None:
            address, self._hint = self._hint, None
            if address in self.addresses:
                # If it does not answer, the others are tried next.
                self._next = self.addresses.index(address) + 1
            return address
        for _ in self.addresses:
            address = self.addresses[self._next % len(self.addresses)]
            self._next += 1
            left = self._silent.pop(address, 0)
            if not left or len(self._silent) + 1 == len(self.addresses):
                break
            if left > 1:
                self._silent[address] = left - 1
        return address

    def learn(self, message: NotPrimaryMaster) -> bool:
        """Apply the answer of a secondary master. Return True if it knows the primary."""
        self.add(message.known_master_list)
        index = message.primary
        if index is None or not 0 <= index < len(message.known_master_list):
            return False
        self._hint = message.known_master_list[index]
        return True

    def add(self, addresses: Iterable[Address]) -> bool:
        """Add unknown addresses. Return True if there was any."""
        new = [address for address in addresses if address not in self.addresses]
        self.addresses += new
        return bool(new)


class PrimarySearch:
    """One search for the primary: which master to try next, and how long to pause before."""

    def __init__(self, masters: MasterCandidates) -> None:
        self._masters = masters
        self._pause = FIRST_RETRY_SECONDS if self.several else RETRY_SECONDS
        self._hinted = self._was_hint = False

    @property
    def several(self) -> bool:
        """Whether there are other masters to try."""
        return len(self._masters.addresses) > 1

    def next(self) -> Address:
        """Return the address of the master to try now."""
        self._was_hint, self._hinted = self._hinted, False
        return self._masters.take()

    def redirected(self, message: NotPrimaryMaster) -> None:
        """Note that the master is not the primary. If it knows the primary, that one is next."""
        self._hinted = self._masters.learn(message)

    def pause(self) -> float:
        """Return the seconds to pause before the next attempt.

        A hint is followed at once, unless it follows another one, because two masters may point to each
        other. Pauses grow, but the same master is tried once a second.
        """
        if self._hinted and not self._was_hint:
            return 0.0
        pause = min(self._pause, RETRY_SECONDS / len(self._masters.addresses))
        self._pause *= 2
        return pause


class MasterListFile:
    """``dynamic_master_list``: a JSON file with the addresses of the known masters."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def load(self) -> list[Address]:
        """Return the addresses. Raises ValueError if the file is not such a list or has no folder."""
        if not self._path.exists():
            if not self._path.parent.is_dir():
                raise ValueError(f"{self._path} has no folder: create it, or correct the path")
            return []
        try:
            rows = json.loads(self._path.read_text())
            if not isinstance(rows, list):
                raise TypeError(f"it begins with {str(rows)[:20]}")
            return [(str(host), int(port)) for host, port in rows]
        except (ValueError, TypeError) as e:
            raise ValueError(
                f"{self._path} is not a list of [host, port]: {e}; remove it or mend it"
            ) from None

    def save(self, addresses: Iterable[Address]) -> None:
        """Replace the file atomically."""
        temporary = self._path.with_name(self._path.name + ".new")
        temporary.write_text(json.dumps(list(addresses)))
        temporary.replace(self._path)
