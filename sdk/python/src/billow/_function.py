"""`@billow.function`: a Python function that runs in workers of the head's nodes."""

from __future__ import annotations

import functools
import hashlib
import inspect
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import (
    Any,
    AsyncIterator,
    Callable,
    Dict,
    Generic,
    Iterable,
    Iterator,
    List,
    Optional,
    Tuple,
    TypeVar,
    Union,
    cast,
    overload,
)

from ._caller import Caller, Outcome, Place, Request, new_id, parsed
from ._client import Client, default_client, error_of, over
from ._context import current_call, is_worker
from ._deploy import Deployment, Settings, endpoint_name, revision_of, settings_of
from ._errors import ApiError, ConnectionFailed, DeployFailed, Error, VersionMismatch
from ._future import Future
from ._jobs import Job, html_table
from ._map import TOGETHER_AT_MOST_ONCE, TOGETHER_MAX, Args, Map, Results, length_of
from ._pickle import dumps
from ._progress import Progress
from ._wire import is_generator, pack_call

R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

_passing = threading.local()  # how functions inside a function are pickled at the moment


def _script() -> str:
    """The file of the running program, so that equal names in two scripts differ."""
    file: Optional[str] = getattr(sys.modules.get("__main__"), "__file__", None)
    return os.path.abspath(file) if file else os.getcwd()


def _module_name(module: str) -> str:
    if module != "__main__":
        return module
    file: Optional[str] = getattr(sys.modules.get("__main__"), "__file__", None)
    return os.path.splitext(os.path.basename(file))[0] if file else "notebook"


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
                _script() if self.module == "__main__" else self.module,
                self.head.user,
                self.settings.name,
            )
        return self._name

    def deployment(self) -> Deployment:
        with self._lock:
            was, self._deploying = self._deploying, True
            try:
                revision = revision_of(self.settings, pickled(self.target, True))
                code = pickled(self.target, False)
            finally:
                self._deploying = was
        return Deployment(self.head, self.name, self.settings, code, revision)

    def deploy(self) -> str:
        """Deploys this version if it does not serve yet, and compares the versions of Python and
        packages. Returns the address of the endpoint."""
        deployment = self.deployment()
        place = deployment.ensure()
        caller = Caller(place, self.settings.retries, deployment.find_again)
        if self.settings.kind != "web_server":
            _compare(caller, deployment)
        with self._lock:
            self._caller, self._pid = caller, os.getpid()
        return place.url

    def caller(self) -> Caller:
        caller = self._caller
        if caller is not None and self._pid == os.getpid():
            return caller
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
        return Results(iter(outcomes), return_exceptions, self.cost_of)

    # ---- money
    @property
    def cost(self) -> float:
        """What all its workers were charged so far, in USD."""
        try:
            return float(self.head.endpoint(self.name).get("cost_usd", 0.0))
        except ApiError:
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
    import platform

    from ._deploy import packages_of

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
    remedy = (
        "save this environment with `billow env save NAME` and pass env=NAME, or choose an image"
        " that has the same versions"
    )
    mine = platform.python_version()
    if str(hello["python"]).split(".")[:2] != mine.split(".")[:2]:
        raise VersionMismatch(
            (
                f"workers of {deployment.name} have Python"
                f" {hello['python']} ({hello['executable']}), this process has {mine}"
            ),
            remedy,
        )
    wanted = packages_of(deployment.code)
    differing = [
        f"{name} {hello['packages'].get(name) or 'missing'} instead of {version}"
        for name, version in wanted.items()
        if name in hello["packages"] and hello["packages"][name] != version
    ]
    if hello["trouble"]:
        said = f" ({'; '.join(differing)})" if differing else ""
        raise VersionMismatch(
            f"workers of {deployment.name} cannot load the function{said}:\n{hello['trouble']}",
            remedy if "ModuleNotFoundError" in hello["trouble"] or differing else "",
        )
    if differing:
        print(
            (
                f"billow: workers of {deployment.name} have {'; '.join(differing)}. To make them"
                f" equal, {remedy}."
            ),
            file=sys.stderr,
        )


class Callables(Generic[R]):
    """The ways to call one function or method of a pool."""

    def __init__(self, pool: Pool, method: str, function: Callable[..., Any]) -> None:
        self._pool = pool
        self._method = method
        self._function = function
        functools.update_wrapper(self, function, updated=())

    def __getstate__(self) -> Dict[str, Any]:
        return {"pool": self._pool, "method": self._method, "function": self._function}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        Callables.__init__(self, **state)

    def __repr__(self) -> str:
        return f"<billow.{type(self).__name__} {self._function.__qualname__}>"

    def _args(self, given: Tuple[Any, ...], named: Dict[str, Any]) -> Args:
        return self._method, given, named

    def remote(self, *args: Any, **named: Any) -> R:
        """Calls it in a worker and waits for the result. A generator gives an iterator. A function
        that calls itself in this way runs on in its worker, which would only wait otherwise."""
        if self._pool.serves_here() and not inspect.iscoroutinefunction(self._function):
            return cast(R, self._function(*args, **named))
        if is_generator(self._function):
            return cast(R, self._pool.stream(self._args(args, named)))
        return cast(R, self._pool.value(self._args(args, named)))

    def spawn(self, *args: Any, **named: Any) -> Future[R]:
        """Calls it in a worker and returns at once."""
        self._needs_one_result("spawn")
        return self._pool.spawn(self._args(args, named))

    async def aio(self, *args: Any, **named: Any) -> R:
        """`remote` for asyncio; of a generator use `async for value in f.aiter(…)`."""
        self._needs_one_result("aio")
        return cast(R, await self._pool.spawn(self._args(args, named)))

    def aiter(self, *args: Any, **named: Any) -> AsyncIterator[Any]:
        """The values of a generator as they come, for asyncio."""
        return over(self._pool.stream(self._args(args, named)))

    def _needs_one_result(self, how: str) -> None:
        if is_generator(self._function):
            raise TypeError(
                f"{self._function.__qualname__} is a generator: {how} returns one result for each"
                " call; use remote() or, with asyncio, aiter()"
            )

    def map(
        self,
        *inputs: Iterable[Any],
        ordered: bool = True,
        return_exceptions: bool = False,
        progress: Optional[bool] = None,
        kwargs: Optional[Dict[str, Any]] = None,
    ) -> Results[R]:
        """Calls it for each input (several iterables as for `map`) in as many workers as `max`
        allows, and yields the results. Inputs are read as results are: any number of them needs
        the same memory. `ordered=False` yields each result as soon as it is there."""
        self._needs_one_result("map")
        named = kwargs or {}
        total = length_of(inputs[0]) if len(inputs) == 1 else None
        one = ((self._method, each, named) for each in zip(*inputs))
        return self._pool.map(
            one, total, ordered, return_exceptions, progress, self._function.__name__
        )

    def starmap(
        self,
        inputs: Iterable[Iterable[Any]],
        ordered: bool = True,
        return_exceptions: bool = False,
        progress: Optional[bool] = None,
    ) -> Results[R]:
        """`map` for inputs that are tuples of arguments."""
        self._needs_one_result("starmap")
        given = ((self._method, tuple(each), cast(Dict[str, Any], {})) for each in inputs)
        return self._pool.map(
            given,
            length_of(inputs),
            ordered,
            return_exceptions,
            progress,
            self._function.__name__,
        )

    def for_each(
        self, *inputs: Iterable[Any], progress: Optional[bool] = None, ignore: bool = False
    ) -> int:
        """`map` for its effects: returns how many calls succeeded. `ignore`: exceptions too."""
        results = self.map(*inputs, ordered=False, return_exceptions=ignore, progress=progress)
        return sum(1 for each in results if not (ignore and isinstance(each, Exception)))

    def map_dataset(
        self,
        input: Union[str, List[str]],
        output: str,
        tries: int = 3,
        files_at_once: int = 4,
        progress: Optional[bool] = None,
    ) -> Dict[str, Any]:
        """Calls it for each record of files; writes each file of results exactly once."""
        from ._dataset import map_dataset

        label = f"{self._pool.name}{self._method}"
        return map_dataset(
            lambda records: self.map(records, progress=False), label, lambda: self._pool.cost,
            input, output, tries, files_at_once, progress,
        )  # fmt: skip

    async def amap(
        self, *inputs: Iterable[Any], ordered: bool = True, return_exceptions: bool = False
    ) -> AsyncIterator[R]:
        """`map` for asyncio."""
        results = self.map(*inputs, ordered=ordered, return_exceptions=return_exceptions)
        async for value in over(results):
            yield value

    def local(self, *args: Any, **named: Any) -> Any:
        """Calls it here, in this process."""
        return self._function(*args, **named)


class Function(Callables[R]):
    """A function that runs in workers. Called directly, it runs here."""

    def __call__(self, *args: Any, **named: Any) -> R:
        return cast(R, self._function(*args, **named))

    @property
    def name(self) -> str:
        """The name of its endpoint: `billow describe NAME`."""
        return self._pool.name

    def deploy(self) -> str:
        """Deploys it now instead of with its first call; returns its address."""
        return self._pool.deploy()

    def schedule(self, cron: str, *args: Any, name: Optional[str] = None, **named: Any) -> str:
        """Calls it with these arguments on a schedule, in UTC: `f.schedule("0 6 * * *", "daily")`.
        Each call is a job with the function's resources, and its log is the job's. Returns the
        name of the schedule for `billow.unschedule`."""
        body = self._pool.deployment().as_job(dumps((args, named)))
        name = name or self._pool.name
        self._pool.head.post("/v1/schedules", {**body, "name": name, "cron": cron})
        return name

    def delete(self) -> None:
        """Removes it from the head and stops its workers."""
        self._pool.head.delete(f"/v1/endpoints/{self.name}")
        self._pool._caller = None

    @property
    def info(self) -> Dict[str, Any]:
        """What the head says about it: workers, requests, cost."""
        return self._pool.head.endpoint(self.name)

    @property
    def cost(self) -> float:
        """What all its workers were charged so far, in USD."""
        return self._pool.cost

    def scale(self, min: Optional[int] = None, max: Optional[int] = None) -> None:
        """Changes the number of workers until the next deployment."""
        limits = {name: n for name, n in (("min", min), ("max", max)) if n is not None}
        self._pool.head.post(f"/v1/endpoints/{self.name}/scale", limits)

    def logs(self, follow: bool = False) -> Iterator[str]:
        """The log of its newest worker."""
        replicas: List[Dict[str, Any]] = self.info.get("replicas", [])
        if not replicas:
            return iter(())
        newest = max(int(each["job"]) for each in replicas)
        return Job(newest, self._pool.head).logs(follow)

    def with_options(self, **options: Any) -> Function[R]:
        """The same function with other options, as an endpoint of its own name."""
        pool = self._pool
        settings = settings_of({**_given(pool.settings), **options})
        settings.batch, settings.kind = pool.settings.batch, pool.settings.kind
        if "name" not in options:
            changed = repr(sorted(options.items())).encode()
            settings.name = f"{pool.name[:50]}-{hashlib.sha256(changed).hexdigest()[:6]}"
        return Function(Pool(pool.target, settings, pool.module, pool.qualname), "", self._function)

    def _repr_html_(self) -> str:
        try:
            info = self.info
        except (ApiError, ConnectionFailed) as problem:
            return html_table(f"function {self.name}", {"state": str(problem)})
        figures = info.get("figures", {})
        rows = {
            "state": info.get("status", ""),
            "workers": (
                f"{figures.get('ready', 0)} ready, {figures.get('sleeping', 0)} asleep,"
                f" at most {info.get('max', 0)}"
            ),
            "requests": figures.get("requests", 0),
            "cost": f"${float(info.get('cost_usd', 0)):.4f}",
        }
        return html_table(f"function {self.name}", rows)


def _given(settings: Settings) -> Dict[str, Any]:
    own = {
        name: getattr(settings, name)
        for name in (
            "min", "max", "concurrency", "retries", "timeout", "idle", "keep", "start_timeout",
            "access", "python", "include",
        )  # fmt: skip
    }
    return {**settings.job, **own}


@overload
def function(target: Callable[..., R], /) -> Function[R]:
    ...


@overload
def function(
    *,
    gpus: Union[int, float, None] = ...,
    gpu_type: Union[str, List[str], None] = ...,
    gpu_mem: Union[int, str, None] = ...,
    cpus: Union[int, float, None] = ...,
    mem: Union[int, str, None] = ...,
    image: Optional[str] = ...,
    env: Optional[str] = ...,
    env_vars: Optional[Dict[str, str]] = ...,
    secrets: Optional[List[str]] = ...,
    volumes: Optional[List[str]] = ...,
    retries: Optional[int] = ...,
    timeout: Union[int, float, str, None] = ...,
    spot: Optional[bool] = ...,
    min: int = ...,
    max: int = ...,
    concurrency: int = ...,
    idle: Union[int, float, str] = ...,
    keep: Union[int, float, str] = ...,
    name: Optional[str] = ...,
    include: Optional[List[str]] = ...,
    python: Optional[str] = ...,
    project: Optional[str] = ...,
    **options: Any,
) -> Callable[[Callable[..., R]], Function[R]]:
    ...


def function(target: Optional[Callable[..., Any]] = None, /, **options: Any) -> Any:
    """Makes a function callable in workers: `f.remote(x)`, `f.spawn(x)`, `f.map(xs)`.

    Resources and surroundings are those of a job: `gpus`, `gpu_type`, `gpu_mem`, `cpus`, `mem`,
    `image`, `env`, `env_vars`, `secrets`, `volumes`, `spot`, `project` and so on. Besides:

    min, max      workers that are always awake (default 0), and at most (default 8)
    concurrency   calls that a worker runs at once (default 1)
    timeout       of one call
    retries       how often a call is repeated after an exception and after the loss of its worker.
                  Default: after a loss up to three times, after an exception never. 0: never, so
                  that a call runs at most once
    idle, keep    until an unused worker is suspended (2 min), and then stopped (1 h)
    include       files and directories that the worker needs beside its modules
    python        the interpreter (default: this one, or `python3` in an image or environment)
    """

    def decorate(wrapped: Callable[..., Any]) -> Function[Any]:
        batch = getattr(wrapped, "__billow_batch__", (0, 0.0))
        settings = settings_of(dict(options))
        settings.batch = batch
        return Function(
            Pool(wrapped, settings, wrapped.__module__, wrapped.__qualname__), "", wrapped
        )

    return decorate(target) if target is not None else decorate


def batched(max: int = 32, wait_ms: float = 5.0) -> Callable[[F], F]:
    """Under `@billow.function` or `@billow.method`: the function gets lists of up to `max` inputs
    that arrived within `wait_ms`, and returns a list with one result for each."""

    def decorate(wrapped: F) -> F:
        wrapped.__billow_batch__ = (int(max), float(wait_ms) / 1000)  # type: ignore[attr-defined]
        return wrapped

    return decorate


def gather(*futures: Future[Any]) -> List[Any]:
    """The results of several futures; the first exception cancels the rest."""
    try:
        return [each.result() for each in futures]
    except BaseException:
        for each in futures:
            each.cancel()
        raise
