"""Heads in a real cluster, as docs/kubernetes.md installs them: one with a volume, two with a database,
and nodes of the cluster as Billow's; each with a job that an upgrade does not end."""
import json
import os
import shutil
import subprocess
import tempfile
import unittest

import kube_real
import postgres
import yaml
from kube_service import ServiceAddresses
from kubernetes_install_test import printed
from rig import BILLOW, poll

SPACE = "billow"
NEXT_IMAGE = "billow.test/node:2"  # the same content under another name
# Reports until a file exists, and says once that it began.
HELD = (
    "echo begun; i=0; while [ ! -e /tmp/go ]; do i=$((i+1)); echo tick $i; sleep 0.5; done;"
    " echo ended"
)


def volume(name, path, node, storage_class=""):
    """A volume as storage classes make them: the kubelet gives its files to the pod's group."""
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "20Gi"},
            "accessModes": ["ReadWriteMany" if storage_class else "ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": storage_class,
            "local": {"path": path},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        },
    }


class InCluster(unittest.TestCase):
    """Heads that run as pods of a real cluster."""

    volumes = (("head", ""),)  # name, storage class

    def setUp(self):
        root = tempfile.mkdtemp(prefix="billow-k8s-")
        self.addCleanup(shutil.rmtree, root, ignore_errors=True)
        self.cluster = kube_real.KubeReal(os.path.join(root, "cluster"))
        self.addCleanup(self.cluster.close)
        self.services = ServiceAddresses(self.cluster)
        self.addCleanup(self.services.close)
        self.services.lead_to_api_server()
        for name, storage_class in self.volumes:
            folder = tempfile.mkdtemp(dir=self.cluster.root)
            os.chmod(folder, 0o755)
            document = volume(name, folder, self.cluster.node, storage_class)
            self.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(document))
        self.head = "billow-head-0"

    def install(self, image, *options, change=lambda text: text):
        manifests = change(printed("--image", image, "--namespace", SPACE, *options))
        self.cluster.kubectl("apply", "--server-side", "-f", "-", stdin=manifests)

    def answers(self, image):
        """Waits until every head is of this image and ready, and its service leads to one."""

        def rolled_out():
            set_ = self.get("statefulset", "billow-head")
            status, wanted = set_.get("status", {}), set_.get("spec", {}).get("replicas")
            return (
                status.get("observedGeneration") == set_["metadata"]["generation"]
                and status.get("updatedReplicas") == wanted
                and status.get("readyReplicas") == wanted
                and set_["spec"]["template"]["spec"]["containers"][0]["image"] == image
            )

        poll(rolled_out, f"heads of {image} that are ready", 120)
        if not self.services.following:
            self.services.follow(SPACE, "billow", 7070)

    def get(self, kind, name):
        text = self.cluster.kubectl("-n", SPACE, "get", kind, name, "-o", "json", check=False)
        return json.loads(text) if text else {"metadata": {"generation": -1}, "spec": {}}

    def billow(self, *words, check=True, stdin=""):
        """A command in the head's pod, as the documentation gives it."""
        return self.cluster.kubectl(
            *("exec", "-i", "-n", SPACE, self.head, "--", "billow", *words),
            check=check,
            stdin=stdin,
        )

    def job(self, number):
        text = self.billow("describe", number, "--json", check=False)
        return json.loads(text) if text else {}

    def add_pool(self, most):
        self.billow(
            *("pool", "add", "kubernetes", "k8s", "--gpu", "1xL4", "--sim", "1xL4", "--max", most),
            *("--head-url", "https://billow.billow.svc:7070", "--image", kube_real.IMAGE),
            *("--idle", "2s", "--option", "program=/opt/billow/bin/billow"),
            *("--option", "grace=5s"),
        )

    def submit(self, *words):
        return str(json.loads(self.billow("submit", "--json", *words))["id"])

    def log(self, job):
        return self.billow("logs", job, check=False)

    def let_go(self):
        pod = self.node_pods("name")[0]
        self.cluster.kubectl("exec", "-n", SPACE, pod, "--", "sh", "-c", ": > /tmp/go")

    def ended(self, job, state="succeeded"):
        poll(lambda: self.job(job).get("state") == state, f"job {job} {state}", 120)

    def node_pods(self, field="uid"):
        text = self.cluster.kubectl(
            *("-n", SPACE, "get", "pods", "-l", "app.kubernetes.io/name=billow-node"),
            *("-o", f"jsonpath={{.items[*].metadata.{field}}}"),
        )
        return text.split()


@unittest.skipIf(kube_real.missing(), kube_real.missing())
class OnReal(InCluster):
    def test_a_job_runs_and_survives_an_upgrade(self):
        self.install(kube_real.IMAGE)
        self.answers(kube_real.IMAGE)
        self.billow("secret", "set", "KEY", stdin="hush")
        self.add_pool("2")
        job = self.submit("--gpus", "1", "--no-sync", "--", "sh", "-c", HELD)
        poll(lambda: "tick 2" in self.log(job), "the job's output", 180)
        self.check_laptop(self.billow("token", "create", "laptop").split()[-1], job)
        poll(lambda: len(self.node_pods()) == 1, "only the pod of the job that runs", 90)
        pods = self.node_pods()

        self.cluster.ctr("images", "tag", "--force", kube_real.IMAGE, NEXT_IMAGE)
        self.install(NEXT_IMAGE)
        self.answers(NEXT_IMAGE)
        poll(lambda: self.job(job).get("state") == "running", "the job still running", 120)
        self.assertEqual(self.node_pods(), pods, "the job's pod is the same")
        self.let_go()
        self.ended(job)
        log = self.billow("logs", job)
        self.assertEqual(log.count("begun"), 1, "it was not started again")
        self.assertIn("ended", log)
        # The volume was mounted again: its secrets can still be opened.
        told = self.submit("--secret", "KEY", "--no-sync", "--", "sh", "-c", "echo ${#KEY} letters")
        self.ended(told)
        self.assertIn("4 letters", self.log(told))
        poll(lambda: not self.node_pods(), "no pod of a node left", 120)

    def check_laptop(self, token, job):
        """Through `kubectl port-forward`, a machine outside of the cluster uses the head."""
        network = self.cluster.spaces.network()
        kubectl = (
            kube_real.find_program("kubectl"),
            "--kubeconfig",
            self.cluster.file("admin.conf"),
        )
        forward = subprocess.Popen(
            [*network, *kubectl, "-n", SPACE, "port-forward", "service/billow", "7070"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        home = tempfile.mkdtemp(dir=self.cluster.root)
        work = os.path.join(home, "work")
        os.makedirs(work)
        with open(os.path.join(work, "carried"), "w", encoding="ascii") as f:
            f.write("from the laptop\n")
        laptop = {"PATH": os.environ["PATH"], "HOME": home, "XDG_CONFIG_HOME": home}

        def run(*words):
            done = subprocess.run(
                [*network, BILLOW, *words],
                env=laptop,
                cwd=work,
                capture_output=True,
                text=True,
                check=False,
            )
            self.said = done.stdout + done.stderr
            return done.returncode == 0

        try:
            login = ("login", "https://localhost:7070", "--token", token)
            poll(lambda: run(*login), "the login", 60)
            self.assertTrue(run("logs", job), self.said)
            self.assertIn("begun", self.said)
            # The head is at an address of this machine and not on it, so files follow the jobs. A
            # connection that were reset would end the forwarding.
            for _ in range(3):
                self.assertTrue(run("run", "--gpus", "1", "--", "cat", "carried"), self.said)
                self.assertIn("from the laptop", self.said)
            self.assertIsNone(forward.poll(), "kubectl port-forward still runs")
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.said}") from error
        finally:
            forward.kill()
            forward.wait()


@unittest.skipIf(kube_real.missing() or postgres.unusable(), "needs a cluster and PostgreSQL")
class TwoOnReal(InCluster):
    """Two heads with one database: either can end, and an upgrade replaces one after the other."""

    volumes = (("one", ""), ("two", ""), ("shared", "many"))

    def setUp(self):
        super().setUp()
        network = self.cluster.spaces.network()
        self.pg = postgres.Postgres(network, kube_real.BRIDGE, "10.87.0.0/16")
        self.addCleanup(self.pg.close)
        self.cluster.kubectl("create", "namespace", SPACE)
        self.cluster.kubectl(
            *("-n", SPACE, "create", "secret", "generic", "billow-store"),
            f"--from-literal=url={self.pg.database('heads')}",
        )

    def find_leader(self):
        """Commands go to the pod that leads; the other one says that it is a standby."""

        def leads():
            for name in ("billow-head-0", "billow-head-1"):
                self.head = name
                if self.billow("status", "--json", check=False):
                    return name
            return None

        return poll(leads, "a head that leads", 60)

    def test_a_head_that_dies_and_an_upgrade_keep_jobs(self):
        options = ("--postgres", "--files-class", "many")
        self.install(kube_real.IMAGE, *options)
        self.answers(kube_real.IMAGE)
        leader = self.find_leader()
        self.add_pool("1")
        self.billow("secret", "set", "KEY", stdin="hush")
        job = self.submit("--gpus", "1", "--no-sync", "--", "sh", "-c", HELD)
        poll(lambda: "tick 2" in self.log(job), "the job's output", 180)
        pods = self.node_pods()
        # It waits for the pool's only machine, and has a file of its submitter.
        prepare = "mkdir -p /tmp/mine && cd /tmp/mine && echo carried > file && billow submit"
        told = 'cat file; echo "${#KEY} letters"'
        words = f"{prepare} --json --sync --gpus 1 --secret KEY -- sh -c '{told}'"
        text = self.cluster.kubectl("exec", "-n", SPACE, self.head, "--", "sh", "-c", words)
        waiting = str(json.loads(text)["id"])

        self.cluster.kubectl("-n", SPACE, "delete", "pod", leader, "--grace-period=0", "--force")
        self.answers(kube_real.IMAGE)
        self.assertNotEqual(self.find_leader(), leader, "the standby leads now")
        before = self.log(job)
        poll(lambda: self.log(job) != before, "the job goes on", 60)

        self.cluster.ctr("images", "tag", "--force", kube_real.IMAGE, NEXT_IMAGE)
        self.install(NEXT_IMAGE, *options)
        self.answers(NEXT_IMAGE)
        self.find_leader()
        poll(lambda: self.job(job).get("state") == "running", "the job still running", 120)
        self.assertEqual(self.node_pods(), pods, "the job's pod is the same")
        self.let_go()
        self.ended(job)
        self.assertEqual(self.log(job).count("begun"), 1, "it was not started again")
        self.ended(waiting)
        self.assertEqual(self.log(waiting).split("\n")[:2], ["carried", "4 letters"])
        poll(lambda: not self.node_pods(), "no pod of a node left", 120)


def with_simulated_gpus(text):
    """The manifests with two GPUs on each node of the DaemonSet."""
    documents = list(yaml.safe_load_all(text))
    for one in documents:
        if one["kind"] == "DaemonSet":
            one["spec"]["template"]["spec"]["containers"][0]["command"] += ["--sim", "2xL4"]
    return yaml.safe_dump_all(documents)


@unittest.skipIf(kube_real.missing(), kube_real.missing())
class NodesOnReal(InCluster):
    """The DaemonSet: every node with GPUs is a Billow node."""

    def test_a_node_with_gpus_runs_jobs_through_an_upgrade(self):
        self.cluster.kubectl("label", "node", self.cluster.node, "nvidia.com/gpu.present=true")
        self.install(kube_real.IMAGE, "--daemonset", change=with_simulated_gpus)
        self.answers(kube_real.IMAGE)
        token = self.billow("token", "create", "--node", "--reusable").strip()
        self.cluster.kubectl(
            *("-n", SPACE, "create", "secret", "generic", "billow-join"),
            f"--from-literal=token={token}",
        )

        def gpus():
            nodes = json.loads(self.billow("nodes", "--json"))["nodes"]
            return [(n["name"], len(n["gpus"])) for n in nodes if n["state"] == "ready"]

        poll(lambda: gpus() == [(self.cluster.node, 2)], "the node with its GPUs", 120)
        job = self.submit("--gpus", "2", "--no-sync", "--", "sh", "-c", HELD)
        poll(lambda: "tick 2" in self.log(job), "the job's output", 60)
        pods = self.node_pods()

        self.cluster.ctr("images", "tag", "--force", kube_real.IMAGE, NEXT_IMAGE)
        self.install(NEXT_IMAGE, "--daemonset", change=with_simulated_gpus)
        self.answers(NEXT_IMAGE)
        poll(lambda: gpus() == [(self.cluster.node, 2)], "the node at the new head", 60)
        self.assertEqual(self.node_pods(), pods, "an upgrade does not end the nodes' pods")
        self.assertEqual(self.log(job).count("begun"), 1)

        self.let_go()
        self.ended(job)


if __name__ == "__main__":
    unittest.main()
