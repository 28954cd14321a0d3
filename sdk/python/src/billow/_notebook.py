"""`billow notebook`: JupyterLab in a job, behind a port of this machine, asleep while unused.

The token is made here, kept in the user's state directory and given to the job through its standard
input: it is in no command line, no log, no variable of the job and nothing that the head stores.

Between the browser and `billow port-forward` is a relay that sees whether anything is asked. After
a while without requests it suspends the job; the next octet wakes it first.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import select
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Any, Dict, List, Optional

from ._client import Client
from ._connect import state_directory
from ._errors import ApiError, ConnectionFailed, Error
from ._options import seconds_of

LABEL = "billow-notebook"
START_S = 600.0
SERVER_S = 120.0  # from the start of the job until its server answers
PIECE = 1 << 16

# What runs in the job. It says its port in the log, and nothing else about itself.
HOST = r"""
import importlib.util, os, socket, subprocess, sys
token = sys.stdin.readline().strip()
with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
server, place = sys.argv[1], sys.argv[2]
os.chdir(place)
if server:
    words = ["sh", "-c", server]
elif importlib.util.find_spec("jupyterlab"):
    words = [sys.executable, "-m", "jupyterlab"]
elif importlib.util.find_spec("notebook"):
    words = [sys.executable, "-m", "notebook"]
else:
    print("billow notebook: no-jupyter " + sys.executable, flush=True)
    sys.exit(3)
if not server:
    words += ["--no-browser", "--ip=127.0.0.1", "--port=%d" % port, "--port-retries=0"]
    if os.geteuid() == 0:
        words.append("--allow-root")
print("billow notebook: port %d" % port, flush=True)
os.execvpe(words[0], words, {**os.environ, "PORT": str(port), "JUPYTER_TOKEN": token})
"""


def program() -> str:
    return os.environ.get("BILLOW_PROGRAM") or "billow"


class Notebook:
    def __init__(self, client: Client, name: str) -> None:
        self.client, self.name = client, name
        self.id = ""

    @property
    def _path(self) -> str:
        return f"/v1/jobs/{self.id}"

    def _secret_path(self) -> str:
        where = f"{self.client.head.named or self.client.head.data_dir}\n{self.id}"
        number = hashlib.sha256(where.encode()).hexdigest()[:32]
        return os.path.join(state_directory(), "notebooks", number)

    def find(self) -> bool:
        """The user's notebook of this name, if one is running or asleep."""
        for each in self.client.jobs(state="active", limit=1000):
            labelled = (each.get("labels") or {}).get(LABEL) == self.name
            if labelled and each.get("user") == self.client.user:
                self.id = str(each["id"])
                return True
        return False

    @property
    def state(self) -> str:
        return str(self.client.get(self._path)["state"])

    def stop(self) -> None:
        self.client.post(f"{self._path}/stop", {})
        try:
            os.unlink(self._secret_path())
        except FileNotFoundError:
            pass

    # ---- starting
    def start(self, job: List[str], server: str, place: str) -> None:
        token, mark = secrets.token_urlsafe(32), secrets.token_hex(8)
        words = [
            program(), "run", "--quiet", f"--label={LABEL}={self.name}", f"--label=mark={mark}",
            f"--cwd={place}",
        ]  # fmt: skip
        if not any(word.startswith("--name=") for word in job):
            words.append(f"--name={self.name}")
        if not any(word.startswith(("--suspendable=", "--whole-node")) for word in job):
            words.append("--suspendable=yes")
        words += [*job, "--", "python3", "-c", HOST, server, "."]
        run = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert run.stdin is not None and run.stdout is not None
        try:
            run.stdin.write(token.encode() + b"\n")
            run.stdin.flush()
            said = []
            for line in run.stdout:
                text = line.decode("utf-8", "replace").rstrip()
                if text.startswith("billow notebook: port "):
                    break
                if text.startswith("billow notebook: no-jupyter "):
                    raise Error(
                        f"JupyterLab is not installed for {text.split()[-1]} where the job ran",
                        (
                            "install it there (pip install jupyterlab, apt install"
                            " jupyter-notebook), or choose an environment or image that has it:"
                            " --env NAME, --image NAME"
                        ),
                    )
                said.append(text)
            else:
                raise Error("the notebook did not start: " + "\n".join(said[-20:]))
        finally:
            run.kill()  # the job goes on: only its output is no longer shown here
            run.wait()
        for each in self.client.jobs(state="active", limit=1000):
            if (each.get("labels") or {}).get("mark") == mark:
                self.id = str(each["id"])
        if not self.id:
            raise Error("the notebook ended at once", "see `billow ps -a` and `billow logs JOB`")
        path = self._secret_path()
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "w", encoding="ascii") as file:
            file.write(token)

    def token(self) -> str:
        try:
            with open(self._secret_path(), encoding="ascii") as file:
                return file.read().strip()
        except FileNotFoundError:
            raise Error(
                f"the token of notebook {self.id} is not on this machine",
                "open it where it was started, or end it: billow notebook --stop",
            ) from None

    def port(self) -> int:
        log = b"".join(data for _, data in self.client.log(self.id)).decode("utf-8", "replace")
        found = re.search(r"billow notebook: port (\d+)", log)
        if not found:
            raise Error(f"job {self.id} is not a notebook", f"see `billow logs {self.id}`")
        return int(found[1])

    # ---- sleeping
    def suspend(self) -> None:
        if self.state == "running":
            self.client.post(f"{self._path}/suspend")

    def wake(self) -> None:
        """Returns when the job runs."""
        deadline = time.monotonic() + START_S
        asked = False
        while True:
            document = self.client.get(self._path)
            if document["state"] == "running" and not document.get("suspending"):
                return
            if document["final"]:
                raise Error(f"notebook {self.id} has ended", "start another: billow notebook")
            if document["state"] == "suspended" and not asked:
                try:
                    self.client.post(f"{self._path}/resume")
                    asked = True
                except ApiError as problem:
                    if problem.status != 409:
                        raise
            if time.monotonic() > deadline:
                raise Error(f"notebook {self.id} is not awake yet", f"billow explain {self.id}")
            time.sleep(0.1)


def _end_with_parent() -> None:
    """In a child: it ends with us, also if we are killed. Linux only."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


class Relay:
    """A port of this machine. Knows when something was last asked, and wakes the job for it."""

    def __init__(self, notebook: Notebook, port: int, sleep_after: float) -> None:
        self.notebook, self.sleep_after = notebook, sleep_after
        self.asked_at = time.monotonic()
        self.awake = True
        self.open = 0
        self._lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", port), reuse_port=False)
        self.port = int(self.listener.getsockname()[1])
        self.forward = subprocess.Popen(
            [program(), "port-forward", notebook.id, f":{notebook.port()}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for us
            preexec_fn=_end_with_parent,
        )
        assert self.forward.stdout is not None
        line = self.forward.stdout.readline().decode()
        found = re.match(r"127\.0\.0\.1:(\d+)", line)
        if not found:
            raise Error(f"the port could not be forwarded: {line.strip()}")
        self.inner = int(found[1])
        self._await_server()
        threading.Thread(target=self._accept, daemon=True).start()

    def _await_server(self) -> None:
        """Until the server answers something: the address is of use only then."""
        deadline = time.monotonic() + SERVER_S
        while time.monotonic() < deadline and self.forward.poll() is None:
            try:
                with socket.create_connection(("127.0.0.1", self.inner), 5.0) as probe:
                    probe.sendall(b"GET / HTTP/1.0\r\n\r\n")
                    if probe.recv(1):
                        return
            except OSError:
                pass
            time.sleep(0.2)
        self.close()
        raise Error(
            f"the server of notebook {self.notebook.id} does not answer",
            f"see `billow logs {self.notebook.id}`; end it with `billow notebook --stop`",
        )

    def close(self) -> None:
        self.listener.close()
        self.forward.kill()
        self.forward.wait()

    def _accept(self) -> None:
        while True:
            try:
                here, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._carry, args=(here,), daemon=True).start()

    def asked(self) -> None:
        self.asked_at = time.monotonic()
        if self.awake:
            return
        with self._lock:
            if not self.awake:
                self.notebook.wake()
                self.awake = True
                print("billow: the notebook is awake", file=sys.stderr)

    def _carry(self, here: socket.socket) -> None:
        with here:
            try:
                first = here.recv(PIECE)
                if not first:
                    return
                self.asked()
                with socket.create_connection(("127.0.0.1", self.inner)) as there:
                    there.sendall(first)
                    self._both(here, there)
            except (OSError, Error):
                return

    def _both(self, here: socket.socket, there: socket.socket) -> None:
        while True:
            ready, _, _ = select.select([here, there], [], [])
            for each in ready:
                data = each.recv(PIECE)
                if not data:
                    return
                if each is here:
                    self.asked()
                (there if each is here else here).sendall(data)

    def sleep_if_unused(self) -> None:
        with self._lock:
            quiet = time.monotonic() - self.asked_at
            if not self.awake or self.sleep_after <= 0 or quiet < self.sleep_after:
                return
            try:
                self.notebook.suspend()
            except ApiError as problem:
                print(f"billow: the notebook stays awake: {problem}", file=sys.stderr)
                self.sleep_after = 0
                return
            self.awake = False
            print("billow: the notebook sleeps; a request wakes it", file=sys.stderr)


def name_of(job: List[str]) -> str:
    given = [word.partition("=")[2] for word in job if word.startswith("--name=")]
    return given[-1] if given else "notebook"


def run_notebook(request: Dict[str, Any], client: Optional[Client] = None) -> int:
    job = [str(word) for word in request.get("job", [])]
    sleep_after = seconds_of(str(request.get("sleep-after") or "10m"), "sleep-after")
    notebook = Notebook(client or Client(), name_of(job))
    there = notebook.find()
    if request.get("stop"):
        if not there:
            raise Error(f"you have no notebook named {notebook.name}", "see `billow ps`")
        notebook.stop()
        print(f"notebook {notebook.id} is stopping")
        return 0
    if there:
        notebook.wake()
    else:
        place = os.path.abspath(str(request.get("dir") or "."))
        notebook.start(job, str(request.get("server") or ""), place)
    token = notebook.token()
    relay = Relay(notebook, int(request.get("port") or 0), sleep_after)
    print(f"http://127.0.0.1:{relay.port}/?token={token}", flush=True)
    name = "" if notebook.name == "notebook" else " --name " + shlex.quote(notebook.name)
    print(
        (
            f"billow: notebook {notebook.id}; Ctrl-C suspends it,"
            f" `billow notebook{name} --stop` ends it"
        ),
        file=sys.stderr,
    )
    return watch(notebook, relay)


def watch(notebook: Notebook, relay: Relay) -> int:
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        while True:
            time.sleep(0.5)
            if relay.forward.poll() is not None:
                print(f"billow: notebook {notebook.id} has ended", file=sys.stderr)
                return 0
            try:
                relay.sleep_if_unused()
            except ConnectionFailed:
                continue  # a head that is away for a moment
    except KeyboardInterrupt:
        try:
            notebook.suspend()
            print("\nbillow: suspended; `billow notebook` continues", file=sys.stderr)
        except (ApiError, ConnectionFailed) as problem:
            print(f"\nbillow: the notebook runs on: {problem}", file=sys.stderr)
        return 0
    finally:
        relay.close()


def main() -> int:
    try:
        return run_notebook(json.loads(sys.argv[1]))
    except (Error, OSError) as problem:
        text = problem.message if isinstance(problem, Error) else str(problem)
        print(f"billow: {text}", file=sys.stderr)
        if isinstance(problem, Error) and problem.hint:
            print(f"hint: {problem.hint}", file=sys.stderr)
        return 69 if isinstance(problem, ConnectionFailed) else 1
