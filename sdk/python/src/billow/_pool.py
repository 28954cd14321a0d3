"""What a function, class or web endpoint is deployed as: its code, its settings, its workers."""

from __future__ import annotations

import os
import platform
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, Iterable, Iterator, Optional, cast

from ._caller import REMEDY, Caller, Outcome, Place, Request, new_id, parsed
from ._client import Client, default_client, error_of
from ._code import home_of, packages_of, revision_of
from ._context import current_call, is_worker
from ._deploy import Deployment, Settings, endpoint_name
from ._errors import ConnectionFailed, DeployFailed, Error, NotFound, VersionMismatch
from ._future import Future
from ._map import TOGETHER_AT_MOST_ONCE, TOGETHER_MAX, Args, Map, Results
from ._pickle import dumps
from ._progress import Progress
from ._wire import pack_call

_passing = threading.local()  # how functions inside a function are pickled at the moment


def _script() -> str:
    """The file of the running program, so that equal names in two scripts differ."""
    file: Optional[str] = getattr(sys.modules.get("__main__"), "__file__", None)
    return os.path.realpath(file) if file else os.getcwd()


def _module_name(module: str) -> str:
    if module != "__main__":
        return module
    file: Optional[str] = getattr(sys.modules.get("__main__"), "__file__", None)
    return os.path.splitext(os.path.basename(file))[0] if file else "notebook"


def _cell() -> int:
    """The number of the notebook's cell that runs; 0 outside notebooks."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return int(getattr(shell, "execution_count", 0))


def pickled(value: Any, digesting: bool) -> bytes:
    """A function with what it refers to. For a digest, nested functions are named, not placed."""
    before = getattr(_passing, "digesting", False)
    _passing.digesting = digesting
    try:
        return dumps(value)
    except Exception as problem:
        raise DeployFailed(
            f"the function cannot be sent to a worker: {problem}",
            (
                "it refers to something that cannot be pickled (an open file, a lock, a"
                " connection); create that inside the function"
            ),
        ) from problem
    finally:
        _passing.digesting = before


class Pool:
    """What a function or class is deployed as: its code, settings and, once it serves, its place.

    Pickled into another function, it brings its place along, so that a worker can call it without
    access to the head.
    """

    def __init__(self, target: Any, settings: Settings, module: str, qualname: str) -> None:
        self.target = target  # what the worker loads
        self.settings = settings
        self.module = module
        self.qualname = qualname
        self.client: Optional[Client] = None
        self._lock = threading.RLock()
        self._deploying = False
        self._caller: Optional[Caller] = None
        self._own = False  # the caller is that of a worker which calls itself
        self._pid = 0
        self._threads: Optional[ThreadPoolExecutor] = None
        self._name = ""
        self._rates: Dict[str, float] = {}
        self._warned = False
        self._revision = ""
        self._cell = 0  # of the notebook, when the function was last compared with its revision

    # ---- pickling
    def __getstate__(self) -> Dict[str, Any]:
        state: Dict[str, Any] = {
            "target": self.target,
            "settings": self.settings,
            "module": self.module,
            "qualname": self.qualname,
        }
        if not getattr(_passing, "digesting", False) and not self._deploying:
            state["place"] = tuple(self.caller().place)
            state["name"] = self._name
        return state

    def __setstate__(self, state: Dict[str, Any]) -> None:
        place = state.pop("place", None)
        name = state.pop("name", "")
        self.__init__(**state)  # type: ignore[misc]
        self._name = name
        if place is not None:
            self._caller = Caller(Place(*place), self.settings.retries)
            self._pid = os.getpid()

    # ---- deploying
    @property
    def head(self) -> Client:
        return self.client or default_client()

    @property
    def name(self) -> str:
        """The name of the endpoint that its workers form."""
        if not self._name:
            self._name = endpoint_name(
                _module_name(self.module),
                self.qualname,
                _script() if self.module == "__main__" else home_of(self.module),
                self.head.user,
                self.settings.name,
            )
        return self._name

    def _revision_now(self) -> str:
        with self._lock:
            was, self._deploying = self._deploying, True
            try:
                return revision_of(self.settings, pickled(self.target, True))
            finally:
                self._deploying = was

    def deployment(self) -> Deployment:
        with self._lock:
            revision = self._revision_now()
            was, self._deploying = self._deploying, True
            try:
                code = pickled(self.target, False)
            finally:
                self._deploying = was
        return Deployment(self.head, self.name, self.settings, code, revision)

    def deploy(self) -> str:
        """Deploys this version if it does not serve yet, and compares the versions of Python and
        packages. Returns the address of the endpoint."""
        deployment = self.deployment()

        def find_again() -> Place:
            place = deployment.find_again()
            self._name = deployment.name
            return place

        place = deployment.ensure()
        caller = Caller(place, self.settings.retries, find_again, deployment.waiting)
        if self.settings.kind != "web_server":
            _compare(caller, deployment)
        with self._lock:
            self._caller, self._pid = caller, os.getpid()
            self._revision, self._cell = deployment.revision, _cell()
        return place.url

    def caller(self) -> Caller:
        caller = self._caller
        if caller is not None and self._pid == os.getpid():
            if self.module != "__main__" or not self._revision or self._cell == _cell():
                return caller
            with self._lock:
                # A cell that has run since may have redefined what the function refers to.
                self._cell = _cell()
                if self._revision_now() != self._revision:
                    self.deploy()
                return cast(Caller, self._caller)
        with self._lock:
            if self._caller is None or self._pid != os.getpid():
                if self._caller is None and is_worker():
                    self._caller, self._pid = self._own_caller(), os.getpid()
                    self._own = True
                elif self._caller is None:
                    self.deploy()
                else:  # a forked child has connections of its own
                    self._caller = Caller(self._caller.place, self.settings.retries)
                    self._pid = os.getpid()
            return cast(Caller, self._caller)

    def serves_here(self) -> bool:
        """Whether this code runs in a call of this very function, in one of its workers."""
        # A function that travelled with another one has a place to be called at.
        own = self._caller is None or self._own
        if not own or current_call() is None or not is_worker():
            return False
        return self.settings.kind == "function" and not self.settings.batch[0]

    def _own_caller(self) -> Caller:
        """In a worker: a function that calls itself goes through the gateway like any caller."""
        from . import _worker

        if _worker.worker is None or not _worker.worker.gateway:
            raise Error(
                f"{self.qualname} has no place to be called at from this worker",
                "deploy() it before the function that calls it",
            )
        return Caller(Place(**_worker.worker.gateway), self.settings.retries)

    def threads(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._threads is None:
                width = max(self.settings.max, 1) * max(self.settings.concurrency, 1)
                size = min(256, width * max(self.settings.batch[0], 1) + 8)
                self._threads = ThreadPoolExecutor(size, thread_name_prefix="billow-call")
            return self._threads

    # ---- calling
    def call(self, args: Args) -> Outcome:
        return self.caller().run([new_id()], [pack_call(args)])[0]

    def value(self, args: Args) -> Any:
        outcome = self.call(args)
        if outcome.error is not None:
            raise outcome.error
        return outcome.value

    def _may_block(self, how: str) -> None:
        """Warns in the worker's log: all workers may come to wait for each other."""
        if self.serves_here() and not self.settings.timeout and not self._warned:
            self._warned = True
            print(
                (
                    f"billow: {self.qualname} calls itself with {how}. If all {self.settings.max}"
                    " workers wait for such calls, none is left to run them: give it a timeout,"
                    " and a max above the number of callers that wait at once"
                ),
                file=sys.stderr,
            )

    def spawn(self, args: Args) -> Future[Any]:
        self._may_block("spawn")
        caller, number, packed, request = self.caller(), new_id(), pack_call(args), Request()
        future: Future[Any] = Future(request, number, self.cost_of)

        def work() -> None:
            if request.cancelled:
                return
            try:
                future._end(caller.run([number], [packed], request)[0])
            except BaseException as problem:
                future._end(Outcome(None, problem, 0.0, "", 1))

        self.threads().submit(work)
        return future

    def stream(self, args: Args) -> Iterator[Any]:
        return self.caller().stream(new_id(), pack_call(args), Request())

    def map(
        self,
        inputs: Iterable[Args],
        total: Optional[int],
        ordered: bool,
        return_exceptions: bool,
        progress: Optional[bool],
        label: str,
    ) -> Results[Any]:
        self._may_block("map")
        slots = max(self.settings.max, 1) * max(self.settings.concurrency, 1)
        together = TOGETHER_MAX
        if self.settings.retries == 0:
            together = TOGETHER_AT_MOST_ONCE
        if self.settings.batch[0]:
            together = max(1, self.settings.batch[0])
        outcomes = Map(
            self.caller(), inputs, slots + 1, ordered, Progress(label, total, progress), together
        )
        return Results(outcomes, return_exceptions, self.cost_of)

    # ---- money
    @property
    def cost(self) -> float:
        """What all its workers were charged so far, in USD."""
        return float(self.head.endpoint(self.name).get("cost_usd", 0.0))

    def charged(self) -> float:
        """`cost`, and 0 before the first deployment."""
        try:
            return self.cost
        except NotFound:
            return 0.0

    def cost_of(self, outcome: Outcome) -> float:
        """Seconds of a call at the rate of its replica."""
        if not outcome.job:
            return 0.0
        if outcome.job not in self._rates:
            self._rates[outcome.job] = _rate_of(self.head, outcome.job)
        return outcome.seconds * self._rates[outcome.job]


def _rate_of(client: Client, job: str) -> float:
    """USD per second that a replica is charged."""
    tasks = client.get(f"/v1/jobs/{job}").get("tasks") or [{}]
    milli, gpu_type = int(tasks[0].get("gpu_milli") or 0), str(tasks[0].get("gpu_type") or "")
    if not milli:
        return 0.0
    spot = bool(client.get(f"/v1/jobs/{job}").get("spot"))
    for rate in client.get("/v1/prices/rates").get("rates", []):
        wanted = "spot" if spot else "on-demand"
        if rate.get("gpu_type") == gpu_type and rate.get("class", "").replace("_", "-") == wanted:
            return int(rate["nano_usd_per_s"]) * milli / 1000 / 1e9
    return 0.0


def _compare(caller: Caller, deployment: Deployment) -> None:
    """Before the first call: a worker with another Python, or without a package, is an error that
    says so, not a crash inside the call."""
    for attempt in range(3):
        try:
            status, body = caller.ask("/.billow/hello")
            break
        except OSError as problem:
            if attempt == 2:
                raise ConnectionFailed(f"the worker did not answer: {problem}") from None
    if status != 200:
        raise error_of(status, body, "the gateway")
    hello = parsed(body)
    caller.meets(str(hello.get("lane", "")))
    mine = platform.python_version()
    if str(hello["python"]).split(".")[:2] != mine.split(".")[:2]:
        raise VersionMismatch(
            (
                f"workers of {deployment.name} have Python"
                f" {hello['python']} ({hello['executable']}), this process has {mine}"
            ),
            REMEDY,
        )
    wanted = packages_of(deployment.code)
    differing = [
        f"{name} {hello['packages'].get(name) or 'missing'} instead of {version}"
        for name, version in wanted.items()
        if name in hello["packages"] and hello["packages"][name] != version
    ]
    if hello["trouble"]:
        said = f" ({'; '.join(differing)})" if differing else ""
        missing = bool(differing) or "ModuleNotFoundError" in hello["trouble"]
        kind = VersionMismatch if missing else DeployFailed
        raise kind(
            f"workers of {deployment.name} cannot load the function{said}:\n{hello['trouble']}",
            REMEDY if missing else "",
        )
    if differing:
        print(
            (
                f"billow: workers of {deployment.name} have {'; '.join(differing)}. To make them"
                f" equal, {REMEDY}."
            ),
            file=sys.stderr,
        )
