"""The verb that makes the file of those who may sign in on the web page."""

from __future__ import annotations

import getpass
import sys

from neo.admin.page.accounts import PASSWORD_MAX, Accounts, check_name, hash_password
from neoctl.verbs import Arguments, CommandError, Reply, local_verb


@local_verb("password FILE NAME", "ask for a password with which NAME signs in on the web page", 2, 2)
def password(arguments: Arguments) -> Reply:
    """Data: ``file name message``."""
    file, name = arguments.words
    try:
        check_name(name)
        Accounts(file).set(name, hash_password(_asked(name)))
    except ValueError as e:
        raise CommandError(str(e)) from None
    except OSError as e:
        raise CommandError(f"file {file!r} cannot be written: {e.strerror}") from None
    message = f"{name} may sign in with this password where the admin node has: http_passwords = {file}"
    return Reply(message, {"file": file, "name": name, "message": message})


def _asked(name: str) -> str:
    """Return the password that a person types twice, or a program writes as a line."""
    if not sys.stdin.isatty():
        return sys.stdin.readline(PASSWORD_MAX + 2).removesuffix("\n")
    try:
        first = getpass.getpass(f"Password of {name}: ")
        if getpass.getpass("Once more: ") != first:
            raise CommandError("these are two passwords: nothing is changed")
    except EOFError:
        raise CommandError("no answer: nothing is changed") from None
    return first
