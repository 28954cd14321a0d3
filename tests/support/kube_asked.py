"""What a test asks of the real cluster (kube_real.py) and does to it, in the same calls as those of
KubeDouble."""
import json
import os
import time

from rig import poll

IMAGE = "billow.test/node:1"


class Asked:
    def objects(self, kind):
        """By name. While the API server does not answer, the last ones that it listed."""
        found = self.get_object(f"/api/v1/namespaces/{self.namespace}/{kind}")
        if found:
            self.listed[kind] = {o["metadata"]["name"]: o for o in found["items"]}
        return self.listed.get(kind, {})

    def pod_names(self):
        return sorted(self.objects("pods"))

    def pod(self, name):
        return self.objects("pods")[name]

    def secret_names(self):
        return sorted(self.objects("secrets"))

    def set_nodes(self, nodes):
        """Name → GPUs; they are all of the one node here."""
        self.set_gpus(sum(nodes.values()))

    def restore(self):
        """After a test: everything as it was."""
        self.set_gpus(self.gpus)
        # The namespace controller asks ever more seldom while pods are left: they go first.
        self.kubectl("-n", self.namespace, "delete", "pods", "--all", "--now", "--wait=true")
        self.kubectl("delete", "namespace", self.namespace, "--ignore-not-found", "--wait=true")
        self.create_namespace()
        self.write_kubeconfig()
        self.audit_from = os.path.getsize(self.file("audit.log"))

    def pods_created(self):
        created = [
            uri for verb, uri, code in self.requests("billow") if verb == "create" and code == 201
        ]
        return len([uri for uri in created if "/pods?" in uri])

    def node_names(self):
        return self.kubectl("get", "nodes", "-o", "jsonpath={.items[*].metadata.name}").split()

    def evict(self, name):
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        path = f"/api/v1/namespaces/{self.namespace}/pods/{name}/eviction"
        self.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(body))

    def delete(self, name):
        """As `kubectl delete pod NAME` does it, with the pod's grace time."""
        self.kubectl(
            *("-n", self.namespace, "delete", "pod", name, "--wait=false", "--ignore-not-found")
        )

    def remove(self, name):
        """Kills the pod's container: nothing in it is warned."""
        # The agent may have joined before the kubelet has told the API server of its container.
        end = time.monotonic() + 10
        while self.has_started(name) and not self.containers_of(name) and time.monotonic() < end:
            time.sleep(0.05)
        for container in self.containers_of(name):
            self.ctr("task", "kill", "--signal", "9", "--all", container)
        self.delete(name)

    def has_started(self, name):
        """Whether the pod has a node that may run it."""
        pod = self.objects("pods").get(name, {})
        ended = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
        leaves = "deletionTimestamp" in pod.get("metadata", {})
        return "nodeName" in pod.get("spec", {}) and not ended and not leaves

    def containers_of(self, name):
        found = self.objects("pods").get(name, {}).get("status", {}).get("containerStatuses", [])
        ids = [status.get("containerID", "").rpartition("/")[2] for status in found]
        return [one for one in ids if one]

    def namespaces(self):
        found = poll(lambda: self.get_object("/api/v1/namespaces"), "the namespaces", 120)
        return [o["metadata"]["name"] for o in found["items"]]

    def delete_namespace(self):
        self.kubectl("delete", "namespace", self.namespace, "--wait=false")
        poll(
            lambda: self.namespace not in self.namespaces(),
            "the namespace deleted",
            180,
        )

    def set_quota(self, gpus):
        self.kubectl(
            *("-n", self.namespace, "create", "quota", "gpus"),
            f"--hard=requests.nvidia.com/gpu={gpus}",
        )
        poll(
            lambda: self.objects("resourcequotas").get("gpus", {}).get("status", {}).get("hard"),
            "the quota",
            30,
        )

    def stray(self, name, labels):
        """A pod that Billow did not order and whose labels say that it did."""
        container = {
            "name": "x",
            "image": IMAGE,
            "command": ["sleep", "1000"],
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            },
        }
        security = {
            "runAsNonRoot": True,
            "runAsUser": 1000,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "terminationGracePeriodSeconds": 1,
                "securityContext": security,
                "containers": [container],
            },
        }
        self.kubectl("-n", self.namespace, "create", "-f", "-", stdin=json.dumps(pod))

    def requests(self, agent):
        """Verb, address and code of each finished request since the last test, by the audit log."""
        out = []
        with open(self.file("audit.log"), encoding="utf-8") as f:
            f.seek(self.audit_from)
            for line in f:
                one = json.loads(line)
                if one.get("userAgent", "") == agent and one["stage"] == "ResponseComplete":
                    out.append((one["verb"], one["requestURI"], one["responseStatus"]["code"]))
        return out
