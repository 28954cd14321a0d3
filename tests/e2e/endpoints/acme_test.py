"""Certificates that the gateway gets by ACME, proved by HTTP and by a DNS record."""
import datetime
import json
import os
import socket
import ssl
import stat

from front_door_test import AnyValue, Fixed
from ports import free_port
from rig import poll


class Acme(Fixed):
    def setUp(self):
        super().setUp()
        try:
            import acme_server
        except ImportError as missing:
            self.skipTest(f"Python's cryptography is not installed: {missing}")
        self.authority = acme_server.Authority()
        self.addCleanup(self.authority.close)

    def ordered(self, *options):
        self.authority.http_port = free_port()
        self.start(
            *("--domain", "example.org", "--acme", self.authority.url + "/directory", *options),
            listen=f"127.0.0.1:{self.authority.http_port}",
        )

    def test_names_are_proved_by_http(self):
        self.ordered("--acme-contact", "ops@example.org")
        poll(
            lambda: len(self.authority.issued) == 2 or "no certificate for" in self.read("log"),
            "certificates",
        )
        self.assertNotIn("no certificate for", self.read("log"))
        self.assertEqual(
            sorted(map(tuple, self.authority.issued)), [("chat.example.org",), ("example.org",)]
        )
        self.assertEqual(self.authority.orders_at_once, 1)
        self.assertEqual([p for p in self.authority.problems if p[1] != "badNonce"], [])
        poll(
            lambda: "DNS:chat.example.org" in self.names_shown("chat.example.org"),
            "the certificate in use",
        )
        for name in ("account.key", "certs/chat.example.org.key"):
            mode = os.stat(os.path.join(self.data, "acme", name)).st_mode
            self.assertEqual(stat.S_IMODE(mode), 0o600, name)
        account = next(iter(self.authority.accounts.values()))
        self.assertEqual(account["contact"], ["mailto:ops@example.org"])
        context = ssl.create_default_context(cadata=self.authority.ca_pem())
        with socket.create_connection(("127.0.0.1", self.port), 20) as plain:
            with context.wrap_socket(plain, server_hostname="chat.example.org") as secure:
                self.assertIsNotNone(secure.version())
        self.assertEqual(len(self.authority.issued), 2, "nothing is ordered twice")


class AcmeByDns(Acme):
    def hook(self, text):
        path = os.path.join(self.data, "hook")
        with open(path, "w", encoding="ascii") as f:
            f.write("#!/bin/sh\n" + text)
        os.chmod(path, 0o755)
        return path

    def test_names_are_proved_by_http(self):
        self.skipTest("the case of the other class")

    def test_a_wildcard_is_proved_by_a_record(self):
        done = os.path.join(self.data, "records")
        # The authority reads what the program has written.
        authority = self.authority

        class Records:
            @staticmethod
            def get(name, default):
                try:
                    with open(done, encoding="ascii") as f:
                        lines = [line.split() for line in f]
                except OSError:
                    return default
                return [value for what, at, value in lines if what == "add" and at == name]

        authority.records = Records
        self.ordered("--acme-dns-hook", self.hook(f'echo "$1 $2 $3" >> {done}\n'))
        poll(lambda: self.authority.issued, "a certificate")
        self.assertEqual(sorted(self.authority.issued[0]), ["*.example.org", "example.org"])
        poll(
            lambda: "DNS:*.example.org" in self.names_shown("other.example.org"),
            "the certificate in use",
        )
        with open(done, encoding="ascii") as f:
            lines = [line.split()[:2] for line in f]
        self.assertEqual(
            lines,
            [["add", "_acme-challenge.example.org"], ["remove", "_acme-challenge.example.org"]] * 2,
        )

    def test_a_renewal_comes_when_a_third_is_left(self):
        self.authority.life = datetime.timedelta(seconds=20)
        done = os.path.join(self.data, "records")
        self.authority.records = type(
            "Any", (), {"get": staticmethod(lambda name, default: AnyValue())}
        )
        self.ordered("--acme-dns-hook", self.hook(f'echo "$1" >> {done}\n'))
        poll(lambda: len(self.authority.issued) >= 2, "the renewal", 60)

    def test_a_failure_is_tried_again_later_and_remembered(self):
        self.ordered("--acme-dns-hook", self.hook("exit 3\n"))
        poll(lambda: "ended with code 3; the next try is at" in self.read("log"), "the failure")
        troubles = json.loads(self.read("acme/troubles.json"))
        self.assertEqual(troubles["names"]["example.org"]["failures"], 1)
        self.assertEqual(len(self.authority.orders), 1)
