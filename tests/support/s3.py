"""S3 servers of its own for a test: s3rver from npm, which knows its access keys, lists in pages and takes uploads in parts, but does not
check the sum of a signature; and OpenStack Swift, which does (swift_server.py)."""
import os
import shutil
import subprocess

from ports import free_port
from rig import poll

PROGRAM = os.path.join(
    os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "s3/node_modules/.bin/s3rver"
)
KEYS = {"AWS_ACCESS_KEY_ID": "S3RVER", "AWS_SECRET_ACCESS_KEY": "S3RVER", "AWS_REGION": "us-east-1"}


def usable():
    if not shutil.which("node"):
        return "node is not installed"
    return None if os.path.exists(PROGRAM) else "s3rver is not installed: run npm ci in tests/s3"


class Server:
    """Serves a directory; buckets are directories in it. `inside`: words that put a command on
    another machine of a Net."""

    def __init__(self, root, bucket, inside=(), address="127.0.0.1", port=None):
        self.root, self.bucket, self.port = root, bucket, port or free_port()
        os.makedirs(root, exist_ok=True)
        self.url = f"http://{address}:{self.port}"
        self.log_path = root + ".log"
        with open(self.log_path, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [
                    *inside,
                    "node",
                    PROGRAM,
                    "-d",
                    root,
                    "-a",
                    address,
                    "-p",
                    str(self.port),
                    "--configure-bucket",
                    bucket,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        poll(lambda: "listening on" in self.log(), "the S3 server", 60)

    def log(self):
        with open(self.log_path, encoding="utf-8") as f:
            return f.read()

    def env(self):
        return {**KEYS, "AWS_ENDPOINT_URL": self.url}

    def close(self):
        self.process.terminate()
        self.process.wait(10)


SWIFT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "swift_server.py")
SWIFT_PYTHON = "/usr/bin/python3"  # the packages are the system's


def swift_usable():
    ready = subprocess.run(
        [
            SWIFT_PYTHON,
            "-c",
            "import eventlet, swift.common.middleware.s3api.s3api, swift.obj.mem_server",
        ],
        capture_output=True,
        check=False,
    )
    return None if ready.returncode == 0 else "Swift is not installed: apt install python3-swift"


class SignedServer(Server):
    """Every request's signature is checked, by somebody else's code."""

    def __init__(self, root, bucket):  # pylint: disable=super-init-not-called
        self.root, self.bucket, self.port = root, bucket, free_port()
        os.makedirs(root)
        self.url, self.log_path = f"http://127.0.0.1:{self.port}", root + ".log"
        keys = self.env()
        with open(self.log_path, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [
                    SWIFT_PYTHON,
                    SWIFT,
                    root,
                    str(self.port),
                    keys["AWS_ACCESS_KEY_ID"],
                    keys["AWS_SECRET_ACCESS_KEY"],
                    bucket,
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        poll(
            lambda: "listening on" in self.log() or self.process.poll() is not None,
            "the S3 server",
            60,
        )
        if self.process.poll() is not None:
            raise AssertionError(self.log()[-2000:])

    def env(self):
        return {
            "AWS_ACCESS_KEY_ID": "test:tester",
            "AWS_SECRET_ACCESS_KEY": "a-secret+of/its=own",
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": self.url,
        }
