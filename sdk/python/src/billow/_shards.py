"""Shards of a data set: files that workers claim, compute and write exactly once.

The place of the results is the only state, so that anything may be killed at any time. A result is
written under another name and then linked (or put on condition that it does not exist): it is whole
or absent, and the first one stays. Claims only keep two workers from the same shard; a worker that
is slow and loses its claim wastes its work, and no result is lost, torn or written twice.

Standard library only: `billow map` sends this file and `_places` to its workers as they are.
"""

from __future__ import annotations

import base64
import concurrent.futures
import http.client
import json
import mimetypes
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
import uuid
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from ._places import OWN, RETRY_STATUS, Place, Shard, Trouble, place_of

BEAT_S = 5.0
STALE_S = 30.0  # a claim that has not changed for so long has lost its worker


# ---- claims


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def _begun(pid: int) -> str:
    """When a process began: a number that another process with the same id does not have."""
    return (_read(f"/proc/{pid}/stat").rpartition(")")[2].split() or [""] * 20)[19]


def owner() -> Dict[str, Any]:
    try:
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        space = socket.gethostname()
    where = _read("/proc/sys/kernel/random/boot_id") + space
    return {
        "id": uuid.uuid4().hex,
        "where": where,
        "pid": os.getpid(),
        "begun": _begun(os.getpid()),
    }


def _is_dead(claim: Dict[str, Any], me: Dict[str, Any]) -> bool:
    """Whether its worker was a process of this machine that has ended."""
    if claim.get("where") != me["where"] or not me["begun"]:
        return False
    return _begun(int(claim.get("pid", 0))) != claim.get("begun")


class Claim:
    """A shard that is ours while the beat goes on."""

    def __init__(self, place: Place, shard: Shard, attempt: int, me: Dict[str, Any]) -> None:
        self.place, self.shard, self.attempt = place, shard, attempt
        self._me = me
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    @property
    def name(self) -> str:
        return f"{OWN}{self.shard.result}.claim"

    def content(self) -> bytes:
        return json.dumps({**self._me, "attempt": self.attempt, "beat": time.time()}).encode()

    def _beat(self) -> None:
        while not self._stop.wait(BEAT_S):
            try:
                self.place.put(self.name, self.content())
            except (OSError, Trouble) as problem:
                print(f"billow map: the claim was not renewed: {problem}", file=sys.stderr)

    def begin(self) -> bool:
        if not self.place.put_new(self.name, self.content()):
            return False
        self._thread.start()
        return True

    def end(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        self.place.delete(self.name)


class Claims:
    def __init__(self, place: Place) -> None:
        self.place = place
        self.me = owner()
        self._seen: Dict[str, Tuple[str, float]] = {}  # claim → its tag, and since when

    def claim(self, shard: Shard, tries: int) -> Optional[Claim]:
        claim = Claim(self.place, shard, 1, self.me)
        if claim.begin():
            return claim
        found = self.place.get(claim.name)
        if found is None:
            return None
        try:
            other = json.loads(found[0])
        except ValueError:
            other = {}
        tag, since = self._seen.get(claim.name, ("", 0.0))
        if tag != found[1]:
            self._seen[claim.name] = (found[1], time.monotonic())
            since = time.monotonic()
        if not _is_dead(other, self.me) and time.monotonic() - since < STALE_S:
            return None
        if not self.place.take(claim.name, found[1]):
            return None
        claim = Claim(self.place, shard, int(other.get("attempt", 1)) + 1, self.me)
        if claim.attempt > tries:
            fail(self.place, shard, f"its worker was lost {tries} times")
            return None
        return claim if claim.begin() else None


def failure_name(shard: Shard) -> str:
    return f"{OWN}{shard.result}.failed"


def fail(place: Place, shard: Shard, why: str) -> None:
    place.put(failure_name(shard), why.encode())


# ---- computing


def with_command(words: List[str], tries: int) -> Callable[[Shard, str, str], None]:
    """A command reads the shard from its stdin; its stdout is the result."""

    def compute(shard: Shard, source: str, target: str) -> None:
        environment = {**os.environ, "BILLOW_MAP_INPUT": source, "BILLOW_MAP_SHARD": shard.name}
        for attempt in range(1, tries + 1):
            with open(source, "rb") as read, open(target, "wb") as write:
                done = subprocess.run(
                    words, stdin=read, stdout=write, env=environment, check=False
                ).returncode
            if done == 0:
                return
            print(
                f"billow map: {shard.name}: {words[0]} ended with {done} (attempt {attempt})",
                file=sys.stderr,
            )
        raise Trouble(f"{words[0]} ended with {done}, {tries} times")

    return compute


class Endpoint:
    """Requests to an endpoint: each line of a .jsonl file, or another file whole."""

    def __init__(self, url: str, path: str, tries: int, concurrency: int) -> None:
        self.url = urllib.parse.urlsplit(url)
        self.path = self.url.path.rstrip("/") + "/" + path.lstrip("/")
        self.tries, self.concurrency = tries, concurrency
        self.key = os.environ.get("BILLOW_ENDPOINT_KEY", "")
        self._kept = threading.local()

    def _connection(self) -> Any:
        if getattr(self._kept, "connection", None) is None:
            secure = self.url.scheme == "https"
            kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
            self._kept.connection = kind(self.url.netloc, timeout=600)
        return self._kept.connection

    def ask(self, body: bytes, kind: str) -> bytes:
        """The answer as one line of JSON. A refusal (4xx) is an answer too."""
        headers = {"Content-Type": kind}
        if self.key:
            headers["Authorization"] = "Bearer " + self.key
        problem: Any = None
        for attempt in range(self.tries):
            time.sleep(min(30.0, attempt * attempt * 0.5))
            connection = self._connection()
            try:
                connection.request("POST", self.path, body, headers)
                answer = connection.getresponse()
                content = answer.read()
            except (OSError, http.client.HTTPException) as failed:
                connection.close()
                self._kept.connection = None
                problem = failed
                continue
            if answer.status in RETRY_STATUS:
                problem = f"{answer.status} {content[:200].decode('utf-8', 'replace')}"
                continue
            return _line(answer.status, content)
        raise Trouble(f"{self.url.netloc}{self.path}: {problem}, {self.tries} times")

    def __call__(self, shard: Shard, source: str, target: str) -> None:
        if not shard.name.endswith((".jsonl", ".ndjson")):
            with open(source, "rb") as file:
                body = file.read()
            kind = mimetypes.guess_type(shard.name)[0] or "application/octet-stream"
            with open(target, "wb") as write:
                write.write(self.ask(body, kind) + b"\n")
            return
        with open(source, "rb") as read, open(target, "wb") as write:
            lines = (line for line in read if line.strip())
            ask = lambda line: self.ask(line.strip(), "application/json")  # noqa: E731
            for answer in in_order(ask, lines, self.concurrency):
                write.write(answer + b"\n")


def _line(status: int, content: bytes) -> bytes:
    try:
        value = json.loads(content)
    except ValueError:
        value = {"text": content.decode("utf-8", "replace")}
    if status >= 400:
        value = {"error": value, "status": status}
    return json.dumps(value, ensure_ascii=False).encode()


def in_order(call: Callable[[Any], Any], inputs: Iterator[Any], width: int) -> Iterator[Any]:
    """Results in the order of the inputs, `width` calls at once, with bounded memory."""
    under_way: List["concurrent.futures.Future[Any]"] = []
    with concurrent.futures.ThreadPoolExecutor(width) as threads:
        for each in inputs:
            under_way.append(threads.submit(call, each))
            if len(under_way) >= 2 * width:
                yield under_way.pop(0).result()
        for future in under_way:
            yield future.result()


# ---- a worker


def work(
    place: Place,
    shards: List[Shard],
    compute: Callable[[Shard, str, str], None],
    tries: int,
) -> int:
    """Works until each shard has a result or has failed; returns how many it wrote itself."""
    claims, wrote = Claims(place), 0
    first = int(claims.me["id"], 16) % max(1, len(shards))  # workers begin in different places
    order = shards[first:] + shards[:first]
    while True:
        known = place.names()
        order = [each for each in order if not ({each.result, failure_name(each)} & known)]
        if not order:
            return wrote
        for shard in order:
            if _ended(place, shard):
                continue
            claim = claims.claim(shard, tries)
            if claim is None:
                continue
            try:
                # Another worker may have ended it between the question and the claim.
                if not _ended(place, shard) and _compute(place, shard, compute):
                    wrote += 1
            finally:
                claim.end()
        time.sleep(1.0)


def _ended(place: Place, shard: Shard) -> bool:
    return bool(place.exists(shard.result) or place.exists(failure_name(shard)))


def _compute(place: Place, shard: Shard, compute: Callable[[Shard, str, str], None]) -> bool:
    source = ""
    local = not shard.source.startswith("s3://")
    target = place.scratch()
    try:
        source = place_of(shard.source).fetch(shard.name)
        compute(shard, source, target)
        return bool(place.create(shard.result, target))
    except (Trouble, OSError) as problem:
        fail(place, shard, str(problem))
        print(f"billow map: {shard.name} failed: {problem}", file=sys.stderr)
        return False
    finally:
        for path in (target, "" if local else source):
            if path and os.path.exists(path):
                os.unlink(path)


def main() -> None:
    """The program of a worker: the plan is at the place of the results."""
    place = place_of(os.environ["BILLOW_MAP_OUTPUT"])
    found = place.get(OWN + "plan.json")
    if found is None:
        sys.exit(f"billow map: {place.text} has no plan")
    plan = json.loads(found[0])
    shards = [Shard(*each) for each in plan["shards"]]
    compute: Callable[[Shard, str, str], None]
    if plan.get("endpoint"):
        compute = Endpoint(plan["url"], plan["path"], plan["tries"], plan["concurrency"])
    else:
        compute = with_command(plan["command"], plan["tries"])
    wrote = work(place, shards, compute, plan["tries"])
    print(f"billow map: this worker wrote {wrote} of {len(shards)} results", file=sys.stderr)


def carried() -> str:
    """This program in one variable; `python3 -c` with START runs it."""
    import zlib

    from . import _places

    text = ""
    for path in (str(_places.__file__), __file__):
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
        ours = ("from __future__", "from ._places")
        text += "\n".join(line for line in lines if not line.startswith(ours)) + "\n"
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


START = (
    "import base64,os,sys,types,zlib;"
    "m=types.ModuleType('billow_shards');sys.modules['billow_shards']=m;"
    "exec(compile(zlib.decompress(base64.b64decode(os.environ.pop('BILLOW_MAP_PROGRAM'))),"
    "'billow_shards','exec'),m.__dict__);m.main()"
)
