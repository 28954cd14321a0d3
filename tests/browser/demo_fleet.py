"""A small company's fleet on simulated GPUs, for pictures of the dashboard: four nodes, three
projects, jobs in every state, endpoints, budgets and reservations.

`demo_fleet.py SCRIPT…` starts it, runs the node scripts of this folder against it one after the
other, and ends it. `demo_fleet.py --hold` leaves it up until Enter is pressed.
"""
import os
import subprocess
import sys
import time

from rig import BILLOW, Rig, poll

HERE = os.path.dirname(os.path.abspath(__file__))
# A simulated GPU is as busy as its job; the time a job waits for a core counts as work too.
# DEMO_LOAD (0 to 1) scales it, for machines that have other work.
TRAIN = """
import os, sys, time
busy, mem, step = float(sys.argv[1]), sys.argv[2], 0
if os.environ.get("BILLOW_SIM_GPU_MEM") != mem:
    os.environ["BILLOW_SIM_GPU_MEM"] = mem
    os.execv(sys.executable, [sys.executable, "-u", *sys.argv])
loss, last = 2.9, 0.0
while True:
    began = time.monotonic()
    while time.monotonic() - began < 0.05 * busy:
        pass
    time.sleep(0.05 * (1 - busy))
    step += 1
    loss = 0.42 + (loss - 0.42) * 0.9985 + 0.0007 * ((step * 7919) % 13 - 6)
    if began - last > 1:
        last = began
        print(f"\\033[2m{time.strftime('%H:%M:%S')}\\033[0m step={step} loss={loss:.4f} "
              f"lr={3e-4 * min(1, step / 400):.2e} tokens/s={41000 + (step * 31) % 900}")
"""
SERVE = "exec python3 -m http.server --bind 127.0.0.1 $PORT"
NODES = [
    ("h100-b", "8xH100", ("rack=7", "switch=leaf-7")),
    ("a100-a", "4xA100-80", ("rack=8", "switch=leaf-8")),
    ("l4-a", "4xL4", ("rack=8", "switch=leaf-8")),
]
USERS = {"ana": "vision", "nlp-ci": "nlp", "evals": "platform"}


class Fleet:
    def __init__(self):
        place = ("--label", "rack=7", "--label", "switch=leaf-7")
        self.rig = Rig(sim="8xH100", args=("--node-name", "h100-a", *place))
        self.tokens = {}
        self.train = self.rig.file("train.py")
        with open(self.train, "w", encoding="utf-8") as f:
            f.write(TRAIN)

    def nodes(self):
        for name, sim, labels in NODES:
            # fmt: off
            self.rig.start(
                "agent", "--head", "unix:" + self.rig.data + "/head.sock",
                "--token-file", self.rig.node_token_file(name),
                "--data", self.rig.file(name), "--sim", sim, "--node-name", name,
                *(word for label in labels for word in ("--label", label)),
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )
            # fmt: on
        wanted = 1 + len(NODES)
        poll(lambda: len(self.rig.json("nodes")["nodes"]) == wanted, "all nodes", 60)

    def people(self):
        for project in set(USERS.values()):
            self.rig.ok("project", "create", project)
        for user, project in USERS.items():
            self.rig.ok("user", "create", user, "--unix-name", "nobody")
            self.rig.ok("project", "member", project, user, "--role", "member")
            self.tokens[user] = self.rig.token_for(user)

    def submit(self, user, name, gpus, *options, run):
        # fmt: off
        done = self.rig.ok(
            "submit", "--json", "--no-env", "--cwd", self.rig.files,
            "--name", name, "--gpus", gpus, *options,
            "--", *run, env={"BILLOW_TOKEN": self.tokens[user]},
        )
        # fmt: on
        return done.json["id"]

    def training(self, busy, mem_gib):
        load = busy * float(os.environ.get("DEMO_LOAD", "1"))
        return ("python3", "-u", "train.py", f"{load:.2f}", str(int(mem_gib * 1024)))

    def past(self):
        """Jobs that have ended, some of them badly."""
        for i in range(6):
            self.submit("evals", f"eval-{i:02d}", 1, run=("sh", "-c", "echo accuracy=0.9; sleep 1"))
        self.submit("ana", "resnet-lr-1e-1", 2, run=("sh", "-c", "echo loss=nan; exit 1"))
        self.submit("nlp-ci", "tokenize", 0, run=("sh", "-c", "echo 4,194,304 documents"))
        poll(lambda: not self.rig.json("ps")["jobs"], "the first jobs to end", 60)

    def present(self):
        h100 = ("--gpu-type", "H100")
        self.jobs = {
            "pretrain": self.submit(
                "nlp-ci", "pretrain-7b", 8, *h100, "--label", "model=7b", "--time", "20h",
                run=self.training(0.94, 71.5),
            ),
            "detector": self.submit(
                "ana", "detector-v3", 4, *h100, "--label", "model=detr",
                run=self.training(0.82, 48),
            ),
            "finetune": self.submit(
                "ana", "finetune-clip", 2, "--gpu-type", "A100-80", run=self.training(0.71, 33)
            ),
            "notebook": self.submit(
                "ana", "notebook", 1, *h100, run=("sleep", "7200")
            ),
            "embed": self.submit(
                "nlp-ci", "embed-corpus", 0.5, "--gpu-type", "L4", "--spot",
                run=self.training(0.66, 7),
            ),
            "sweep": self.submit(
                "evals", "sweep", 1, "--array", "0-11%2", "--gpu-type", "L4", "--spot",
                run=self.training(0.58, 11),
            ),
        }  # fmt: skip
        self.rig.wait_for(self.jobs["pretrain"], "running", 60)
        self.jobs["big"] = self.submit(
            "nlp-ci", "pretrain-13b", 8, *h100, "--time", "6h", run=self.training(0.9, 74)
        )
        self.jobs["gang"] = self.submit(
            "ana", "diffusion-xl", 4, "--nodes", 2, *h100, run=self.training(0.9, 60)
        )
        # fmt: off
        for name, gpus, kind in (("chat", 1, "A100-80"), ("embeddings", 0.5, "L4")):
            self.rig.ok(
                "deploy", name, "--gpus", gpus, "--gpu-type", kind, "--min", 1, "--max", 3,
                "--no-env", "--", "sh", "-c", SERVE, timeout=120,
            )
        # fmt: on

    def money(self):
        for project, usd in (("vision", 40), ("nlp", 900), ("platform", 2)):
            self.rig.ok("budget", "set", usd, "--project", project, "--warn-only")
        for name, project, gpus, start, length in (
            ("demo-day", "vision", 2, "+3h", "8h"),
            ("weekly-eval", "platform", 4, "+26h", "4h"),
            ("launch", "nlp", 8, "+50h", "12h"),
        ):
            # fmt: off
            self.rig.ok(
                "reserve", "--gpus", gpus, "--gpu-type", "H100", "--from", start, "--for", length,
                "--name", name, "-p", project,
            )
            # fmt: on
        self.rig.ok(
            *("schedule", "add", "--name", "nightly-eval", "--cron", "0 3 * * *", "--gpus", 1),
            *("--", "python3", "evaluate.py"),
        )

    def kept(self):
        """What projects keep on the head: volumes, secrets, environments, webhooks, presets."""
        self.rig.ok("volume", "add", "datasets", "--path", self.rig.files, "--read-only")
        self.rig.ok("volume", "add", "scratch", "--path", self.rig.files, "-p", "vision")
        for name, project in (("HF_TOKEN", "nlp"), ("WANDB_API_KEY", "vision")):
            path = f"/v1/secrets/{name}?project={project}"
            self.rig.api("PUT", path, {"value": "an example"})
        folder = self.rig.file("venv")
        os.makedirs(os.path.join(folder, "bin"), exist_ok=True)
        self.rig.ok("env", "save", "torch-2.4", folder, "--shared")
        self.rig.ok(
            "webhook", "add", "https://hooks.example.com/billow", "--kinds", "budget,idle"
        )
        spec = {"argv": ["python3", "train.py"], "name": "finetune", "resources": {"gpus": 2}}
        self.rig.api("PUT", "/v1/presets/finetune?project=vision", {"spec": spec})

    def trouble(self):
        with open(os.path.join(self.rig.file("l4-a"), "sim/faults"), "w", encoding="ascii") as f:
            f.write("ecc 3 2\n")
        self.rig.ok("drain", "a100-a", "--gpu", 3, "--reason", "fan replacement at 14:00")

    def calls(self, seconds):
        """Requests to the endpoints, so that their charts have lines."""
        urls = [e["url"] for e in self.rig.json("endpoints")["endpoints"]]
        until = time.monotonic() + seconds
        n = 0
        while time.monotonic() < until:
            n += 1
            for url in urls[: 1 + n % 2]:
                subprocess.run(["curl", "-s", "-o", "/dev/null", "-m", "5", url], check=False)
            time.sleep(0.15 + 0.1 * (n // 40 % 4))

    def start(self, seconds):
        self.nodes()
        self.people()
        self.past()
        self.present()
        self.money()
        self.kept()
        self.trouble()
        self.calls(seconds)

    def close(self):
        # While their agents live: nobody else would end the jobs of the other nodes.
        for endpoint in self.rig.json("endpoints")["endpoints"]:
            self.rig.cli("delete", endpoint["name"])
        alive = [str(j["id"]) for j in self.rig.json("ps")["jobs"]]
        if alive:
            self.rig.cli("stop", "--force", "--wait", *alive, timeout=90)
        self.rig.close()

    def run(self, script):
        return subprocess.run(
            ["node", os.path.join(HERE, script)],
            cwd=self.rig.files,
            check=False,
            env={
                **self.rig.environment,
                "BILLOW_BIN": os.path.dirname(BILLOW),
                "BILLOW_FILES": self.rig.files,
                "PATH": os.environ["PATH"],
                **{k: v for k, v in os.environ.items() if k in ("BILLOW_WEB", "BILLOW_SHOTS")},
                **{f"DEMO_{k.upper()}": str(v) for k, v in self.jobs.items()},
            },
        ).returncode


def main():
    fleet = Fleet()
    failed = 0
    try:
        fleet.start(float(os.environ.get("DEMO_SECONDS", "60")))
        if "--hold" in sys.argv:
            print("BILLOW_DATA=" + fleet.rig.data, flush=True)
            sys.stdin.readline()
        else:
            failed = max(fleet.run(script) for script in sys.argv[1:])
    finally:
        fleet.close()
    sys.exit(failed)


if __name__ == "__main__":
    main()
