"""A double of a Kubernetes cluster: an API server over TLS, a scheduler and kubelets in one.

It answers as a real API server of version 1.34 does for everything Billow asks (tests/e2e/pools/kubernetes_test.py
runs the same cases against a real one where that is installed). Its "kubelets" start a pod's command as a
process of this machine, so a job runs in a pod to its end. What a volume would mount is a folder of the pod, and
arguments that name the mount path are rewritten to it.
"""
import json
import os
import re
import socket
import ssl
import threading
import time
import uuid
from http.server import ThreadingHTTPServer

from kube_door import Handler, make_certificates
from kube_pod import Pod, Refused, now_text
from rig import MARK, poll


# The fields of a pod that Billow may use; with fieldValidation=Strict any other is refused.
SPEC_FIELDS = set(
    "restartPolicy automountServiceAccountToken enableServiceLinks terminationGracePeriodSeconds"
    " shareProcessNamespace securityContext tolerations volumes containers initContainers affinity"
    " nodeSelector runtimeClassName priorityClassName schedulerName activeDeadlineSeconds"
    " imagePullSecrets".split()
)


class KubeDouble:
    """The cluster. `nodes` maps names to numbers of GPUs."""

    token = "first-token"

    def __init__(self, root, data, nodes=None):
        self.root = root
        os.makedirs(os.path.join(root, "pods"))
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("BILLOW_")}
        self.environment[MARK] = data
        self.nodes = dict(nodes or {"gpu-1": 2, "gpu-2": 2})
        self.gpu_product = "NVIDIA-L4"
        self.lock = threading.RLock()
        self.pods, self.secrets, self.events, self.requests = {}, {}, [], []
        self.namespaces = {"default", "team"}
        self.version = 100
        self.forget_before = 0  # versions before are too old
        self.watches_cut = 0
        self.tokens = {self.token}
        self.denied = set()  # (verb, resource)
        self.starting = False  # it has not read the roles yet, so it refuses everybody
        self.quota = None
        self.applied = {}  # path → what was applied there
        self.foreign = {}  # path → somebody else who has set fields there
        self.refusals = []  # status codes of the next answers
        self.lost_answers = self.lost_requests = 0
        self.lost_creations = 0  # answers to the creation of a pod
        self.page_max = 500
        self.silent = False  # requests are taken and not answered
        self.running = True
        make_certificates(root)
        self.port = 0
        self.server = None
        self.serve()
        self.kubelet = threading.Thread(target=self.turn, daemon=True)
        self.kubelet.start()
        self.kubeconfig = os.path.join(root, "kubeconfig")
        self.write_kubeconfig()

    # ---- the server
    def serve(self):
        handler = type("BoundHandler", (Handler,), {"cluster": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", self.port), handler)
        self.server.daemon_threads = True
        self.port = self.server.server_port
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.file("server.pem"), self.file("server.key"))
        context.load_verify_locations(self.file("ca.pem"))
        context.verify_mode = ssl.CERT_OPTIONAL
        # The handshake is the connection's own thread's, not the accepting one's.
        self.server.socket = context.wrap_socket(
            self.server.socket, server_side=True, do_handshake_on_connect=False
        )
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def file(self, name):
        return os.path.join(self.root, name)

    def write_kubeconfig(self, user=None, namespace="team"):
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "double",
            "clusters": [
                {
                    "name": "double",
                    "cluster": {
                        "server": f"https://127.0.0.1:{self.port}",
                        "certificate-authority": "ca.pem",
                    },
                }
            ],
            "users": [{"name": "me", "user": user or {"token": self.token}}],
            "contexts": [
                {
                    "name": "double",
                    "context": {"cluster": "double", "user": "me", "namespace": namespace},
                }
            ],
        }
        with open(self.kubeconfig, "w", encoding="utf-8") as f:
            json.dump(config, f)

    def api_away(self):
        server, self.server = self.server, None
        server.shutdown()
        server.server_close()

    def api_silent(self):
        """It accepts connections and answers nothing, until `api_speaks`."""
        self.silent = True

    def api_speaks(self):
        self.silent = False

    def api_back(self):
        with self.lock:
            self.forget_before = self.version
        self.serve()

    def close(self):
        self.running = False
        if self.server:
            self.api_away()
        self.kubelet.join()
        for pod in self.pods.values():
            pod.kill()
            if pod.process:
                pod.process.wait()

    # ---- what goes wrong
    def misbehave(self, handler):
        while self.silent and self.running:
            time.sleep(0.02)
        with self.lock:
            if self.lost_requests > 0:
                self.lost_requests -= 1
                handler.connection.shutdown(socket.SHUT_RDWR)
                raise ConnectionAbortedError
            if self.refusals:
                code = self.refusals.pop(0)
                reason = {429: "TooManyRequests", 503: "ServiceUnavailable"}.get(code, "Internal")
                raise Refused(code, reason, "the double was told to fail")

    def loses_answer(self, method, path):
        with self.lock:
            if self.lost_creations > 0 and method == "POST" and path.endswith("/pods"):
                self.lost_creations -= 1
                return True
            if self.lost_answers > 0:
                self.lost_answers -= 1
                return True
        return False

    def who(self, handler):
        given = handler.headers.get("Authorization", "")
        if given.startswith("Bearer "):
            if given[7:] not in self.tokens:
                raise Refused(401, "Unauthorized", "Unauthorized")
            return "system:serviceaccount:team:billow"
        cert = handler.connection.getpeercert()
        if cert:
            return dict(pair for part in cert["subject"] for pair in part)["commonName"]
        return "system:anonymous"

    def may(self, user, verb, resource):
        known = user != "system:anonymous" and not self.starting
        return known and (verb, resource) not in self.denied

    def check(self, user, verb, resource, namespace=""):
        if not self.may(user, verb, resource):
            where = f' in the namespace "{namespace}"' if namespace else " at the cluster scope"
            raise Refused(
                403,
                "Forbidden",
                (
                    f'{resource} is forbidden: User "{user}" cannot {verb} resource'
                    f' "{resource}" in API group ""{where}'
                ),
            )

    # ---- the API
    def apply(self, path, query, body):
        """Server-side apply. (JSON is YAML.)"""
        with self.lock:
            if not query.get("fieldManager"):
                raise Refused(400, "BadRequest", "fieldManager is required for apply patch")
            if not path.endswith("/" + body["metadata"]["name"]):
                raise Refused(400, "BadRequest", "the name differs from the one in the address")
            if path in self.foreign and query.get("force") != "true":
                message = f'Apply failed with 1 conflict: conflict with "{self.foreign[path]}"'
                raise Refused(409, "Conflict", message)
            code = 200 if path in self.applied else 201
            if query.get("dryRun") != "All":
                self.applied[path] = body
                self.foreign.pop(path, None)
            return code, body

    def handle(self, user, method, path, query, body):
        with self.lock:
            if path == "/version":
                return 200, {"major": "1", "minor": "34", "gitVersion": "v1.34.0-double"}
            if path == "/readyz":
                if self.starting:
                    raise Refused(500, "InternalError", "[-]poststarthook/rbac failed")
                return 200, "ok"
            if path.endswith("/selfsubjectreviews"):
                return 201, {**body, "status": {"userInfo": {"username": user}}}
            if path.endswith("/selfsubjectaccessreviews"):
                asked = body["spec"]["resourceAttributes"]
                return 201, {
                    **body,
                    "status": {"allowed": self.may(user, asked["verb"], asked["resource"])},
                }
            if path == "/api/v1/nodes":
                self.check(user, "list", "nodes")
                return 200, {"kind": "NodeList", "items": [self.node(n) for n in self.nodes]}
            found = re.fullmatch(r"/api/v1/namespaces/([^/]+)/(pods|secrets)(?:/([^/]+))?", path)
            if not found:
                raise Refused(404, "NotFound", "the server could not find the requested resource")
            return self.object_call(user, method, *found.groups(), query, body)

    def object_call(self, user, method, namespace, kind, name, query, body):
        verb = {"POST": "create", "DELETE": "delete"}.get(method, "get" if name else "list")
        self.check(user, verb, kind, namespace)
        if verb == "create":
            if namespace not in self.namespaces:
                raise Refused(404, "NotFound", f'namespaces "{namespace}" not found')
            return (self.create_pod if kind == "pods" else self.create_secret)(query, body)
        if kind == "secrets":
            raise Refused(405, "MethodNotAllowed", "not of this double")
        if verb == "list":
            return self.list_pods(query)
        pod = self.pods.get(name)
        if not pod:
            raise Refused(404, "NotFound", f'pods "{name}" not found')
        if verb == "delete":
            return self.delete_pod(pod, query, body)
        return 200, pod.document

    def node(self, name):
        return {
            "metadata": {
                "name": name,
                "labels": {
                    "nvidia.com/gpu.product": self.gpu_product,
                    "topology.kubernetes.io/region": "north",
                    "topology.kubernetes.io/zone": "zone-a",
                },
            },
            "status": {"allocatable": {"nvidia.com/gpu": str(self.nodes[name])}},
        }

    def create_secret(self, query, body):
        name = body["metadata"]["name"]
        if name in self.secrets:
            raise Refused(409, "AlreadyExists", f'secrets "{name}" already exists')
        if query.get("dryRun") != "All":
            self.secrets[name] = body
        return 201, body

    def create_pod(self, query, body):
        unknown = set(body["spec"]) - SPEC_FIELDS
        if query.get("fieldValidation") == "Strict" and unknown:
            raise Refused(
                400,
                "BadRequest",
                f'strict decoding error: unknown field "spec.{unknown.pop()}"',
            )
        name = body["metadata"]["name"]
        if name in self.pods:
            raise Refused(409, "AlreadyExists", f'pods "{name}" already exists')
        document = json.loads(json.dumps(body))
        document["metadata"].update(
            {"uid": str(uuid.uuid4()), "creationTimestamp": now_text(), "namespace": "team"}
        )
        document["status"] = {"phase": "Pending"}
        pod = Pod(self, document)
        used = sum(p.gpus() for p in self.pods.values())
        if self.quota is not None and used + pod.gpus() > self.quota:
            raise Refused(
                403,
                "Forbidden",
                (
                    f'pods "{name}" is forbidden: exceeded quota: gpus, requested:'
                    f" requests.nvidia.com/gpu={pod.gpus()}, used:"
                    f" requests.nvidia.com/gpu={used}, limited:"
                    f" requests.nvidia.com/gpu={self.quota}"
                ),
            )
        os.makedirs(pod.folder)
        self.pods[name] = pod
        self.schedule(pod)
        self.changed("ADDED", pod)
        return 201, document

    def schedule(self, pod):
        for node, gpus in self.nodes.items():
            used = sum(
                p.gpus()
                for p in self.pods.values()
                if p.document["spec"].get("nodeName") == node
                and p.status["phase"] not in ("Succeeded", "Failed")
            )
            if used + pod.gpus() <= gpus:
                pod.document["spec"]["nodeName"] = node
                pod.set_condition("PodScheduled", "True")
                return
        pod.set_condition(
            "PodScheduled",
            "False",
            "Unschedulable",
            (
                f"0/{len(self.nodes)} nodes are available: {len(self.nodes)} Insufficient"
                " nvidia.com/gpu."
            ),
        )

    def selected(self, pod, query):
        labels = pod.document["metadata"].get("labels", {})
        for term in filter(None, query.get("labelSelector", "").split(",")):
            key, _, value = term.partition("=")
            if labels.get(key) != value:
                return False
        return True

    def list_pods(self, query):
        names = sorted(n for n, p in self.pods.items() if self.selected(p, query))
        if query.get("continue"):
            after, version = query["continue"].rsplit("@", 1)
            if int(version) < self.forget_before:
                raise Refused(410, "Expired", "The provided continue parameter is too old")
            names = [n for n in names if n > after]
        limit = min(int(query.get("limit", "500")), self.page_max)
        metadata = {"resourceVersion": str(self.version)}
        if len(names) > limit:
            metadata["continue"] = f"{names[limit - 1]}@{self.version}"
            metadata["remainingItemCount"] = len(names) - limit
        return 200, {
            "kind": "PodList",
            "apiVersion": "v1",
            "metadata": metadata,
            "items": [self.pods[n].document for n in names[:limit]],
        }

    def delete_pod(self, pod, query, body):
        options = body or {}
        uid = options.get("preconditions", {}).get("uid")
        own = pod.document["metadata"]["uid"]
        if uid and uid != own:
            raise Refused(
                409,
                "Conflict",
                f"the UID in the precondition ({uid}) does not match the UID in record ({own})",
            )
        default = pod.document["spec"].get("terminationGracePeriodSeconds", 30)
        grace = int(query.get("gracePeriodSeconds", options.get("gracePeriodSeconds", default)))
        pod.terminate(grace)
        if pod.look():
            self.vanish(pod)
        return 200, pod.document

    def vanish(self, pod):
        self.pods.pop(pod.name, None)
        self.changed("DELETED", pod)

    def collect_garbage(self):
        """What belongs to a pod goes with it, also if it was created after the pod had gone."""
        uids = {pod.document["metadata"]["uid"] for pod in self.pods.values()}
        for name, secret in list(self.secrets.items()):
            owners = secret["metadata"].get("ownerReferences", [])
            if owners and not any(owner["uid"] in uids for owner in owners):
                del self.secrets[name]

    def changed(self, kind, pod):
        self.version += 1
        pod.document["metadata"]["resourceVersion"] = str(self.version)
        self.events.append((self.version, kind, json.loads(json.dumps(pod.document))))

    def watch(self, _path, query):
        at = int(query.get("resourceVersion") or 0)
        deadline = time.monotonic() + float(query.get("timeoutSeconds", "30"))
        with self.lock:
            if at < self.forget_before:
                message = f"too old resource version: {at} ({self.forget_before})"
                yield {"type": "ERROR", "object": Refused(410, "Expired", message).status}
                return
        cut = self.watches_cut
        while time.monotonic() < deadline and self.running and self.server:
            if self.watches_cut != cut:
                yield None
                return
            with self.lock:
                fresh = [e for e in self.events if e[0] > at]
            for version, kind, document in fresh:
                at = version
                labels = document["metadata"].get("labels", {})
                wanted = dict(
                    t.split("=", 1) for t in query.get("labelSelector", "").split(",") if t
                )
                if all(labels.get(k) == v for k, v in wanted.items()):
                    yield {"type": kind, "object": document}
            time.sleep(0.02)
        bookmark = {"kind": "Pod", "metadata": {"resourceVersion": str(at)}}
        yield {"type": "BOOKMARK", "object": bookmark}

    # ---- kubelets and scheduler
    def turn(self):
        while self.running:
            with self.lock:
                for pod in list(self.pods.values()):
                    before = json.dumps(pod.document)
                    if not pod.document["spec"].get("nodeName") and pod.kill_at is None:
                        self.schedule(pod)
                    if pod.look():
                        self.vanish(pod)
                    elif json.dumps(pod.document) != before:
                        self.changed("MODIFIED", pod)
                self.collect_garbage()
            time.sleep(0.02)

    # ---- what a test does to the cluster
    def pod_names(self):
        with self.lock:
            return sorted(self.pods)

    def pod(self, name):
        with self.lock:
            return json.loads(json.dumps(self.pods[name].document))

    def secret_names(self):
        with self.lock:
            return sorted(self.secrets)

    def deny(self, verb, resource):
        self.denied.add((verb, resource))

    def allow(self, verb, resource):
        self.denied.discard((verb, resource))

    def lists(self):
        """How often the pods were listed."""
        return self.requests.count(("LIST", "/api/v1/namespaces/team/pods"))

    def cut_watches(self, forget=False):
        """Breaks the connections of all watches; `forget`: they cannot continue where they were."""
        with self.lock:
            self.watches_cut += 1
            if forget:
                self.version += 1
                self.forget_before = self.version

    def node_names(self):
        return list(self.nodes)

    def set_nodes(self, nodes):
        """Name → GPUs."""
        self.nodes = nodes

    def set_quota(self, gpus):
        self.quota = gpus

    def pods_created(self):
        """By name; the names of all pods that ever existed differ."""
        return len({e[2]["metadata"]["uid"] for e in self.events if e[1] == "ADDED"})

    def pod_log(self, name):
        return self.pods[name].log()

    def evict(self, name):
        with self.lock:
            pod = self.pods[name]
            pod.set_condition("DisruptionTarget", "True", "EvictionByEvictionAPI", "Eviction API")
            pod.terminate(pod.document["spec"]["terminationGracePeriodSeconds"])

    def delete(self, name):
        """As `kubectl delete pod NAME` does it, with the pod's grace time."""
        with self.lock:
            if pod := self.pods.get(name):
                pod.terminate(pod.document["spec"]["terminationGracePeriodSeconds"])

    def remove(self, name):
        """Kills the pod's container: nothing in it is warned."""
        with self.lock:
            if pod := self.pods.get(name):
                pod.kill()
                pod.terminate(0)

    def delete_namespace(self, name="team"):
        with self.lock:
            self.namespaces.discard(name)
            for pod in self.pods.values():
                pod.terminate(pod.document["spec"]["terminationGracePeriodSeconds"])
        poll(lambda: not self.pod_names(), "the namespace emptied", 30)

    def create_namespace(self, name="team"):
        self.namespaces.add(name)

    def stray(self, name, labels):
        """A pod that Billow did not order and whose labels say that it did."""
        body = {
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "containers": [{"name": "x", "image": "x", "command": ["sleep", "1000"]}],
                "terminationGracePeriodSeconds": 1,
            },
        }
        with self.lock:
            self.create_pod({}, body)
