"""Certificates from Pebble, the ACME authority for tests of the people behind Let's Encrypt. The
directory with its two programs, `pebble` and `pebble-challtestsrv`, is in BILLOW_TEST_PEBBLE;
without it the cases are skipped."""
import datetime
import ipaddress
import json
import os
import socket
import ssl
import sys
import unittest
import urllib.request

from front_door_test import Fixed
from ports import free_port
from rig import poll

PROGRAMS = os.environ.get("BILLOW_TEST_PEBBLE", "")

# `add NAME VALUE` and `remove NAME VALUE`, for the name server of the tests.
HOOK = """#!{python}
import json, sys, urllib.request
what, name, value = sys.argv[1:4]
record = {{"host": name + ".", "value": value}}
path = "set-txt" if what == "add" else "clear-txt"
urllib.request.urlopen("http://127.0.0.1:{port}/" + path, json.dumps(record).encode())
"""


def write(path, text, mode=0o600):
    with open(path, "wb" if isinstance(text, bytes) else "w") as f:
        f.write(text)
    os.chmod(path, mode)
    return path


def self_signed(folder):
    """A certificate of 127.0.0.1 for Pebble itself, and its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "pebble")])
    now = datetime.datetime.now(datetime.timezone.utc)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), False)
        .add_extension(x509.BasicConstraints(True, None), True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return (
        write(folder + "/pebble.crt", certificate.public_bytes(pem)),
        write(folder + "/pebble.key", private),
    )


@unittest.skipUnless(PROGRAMS, "BILLOW_TEST_PEBBLE names no directory with Pebble's programs")
class Pebble(Fixed):
    def setUp(self):
        super().setUp()
        certificate, key = self_signed(self.data)
        self.listen, self.manage, self.dns, self.records = (free_port() for _ in range(4))
        self.door = free_port()
        config = {
            "listenAddress": f"127.0.0.1:{self.listen}",
            "managementListenAddress": f"127.0.0.1:{self.manage}",
            "certificate": certificate,
            "privateKey": key,
            "httpPort": self.door,
            "tlsPort": self.door,
            "retryAfter": {"authz": 1, "order": 1},
            "keyAlgorithm": "ecdsa",
            "profiles": {"default": {"description": "usual", "validityPeriod": 7776000}},
        }
        write(self.data + "/pebble.json", json.dumps({"pebble": config}))
        log = open(self.data + "/pebble.log", "a", encoding="utf-8")
        self.addCleanup(log.close)
        places = [f"-{name}=" for name in ("http01", "https01", "tlsalpn01", "doh")]
        self.process(
            [PROGRAMS + "/pebble-challtestsrv", f"-dnsserver=127.0.0.1:{self.dns}"]
            + [f"-management=127.0.0.1:{self.records}", "-defaultIPv6=", *places],
            stdout=log,
            stderr=log,
        )
        # It refuses a third of all nonces, and waits a while before it looks at a challenge.
        self.process(
            [PROGRAMS + "/pebble", "-config", self.data + "/pebble.json", "-strict"]
            + [f"-dnsserver=127.0.0.1:{self.dns}"],
            env={**os.environ, "PEBBLE_WFE_NONCEREJECT": "33", "PEBBLE_AUTHZREUSE": "0"},
            stdout=log,
            stderr=log,
        )
        trust = ssl.create_default_context(cafile=certificate)
        self.opened = urllib.request.build_opener(urllib.request.HTTPSHandler(context=trust))
        self.directory = f"https://127.0.0.1:{self.listen}/dir"
        poll(lambda: self.asked(self.directory), "Pebble", 20)
        os.environ["SSL_CERT_FILE"] = certificate
        self.addCleanup(os.environ.pop, "SSL_CERT_FILE")

    def asked(self, url):
        try:
            return self.opened.open(url, timeout=10).read()
        except OSError:
            return None

    def ordered(self, *options):
        self.start(
            *("--domain", "example.org", "--acme", self.directory, *options),
            listen=f"127.0.0.1:{self.door}",
        )

    def certified(self, shown, host):
        """The certificate of `shown` is used for `host`, and Pebble's root vouches for it."""
        root = self.asked(f"https://127.0.0.1:{self.manage}/roots/0").decode()
        context = ssl.create_default_context(cadata=root)

        def proved():
            if "no certificate for" in self.read("log"):
                self.fail(self.read("log"))
            try:
                with socket.create_connection(("127.0.0.1", self.port), 20) as plain:
                    with context.wrap_socket(plain, server_hostname=host) as secure:
                        return secure.getpeercert()["subjectAltName"]
            except ssl.SSLCertVerificationError:
                return None  # the gateway's own, until the authority has answered

        self.assertIn(("DNS", shown), poll(proved, f"a certificate for {shown}", 90))

    def test_names_are_proved_by_http(self):
        self.ordered("--acme-contact", "ops@example.org")
        self.certified("chat.example.org", "chat.example.org")
        self.certified("example.org", "example.org")

    def test_a_wildcard_is_proved_by_a_record(self):
        hook = HOOK.format(python=sys.executable, port=self.records)
        self.ordered("--acme-dns-hook", write(self.data + "/hook", hook, 0o755))
        self.certified("*.example.org", "other.example.org")


if __name__ == "__main__":
    unittest.main()
