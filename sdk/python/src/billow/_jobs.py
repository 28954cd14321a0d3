"""Jobs: `run` waits for one, `submit` returns it, `grid` submits many that differ in parameters."""

from __future__ import annotations

import difflib
import html
import io
import itertools
import os
import re
import shlex
import sys
import time
import uuid
from typing import (
    IO,
    Any,
    AsyncIterator,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    Optional,
    Sequence,
    Union,
)
from urllib.parse import quote

from ._client import Client, default_client, in_thread, over
from ._errors import ConnectionFailed, JobFailed, NotFound
from ._files import download, fetch_file, read_tree, scan, upload
from ._options import InvalidOption, command_of, list_of, mapping_of, shown, spec_of, variables_of

Command = Union[str, Sequence[Any]]
Dependency = Union[int, str, "Job"]

WAIT_S = 50  # of one question; asked again until the job has ended
HEAD_AWAY_S = 300.0


class Job:
    """A job of the head. Properties ask the head; `document` is everything that it says."""

    def __init__(self, id: Union[int, str], client: Optional[Client] = None) -> None:
        self.id = str(id)
        self._client = client or default_client()

    def __repr__(self) -> str:
        return f"<billow.Job {self.id}>"

    @property
    def _path(self) -> str:
        return f"/v1/jobs/{quote(self.id, safe='')}"

    @property
    def document(self) -> Dict[str, Any]:
        return self._client.get(self._path)

    @property
    def state(self) -> str:
        """held, queued, running, suspended, succeeded, failed, stopped or lost."""
        return str(self.document["state"])

    @property
    def done(self) -> bool:
        return bool(self.document["final"])

    @property
    def exit_code(self) -> Optional[int]:
        """None while the job has not ended."""
        document = self.document
        return int(document["exit_code"]) if document["final"] else None

    @property
    def name(self) -> str:
        return str(self.document.get("name", ""))

    @property
    def cost(self) -> float:
        """The charge so far, in USD."""
        return int(self.document.get("cost_nano_usd", 0)) / 1e9

    def costs(self) -> Dict[str, Any]:
        """The charge lease by lease, with energy and idle time."""
        return self._client.get(f"{self._path}/cost")

    def explain(self) -> str:
        """Why the job does not run, in sentences; empty if nothing blocks it."""
        found = self._client.get(f"{self._path}/explain")
        return "\n".join(str(reason.get("text", "")) for reason in found.get("reasons", []))

    # ---- waiting
    def wait(self, timeout: Optional[float] = None, check: bool = True) -> Job:
        """Returns when the job has ended. `check`: raise JobFailed unless it succeeded. A head that
        restarts meanwhile is waited for."""
        deadline = None if timeout is None else time.monotonic() + timeout
        away_until: Optional[float] = None
        while True:
            left = WAIT_S if deadline is None else deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"job {self.id} has not ended within {timeout} s")
            ask = int(min(WAIT_S, max(1.0, left)))
            try:
                document = self._client.call(
                    "GET", f"{self._path}/wait?timeout_s={ask}", timeout=ask + 30.0
                )
            except ConnectionFailed:
                away_until = away_until or time.monotonic() + HEAD_AWAY_S
                if time.monotonic() > away_until:
                    raise
                time.sleep(0.2)
                continue
            away_until = None
            if not document["final"]:
                continue
            if check and document["state"] != "succeeded":
                raise self._failure(document)
            return self

    def _failure(self, document: Mapping[str, Any]) -> JobFailed:
        how = document.get("exit", {}).get("text") or document.get("reason") or document["state"]
        reason = document.get("reason")
        return JobFailed(
            f"job {self.id} {document['state']}: {reason or how}",
            self,
            document.get("exit_code"),
            f"see `billow logs {self.id}`",
        )

    def __await__(self) -> Iterator[Any]:
        return in_thread(self.wait).__await__()

    def stop(self, force: bool = False) -> None:
        self._client.post(f"{self._path}/stop", {"force": True} if force else {})

    def suspend(self) -> None:
        self._client.post(f"{self._path}/suspend")

    def resume(self) -> None:
        self._client.post(f"{self._path}/resume")

    def signal(self, number: int) -> None:
        self._client.post(f"{self._path}/signal", {"signal": int(number)})

    # ---- output
    def output(self, follow: bool = False, rank: int = 0) -> Iterator["tuple[str, bytes]"]:
        """("out" or "err", octets) as they were written."""
        return self._client.log(self.id, follow, rank)

    def logs(self, follow: bool = False, rank: int = 0) -> Iterator[str]:
        """The lines of both streams; with `follow` until the job has ended."""
        pending: Dict[str, bytes] = {}
        for stream, data in self.output(follow, rank):
            *lines, rest = (pending.get(stream, b"") + data).split(b"\n")
            pending[stream] = rest
            for line in lines:
                yield line.decode("utf-8", "replace")
        for rest in pending.values():
            if rest:
                yield rest.decode("utf-8", "replace")

    def alogs(self, follow: bool = False, rank: int = 0) -> AsyncIterator[str]:
        """`logs` for asyncio: `async for line in job.alogs(follow=True)`."""
        return over(self.logs(follow, rank))

    def text(self) -> str:
        """The whole log so far."""
        return b"".join(data for _, data in self.output()).decode("utf-8", "replace")

    @property
    def outputs(self) -> Outputs:
        """The files that the job kept (`outputs=[…]`), after it has ended."""
        return Outputs(self)

    def _repr_html_(self) -> str:
        try:
            document = self.document
        except (NotFound, ConnectionFailed) as problem:
            return f"<b>job {html.escape(self.id)}</b>: {html.escape(str(problem))}"
        rows = {
            "state": document["state"],
            "command": document.get("command", ""),
            "GPUs": document.get("gpu_milli", 0) / 1000 or "none",
            "cost": f"${int(document.get('cost_nano_usd', 0)) / 1e9:.4f}",
            "reason": document.get("reason", ""),
        }
        return html_table(f"job {self.id} {document.get('name', '')}", rows)


def html_table(title: str, rows: Mapping[str, object]) -> str:
    cells = "".join(
        f"<tr><td>{html.escape(name)}</td><td><code>{html.escape(str(value))}</code></td></tr>"
        for name, value in rows.items()
        if value not in ("", None)
    )
    return f"<table><caption>{html.escape(title)}</caption>{cells}</table>"


class Outputs:
    """Files that a job kept. `outputs["results/model.pt"]` reads one, `save` writes them."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._client = job._client
        self._trees: Optional[Dict[int, str]] = None

    def _tree(self, rank: int) -> str:
        if self._trees is None:
            found = self._client.get(f"{self._job._path}/outputs").get("outputs", [])
            self._trees = {int(each["rank"]): str(each["tree"]) for each in found}
        try:
            return self._trees[rank]
        except KeyError:
            raise NotFound(
                404,
                f"job {self._job.id} has no outputs",
                "name what it keeps with outputs=[…]; they exist after its end",
            ) from None

    def list(self, rank: int = 0) -> List[str]:
        entries = read_tree(self._client, self._tree(rank))
        return [entry.path for entry in entries if entry.kind == "f"]

    def __iter__(self) -> Iterator[str]:
        return iter(self.list())

    def __getitem__(self, path: str) -> bytes:
        digest = self._tree(0)
        for entry in read_tree(self._client, digest):
            if entry.path == path and entry.kind == "f":
                return b"".join(fetch_file(self._client, digest, entry))
        raise KeyError(path)

    def save(self, directory: Union[str, "os.PathLike[str]"], rank: int = 0) -> List[str]:
        """Writes them below a directory; returns the paths of the files."""
        return download(self._client, self._tree(rank), os.fspath(directory))


# ---- submitting


def job_number(client: Client, job: Dependency) -> int:
    """The number of a job that is given by number, name or as an object."""
    text = job.id if isinstance(job, Job) else str(job)
    return int(text) if text.isdigit() else int(client.get(f"/v1/jobs/{quote(text)}")["id"])


def _dependencies(client: Client, after: Any) -> List[Dict[str, Any]]:
    given = after if isinstance(after, (list, tuple)) else [after]
    out = []
    for each in given:
        kind = "ok"
        if isinstance(each, str) and ":" in each:
            kind, each = each.split(":", 1)
        out.append({"job": job_number(client, each), "kind": kind})
    return out


def _reservation(client: Client, given: Any) -> int:
    """The number of a reservation that is given by number or name."""
    if str(given).isdigit():
        return int(given)
    for each in client.get("/v1/reservations").get("reservations", []):
        if each.get("name") == given:
            return int(each["id"])
    raise NotFound(404, f"there is no reservation {given!r}", "see `billow reserve list`")


def _follow(client: Client, options: Mapping[str, Any]) -> bool:
    """Whether the working directory follows the job, as for the command line."""
    if options.get("sync") is not None:
        return bool(options["sync"])
    if options.get("outputs") or options.get("inputs") or options.get("isolation") == "strict":
        return True
    return not client.head.address.is_local


def prepare(client: Client, argv: Sequence[str], options: Mapping[str, Any]) -> Dict[str, Any]:
    """The body of a submission; uploads the working directory where it follows the job."""
    spec = spec_of(argv, options)
    if options.get("after"):
        spec["after"] = _dependencies(client, options["after"])
    if options.get("reservation"):
        spec["reservation"] = _reservation(client, options["reservation"])
    variables = variables_of(options)
    kept = [each for each in list_of(options.get("outputs"), "outputs") if "=s3://" not in each]
    if kept:
        variables["BILLOW_OUTPUTS"] = "\n".join(kept)
    if _follow(client, options):
        tree = scan(spec["cwd"])
        if tree.left_out:
            names = ", ".join(tree.left_out[:5])
            print(f"billow: {names} may contain secrets and stays here", file=sys.stderr)
        variables["BILLOW_FILES"] = upload(client, tree)
    body: Dict[str, Any] = {"spec": spec, "env": variables}
    if options.get("project"):
        body["project"] = options["project"]
    return body


def submit(command: Command, *, client: Optional[Client] = None, **options: Any) -> Job:
    """Submits a job: `submit(["python", "train.py"], gpus=1)`. A string is run by the shell. The
    options are those of `billow submit` with underscores (see docs/python.md)."""
    client = client or default_client()
    body = prepare(client, command_of(command), options)
    return Job(post_job(client, body, options.get("idempotency_key")), client)


def post_job(client: Client, body: Mapping[str, Any], key: Optional[str] = None) -> int:
    """Submits a job by its description and returns its number."""
    # The same key for a repetition: a head that was away may have taken the first one.
    headers = {"Idempotency-Key": key or uuid.uuid4().hex}
    for attempt in itertools.count():
        try:
            return int(client.call("POST", "/v1/jobs", body, headers)["id"])
        except ConnectionFailed:
            if attempt == 5:
                raise
            time.sleep(0.2 * (attempt + 1))
    raise AssertionError("unreachable")


def run(
    command: Command,
    *,
    client: Optional[Client] = None,
    check: bool = True,
    quiet: bool = False,
    out: Optional[IO[bytes]] = None,
    err: Optional[IO[bytes]] = None,
    **options: Any,
) -> Job:
    """Runs a job and shows its output as it comes; returns when it has ended. Ctrl-C stops it."""
    job = submit(command, client=client, **options)
    sinks: Dict[str, Callable[[bytes], object]] = {
        "out": _sink(out, sys.stdout),
        "err": _sink(err, sys.stderr),
    }
    try:
        for stream, data in job.output(follow=True):
            if not quiet:
                sinks[stream](data)
        return job.wait(check=check)
    except KeyboardInterrupt:
        job.stop()
        raise


def _sink(given: Optional[IO[bytes]], usual: Any) -> Callable[[bytes], object]:
    if given is not None:
        return given.write
    binary: Any = getattr(usual, "buffer", None)
    if isinstance(binary, (io.BufferedIOBase, io.RawIOBase)):

        def write(data: bytes) -> None:
            usual.flush()
            binary.write(data)
            binary.flush()

        return write
    return lambda data: usual.write(data.decode("utf-8", "replace"))  # a notebook


class Grid(Sequence[Job]):
    """Jobs that differ in their parameters; `parameters[i]` are those of `self[i]`."""

    def __init__(self, jobs: Iterable[Job], parameters: Iterable[Dict[str, Any]]) -> None:
        self.jobs = list(jobs)
        self.parameters = list(parameters)

    def __repr__(self) -> str:
        shown = ", ".join(str(job.id) for job in self.jobs[:8])
        more = ", …" if len(self.jobs) > 8 else ""
        return f"<billow.Grid of {len(self.jobs)} jobs: {shown}{more}>"

    def __len__(self) -> int:
        return len(self.jobs)

    def __getitem__(self, index: Any) -> Any:
        return self.jobs[index]

    def wait(self, timeout: Optional[float] = None, check: bool = True) -> Grid:
        deadline = None if timeout is None else time.monotonic() + timeout
        for job in self.jobs:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            job.wait(left, check)
        return self

    def __await__(self) -> Iterator[Any]:
        return in_thread(self.wait).__await__()

    def stop(self) -> None:
        for job in self.jobs:
            job.stop()

    @property
    def cost(self) -> float:
        return sum(job.cost for job in self.jobs)

    def states(self) -> Dict[str, int]:
        """How many jobs are in each state."""
        out: Dict[str, int] = {}
        for job in self.jobs:
            state = job.state
            out[state] = out.get(state, 0) + 1
        return out

    def _repr_html_(self) -> str:
        return html_table(f"{len(self)} jobs", dict(self.states()))


def grid(
    command: Command,
    *,
    client: Optional[Client] = None,
    params: Mapping[str, Iterable[Any]],
    **options: Any,
) -> Grid:
    """Submits the command once for each combination: `grid("python train.py --lr {lr}",
    params={"lr": [0.1, 0.01], "seed": range(3)}, gpus=1)`. Each job finds its parameters in
    `{name}` of the command and in variables with the names in capital letters."""
    client = client or default_client()
    names = list(params)
    _check_names(command, names)
    combinations = [dict(zip(names, each)) for each in itertools.product(*params.values())]
    jobs = []
    for chosen in combinations:
        words = {name: str(value) for name, value in chosen.items()}
        quoted = {name: shlex.quote(value) for name, value in words.items()}
        filled: Command = (
            _filled(command, quoted)
            if isinstance(command, str)
            else [_filled(str(word), words) for word in command]
        )
        variables = {**mapping_of(options.get("env_vars"), "env_vars")}
        variables.update({name.upper(): value for name, value in words.items()})
        jobs.append(submit(filled, client=client, **{**options, "env_vars": variables}))
    return Grid(jobs, combinations)


def _check_names(command: Command, names: Sequence[str]) -> None:
    """A command may have braces of its own, but hardly ones that resemble a parameter's name."""
    text = command if isinstance(command, str) else " ".join(map(str, command))
    for found in re.findall(r"(?<!\$)\{([A-Za-z_]\w*)\}", text):
        near = difflib.get_close_matches(found, names, 1, 0.6)
        if near and found not in names:
            raise InvalidOption(
                f"{{{found}}} of the command is not a parameter", f"did you mean {{{near[0]}}}?"
            )


def _filled(text: str, words: Mapping[str, str]) -> str:
    """Only the named parameters are replaced: a command may have braces of its own."""
    for name, value in words.items():
        text = text.replace("{" + name + "}", value)
    return text


__all__ = ["Job", "Grid", "Outputs", "grid", "run", "shown", "submit"]
