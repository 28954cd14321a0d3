"""A small mail server for tests: SMTP with STARTTLS and AUTH PLAIN, on loopback. It checks what a real
one would: the order of commands, the login, line ends, and dots at the beginning of lines."""
import base64
import email
import email.policy
import socket
import ssl
import threading


class MailServer:
    def __init__(self, certificate=None, login=None):
        """`certificate`: PEM with its key; then STARTTLS is offered, and a login only after it."""
        self.certificate, self.login = certificate, login
        self.mails, self.lines, self.refuse = [], [], []  # refuse: answers to the next RCPTs
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self):
        self.listener.close()

    def to(self, address):
        return [m for m in self.mails if m["envelope_to"] == address]

    def _serve(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._session, args=(connection,), daemon=True).start()

    def _session(self, connection):
        connection.settimeout(30)
        file = connection.makefile("rb")
        secure = logged_in = False
        sender = to = None

        def say(text):
            connection.sendall(text.encode() + b"\r\n")

        say("220 mail.test ESMTP")
        try:
            while line := file.readline():
                if not line.endswith(b"\r\n"):
                    return say("500 lines end with CRLF")
                words = line.decode().strip()
                self.lines.append(("tls " if secure else "") + words)
                verb = words.upper()
                if verb.startswith("EHLO "):
                    offers = ["mail.test", "8BITMIME"]
                    if self.certificate and not secure:
                        offers.append("STARTTLS")
                    if self.login and (secure or not self.certificate):
                        offers.append("AUTH PLAIN LOGIN")
                    for offer in offers[:-1]:
                        say("250-" + offer)
                    say("250 " + offers[-1])
                elif verb == "STARTTLS" and self.certificate and not secure:
                    say("220 go on")
                    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                    context.load_cert_chain(self.certificate)
                    connection = context.wrap_socket(connection, server_side=True)
                    file, secure = connection.makefile("rb"), True
                elif verb.startswith("AUTH PLAIN ") and self.login:
                    _, user, password = base64.b64decode(words[11:]).decode().split("\0")
                    logged_in = (user, password) == self.login
                    say("235 welcome" if logged_in else "535 wrong password")
                elif verb.startswith("MAIL FROM:<"):
                    if self.login and not logged_in:
                        say("530 log in first")
                        continue
                    sender = words[11:-1]
                    say("250 ok")
                elif verb.startswith("RCPT TO:<") and sender:
                    to = words[9:-1]
                    say(self.refuse.pop(0) if self.refuse else "250 ok")
                elif verb == "DATA" and to:
                    say("354 go on")
                    body = []
                    while (line := file.readline()) != b".\r\n":
                        if not line.endswith(b"\r\n"):
                            return say("500 lines end with CRLF")
                        body.append(line[1:] if line.startswith(b"..") else line)
                    parsed = email.message_from_bytes(
                        b"".join(body), policy=email.policy.default
                    )
                    self.mails.append(
                        {
                            "envelope_to": to,
                            "envelope_from": sender,
                            "subject": parsed["Subject"],
                            "text": parsed.get_content(),
                            "headers": dict(parsed.items()),
                            "secure": secure,
                        }
                    )
                    say("250 accepted")
                elif verb == "QUIT":
                    return say("221 bye")
                else:
                    say("503 not now")
        except OSError:
            pass
        finally:
            connection.close()
