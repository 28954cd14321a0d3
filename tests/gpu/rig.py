"""Shared by the GPU tests: a GPU memory service, programs under the shim, NVML from outside, and a table at the end.

Runs on a real GPU, or on the simulated driver when BILLOW_GPU_TEST_SIM is set (then timings mean nothing and bars are not judged).
"""
import atexit
import ctypes
import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
import time

BUILD = os.environ.get("BILLOW_GPU_TEST_BUILD", "/tmp/billow-gpu-test")
SIM = bool(os.environ.get("BILLOW_GPU_TEST_SIM"))
HERE = os.path.dirname(os.path.abspath(__file__))
GIB = 1 << 30
MIB = 1 << 20


class MemoryService:
    def __init__(self, arena_bytes, period_ms=100, more=(), program=None):
        self.dir = tempfile.mkdtemp(prefix="bv-")
        self.socket, self.admin = self.dir + "/jobs", self.dir + "/admin"
        env = dict(os.environ)
        self.process = subprocess.Popen(
            [
                program or BUILD + "/billow-gpumem",
                "--socket",
                self.socket,
                "--admin",
                self.admin,
                "--arena",
                str(arena_bytes),
                "--threads",
                "16",
                "--period-ms",
                str(period_ms),
                *more,
            ],
            env=env,
            stdout=subprocess.DEVNULL,
        )
        atexit.register(self.process.kill)
        wait_for(
            lambda: os.path.exists(self.admin) or self.process.poll() is not None,
            60,
            "the GPU memory service's socket",
        )
        if self.process.poll() is not None:
            raise RuntimeError("the GPU memory service did not start")
        self.tokens = {}

    def call(self, command, timeout=300):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(timeout)
        s.connect(self.admin)
        s.sendall(command.encode() + b"\n")
        text = b""
        while b"\n\n" not in text:
            part = s.recv(65536)
            if not part:
                raise RuntimeError(
                    "the GPU memory service closed the connection during: " + command
                )
            text += part
        s.close()
        lines = text.decode().split("\n\n")[0].split("\n")
        first = lines[0].split(" ", 1)
        if first[0] != "ok":
            raise RuntimeError(command + " -> " + lines[0])
        values = parse(first[1] if len(first) > 1 else "")
        values["lines"] = [dict(parse(l), kind=l.split(" ")[0]) for l in lines[1:] if l]
        return values

    def job(self, name, memory=0, context=0, share=1000, suspendable=1, strict=0, reserve=0):
        token = secrets.token_hex(16)
        self.call(
            f"add name={name} token={token} suspendable={suspendable} strict={strict} reserve={reserve} device=-:{memory}:{context}:{share}"
        )
        self.tokens[name] = token
        return name

    def env(self, name):
        env = dict(os.environ)
        env.update(
            BILLOW_VAULT_SOCKET=self.socket,
            BILLOW_JOB_TOKEN=self.tokens[name],
            LD_PRELOAD=BUILD + "/libbillow-cuda.so",
        )
        return env

    def wait_arena(self, bytes_wanted, timeout=300):
        def ready():
            return int(self.call("status")["lines"][0]["ready"]) >= bytes_wanted

        wait_for(ready, timeout, "the arena")

    def status(self, name):
        for line in self.call("status")["lines"]:
            if line.get("name") == name:
                return line
        raise RuntimeError("no job " + name)

    def stop(self):
        self.process.terminate()
        self.process.wait(30)


def parse(text):
    return dict(word.split("=", 1) for word in text.split() if "=" in word)


def wait_for(condition, seconds, what):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError("waited too long for " + what)
        time.sleep(0.02)


class Program:
    """A program that answers lines, under the shim when `env` comes from MemoryService.env."""

    def __init__(self, arguments, env=None):
        self.process = subprocess.Popen(
            arguments,
            env=env or dict(os.environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        atexit.register(self.process.kill)
        self.pid = self.process.pid

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("the program ended: " + str(self.process.wait()))
        return line.strip()

    def start(self, text):
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def ask(self, text):
        self.start(text)
        return self.answer(text)

    def answer(self, what=""):
        line = self.read()
        if not line.startswith("ok"):
            raise RuntimeError(f"{what} -> {line}")
        return parse(line)

    def quit(self):
        try:
            self.start("quit")
            self.process.wait(60)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()


def probe(env=None):
    p = Program([BUILD + "/probe"], env)
    p.answer("start")
    return p


def rate(answer):
    return float(answer["iterations"]) / float(answer["seconds"])


class Nvml:
    """Per-process device memory from outside, by NVML. On the simulated driver, nothing."""

    class Process(ctypes.Structure):
        _fields_ = [
            ("pid", ctypes.c_uint),
            ("used", ctypes.c_ulonglong),
            ("gi", ctypes.c_uint),
            ("ci", ctypes.c_uint),
        ]

    class Memory(ctypes.Structure):
        _fields_ = [
            ("total", ctypes.c_ulonglong),
            ("free", ctypes.c_ulonglong),
            ("used", ctypes.c_ulonglong),
        ]

    def __init__(self):
        self.lib = None
        if SIM:
            return
        self.lib = ctypes.CDLL("libnvidia-ml.so.1")
        self.lib.nvmlInit_v2()
        self.device = ctypes.c_void_p()
        self.lib.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.device))

    def used(self):
        if not self.lib:
            return 0
        m = self.Memory()
        self.lib.nvmlDeviceGetMemoryInfo(self.device, ctypes.byref(m))
        return m.used

    def processes(self):
        if not self.lib:
            return {}
        for name in (
            "nvmlDeviceGetComputeRunningProcesses_v3",
            "nvmlDeviceGetComputeRunningProcesses_v2",
        ):
            count = ctypes.c_uint(256)
            array = (self.Process * 256)()
            if (
                hasattr(self.lib, name)
                and getattr(self.lib, name)(self.device, ctypes.byref(count), array) == 0
            ):
                return {array[i].pid: array[i].used for i in range(count.value)}
        return {}


class GpmMetric(ctypes.Structure):
    _fields_ = [
        ("id", ctypes.c_uint),
        ("result", ctypes.c_uint),
        ("value", ctypes.c_double),
        ("names", ctypes.c_char_p * 3),
    ]


class GpmGet(ctypes.Structure):
    _fields_ = [
        ("version", ctypes.c_uint),
        ("count", ctypes.c_uint),
        ("first", ctypes.c_void_p),
        ("second", ctypes.c_void_p),
        ("metrics", GpmMetric * 512),
    ]


class Busy:
    """The part of the time in which the GPU executed anything, between construction and percent(), by NVML's GPM counters; None where
    the card has none."""

    def __init__(self, nvml):
        self.nvml, self.get = nvml, GpmGet(version=1, count=1)
        self.get.metrics[0].id = 1  # graphics and compute engine active
        self.get.first = self.look()

    def look(self):
        sample = ctypes.c_void_p()
        lib = self.nvml.lib
        if (
            not lib
            or lib.nvmlGpmSampleAlloc(ctypes.byref(sample))
            or lib.nvmlGpmSampleGet(self.nvml.device, sample)
        ):
            return None
        return sample.value

    def percent(self):
        self.get.second = self.look()
        if (
            not self.get.first
            or not self.get.second
            or self.nvml.lib.nvmlGpmMetricsGet(ctypes.byref(self.get))
            or self.get.metrics[0].result
        ):
            return None
        return self.get.metrics[0].value


class Peak(threading.Thread):
    """Samples every 10 ms the memory of the device, and of the given processes together where NVML
    knows them."""

    def __init__(self, nvml, pids=()):
        super().__init__(daemon=True)
        self.nvml, self.pids, self.stopped = nvml, set(pids), False
        self.device, self.processes, self.samples = 0, 0, 0

    def run(self):
        while not self.stopped:
            begin = time.monotonic()
            self.device = max(self.device, self.nvml.used())
            found = self.nvml.processes()
            self.processes = max(
                self.processes, sum(v for k, v in found.items() if k in self.pids and v < 1 << 50)
            )
            self.samples += 1
            time.sleep(max(0, 0.01 - (time.monotonic() - begin)))

    def stop(self):
        self.stopped = True
        self.join()
        return self


class Table:
    rows = []

    @classmethod
    def add(cls, what, measured, bar, good=None):
        verdict = "" if good is None else "yes" if good else "NO"
        if SIM and good is not None:
            verdict = "(sim)"
        cls.rows.append((what, measured, bar, verdict))
        print(f"-- {what}: {measured} (bar {bar}) {verdict}", flush=True)

    @classmethod
    def show(cls):
        print()
        widths = [
            max(len(str(r[i])) for r in cls.rows + [("what", "measured", "bar", "met")])
            for i in range(4)
        ]
        for row in [("what", "measured", "bar", "met"), tuple("-" * w for w in widths)] + cls.rows:
            print("| " + " | ".join(str(c).ljust(w) for c, w in zip(row, widths)) + " |")
        out = os.environ.get("BILLOW_GPU_TEST_OUT")
        if out:
            with open(out, "a") as f:
                for row in cls.rows:
                    f.write(json.dumps(row) + "\n")
        return all(r[3] != "NO" for r in cls.rows)
