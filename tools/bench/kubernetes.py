"""A Kubernetes pool at size: real API server, etcd and scheduler, simulated nodes and kubelets.

Every pod but a few is only marked as running. The few run a real agent, from whose start the time to a
usable node is measured.
"""
import argparse
import base64
import concurrent.futures
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
sys.path[:0] = [os.path.join(ROOT, "tests/support"), os.path.join(ROOT, "tests/e2e/pools")]
import kube_real  # noqa: E402
from kubernetes_test import RealRig  # noqa: E402
from rig import BILLOW, UnixConnection, poll  # noqa: E402

REQUESTS_PER_S_MAX = 10


def node_document(number):
    conditions = [{"type": "Ready", "status": "True", "reason": "Simulated"}]
    size = {"cpu": "192", "memory": "2Ti", "pods": "110", "nvidia.com/gpu": "8"}
    labels = {
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
        "nvidia.com/gpu.memory": "81559",
        "topology.kubernetes.io/zone": f"zone-{number % 4}",
        "topology.kubernetes.io/rack": f"rack-{number // 16}",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"gpu-{number:04}", "labels": labels},
        "status": {"capacity": size, "allocatable": size, "conditions": conditions},
    }


class Kubelets:
    """Says of each pod with a node that it runs, and removes each that is deleted. The first pods run
    their agent."""

    def __init__(self, cluster, rig, agents):
        self.cluster, self.folder, self.agents = cluster, rig.file("agents"), agents
        self.policy = rig.environment["BILLOW_NODE_POLICY"]
        self.started, self.processes = set(), []
        self.chosen, self.lock = set(), threading.Lock()  # pods with an agent
        self.running = True
        self.workers = concurrent.futures.ThreadPoolExecutor(8)
        self.thread = threading.Thread(target=self.turn, daemon=True)
        self.thread.start()

    def call(self, method, path, body=None, kind="application/json"):
        connection = UnixConnection(self.cluster.file("api.sock"), 60)
        try:
            text = json.dumps(body) if body is not None else None
            connection.request(method, path, text, {"Content-Type": kind})
            answer = connection.getresponse()
            data = answer.read()
            if answer.status >= 300 and answer.status not in (404, 409):
                raise AssertionError(f"{method} {path}: {answer.status} {data[:300]}")
            return json.loads(data) if data else None
        finally:
            connection.close()

    def add_node(self, number):
        self.call("POST", "/api/v1/nodes", node_document(number))
        # A new node is tainted until a controller, which does not run here, has seen it ready.
        untainted = {"spec": {"taints": None}}
        place = f"/api/v1/nodes/gpu-{number:04}"
        self.call("PATCH", place, untainted, "application/merge-patch+json")

    def turn(self):
        place = f"/api/v1/namespaces/{self.cluster.namespace}/pods"
        while self.running:
            pods = (self.cluster.get_object(place) or {}).get("items", [])
            work = [p for p in pods if self.is_due(p)]
            list(self.workers.map(self.serve, work))
            time.sleep(0.2)

    def is_due(self, pod):
        if "deletionTimestamp" in pod["metadata"]:
            return True
        return "nodeName" in pod["spec"] and pod["metadata"]["uid"] not in self.started

    def wants_agent(self, pod):
        with self.lock:
            uid = pod["metadata"]["uid"]
            if uid not in self.chosen and len(self.chosen) < self.agents:
                self.chosen.add(uid)
            return uid in self.chosen

    def serve(self, pod):
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        place = f"/api/v1/namespaces/{self.cluster.namespace}/pods/{name}"
        if "deletionTimestamp" in pod["metadata"]:
            self.call("DELETE", place, {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}})
            return
        if self.wants_agent(pod) and not self.start_agent(pod):
            return  # its secret does not exist yet
        self.started.add(uid)
        status = {
            "phase": "Running",
            "podIP": kube_real.BRIDGE,
            "startTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        patch = "application/strategic-merge-patch+json"
        self.call("PATCH", place + "/status", {"status": status}, patch)

    def start_agent(self, pod):
        name = pod["metadata"]["name"]
        folder = os.path.join(self.folder, name)
        mounted = next(v["secret"] for v in pod["spec"]["volumes"] if "secret" in v)
        place = f"/api/v1/namespaces/{self.cluster.namespace}/secrets/{mounted['secretName']}"
        secret = self.cluster.get_object(place)
        if not secret:
            return False
        os.makedirs(folder + "/billow-token")
        os.makedirs(folder + "/billow")
        for key, value in secret["data"].items():
            with open(f"{folder}/billow-token/{key}", "wb") as f:
                f.write(base64.b64decode(value))
        words = []
        for word in pod["spec"]["containers"][0]["command"]:
            word = word.replace("$(NODE_NAME)", pod["spec"]["nodeName"])
            words.append(folder + word if word.startswith("/billow") else word)
        environment = {
            **os.environ,
            "HOME": folder,
            "BILLOW_NODE_POLICY": self.policy,
        }
        subprocess.run(["chown", "-R", "1000:1000", folder], check=True)
        user = ("setpriv", "--reuid=1000", "--regid=1000", "--clear-groups")
        with open(folder + "/log", "wb") as log:
            process = subprocess.Popen(
                [*self.cluster.spaces.network(), *user, BILLOW, *words[1:]],
                env=environment,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        machine = pod["metadata"]["labels"]["billow/machine"]
        self.processes.append((machine, time.monotonic(), process))
        return True

    def close(self):
        self.running = False
        self.thread.join()
        for _, _, process in self.processes:
            process.kill()
            process.wait()


class Head:
    """What the head's process uses."""

    def __init__(self, pid):
        self.pid = pid

    def cpu_s(self):
        with open(f"/proc/{self.pid}/stat", encoding="ascii") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_mib(self):
        with open(f"/proc/{self.pid}/status", encoding="ascii") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("VmRSS")) / 1024


def request_times(cluster):
    """When each request of Billow began, by the audit log of the API server."""
    out = []
    with open(cluster.file("audit.log"), encoding="utf-8") as f:
        for line in f:
            one = json.loads(line)
            if one.get("userAgent") != "billow" or one["stage"] == "ResponseStarted":
                continue
            stamp = one["requestReceivedTimestamp"][:26].rstrip("Z")
            whole, _, part = stamp.partition(".")
            at = time.mktime(time.strptime(whole, "%Y-%m-%dT%H:%M:%S")) - time.timezone
            out.append(at + float("0." + (part or "0")))
    return sorted(out)


def busiest(times, window_s):
    """The most requests per second in any window of this length."""
    most, first = 0, 0
    for last, at in enumerate(times):
        while at - times[first] > window_s:
            first += 1
        most = max(most, last - first + 1)
    return most / window_s


def measure(options):
    root = tempfile.mkdtemp(prefix="billow-k8s-")
    cluster = kube_real.KubeReal(os.path.join(root, "cluster"), kubelet=False)
    cluster.end("manager")  # it would take the silent nodes away
    rig, kubelets = None, None
    try:
        rig = RealRig(cluster)
        kubelets = Kubelets(cluster, rig, options.agents)
        began = time.monotonic()
        list(kubelets.workers.map(kubelets.add_node, range(options.nodes)))
        print(
            f"{options.nodes} nodes with 8 GPUs after {time.monotonic() - began:.0f} s", flush=True
        )
        return run(options, rig, cluster, kubelets)
    finally:
        if kubelets:
            kubelets.close()
        if rig:
            cluster.restore = lambda: None  # the cluster ends with the benchmark
            rig.close()
        cluster.close()


def run(options, rig, cluster, kubelets):
    head = Head(rig.head_pid())
    done = rig.cli(
        *("pool", "add", "kubernetes", "k", "--gpu", "4xH100", "--sim", "4xH100"),
        *("--option", f"kubeconfig={cluster.kubeconfig}", "--option", f"program={BILLOW}"),
        *("--option", "image=billow", "--max", options.pods, "--idle", "1h", "--patience", "2h"),
        timeout=120,
    )
    if done.code != 0:
        sys.exit(done.errors)
    time.sleep(5)
    empty_mib, empty_cpu = head.memory_mib(), head.cpu_s()
    began, wall = time.monotonic(), time.time()
    array = ("submit", "--json", "--array", f"0-{options.pods - 1}", "--gpus", 4)
    job = rig.ok(*array, "--", "sleep", "36000", timeout=120).json["id"]
    usable = {}

    def all_run():
        for node in rig.json("nodes", timeout=120)["nodes"]:
            usable.setdefault(node["name"], time.monotonic())
        time.sleep(0.1)
        return len(kubelets.started) >= options.pods and len(usable) >= options.agents

    poll(all_run, "every pod running", options.limit)
    grown_s, growing_cpu = time.monotonic() - began, head.cpu_s() - empty_cpu
    grown_wall = time.time()
    steady_cpu = head.cpu_s()
    time.sleep(options.steady)
    steady_cpu = head.cpu_s() - steady_cpu
    times = request_times(cluster)
    growing = [t for t in times if wall <= t <= grown_wall]
    steady = [t for t in times if t > grown_wall]
    waits = [usable[m] - at for m, at, _ in kubelets.processes if m in usable]
    print(f"pods: {options.pods} ordered and running after {grown_s:.0f} s")
    print(
        f"head: {growing_cpu:.1f} s of CPU time while it grew"
        f" ({100 * growing_cpu / grown_s:.1f} % of a core), then"
        f" {100 * steady_cpu / options.steady:.2f} % of a core;"
        f" memory {empty_mib:.0f} MiB before, {head.memory_mib():.0f} MiB with the pods"
    )
    rate, peak = len(growing) / grown_s, busiest(growing, 10)
    print(
        f"requests to the API server: {rate:.1f} per second while it grew (most in 10 s:"
        f" {peak:.1f}), then {len(steady) / options.steady:.2f} per second; target: at most"
        f" {REQUESTS_PER_S_MAX}"
    )
    print(
        "from the start of a pod's container to a node that takes jobs: median"
        f" {statistics.median(waits):.2f} s, most {max(waits):.2f} s, of {len(waits)}"
    )
    # While their agents run: else the jobs that run would stay.
    rig.ok("stop", job, timeout=120)
    poll(lambda: not rig.json("ps", timeout=120)["jobs"], "every job stopped", 120)
    return max(rate, peak) <= REQUESTS_PER_S_MAX


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=2000)
    parser.add_argument("--agents", type=int, default=8, help="pods that run a real agent")
    parser.add_argument("--steady", type=float, default=60, help="seconds measured at rest")
    parser.add_argument("--limit", type=float, default=3600, help="seconds until it gives up")
    options = parser.parse_args()
    if why := kube_real.missing():
        sys.exit(f"no real cluster: {why}")
    sys.exit(0 if measure(options) else 1)


if __name__ == "__main__":
    main()
