"""Mail by SMTP, in a thread of its own: a mail server may take its time."""

from __future__ import annotations

import smtplib
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from email.message import EmailMessage

from neo.protocol.packets import Address

#: A mail server that does not answer in this time is given up.
TIMEOUT_SECONDS = 30.0

FromThread = Callable[..., object]


@dataclass(frozen=True)
class Smtp:
    """``login``: (user, password). One mail at a time is sent: see :mod:`neo.admin.alerts`."""

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
        """The reason if it failed. Runs in the thread."""
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
        except Exception as e:  # noqa: BLE001 - who does not hear of it would send no later mail
            return f"{host}:{port}: {str(e) or repr(e)}"
        return None
