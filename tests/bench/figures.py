"""The measured figures, with unit, direction and the floor with which each is compared.

One table, read by the report (order of rows, ratios) and by the runner (which figures a failed
workload leaves without a value).
"""

from typing import Literal, NamedTuple

Floor = Literal["echo_us", "fdatasync_us"]


class Kind(NamedTuple):
    """One row of the table. `floor` names the least cost on this machine: a round trip of 300 bytes for
    a load, one fdatasync for a commit. None where neither is a fair comparison."""

    name: str
    workload: str
    title: str
    unit: str
    floor: Floor | None = None


class Figure(NamedTuple):
    """One measured value. `partial`: the time limit ended the work before its full size."""

    name: str
    value: float
    partial: bool = False


class Memory(NamedTuple):
    """Peak memory of each process above that before the work, in MB (10**6 bytes)."""

    work: str
    processes: dict[str, float]
    partial: bool = False


KINDS = (
    Kind("import_per_s", "import", "import of {imported:,} transactions", "txn/s"),
    Kind("iteration_per_s", "import", "full iteration of what was imported", "txn/s"),
    Kind("cold_load_p50", "cold_load", "cold load p50", "µs", "echo_us"),
    Kind("cold_load_p99", "cold_load", "cold load p99", "µs", "echo_us"),
    Kind("loads_1", "loads", "cold loads, 1 thread", "/s", "echo_us"),
    Kind("loads_many", "loads", "cold loads, {threads} threads", "/s", "echo_us"),
    Kind("prefetch_ms", "prefetch", "prefetch and read {prefetched:,} objects", "ms"),
    Kind("commit_p50", "commit", "commit of one object p50", "µs", "fdatasync_us"),
    Kind("commit_p99", "commit", "commit of one object p99", "µs", "fdatasync_us"),
    Kind("undo_p50", "undo", "undo of a transaction of one object p50", "µs", "fdatasync_us"),
    Kind("undo_log_p50", "undo", "undoLog of {undo_log} p50", "µs", "echo_us"),
    Kind("disjoint_1", "disjoint", "commits, disjoint objects, 1 client", "/s", "fdatasync_us"),
    Kind(
        "disjoint_many",
        "disjoint",
        "commits, disjoint objects, {clients} clients",
        "/s",
        "fdatasync_us",
    ),
    Kind("counter_1", "counter", "commits, one counter, 1 client", "/s", "fdatasync_us"),
    Kind(
        "counter_many", "counter", "commits, one counter, {clients} clients", "/s", "fdatasync_us"
    ),
    Kind(
        "big_transaction_mb_s",
        "big_transaction",
        "one transaction of {stored:,} objects of 1 KiB",
        "MB/s",
    ),
    Kind("big_transaction_client_mb", "big_transaction", "… client memory above idle", "MB"),
    Kind(
        "big_transaction_server_mb", "big_transaction", "… memory above idle, largest server", "MB"
    ),
    Kind("big_object_write_mb_s", "big_object", "one object of {big_mb} MB, write", "MB/s"),
    Kind("big_object_write_client_mb", "big_object", "… client memory above idle", "MB"),
    Kind("big_object_write_server_mb", "big_object", "… memory above idle, largest server", "MB"),
    Kind("big_object_read_mb_s", "big_object", "one object of {big_mb} MB, read", "MB/s"),
    Kind("big_object_read_client_mb", "big_object", "… client memory above idle", "MB"),
    Kind("big_object_read_server_mb", "big_object", "… memory above idle, largest server", "MB"),
)
