"""Keys and certificates for tests, made by openssl."""
import functools
import json
import os
import subprocess
import tempfile

FOLDER = tempfile.TemporaryDirectory(prefix="billow-keys-")


def path(name):
    return os.path.join(FOLDER.name, name)


@functools.cache
def rsa_key():
    """The path of a private key, PEM (PKCS #8)."""
    subprocess.run(
        ["openssl", "genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"]
        + ["-out", path("key.pem")],
        check=True,
        capture_output=True,
    )
    return path("key.pem")


@functools.cache
def certificate():
    """The path of a PEM file with a self-signed certificate for 127.0.0.1 and its key."""
    subprocess.run(
        ["openssl", "req", "-x509", "-new", "-key", rsa_key(), "-days", "2", "-subj", "/CN=billow"]
        + ["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost", "-out", path("cert.pem")],
        check=True,
        capture_output=True,
    )
    with open(path("both.pem"), "w", encoding="utf-8") as both:
        for part in (path("cert.pem"), rsa_key()):
            with open(part, encoding="utf-8") as file:
                both.write(file.read())
    return path("both.pem")


def google_key(token_url, name="sa.json", **more):
    """The path of a service account's key."""
    with open(rsa_key(), encoding="utf-8") as file:
        pem = file.read()
    document = {
        "type": "service_account",
        "project_id": "my-project",
        "private_key_id": "key-1",
        "private_key": pem,
        "client_email": "billow@my-project.iam.gserviceaccount.com",
        "token_uri": token_url,
        **more,
    }
    return file_of(name, document)


def file_of(name, document):
    with open(path(name), "w", encoding="utf-8") as file:
        json.dump(document, file)
    return path(name)
