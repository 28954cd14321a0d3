"""A random story of faults around a Kubernetes pool. It prints its seed; BILLOW_SEED repeats it and
BILLOW_KUBE_FAULTS and BILLOW_KUBE_MINUTES set its length.

At its end no pod, secret or machine is left; no job ran twice at the same time; a job that may run
only once ran to its end at most once; and every job has ended as it may: a job that may be started
again has succeeded, and another was lost only if its own pod was killed without a warning. On a real
cluster the pool's account has exactly the shipped role, and no fault but the deletion of the
namespace, which takes the role with it, is mistaken for a missing right.
"""
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import kube_real
from kubernetes_test import KubeRig, RealRig
from rig import SOURCE, poll

# The lock is free again when its holder is gone, however it ended.
JOB = """
exec 9>DIR/lock-N
if ! flock -n 9; then echo twice >> DIR/twice-N; exit 1; fi
echo start >> DIR/starts-N
sleep TIME
echo end >> DIR/ends-N
"""
EVENTS = ("events", "--json", "--limit", 1000, "--after")
SUPPORT = os.path.join(SOURCE, "tests/support")


class Story:
    """The faults, the jobs, and what must hold. A subclass says how to do harm to its cluster."""

    count = 10
    calm = 3  # seconds that a job has to start after a fault, so that most faults meet running jobs
    faults = {"delete_pod": 4, "kill_pod": 3, "cut_watch": 4, "kill_api": 1, "kill_head": 1}
    rights_from = 0  # from then on no refusal of a right is true

    def story(self):
        seed = int(os.environ.get("BILLOW_SEED") or random.SystemRandom().randrange(1 << 32))
        count = int(os.environ.get("BILLOW_KUBE_FAULTS") or self.count)
        print(f"{type(self).__name__}: seed {seed}, {count} faults", flush=True)
        self.random = random.Random(seed)
        self.jobs = {}  # job → (number, whether it may be started again)
        # Machines whose pods were killed. One may join after that, and take a job before it dies.
        self.doomed = set()
        self.machines = {}  # by node: jobs that are over know only its number
        self.seen = 0  # the last event
        self.happened = []
        self.refused = []  # pauses for a missing right, although the account has them all
        self.done = {name: 0 for name in self.faults}
        end = time.monotonic() + 60 * float(os.environ.get("BILLOW_KUBE_MINUTES") or 600)
        for number in range(count):
            if time.monotonic() > end:
                print(f"stopped after {number} faults: the time is over", flush=True)
                break
            while len(self.unfinished()) < 3:
                self.submit()
            self.let_work()
            self.note_nodes()
            fault = self.random.choices(list(self.faults), list(self.faults.values()))[0]
            self.happened.append((time.strftime("%H:%M:%S"), fault))
            getattr(self, fault)()
            self.done[fault] += 1
            self.resume_orders()
            self.note_nodes()
            if number % 20 == 19:
                print(f"{number + 1} faults: {self.done}, {len(self.jobs)} jobs", flush=True)
            time.sleep(self.random.uniform(0.1, 1.5))
        self.check()

    def let_work(self):
        end = time.monotonic() + self.calm
        while time.monotonic() < end and not self.listed("running"):
            time.sleep(0.5)
        time.sleep(self.random.uniform(0, 2))  # some jobs end between two faults

    def unfinished(self):
        return self.listed("queued", "running", "held")

    def listed(self, *states):
        told = poll(lambda: self.attempt("ps", "--json"), "a head that answers", 60)
        return [j["id"] for j in told["jobs"] if j["state"] in states]

    def attempt(self, *args):
        done = self.rig.cli(*args)
        return done.json if done.code == 0 else None

    def submit(self):
        number, again = len(self.jobs), self.random.random() < 0.6
        script = JOB.replace("DIR", self.folder).replace("-N", f"-{number}")
        script = script.replace("TIME", f"{self.random.uniform(0.2, 6):.1f}")
        flags = ("--rerun-if-lost",) if again else ()
        job = self.rig.submit("--gpus", 1, *flags, "--no-sync", "--", "sh", "-c", script)
        self.jobs[job] = (number, again)

    def lines(self, name):
        try:
            with open(os.path.join(self.folder, name), encoding="ascii") as f:
                return len(f.readlines())
        except OSError:
            return 0

    # ---- harm
    def some_pod(self):
        names = [n for n in self.cluster.pod_names() if n.startswith("billow-")]
        return self.random.choice(names) if names else None

    def delete_pod(self):
        if name := self.some_pod():
            self.cluster.delete(name)

    def kill_pod(self):
        if name := self.some_pod():
            self.doomed.add(name.partition("-")[2].partition("-")[2])  # billow-…-MACHINE
            self.cluster.remove(name)

    def note_nodes(self):
        """By the events, because a node may come and go between two looks at the list."""
        told = {"events": True}
        while told["events"]:
            told = poll(lambda: self.attempt(*EVENTS, self.seen), "a head that answers", 60)
            for one in told["events"]:
                self.seen = one["seq"]
                if one["kind"] == "node_joined":
                    node = one["event"]["node"]
                    self.machines[node["id"]] = node["offer"]["name"].partition(".")[0]

    def was_killed(self, job):
        return any(self.machines.get(task["node_id"]) in self.doomed for task in job["tasks"])

    def kill_api(self):
        self.cluster.api_away()
        time.sleep(self.random.uniform(0.1, 2))
        self.cluster.api_back()

    def kill_head(self):
        address = self.rig.json("status")["addresses"][0].split("//")[1]
        self.rig.kill(self.rig.head_pid())
        time.sleep(self.random.uniform(0, 1))
        self.rig.up(listen=address)

    def delete_namespace(self):
        self.cluster.delete_namespace()
        time.sleep(self.random.uniform(0, 1))
        self.cluster.create_namespace()

    def resume_orders(self):
        """As an administrator does: otherwise a pool that was refused waits for minutes."""
        pools = self.attempt("pool", "list", "--json")
        denied = [pool["denied"] for pool in (pools or {"pools": []})["pools"] if pool["denied"]]
        if not denied:
            return
        if "fix its settings" in denied[0] and time.monotonic() > self.rights_from:
            self.refused.append((time.strftime("%H:%M:%S"), denied[0]))
        self.rig.cli("cloud", "check", "k")

    # ---- what must hold
    def check(self):
        def all_ended():
            states = {j: self.rig.job(j)["state"] for j in self.unfinished() if j in self.jobs}
            return not states

        def ended():
            self.resume_orders()
            self.note_nodes()
            return all_ended()

        poll(ended, "every job ended", 900)
        self.rig.empty()
        self.assertEqual(self.refused, [], f"refused; what happened: {self.happened}")
        lost = 0
        for job, (number, again) in self.jobs.items():
            told, ends = self.rig.job(job), self.lines(f"ends-{number}")
            state = told["state"]
            self.assertEqual(self.lines(f"twice-{number}"), 0, f"job {job} ran twice at once")
            if again:
                self.assertEqual(state, "succeeded", f"job {job} may be started again")
            elif state == "lost":
                lost += 1
                if not self.was_killed(told):
                    print(f"what happened: {self.happened}", flush=True)
                    print(self.rig.ok("describe", job).text, self.rig.head_log(), flush=True)
                self.assertTrue(self.was_killed(told), f"lost, and its pod was not killed: {told}")
            else:
                self.assertEqual(state, "succeeded", job)
            if state == "succeeded":
                self.assertGreaterEqual(ends, 1, f"job {job} succeeded without an end")
            if not again:
                self.assertLessEqual(ends, 1, f"job {job} ran to its end twice")
        print(
            (
                f"{sum(self.done.values())} faults {self.done}: {len(self.jobs)} jobs; {lost} lost,"
                " all of them jobs that may run only once and whose pod was killed without a"
                " warning; none twice, no pod left"
            ),
            flush=True,
        )


class OnDouble(Story, unittest.TestCase):
    count = 12
    faults = {
        **{"delete_pod": 4, "kill_pod": 3, "cut_watch": 4, "kill_api": 2, "kill_head": 1},
        **{"overload": 2, "lose_answers": 3, "forget": 2},
    }

    def test_nothing_leaks_runs_twice_or_is_forgotten(self):
        self.rig = KubeRig()
        self.cluster = self.rig.cluster
        self.cluster.nodes = {"gpu-1": 2, "gpu-2": 2}
        try:
            self.folder = self.rig.file("marks")
            os.makedirs(self.folder)
            os.chmod(self.folder, 0o777)
            self.assertEqual(self.rig.add_pool("k", gpu="1xL4").code, 0)
            self.story()
        finally:
            self.rig.close()

    def cut_watch(self):
        self.cluster.cut_watches()

    def forget(self):
        self.cluster.cut_watches(forget=True)

    def overload(self):
        self.cluster.refusals = [self.random.choice((429, 500, 503)) for _ in range(3)]

    def lose_answers(self):
        self.cluster.lost_answers = 2


@unittest.skipIf(kube_real.missing(), kube_real.missing())
class OnReal(Story, unittest.TestCase):
    count = 6
    calm = 30  # a scheduler that lost its API server looks for it ever more seldom
    faults = {
        **{"delete_pod": 6, "kill_pod": 6, "cut_watch": 8, "kill_api": 3, "kill_head": 3},
        **{"pause_etcd": 5, "delete_namespace": 1},
    }

    def test_nothing_leaks_runs_twice_or_is_forgotten(self):
        root = tempfile.mkdtemp(prefix="billow-k8s-")
        self.addCleanup(shutil.rmtree, root, ignore_errors=True)
        self.cluster = kube_real.KubeReal(os.path.join(root, "cluster"))
        try:
            self.start_proxy()
            self.rig = RealRig(self.cluster)
            try:
                self.prepare()
                self.story()
            finally:
                self.rig.close()
        finally:
            self.cluster.close()

    def prepare(self):
        self.folder = self.rig.file("marks")
        os.makedirs(self.folder)
        os.chmod(self.folder, 0o777)
        self.cluster.set_profile("privileged")
        self.role = self.rig.ok("install", "kubernetes", "--pool-only", "--namespace", "team").text
        self.cluster.use_role(self.role)
        volume = ("--option", f"volumes=host/{self.folder}:{self.folder}")
        done = self.rig.add_pool("k", *volume, "--option", "gpu-product=any", gpu="1xL4")
        self.assertEqual(done.code, 0, done)

    def start_proxy(self):
        """The pool reaches the API server through it, so that its connections can be cut."""
        port = kube_real.PORT + 10000
        self.proxy = subprocess.Popen(
            [
                *(*self.cluster.spaces.network(), sys.executable, SUPPORT + "/cut_proxy.py"),
                *(kube_real.BRIDGE, str(port), kube_real.BRIDGE, str(kube_real.PORT)),
            ],
            stdout=subprocess.PIPE,
        )
        self.addCleanup(self.end_proxy)
        self.assertTrue(self.proxy.stdout.readline().startswith(b"ready"))
        self.cluster.server = f"https://{kube_real.BRIDGE}:{port}"
        self.cluster.write_kubeconfig()

    def end_proxy(self):
        self.proxy.kill()
        self.proxy.wait()
        self.proxy.stdout.close()

    def cut_watch(self):
        self.proxy.send_signal(signal.SIGUSR1)

    def pause_etcd(self):
        self.cluster.signal("etcd", signal.SIGSTOP)
        time.sleep(self.random.uniform(0.2, 4))
        self.cluster.signal("etcd", signal.SIGCONT)

    def delete_namespace(self):
        self.rights_from = float("inf")
        super().delete_namespace()
        self.cluster.set_profile("privileged")
        self.cluster.use_role(self.role)
        self.rights_from = time.monotonic() + 60  # answers to earlier orders


if __name__ == "__main__":
    unittest.main()
