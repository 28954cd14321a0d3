"""The head in a real cluster, as docs/kubernetes.md installs it: manifests, a pool of its own, a job,
and an upgrade under which the job continues."""
import json
import os
import shutil
import subprocess
import tempfile
import unittest

import kube_real
from kube_service import ServiceAddresses
from kubernetes_install_test import printed
from rig import BILLOW, poll

SPACE = "billow"
NEXT_IMAGE = "billow.test/node:2"  # the same content under another name
# Without a volume provisioner, the volume of the head is a folder of the node.
VOLUME = {
    "apiVersion": "v1",
    "kind": "PersistentVolume",
    "metadata": {"name": "head"},
    "spec": {
        "capacity": {"storage": "20Gi"},
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Retain",
        "hostPath": {"path": ""},
    },
}


@unittest.skipIf(kube_real.missing(), kube_real.missing())
class OnReal(unittest.TestCase):
    def setUp(self):
        root = tempfile.mkdtemp(prefix="billow-k8s-")
        self.addCleanup(shutil.rmtree, root, ignore_errors=True)
        self.cluster = kube_real.KubeReal(os.path.join(root, "cluster"))
        self.addCleanup(self.cluster.close)
        self.services = ServiceAddresses(self.cluster)
        self.addCleanup(self.services.close)
        self.services.lead_to_api_server()
        folder = tempfile.mkdtemp(dir=self.cluster.root)
        os.chown(folder, 1000, 1000)  # volumes of the node ignore fsGroup
        VOLUME["spec"]["hostPath"]["path"] = folder
        self.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(VOLUME))
        self.addCleanup(self.remove)

    def remove(self):
        for kind, name in (
            ("namespace", SPACE),
            ("pv", "head"),
            ("clusterrole", "billow-nodes"),
            ("clusterrolebinding", f"billow-nodes-{SPACE}"),
        ):
            self.cluster.kubectl("delete", kind, name, "--ignore-not-found", check=False)

    def install(self, image):
        manifests = printed("--image", image, "--namespace", SPACE)
        self.cluster.kubectl("apply", "--server-side", "-f", "-", stdin=manifests)

    def get(self, kind, name):
        text = self.cluster.kubectl("-n", SPACE, "get", kind, name, "-o", "json", check=False)
        return json.loads(text) if text else {}

    def head_answers(self, image):
        """Waits for the head's pod of this image, and leads the service to it."""

        def ready():
            pod = self.get("pod", "billow-head-0")
            status = pod.get("status", {})
            conditions = {c["type"]: c["status"] for c in status.get("conditions", [])}
            same = pod and pod["spec"]["containers"][0]["image"] == image
            is_ready = conditions.get("Ready") == "True"
            return status.get("podIP") if same and is_ready else None

        pod_address = poll(ready, f"a head of {image} that is ready", 240)
        service = self.get("service", "billow")["spec"]["clusterIP"]
        self.services.name("billow.billow.svc.cluster.local", service)
        self.services.lead(service, 7070, pod_address, 7070)

    def billow(self, *words, check=True):
        """A command in the head's pod, as the documentation gives it."""
        return self.cluster.kubectl(
            *("exec", "-n", SPACE, "billow-head-0", "--", "billow", *words), check=check
        )

    def job(self, number):
        text = self.billow("describe", number, "--json", check=False)
        return json.loads(text) if text else {}

    def test_a_job_runs_and_survives_an_upgrade(self):
        self.install(kube_real.IMAGE)
        self.head_answers(kube_real.IMAGE)
        self.billow(
            *("pool", "add", "kubernetes", "k8s", "--gpu", "1xL4", "--sim", "1xL4", "--max", "2"),
            *(
                "--head-url",
                "https://billow.billow.svc:7070",
                "--image",
                kube_real.IMAGE,
                "--idle",
                "2s",
            ),
            *("--option", "program=/opt/billow/bin/billow", "--option", "grace=5s"),
        )
        script = (
            "echo begun; i=0; while [ ! -e /tmp/go ]; do i=$((i+1)); echo tick $i; sleep 0.5; done;"
            " echo ended"
        )
        words = ("submit", "--gpus", "1", "--no-sync", "--json", "--", "sh", "-c", script)
        job = str(json.loads(self.billow(*words))["id"])
        poll(lambda: "tick 2" in self.billow("logs", job, check=False), "the job's output", 180)
        self.check_laptop(self.billow("token", "create", "laptop").split()[-1], job)
        pods = self.node_pods()
        self.assertEqual(len(pods), 1, pods)

        self.cluster.ctr("images", "tag", "--force", kube_real.IMAGE, NEXT_IMAGE)
        self.install(NEXT_IMAGE)
        self.head_answers(NEXT_IMAGE)
        poll(lambda: self.job(job).get("state") == "running", "the job still running", 120)
        self.assertEqual(self.node_pods(), pods, "the job's pod is the same")
        pod = self.node_pods("name")[0]
        self.cluster.kubectl("exec", "-n", SPACE, pod, "--", "sh", "-c", ": > /tmp/go")
        poll(lambda: self.job(job).get("state") == "succeeded", "the job's end", 120)
        log = self.billow("logs", job)
        self.assertEqual(log.count("begun"), 1, "it was not started again")
        self.assertIn("ended", log)
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
        laptop = {"PATH": os.environ["PATH"], "HOME": home, "XDG_CONFIG_HOME": home}

        def run(*words):
            done = subprocess.run(
                [*network, BILLOW, *words], env=laptop, capture_output=True, text=True, check=False
            )
            self.said = done.stdout + done.stderr
            return done.returncode == 0

        try:
            login = ("login", "https://localhost:7070", "--token", token)
            poll(lambda: run(*login), "the login", 60)
            self.assertTrue(run("logs", job), self.said)
            self.assertIn("begun", self.said)
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.said}") from error
        finally:
            forward.kill()
            forward.wait()

    def node_pods(self, field="uid"):
        text = self.cluster.kubectl(
            *("-n", SPACE, "get", "pods", "-l", "app.kubernetes.io/name=billow-node"),
            *("-o", f"jsonpath={{.items[*].metadata.{field}}}"),
        )
        return text.split()


if __name__ == "__main__":
    unittest.main()
