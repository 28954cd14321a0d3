"""`@billow.endpoint`, `@billow.asgi_app`, `@billow.web_server`: functions that serve HTTP."""

from __future__ import annotations

import functools
from typing import Any, Callable, Dict, List, Optional, Tuple

from ._client import Client, default_client
from ._deploy import settings_of
from ._elsewhere import ENDPOINT, missing
from ._function import check_target
from ._pool import Pool
from ._jobs import html_table, prepare
from ._options import command_of

WEB_CONCURRENCY = 8
DECORATORS = {"endpoint": "endpoint", "asgi": "asgi_app", "web_server": "web_server"}


class WebEndpoint:
    """An HTTP endpoint made from a function. `url` deploys it."""

    def __init__(self, pool: Pool, function: Callable[..., Any]) -> None:
        self._pool = pool
        self._function = function
        functools.update_wrapper(self, function, updated=())

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Calls the function here, in this process."""
        return self._function(*args, **named)

    def __repr__(self) -> str:
        return f"<billow.WebEndpoint {self._function.__qualname__}>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise missing(self._function.__qualname__, name, ENDPOINT, dir(type(self)))

    @property
    def name(self) -> str:
        return self._pool.name

    def deploy(self) -> str:
        """Deploys it; returns its address."""
        return self._pool.deploy()

    @property
    def url(self) -> str:
        return self._pool.caller().place.url

    @property
    def key(self) -> str:
        """The key that callers send: `Authorization: Bearer KEY`. Empty if access is open."""
        return self._pool.caller().place.key

    def delete(self) -> None:
        self._pool.head.delete(f"/v1/endpoints/{self.name}")
        self._pool._caller = None

    @property
    def info(self) -> Dict[str, Any]:
        return self._pool.head.endpoint(self.name)

    @property
    def cost(self) -> float:
        return float(self.info.get("cost_usd", 0.0))

    def _repr_html_(self) -> str:
        info = self.info
        rows = {"address": (info.get("urls") or [""])[0], "state": info.get("status", "")}
        rows["cost"] = f"${float(info.get('cost_usd', 0)):.4f}"
        return html_table(f"endpoint {self.name}", rows)


def _decorator(
    kind: str, target: Optional[Callable[..., Any]], options: Dict[str, Any], extra: Dict[str, Any]
) -> Any:
    def decorate(wrapped: Callable[..., Any]) -> WebEndpoint:
        check_target(wrapped, f"@billow.{DECORATORS[kind]}")
        settings = settings_of({"concurrency": WEB_CONCURRENCY, **options})
        settings.kind = kind
        loaded: Tuple[Any, Dict[str, Any]] = (wrapped, extra)
        return WebEndpoint(
            Pool(loaded, settings, wrapped.__module__, wrapped.__qualname__), wrapped
        )

    return decorate(target) if target is not None else decorate


def endpoint(
    target: Optional[Callable[..., Any]] = None, /, *, method: str = "GET", **options: Any
) -> Any:
    """Serves a function over HTTP: parameters come from the query or a JSON object, the result is
    JSON, text or octets, and a generator streams. Takes the options of `@billow.function`."""
    return _decorator("endpoint", target, options, {"method": method.upper()})


def asgi_app(target: Optional[Callable[..., Any]] = None, /, **options: Any) -> Any:
    """Serves the ASGI application (FastAPI, Starlette …) that the function returns."""
    return _decorator("asgi", target, options, {})


def web_server(port: Optional[int] = None, **options: Any) -> Any:
    """Serves what the function starts. Without `port`, the function is called with the port that
    its server must listen on. With `port`, the server listens there, on 127.0.0.1; two workers on
    one node then need different nodes."""
    return _decorator("web_server", None, {**options, "port": port}, {})


def schedule(
    command: Any, *, cron: str, name: str, client: Optional[Client] = None, **options: Any
) -> str:
    """Submits a job repeatedly: `schedule("python report.py", cron="0 6 * * *", name="report")`."""
    client = client or default_client()
    body = prepare(client, command_of(command), options)
    client.post("/v1/schedules", {**body, "name": name, "cron": cron})
    return name


def schedules(client: Optional[Client] = None) -> List[Dict[str, Any]]:
    """The schedules that you may see: name, cron, command, next start."""
    return list((client or default_client()).get("/v1/schedules").get("schedules", []))


def unschedule(name: str, client: Optional[Client] = None) -> None:
    """Removes a schedule; its jobs keep running."""
    (client or default_client()).delete(f"/v1/schedules/{name}")
