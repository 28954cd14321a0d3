"""Part wake: an endpoint that sleeps. A model of 16 GiB on the GPU is deployed from the bundle with `--min 0`, goes to sleep, and is woken
by requests through the gateway: how long the first byte takes at the client, whether the answer is right, what the GPU holds of it
meanwhile; and the same model started cold by a request, in the same run. Needs BILLOW_BUNDLE, or a bundle under dist/."""
import statistics
from urllib.parse import urlparse

from model_server import right_answer
from product import Product, command_of
from rig import *

GIB_OF_MODEL, MIB_OF_SIM = 16, 16
WAKES, COLD_WAKES, COLD_STARTS = (6, 2, 2) if SIM else (20, 3, 3)


class Model:
    def __init__(self, product, name, *options):
        self.product, self.name = product, name
        script = [
            sys.executable,
            HERE + "/model_server.py",
            *(("driver", MIB_OF_SIM) if SIM else ("torch", GIB_OF_MODEL)),
        ]
        if SIM:
            options = (
                *options,
                "--env-var",
                "LD_LIBRARY_PATH=" + BUILD + "/sim-cuda",
                "--env-var",
                "BILLOW_SIM_CUDA_STATE=" + product.env["BILLOW_SIM_CUDA_STATE"],
            )
        begin = time.monotonic()
        product.cli(
            "deploy",
            name,
            "--gpus",
            1,
            "--min",
            0,
            "--timeout",
            "5m",
            *options,
            "--",
            *script,
            timeout=240,
        )
        self.deployed_s = time.monotonic() - begin
        self.url = urlparse(self.state()["urls"][0])
        self.calls = self.wrong = 0

    def state(self):
        return self.product.json("describe", self.name)

    def replicas(self):
        return [r.get("task_state", r.get("state")) for r in self.state()["replicas"]]

    def call(self):
        """Milliseconds to the first byte at the client, who is connected already."""
        first = self.calls % 7
        self.calls += 1
        with socket.create_connection((self.url.hostname, self.url.port), timeout=300) as s:
            begin = time.perf_counter()
            s.sendall(
                f"GET /f/{self.name}/{first} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
                .encode()
            )
            text = s.recv(65536)
            took = (time.perf_counter() - begin) * 1000
            while part := s.recv(65536):
                text += part
        head, body = text.split(b"\r\n\r\n", 1)
        right = (
            right_answer(1, MIB_OF_SIM << 18, first)
            if SIM
            else right_answer(GIB_OF_MODEL, 1 << 28, first)
        )
        if b" 200 " not in head.split(b"\r\n")[0] or body != str(right).encode():
            self.wrong += 1
            print(f"wrong answer: {text[:300]!r}, not {right}", flush=True)
        return took

    def asleep(self):
        wait_for(lambda: self.replicas() == ["suspended"], 120, f"{self.name} to sleep")

    def gone(self):
        wait_for(lambda: self.replicas() == [], 120, f"{self.name} to be stopped")


def on_gpu_mib(nvml):
    """Device memory of model servers, by the driver. Nothing on the simulated one."""
    return (
        sum(
            held
            for pid, held in nvml.processes().items()
            if "model_server.py" in command_of(pid) and held < 1 << 50
        )
        >> 20
    )


def p99(times):
    return sorted(times)[min(len(times) - 1, int(len(times) * 0.99))]


def part_wake():
    nvml = Nvml()
    product = Product("256M" if SIM else "24G")
    model = Model(product, "model", "--idle", "1s", "--keep", "suspended=1h")
    awake = model.call()
    held = on_gpu_mib(nvml)
    times, kept = [], []
    for _ in range(WAKES):
        model.asleep()
        kept.append(on_gpu_mib(nvml))
        times.append(model.call())
    size = f"{MIB_OF_SIM} MiB" if SIM else f"{GIB_OF_MODEL} GiB"
    p50 = statistics.median(times)
    print("wakes, ms: " + " ".join(f"{t:.0f}" for t in times), flush=True)
    Table.add(
        f"wake: first byte of a sleeping model of {size}, through the gateway, {WAKES} times",
        f"p50 {p50:.0f} ms, p99 {p99(times):.0f} ms (awake {awake:.0f} ms)",
        "p50 <= 700 ms",
        p50 <= 700,
    )
    Table.add(
        "wake: GPU memory of its process by the driver, awake and asleep",
        f"{held} MiB, {max(kept)} MiB",
        "its weights away",
        SIM or (held > GIB_OF_MODEL << 10 and max(kept) < 1024),
    )
    # Asleep in the way that leaves nothing on the card, its CUDA context neither.
    cold_times, cold_kept = [], []
    for _ in range(COLD_WAKES):
        model.asleep()
        job = model.state()["replicas"][0]["job"]
        model.call()
        product.cli("suspend", "--cold", "--wait", job)  # within its idle second
        model.asleep()
        cold_kept.append(on_gpu_mib(nvml))
        cold_times.append(model.call())
    Table.add(
        f"wake: after `billow suspend --cold`, {COLD_WAKES} times",
        (
            f"p50 {statistics.median(cold_times):.0f} ms; asleep it held {max(cold_kept)} MiB of"
            " the GPU"
        ),
        "0 MiB",
        max(cold_kept) == 0,
    )
    model.asleep()
    start = Model(product, "start", "--idle", "0s", "--keep", "suspended=0")
    starts = []
    for _ in range(COLD_STARTS):
        start.gone()
        starts.append(start.call())
    cold = statistics.median(starts)
    Table.add(
        f"wake: the same model started cold by a request, {COLD_STARTS} times",
        f"p50 {cold:.0f} ms: {cold / p50:.0f} times a wake",
        "stated",
        cold > p50,
    )
    calls, wrong = model.calls + start.calls, model.wrong + start.wrong
    figures = model.state()["figures"]
    Table.add(
        "wake: answers computed on the GPU",
        f"{calls - wrong} of {calls} right; the gateway counted {figures['wakes']} wakes",
        "all",
        wrong == 0 and figures["wakes"] >= WAKES + 2 * COLD_WAKES,
    )
    product.down()
