"""`Function.map_dataset`: a function over the records of many files, with results in files."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Set, Union

from ._errors import Error
from ._map import Results
from ._map_command import Figures
from ._places import OWN, Shard, Trouble, find_shards, place_of
from ._progress import shown_on
from ._shards import failure_name, work

LOOK_S = 0.5
STOPS_WITHIN_S = 5.0

Call = Callable[[Iterable[Any]], Results[Any]]


class DatasetFailed(Error):
    """Some files have no result. `failures` says why, by name."""

    def __init__(self, failures: Dict[str, str]) -> None:
        name, why = next(iter(failures.items()))
        super().__init__(
            f"{len(failures)} files failed, for example {name}: {why}",
            "call map_dataset again to try them again",
        )
        self.failures = failures


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


class _Stopped(BaseException):
    """Leaves a file to the next run: no Exception, which would mark the file as failed."""


class _Computing:
    """Computes files with the function, until the person interrupts it."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._lock = threading.Lock()
        self._active: Set[Results[Any]] = set()
        self._stopped = False

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            for each in self._active:
                each.cancel()

    @contextlib.contextmanager
    def _results(self, inputs: Iterable[Any]) -> Iterator[Results[Any]]:
        with contextlib.closing(self._call(inputs)) as results:
            with self._lock:
                if self._stopped:
                    raise _Stopped
                self._active.add(results)
            try:
                yield results
            finally:
                with self._lock:
                    self._active.discard(results)

    def _write(self, shard: Shard, source: str, target: str) -> None:
        with open(target, "w", encoding="utf-8") as write:
            if not shard.name.endswith((".jsonl", ".ndjson")):
                with open(source, "rb") as whole, self._results([whole.read()]) as results:
                    write.write(_json(next(results)) + "\n")
                return
            with open(source, encoding="utf-8") as read:
                records = (json.loads(line) for line in read if line.strip())
                with self._results(records) as results:
                    for result in results:
                        write.write(_json(result) + "\n")

    def __call__(self, shard: Shard, source: str, target: str) -> None:
        try:
            self._write(shard, source, target)
        except Exception as problem:  # of the function: this file fails, the others go on
            if self._stopped:
                raise _Stopped from None
            if isinstance(problem, Trouble):
                raise
            raise Trouble(f"{type(problem).__name__}: {problem}") from problem


def map_dataset(
    call: Call,
    name: str,
    cost: Callable[[], float],
    input: Union[str, List[str]],
    output: str,
    tries: int,
    files_at_once: int,
    progress: Optional[bool],
) -> Dict[str, Any]:
    output = output if output.startswith("s3://") else os.path.abspath(output)
    place = place_of(output)
    patterns = [input] if isinstance(input, str) else list(input)
    shards = [
        each
        if each.name.endswith((".jsonl", ".ndjson"))
        else each._replace(result=each.result + ".json")
        for each in find_shards(patterns)
    ]
    if not shards:
        raise Error(f"no file matches {', '.join(patterns)}")
    found = place.get(OWN + "plan.json")
    if found is not None and json.loads(found[0]).get("id") != name:
        raise Error(f"{place.text} has the results of another map", "choose another output")
    place.put(OWN + "plan.json", json.dumps({"id": name}).encode())
    names = place.names()
    for shard in shards:
        if failure_name(shard) in names:
            place.delete(failure_name(shard))
    figures, before = Figures(shards), cost()
    figures.update(names, 0.0)
    problems: List[BaseException] = []
    compute = _Computing(call)

    def one() -> None:
        try:
            work(place, shards, compute, tries)
        except _Stopped:
            pass
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=one, daemon=True) for _ in range(max(1, files_at_once))]
    for each in threads:
        each.start()
    try:
        with shown_on(progress) as show:
            while any(each.is_alive() for each in threads):
                time.sleep(LOOK_S)
                figures.update(place.names(), cost() - before)
                show(figures.line())
    except KeyboardInterrupt:
        compute.stop()
        deadline = time.monotonic() + STOPS_WITHIN_S
        for each in threads:
            each.join(max(0.0, deadline - time.monotonic()))
        print("billow: stopped; the same call continues with the files left", file=sys.stderr)
        raise
    if problems:
        raise problems[0]
    figures.update(place.names(), cost() - before)
    failures = {}
    for shard in shards:
        if shard.result in figures.failed:
            why = place.get(failure_name(shard))
            failures[shard.name] = why[0].decode("utf-8", "replace") if why else ""
    if failures:
        raise DatasetFailed(failures)
    return figures.document()
