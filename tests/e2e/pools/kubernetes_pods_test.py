"""What pods of a Kubernetes pool are given and what happens to them, on a real cluster: every option,
preemption, a drained node, users and rights inside, and credentials that expire."""
import json
import os
import shutil
import tempfile
import unittest

import kube_real
from kubernetes_head_test import volume
from kubernetes_test import COUNTER, RealRig
from rig import poll

MIG = "nvidia.com/mig-1g.10gb"
EVERY_OPTION = (
    *("--option", "node-selector=team=ml", "--option", "tolerations=dedicated=ml:NoSchedule"),
    *("--option", "runtime-class=plain", "--option", "priority-class=low"),
    *("--option", "pull-secrets=registry", "--option", "volumes=pvc/data:/data"),
    *("--option", "cpus=1", "--option", "memory=512Mi", "--option", "shm=64Mi"),
    *("--option", "user=1234:4321", "--queue", "team-a", "--time", "1h"),
    *("--option", f"gpu-resource={MIG}", "--option", "gpu-product=any"),
)


def object_of(version, kind, name, **content):
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **content}


def priority(name, value):
    return object_of("scheduling.k8s.io/v1", "PriorityClass", name, value=value)


@unittest.skipIf(kube_real.missing(), kube_real.missing())
class OnReal(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        root = tempfile.mkdtemp(prefix="billow-k8s-")
        cls.addClassCleanup(shutil.rmtree, root, ignore_errors=True)
        cls.cluster = kube_real.KubeReal(os.path.join(root, "cluster"))
        cls.addClassCleanup(cls.cluster.close)

    def setUp(self):
        self.rig = RealRig(self.cluster)
        self.addCleanup(self.rig.close)

    def apply(self, *documents):
        for one in documents:
            self.cluster.kubectl(
                *("-n", self.cluster.namespace, "apply", "-f", "-"), stdin=json.dumps(one)
            )

    def add_pool(self, *options, **more):
        done = self.rig.add_pool("k", *options, **more)
        self.assertEqual(done.code, 0, done)

    def node_json(self, *changes):
        words = ("patch", "node", self.cluster.node, "--subresource=status", "--type=json", "-p")
        self.cluster.kubectl(*words, json.dumps(changes))

    def give_node(self, resource, count):
        """As a device plugin does."""
        path = "/status/{}/" + resource.replace("/", "~1")
        for place in ("capacity", "allocatable"):
            self.node_json({"op": "add", "path": path.format(place), "value": str(count)})

    def only_pod(self):
        return poll(lambda: (self.cluster.pod_names() or [None])[0], "a pod", 60)

    def events(self, job):
        return self.rig.ok("describe", job).text + self.rig.ok("explain", job).text

    def test_a_pod_has_every_option(self):
        folder = tempfile.mkdtemp(dir=self.cluster.root)
        claim = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "",
            "resources": {"requests": {"storage": "1Gi"}},
        }
        self.apply(
            priority("low", 10),
            object_of("node.k8s.io/v1", "RuntimeClass", "plain", handler="runc"),
            volume("data", folder, self.cluster.node),
            object_of("v1", "PersistentVolumeClaim", "data", spec=claim),
        )
        node = self.cluster.node
        self.cluster.kubectl("label", "node", node, "team=ml")
        self.cluster.kubectl("taint", "node", node, "dedicated=ml:NoSchedule")
        self.addCleanup(self.cluster.kubectl, "taint", "node", node, "dedicated-")
        self.give_node(MIG, 2)
        self.add_pool(*EVERY_OPTION, gpu="2xL4")
        script = "id -u; id -g; echo kept > /data/file; nproc; sleep 3"
        done = self.rig.ok("run", "--gpus", 2, "--", "sh", "-c", script, timeout=90)
        self.assertEqual(done.text.split()[:2], ["1234", "4321"])
        with open(folder + "/file", encoding="ascii") as f:
            self.assertEqual(f.read(), "kept\n")
        pod = self.cluster.pod(self.only_pod())
        spec, limits = pod["spec"], pod["spec"]["containers"][0]["resources"]["limits"]
        self.assertEqual(limits, {"cpu": "1", "memory": "512Mi", MIG: "2"})
        self.assertEqual(spec["priority"], 10)
        self.assertEqual(spec["runtimeClassName"], "plain")
        self.assertEqual(spec["imagePullSecrets"], [{"name": "registry"}])
        self.assertEqual(spec["activeDeadlineSeconds"], 3600)
        self.assertEqual(pod["metadata"]["labels"]["kueue.x-k8s.io/queue-name"], "team-a")
        self.rig.empty()

    def test_gpus_of_amd_are_requested_and_found_by_amds_names(self):
        node, model = self.cluster.node, "AMD_Instinct_MI300X_OAM"
        self.give_node("amd.com/gpu", 2)
        self.cluster.kubectl("label", "node", node, f"amd.com/gpu.product-name={model}")
        self.cluster.kubectl("taint", "node", node, "amd.com/gpu=present:NoSchedule")
        self.addCleanup(self.cluster.kubectl, "taint", "node", node, "amd.com/gpu-")
        self.add_pool(gpu="2xMI300X")
        self.rig.ok("run", "--gpus", 2, "--", "true", timeout=90)
        limits = self.cluster.pod(self.only_pod())["spec"]["containers"][0]["resources"]["limits"]
        self.assertEqual(limits, {"amd.com/gpu": "2"})
        self.rig.empty()
        self.rig.ok("pool", "rm", "k")
        poll(lambda: not self.rig.json("pool", "list")["pools"], "no pool left", 60)
        # Without simulated GPUs the type is looked for on the nodes.
        self.add_pool("--gpu-type", "MI300X", gpu=None)
        job = self.rig.submit("--gpus", 1, "--", "true")
        pod = self.cluster.pod(self.only_pod())
        affinity = pod["spec"]["affinity"]["nodeAffinity"]
        terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        wanted = {"key": "amd.com/gpu.product-name", "operator": "In", "values": [model]}
        self.assertEqual(terms, [{"matchExpressions": [wanted]}])
        poll(lambda: self.was_scheduled(pod["metadata"]["name"]), "the pod on the node", 30)
        self.rig.ok("stop", job)
        self.rig.ok("pool", "rm", "k")
        self.rig.empty()

    def was_scheduled(self, name):
        """Seen in the events, because the pod may have ended since."""
        words = ("get", "events", "--field-selector", f"reason=Scheduled,involvedObject.name={name}")
        return name in self.cluster.kubectl("-n", self.cluster.namespace, *words)

    def test_an_exec_plugin_signs_in_and_is_asked_again_before_its_token_expires(self):
        role = self.rig.ok("install", "kubernetes", "--pool-only", "--namespace", "team").text
        self.cluster.use_role(role)
        calls = self.rig.file("calls")
        admin = f"{kube_real.find_program('kubectl')} --kubeconfig {self.cluster.file('admin.conf')}"
        answer = (
            '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential",'
            '"status":{"token":"%s","expirationTimestamp":"%s"}}'
        )
        plugin = self.rig.script(
            f'echo "$KUBERNETES_EXEC_INFO" >> {calls}\n'
            "until=$(date -u -d '+33 seconds' +%Y-%m-%dT%H:%M:%SZ)\n"
            f"printf '{answer}' \"$({admin} -n team create token billow)\" \"$until\"\n",
            "plugin",
        )
        version = "client.authentication.k8s.io/v1"
        self.cluster.write_kubeconfig({"exec": {"apiVersion": version, "command": plugin}})
        self.add_pool("--option", "gpu-product=any", gpu="1xL4")
        for _ in range(2):
            self.assertEqual(
                self.rig.ok("run", "--gpus", 1, "--", "id", "-u", timeout=90).out, b"1000\n"
            )
            self.rig.empty()
        with open(calls, encoding="utf-8") as f:
            asked = [json.loads(line) for line in f]
        self.assertEqual(asked[0]["kind"], "ExecCredential")
        self.assertGreater(len(asked), 1, "a credential is renewed before it expires")

    def test_a_queue_of_volcano_names_its_scheduler(self):
        self.add_pool("--queue", "q", "--option", "queue-system=volcano", gpu="1xL4")
        job = self.rig.submit("--gpus", 1, "--", "true")
        pod = self.cluster.pod(self.only_pod())
        self.assertEqual(pod["spec"]["schedulerName"], "volcano")
        self.assertEqual(pod["metadata"]["annotations"]["scheduling.volcano.sh/queue-name"], "q")
        self.rig.ok("stop", job)
        self.rig.empty()

    def test_the_ranks_of_a_gang_meet_behind_one_label(self):
        self.add_pool("--option", "gang-topology=topology.kubernetes.io/zone", gpu="1xL4")
        script = (
            # The first rank sends back what it gets, so the other knows that it has arrived.
            "if [ $RANK = 0 ]; then nc -l -p $MASTER_PORT -e cat;"
            ' else until echo "rank $RANK came" | nc -w 5 $MASTER_ADDR $MASTER_PORT | grep came;'
            " do sleep 0.2; done; fi"
        )
        gang = ("--nodes", 2, "--gpus", 1, "--")
        done = self.rig.ok("run", *gang, "sh", "-c", script, timeout=120)
        self.assertIn("rank 1 came", done.text)
        self.rig.empty()

    def test_a_pod_of_higher_priority_takes_the_place(self):
        shared, options = self.shared()
        self.apply(priority("low", 10), priority("high", 1000))
        self.add_pool(*options, "--option", "priority-class=low", gpu="4xL4")
        job = self.counter(shared, 4)
        first = self.only_pod()
        security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        container = {
            "name": "x",
            "image": kube_real.IMAGE,
            "command": ["sleep", "1000"],
            "securityContext": security,
            "resources": {"limits": {"nvidia.com/gpu": "4"}},
        }
        spec = {
            "priorityClassName": "high",
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
        }
        self.apply(object_of("v1", "Pod", "urgent", spec=spec))
        poll(lambda: first not in self.cluster.pod_names(), "the pod gone", 60)
        poll(lambda: "higher priority" in self.events(job), "the reason", 30)
        self.cluster.kubectl("-n", self.cluster.namespace, "delete", "pod", "urgent", "--now")
        self.begins_again(shared, job)

    def test_a_drained_node_saves_its_jobs(self):
        shared, options = self.shared()
        self.add_pool(*options, gpu="1xL4")
        job = self.counter(shared, 1)
        drain = ("--ignore-daemonsets", "--force", "--delete-emptydir-data")
        self.addCleanup(self.cluster.kubectl, "uncordon", self.cluster.node)
        self.cluster.kubectl("drain", self.cluster.node, *drain)
        poll(lambda: "unschedulable" in self.events(job), "the scheduler's words", 60)
        self.cluster.kubectl("uncordon", self.cluster.node)
        self.begins_again(shared, job)

    def test_a_job_that_needs_more_memory_than_its_pod_is_told(self):
        self.add_pool("--option", "memory=128Mi", gpu="1xL4")
        # tail keeps all of a line.
        eat = ("sh", "-c", "head -c 300000000 /dev/zero | tail")
        job = self.rig.submit("--gpus", 1, "--", *eat)
        poll(lambda: self.rig.job(job)["state"] not in ("queued", "running"), "its end", 90)
        told = self.rig.job(job)
        self.assertNotEqual(told["state"], "succeeded", told)
        self.assertRegex(f"{told['reason']} {told['exit']['text']}", "(?i)memory")

    def test_a_privileged_pool_runs_jobs_of_users_without_an_account(self):
        self.cluster.set_profile("privileged")
        self.add_pool("--privileged", "--option", "user=1234", gpu="1xL4")
        done = self.rig.ok("run", "--gpus", 1, "--", "id", "-u", timeout=90)
        self.assertEqual(done.text.strip(), "1234", "the image has no account of the submitter")
        self.rig.empty()

    def test_users_with_a_pool_each_have_their_own_uid(self):
        for name, user in (("ana", "1001"), ("ben", "1002:2002")):
            options = ("--option", f"user={user}", "--label", f"team={name}")
            done = self.rig.add_pool(name, *options, gpu="1xL4")
            self.assertEqual(done.code, 0, done)
        for name, ids in (("ana", ["1001", "1001"]), ("ben", ["1002", "2002"])):
            words = ("--gpus", 1, "--node-label", f"team={name}", "--", "sh", "-c", "id -u; id -g")
            self.assertEqual(self.rig.ok("run", *words, timeout=90).text.split(), ids)
        self.rig.empty()

    def test_a_restricted_namespace_refuses_a_privileged_pool_with_its_words(self):
        self.add_pool("--privileged", gpu="1xL4")
        job = self.rig.submit("--gpus", 1, "--", "true")
        poll(lambda: "PodSecurity" in self.rig.ok("explain", job).text, "the server's words", 60)

    def test_a_token_that_expired_loses_nothing(self):
        role = self.rig.ok("install", "kubernetes", "--pool-only", "--namespace", "team").text
        self.cluster.use_role(role)
        self.add_pool("--option", "gpu-product=any", gpu="1xL4")
        job = self.rig.submit("--gpus", 1, "--", "sh", "-c", "sleep 8; echo done")
        self.rig.wait_for(job, "running", 60)
        # Its account is made anew, so the token is nobody's.
        for verb in ("delete", "create"):
            self.cluster.kubectl("-n", "team", verb, "serviceaccount", "billow")
        self.assertEqual(self.rig.cli("wait", job, timeout=60).code, 0)
        late = self.rig.submit("--gpus", 1, "--", "echo", "late")
        poll(lambda: "Unauthorized" in self.rig.head_log(), "the refusal in the log", 60)
        token = self.cluster.kubectl("-n", "team", "create", "token", "billow").strip()
        self.cluster.write_kubeconfig({"token": token})
        self.assertEqual(self.rig.cli("wait", late, timeout=120).code, 0)
        self.rig.empty()

    # ---- a job that counts, in a folder that it shares with the test
    def shared(self):
        folder = self.rig.file("shared")
        os.makedirs(folder)
        os.chmod(folder, 0o777)
        self.cluster.set_profile("privileged")  # "restricted" has no volumes of the node
        return folder, ("--option", f"volumes=host/{folder}:{folder}")

    def starts(self, shared):
        try:
            with open(shared + "/starts", encoding="ascii") as f:
                return f.read().splitlines()
        except OSError:
            return []

    def counter(self, shared, gpus):
        job = self.rig.submit(
            *("--gpus", gpus, "--checkpoint-every", "1h", "--checkpoint-signal", "USR1"),
            *("--checkpoint-dir", shared, "--no-sync", "--"),
            *("sh", "-c", COUNTER.replace("SHARED", shared)),
        )
        poll(lambda: len(self.starts(shared)) == 1, "the count begun", 60)
        return job

    def begins_again(self, shared, job):
        poll(lambda: len(self.starts(shared)) == 2, "begun again", 90)
        self.assertGreater(int(self.starts(shared)[1].split()[1]), 0, "it goes on where it was")
        self.rig.ok("stop", job)
        self.rig.empty()


if __name__ == "__main__":
    unittest.main()
