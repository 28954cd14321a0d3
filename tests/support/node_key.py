"""The key of a node, and how requests are signed with it."""
import base64
import os
import subprocess
import tempfile
import time


def b64(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Key:
    """An Ed25519 key, by OpenSSL's own command."""

    def __init__(self, path=None):
        if path:
            with open(path, "rb") as f:
                self.pem = f.read()
        else:
            make = ["openssl", "genpkey", "-algorithm", "ed25519"]
            self.pem = subprocess.run(make, check=True, capture_output=True).stdout

    @property
    def public(self):
        der = subprocess.run(
            ["openssl", "pkey", "-pubout", "-outform", "DER"],
            input=self.pem,
            check=True,
            capture_output=True,
        ).stdout
        return b64(der[-32:])

    def authorization(self, target="/v1/agent", at=None):
        """The header of one request; each is good for one use."""
        at = int(time.time()) if at is None else at
        nonce = b64(os.urandom(12))
        with tempfile.TemporaryDirectory() as folder:
            key, text = os.path.join(folder, "key"), os.path.join(folder, "text")
            with open(key, "wb") as f:
                f.write(self.pem)
            with open(text, "wb") as f:
                f.write(f"billow-node-1\nGET\n{target}\n{at}\n{nonce}".encode())
            signature = subprocess.run(
                ["openssl", "pkeyutl", "-sign", "-rawin", "-inkey", key, "-in", text],
                check=True,
                capture_output=True,
            ).stdout
        return f"Billow-Node {self.public},{at},{nonce},{b64(signature)}"
