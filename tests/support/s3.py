"""An S3 server of its own for a test: s3rver from npm, which knows its access keys (of the newer signatures it does not check
the sum: tests/unit/objects does), lists in pages and takes uploads in parts."""
import os
import shutil
import subprocess

from ports import free_port
from rig import poll

PROGRAM = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "s3/node_modules/.bin/s3rver")
KEYS = {"AWS_ACCESS_KEY_ID": "S3RVER", "AWS_SECRET_ACCESS_KEY": "S3RVER", "AWS_REGION": "us-east-1"}


def usable():
    if not shutil.which("node"):
        return "node is not installed"
    return None if os.path.exists(PROGRAM) else "s3rver is not installed: run npm ci in tests/s3"


class Server:
    """Serves a directory; buckets are directories in it. `inside`: words that put a command on another machine of a Net."""

    def __init__(self, root, bucket, inside=(), address="127.0.0.1"):
        self.root, self.bucket, self.port = root, bucket, free_port()
        os.makedirs(root, exist_ok=True)
        self.url = f"http://{address}:{self.port}"
        self.log_path = root + ".log"
        with open(self.log_path, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen([*inside, "node", PROGRAM, "-d", root, "-a", address, "-p", str(self.port), "--configure-bucket", bucket], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        poll(lambda: "listening on" in self.log(), "the S3 server", 60)

    def log(self):
        with open(self.log_path, encoding="utf-8") as f:
            return f.read()

    def env(self):
        return {**KEYS, "AWS_ENDPOINT_URL": self.url}

    def close(self):
        self.process.terminate()
        self.process.wait(10)
