"""Addresses of masters that a node keeps from one start to the next: ``dynamic_master_list``."""

from __future__ import annotations

import logging

from neo.node.config import ConfigError
from neo.protocol.packets import Address
from neo.topology.masters import MasterListFile

logger = logging.getLogger("neo.node")


class RememberedMasters:
    """``path``: the setting; None keeps nothing. Raises ConfigError if the file is broken."""

    def __init__(self, path: str | None) -> None:
        self._file = MasterListFile(path) if path else None
        try:
            #: Loaded, or saved last.
            self.addresses = self._file.load() if self._file else []
        except (OSError, ValueError) as e:
            raise ConfigError(f"setting 'dynamic_master_list': {e}") from None

    def save(self, addresses: list[Address]) -> None:
        """Write the file if the addresses changed. A failure is only logged."""
        if addresses == self.addresses:
            return
        self.addresses = list(addresses)
        if self._file is not None:
            try:
                self._file.save(addresses)
            except OSError as e:
                logger.error("the list of masters cannot be saved, it is kept in memory: %s", e)
