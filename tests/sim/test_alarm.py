"""Nodes that log internal errors, or errors of their peers, end the run."""

from __future__ import annotations

import logging

import pytest

from neo.storage.backend.api import BackendFailure
from tests.simulator.alarm import alarmed
from tests.simulator.world import Violation, World

logger = logging.getLogger("neo.net")


def run_logging(error: Exception | None, message: str = "failure while serving %r") -> World:
    world = World(0)

    def complain() -> None:
        try:
            if error is not None:
                raise error
        except Exception:
            logger.exception(message, "somebody")
        else:
            logger.error(message, "somebody", "wrong")

    world.call_later(0.0, complain)
    with alarmed(world):
        world.run(1.0)
    return world


def test_an_error_that_a_node_survives_ends_the_run() -> None:
    with pytest.raises(ZeroDivisionError):
        run_logging(ZeroDivisionError("in a handler"))


def test_a_peer_that_breaks_the_protocol_ends_the_run() -> None:
    with pytest.raises(Violation, match="broke the protocol: wrong"):
        run_logging(None, "%r broke the protocol: %s")


def test_a_failing_disk_is_no_error_of_the_node() -> None:
    assert run_logging(BackendFailure("disk full")).now == 1.0


def test_other_complaints_are_not_errors() -> None:
    assert run_logging(None, "%r may not join: %s").now == 1.0


def test_the_log_is_as_before_afterwards() -> None:
    root = logging.getLogger("neo")
    before = root.level, root.propagate, list(root.handlers)
    with alarmed(World(0)):
        assert (root.level, root.propagate, list(root.handlers)) != before
    assert (root.level, root.propagate, list(root.handlers)) == before
