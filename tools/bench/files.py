"""How long a job waits for its files, beside rsync in the same run: many small files and a few large
ones, sent for the first time, unchanged, and with one file changed. With --repeat each is measured
several times, each time with a new head and a new target of rsync, and the medians count."""
import argparse
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

BAR = 1.2  # at most so many times as long as rsync
STATES = ("first time", "unchanged", "one file changed")
PAUSE_S = 0.5  # lets end what one of the two goes on with after it was measured


def make_small(path, count):
    chance = random.Random(1)
    for i in range(count):
        folder = os.path.join(path, f"d{i // 100}")
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, f"f{i % 100}.txt"), "wb") as f:
            f.write(chance.randbytes(chance.randrange(100, 8000)))


def make_large(path, mib):
    os.makedirs(path)
    for i in range(4):
        with open(os.path.join(path, f"m{i}.bin"), "wb") as f:
            for _ in range(mib // 4 // 8):
                f.write(os.urandom(8 << 20))


class Bench:
    """A head of its own and a place for rsync."""

    def __init__(self, bin_dir, root):
        self.billow, self.root = os.path.join(bin_dir, "billow"), root
        self.env = {**os.environ, "HOME": root + "/home", "BILLOW_DATA": root + "/data"}
        os.makedirs(root + "/home")
        self.call("up", "--background", "--sim", "1xL4", "--listen", "127.0.0.1:0")
        self.call("run", "--gpus", "1", "--", "true")

    def call(self, *args, cwd="/"):
        subprocess.run([self.billow, *args], env=self.env, cwd=cwd, check=True, stdout=sys.stderr)

    def job(self, path):
        """From the command to the end of a job that does nothing."""
        time.sleep(PAUSE_S)
        began = time.monotonic()
        self.call("run", "-q", "--sync", "--gpus", "1", "--", "true", cwd=path)
        return time.monotonic() - began

    def rsync(self, path):
        to = os.path.join(self.root, "rsync", os.path.basename(path))
        os.makedirs(to, exist_ok=True)
        time.sleep(PAUSE_S)
        began = time.monotonic()
        subprocess.run(["rsync", "-a", path + "/", to + "/"], check=True)
        return time.monotonic() - began

    def times(self, path, changed):
        """Both times of each state."""
        out = []
        for state in STATES:
            if state == "one file changed":
                with open(os.path.join(path, changed), "ab") as f:
                    f.write(b"more\n")
            out.append((self.job(path), self.rsync(path)))
        return out

    def end(self):
        self.call("down")
        shutil.rmtree(self.root, ignore_errors=True)


def compare(asked, root, name, path, changed):
    """Prints both times of each state. Returns the names of those that miss the bar."""
    rounds = []
    for i in range(asked.repeat):
        bench = Bench(asked.bin, os.path.join(root, f"round{i}"))
        try:
            rounds.append(bench.times(path, changed))
        finally:
            bench.end()
    missed = []
    for state, measured in zip(STATES, zip(*rounds)):
        ours, theirs = (statistics.median(times) for times in zip(*measured))
        print(
            (
                f"{name}, {state}: {ours:.3f} s, rsync {theirs:.3f} s,"
                f" {ours / theirs:.2f} times as long (bar {BAR})"
            ),
            flush=True,
        )
        if ours > BAR * theirs:
            missed.append(f"{name}, {state}")
    return missed


def main():
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--bin", required=True)
    asked.add_argument("--files", type=int, default=20000)
    asked.add_argument("--mib", type=int, default=2048)
    asked.add_argument("--repeat", type=int, default=1, help="rounds, whose medians count")
    asked = asked.parse_args()
    root = tempfile.mkdtemp(prefix="billow-bench-files-", dir="/var/tmp")
    missed = []
    try:
        if asked.files:
            make_small(root + "/small", asked.files)
        if asked.mib:
            make_large(root + "/large", asked.mib)
        subprocess.run(["sync"], check=True)
        print(
            f"medians of {asked.repeat}, load average {os.getloadavg()[0]:.1f}"
            f" on {os.cpu_count()} cores",
            flush=True,
        )
        if asked.files:
            missed += compare(
                asked, root, f"{asked.files} small files", root + "/small", "d0/f0.txt"
            )
        if asked.mib:
            missed += compare(asked, root, f"{asked.mib} MiB in 4 files", root + "/large", "m0.bin")
    finally:
        shutil.rmtree(root, ignore_errors=True)
    if missed:
        sys.exit(f"slower than {BAR} times rsync: {'; '.join(missed)}")


if __name__ == "__main__":
    main()
