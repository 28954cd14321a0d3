"""The shapes of work, and of its absence, whose signals record.py writes down: `shapes.py NAME FOLDER`.

Speaks with its recorder over stdin and stdout: says `ready` once it holds the GPU, then for each line `phase NAME` that it reads it
behaves that way until the next line, and answers `in NAME` as soon as it does. What the job itself would print goes to FOLDER/out.log.
Without PyTorch (the simulated driver) the GPU's part is played by the CPU: that proves the script, not the signals.
"""
import ctypes
import http.server
import os
import pty
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
import zlib

SIM = bool(os.environ.get("BILLOW_GPU_TEST_SIM"))
NAME, FOLDER = sys.argv[1], sys.argv[2]
MIB = 1 << 20

# What a collective that nobody joins does: some blocks read a word over and over until somebody
# writes it.
POLL = b"""
.version 7.0
.target sm_80
.address_size 64
.visible .entry poll(.param .u64 word)
{
  .reg .pred %same; .reg .b64 %at; .reg .b32 %value;
  ld.param.u64 %at, [word];
  cvta.to.global.u64 %at, %at;
AGAIN:
  ld.volatile.global.u32 %value, [%at];
  setp.eq.u32 %same, %value, 0;
  @%same bra AGAIN;
  ret;
}
\0"""


class TorchCard:
    def __init__(self):
        import torch

        self.torch = torch
        self.held = []
        self.a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
        self.net = (
            torch.nn.Sequential(
                torch.nn.Linear(4096, 8192), torch.nn.GELU(), torch.nn.Linear(8192, 4096)
            )
            .cuda()
            .bfloat16()
        )
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-4)
        self.step(1)

    def step(self, times=10, rows=4096):
        for _ in range(times):
            self.optimizer.zero_grad(set_to_none=True)
            self.net(self.a[:rows]).float().square().mean().backward()
            self.optimizer.step()
        self.torch.cuda.synchronize()

    def infer(self, times=20):
        with self.torch.no_grad():
            for _ in range(times):
                self.net(self.a[:256])
        self.torch.cuda.synchronize()

    def hold(self, mib):
        self.held.append(self.torch.zeros(mib * MIB, dtype=self.torch.uint8, device="cuda"))

    def upload(self, data):
        self.held.append(self.torch.frombuffer(bytearray(data), dtype=self.torch.uint8).cuda())

    def forget(self):
        self.held.clear()
        self.torch.cuda.empty_cache()

    def save(self, path, mib):
        self.torch.save(self.torch.zeros(mib * MIB, dtype=self.torch.uint8, device="cuda"), path)

    def capture(self):
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.no_grad(), self.torch.cuda.graph(graph):
            self.net(self.a[:64])
        graph.replay()
        self.torch.cuda.synchronize()

    def compile(self, i):
        torch = self.torch
        f = torch.compile(
            lambda x: (x * (i + 1)).sin().cumsum(0).softmax(1) + x[:, : i % 7 + 1].sum()
        )
        f(torch.randn(256 + i, 256, device="cuda"))

    def poll(self, blocks=24, threads=512):
        """A kernel that waits for ever on a few multiprocessors; the caller then spins in a
        synchronise, as a host thread does."""
        cuda = ctypes.CDLL("libcuda.so.1")
        word = self.torch.zeros(1, dtype=self.torch.int32, device="cuda")
        self.held.append(word)
        self.torch.cuda.synchronize()
        module, function, at = (
            ctypes.c_void_p(),
            ctypes.c_void_p(),
            ctypes.c_uint64(word.data_ptr()),
        )
        arguments = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.pointer(at), ctypes.c_void_p))
        code = cuda.cuModuleLoadData(ctypes.byref(module), POLL) or cuda.cuModuleGetFunction(
            ctypes.byref(function), module, b"poll"
        )
        code = code or cuda.cuLaunchKernel(
            function, blocks, 1, 1, threads, 1, 1, 0, None, arguments, None
        )
        if code:
            raise RuntimeError(f"the polling kernel: CUDA says {code}")
        threading.Thread(target=self.torch.cuda.synchronize, daemon=True).start()

    def spin(self):
        """One thread that spins: busy by the driver's word, at the power of an idle card."""

        def forever():
            while True:
                self.torch.cuda._sleep(2_000_000_000)
                self.torch.cuda.synchronize()

        threading.Thread(target=forever, daemon=True).start()


class NoCard:
    """Plays the GPU's part on the CPU where there is no PyTorch."""

    def work(self, *_, **__):
        zlib.compress(os.urandom(1 << 16))

    step = infer = hold = upload = capture = compile = poll = spin = work

    def forget(self):
        pass

    def save(self, path, mib):
        with open(path, "wb") as f:
            f.write(b"\0" * MIB)


def log(text):
    with open(FOLDER + "/out.log", "a", encoding="utf-8") as f:
        f.write(text + "\n")


def file_of(name, mib):
    path = f"{FOLDER}/{name}"
    if not os.path.exists(path):
        block = os.urandom(MIB)
        with open(path, "wb") as f:
            for _ in range(mib):
                f.write(block)
    return path


def serve(answer):
    """An HTTP server of this process on loopback; `answer(handler)` writes the body."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            answer(self)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


def outside(code, *arguments):
    """A Python that is not part of the job: a client, or a service it talks to. It leaves the job's
    process tree."""
    program = f"import os,sys\nif os.fork(): os._exit(0)\nos.setsid()\nhead={os.getpid()}\n{code}"
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)], stdout=subprocess.PIPE, text=True
    )


# Each phase is called again and again, for a moment at a time, until the next one is asked for.
class Shape:
    def __init__(self, card):
        self.card, self.count, self.state = card, 0, {}

    def workers(self, code, count):
        """Helper processes of the job that run `code` until its phase ends."""
        if "workers" not in self.state:
            self.state["workers"] = [
                subprocess.Popen([sys.executable, "-c", code, str(i)], cwd=FOLDER)
                for i in range(count)
            ]
        time.sleep(0.1)

    def leave(self):
        for worker in self.state.pop("workers", []):
            worker.kill()
            worker.wait()

    def train(self):
        self.card.step()
        self.count += 1
        if self.count % 20 == 0:
            log(f"step {self.count} loss 1.{self.count}")


class DataLoading(Shape):
    def load(self):
        path = file_of("shard", 64)
        self.workers(
            (
                f"import zlib\nwhile True:\n  with open({path!r},'rb') as f:\n    while"
                " b:=f.read(1<<20): zlib.crc32(bytearray(b)); zlib.compress(b[:200000])"
            ),
            4,
        )


class CompilePhase(Shape):
    def compile(self):
        self.count += 1
        try:
            if self.state.get("plain"):
                raise RuntimeError("no compiler for the GPU here")
            self.card.compile(self.count)
        except Exception as error:
            if not self.state.get("plain"):
                log(f"torch.compile: {type(error).__name__}: {error}"[:300])
            self.state["plain"] = True
        # An extension's own sources, as a first import compiles them.
        source = (
            "#include <map>\n#include <string>\nint f%d(std::map<std::string,int>&m){return"
            ' m["%d"];}\n' % (self.count, self.count)
        )
        subprocess.run(
            ["g++", "-O2", "-x", "c++", "-c", "-o", FOLDER + "/ext.o", "-"],
            input=source,
            text=True,
            check=False,
        )


class Evaluation(Shape):
    def evaluate(self):
        self.card.infer(30)
        time.sleep(0.02)

    def metrics(self):
        table = {}
        for i in range(60000):
            table[i % 997] = table.get(i % 997, 0) + i * i
        sorted(table.values())


class Notebook(Shape):
    def cell(self):
        self.card.infer(60)
        log("Out[%d]: tensor(0.1)" % self.count)

    def think(self):
        # The browser's poll, and the kernel's heartbeat on its own socket.
        if "pair" not in self.state:
            listener = socket.create_server(("127.0.0.1", 0))
            client = socket.create_connection(listener.getsockname())
            self.state["pair"] = (client, listener.accept()[0])
        client, server = self.state["pair"]
        client.sendall(b"p" * 100)
        server.recv(4096)
        time.sleep(0.5)


class LowRateInference(Shape):
    def prepare(self):
        def answer(handler):
            self.card.infer(200)
            handler.wfile.write(b"x" * 900)
            log("GET /generate 200")

        port = serve(answer)
        wish = FOLDER + "/ask"
        outside(
            f"""
import time, urllib.request
while os.path.exists('/proc/%d' % head):
    if os.path.exists({wish!r}): urllib.request.urlopen('http://127.0.0.1:{port}/').read()
    time.sleep(1.5)
"""
        )

    def serve(self):
        open(FOLDER + "/ask", "w", encoding="ascii").close()
        time.sleep(0.1)

    def wait(self):
        if os.path.exists(FOLDER + "/ask"):
            os.unlink(FOLDER + "/ask")
        time.sleep(0.1)


class CheckpointWriting(Shape):
    def save(self):
        path = FOLDER + "/checkpoint"
        self.card.save(path, 2048)
        with open(path, "rb+") as f:
            os.fsync(f.fileno())
        os.unlink(path)


class SlowObjectStore(Shape):
    def prepare(self):
        service = outside(
            """
import socket, threading, time
listener = socket.create_server(('127.0.0.1', 0))
print(listener.getsockname()[1], flush=True)
def feed(s):
    try:
        while os.path.exists('/proc/%d' % head):
            if not os.path.exists(sys.argv[1]): s.sendall(b'd' * 6000)
            time.sleep(0.1)
    except OSError: pass
    os._exit(0)
feed(listener.accept()[0])
""",
            FOLDER + "/stall",
        )
        self.state["socket"] = socket.create_connection(
            ("127.0.0.1", int(service.stdout.readline()))
        )
        self.state["socket"].settimeout(0.3)
        self.state["file"] = open(FOLDER + "/download", "wb")

    def receive(self):
        try:
            self.state["file"].write(self.state["socket"].recv(65536))
            self.state["file"].flush()
        except TimeoutError:
            pass

    def download(self):
        if os.path.exists(FOLDER + "/stall"):
            os.unlink(FOLDER + "/stall")
        self.receive()

    def stall(self):
        if not os.path.exists(FOLDER + "/stall"):
            open(FOLDER + "/stall", "w", encoding="ascii").close()
        self.receive()


class CpuPreprocessing(Shape):
    def tokenise(self):
        text = file_of("corpus", 16)
        self.workers(
            (
                f"import sys\nwhile True:\n  with open({text!r},'rb') as f,"
                " open('tokens'+sys.argv[1],'wb') as out:\n    while b:=f.read(1<<16):"
                " out.write(bytes(sorted(b.split(b'a')[0])) + b''.join(b.split(b'e')[:400]))"
            ),
            6,
        )


class BarrierWait(Shape):
    def wait(self):
        if "polls" not in self.state:
            self.card.poll()
            self.state["polls"] = True
        time.sleep(0.1)


class DeadlockedNccl(BarrierWait):
    pass


class HungKernel(Shape):
    def wait(self):
        if "spins" not in self.state:
            self.card.spin()
            self.state["spins"] = True
        time.sleep(0.1)


class WarmUp(Shape):
    def load(self):
        if "file" not in self.state:
            self.state["file"] = open(file_of("weights", 256), "rb")
        data = self.state["file"].read(32 * MIB)
        if not data:
            self.state["file"].seek(0)
            return
        self.card.upload(data)
        time.sleep(0.2)

    def capture(self):
        self.card.capture()
        time.sleep(0.15)

    def serve(self):
        self.card.infer(100)
        time.sleep(0.05)


class Burst(Shape):
    def burst(self):
        self.card.step(5)

    def rest(self):
        time.sleep(0.1)


class Resting(Shape):
    """Holds the GPU and does nothing with it, in a way of its own."""

    def rest(self):
        time.sleep(0.1)


class DebuggerStopped(Resting):
    def prepare(self):
        child = os.fork()
        if child == 0:
            ctypes.CDLL(None).ptrace(0, 0, None, None)  # traced by its parent
            os.kill(os.getpid(), signal.SIGSTOP)
            os._exit(0)
        os.waitpid(child, os.WUNTRACED)

    def rest(self):
        time.sleep(0.5)


class FinishedNotExited(Resting):
    def prepare(self):
        sink = socket.create_server(("127.0.0.1", 0))
        self.state["pair"] = (socket.create_connection(sink.getsockname()), sink.accept()[0])

        def report():
            while True:
                self.state["pair"][0].sendall(b"m" * 700)
                self.state["pair"][1].recv(4096)
                time.sleep(15)

        threading.Thread(target=report).start()  # not a daemon: what keeps the process


class CrashedDataLoader(Resting):
    def prepare(self):
        for _ in range(4):
            if (child := os.fork()) == 0:
                os._exit(1)
        self.state["queue"] = queue.Queue()

    def rest(self):
        try:
            self.state["queue"].get(timeout=0.5)
        except queue.Empty:
            pass


class OpenSsh(Resting):
    def prepare(self):
        child, master = pty.fork()
        if child == 0:
            os.execvp("bash", ["bash", "--norc", "-i"])
        self.state["terminal"] = master
        server = socket.create_server(("127.0.0.1", 0))
        client = socket.create_connection(server.getsockname())
        client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
        self.state["pair"] = (client, server.accept()[0])


class ZombieChildren(Resting):
    def prepare(self):
        for _ in range(4):
            if os.fork() == 0:
                os._exit(0)


class LeakedMemory(Resting):
    def prepare(self):
        self.card.hold(64 if SIM else 40 << 10)
        self.card.a = self.card.net = None


class SleepLoop(Resting):
    def prepare(self):
        self.state["shell"] = subprocess.Popen(["bash", "-c", "while true; do sleep 1; done"])


class SpinLoop(Resting):
    def rest(self):
        until = time.monotonic() + 0.2
        while time.monotonic() < until:
            pass


SHAPES = {
    "data_loading": DataLoading,
    "compile_phase": CompilePhase,
    "evaluation_between_epochs": Evaluation,
    "notebook_thinking": Notebook,
    "low_rate_inference": LowRateInference,
    "checkpoint_writing": CheckpointWriting,
    "slow_object_store": SlowObjectStore,
    "cpu_preprocessing": CpuPreprocessing,
    "distributed_barrier_wait": BarrierWait,
    "warm_up": WarmUp,
    "burst_every_10_min": Burst,
    "debugger_stopped": DebuggerStopped,
    "finished_not_exited": FinishedNotExited,
    "deadlocked_nccl": DeadlockedNccl,
    "crashed_data_loader": CrashedDataLoader,
    "open_ssh_nobody": OpenSsh,
    "zombie_children": ZombieChildren,
    "leaked_memory": LeakedMemory,
    "sleep_loop": SleepLoop,
    "spin_loop_no_kernels": SpinLoop,
    "hung_kernel": HungKernel,
}


def main():
    os.makedirs(FOLDER, exist_ok=True)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = FOLDER + "/inductor"
    shape = SHAPES[NAME](NoCard() if SIM else TorchCard())
    if hasattr(shape, "prepare"):
        shape.prepare()
    print("ready", flush=True)
    # A thread takes the orders, so that a job that waits does nothing but wait.
    orders = queue.SimpleQueue()

    def listen():
        for line in sys.stdin:
            orders.put(line.split()[1])
        os._exit(0)  # its recorder is gone, and so are the helpers with their parent's group

    threading.Thread(target=listen, daemon=True).start()
    phase = orders.get()
    while True:
        getattr(shape, phase)()
        print("in " + phase, flush=True)
        while orders.empty():
            getattr(shape, phase)()
        phase = orders.get()
        shape.leave()


main()
