"""The command ``transactor``."""

from __future__ import annotations

import asyncio
import logging
import logging.handlers
import os
import sys

import uvloop

from neo.transactor.client import TransactorError, ask_admin
from neo.transactor.config import Config, ConfigError, load, parse_options
from neo.transactor.daemon import Daemon
from neo.transactor.disk import StoreError

FORMAT = "%(asctime)s %(levelname)-8s transactor: %(message)s"
SYSLOG = "syslog:"
SYSLOG_SOCKET = "/dev/log"


class LogFile(logging.handlers.WatchedFileHandler):
    """A log file that is opened again after it was renamed."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record; to stderr while the file cannot be opened."""
        try:
            super().emit(record)
        except OSError:
            self.handleError(record)


def configure_logging(config: Config, foreground: bool, socket: str = SYSLOG_SOCKET) -> None:
    """Log to syslog (``syslog:FACILITY``), to a file, or to stderr. Raises ConfigError."""
    target = config.log or ("" if foreground else SYSLOG + "daemon")
    handler: logging.Handler
    try:
        if target.startswith(SYSLOG):
            handlers = logging.handlers
            facility = target.removeprefix(SYSLOG)
            number = handlers.SysLogHandler.facility_names.get(facility)
            if number is None:
                raise ConfigError(f"setting 'log': {facility!r} is not a facility of syslog")
            handler = handlers.SysLogHandler(socket, number)
            if getattr(handler, "socktype", None) is None:  # not connected
                print(
                    f"transactor: syslog does not listen at {socket}: messages are lost until it does;"
                    " see setting 'log'",
                    file=sys.stderr,
                )
        elif target:
            handler = LogFile(target)
        else:
            handler = logging.StreamHandler()
    except OSError as e:
        raise ConfigError(f"setting 'log': {target}: {e.strerror}") from None
    short = target.startswith(SYSLOG)
    handler.setFormatter(logging.Formatter("transactor: %(message)s" if short else FORMAT))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)


def detach() -> None:
    """Continue in a child process without a terminal; the parent exits here."""
    if os.fork():
        os._exit(0)
    os.setsid()
    if os.fork():
        os._exit(0)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(null, fd)


def send_command(config: Config, command: str) -> int:
    """Send a command to the running transactor, and print the answer. Return the exit code."""
    where = config.admin if isinstance(config.admin, str) else "{}:{}".format(*config.admin)
    try:
        answer = ask_admin(config.admin, command, config.admin_secret)
    except (OSError, TransactorError) as e:
        print(f"transactor: admin port {where}: {e}", file=sys.stderr)
        return 1
    print(answer, end="")
    return 1 if answer.startswith("error: ") else 0


def main() -> int:
    """Run the command. Return the exit code."""
    options = parse_options()
    try:
        config = load(options.config)
        if options.say is not None:
            return send_command(config, options.say)
        configure_logging(config, options.nodetach)
    except ConfigError as e:
        print(f"transactor: {e}", file=sys.stderr)
        return 2
    try:
        daemon = Daemon(config, options)
    except StoreError as e:
        logging.getLogger("transactor").critical("%s", e)
        print(f"transactor: {e}", file=sys.stderr)
        return 1
    if not options.nodetach:
        detach()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            return runner.run(daemon.run())
        except StoreError as e:
            logging.getLogger("transactor").critical("%s", e)
            return 1


if __name__ == "__main__":
    sys.exit(main())
