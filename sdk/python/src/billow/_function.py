"""`@billow.function`: a Python function that runs in workers of the head's nodes."""

from __future__ import annotations

import functools
import hashlib
import inspect
from typing import (
    Any,
    AsyncIterator,
    Callable,
    Dict,
    Generic,
    Iterable,
    Iterator,
    List,
    Literal,
    Optional,
    Tuple,
    TypeVar,
    Union,
    cast,
    overload,
)

from ._client import over
from ._deploy import Settings, settings_of
from ._elsewhere import FUNCTION, missing
from ._errors import ApiError, ConnectionFailed
from ._future import Future
from ._jobs import Job, html_table
from ._map import Args, Results, length_of
from ._options import check_names, whole_number
from ._pickle import dumps
from ._pool import Pool
from ._wire import is_generator

R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])


def signature_of(function: Callable[..., Any]) -> Union[inspect.Signature, Literal[False]]:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):  # of a function in C
        return False


def check_target(target: Any, decorator: str) -> None:
    """What is decorated must be a plain function."""
    if isinstance(target, type):
        raise TypeError(f"{decorator}: {target.__name__} is a class; use @billow.cls")
    if isinstance(target, Callables):
        raise TypeError(f"{decorator}: {target!r} is already decorated")
    if not callable(target):
        raise TypeError(f"{decorator}: {target!r} is not a function")
    above = getattr(target, "__qualname__", "").rpartition(".")[0]
    code = getattr(target, "__code__", None)
    names = getattr(code, "co_varnames", ())
    if above and not above.endswith("<locals>") and names[:1] == ("self",):
        raise TypeError(
            f"{decorator}: {target.__qualname__} is a method. Decorate its class with @billow.cls,"
            " and the method with @billow.method"
        )


class Callables(Generic[R]):
    """The ways to call one function or method of a pool."""

    def __init__(self, pool: Pool, method: str, function: Callable[..., Any]) -> None:
        self._pool = pool
        self._method = method
        self._function = function
        self._signature: Union[inspect.Signature, Literal[False], None] = None  # not looked at yet
        functools.update_wrapper(self, function, updated=())

    def __getstate__(self) -> Dict[str, Any]:
        return {"pool": self._pool, "method": self._method, "function": self._function}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        Callables.__init__(self, **state)

    def __repr__(self) -> str:
        return f"<billow.{type(self).__name__} {self._function.__qualname__}>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise missing(self._function.__qualname__, name, FUNCTION, dir(type(self)))

    def _args(self, given: Tuple[Any, ...], named: Dict[str, Any]) -> Args:
        """Arguments that do not fit are an error here, before they travel."""
        if self._signature is None:
            self._signature = signature_of(self._function)
        if self._signature:
            try:
                bound = self._method and not isinstance(self._function, staticmethod)
                self._signature.bind(*((None,) if bound else ()), *given, **named)
            except TypeError as problem:
                raise TypeError(f"{self._function.__qualname__}: {problem}") from None
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
            lambda records: self.map(records, progress=False), label, self._pool.charged,
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
            "access", "python", "include", "strategy", "drain", "min_at", "max_spend",
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
    min_at        workers that are awake at certain times (UTC), e.g. "Mon-Fri 08:00-18:00=2"
    max_spend     limit of what the awake workers cost per hour together, in dollars
    strategy      how new code replaces the old: auto, rolling or recreate
    drain         how long an old worker may finish its calls (default: no limit)
    include       files and directories that the worker needs beside its modules
    python        the interpreter (default: this one, or `python3` where it is missing)
    """

    def decorate(wrapped: Callable[..., Any]) -> Function[Any]:
        check_target(wrapped, "@billow.function")
        batch = getattr(wrapped, "__billow_batch__", (0, 0.0))
        settings = settings_of(dict(options))
        settings.batch = batch
        return Function(
            Pool(wrapped, settings, wrapped.__module__, wrapped.__qualname__), "", wrapped
        )

    return decorate(target) if target is not None else decorate


def batched(max: int = 32, wait_ms: float = 5.0, **other: Any) -> Callable[[F], F]:
    """Under `@billow.function` or `@billow.method`: the function gets lists of up to `max` inputs
    that arrived within `wait_ms`, and returns a list with one result for each."""
    check_names(other, {"max", "wait_ms"})
    size = whole_number(max, "max", 1)

    def decorate(wrapped: F) -> F:
        if isinstance(wrapped, Callables):
            raise TypeError("@billow.batched stands below @billow.function, next to the function")
        wrapped.__billow_batch__ = (size, float(wait_ms) / 1000)  # type: ignore[attr-defined]
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
