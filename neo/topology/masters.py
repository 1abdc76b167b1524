"""Order in which masters are tried to find the primary (specification, *Joining a Cluster*)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from neo.protocol.packets import Address, NotPrimaryMaster

#: A silent master is skipped this often. The other masters are tried for longer than an election takes.
PASSED_OVER = 8


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
