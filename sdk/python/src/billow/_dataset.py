"""`Function.map_dataset`: a function over the records of many files, with results in files."""

from __future__ import annotations

import json
import os
import threading
import time
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Union

from ._errors import Error
from ._map_command import Figures
from ._places import OWN, Shard, Trouble, find_shards, place_of
from ._progress import shown_on
from ._shards import failure_name, work

Call = Callable[[Iterable[Any]], Iterator[Any]]


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


def _compute(call: Call) -> Callable[[Shard, str, str], None]:
    def compute(shard: Shard, source: str, target: str) -> None:
        try:
            with open(target, "w", encoding="utf-8") as write:
                if not shard.name.endswith((".jsonl", ".ndjson")):
                    with open(source, "rb") as whole:
                        write.write(_json(next(iter(call([whole.read()])))) + "\n")
                    return
                with open(source, encoding="utf-8") as read:
                    records = (json.loads(line) for line in read if line.strip())
                    for result in call(records):
                        write.write(_json(result) + "\n")
        except Trouble:
            raise
        except Exception as problem:  # of the function: this file fails, the others go on
            raise Trouble(f"{type(problem).__name__}: {problem}") from problem

    return compute


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
        each if each.name.endswith((".jsonl", ".ndjson")) else each._replace(result=each.result + ".json")
        for each in find_shards(patterns)
    ]  # fmt: skip
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
    compute = _compute(call)

    def one() -> None:
        try:
            work(place, shards, compute, tries)
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=one, daemon=True) for _ in range(max(1, files_at_once))]
    for each in threads:
        each.start()
    with shown_on(progress) as show:
        while any(each.is_alive() for each in threads):
            time.sleep(0.5)
            figures.update(place.names(), cost() - before)
            show(figures.line())
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
