"""`billow map`: workers as jobs over the shards of a data set, and what they cost."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from typing import Any, Dict, List, Optional, Set

from ._client import Client
from ._errors import ApiError, ConnectionFailed, Error, NotFound
from ._places import OWN, Place, Shard, Trouble, find_shards, place_of
from ._progress import shown_on
from ._shards import START, carried, failure_name

LOOK_S = {True: 1.0, False: 5.0}  # how often the results are listed: in a directory, in a bucket
SAY_S = 10.0  # without a terminal
ELEMENTS_MAX = 32  # workers that are asked for their cost; more cost as much on average
END_S = 20.0  # workers are given to end after the last result
RESTARTS = 100  # of a worker that is killed; `tries` limits how often one shard may kill them


def size_text(size: float) -> str:
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if size < 1000 or unit == "TB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    raise AssertionError("unreachable")


def time_text(seconds: float) -> str:
    whole = int(seconds + 0.5)
    if whole < 120:
        return f"{whole} s"
    if whole < 7200:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


class Figures:
    """What is done, how fast, and the money: as a line for people and as a document."""

    def __init__(self, shards: List[Shard]) -> None:
        self.shards = shards
        self.size = {each.result: each.size for each in shards}
        self.began = time.monotonic()
        self.before: Optional[Set[str]] = None  # done when this run began
        self.done: Set[str] = set()
        self.failed: Set[str] = set()
        self.usd = 0.0

    def update(self, names: Set[str], usd: float) -> None:
        self.done = {each.result for each in self.shards if each.result in names}
        self.failed = {
            each.result
            for each in self.shards
            if failure_name(each) in names and each.result not in names
        }
        if self.before is None:
            self.before = set(self.done)
        self.usd = usd

    def _bytes(self, results: Set[str]) -> int:
        return sum(max(1, self.size[each]) for each in results)

    def document(self) -> Dict[str, Any]:
        passed = max(time.monotonic() - self.began, 1e-6)
        own = self._bytes(self.done - (self.before or set()))
        left = sum(max(1, each) for each in self.size.values()) - self._bytes(
            self.done | self.failed
        )
        rate = own / passed
        return {
            "files": len(self.shards),
            "done": len(self.done),
            "failed": len(self.failed),
            "bytes": sum(self.size.values()),
            "bytes_done": sum(self.size[each] for each in self.done),
            "bytes_per_s": round(rate, 1),
            "seconds": round(passed, 3),
            "seconds_left": round(left / rate, 1) if rate > 0 else None,
            "usd": round(self.usd, 6),
            "usd_left": round(self.usd * left / own, 6) if own else None,
        }

    def line(self) -> str:
        now = self.document()
        failed = f", {now['failed']} failed" if now["failed"] else ""
        text = (
            f"{now['done']} of {now['files']} files{failed},"
            f" {size_text(now['bytes_done'])} of {size_text(now['bytes'])}"
        )
        if now["seconds_left"] is None:
            return f"{text}, ${now['usd']:.4f} so far"
        return (
            f"{text}, {size_text(now['bytes_per_s'])}/s, {time_text(now['seconds_left'])} left,"
            f" ${now['usd']:.4f} so far, ${now['usd_left'] or 0:.4f} to go"
        )


class Run:
    def __init__(self, request: Dict[str, Any], client: Client) -> None:
        self.request = request
        self.client = client
        self.endpoint = str(request.get("endpoint", ""))
        self.command = [str(word) for word in request.get("command", [])]
        self.tries = int(request.get("tries") or 3)
        self.output = str(request["output"])
        if not self.output.startswith("s3://"):
            self.output = os.path.abspath(self.output)
        self.place: Place = place_of(self.output)
        about = [self.endpoint, str(request.get("path") or "/"), *self.command]
        self.id = hashlib.sha256("\0".join([self.output, *about]).encode()).hexdigest()[:16]
        self.shards = self._shards()
        self.endpoint_usd = 0.0  # before this run
        self.jobs: List[str] = []
        self.whole_since = 0.0  # since when there is nothing left to do

    def _shards(self) -> List[Shard]:
        patterns = [str(each) for each in self.request["input"]]
        found = find_shards(patterns)
        if self.endpoint:  # the answer to a picture is not a picture
            found = [
                (
                    each
                    if each.name.endswith((".jsonl", ".ndjson"))
                    else each._replace(result=each.result + ".json")
                )
                for each in found
            ]
        if not found:
            raise Error(
                f"no file matches {', '.join(patterns)}",
                "quote the pattern, so that the shell leaves it as it is",
            )
        return found

    # ---- the plan
    def prepare(self) -> None:
        """Writes the plan; refuses a place that has the results of another map."""
        plan: Dict[str, Any] = {
            "id": self.id,
            "shards": self.shards,
            "tries": self.tries,
            "command": self.command,
        }
        if self.endpoint:
            plan.update(
                endpoint=self.endpoint,
                url=self._url(),
                path=str(self.request.get("path") or "/"),
                concurrency=int(self.request.get("concurrency") or 16),
            )
        found = self.place.get(OWN + "plan.json")
        if found is not None and json.loads(found[0]).get("id") != self.id:
            raise Error(
                f"{self.place.text} has the results of another command or endpoint",
                "choose another --output, or delete the old results",
            )
        names = self.place.names()
        unknown = {each.result for each in self.shards} & names
        if found is None and unknown:
            raise Error(
                f"{self.place.text} already has {sorted(unknown)[0]}, which is not a result of map",
                "choose another --output",
            )
        for shard in self.shards:
            if failure_name(shard) in names:
                self.place.delete(failure_name(shard))  # it is tried again
        self.place.clean()
        self.place.put(OWN + "plan.json", json.dumps(plan).encode())

    def _url(self) -> str:
        document = self.client.endpoint(self.endpoint)
        self.endpoint_usd = float(document.get("cost_usd") or 0)
        urls = document.get("urls") or []
        if not urls:
            raise Error(
                f"the endpoint {self.endpoint} has no address: no gateway serves it",
                f"see `billow describe {self.endpoint}`",
            )
        return str(urls[0])

    # ---- the workers
    def _alive(self) -> List[str]:
        """Workers that an earlier run of the same command left behind."""
        out = []
        for each in self.client.jobs(state="active", limit=1000):
            if (each.get("labels") or {}).get("map") == self.id:
                out.append(str(each["id"]))
        return out

    def submit(self, todo: int) -> None:
        self.jobs = self._alive()
        if self.jobs:
            print(f"billow: the workers of an earlier run continue: job {self.jobs[0]}",
                  file=sys.stderr)  # fmt: skip
            return
        count = min(todo, int(self.request.get("workers") or (1 if self.endpoint else 4)))
        given = [str(word) for word in self.request.get("job", [])]
        words = [
            os.environ.get("BILLOW_PROGRAM") or "billow", "submit", "--json",
            f"--array=0-{count - 1}", f"--label=map={self.id}", "--rerun-if-lost",
            f"--retries={RESTARTS}", "--backoff=100ms",
        ]  # fmt: skip
        if not any(word.startswith("--name=") for word in given):
            words.append("--name=map")
        variables = {
            "BILLOW_MAP_OUTPUT": self.output,
            "BILLOW_MAP_PROGRAM": carried(),
            "PYTHONUNBUFFERED": "1",
        }
        for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION"):
            if os.environ.get(name):
                variables[name] = os.environ[name]
        words += [f"--env-var={name}={value}" for name, value in variables.items()]
        done = subprocess.run(
            [*words, *given, "--", "python3", "-c", START],
            stdout=subprocess.PIPE,
            check=False,
        )
        if done.returncode != 0:
            sys.exit(done.returncode)  # it has said why
        self.jobs = [str(json.loads(done.stdout)["id"])]

    def documents(self) -> List[Dict[str, Any]]:
        """The workers: arrays."""
        return [self.client.get(f"/v1/jobs/{job}") for job in self.jobs]

    def _spent(self, array: Dict[str, Any]) -> int:
        """In nano-dollars. An array says what its ended elements cost; the others are asked."""
        if array.get("final"):
            return int(array.get("cost_nano_usd") or 0)
        count = int((array.get("elements") or {}).get("count") or 0)
        elements = [f"{array['id']}.{index}" for index in range(min(count, ELEMENTS_MAX))]
        known = [self.client.get(f"/v1/jobs/{each}") for each in elements]
        spent = sum(int(each.get("cost_nano_usd") or 0) for each in known)
        return spent * count // max(1, len(known))

    def usd(self, documents: List[Dict[str, Any]]) -> float:
        spent = sum(self._spent(each) for each in documents) / 1e9
        if self.endpoint:
            try:
                now = float(self.client.endpoint(self.endpoint).get("cost_usd") or 0)
                spent += max(0.0, now - self.endpoint_usd)
            except NotFound:
                pass
        return spent

    def stop(self) -> None:
        for job in self.jobs:
            try:
                self.client.post(f"/v1/jobs/{job}/stop", {})
            except (ApiError, ConnectionFailed):
                pass

    def watch(self, figures: Figures) -> None:
        """Until each shard has a result or has failed, or no worker is left."""
        said = 0.0
        with shown_on(None) as show:
            while not self._look(figures):
                show(figures.line())
                if not sys.stderr.isatty() and time.monotonic() - said > SAY_S:
                    said = time.monotonic()
                    print(f"billow: {figures.line()}", file=sys.stderr)
                time.sleep(LOOK_S[not self.output.startswith("s3://")])
            show(figures.line())

    def _look(self, figures: Figures) -> bool:
        """Brings the figures up to date; whether nothing more will come."""
        try:
            documents = self.documents()
            ended = all(bool(each.get("final")) for each in documents)
            usd = self.usd(documents)
        except ConnectionFailed:  # a head that restarts: its workers go on
            ended, usd = False, figures.usd
        figures.update(self.place.names(), usd)
        if len(figures.done | figures.failed) < len(self.shards):
            return ended
        # The workers look once more and end; only then the bill is complete.
        self.whole_since = self.whole_since or time.monotonic()
        return ended or time.monotonic() - self.whole_since > END_S


def finish(run: Run, figures: Figures) -> int:
    document = {**figures.document(), "jobs": run.jobs, "output": run.place.text}
    failures = {}
    for shard in run.shards:
        if shard.result in figures.failed:
            found = run.place.get(failure_name(shard))
            failures[shard.name] = found[0].decode("utf-8", "replace") if found else ""
    if run.request.get("json"):
        print(json.dumps({**document, "failures": failures}))
    else:
        print(
            f"{document['done']} of {document['files']} files,"
            f" {size_text(document['bytes_done'])}, in {time_text(document['seconds'])},"
            f" ${document['usd']:.4f}; results in {run.place.text}"
        )
    for name, why in list(failures.items())[:10]:
        print(f"billow: {name} failed: {why}", file=sys.stderr)
    left = document["files"] - document["done"] - document["failed"]
    if left:
        print(
            (
                f"billow: the workers have ended and {left} files have no result\n"
                f"hint: see `billow logs {run.jobs[0] if run.jobs else 'JOB'}`; the same command"
                " continues"
            ),
            file=sys.stderr,
        )
    elif failures:
        print("hint: the same command tries the failed files again", file=sys.stderr)
    return 1 if left or failures else 0


def run_map(request: Dict[str, Any], client: Optional[Client] = None) -> int:
    run = Run(request, client or Client())
    run.prepare()
    figures = Figures(run.shards)
    figures.update(run.place.names(), 0.0)
    todo = len(run.shards) - len(figures.done)
    if todo == 0:
        return finish(run, figures)
    run.submit(todo)
    if request.get("detach"):
        print(json.dumps({"jobs": run.jobs}) if request.get("json") else run.jobs[0])
        return 0
    try:
        run.watch(figures)
    except KeyboardInterrupt:
        run.stop()
        print("\nbillow: stopped; the same command continues", file=sys.stderr)
        return 130
    return finish(run, figures)


def main() -> int:
    try:
        return run_map(json.loads(sys.argv[1]))
    except (Error, Trouble, OSError) as problem:
        text = problem.message if isinstance(problem, Error) else str(problem)
        print(f"billow: {text}", file=sys.stderr)
        if isinstance(problem, Error) and problem.hint:
            print(f"hint: {problem.hint}", file=sys.stderr)
        return 69 if isinstance(problem, ConnectionFailed) else 1
