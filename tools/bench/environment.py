"""An environment of 2 GB: saved, fetched once by each of two nodes, and mounted warm, beside the
same job without one."""
import hashlib
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time


def make_tree(root, megabytes):
    """Like a virtual environment: many small files of text that compresses, and a few large
    libraries that hardly do."""
    rng = random.Random(7)
    words = [bytes(rng.randrange(97, 123) for _ in range(rng.randrange(3, 9))) for _ in range(2000)]
    small = 20_000 if megabytes >= 1000 else 1000
    os.makedirs(f"{root}/bin")
    with open(f"{root}/bin/tool", "w", encoding="utf-8") as f:
        f.write("#!/bin/sh\nexit 0\n")
    os.chmod(f"{root}/bin/tool", 0o755)
    for number in range(small):
        folder = f"{root}/lib/p{number // 50}"
        if number % 50 == 0:
            os.makedirs(folder)
        with open(f"{folder}/m{number}.py", "wb") as f:
            f.write(b" ".join(rng.choice(words) for _ in range(1500)))
    large = 8
    each = (megabytes * 1_000_000 - small * 9_000) // large
    for number in range(large):
        with open(f"{root}/lib/lib{number}.so", "wb") as f:
            left = each
            while left > 0:
                part = rng.randbytes(min(left, 1 << 19)) + b"\0" * min(
                    max(left - (1 << 19), 0), 1 << 19
                )
                f.write(part)
                left -= len(part)


def median(values):
    return sorted(values)[len(values) // 2]


class Nodes:
    """Two agents with a simulated GPU each."""

    def __init__(self, head, billow, root):
        self.root = root
        self.processes = {}
        for name in ("one", "two"):
            with open(f"{root}/{name}.token", "w", encoding="ascii") as f:
                f.write(head.node_token(name))
            options = {
                "--head": f"unix:{head.data}/head.sock",
                "--token-file": f"{root}/{name}.token",
                "--data": f"{root}/{name}",
                "--node-name": name,
                "--sim": "1xH100",
            }
            with open(f"{root}/{name}.log", "w", encoding="utf-8") as log:
                self.processes[name] = subprocess.Popen(
                    [billow, "agent", *(word for pair in options.items() for word in pair)],
                    stdout=log,
                    stderr=log,
                    env=head.env,
                )
        deadline = time.monotonic() + 60
        while head.run("nodes").stdout.count("ready") < 2:
            if time.monotonic() > deadline:
                raise SystemExit("the nodes did not come")
            time.sleep(0.1)

    def fetches(self):
        """How often each node has fetched the environment."""
        out = {}
        for name in self.processes:
            with open(f"{self.root}/{name}.log", encoding="utf-8") as f:
                out[name] = f.read().count("environment big (")
        return out

    def close(self):
        for name, process in self.processes.items():
            process.send_signal(signal.SIGTERM)
            process.wait(30)
            path = hashlib.sha256(f"{self.root}/{name}".encode()).hexdigest()[:12]
            shutil.rmtree(f"/var/tmp/billow-{path}", ignore_errors=True)


def size_of(tree):
    return sum(
        os.path.getsize(os.path.join(folder, f))
        for folder, _, names in os.walk(tree)
        for f in names
    )


def environment_figures(head, billow, megabytes=2000, rounds=9):
    root = tempfile.mkdtemp(prefix="billow-bench-env-", dir="/var/tmp")
    nodes = None

    def timed(*args):
        begin = time.perf_counter()
        done = subprocess.run(
            [billow, *map(str, args)],
            env=head.env,
            cwd=root,
            text=True,
            capture_output=True,
            check=False,
        )
        if done.returncode != 0:
            raise SystemExit(f"{args}: {done.stderr}")
        return time.perf_counter() - begin

    try:
        tree = f"{root}/env"
        make_tree(tree, megabytes)
        nodes = Nodes(head, billow, root)
        size = size_of(tree)
        save = timed("env", "save", "big", tree)
        again = timed("env", "save", "big", tree)
        print(
            f"environment of {size / 1e9:.2f} GB: saved in {save:.1f} s, again unchanged in"
            f" {again:.1f} s"
        )
        # Both nodes at once, with a GPU each; the tree on disk is moved away, so that it can only
        # come from the head.
        os.rename(tree, f"{root}/moved")
        os.makedirs(tree)
        plain = ("--gpus", 1, "--no-sync", "--cwd", "/", "--")
        cold = timed("run", "--env", "big", "--nodes", 2, *plain, "tool")
        warm, bare = [], []
        for _ in range(rounds):
            bare.append(timed("run", *plain, "true"))
            warm.append(timed("run", "--env", "big", *plain, "tool"))
        fetched = nodes.fetches()
        extra = (median(warm) - median(bare)) * 1e3
        print(
            f"first job in it, on two nodes at once: {cold:.1f} s; fetches:"
            f" {', '.join(f'{n} {c}' for n, c in fetched.items())}"
        )
        print(
            f"warm: a whole job in it {median(warm) * 1e3:.0f} ms, the same without"
            f" {median(bare) * 1e3:.0f} ms: the mount and its programs take {extra:.0f} ms (limit"
            " 200)"
        )
        if any(count != 1 for count in fetched.values()) or extra > 200:
            raise SystemExit("outside its limits")
    finally:
        if nodes:
            nodes.close()
        shutil.rmtree(root, ignore_errors=True)
