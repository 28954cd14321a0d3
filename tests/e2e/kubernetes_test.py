"""The Kubernetes pool against a double of a cluster (tests/support/kube_double.py)."""
import json
import os
import unittest

from kube_double import KubeDouble
from rig import BILLOW, Rig, poll

COUNTER = r"""
i=0
[ -n "$BILLOW_CHECKPOINT" ] && i=$(cat "$BILLOW_CHECKPOINT/count")
echo "from $i" >> SHARED/starts
save() { echo $i > "$BILLOW_CHECKPOINT_DIR/count.new"; mv "$BILLOW_CHECKPOINT_DIR/count.new" "$BILLOW_CHECKPOINT_DIR/count"; }
trap save USR1
while :; do i=$((i+1)); sleep 0.1; done
"""


class KubeRig(Rig):
    """A head without a node of its own, and a cluster for it."""

    def __init__(self):
        super().__init__(sim="2xL4", args=("--no-agent", "--tls"), up=False)
        self.cluster = KubeDouble(os.path.join(self.root, "cluster"), self.data)
        self.up()

    def add_pool(self, name="k", *options, image="billow", gpu="2xL4"):
        gpus = ("--gpu", gpu, "--sim", gpu) if gpu else ()
        return self.cli(
            *("pool", "add", "kubernetes", name, *gpus),
            *("--option", f"kubeconfig={self.cluster.kubeconfig}"),
            *("--option", f"program={BILLOW}", "--option", f"image={image}"),
            *("--option", "grace=20s", "--max", 4, "--idle", "2s", *options),
        )

    def machines(self):
        return {
            m["name"]: m for pool in self.json("pool", "list")["pools"] for m in pool["machines"]
        }

    def pool(self, name="k"):
        return next(p for p in self.json("pool", "list")["pools"] if p["name"] == name)

    def empty(self):
        poll(lambda: not self.cluster.pod_names(), "no pod left", 90)
        poll(lambda: not self.machines(), "no machine left", 60)
        poll(lambda: not self.cluster.secret_names(), "no secret left", 30)

    def close(self):
        self.cluster.close()
        super().close()


class OnDouble(unittest.TestCase):
    def setUp(self):
        self.rig = KubeRig()
        self.cluster = self.rig.cluster

    def tearDown(self):
        self.rig.close()

    def add_pool(self, *args, **options):
        done = self.rig.add_pool(*args, **options)
        self.assertEqual(done.code, 0, done)

    def only_pod(self):
        return poll(lambda: (self.cluster.pod_names() or [None])[0], "a pod", 30)

    def running(self, job):
        return self.rig.wait_for(job, "running", 60)

    # ---- what it is for
    def test_the_first_job_brings_a_pod_and_the_pod_goes(self):
        self.add_pool()
        done = self.rig.ok("run", "--gpus", 1, "--", "sh", "-c", "echo in a pod", timeout=60)
        self.assertEqual(done.out, b"in a pod\n")
        machine = next(iter(self.rig.machines().values()))
        self.assertEqual(machine["gpus"], 1, "as many GPUs as the job needs")
        poll(
            lambda: "running on gpu-" in next(iter(self.rig.machines().values()))["note"],
            "where the pod runs",
            20,
        )
        node = self.rig.json("nodes")["nodes"][0]
        self.assertEqual(node["labels"]["pool"], "k")
        self.assertIn(node["labels"]["kubernetes-node"], self.cluster.nodes)
        pod = self.cluster.pod(self.only_pod())
        self.assertNotIn("bwj_", json.dumps(pod), "the token is in the secret only")
        self.rig.empty()
        self.assertEqual(self.rig.json("nodes")["nodes"], [])

    def test_four_pods_come_and_all_go(self):
        self.add_pool("k", gpu="1xL4")
        jobs = [self.rig.submit("--gpus", 1, "--", "sh", "-c", "sleep 3") for _ in range(4)]
        poll(lambda: len(self.cluster.pod_names()) == 4, "four pods", 60)
        for job in jobs:
            self.assertEqual(self.rig.cli("wait", job, timeout=90).code, 0)
        self.rig.empty()

    def test_jobs_without_gpus_get_pods_without_gpus(self):
        self.add_pool("k", gpu=None)
        self.assertEqual(self.rig.ok("run", "--", "echo", "cpu", timeout=60).out, b"cpu\n")
        self.assertEqual([m["gpus"] for m in self.rig.machines().values()], [0])

    def test_a_gang_gets_all_its_pods(self):
        self.add_pool()
        done = self.rig.ok(
            *(
                "run",
                "--nodes",
                2,
                "--gpus",
                1,
                "--",
                "sh",
                "-c",
                "echo rank $RANK of $WORLD_SIZE; sleep 1",
            ),
            timeout=90,
        )
        self.assertIn("rank 0 of 2", done.text)
        self.assertIn("rank 1 of 2", done.text, done.err)
        self.rig.empty()

    def test_half_a_gang_is_given_back_with_the_reason(self):
        self.cluster.nodes = {"gpu-1": 2, "gpu-2": 1}
        self.add_pool("k", "--patience", "4s")
        job = self.rig.submit("--nodes", 2, "--gpus", 2, "--", "true")
        poll(lambda: len(self.cluster.pod_names()) == 2, "both pods", 30)
        poll(lambda: not self.cluster.pod_names(), "both given back", 60)
        poll(lambda: "not all of its 2 pods" in self.rig.ok("explain", job).text, "the reason", 30)

    # ---- why nothing starts
    def test_explain_has_the_schedulers_words(self):
        self.cluster.nodes = {"small": 0}
        self.add_pool()
        job = self.rig.submit("--gpus", 2, "--", "true")
        poll(
            lambda: "Insufficient nvidia.com/gpu" in self.rig.ok("explain", job).text,
            "the scheduler's words",
            30,
        )
        self.cluster.nodes = {"large": 4}
        self.assertEqual(self.rig.cli("wait", job, timeout=60).code, 0)

    def test_an_image_that_cannot_be_pulled_is_given_up(self):
        self.add_pool("k", "--patience", "3s", image="missing:1")
        job = self.rig.submit("--gpus", 1, "--", "true")
        poll(lambda: "ImagePullBackOff" in self.rig.ok("explain", job).text, "the reason", 30)
        self.rig.empty()

    def test_a_quota_and_a_missing_right_are_told(self):
        self.cluster.quota = 1
        self.add_pool()
        job = self.rig.submit("--gpus", 2, "--", "true")
        poll(lambda: "exceeded quota" in self.rig.ok("explain", job).text, "the quota", 30)
        self.assertEqual(self.rig.machines(), {})

    def test_a_namespace_that_does_not_exist_is_told(self):
        self.cluster.write_kubeconfig(namespace="nowhere")
        self.add_pool()
        job = self.rig.submit("--gpus", 1, "--", "true")
        poll(
            lambda: 'namespaces "nowhere" not found' in self.rig.ok("explain", job).text,
            "the server's words",
            30,
        )

    # ---- pods that are taken away
    def test_an_evicted_pod_saves_its_job_first(self):
        self.add_pool("k", gpu="1xL4")
        shared = self.rig.file("shared")
        os.makedirs(shared)

        def starts():
            try:
                with open(shared + "/starts", encoding="ascii") as f:
                    return f.read().splitlines()
            except OSError:
                return []

        job = self.rig.submit(
            *("--gpus", 1, "--checkpoint-every", "1h", "--checkpoint-signal", "USR1"),
            *("--checkpoint-dir", shared, "--", "sh", "-c", COUNTER.replace("SHARED", shared)),
        )
        poll(lambda: len(starts()) == 1, "the count begun", 60)
        first = self.only_pod()
        self.cluster.evict(first)
        poll(lambda: first not in self.cluster.pod_names(), "the pod gone", 60)
        poll(lambda: len(starts()) == 2, "begun again", 60)
        self.assertGreater(int(starts()[1].split()[1]), 0, "it goes on where it was")
        self.rig.ok("stop", job)
        self.rig.empty()

    def test_a_pod_that_is_killed_loses_only_its_own_job(self):
        self.add_pool("k", gpu="1xL4")
        lost = self.rig.submit("--gpus", 1, "--", "sleep", "15")
        self.running(lost)
        self.cluster.remove(self.only_pod())
        poll(lambda: self.rig.job(lost)["state"] == "lost", "the job lost", 60)
        self.rig.empty()

    def test_a_job_that_may_run_again_does_after_a_kill(self):
        self.add_pool("k", gpu="1xL4")
        marks = self.rig.file("marks")
        job = self.rig.submit(
            *("--gpus", 1, "--rerun-if-lost", "--no-sync", "--"),
            *("sh", "-c", f"echo x >> {marks}; [ $(wc -l < {marks}) = 2 ] || sleep 1000"),
        )
        self.running(job)
        poll(lambda: os.path.exists(marks), "begun", 30)
        self.cluster.remove(self.only_pod())
        self.assertEqual(self.rig.cli("wait", job, timeout=120).code, 0)
        self.rig.empty()

    def test_a_pod_nobody_ordered_is_ended(self):
        self.add_pool()
        self.assertEqual(self.rig.ok("run", "--gpus", 1, "--", "true", timeout=60).code, 0)
        labels = self.cluster.pod(self.only_pod())["metadata"]["labels"]
        self.cluster.stray("stray", {**labels, "billow/machine": "k-4711"})
        self.cluster.stray("other", {**labels, "billow/installation": "somebody-else"})
        poll(lambda: "stray" not in self.cluster.pod_names(), "the stray ended", 60)
        self.assertIn("other", self.cluster.pod_names(), "another installation's pod")
        self.cluster.remove("other")

    # ---- faults
    def test_an_api_server_that_is_away_changes_nothing(self):
        self.add_pool("k", gpu="1xL4")
        job = self.rig.submit("--gpus", 1, "--", "sh", "-c", "sleep 8; echo done")
        self.running(job)
        self.cluster.api_away()
        late = self.rig.submit("--gpus", 1, "--", "echo", "late")
        self.assertEqual(self.rig.cli("wait", job, timeout=60).code, 0)
        self.cluster.api_back()
        self.assertEqual(self.rig.cli("wait", late, timeout=90).code, 0)
        self.rig.empty()

    def test_overload_and_lost_answers_make_nothing_twice(self):
        self.add_pool("k", gpu="1xL4")
        marks = self.rig.file("marks")
        for number in range(4):
            self.cluster.refusals = [429, 503, 500][:number]
            self.cluster.lost_answers = 2
            self.cluster.lost_requests = number % 2
            job = self.rig.submit("--gpus", 1, "--", "sh", "-c", f"echo {number} >> {marks}")
            self.assertEqual(self.rig.cli("wait", job, timeout=120).code, 0)
            self.cluster.lost_answers = 2  # of the deletion
            self.rig.empty()
        with open(marks, encoding="ascii") as f:
            self.assertEqual(f.read().split(), ["0", "1", "2", "3"], "each job once")

    def test_a_token_that_is_replaced_is_read_anew(self):
        self.add_pool("k", gpu="1xL4")
        self.rig.ok("run", "--gpus", 1, "--", "true", timeout=60)
        self.cluster.tokens = {"second"}
        self.cluster.write_kubeconfig({"token": "second"})
        self.rig.empty()
        self.rig.ok("run", "--gpus", 1, "--", "true", timeout=60)

    def test_a_token_that_expired_loses_nothing(self):
        self.add_pool("k", gpu="1xL4")
        job = self.rig.submit("--gpus", 1, "--", "sh", "-c", "sleep 5; echo done")
        self.running(job)
        self.cluster.tokens = set()
        self.assertEqual(self.rig.cli("wait", job, timeout=60).code, 0)
        poll(lambda: "Unauthorized" in self.rig.head_log(), "the refusal in the log", 30)
        self.assertEqual(len(self.cluster.pod_names()), 1)
        self.cluster.tokens = {self.cluster.token}
        self.rig.empty()

    def test_certificates_and_plugins_sign_in(self):
        self.cluster.write_kubeconfig(
            {"client-certificate": "client.pem", "client-key": "client.key"}
        )
        self.add_pool("k", gpu="1xL4")
        self.rig.ok("run", "--gpus", 1, "--", "true", timeout=60)
        self.rig.empty()
        self.rig.ok("pool", "rm", "k")
        plugin = self.rig.script(
            'printf \'{"kind":"ExecCredential","status":{"token":"%s"}}\' "$1"\n', "plugin"
        )
        self.cluster.write_kubeconfig(
            {
                "exec": {
                    "apiVersion": "client.authentication.k8s.io/v1",
                    "command": plugin,
                    "args": [self.cluster.token],
                }
            }
        )
        self.add_pool("p", gpu="1xL4")
        self.rig.ok("run", "--gpus", 1, "--", "true", timeout=60)

    def test_a_deleted_namespace_ends_its_jobs_and_comes_back(self):
        self.add_pool("k", gpu="1xL4")
        job = self.rig.submit("--gpus", 1, "--", "sleep", "1000")
        self.running(job)
        self.cluster.delete_namespace()
        poll(lambda: self.rig.job(job)["state"] == "lost", "the job lost", 60)
        self.cluster.create_namespace()
        self.rig.ok("run", "--gpus", 1, "--", "true", timeout=400)

    def test_a_head_that_dies_orders_nothing_twice(self):
        self.add_pool("k", gpu="1xL4")
        job = self.rig.submit("--gpus", 1, "--", "echo", "ran")
        poll(lambda: self.rig.machines(), "the machine written down", 30)
        address = self.rig.json("status")["addresses"][0].split("//")[1]
        self.rig.kill(self.rig.head_pid())
        self.rig.up(listen=address)
        self.assertEqual(self.rig.cli("wait", job, timeout=90).code, 0)
        created = [r for r in self.cluster.requests if r[0] == "POST" and r[1].endswith("/pods")]
        self.rig.empty()
        self.assertLessEqual(len(created), 2, "one order, at most repeated")

    def test_a_pod_without_its_secret_is_replaced(self):
        self.add_pool("k", gpu="1xL4")
        self.cluster.denied.add(("create", "secrets"))
        job = self.rig.submit("--gpus", 1, "--", "echo", "ran")
        poll(lambda: "cannot create" in self.rig.ok("explain", job).text, "the refusal", 30)
        self.assertEqual(self.cluster.pod_names(), [], "no pod without its secret stays")

    def test_a_long_list_comes_in_pages(self):
        self.cluster.nodes = {"gpu-1": 8}
        self.cluster.page_max = 1
        self.add_pool("k", gpu="1xL4")
        jobs = [self.rig.submit("--gpus", 1, "--", "sleep", "4") for _ in range(3)]
        for job in jobs:
            self.assertEqual(self.rig.cli("wait", job, timeout=90).code, 0)
        self.rig.empty()

    def test_the_context_of_the_first_use_is_kept(self):
        self.add_pool("k", gpu="1xL4")
        job = self.rig.submit("--gpus", 1, "--", "sh", "-c", "sleep 6; echo done")
        self.running(job)
        self.cluster.write_kubeconfig(namespace="default")  # `kubectl config set-context`
        self.assertEqual(self.rig.cli("wait", job, timeout=60).code, 0)
        self.rig.empty()

    def test_options_that_are_wrong_are_refused(self):
        for option, word in (
            ("volumes=x", "volumes"),
            ("namespace=Team", "namespace"),
            ("user=0", "user"),
            ("colour=red", "colour"),
        ):
            done = self.rig.add_pool("x", "--option", option)
            self.assertNotEqual(done.code, 0, option)
            self.assertIn(word, done.errors)


if __name__ == "__main__":
    unittest.main()
