"""Container images without a network: root file systems made of busybox, and a registry on
loopback."""
import base64
import crypt
import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import tarfile
import urllib.error
import urllib.request

from ports import free_port
from rig import poll

OCI = "application/vnd.oci.image."
TOOLS = ("podman", "runc", "docker-registry", "busybox")
LINKS = (
    "sh",
    "ls",
    "cat",
    "echo",
    "id",
    "sleep",
    "env",
    "touch",
    "mkdir",
    "head",
    "dd",
    "ps",
    "tty",
    "true",
    "false",
    "pwd",
    "kill",
    "stat",
    "seq",
    "grep",
    "mount",
    "wc",
    "rm",
    "test",
    "stty",
    "trap",
    "yes",
    "nproc",
    "find",
    "sort",
)


def missing():
    """Why these tests cannot run here; empty: they can."""
    if os.geteuid() != 0:
        return "needs root, to run jobs of several users"
    without = [tool for tool in TOOLS if not shutil.which(tool)]
    return f"not installed: {', '.join(without)}" if without else ""


def root_tar(files=None, size=0):
    """A root file system as a tar archive: busybox, /etc/passwd, and more files by path."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:

        def add(name, content=b"", mode=0o644, kind=tarfile.REGTYPE, link=""):
            info = tarfile.TarInfo(name)
            info.mode, info.type, info.linkname, info.size = mode, kind, link, len(content)
            tar.addfile(info, io.BytesIO(content))

        for directory in (
            "bin",
            "etc",
            "lib",
            "tmp",
            "root",
            "proc",
            "dev",
            "sys",
            "srv",
            "home",
            "home/app",
        ):
            add(directory, mode=0o1777 if directory == "tmp" else 0o755, kind=tarfile.DIRTYPE)
        with open(shutil.which("busybox"), "rb") as f:
            add("bin/busybox", f.read(), 0o755)
        for name in LINKS:
            add(f"bin/{name}", kind=tarfile.SYMTYPE, link="busybox")
        add("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\napp:x:1000:1000:app:/home/app:/bin/sh\n")
        add("etc/hello", b"from the image\n")
        for path, content in (files or {}).items():
            add(path, content)
        if size:
            add("blob", os.urandom(size))
    return out.getvalue()


def python_tar(extra):
    """A root file system with the machine's own Python and what it links to; `extra`: files by
    their path inside."""
    out = io.BytesIO(root_tar())
    python = os.path.realpath("/usr/bin/python3")
    library = f"/usr/lib/{os.path.basename(python)}"
    left_out = (
        "test",
        "idlelib",
        "lib2to3",
        "ensurepip",
        "pydoc_data",
        "dist-packages",
        "distutils",
        "unittest",
        "__pycache__",
        "asyncio",
        "email",
        "http",
        "xml",
        "tkinter",
        "turtledemo",
    )
    with tarfile.open(fileobj=out, mode="a") as tar:
        added = set()

        def add(path):
            real = os.path.realpath(path)
            if path not in added:
                added.add(path)
                tar.add(real, path.lstrip("/"), recursive=False)

        def with_libraries(path):
            add(path)
            for line in subprocess.run(
                ["ldd", path], capture_output=True, text=True, check=False
            ).stdout.splitlines():
                for word in line.split():
                    if word.startswith("/"):
                        add(word)

        with_libraries(python)
        tar.addfile(link("usr/bin/python3", python))
        for folder, folders, names in os.walk(library):
            folders[:] = [f for f in folders if f not in left_out and not f.startswith("config-")]
            for name in names:
                path = os.path.join(folder, name)
                if name.startswith("_ctypes.") and name.endswith(".so"):
                    with_libraries(path)
                elif name.endswith((".py", ".so")):
                    add(path)
        for inside, path in extra.items():
            if path.endswith(".so.1"):
                for line in subprocess.run(
                    ["ldd", path], capture_output=True, text=True, check=False
                ).stdout.splitlines():
                    for word in line.split():
                        if word.startswith("/"):
                            add(word)
            tar.add(os.path.realpath(path), inside.lstrip("/"), recursive=False)
    return out.getvalue()


def link(name, target):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = tarfile.SYMTYPE, target
    return info


class Registry:
    """A registry on loopback, and a podman of the test's own that fills it."""

    def __init__(self, root, inside=(), login=()):
        """`inside`: put before its commands, where it is to run in a network of its own. `login`:
        the user and password without which it answers nothing."""
        self.inside = list(inside)
        self.login = ":".join(login)
        self.root = os.path.join(root, "registry")
        os.makedirs(self.root)
        self.port = free_port()
        config = os.path.join(self.root, "config.yml")
        with open(config, "w", encoding="utf-8") as f:
            f.write(
                f"version: 0.1\nstorage: {{filesystem: {{rootdirectory: {self.root}/data}}}}\nhttp:"
                f" {{addr: 127.0.0.1:{self.port}}}\n"
            )
            if login:
                words = os.path.join(self.root, "htpasswd")
                f.write(f"auth: {{htpasswd: {{realm: tests, path: {words}}}}}\n")
                with open(words, "w", encoding="ascii") as known:
                    hashed = crypt.crypt(login[1], crypt.mksalt(crypt.METHOD_BLOWFISH, rounds=16))
                    known.write(f"{login[0]}:{hashed.replace('$2b$', '$2y$', 1)}\n")
        self.log = open(os.path.join(self.root, "log"), "wb")
        self.process = subprocess.Popen(
            [*self.inside, "docker-registry", "serve", config],
            stdout=self.log,
            stderr=self.log,
            stdin=subprocess.DEVNULL,
        )
        poll(self.answers, "the registry", 30)

    def answers(self):
        if self.inside:
            return (
                subprocess.run(
                    [
                        *self.inside,
                        "python3",
                        "-c",
                        (
                            "import urllib.request;"
                            f" urllib.request.urlopen('http://127.0.0.1:{self.port}/v2/',"
                            " timeout=5)"
                        ),
                    ],
                    capture_output=True,
                    check=False,
                ).returncode
                == 0
            )
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/v2/", timeout=5) as answer:
                return answer.status == 200
        except urllib.error.HTTPError as error:
            return bool(self.login) and error.code == 401
        except OSError:
            return False

    def podman(self, *args, **options):
        state = [
            f"--root={self.root}/storage",
            f"--runroot={self.root}/run",
            f"--tmpdir={self.root}/tmp",
            "--runtime=runc",
            "--cgroup-manager=cgroupfs",
            "--events-backend=none",
        ]
        done = subprocess.run(
            [*self.inside, "podman", *state, *args], capture_output=True, check=False, **options
        )
        if done.returncode != 0:
            raise AssertionError(f"podman {args}: {done.stderr.decode()[-1000:]}")
        return done.stdout.decode().strip()

    def name(self, image):
        return f"127.0.0.1:{self.port}/{image}"

    def push(self, image, tar, *changes):
        """Makes an image and pushes it; the name to run it by."""
        options = [part for change in changes for part in ("--change", change)]
        self.podman("import", *options, "-", self.name(image), input=tar)
        creds = [f"--creds={self.login}"] if self.login else []
        self.podman("push", "--tls-verify=false", *creds, self.name(image))
        return self.name(image)

    def send(self, method, path, body, kind):
        request = urllib.request.Request(
            path if path.startswith("http") else f"http://127.0.0.1:{self.port}/v2/{path}",
            body,
            {"Content-Type": kind},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.headers.get("Location", "")

    def blob(self, repository, content):
        """Stores a blob; its description in a manifest."""
        digest = "sha256:" + hashlib.sha256(content).hexdigest()
        place = self.send("POST", f"{repository}/blobs/uploads/", b"", "")
        place += ("&" if "?" in place else "?") + "digest=" + digest
        self.send("PUT", place, content, "application/octet-stream")
        return {"digest": digest, "size": len(content)}

    def sign(self, image, key, claims=None):
        """A signature as cosign makes it: beside the image, under a tag with its digest. `claims`:
        the digest that is signed, if it is not the image's."""
        repository, tag = image.split(":")
        digest = manifest_digest(self, repository, tag)
        critical = {
            "identity": {"docker-reference": self.name(repository)},
            "image": {"docker-manifest-digest": claims or digest},
            "type": "cosign container image signature",
        }
        payload = json.dumps({"critical": critical, "optional": None}).encode()
        signature = subprocess.run(
            ["openssl", "dgst", "-sha256", "-sign", key],
            input=payload,
            capture_output=True,
            check=True,
        ).stdout
        layer = {
            **self.blob(repository, payload),
            "mediaType": "application/vnd.dev.cosign.simplesigning.v1+json",
            "annotations": {
                "dev.cosignproject.cosign/signature": base64.b64encode(signature).decode()
            },
        }
        config = {
            **self.blob(repository, b'{"rootfs":{"type":"layers","diff_ids":[]}}'),
            "mediaType": OCI + "config.v1+json",
        }
        kind = OCI + "manifest.v1+json"
        manifest = {"schemaVersion": 2, "mediaType": kind, "config": config, "layers": [layer]}
        place = f"{repository}/manifests/{digest.replace(':', '-')}.sig"
        self.send("PUT", place, json.dumps(manifest).encode(), kind)

    def gets(self, kind):
        """How often blobs or manifests were asked for, by the registry's own log."""
        self.log.flush()
        with open(os.path.join(self.root, "log"), encoding="utf-8", errors="replace") as f:
            return sum(
                1
                for line in f
                if "http.request.method=GET" in line
                and f"/{kind}/" in line
                and "response completed" in line
            )

    def close(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)
        self.log.close()


def work_place(agent_data):
    """The agent's own directory for what jobs must reach; its name is recorded."""
    try:
        with open(os.path.join(agent_data, "place-var-tmp"), encoding="utf-8") as f:
            return f.read().strip()
    except FileNotFoundError:
        return "/nonexistent"


def boxes(agent_data):
    """Where an agent with this data directory keeps images, environments and what jobs write into
    them."""
    return os.path.join(work_place(agent_data), "boxes")


def manifest_digest(registry, image, tag):
    request = urllib.request.Request(
        f"http://127.0.0.1:{registry.port}/v2/{image}/manifests/{tag}",
        headers={
            "Accept": (
                "application/vnd.oci.image.manifest.v1+json,"
                " application/vnd.docker.distribution.manifest.v2+json"
            )
        },
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        json.load(answer)
        return answer.headers["Docker-Content-Digest"]
