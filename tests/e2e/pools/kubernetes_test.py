"""The Kubernetes pool: the same cases against a double of a cluster (tests/support/kube_double.py)
and, where its programs are installed, against a real one (tests/support/kube_real.py)."""
import json
import os
import time
import unittest

import kube_real
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

    image, plain_image, program = "billow", "plain", BILLOW

    def __init__(self):
        super().__init__(sim="2xL4", args=("--no-agent", "--tls"), up=False)
        self.cluster = self.make_cluster()
        self.up()

    def make_cluster(self):
        return KubeDouble(os.path.join(self.root, "cluster"), self.data)

    def add_pool(self, name="k", *options, image=None, gpu="2xL4", idle="2s", program=""):
        gpus = ("--gpu", gpu, "--sim", gpu) if gpu else ()
        given = () if program is None else ("--option", f"program={program or self.program}")
        return self.cli(
            *("pool", "add", "kubernetes", name, *gpus),
            *("--option", f"kubeconfig={self.cluster.kubeconfig}"),
            *(*given, "--option", f"image={image or self.image}"),
            *(() if any("grace=" in str(o) for o in options) else ("--option", "grace=20s")),
            *("--max", 4, "--idle", idle, *options),
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
        self.end_cluster()
        super().close()

    def end_cluster(self):
        self.cluster.close()


class RealRig(KubeRig):
    """The head is in the network of the cluster, which outlives the rig."""

    image, plain_image, program = kube_real.IMAGE, kube_real.PLAIN_IMAGE, "/opt/billow/bin/billow"

    def __init__(self, cluster):
        self.shared_cluster = cluster
        super().__init__()

    def make_cluster(self):
        return self.shared_cluster

    def command(self, *args):
        # Pods do not see the files of this machine.
        if args[0] in ("run", "submit") and "--no-sync" not in args:
            args = (args[0], "--sync", *args[1:])
        return [*self.shared_cluster.spaces.network(), *super().command(*args)]

    def up(self, *more, listen=kube_real.BRIDGE + ":0"):
        return super().up(*more, listen=listen)

    def end_cluster(self):
        self.cluster.restore()


class Cases:
    """What holds on every cluster."""

    slow = 1  # how much longer things may take

    def setUp(self):
        self.rig = self.make_rig()
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
            lambda: "running on " in next(iter(self.rig.machines().values()))["note"],
            "where the pod runs",
            20,
        )
        node = self.rig.json("nodes")["nodes"][0]
        self.assertEqual(node["labels"]["pool"], "k")
        self.assertIn(node["labels"]["kubernetes-node"], self.cluster.node_names())
        self.assertEqual(node["labels"]["zone"], "zone-a", "from the labels of the cluster's node")
        self.assertEqual(node["labels"]["region"], "north")
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
        self.cluster.set_nodes({"gpu-1": 2, "gpu-2": 1})
        self.add_pool("k", "--patience", "4s")
        job = self.rig.submit("--nodes", 2, "--gpus", 2, "--", "true")
        poll(lambda: len(self.cluster.pod_names()) == 2, "both pods", 30)
        poll(lambda: not self.cluster.pod_names(), "both given back", 60)
        poll(lambda: "not all of its 2 pods" in self.rig.ok("explain", job).text, "the reason", 30)

    def test_a_pod_whose_image_lacks_billow_fetches_it_from_the_head(self):
        done = self.rig.add_pool("k", gpu="1xL4", program=None, image=self.rig.plain_image)
        self.assertEqual(done.code, 0, done)
        done = self.rig.ok("run", "--gpus", 1, "--", "sh", "-c", "echo fetched", timeout=120)
        self.assertEqual(done.out, b"fetched\n")
        self.rig.empty()

    def test_a_missing_right_is_told_when_the_pool_is_added(self):
        self.cluster.deny("create", "secrets")
        done = self.rig.add_pool("k")
        self.assertEqual(done.code, 1, done)
        self.assertIn("may not create secrets in namespace team", done.errors)
        self.assertEqual(self.rig.json("pool", "list")["pools"], [], "and can be added again")
        self.cluster.allow("create", "secrets")
        self.add_pool("k")

    # ---- why nothing starts
    def test_explain_has_the_schedulers_words(self):
        self.cluster.set_nodes({"small": 0})
        self.add_pool()
        job = self.rig.submit("--gpus", 2, "--", "true")
        poll(
            lambda: "Insufficient nvidia.com/gpu" in self.rig.ok("explain", job).text,
            "the scheduler's words",
            30,
        )
        self.cluster.set_nodes({"large": 4})
        self.assertEqual(self.rig.cli("wait", job, timeout=60).code, 0)

    def test_an_image_that_cannot_be_pulled_is_given_up(self):
        self.add_pool("k", "--patience", "3s", image="missing:1")
        job = self.rig.submit("--gpus", 1, "--", "true")
        # "ErrImagePull" or "ImagePullBackOff", whichever was its last word.
        poll(lambda: "ImagePull" in self.rig.ok("explain", job).text, "the reason", 30)
        self.rig.empty()

    def test_a_quota_and_a_missing_right_are_told(self):
        self.cluster.set_quota(1)
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
        shared, options = self.shared()
        self.add_pool("k", *options, gpu="1xL4")

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
        shared, options = self.shared()
        self.add_pool("k", *options, gpu="1xL4")
        marks = shared + "/marks"
        job = self.rig.submit(
            *("--gpus", 1, "--rerun-if-lost", "--no-sync", "--"),
            *("sh", "-c", f"echo x >> {marks}; [ $(wc -l < {marks}) = 2 ] || sleep 1000"),
        )
        self.running(job)
        poll(lambda: os.path.exists(marks), "begun", 30)
        self.cluster.remove(self.only_pod())
        # A pod without a list entry may still run, so the job waits until its agent must have
        # ended it: 85 s.
        waited = self.rig.cli("wait", job, timeout=300)
        self.assertEqual(waited.code, 0, waited)
        self.rig.empty()

    def test_a_pod_nobody_ordered_is_ended(self):
        self.add_pool("k", idle="1m")
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

    def test_down_does_not_wait_for_an_api_server_that_does_not_answer(self):
        self.add_pool("k", gpu="1xL4")
        self.rig.ok("run", "--gpus", 1, "--", "true", timeout=60)
        self.cluster.api_silent()
        try:
            poll(
                lambda: any(m["state"] == "releasing" for m in self.rig.machines().values()),
                "the pod to be deleted",
                30,
            )
            told = self.rig.ok("down").text
        finally:
            self.cluster.api_speaks()
        self.assertIn("pool k keeps its 1 machine until the next `billow up`", told)
        self.rig.up()
        self.rig.empty()

    def test_a_deleted_namespace_ends_its_jobs_and_comes_back(self):
        self.add_pool("k", gpu="1xL4")
        job = self.rig.submit("--gpus", 1, "--", "sleep", "1000")
        self.running(job)
        self.cluster.delete_namespace()
        poll(lambda: self.rig.job(job)["state"] == "queued", "the job back in the queue", 60)
        self.cluster.create_namespace()
        told = self.rig.ok("cloud", "check", "k")  # otherwise the pool waits for five minutes
        self.assertIn(f"of {self.cluster.kubeconfig}", told.text, "where the account was found")
        self.rig.ok("run", "--gpus", 1, "--", "true", timeout=90)
        self.rig.ok("stop", job)

    def test_a_head_that_dies_orders_nothing_twice(self):
        self.add_pool("k", gpu="1xL4")
        job = self.rig.submit("--gpus", 1, "--", "echo", "ran")
        poll(lambda: self.rig.machines(), "the machine written down", 30)
        address = self.rig.json("status")["addresses"][0].split("//")[1]
        self.rig.kill(self.rig.head_pid())
        self.rig.up(listen=address)
        self.assertEqual(self.rig.cli("wait", job, timeout=90).code, 0)
        self.rig.empty()
        self.assertLessEqual(self.cluster.pods_created(), 1, "one order")

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


class OnDouble(Cases, unittest.TestCase):
    def make_rig(self):
        return KubeRig()

    def shared(self):
        """A folder that pods see as well, and the options for it."""
        os.makedirs(self.rig.file("shared"))
        os.chmod(self.rig.file("shared"), 0o777)  # pods are not root
        return self.rig.file("shared"), ()

    def test_overload_and_lost_answers_make_nothing_twice(self):
        self.add_pool("k", gpu="1xL4")
        marks = self.shared()[0] + "/marks"
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

    def test_a_half_made_pod_is_no_failure_of_the_cluster(self):
        # The pod exists and its secret does not: it is deleted and the order is repeated.
        self.add_pool("k", gpu="1xL4")
        for _ in range(3):
            self.cluster.lost_creations = 1
            job = self.rig.submit("--gpus", 1, "--", "true")
            poll(
                lambda j=job: self.rig.job(j)["state"] == "succeeded"
                or self.rig.pool().get("denied"),
                "the job's end, or a pool that refuses",
                90,
            )
            self.assertEqual(self.rig.job(job)["state"], "succeeded", self.rig.pool().get("denied"))
            self.rig.empty()

    def test_a_long_checkpoint_gets_the_grace_time_of_its_pod(self):
        shared, _ = self.shared()
        done = self.rig.add_pool("k", "--option", "grace=2m", gpu="1xL4")
        self.assertEqual(done.code, 0, done)
        script = COUNTER.replace("SHARED", shared).replace("save() {", "save() { sleep 22;")
        job = self.rig.submit(
            *("--gpus", 1, "--checkpoint-every", "1h", "--checkpoint-signal", "USR1"),
            *("--stop-grace", "1m", "--checkpoint-dir", shared, "--", "sh", "-c", script),
        )
        starts = shared + "/starts"
        poll(lambda: os.path.exists(starts), "the count begun", 60)
        self.cluster.evict(self.only_pod())

        def second():
            with open(starts, encoding="ascii") as f:
                return f.read().splitlines()[1:]

        again = poll(second, "begun again", 120)
        self.assertGreater(int(again[0].split()[1]), 0, "it goes on where it was")
        self.rig.ok("stop", job)

    def test_a_watch_that_is_cut_goes_on(self):
        self.add_pool("k", gpu="1xL4")
        listed = self.cluster.lists()
        for number in range(4):
            self.cluster.cut_watches(forget=number == 3)
            job = self.rig.submit("--gpus", 1, "--", "sleep", "1")
            self.assertEqual(self.rig.cli("wait", job, timeout=60).code, 0)
            if number == 2:
                self.assertLessEqual(self.cluster.lists() - listed, 1, "where it was, not anew")
        self.rig.empty()
        self.assertGreater(self.cluster.lists(), listed, "a position that is too old: listed anew")

    def test_without_the_right_to_watch_the_pods_are_listed(self):
        self.add_pool("k", gpu="1xL4")
        self.cluster.deny("watch", "pods")
        self.cluster.cut_watches()
        self.rig.ok("run", "--gpus", 1, "--", "true", timeout=60)
        self.rig.empty()

    def test_a_pool_asks_seldom(self):
        self.add_pool("k", gpu="1xL4", idle="1m")
        self.rig.ok("run", "--gpus", 1, "--", "true", timeout=60)
        before = len(self.cluster.requests)
        job = self.rig.submit("--gpus", 1, "--", "sleep", "5")
        self.assertEqual(self.rig.cli("wait", job, timeout=60).code, 0)
        asked = self.cluster.requests[before:]
        self.assertLessEqual(len(asked), 2, f"the watch tells: {asked}")

    def test_a_server_that_has_not_read_its_roles_yet_is_no_missing_right(self):
        self.add_pool("k", gpu="1xL4")
        self.cluster.starting = True
        before = len(self.cluster.requests)
        job = self.rig.submit("--gpus", 1, "--", "echo", "ran")
        poll(
            lambda: any(r[0] == "POST" for r in self.cluster.requests[before:]),
            "an order that is refused",
            30,
        )
        time.sleep(0.3)
        self.cluster.starting = False
        self.assertEqual(self.rig.cli("wait", job, timeout=60).code, 0, self.rig.pool())
        self.rig.empty()

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


if __name__ == "__main__":
    unittest.main()
