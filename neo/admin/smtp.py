"""Mail by SMTP, in a thread of its own, because a mail server may be slow."""

from __future__ import annotations

import smtplib
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from email.message import EmailMessage

from neo.protocol.packets import Address

#: Timeout of the mail server.
TIMEOUT_SECONDS = 30.0

FromThread = Callable[..., object]


@dataclass(frozen=True)
class Smtp:
    """``login``: (user, password). :mod:`neo.admin.alerts` sends one mail at a time."""

    server: Address
    sender: str
    recipients: tuple[str, ...]
    tls: bool
    login: tuple[str, str] | None
    from_thread: FromThread

    def send(self, subject: str, text: str, sent: Callable[[str | None], None]) -> None:
        def run() -> None:
            self.from_thread(sent, self._deliver(subject, text))

        threading.Thread(target=run, name="smtp", daemon=True).start()

    def _deliver(self, subject: str, text: str) -> str | None:
        """Send the mail, and return the reason of a failure. Runs in the thread."""
        host, port = self.server
        try:
            message = EmailMessage()
            message["From"], message["To"] = self.sender, ", ".join(self.recipients)
            message["Subject"] = subject
            message.set_content(text)
            with smtplib.SMTP(host, port, timeout=TIMEOUT_SECONDS) as server:
                if self.tls:
                    server.starttls(context=ssl.create_default_context())
                if self.login is not None:
                    server.login(*self.login)
                server.send_message(message)
        except Exception as e:  # noqa: BLE001 - any failure must be reported, or no later mail is sent
            return f"{host}:{port}: {str(e) or repr(e)}"
        return None
