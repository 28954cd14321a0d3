"""A real Kubernetes cluster of one node on this machine.

The programs are looked for where envtest does: $KUBEBUILDER_ASSETS, else /usr/local/kubebuilder/bin,
else PATH. containerd, runc and the CNI plugins are the system's. The whole cluster lives in process,
mount and network namespaces of its own: nothing listens on this machine's addresses, and when the
first process of the namespaces ends, the kernel ends the others and unmounts what they mounted.
"""
import json
import os
import shutil
import signal
import subprocess
import sys
import time

from kube_asked import IMAGE, Asked
from oci_image import billow_image, pause_image, plain_image
from rig import UnixConnection, poll

PROGRAMS = (
    *("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl", "etcd"),
)
BRIDGE = "10.87.0.1"
PORT = 6443
DNS = "10.96.0.10"  # nobody answers there, unless a test does
PLAIN_IMAGE = "billow.test/plain:1"  # without Billow
PAUSE = "billow.test/pause:1"
# Ends with its input, so it ends when the test does, however that ends.
FIRST_PROCESS = """
import os, subprocess, sys, threading, time
def watch():
    sys.stdin.read()
    os._exit(0)
threading.Thread(target=watch, daemon=True).start()
subprocess.run(["mount", "-t", "proc", "proc", "/proc"], check=True)
# What containerd, its network plugins and the kubelet leave there goes with the namespaces.
for place in ("/run/netns", "/run/containerd", "/var/log/containers", "/var/lib/billow-node"):
    os.makedirs(place, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "none", place], check=True)
print("ready", flush=True)
while True:
    try:
        os.wait()
    except ChildProcessError:
        time.sleep(0.1)
"""


def find_program(name):
    for folder in (os.environ.get("KUBEBUILDER_ASSETS", ""), "/usr/local/kubebuilder/bin"):
        if folder and os.access(os.path.join(folder, name), os.X_OK):
            return os.path.join(folder, name)
    return shutil.which(name)


def missing():
    """Why no real cluster can run here; empty: one can."""
    if os.geteuid() != 0:
        return "a real cluster needs root"
    without = [p for p in PROGRAMS if not find_program(p)]
    if without:
        return (
            f"not in $KUBEBUILDER_ASSETS, /usr/local/kubebuilder/bin or PATH: {', '.join(without)}"
        )
    tools = ("containerd", "ctr", "runc", "ip", "openssl", "busybox", "curl", "unshare", "nsenter")
    without = [p for p in tools if not shutil.which(p)]
    if not os.path.isdir("/usr/lib/cni"):
        without.append("CNI plugins in /usr/lib/cni")
    return f"not installed: {', '.join(without)}" if without else ""


class Namespaces:
    """Process, mount and network namespaces with a bridge. Nothing in them outlives `close`."""

    def __init__(self):
        self.holder = subprocess.Popen(
            [
                *("unshare", "--pid", "--mount", "--net", "--fork", "--kill-child"),
                *("--propagation", "private", sys.executable, "-c", FIRST_PROCESS),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        if self.holder.stdout.readline() != b"ready\n":
            raise AssertionError("the namespaces could not be made")
        with open(
            f"/proc/{self.holder.pid}/task/{self.holder.pid}/children", encoding="ascii"
        ) as f:
            self.first = int(f.read().split()[0])
        for words in (
            ("link", "set", "lo", "up"),
            ("link", "add", "cni0", "type", "bridge"),
            ("addr", "add", f"{BRIDGE}/16", "dev", "cni0"),
            ("link", "set", "cni0", "up"),
        ):
            subprocess.run([*self.network(), "ip", *words], check=True)

    def inside(self):
        return ["nsenter", "-t", str(self.first), "-p", "-m", "-n", "--"]

    def network(self):
        """Only the network: for the head and the clients of a test."""
        return ["nsenter", "-t", str(self.first), "-n", "--"]

    def close(self):
        self.holder.stdin.close()
        self.holder.wait()
        self.holder.stdout.close()


class KubeReal(Asked):
    """The cluster; the same calls as KubeDouble."""

    def __init__(self, root, gpus=4, kubelet=True):
        self.root, self.gpus = root, gpus
        os.makedirs(root, exist_ok=True)
        self.processes, self.containers = {}, set()
        self.listed = {}  # kind → objects by name
        self.node, self.namespace = "worker", "team"
        self.server = None  # another address of it for the pool
        self.audit_from = 0  # in the audit log
        self.kubeconfig = self.file("user.conf")
        self.spaces = Namespaces()
        try:
            self.make_credentials()
            self.start_etcd()
            self.api_back()
            self.start_manager()
            self.start_scheduler()
            if kubelet:
                self.start_containerd()
                self.start_kubelet()
            self.create_namespace()
            self.write_kubeconfig()
        except BaseException:
            self.close()
            raise

    def file(self, name):
        return os.path.join(self.root, name)

    def write(self, name, text):
        os.makedirs(os.path.dirname(self.file(name)), exist_ok=True)
        with open(self.file(name), "w" if isinstance(text, str) else "wb") as f:
            f.write(text)
        return self.file(name)

    def log(self, name):
        with open(self.file(name + ".log"), encoding="utf-8", errors="replace") as f:
            return f.read()

    def spawn(self, name, *words):
        with open(self.file(name + ".log"), "ab") as log:
            self.processes[name] = subprocess.Popen(
                [*self.spaces.inside(), *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "HOME": self.root},
                start_new_session=True,
            )

    def signal(self, name, what):
        """To one program of the cluster: its process group is `nsenter` and the program."""
        os.killpg(self.processes[name].pid, what)

    def end(self, name):
        if name in self.processes:
            self.signal(name, signal.SIGKILL)
            self.processes.pop(name).wait()

    def kubectl(self, *words, stdin=None, check=True, kubeconfig="admin.conf"):
        done = subprocess.run(
            [
                *(*self.spaces.network(), find_program("kubectl")),
                *("--kubeconfig", self.file(kubeconfig), *map(str, words)),
            ],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env={**os.environ, "HOME": self.root},
        )
        if check and done.returncode != 0:
            raise AssertionError(f"kubectl {words}: {done.stderr}")
        return done.stdout

    def get(self, path):
        """The answer of the API server, or None. Cheaper than kubectl, so it can be polled."""
        connection = UnixConnection(self.file("api.sock"), 30)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read()
            return body if answer.status == 200 else None
        except OSError:
            time.sleep(0.05)
            return None
        finally:
            connection.close()

    def get_object(self, path):
        text = self.get(path)
        return json.loads(text) if text else None

    # ---- starting it
    def certificate(self, name, subject, names=""):
        def openssl(*args):
            subprocess.run(["openssl", *args], check=True, capture_output=True, cwd=self.root)

        openssl("genrsa", "-out", name + ".key", "2048")
        if name == "ca":
            openssl(
                "req", "-x509", "-key", "ca.key", "-out", "ca.crt", "-days", "2", "-subj", subject
            )
            return
        openssl("req", "-new", "-key", name + ".key", "-out", name + ".csr", "-subj", subject)
        self.write("ext", f"subjectAltName={names}\n" if names else "keyUsage=digitalSignature\n")
        openssl(
            *("x509", "-req", "-in", name + ".csr", "-CA", "ca.crt", "-CAkey", "ca.key"),
            *("-CAcreateserial", "-days", "2", "-out", name + ".crt", "-extfile", "ext"),
        )

    def write_config(self, path, user, namespace="default", server=None):
        cluster = {
            "server": server or f"https://{BRIDGE}:{PORT}",
            "certificate-authority": self.file("ca.crt"),
        }
        context = {"cluster": "real", "user": "me", "namespace": namespace}
        self.write(
            path,
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "real",
                    "clusters": [{"name": "real", "cluster": cluster}],
                    "users": [{"name": "me", "user": user}],
                    "contexts": [{"name": "real", "context": context}],
                }
            ),
        )

    def write_kubeconfig(self, user=None, namespace=None):
        admin = {"client-certificate": "admin.crt", "client-key": "admin.key"}
        self.write_config("user.conf", user or admin, namespace or self.namespace, self.server)

    def make_credentials(self):
        self.certificate("ca", "/CN=test")
        names = f"IP:127.0.0.1,IP:{BRIDGE},IP:10.96.0.1,DNS:kubernetes"
        self.certificate("server", "/CN=kube-apiserver", names)
        for name, subject in (
            ("admin", "/O=system:masters/CN=admin"),
            ("manager", "/CN=system:kube-controller-manager"),
            ("scheduler", "/CN=system:kube-scheduler"),
            ("kubelet", f"/O=system:nodes/CN=system:node:{self.node}"),
            ("account", "/CN=account"),
        ):
            self.certificate(name, subject)
            key = {
                "client-certificate": self.file(name + ".crt"),
                "client-key": self.file(name + ".key"),
            }
            self.write_config(name + ".conf", key)

    def start_etcd(self):
        self.spawn(
            "etcd",
            *(find_program("etcd"), "--data-dir", self.file("etcd"), "--unsafe-no-fsync"),
            *("--listen-client-urls", "http://127.0.0.1:2379"),
            *("--advertise-client-urls", "http://127.0.0.1:2379"),
            *("--listen-peer-urls", "http://127.0.0.1:2380"),
        )

    def api_back(self):
        policy = {
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived"],
            "rules": [{"level": "Metadata"}],
        }
        self.write("audit.json", json.dumps(policy))
        self.start_api()

        def ready():
            # On a busy machine one of its own time limits may end it while it starts.
            if self.processes["apiserver"].poll() is not None:
                self.start_api()
            return self.get("/readyz") == b"ok"

        if "proxy" not in self.processes:
            kubectl = (find_program("kubectl"), "--kubeconfig", self.file("admin.conf"))
            self.spawn("proxy", *kubectl, "proxy", "--unix-socket", self.file("api.sock"))
        poll(ready, "API ready", 240)
        # Controllers and scheduler may have ended without it; a real cluster starts them again.
        for name, start in (("manager", self.start_manager), ("scheduler", self.start_scheduler)):
            if name in self.processes and self.processes[name].poll() is not None:
                start()

    def start_api(self):
        self.spawn(
            "apiserver",
            *(find_program("kube-apiserver"), "--etcd-servers=http://127.0.0.1:2379"),
            *(f"--secure-port={PORT}", f"--bind-address={BRIDGE}"),
            *("--tls-cert-file", self.file("server.crt")),
            *("--tls-private-key-file", self.file("server.key")),
            *("--client-ca-file", self.file("ca.crt"), "--authorization-mode=Node,RBAC"),
            *("--service-account-issuer=https://kubernetes.default.svc",),
            *("--service-account-key-file", self.file("account.crt")),
            *("--service-account-signing-key-file", self.file("account.key")),
            *("--service-cluster-ip-range=10.96.0.0/24", "--allow-privileged=true"),
            *("--profiling=false", "--cert-dir", self.file("certs")),
            *("--kubelet-client-certificate", self.file("admin.crt")),
            *("--kubelet-client-key", self.file("admin.key")),
            *("--kubelet-preferred-address-types=InternalIP",),
            *("--audit-policy-file", self.file("audit.json")),
            *("--audit-log-path", self.file("audit.log")),
        )

    def api_away(self):
        self.end("apiserver")

    def api_silent(self):
        """It accepts connections and answers nothing, until `api_speaks`."""
        self.signal("apiserver", signal.SIGSTOP)

    def api_speaks(self):
        self.signal("apiserver", signal.SIGCONT)

    def start_manager(self):
        self.spawn(
            "manager",
            *(find_program("kube-controller-manager"), "--kubeconfig", self.file("manager.conf")),
            *("--service-account-private-key-file", self.file("account.key")),
            *("--root-ca-file", self.file("ca.crt"), "--leader-elect=false"),
            *("--use-service-account-credentials=true", "--bind-address=127.0.0.1"),
        )

    def start_scheduler(self):
        self.spawn(
            "scheduler",
            *(find_program("kube-scheduler"), "--kubeconfig", self.file("scheduler.conf")),
            *("--leader-elect=false", "--bind-address=127.0.0.1"),
        )

    def start_containerd(self):
        ipam = {
            "type": "host-local",
            "dataDir": self.file("cni/ips"),
            "ranges": [[{"subnet": "10.87.0.0/16", "gateway": BRIDGE}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        }
        bridge = {"type": "bridge", "bridge": "cni0", "ipam": ipam}
        network = {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]}
        self.write("cni/net.d/10-bridge.conflist", json.dumps(network))
        self.write(
            "containerd.toml",
            f"""
version = 2
root = "{self.file('containerd/root')}"
state = "{self.file('containerd/state')}"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
  address = "{self.file('containerd.sock')}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{self.file('cni/net.d')}"
""",
        )
        self.spawn("containerd", "containerd", "--config", self.file("containerd.toml"))
        poll(lambda: self.ctr("version") is not None, "containerd answers", 60)
        for name, tar in (
            ("pause", pause_image(PAUSE)),
            ("node", billow_image(IMAGE)),
            ("plain", plain_image(PLAIN_IMAGE)),
        ):
            path = self.write(name + ".tar", tar)
            if self.ctr("images", "import", "--snapshotter", "native", path) is None:
                raise AssertionError(f"the image {name} could not be imported")
            os.unlink(path)

    def ctr(self, *words):
        done = subprocess.run(
            [
                *self.spaces.inside(),
                "ctr",
                "-a",
                self.file("containerd.sock"),
                "-n",
                "k8s.io",
                *words,
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout if done.returncode == 0 else None

    def start_kubelet(self):
        config = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": {"enabled": False},
                "x509": {"clientCAFile": self.file("ca.crt")},
            },
            "authorization": {"mode": "AlwaysAllow"},
            "address": BRIDGE,
            "healthzBindAddress": "127.0.0.1",
            "cgroupDriver": "cgroupfs",
            "clusterDNS": [DNS],
            "clusterDomain": "cluster.local",
            "cgroupsPerQOS": False,
            "enforceNodeAllocatable": [],
            "failSwapOn": False,
            "failCgroupV1": False,
            "containerRuntimeEndpoint": "unix://" + self.file("containerd.sock"),
            "evictionHard": {"memory.available": "1Mi", "nodefs.available": "0%"},
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            "localStorageCapacityIsolation": False,
            "makeIPTablesUtilChains": False,
            "nodeStatusUpdateFrequency": "2s",
            "serializeImagePulls": False,
            "podLogsDir": self.file("pod-logs"),
            "volumePluginDir": self.file("volume-plugins"),
        }
        self.write("kubelet.json", json.dumps(config))
        labels = (
            "nvidia.com/gpu.product=NVIDIA-L4,nvidia.com/gpu.memory=23034,"
            "topology.kubernetes.io/zone=zone-a,topology.kubernetes.io/region=north"
        )
        self.spawn(
            "kubelet",
            *(find_program("kubelet"), "--kubeconfig", self.file("kubelet.conf")),
            *("--config", self.file("kubelet.json"), "--root-dir", self.file("kubelet")),
            *("--hostname-override", self.node, "--node-ip", BRIDGE),
            *("--cert-dir", self.file("kubelet-certs"), "--node-labels", labels),
        )
        place = "/api/v1/nodes/" + self.node
        poll(lambda: self.get(place), "the node", 240)
        self.set_gpus(self.gpus)

        def ready():
            conditions = self.get_object(place)["status"].get("conditions", [])
            return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

        poll(ready, "the node ready", 240)

    def set_gpus(self, count):
        for place in ("capacity", "allocatable"):
            change = {
                "op": "add",
                "path": f"/status/{place}/nvidia.com~1gpu",
                "value": str(count),
            }
            self.kubectl(
                *("patch", "node", self.node, "--subresource=status", "--type=json", "-p"),
                json.dumps([change]),
            )

    def create_namespace(self, profile="restricted"):
        place = f"/api/v1/namespaces/{self.namespace}"

        def created():
            self.kubectl("create", "namespace", self.namespace, check=False)
            return self.get(place)

        poll(created, "the namespace", 60)
        self.set_profile(profile)
        # Pods cannot be created before the controllers have made it.
        account = place + "/serviceaccounts/default"
        # After an outage of the API server they look for it ever more seldom.
        poll(lambda: self.get(account), "the namespace's service account", 180)

    def set_profile(self, profile):
        """The profile of pod security that the namespace enforces."""
        label = f"pod-security.kubernetes.io/enforce={profile}"
        self.kubectl("label", "namespace", self.namespace, label, "--overwrite")

    def use_rights(self, rights):
        """Makes the pool's user one with these rights: (verb, resource)."""
        rules = [{"apiGroups": [""], "resources": [r], "verbs": [v]} for v, r in rights]
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "few"}
        account = {"kind": "ServiceAccount", "name": "few", "namespace": self.namespace}
        for document in (
            {"apiVersion": "v1", "kind": "ServiceAccount"},
            {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "rules": rules},
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "RoleBinding",
                "roleRef": role,
                "subjects": [account],
            },
        ):
            document["metadata"] = {"name": "few", "namespace": self.namespace}
            self.kubectl("apply", "-f", "-", stdin=json.dumps(document))
        token = self.kubectl("-n", self.namespace, "create", "token", "few").strip()
        self.write_kubeconfig({"token": token})

    def deny(self, verb, resource):
        every = [(v, "pods") for v in ("create", "get", "list", "watch", "delete")]
        every.append(("create", "secrets"))
        self.use_rights([right for right in every if right != (verb, resource)])

    def allow(self, _verb, _resource):
        self.write_kubeconfig()

    def use_role(self, manifests):
        """Makes the pool's user one with exactly the shipped role."""
        self.kubectl("apply", "-f", "-", stdin=manifests)
        words = ("create", "token", "billow", "--duration", "24h")
        token = self.kubectl("-n", self.namespace, *words).strip()
        self.write_kubeconfig({"token": token})

    # ---- ending it
    def close(self):
        self.end("kubelet")
        if "containerd" in self.processes:
            for container in (self.ctr("containers", "ls", "-q") or "").split():
                self.containers.add(container)
        self.spaces.close()
        for process in self.processes.values():
            process.wait()
        self.remove_cgroups()
        shutil.rmtree(self.root, ignore_errors=True)

    def remove_cgroups(self):
        """containerd puts a container's control groups below k8s.io, named by its id."""
        for folder, names, _ in os.walk("/sys/fs/cgroup"):
            if os.path.basename(folder) != "k8s.io":
                continue
            for name in self.containers.intersection(names):
                poll(lambda f=os.path.join(folder, name): removed(f), f"{name} removed", 10)
            names.clear()
            removed(folder)


def removed(folder):
    """Also the control groups that an agent in the container made below its own."""
    try:
        for inner, _, _ in os.walk(folder, topdown=False):
            os.rmdir(inner)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


if __name__ == "__main__":  # a cluster to look at: python3 kube_real.py FOLDER
    cluster = KubeReal(sys.argv[1])
    print(
        "enter it with:", *cluster.spaces.inside(), "env KUBECONFIG=" + cluster.file("admin.conf")
    )
    try:
        signal.pause()
    except KeyboardInterrupt:
        pass
    finally:
        cluster.close()
