"""A function as an endpoint: what its workers need, by content, and one revision per version.

The tree of files that follows a worker contains this package, cloudpickle, the modules beside the
calling script, the pickled function and `function.json` with its settings and a secret. The
worker accepts calls only with that secret: a pickle is a program, and all users of a node share
its ports. Whoever may read the tree at the head (its owner, members of the project) may call.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import re
import secrets
import shlex
import socket
import sys
import sysconfig
import time
import types
from dataclasses import dataclass, field
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple
from urllib.parse import quote

from ._caller import Place
from ._client import Client
from ._connect import key_path
from ._errors import ApiError, ConnectionFailed, DeployFailed, NotFound
from ._files import Tree, fetch_file, read_tree, upload
from ._pickle import SOURCE, without_random_ids
from ._options import nanoseconds_of, seconds_of, spec_of, variables_of

PROTOCOL = 1
QUEUE_S = 24 * 3600
NAME_MAX = 63
LAUNCH = 'p=$0; [ -x "$p" ] || p=python3; exec "$p" -m billow._worker "$@"'
LAUNCH_ONCE = 'p=$0; [ -x "$p" ] || p=python3; exec "$p" -m billow._once'


@dataclass
class Settings:
    """How a function is deployed; see `billow.function` for the meaning of each."""

    job: Dict[str, Any] = field(default_factory=dict)  # options of a replica as a job
    min: int = 0
    max: int = 8
    concurrency: int = 1
    retries: Optional[int] = None
    timeout: float = 0.0  # of one call; 0: none
    idle: float = 120.0
    keep: float = 3600.0
    start_timeout: float = 600.0
    access: str = "key"
    name: str = ""
    python: str = ""
    include: Tuple[str, ...] = ()
    batch: Tuple[int, float] = (0, 0.0)  # max, seconds
    kind: str = "function"  # or cls, asgi, web_server, endpoint
    port: int = 0  # of a web server that the function starts

    def shape(self) -> Dict[str, Any]:
        """What a worker must know, and what makes another revision if it changes."""
        return {
            "concurrency": self.concurrency,
            "timeout": self.timeout,
            "batch": list(self.batch),
            "kind": self.kind,
            "port": self.port,
        }


# ---- content


def _digest_of(parts: Iterable[bytes]) -> str:
    total = hashlib.sha256()
    for part in parts:
        total.update(len(part).to_bytes(8, "little"))
        total.update(part)
    return total.hexdigest()


def _package_files(package: types.ModuleType) -> Dict[str, str]:
    """path in the tree → file, for the Python files of a package."""
    root = os.path.dirname(os.path.abspath(package.__file__ or ""))
    name = package.__name__
    out = {}
    for directory, folders, files in os.walk(root):
        folders[:] = [each for each in folders if each != "__pycache__"]
        for each in files:
            if each.endswith(".py") or each == "py.typed":
                path = os.path.join(directory, each)
                out[os.path.join(name, os.path.relpath(path, root))] = path
    return out


def _installed_roots() -> List[str]:
    paths = {sysconfig.get_paths()[each] for each in ("stdlib", "platstdlib", "purelib", "platlib")}
    paths |= {each for each in sys.path if each.endswith(("site-packages", "dist-packages"))}
    return sorted(os.path.realpath(each) + os.sep for each in paths if each)


def local_modules() -> Dict[str, str]:
    """path in the tree → file, for imported modules that are not installed: those of the project.
    They are shipped so that functions can import them on a worker as here."""
    installed = _installed_roots()
    out: Dict[str, str] = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        top = name.partition(".")[0]
        if not file or not file.endswith(".py") or name.startswith("__"):
            continue
        real = os.path.realpath(file)
        if top in ("billow", "cloudpickle") or any(real.startswith(each) for each in installed):
            continue
        parts = name.split(".")
        path = os.path.join(*parts)
        out[path + ("/__init__.py" if os.path.basename(real) == "__init__.py" else ".py")] = real
    return out


def packages_of(pickled: bytes) -> Dict[str, str]:
    """The installed packages that a pickled function names, with their versions."""
    found: Dict[str, str] = {}
    names = {
        name.decode("ascii", "replace").partition(".")[0]
        for name in re.findall(rb"[A-Za-z_][A-Za-z0-9_.]{1,60}", pickled)
    }
    by_module = _distributions()
    for name in names & set(sys.modules) & set(by_module):
        for distribution in by_module[name]:
            try:
                found[distribution] = importlib.metadata.version(distribution)
            except importlib.metadata.PackageNotFoundError:
                continue
    return {name: found[name] for name in sorted(found) if name not in ("billow", "cloudpickle")}


_by_module: Optional[Mapping[str, List[str]]] = None


def _distributions() -> Mapping[str, List[str]]:
    """module → distributions that provide it."""
    global _by_module
    if _by_module is None:
        out: Dict[str, List[str]] = {}
        for distribution in importlib.metadata.distributions():
            name = distribution.metadata["Name"]
            top = (distribution.read_text("top_level.txt") or name or "").split()
            for module in top:
                out.setdefault(module.replace("-", "_"), []).append(name)
        _by_module = out
    return _by_module


# ---- names


def endpoint_name(module: str, qualname: str, file: str, user: str, given: str) -> str:
    """A name that the same function always gets, and another user's or script's does not."""
    text = given or f"{module.rsplit('.', 1)[-1]}.{qualname.replace('<locals>.', '')}"
    text = re.sub(r"[^A-Za-z0-9._-]", "-", text).strip("-._") or "function"
    if given:
        return text[:NAME_MAX]
    tail = hashlib.sha256(f"{user}\n{file}\n{module}\n{qualname}".encode()).hexdigest()[:6]
    return f"{text[: NAME_MAX - 7]}-{tail}"


# ---- the deployment


@dataclass
class Deployment:
    """A function that is about to be deployed, or already is."""

    client: Client
    name: str
    settings: Settings
    code: bytes  # the pickled function, as the worker loads it
    revision: str

    @property
    def path(self) -> str:
        return f"/v1/endpoints/{quote(self.name, safe='')}"

    def _current(self) -> Tuple[Optional[Dict[str, Any]], str, str]:
        """The endpoint's document, and the revision and tree that its command names."""
        try:
            document = self.client.get(self.path)
        except NotFound:
            return None, "", ""
        words = shlex.split(str(document.get("command", "")))
        if len(words) < 2 or "billow._worker" not in str(document.get("command", "")):
            raise DeployFailed(
                f'the endpoint "{self.name}" exists and is not a function',
                "give the function another name: @billow.function(name=…)",
            )
        return document, words[-2], words[-1]

    def _secret_in(self, tree: str) -> str:
        try:
            for entry in read_tree(self.client, tree):
                if entry.path == "function.json":
                    text = b"".join(fetch_file(self.client, tree, entry))
                    return str(json.loads(text)["secret"])
        except (ApiError, ValueError, KeyError):
            pass
        return ""

    def ensure(self) -> Place:
        """Deploys this version unless it serves already; returns where to call it."""
        document, revision, tree = self._current()
        secret = self._secret_in(tree) if tree else ""
        if document is None or revision != self.revision or not secret:
            secret = secret or secrets.token_hex(24)
            document = self._deploy(secret)
        document = self._await(document)
        return Place(_url(document), self._key(), secret, self.revision, _pin(document))

    def find_again(self) -> Place:
        """Where this version is now; without deploying it again if another one has replaced it."""
        document, revision, tree = self._current()
        if document is None:
            return self.ensure()
        secret = self._secret_in(tree)
        if revision != self.revision:
            raise DeployFailed(
                f'"{self.name}" was deployed again with other code or options by another process',
                "call deploy() to replace it, or choose another name: @billow.function(name=…)",
            )
        document = self._await(document)
        key = self._key(renew=True)
        return Place(_url(document), key, secret, revision, _pin(document))

    def _tree(self, secret: str) -> Tree:
        import billow

        tree = Tree()
        for package in (billow, SOURCE):
            for path, file in _package_files(package).items():
                tree.add_file(path, file)
        for path, file in local_modules().items():
            if path not in tree.entries:
                tree.add_file(path, file)
        for each in self.settings.include:
            _add_path(tree, each)
        tree.add_bytes("function.pkl", self.code)
        about = {
            **self.settings.shape(),
            "protocol": PROTOCOL,
            "secret": secret,
            "revision": self.revision,
            "python": platform.python_version(),
            "packages": packages_of(self.code),
            "listen": self._listen(),
            "name": self.name,
        }
        tree.add_bytes("function.json", json.dumps(about).encode(), 0o600)
        return tree

    def _listen(self) -> str:
        """Where workers listen: on loopback if all nodes are the head's own machine."""
        try:
            nodes = self.client.nodes()
        except ApiError:
            return "0.0.0.0"
        only_here = len(nodes) <= 1 and self.client.head.address.is_local
        return "127.0.0.1" if only_here else "0.0.0.0"

    def _python(self) -> str:
        elsewhere = self.settings.job.get("image") or self.settings.job.get("env")
        return self.settings.python or ("python3" if elsewhere else sys.executable or "python3")

    def _variables(self, options: Mapping[str, Any], tree: str) -> Dict[str, str]:
        variables = variables_of(options)
        variables.update(BILLOW_FILES=tree, BILLOW_FUNCTION=self.name, PYTHONUNBUFFERED="1")
        paths = [".", variables.get("PYTHONPATH", "")]
        variables["PYTHONPATH"] = os.pathsep.join(each for each in paths if each)
        return variables

    def as_job(self, arguments: bytes) -> Dict[str, Any]:
        """The body of a job that calls the function once, with these pickled arguments."""
        content = self._tree("")
        content.add_bytes("arguments.pkl", arguments)
        tree = upload(self.client, content)
        options: Dict[str, Any] = {**self.settings.job, "retries": self.settings.retries or 0}
        project = options.pop("project", "")
        if self.settings.timeout:
            options["timeout"] = self.settings.timeout
        argv = ["sh", "-c", LAUNCH_ONCE, self._python()]
        body = {
            "spec": {**spec_of(argv, options), "cwd": "/"},
            "env": self._variables(options, tree),
        }
        return {**body, "project": project} if project else body

    def _deploy(self, secret: str) -> Dict[str, Any]:
        settings = self.settings
        tree = upload(self.client, self._tree(secret))
        options = dict(settings.job)
        spot = bool(options.pop("spot", False))
        project = options.pop("project", "")
        argv = ["sh", "-c", LAUNCH, self._python(), self.revision, tree]
        variables = self._variables(options, tree)
        body = {
            "name": self.name,
            "spec": {**spec_of(argv, options), "cwd": "/"},
            "env": variables,
            "policy": {
                "min": settings.min,
                "max": max(settings.max, settings.min, 1),
                "concurrency": max(settings.concurrency, settings.batch[0], 1),
                "timeout_ns": nanoseconds_of(QUEUE_S, "timeout"),
                "idle_ns": nanoseconds_of(settings.idle, "idle"),
                "keep_suspended_ns": nanoseconds_of(settings.keep, "keep"),
                "start_timeout_ns": nanoseconds_of(settings.start_timeout, "start_timeout"),
                "spot": spot,
                "health": "" if settings.kind == "web_server" else "/.billow/health",
                "queue_max": 10_000,
                "access": settings.access,
            },
        }
        if project:
            body["project"] = project
        return self.client.post("/v1/endpoints", body)

    def _await(self, document: Dict[str, Any]) -> Dict[str, Any]:
        """Until the revision that is starting serves, or has failed."""
        awaited = int(document.get("rolling") or document.get("revision") or 0)
        deadline = time.monotonic() + self.settings.start_timeout + 60.0
        pause = 0.005
        while True:
            for each in document.get("revisions", []):
                if int(each.get("number", 0)) != awaited:
                    continue
                if each.get("state") == "failed":
                    raise self._failure(each)
                if each.get("state") in ("serving", "retired") and _url(document):
                    return document
            if time.monotonic() > deadline:
                why = str(document.get("waiting") or "its replica is not healthy yet")
                raise DeployFailed(
                    f"{self.name} does not serve yet: {why}", f"see `billow explain {self.name}`"
                )
            time.sleep(pause)
            pause = min(0.1, pause * 1.3)
            try:
                document = self.client.get(self.path)
            except ConnectionFailed:
                continue

    def _failure(self, revision: Mapping[str, Any]) -> DeployFailed:
        job = revision.get("failed_job")
        log = ""
        if job:
            try:
                lines = b"".join(data for _, data in self.client.log(str(job)))
                log = lines.decode("utf-8", "replace").strip()[-2000:]
            except (ApiError, ConnectionFailed):
                pass
        said = f"\n{log}" if log else ""
        return DeployFailed(
            f"{self.name} could not be started: {revision.get('reason')}{said}",
            f"see `billow logs {job}`" if job else f"see `billow describe {self.name}`",
        )

    def _key(self, renew: bool = False) -> str:
        """A key for the gateway, one for each user and machine, kept in the state directory."""
        if self.settings.access == "open":
            return ""
        path = key_path(self.client.head, self.name)
        name = "sdk-" + hashlib.sha256(f"{socket.gethostname()}\n{path}".encode()).hexdigest()[:12]
        if not renew:
            try:
                with open(path, encoding="ascii") as file:
                    kept = file.read().strip()
                known = self.client.get(self.path).get("keys", [])
                if kept and any(each.get("name") == name for each in known):
                    return kept
            except OSError:
                pass
        for _ in range(3):
            try:
                made = self.client.post(f"{self.path}/keys", {"name": name})
                break
            except ApiError as problem:
                if problem.status != 409:
                    raise
                try:
                    self.client.delete(f"{self.path}/keys/{name}")
                except NotFound:
                    pass
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        part = f"{path}.{os.getpid()}"
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "w", encoding="ascii") as file:
            file.write(str(made["key"]))
        os.replace(part, path)
        return str(made["key"])


def _pin(document: Mapping[str, Any]) -> str:
    """The fingerprint of the certificate of the gateway at `_url`."""
    return str(document.get("tls_fingerprint") or "")


def _url(document: Mapping[str, Any]) -> str:
    urls = document.get("urls") or []
    return str(urls[0]) if urls else ""


def _add_path(tree: Tree, path: str) -> None:
    """A file or directory beside the script, at the same place on the worker."""
    name = os.path.basename(os.path.abspath(path))
    if not os.path.isdir(path):
        tree.add_file(name, path)
        return
    for directory, folders, files in os.walk(path):
        folders[:] = [each for each in folders if each not in ("__pycache__", ".git")]
        for each in files:
            file = os.path.join(directory, each)
            tree.add_file(os.path.join(name, os.path.relpath(file, path)), file)


def revision_of(settings: Settings, code: bytes) -> str:
    """The digest of everything that makes a worker behave differently."""
    import billow

    parts = [without_random_ids(code), json.dumps(settings.shape(), sort_keys=True).encode()]
    rest = {
        "job": settings.job,
        "policy": [settings.min, settings.max, settings.idle, settings.keep, settings.access],
        "python": platform.python_version_tuple()[:2],
        "include": settings.include,
    }
    parts.append(json.dumps(rest, sort_keys=True, default=str).encode())
    files = {**_package_files(billow), **local_modules()}
    for path in sorted(files):
        parts.append(path.encode())
        with open(files[path], "rb") as file:
            parts.append(file.read())
    return _digest_of(parts)[:32]


def settings_of(options: Dict[str, Any]) -> Settings:
    """Splits the options of a function into its own and those of its replicas as jobs."""
    own: Dict[str, Any] = {}
    for name in ("min", "max", "concurrency", "name", "python", "access", "port"):
        if options.get(name) is not None:
            own[name] = options[name]
    for name in ("idle", "keep", "start_timeout", "timeout"):
        if options.get(name) is not None:
            own[name] = seconds_of(options[name], name)
    own["retries"] = options.get("retries")
    own["include"] = tuple(options.get("include") or ())
    known = (
        set(own)
        | {"retries", "include"}
        | set("min max concurrency name python access idle keep start_timeout timeout port".split())
    )
    job = {
        name: value for name, value in options.items() if name not in known and value is not None
    }
    spec_of(["true"], job)  # mistakes in the options are reported where they are made
    return Settings(job=job, **own)
