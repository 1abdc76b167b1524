"""`python -m tests.bench`: measure NEO and its peers on this machine, in one run."""

import sys

from tests.bench.command import command
from tests.bench.figures import KINDS
from tests.bench.runner import Suite
from tests.bench.systems import SYSTEMS
from tests.bench.workloads import WORKLOADS


def main(arguments: list[str] | None = None) -> int:
    """Run and print the tables. Return 1 if a figure of NEO failed; a failure of another system is a
    result."""
    return command("python -m tests.bench", __doc__, SYSTEMS, Suite(WORKLOADS, KINDS), arguments)


if __name__ == "__main__":
    sys.exit(main())
