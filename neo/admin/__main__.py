"""``neoadmin``: the command."""

from __future__ import annotations

import argparse
import logging
import sys

from neo.admin.core import AdminCore
from neo.node.config import ConfigError, load, role_options
from neo.node.process import ProcessShell
from neo.node.process import main as run
from neo.protocol.packets import Address
from neo.topology.masters import MasterCandidates, MasterListFile

logger = logging.getLogger("neo.admin")

DESCRIPTION = "Admin node of a NEO cluster: neoctl talks to it."
OPTIONS = role_options()


def load_settings(argv: list[str]) -> argparse.Namespace:
    """Raises ConfigError."""
    settings = load("admin", DESCRIPTION, OPTIONS, argv)
    if settings.bind is None:
        raise ConfigError("setting 'bind' is missing: the address where neoctl finds this node")
    return settings


def make_core(shell: ProcessShell) -> AdminCore:
    """Raises ConfigError when the list of masters cannot be used."""
    settings = shell.settings
    masters = list(settings.masters)
    path = settings.dynamic_master_list
    try:
        file = MasterListFile(path) if path else None
        if file is not None:
            masters += file.load()
        candidates = MasterCandidates(masters)
    except (OSError, ValueError) as e:
        raise ConfigError(f"masters: {e}") from None

    def remember(masters: list[Address]) -> None:
        if file is not None:
            try:
                file.save(masters)
            except OSError as e:
                logger.error("the list of masters cannot be kept in %s: %s", path, e)

    assert shell.bind is not None
    return AdminCore(shell, settings.cluster, candidates, shell.bind, remember)


def main() -> int:
    return run("admin", load_settings, make_core)


if __name__ == "__main__":
    sys.exit(main())
