"""Part 7: the whole product on the real driver, from the relocatable bundle: `billow up`, slices, a spot job that gives way to an
on-demand one and comes back, suspend by hand, and what it all cost. Needs BILLOW_BUNDLE, or a bundle under dist/."""
import glob
import statistics

from rig import *

ROOT = os.path.dirname(os.path.dirname(HERE))


def find_bundle():
    named = os.environ.get("BILLOW_BUNDLE")
    found = sorted(
        [named]
        if named
        else glob.glob(f"{ROOT}/dist/billow-*-linux-{os.uname().machine}.tar.gz")
        + glob.glob(f"{ROOT}/dist/billow-*-linux-{os.uname().machine}")
    )
    if not found:
        raise RuntimeError("no bundle: ./dev bundle makes one, and BILLOW_BUNDLE names it")
    if os.path.isdir(found[-1]):
        return found[-1]
    where = tempfile.mkdtemp(prefix="bb-")
    os.chmod(where, 0o755)  # jobs of other users are entered by Billow's programs
    subprocess.run(["tar", "-xzf", found[-1], "-C", where], check=True)
    return glob.glob(where + "/*")[0]


class Product:
    def __init__(self, arena):
        self.bundle = find_bundle()
        self.data = tempfile.mkdtemp(prefix="bd-") + "/data"
        self.files = tempfile.mkdtemp(prefix="bf-")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("BILLOW_")}
        self.env["BILLOW_DATA"] = self.data
        if SIM:
            self.env.update(
                BILLOW_CUDA=BUILD + "/sim-cuda/libcuda.so.1",
                BILLOW_SIM_CUDA_STATE=os.environ["BILLOW_SIM_CUDA_STATE"],
            )
        sim = ["--sim", "1xH200"] if SIM else []
        print(
            self.cli(
                "up", "--background", "--listen", "127.0.0.1:0", "--vault-arena", arena, *sim
            ).strip(),
            flush=True,
        )
        atexit.register(self.down)

    def cli(self, *args, check=True, timeout=120):
        run = subprocess.run(
            [self.bundle + "/bin/billow", *map(str, args)],
            env=self.env,
            cwd=self.files,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        if check and run.returncode != 0:
            raise RuntimeError(
                f"billow {' '.join(map(str, args))}:"
                f" {run.returncode}\n{run.stdout[-1500:]}\n{run.stderr[-1500:]}\n{self.log('agent.log')}"
            )
        return run.stdout

    def log(self, name):
        try:
            return open(f"{self.data}/{name}", errors="replace").read()[-1500:]
        except OSError:
            return ""

    def json(self, *args):
        return json.loads(self.cli(*args, "--json"))

    def submit(self, *args):
        at = args.index("--")
        return json.loads(self.cli("submit", *args[:at], "--json", *args[at:]))["id"]

    def job(self, job):
        return self.json("describe", job)

    def wait(self, job, condition, seconds, what):
        wait_for(lambda: condition(self.job(job)), seconds, what)

    def torch_job(self, name, gib, *options):
        stop = f"{self.files}/{name}.stop"
        script = [sys.executable, HERE + "/job.py", stop, gib]
        if SIM:
            script = [
                sys.executable,
                ROOT + "/tests/support/cuda_loop.py",
                stop,
                f"{self.files}/{name}.count",
                16,
            ]
            options = (
                *options,
                "--env-var",
                "LD_LIBRARY_PATH=" + BUILD + "/sim-cuda",
                "--env-var",
                "BILLOW_SIM_CUDA_STATE=" + self.env["BILLOW_SIM_CUDA_STATE"],
            )
        return self.submit("--name", name, *options, "--", *script), stop

    def logs(self, job):
        return self.cli("logs", job, check=False)

    def rates(self, job):
        return [
            float(line.split()[1])
            for line in self.logs(job).splitlines()
            if line.startswith("rate ")
        ]

    def started(self, job, name):
        wait_for(
            lambda: "total " in self.logs(job) or self.job(job)["final"],
            90,
            f"{name} to reach the GPU",
        )
        if self.job(job)["final"]:
            raise RuntimeError(f"{name} ended: {self.logs(job)[-800:]}")

    def job_code(self, job):
        self.cli("wait", job, check=False, timeout=120)
        return self.job(job)["exit_code"]

    def down(self):
        subprocess.run(
            [self.bundle + "/bin/billow", "down", "--stop-jobs"],
            env=self.env,
            capture_output=True,
            timeout=90,
            check=False,
        )


def slices(product):
    quarter, quarter_stop = product.torch_job("quarter", 1, "--gpus", "0.25")
    half, half_stop = product.torch_job("half", 1, "--gpus", "0.5")
    card = product.json("nodes")["nodes"][0]["gpus"][0]
    product.started(quarter, "quarter")
    product.started(half, "half")
    words = product.logs(quarter).split()
    total, want = int(words[1]), int(card["mem_mib"] * 0.25)
    smi = words[words.index("smi") + 1] if "smi" in words else "-"
    Table.add(
        "product: a 0.25 slice sees its memory",
        f"CUDA {total} MiB, nvidia-smi {smi} MiB, asked {want} MiB of {card['mem_mib']}",
        "the slice",
        abs(total - want) <= 64,
    )
    if not SIM:
        begin = (len(product.rates(quarter)), len(product.rates(half)))
        wait_for(
            lambda: len(product.rates(quarter)) >= begin[0] + 10
            and len(product.rates(half)) >= begin[1] + 10,
            60,
            "ten seconds together",
        )
        mean = lambda job, at: statistics.mean(product.rates(job)[at + 1 :])
        q, h = mean(quarter, begin[0]), mean(half, begin[1])
        share = q / (q + h)
        Table.add(
            "product: 0.25 beside 0.5, work of the smaller",
            f"{share * 100:.1f} % of both ({(share * 3 - 1) * 100:+.1f} %)",
            "33.3 % within 5 %",
            abs(share * 3 - 1) <= 0.05,
        )
    for stop in (quarter_stop, half_stop):
        open(stop, "w").close()
    codes = [product.job_code(job) for job in (quarter, half)]
    Table.add(
        "product: both slices' results",
        "right" if codes == [0, 0] else f"codes {codes}",
        "right",
        codes == [0, 0],
    )


def preemption(product, nvml):
    gib = 16
    spot, spot_stop = product.torch_job("spot", gib, "--gpus", 1, "--spot")
    product.started(spot, "spot")
    if not SIM:
        wait_for(lambda: len(product.rates(spot)) >= 3, 60, "three seconds of the spot job")
    begin = time.monotonic()
    demand, demand_stop = product.torch_job("demand", 1, "--gpus", 1)
    product.wait(spot, lambda d: d["state"] == "suspended", 60, "the spot job to be suspended")
    gave_way = time.monotonic() - begin
    doc = product.job(spot)
    ram = doc["tasks"][0].get("ram_mib", 0)
    product.started(demand, "demand")
    open(demand_stop, "w").close()
    demand_code = product.job_code(demand)
    begin = time.monotonic()
    product.wait(
        spot,
        lambda d: d["state"] == "running" and d["tasks"][0]["state"] == "running",
        60,
        "the spot job to resume",
    )
    back = time.monotonic() - begin
    Table.add(
        "product: spot job suspended by an on-demand one",
        (
            f"gave way in {gave_way:.1f} s, {ram} MiB kept, on-demand exit {demand_code}, back"
            f" {back:.1f} s after its end"
        ),
        "works",
        demand_code == 0
        and doc["suspension"]["cause"] == "preempted"
        and (SIM or ram >= gib * 1024),
    )
    before = held_by_jobs(nvml)
    product.cli("suspend", "--cold", "--wait", spot)
    after = held_by_jobs(nvml)
    Table.add(
        "product: `billow suspend --cold`",
        (
            f"the job held {before >> 20} MiB of the GPU and holds {after >> 20} MiB, state"
            f" {product.job(spot)['state']}"
        ),
        "0 MiB",
        before > 0 and after == 0,
    )
    product.cli("resume", "--wait", spot)
    if not SIM:
        before = len(product.rates(spot))
        wait_for(lambda: len(product.rates(spot)) > before, 60, "the spot job to go on")
    open(spot_stop, "w").close()
    code = product.job_code(spot)
    Table.add(
        "product: the spot job's result",
        product.logs(spot).strip().splitlines()[-1],
        "right, one attempt",
        code == 0 and product.job(spot)["attempt"] == 1,
    )
    cost(product, spot)


def held_by_jobs(nvml):
    """Device memory of the jobs' processes, by the driver. Nothing on the simulated one."""
    return sum(
        held
        for pid, held in nvml.processes().items()
        if "job.py" in command_of(pid) and held < 1 << 50
    )


def command_of(pid):
    try:
        return open(f"/proc/{pid}/cmdline", "rb").read().decode(errors="replace")
    except OSError:
        return ""


def events(product):
    out, after = [], 0
    token = open(product.data + "/token").read().strip()
    while True:
        s = socket.socket(socket.AF_UNIX)
        s.connect(product.data + "/head.sock")
        s.sendall(
            f"GET /v1/events?after={after}&limit=1000 HTTP/1.0\r\nHost: x\r\nAuthorization: Bearer"
            f" {token}\r\n\r\n".encode()
        )
        text = b""
        while part := s.recv(65536):
            text += part
        page = json.loads(text.split(b"\r\n\r\n", 1)[1])["events"]
        out += page
        if len(page) < 1000:
            return out
        after = page[-1]["seq"]


def cost(product, job):
    """Every lease of the job, added up by hand from its times and rates, against what `billow` says
    it cost."""
    task, leases, rate, milli, since = None, 0, 0, 0, 0
    for e in events(product):
        body = e["event"]
        if e["kind"] == "job_placed" and body["job"] == job:
            task = body["tasks"][0]["id"]
            rate, milli, since = body["tasks"][0]["rate"], 1000, body["tasks"][0]["lease_from_ns"]
        elif task is not None and body.get("task") == task and "lease_to_ns" in body:
            leases += rate * (body["lease_to_ns"] - since) * milli // 1000 // 10**9
            since = body["lease_to_ns"]
            if e["kind"] == "task_suspended":
                rate, milli = body["rate"], body["ram_mib"] * 1000 // 1024
            elif e["kind"] == "job_resuming":
                rate, milli = body["rate"], 1000
    said = product.job(job)["cost_nano_usd"]
    Table.add(
        "product: cost of the spot job",
        (
            f"{product.job(job)['cost']}, {said - leases:+d} nano-dollars from its leases added up"
            " by hand"
        ),
        "exact but for rounding",
        said > 0 and abs(said - leases) <= 10,
    )


def part_product():
    nvml = Nvml()
    product = Product("256M" if SIM else "24G")
    node = product.json("nodes")["nodes"][0]
    Table.add(
        "product: `billow up` from the bundle",
        f"{node['gpus'][0]['model']}, {'simulated' if node['simulated'] else 'real driver'}",
        "the real card",
        SIM or not node["simulated"],
    )
    slices(product)
    preemption(product, nvml)
    product.down()


def part_idle():
    """Four PyTorch processes, each with the card to itself, judged by Billow through the real NVML with a warning after 40 s. What rests is
    watched until it is called so; what works for more than two of those spans, and every verdict in between counts.
    """
    product = Product("0")
    warn_s, active_s = 40, 80
    product.cli("idle", "set", "--warn", f"{warn_s}s", "--suspend", "30m", "--stop", "60m")
    expected = {"busy": "active", "bursty": "active", "idle": "idle", "hung": "hung"}
    rows = []
    for kind, right in expected.items():
        job = product.submit(
            "--gpus", 1, "--name", kind, "--", sys.executable, HERE + "/behave.py", kind
        )
        wait_for(lambda: "ready" in product.logs(job), 60, kind)
        begin = time.monotonic()
        span = active_s if right == "active" else warn_s + 40
        wait_for(
            lambda: verdict(product, job) or time.monotonic() - begin > span, span + 30, "a verdict"
        )
        state, reason = verdict(product, job) or ("active", seen(product))
        took = time.monotonic() - begin
        product.cli("stop", "--force", "--wait", job)
        rows.append((kind, state, f"{took:.0f} s", reason))
        Table.add(
            f"one process, {kind}, by the real NVML",
            f"{state} after {took:.0f} s: {reason}",
            right,
            state == right,
        )
    print(f"\n{'process':<10}{'verdict':<10}{'after':<8}reason")
    for kind, state, took, reason in rows:
        print(f"{kind:<10}{state:<10}{took:<8}{reason}", flush=True)
    product.down()


def verdict(product, job):
    """The last thing its agent said of it: state and reason. Nothing while it is taken to work."""
    said = [
        e["event"]
        for e in events(product)
        if e["kind"] == "idle_warned" and e["event"]["job"] == job
    ]
    return (
        (said[-1].get("state", "idle"), said[-1]["text"])
        if said and said[-1].get("action", "warn") not in ("recovered", "none")
        else None
    )


def seen(product):
    """What the card showed, in the words of the node's last reading."""
    gpu = product.json("nodes")["nodes"][0]["gpus"][0]
    now = {k: gpu[k] for k in ("util_pct", "sm_active_pct", "power_w") if gpu.get(k) is not None}
    return "never called idle" + (
        "; now " + ", ".join(f"{k.replace('_', ' ')} {v:g}" for k, v in now.items()) if now else ""
    )
