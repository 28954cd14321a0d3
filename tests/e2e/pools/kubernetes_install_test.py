"""What `billow install kubernetes` and the Helm chart print, what a real API server says of it, and
what KEDA reads."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import urllib.request

import kube_real
from chart_render import render_chart
from rig import BILLOW, SOURCE, Rig, poll



def printed(*options):
    done = subprocess.run(
        [BILLOW, "install", "kubernetes", *options], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return done.stdout


# What the Prometheus operator brings, as far as Billow uses it.
POD_MONITOR_KIND = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "podmonitors.monitoring.coreos.com"},
    "spec": {
        "group": "monitoring.coreos.com",
        "scope": "Namespaced",
        "names": {"plural": "podmonitors", "singular": "podmonitor", "kind": "PodMonitor"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "required": ["spec"],
                        "properties": {
                            "spec": {
                                "type": "object",
                                "required": ["selector", "podMetricsEndpoints"],
                                "properties": {
                                    "selector": {
                                        "type": "object",
                                        "x-kubernetes-preserve-unknown-fields": True,
                                    },
                                    "podMetricsEndpoints": {
                                        "type": "array",
                                        "items": {
                                            "type": "object",
                                            "x-kubernetes-preserve-unknown-fields": True,
                                        },
                                    },
                                },
                            }
                        },
                    }
                },
            }
        ],
    },
}


class Keda(unittest.TestCase):
    """The queue as KEDA's metrics-api scaler reads it, as docs/kubernetes.md says."""

    def test_the_queue_is_read_with_a_token_that_may_only_read(self):
        rig = Rig(sim="2xL4", args=("--no-agent",))
        try:
            for _ in range(3):
                rig.submit("--gpus", 2, "--", "true")
            token = rig.ok("token", "create", "keda", "--scope", "read").text.split()[-1]
            host, port = rig.address()

            def get(path):
                request = urllib.request.Request(
                    f"http://{host}:{port}{path}", headers={"Authorization": f"Bearer {token}"}
                )
                with urllib.request.urlopen(request, timeout=10) as answer:
                    return answer.read().decode()

            value = json.loads(get("/v1/status"))
            for part in "jobs.queued".split("."):
                value = value[part]
            self.assertEqual(value, 3)
            status = json.loads(get("/v1/status"))
            for path in ("gpus.free", "jobs.running", "nodes.ready"):
                group, name = path.split(".")
                self.assertIsInstance(status[group][name], (int, float), path)

            def wanted():
                line = re.search(
                    r"^billow_queue_gpus_wanted(?:{[^}]*})? (\S+)$", get("/metrics"), re.M
                )
                return line and float(line[1]) == 6

            poll(wanted, "the GPUs that the queue asks for", 30)
        finally:
            rig.close()


class Install(unittest.TestCase):
    """What `billow install kubernetes` prints, and what is made of it."""

    def test_the_helm_chart_has_the_same_documents(self):
        sys.path.insert(0, os.path.join(SOURCE, "packaging/helm"))
        import generate

        folder = os.path.join(SOURCE, "packaging/helm/billow/templates")
        wanted = generate.templates(BILLOW)
        self.assertEqual(sorted(os.listdir(folder)), sorted(wanted))
        for name, text in wanted.items():
            with open(os.path.join(folder, name), encoding="utf-8") as f:
                self.assertEqual(f.read(), text, f"{name}: run packaging/helm/generate.py")

    def test_the_documentation_has_the_rights_of_the_role(self):
        with open(os.path.join(SOURCE, "docs/kubernetes.md"), encoding="utf-8") as f:
            self.assertIn(printed("--rights"), f.read())

    def test_a_role_for_a_pool_alone_has_no_head(self):
        text = printed("--pool-only", "--namespace", "team")
        self.assertIn("kind: Role\n", text)
        self.assertNotIn("StatefulSet", text)

    def test_a_head_is_ready_to_be_replaced_by_another(self):
        plain, two = printed("--image", "i"), printed("--image", "i", "--postgres")
        self.assertIn("replicas: 1\n", plain)
        self.assertIn("replicas: 2\n", two)
        self.assertNotIn("PersistentVolumeClaim\n", two)
        shared = printed("--image", "i", "--postgres", "--files-class", "nfs")
        self.assertIn("kind: PersistentVolumeClaim\n", shared)
        self.assertIn("--files-dir", shared)
        self.assertIn("type: OnDelete\n", printed("--image", "i", "--daemonset"))

    def test_files_for_two_heads_need_two_heads(self):
        words = ("install", "kubernetes", "--image", "i", "--files-class", "nfs")
        done = subprocess.run([BILLOW, *words], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--postgres", done.stderr)

    def test_an_image_is_required_for_a_head(self):
        done = subprocess.run(
            [BILLOW, "install", "kubernetes"], capture_output=True, text=True, check=False
        )
        self.assertEqual(done.returncode, 2)
        self.assertIn("--image", done.stderr)


@unittest.skipIf(kube_real.missing(), kube_real.missing())
class OnReal(unittest.TestCase):
    def setUp(self):
        root = tempfile.mkdtemp(prefix="billow-k8s-")
        self.addCleanup(shutil.rmtree, root, ignore_errors=True)
        self.cluster = kube_real.KubeReal(os.path.join(root, "cluster"), kubelet=False)
        self.addCleanup(self.cluster.close)

    def test_manifests_and_chart_pass_the_server(self):
        self.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(POD_MONITOR_KIND))
        self.cluster.kubectl("create", "namespace", "billow")
        poll(
            lambda: "podmonitors" in self.cluster.kubectl("api-resources", check=False),
            "the kind PodMonitor",
            30,
        )
        image = ("--image", "registry.example/billow:0.1")
        every = {"postgres": True, "host": "h.example.org", "podMonitor": True, "daemonSet": True}
        shared = {"postgres": True, "filesClass": "nfs"}
        for text in (
            printed(*image),
            printed("--pool-only"),
            printed(
                *(*image, "--host", "h.example.org"),
                *("--postgres", "--pod-monitor", "--daemonset"),
            ),
            printed(*image, "--postgres", "--files-class", "nfs"),
            render_chart("billow", image=image[1]),
            render_chart("billow", image=image[1], **shared),
            render_chart("billow", image=image[1], **every, filesClass="nfs"),
        ):
            said = self.cluster.kubectl(
                *("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-"),
                stdin=text,
            )
            self.assertIn("role.rbac.authorization.k8s.io/billow-pool", said)


if __name__ == "__main__":
    unittest.main()
