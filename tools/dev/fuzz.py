#!/usr/bin/env python3
"""Runs fuzz targets, counts what that took, and keeps the corpora small. `./dev fuzz` calls it.

    fuzz.py ROOT BUILD each SECONDS NAME...         one target after the other
    fuzz.py ROOT BUILD all MINUTES JOBS NAME...     as many at a time as JOBS, nice
    fuzz.py ROOT BUILD keep NAME...                 minimise into tests/fuzz/corpus/NAME
    fuzz.py ROOT BUILD record                       add the counts to the table of the README

What a fuzzer has learnt is kept in .dev/fuzz/NAME/corpus, so that each run continues the last one.
CPU time is what the kernel counted for the fuzzer's process, user and system. The counts lie in
.dev/fuzz/counts.json until `record` adds them to the table; there they are cleared.
"""
import contextlib
import hashlib
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

SLOT_S = 240  # long enough that reading the kept corpus again is a small part
UNIT_TIMEOUT_S = 30  # of wall time: a nice process on a busy machine gets little of it
KEPT_BYTES = 10_000  # of a committed corpus, besides the files with names given by people
KEPT_FILES = 48
HASH_NAME = re.compile(r"[0-9a-f]{12}")
DONE = re.compile(r"#(\d+)\s+DONE\s+cov: (\d+) ft: (\d+)")
STATUS = re.compile(r"#(\d+)\s+\w+\s+cov: (\d+) ft: (\d+)")
ROW = re.compile(r"^\| `(\w+)` \| ([\d.]+) \| ([\d,]+) \| ([\d,]+) \| (\d+) \|$")
HEAD = (
    "| target | CPU minutes | executions | coverage (features) | failures found |\n"
    "|---|---|---|---|---|\n"
)


class Fuzzing:
    def __init__(self, root, build):
        self.root, self.build = root, build
        self.counts_path = os.path.join(root, ".dev/fuzz/counts.json")
        self.failed: list[str] = []
        self.running: dict[int, tuple[str, str]] = {}
        self.stopping = False
        os.makedirs(os.path.dirname(self.counts_path), exist_ok=True)

    def program(self, name):
        return os.path.join(self.build, "tests/fuzz", "fuzz_" + name)

    def folder(self, name):
        return os.path.join(self.root, ".dev/fuzz", name)

    def committed(self, name):
        return os.path.join(self.root, "tests/fuzz/corpus", name)

    def counts(self):
        try:
            with open(self.counts_path, encoding="utf-8") as f:
                return json.load(f)
        except FileNotFoundError:
            return {}

    def write_counts(self, counts):
        with open(self.counts_path + ".new", "w", encoding="utf-8") as f:
            json.dump(counts, f, indent=1, sort_keys=True)
        os.replace(self.counts_path + ".new", self.counts_path)

    def start(self, name, seconds):
        """A fuzzer as a process, and the file of its log."""
        folder = self.folder(name)
        os.makedirs(os.path.join(folder, "corpus"), exist_ok=True)
        options = [f"-max_total_time={seconds}", f"-timeout={UNIT_TIMEOUT_S}"]
        options += ["-rss_limit_mb=4096", "-print_final_stats=1", f"-artifact_prefix={folder}/"]
        words = os.path.join(self.root, "tests/fuzz/dict", name + ".dict")
        if not os.path.exists(words):
            words = os.path.join(self.root, "tests/fuzz/http.dict")
        options.append("-dict=" + words)
        log = os.path.join(folder, "log")
        with open(log, "w", encoding="utf-8") as out:
            process = subprocess.Popen(
                [self.program(name), *options, "corpus", self.committed(name)],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        return process, log

    def ended(self, name, status, used, log):
        """Counts what a fuzzer has done, and prints its line."""
        with open(log, encoding="utf-8", errors="replace") as f:
            said = f.read()
        last = (DONE.findall(said) or STATUS.findall(said) or [("0", "0", "0")])[-1]
        executions, features = int(last[0]), int(last[2])
        cpu_s = used.ru_utime + used.ru_stime
        counts = self.counts()
        count = counts.setdefault(name, {"cpu_s": 0.0, "executions": 0, "features": 0})
        count["cpu_s"] += cpu_s
        count["executions"] += executions
        if features:
            count["features"] = features
        self.write_counts(counts)
        kept = len(os.listdir(os.path.join(self.folder(name), "corpus")))
        print(
            f"{name:16} {cpu_s / 60:6.2f} CPU min  {executions:>11,} executions"
            f"  {features:>7,} features  {kept:>5} files kept  "
            + ("ok" if status == 0 else f"FAILED: see {log}"),
            flush=True,
        )
        if status != 0:
            self.failed.append(name)

    def each(self, seconds, names):
        for name in names:
            process, log = self.start(name, seconds)
            _, status, used = os.wait4(process.pid, 0)
            self.ended(name, status, used, log)

    def weight(self, name):
        """By the code behind the target: the root of the size of its edge counters, because the
        small targets have their share of the mistakes too."""
        sections = subprocess.run(
            ["readelf", "-SW", self.program(name)], capture_output=True, text=True, check=True
        ).stdout
        found = re.search(r"__sancov_cntrs\s+PROGBITS\s+\S+ \S+ (\S+)", sections)
        return math.sqrt(int(found.group(1), 16)) if found else 1.0

    def all(self, minutes, jobs, names):
        os.nice(max(0, 19 - os.nice(0)))
        end = time.monotonic() + minutes * 60
        signal.signal(signal.SIGTERM, self.stop)
        weights = {name: self.weight(name) for name in names}
        past = self.recorded()
        running = self.running
        while True:
            counts = self.counts()
            left = 0 if self.stopping else end - time.monotonic()
            free = [
                name
                for name in names
                if name not in self.failed and name not in [r[0] for r in running.values()]
            ]
            if len(running) < jobs and left > 20 and free:
                # The one that is furthest behind its share of all CPU time so far.
                name = min(
                    free,
                    key=lambda n: (past.get(n, [0])[0] * 60 + counts.get(n, {}).get("cpu_s", 0))
                    / weights[n],
                )
                process, log = self.start(name, int(min(SLOT_S, left)))
                running[process.pid] = (name, log)
                continue
            if not running:
                return
            pid, status, used = os.wait4(-1, 0)
            if pid in running:
                name, log = running.pop(pid)
                self.ended(name, status, used, log)

    def stop(self, *_):
        """Asked to end: the fuzzers finish their input and say what they have done."""
        self.stopping = True
        for pid in list(self.running):
            with contextlib.suppress(ProcessLookupError):  # it has ended, and is not yet counted
                os.kill(pid, signal.SIGUSR1)

    def keep(self, names):
        for name in names:
            sources = [os.path.join(self.folder(name), "corpus"), self.committed(name)]
            chosen = self.choose(name, [s for s in sources if os.path.isdir(s)])
            self.commit(name, chosen)

    def choose(self, name, sources):
        """The inputs that show most for their size, up to the limits. libFuzzer's merge names the
        features that each has and no smaller one; a file costs a disk block, whatever its size."""
        with tempfile.TemporaryDirectory() as scratch:
            control = os.path.join(scratch, "control")
            into = os.path.join(scratch, "merged")
            os.mkdir(into)
            subprocess.run(
                [self.program(name), "-merge=1", "-merge_control_file=" + control, into, *sources],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=True,
            )
            files, features = read_control(control)
        inputs = {}
        for number, path in enumerate(files):
            with open(path, "rb") as f:
                inputs[number] = f.read()
        chosen, seen, total = [], set(), 0
        while len(chosen) < KEPT_FILES:
            best = max(
                (n for n in features if total + len(inputs[n]) <= KEPT_BYTES),
                key=lambda n: (len(features[n] - seen) / (256 + len(inputs[n])), -n),
                default=None,
            )
            if best is None or not features[best] - seen:
                break
            chosen.append(inputs[best])
            total += len(inputs[best])
            seen |= features.pop(best)
        return chosen

    def commit(self, name, chosen):
        folder = self.committed(name)
        os.makedirs(folder, exist_ok=True)
        wanted = {hashlib.sha1(data).hexdigest()[:12]: data for data in chosen}
        for old in os.listdir(folder):
            if HASH_NAME.fullmatch(old) and old not in wanted:
                os.remove(os.path.join(folder, old))
        for file, data in wanted.items():
            with open(os.path.join(folder, file), "wb") as f:
                f.write(data)
        print(f"{name:16} {len(wanted):3} files, {sum(map(len, chosen)):6} bytes")

    def recorded(self):
        """The rows of the README's table: CPU minutes, executions, features, failures."""
        rows = {}
        with open(os.path.join(self.root, "tests/fuzz/README.md"), encoding="utf-8") as f:
            for line in f:
                found = ROW.match(line)
                if found:
                    rows[found.group(1)] = [
                        float(found.group(2)),
                        *(int(text.replace(",", "")) for text in found.groups()[2:]),
                    ]
        return rows

    def record(self):
        path = os.path.join(self.root, "tests/fuzz/README.md")
        rows, counts = self.recorded(), self.counts()
        for name, count in counts.items():
            row = rows.setdefault(name, [0.0, 0, 0, 0])
            row[0] += count["cpu_s"] / 60
            row[1] += count["executions"]
            row[2] = count["features"] or row[2]
        lines = [
            f"| `{name}` | {r[0]:.2f} | {r[1]:,} | {r[2]:,} | {r[3]} |"
            for name, r in sorted(rows.items())
        ]
        with open(path, encoding="utf-8") as f:
            before, _, rest = f.read().partition(HEAD)
        _, _, after = ("\n" + rest).partition("\n\n")
        total = f"{sum(r[0] for r in rows.values()) / 60:.2f} CPU hours"
        before = re.sub(r"so far [\d.]+ CPU hours", "so far " + total, before)
        with open(path, "w", encoding="utf-8") as f:
            f.write(before + HEAD + "\n".join(lines) + "\n\n" + after)
        self.write_counts({})
        print(f"tests/fuzz/README.md: {total} in all")


def read_control(path):
    """The files of a merge, and the features of those that were run to their end."""
    with open(path, encoding="utf-8", errors="surrogateescape") as f:
        lines = f.read().split("\n")
    count = int(lines[0])
    files = lines[2 : 2 + count]
    features = {}
    for line in lines[2 + count :]:
        words = line.split()
        if words and words[0] == "FT":
            features[int(words[1])] = set(words[2:])
    return files, features


def main(arguments):
    fuzzing = Fuzzing(arguments[0], arguments[1])
    what, rest = arguments[2], arguments[3:]
    if what == "each":
        fuzzing.each(int(rest[0]), rest[1:])
    elif what == "all":
        fuzzing.all(float(rest[0]), int(rest[1]), rest[2:])
    elif what == "keep":
        fuzzing.keep(rest)
    elif what == "record":
        fuzzing.record()
    return 1 if fuzzing.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
