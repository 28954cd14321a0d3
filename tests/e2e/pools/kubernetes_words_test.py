"""What the Kubernetes pool says to people: GPU types that the cluster lacks, rights that are
missing, where its pods are. On a double of a cluster (tests/support/kube_double.py)."""
import unittest

from kubernetes_test import KubeRig
from rig import poll


class Words(unittest.TestCase):
    def setUp(self):
        self.rig = KubeRig()
        self.cluster = self.rig.cluster

    def tearDown(self):
        self.rig.close()

    def add_pool(self, *options):
        """Without simulated GPUs: the types are those of the cluster."""
        return self.rig.add_pool("k", *options, gpu=None)

    def test_a_gpu_type_that_no_node_has_is_told_at_once(self):
        done = self.add_pool("--gpu-type", "H100")
        self.assertEqual(done.code, 0, "nodes may come later")
        self.assertIn("warning: no node of the cluster has GPUs of type H100: it has L4", done.errors)
        self.assertIn("--option gpu-product=", done.errors)
        self.assertIn("warning   no node of", self.rig.ok("cloud", "check", "k").text)

        job = self.rig.submit("--gpus", 1, "--", "true")
        reason = poll(
            lambda: (lambda r: r if "refused" in r else "")(self.rig.job(job).get("reason", "")),
            "the pool's reason",
            30,
        )
        self.assertIn("Pool k refused (no node of the cluster has GPUs of type H100", reason)
        run = self.rig.start("run", "--gpus", 1, "--", "true")
        line = run.stderr.readline().decode()
        self.assertIn("Pool k refused (no node of the cluster has GPUs of type H100", line)
        run.terminate()
        run.communicate()
        self.assertEqual(self.cluster.pod_names(), [])

    def test_a_gpu_type_that_a_node_has_is_no_reason_for_a_warning(self):
        done = self.add_pool("--gpu-type", "L4")
        self.assertEqual(done.code, 0, done)
        self.assertNotIn("warning", done.errors)

    def test_a_cluster_without_labels_is_told_too(self):
        self.cluster.set_nodes({})
        done = self.add_pool("--gpu-type", "H100")
        self.assertEqual(done.code, 0, done)
        self.assertIn("none has the label nvidia.com/gpu.product", done.errors)

    def test_a_missing_right_comes_with_the_command_that_grants_it(self):
        self.cluster.deny("create", "pods")
        self.cluster.deny("list", "nodes")
        done = self.add_pool("--gpu-type", "L4")
        self.assertEqual(done.code, 1, done)
        self.assertIn("may not create pods in namespace team, which Billow needs", done.errors)
        self.assertIn("may not list nodes, which Billow needs", done.errors)
        self.assertIn(
            "`billow install kubernetes --pool-only --namespace team | kubectl apply", done.errors
        )
        self.assertRegex(
            done.errors, r"`kubectl create rolebinding \S+ -n team --role=billow-pool --\w+="
        )
        self.assertRegex(
            done.errors, r"`kubectl create clusterrolebinding \S+ --clusterrole=billow-nodes --\w+="
        )

    def test_the_list_shows_where_the_pods_are_and_removing_says_how_many_end(self):
        self.assertEqual(self.rig.add_pool("k", gpu="1xL4", idle="10m").code, 0)
        jobs = [self.rig.submit("--gpus", 1, "--", "true") for _ in range(2)]
        for job in jobs:
            self.assertEqual(self.rig.cli("wait", job, timeout=90).code, 0)
        place = self.rig.pool()["place"]
        self.assertIn("namespace team", place)
        self.assertIn("context ", place)
        self.assertIn("https://", place)
        self.assertIn("namespace team", self.rig.ok("pool", "list").text)
        pods = len(self.cluster.pod_names())
        self.assertGreater(pods, 0)
        told = self.rig.ok("pool", "rm", "k").text
        self.assertIn(f"is ending its {pods} machine", told)
        poll(lambda: not self.cluster.pod_names(), "no pod left", 60)
        poll(lambda: not self.rig.json("pool", "list")["pools"], "no pool left", 60)


if __name__ == "__main__":
    unittest.main()
