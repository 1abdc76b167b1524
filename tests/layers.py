"""The layers of the architecture: who may import whom, and who touches the world."""

from __future__ import annotations

#: What each package may import of the project, besides itself. The longest prefix counts.
MAY_IMPORT: dict[str, set[str]] = {
    "neo": set(),
    "neo.schema": set(),
    "neo.protocol": set(),
    "neo.topology": {"neo.protocol"},
    "neo.net": {"neo.protocol"},
    "neo.node": {"neo.protocol", "neo.topology", "neo.net"},
    # The replicated log knows nothing of NEO.
    "neo.transactor": set(),
    # Nor do operations in steps.
    "neo.operations": set(),
    # Files of copies: what storage nodes write and read.
    "neo.archive": {"neo.protocol"},
    "neo.master": {
        *("neo.protocol", "neo.topology", "neo.net", "neo.node"),
        *("neo.transactor", "neo.operations"),
    },
    "neo.storage": {
        *("neo.protocol", "neo.topology", "neo.net", "neo.node"),
        *("neo.schema", "neo.operations", "neo.archive"),
    },
    "neo.admin": {"neo.protocol", "neo.topology", "neo.net", "neo.node"},
    # The command: the web page executes the verbs of neoctl.
    "neo.admin.__main__": {"neo.protocol", "neo.topology", "neo.net", "neo.node", "neo.admin", "neoctl"},
    # It serves threads, without an event loop.
    "neo.client": {"neo.protocol", "neo.topology", "neo.net"},
    # All nodes of a folder, and the client, in one process.
    "neo.embedded": {
        *("neo.protocol", "neo.topology", "neo.net", "neo.node", "neo.master", "neo.storage"),
        *("neo.client", "neo.simple"),
    },
    "neoctl": {"neo.protocol", "neo.net", "neo.node", "neo.admin", "neo.archive"},
    # The nodes of a machine in one process.
    "neo.server": {
        *("neo.protocol", "neo.topology", "neo.net", "neo.node"),
        *("neo.master", "neo.storage", "neo.admin"),
    },
    "neo.simple": {"neo.protocol", "neo.topology", "neo.net", "neo.node", "neo.client", "neoctl"},
    "neo.migrate": {"neo.protocol", "neo.client"},
    # Records read without their classes: knows ZODB's format and nothing of the cluster.
    "neo.codec": set(),
    "neo.spark": {"neo.protocol", "neo.client", "neo.codec"},
    "pyspark_neo": {"neo.spark"},
    "neo.export": {"neo.protocol", "neo.client", "neo.codec", "neo.migrate", "neo.spark"},
    "examples": {
        *("neo.protocol", "neo.client", "neo.simple", "neo.migrate", "neo.spark", "neo.codec", "neoctl"),
    },
}

#: Modules that touch the world: none of them in a core, which is given what it needs.
WORLD = {
    *("MySQLdb", "asyncio", "concurrent", "fcntl", "multiprocessing", "os", "random", "secrets"),
    *("select", "signal", "smtplib", "socket", "sqlite3", "ssl", "subprocess", "threading"),
    *("opentelemetry", "time", "uvloop"),
}
#: Implementations of hosts, and command lines, which may.
HOSTS = (
    "examples",
    *("neo.admin.http", "neo.admin.page.access", "neo.admin.page.accounts", "neo.admin.page.sessions"),
    *("neo.admin.page.site", "neo.admin.smtp"),
    *("neo.archive.disk", "neo.archive.folder", "neo.archive.reader"),
    *("neo.archive.room", "neo.archive.verify", "neo.archive.writer"),
    "neo.client",
    "neo.embedded",
    "neo.export",
    "neo.master.election.folder",
    "neo.migrate",
    "neo.net.sockets",
    "neo.net.transport",
    *("neo.node.config", "neo.node.http", "neo.node.lockfile", "neo.node.pages"),
    "neo.node.log",
    *("neo.node.node_host", "neo.node.otlp", "neo.node.passwords", "neo.node.process"),
    "neo.node.supervisor",
    "neo.simple",
    "neo.storage.backend",
    "neo.storage.blobs.files",
    "neo.storage.blobs.folder",
    "neo.storage.blobs.keeping",
    "neo.storage.operations.worker",
    "neo.transactor.client",
    "neo.transactor.daemon",
    "neo.transactor.disk",
    "neo.transactor.example",
    "neo.transactor.mlog",
    "neo.transactor.sockets",
    "neo.transactor.store",
    "neo.transactor.tlog",
    "neoctl",
)
#: Single names that others may use: types and computations without effect on the world.
EXCEPTIONS = {
    "neo.codec.stubs": {"threading.local"},  # what one call leaves to the next on the same stack
    "neo.net.tls": {"ssl", "threading.Lock"},  # TLS in memory, shared by two threads
    "neo.node.host": {"random.Random"},  # the type of what it gives
}
