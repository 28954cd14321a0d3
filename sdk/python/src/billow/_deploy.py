"""A function as an endpoint: what its workers need, by content, and one revision per version.

The tree of files that follows a worker contains this package, cloudpickle, the project's modules
that the function needs, the pickled function and `function.json` with its settings and a secret.
The worker accepts calls only with that secret: a pickle is a program, and all users of a node share
its ports. Users who may read the tree at the head (its owner, members of the project) may call.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import secrets
import shlex
import socket
import sys
import time
from dataclasses import dataclass, field, replace
from typing import Any, Dict, Mapping, Optional, Tuple
from urllib.parse import quote

from ._caller import Place
from ._client import Client
from ._code import add_path, modules_of, package_files, packages_of
from ._connect import key_path
from ._context import is_worker
from ._errors import ApiError, ConnectionFailed, DeployFailed, NotFound
from ._files import Tree, fetch_file, read_tree, upload
from ._options import JOB_OPTIONS, InvalidOption, check_names, list_of, nanoseconds_of, seconds_of
from ._options import spec_of, variables_of, whole_number
from ._output import note
from ._pickle import SOURCE

PROTOCOL = 1
QUEUE_S = 24 * 3600
NAME_MAX = 63
ENDS_WITHIN_S = 60.0  # a deleted endpoint of the same name
TOLD_AFTER_S = 3.0  # why a deployment is waiting
LAUNCH = 'p=$0; [ -x "$p" ] || p=python3; exec "$p" -m billow._worker "$@"'
# A chosen interpreter is used as it is; the caller's own may be missing on a node.
LAUNCH_CHOSEN = 'exec "$0" -m billow._worker "$@"'
LAUNCH_ONCE_CHOSEN = 'exec "$0" -m billow._once'
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
    strategy: str = "auto"
    drain: float = 0.0  # 0: no limit
    min_at: Tuple[str, ...] = ()
    max_spend: float = 0.0  # dollars per hour; 0: no limit
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
            secret = secrets.token_hex(24)
            document = self._deploy(secret)
        document = self._await(document)
        return Place(_url(document), self._key(), secret, self.revision, _pin(document))

    def find_again(self) -> Place:
        """Where this version is now. If another process has deployed other code or options under
        its name, this version continues under another name: neither process runs the other's
        code, nor replaces the other's workers in turn."""
        document, revision, tree = self._current()
        if document is None:
            return self.ensure()
        if revision != self.revision:
            self._part()
            return self.ensure()
        secret = self._secret_in(tree)
        document = self._await(document)
        key = self._key(renew=True)
        return Place(_url(document), key, secret, revision, _pin(document))

    def _part(self) -> None:
        was, tail = self.name, f"-{self.revision[:8]}"
        if was.endswith(tail):
            return
        self.name = was[: NAME_MAX - len(tail)].rstrip("-._") + tail
        self.settings = replace(self.settings, min=0)  # it ends with its callers
        note(
            f'another process has deployed "{was}" with other code or options; this process'
            f' continues with its own version as "{self.name}"'
        )

    def _tree(self, secret: str) -> Tree:
        import billow

        tree = Tree()
        for package in (billow, SOURCE):
            for path, file in package_files(package).items():
                tree.add_file(path, file)
        for path, file in modules_of(self.code).items():
            if path not in tree.entries:
                tree.add_file(path, file)
        included = [add_path(tree, each) for each in self.settings.include]
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
            "include": included,
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
        argv = [
            "sh",
            "-c",
            LAUNCH_ONCE_CHOSEN if self.settings.python else LAUNCH_ONCE,
            self._python(),
        ]
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
        launch = LAUNCH_CHOSEN if settings.python else LAUNCH
        argv = ["sh", "-c", launch, self._python(), self.revision, tree]
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
                **_operation(settings),
            },
        }
        if project:
            body["project"] = project
        deadline = time.monotonic() + ENDS_WITHIN_S
        while True:
            try:
                return self.client.post("/v1/endpoints", body)
            except ApiError as problem:
                # Just after delete(): the workers of the old one are ending.
                if "still ending" not in problem.message or time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def _await(self, document: Dict[str, Any]) -> Dict[str, Any]:
        """Until the revision that is starting serves, or has failed."""
        awaited = int(document.get("rolling") or document.get("revision") or 0)
        deadline = time.monotonic() + self.settings.start_timeout + 60.0
        pause, said, quiet_until = 0.005, "", time.monotonic() + TOLD_AFTER_S
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
            why = self.waiting(document)
            if why and why != said and time.monotonic() > quiet_until:
                said = why
                note(why)
            time.sleep(pause)
            pause = min(0.1, pause * 1.3)
            try:
                document = self.client.get(self.path)
            except ConnectionFailed:
                continue

    def waiting(self, document: Optional[Mapping[str, Any]] = None) -> str:
        """Why its calls wait for a worker; empty if they do not."""
        why = (document or self.client.get(self.path)).get("waiting")
        return f"{self.name} is waiting for a worker: {why}" if why else ""

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


def _operation(settings: Settings) -> Dict[str, Any]:
    """Parts of the policy that are left out unless they were asked for."""
    rollout: Dict[str, Any] = {}
    if settings.strategy != "auto":
        rollout["strategy"] = settings.strategy
    if settings.drain:
        rollout["drain_ns"] = nanoseconds_of(settings.drain, "drain")
    scaling: Dict[str, Any] = {}
    if settings.min_at:
        scaling["min_at"] = list(settings.min_at)
    if settings.max_spend:
        scaling["spend_per_hour"] = round(settings.max_spend * 1e9)
    return {
        **({"rollout": rollout} if rollout else {}),
        **({"scaling": scaling} if scaling else {}),
    }


def _pin(document: Mapping[str, Any]) -> str:
    """The fingerprint of the certificate of the gateway at `_url`."""
    return str(document.get("tls_fingerprint") or "")


def _url(document: Mapping[str, Any]) -> str:
    urls = document.get("urls") or []
    return str(urls[0]) if urls else ""


OWN_OPTIONS = frozenset(
    "min max concurrency name python access idle keep start_timeout timeout port retries"
    " include strategy drain min_at max_spend".split()
)


def settings_of(options: Dict[str, Any]) -> Settings:
    """Splits the options of a function into its own and those of its replicas as jobs. Mistakes
    are reported here, where they are made, and not by the first call."""
    check_names(options, OWN_OPTIONS | JOB_OPTIONS)
    given = {name: value for name, value in options.items() if value is not None}
    own = {name: value for name, value in given.items() if name in OWN_OPTIONS}
    for name, least in (("min", 0), ("max", 1), ("concurrency", 1), ("retries", 0)):
        if name in own:
            own[name] = whole_number(own[name], name, least)
    if own.get("min", 0) > own.get("max", max(own.get("min", 0), Settings.max)):
        raise InvalidOption(f"min={own['min']} is more than max={own['max']}")
    for name in ("idle", "keep", "start_timeout", "timeout", "drain"):
        if name in own:
            own[name] = seconds_of(own[name], name)
    if own.get("strategy", "auto") not in ("auto", "rolling", "recreate"):
        raise InvalidOption(
            f"strategy={own['strategy']!r} is not valid", "use auto, rolling or recreate"
        )
    own["min_at"] = tuple(list_of(own.get("min_at"), "min_at"))
    spend = own.get("max_spend", 0)
    if isinstance(spend, bool) or not isinstance(spend, (int, float)) or spend < 0:
        raise InvalidOption(f"max_spend={spend!r} is not an amount of dollars per hour")
    for name in ("name", "python", "access"):
        if not isinstance(own.get(name, ""), str):
            raise InvalidOption(f"{name}={own[name]!r} is not text")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", own.get("name", "f")):
        raise InvalidOption(
            f"name={own['name']!r} cannot be the name of an endpoint",
            "use up to 63 letters, digits, '.', '_' and '-'",
        )
    # Absolute, because programs change their directory. In a worker they need not exist.
    own["include"] = tuple(map(os.path.abspath, list_of(own.get("include"), "include")))
    for each in own["include"]:
        if not os.path.lexists(each) and not is_worker():
            raise InvalidOption(f"include: {each} does not exist")
    job = {name: value for name, value in given.items() if name not in OWN_OPTIONS}
    spec_of(["true"], job)
    return Settings(job=job, **own)
