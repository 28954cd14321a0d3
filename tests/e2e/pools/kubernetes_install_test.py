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
import yaml
from chart_render import render_chart
from kube_double import KubeDouble
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


def bring(kubeconfig, *options, network=()):
    """`billow install kubernetes --apply`: its exit code, and what it said."""
    words = ("install", "kubernetes", "--apply", "--kubeconfig", kubeconfig)
    done = subprocess.run(
        [*network, BILLOW, *words, *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.returncode, done.stdout + done.stderr


class ApplyToDouble(unittest.TestCase):
    """Server-side apply by Billow's own client."""

    def setUp(self):
        root = tempfile.mkdtemp(prefix="billow-k8s-")
        self.addCleanup(shutil.rmtree, root, ignore_errors=True)
        self.cluster = KubeDouble(os.path.join(root, "cluster"), root)
        self.addCleanup(self.cluster.close)

    def bring(self, *options):
        return bring(self.cluster.kubeconfig, *options)

    def test_every_document_arrives_also_if_answers_are_lost(self):
        self.cluster.refusals = [503, 429]
        options = ("--image", "i", "--postgres", "--daemonset", "--host", "h", "--pod-monitor")
        code, said = self.bring(*options)
        self.assertEqual(code, 0, said)
        wanted = list(yaml.safe_load_all(printed(*options)))
        self.assertEqual(list(self.cluster.applied.values()), wanted)
        self.assertIn(
            "/apis/networking.k8s.io/v1/namespaces/billow/networkpolicies/billow-nodes",
            self.cluster.applied,
        )
        self.assertEqual(said.count("created "), len(wanted), said)
        self.cluster.lost_answers = 2
        code, said = self.bring(*options)
        self.assertEqual((code, said.count("applied ")), (0, len(wanted)), said)

    def test_fields_of_others_are_taken_only_by_force(self):
        path = "/apis/apps/v1/namespaces/billow/statefulsets/billow-head"
        self.cluster.foreign[path] = "kubectl"
        code, said = self.bring("--image", "i")
        self.assertEqual(code, 1, said)
        self.assertIn('conflict with "kubectl"', said)
        self.assertIn("--force", said)
        self.assertEqual(self.bring("--image", "i", "--force")[0], 0)
        self.assertIn(path, self.cluster.applied)

    def test_a_rehearsal_changes_nothing(self):
        code, said = self.bring("--image", "i", "--dry-run")
        self.assertEqual((code, self.cluster.applied), (0, {}), said)

    def test_options_of_apply_need_it(self):
        words = ("install", "kubernetes", "--image", "i", "--dry-run")
        done = subprocess.run([BILLOW, *words], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--apply", done.stderr)


def helm_template(**values):
    """The chart as helm itself renders it."""
    sets = [word for name, value in values.items() for word in ("--set", f"{name}={value}")]
    chart = os.path.join(SOURCE, "packaging/helm/billow")
    words = ("template", "billow", chart, "--namespace", "billow", *sets)
    done = subprocess.run(
        [kube_real.find_program("helm"), *words], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return done.stdout


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

    def test_billow_applies_its_manifests_by_itself(self):
        config, network = self.cluster.file("admin.conf"), self.cluster.spaces.network()

        def billow(*options):
            return bring(config, "--image", "i", *options, network=network)

        code, said = billow("--dry-run")
        self.assertEqual(code, 1, "without the namespace nothing in it can be checked")
        self.assertIn('namespaces "billow" not found', said)
        code, said = billow("--daemonset", "--host", "h.example.org")
        self.assertEqual(code, 0, said)
        self.assertIn("created StatefulSet billow/billow-head", said)
        self.assertEqual(billow("--dry-run")[0], 0)
        head = ("-n", "billow", "get", "statefulset", "billow-head", "-o")
        managers = self.cluster.kubectl(*head, "json", "--show-managed-fields")
        managed = json.loads(managers)["metadata"]["managedFields"]
        self.assertIn(("billow", "Apply"), [(m["manager"], m["operation"]) for m in managed])
        # What somebody else has changed since is not taken back silently.
        image = "jsonpath={.spec.template.spec.containers[0].image}"
        self.cluster.kubectl(
            *("-n", "billow", "set", "image", "statefulset/billow-head", "*=theirs:1")
        )
        code, said = billow()
        self.assertEqual(code, 1, said)
        self.assertRegex(said, r"conflict with .kubectl[\s\S]*\.image")
        self.assertIn("--force", said)
        self.assertEqual(self.cluster.kubectl(*head, image), "theirs:1")
        self.assertEqual(billow("--force")[0], 0)
        self.assertEqual(self.cluster.kubectl(*head, image), "i")
        # Objects that only the earlier options brought stay.
        self.assertIn("billow-node", self.cluster.kubectl("-n", "billow", "get", "daemonset"))
        self.assertEqual(bring(config, "--pool-only", network=network)[0], 0)
        code, said = billow("--pod-monitor")
        self.assertEqual(code, 1, said)
        self.assertIn("the cluster must know PodMonitor of monitoring.coreos.com/v1", said)

    @unittest.skipUnless(kube_real.find_program("helm"), "helm is not installed")
    def test_the_chart_as_helm_renders_it_passes_the_server(self):
        self.cluster.kubectl("create", "namespace", "billow")
        image = {"image": "registry.example/billow:0.1"}
        every = {"postgres": "true", "filesClass": "nfs", "host": "h.example", "daemonSet": "true"}
        for values in (image, {**image, **every}):
            text = helm_template(**values)
            ours = render_chart("billow", **{k: v == "true" or v for k, v in values.items()})
            self.assertEqual(
                by_title(text), by_title(ours), "our reader of the chart gives what helm does"
            )
            said = self.cluster.kubectl(
                *("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-"),
                stdin=text,
            )
            self.assertIn("statefulset.apps/billow-head", said)


def by_title(text):
    documents = [one for one in yaml.safe_load_all(text) if one]
    return {(one["kind"], one["metadata"]["name"]): one for one in documents}


if __name__ == "__main__":
    unittest.main()
