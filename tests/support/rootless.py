"""A head without an agent, and a node whose agent is not root: it asks the root helper of this
machine (`billow privileged`)."""
import array
import contextlib
import fcntl
import json
import os
import socket
import subprocess

from ports import free_port
from rig import BILLOW, Rig, alive, poll

AGENT = 61234  # uid and gid of the agent: no account has them
POLICY = "allow games daemon nobody\ndeny mail"
SEALS = 2 | 4 | 8  # shrink, grow, write
F_ADD_SEALS = 1033


class RootlessRig(Rig):
    def __init__(self, policy=POLICY, sim="4xL4", **options):
        super().__init__(sim="1xH100", up=False, args=("--tls", "--no-agent"), **options)
        self.node_sim = sim
        self.environment["BILLOW_NODE_POLICY"] = self.node_policy(policy)
        self.listen = f"127.0.0.1:{free_port()}"
        # Their names begin with that of the data directory, by which a rig knows its processes.
        self.state = self.data + "-helper"
        self.socket = self.data + "-socket"
        self.node = self.data + "-node"
        os.mkdir(self.node, 0o700)
        os.chown(self.node, AGENT, AGENT)
        self.helper = self.agent = None
        try:
            self.up(listen=self.listen)
            self.start_helper()
            self.token_text = self.ok("token", "create", "--node", "--reusable").text.strip()
            self.start_agent()
        except BaseException:
            self.close()
            raise

    def beside(self, name, *command, **options):
        with open(os.path.join(self.root, f"{name}.log"), "a", encoding="utf-8") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environment,
                **options,
            )
        self.started.append(process)
        return process

    def start_helper(self):
        self.helper = self.beside(
            "helper",
            *(BILLOW, "privileged", "--agent", str(AGENT), "--tasks", "children"),
            *("--state", self.state, "--socket", self.socket),
        )
        poll(lambda: os.path.exists(self.socket), "the root helper", 20)

    def start_agent(self):
        self.agent = self.beside(
            "agent",
            *(BILLOW, "join", f"https://{self.listen}", "--token", self.token_text),
            *("--node-name", "rootless", "--data", self.node, "--sim", self.node_sim),
            *("--root-helper", self.socket),
            user=AGENT,
            group=AGENT,
            extra_groups=[],
        )
        self.wait_for_node()

    def wait_for_node(self):
        def ready():
            if self.agent.poll() is not None:
                raise AssertionError(f"{self.agent.poll()} {self.log_of('agent')}{self.log_of('helper')}")
            nodes = self.json("nodes")["nodes"]
            return nodes and nodes[0]["state"] == "ready"

        poll(ready, "the node without root", 60)

    def agent_pid(self):
        return self.agent.pid

    def kill_agent(self):
        self.agent.kill()
        self.agent.wait()

    def kill_helper(self):
        self.helper.kill()
        self.helper.wait()
        os.unlink(self.socket)

    def log_of(self, name):
        with open(os.path.join(self.root, f"{name}.log"), encoding="utf-8", errors="replace") as f:
            return f.read()

    def add_user(self, name, account):
        """Its token."""
        self.ok("user", "create", name, "--unix-name", account)
        self.ok("project", "member", "default", name)
        return self.token_for(name)

    def places(self):
        """What lies in the directories that the helper makes for jobs."""
        found = []
        for name in os.listdir(self.state):
            if name.startswith("place-"):
                with open(os.path.join(self.state, name), encoding="utf-8") as f:
                    found += os.listdir(f.read().strip())
        return found

    def groups_left(self):
        """Control groups of the helper's tasks."""
        found = []
        for folder, names, _ in os.walk("/sys/fs/cgroup"):
            if os.path.basename(folder) == "billow":
                found += [f"{folder}/{n}" for n in names if n.startswith(self.groups_owner())]
                names.clear()
        return found

    def groups_owner(self):
        helper = Helper(self.socket)
        try:
            return helper.ask(verb="hello")["groups_owner"]
        finally:
            helper.close()

    def close(self):
        # While agent and helper live, jobs can be stopped.
        try:
            if self.agent and alive(self.agent.pid) and alive(self.helper.pid):
                for job in self.json("ps")["jobs"]:
                    self.cli("stop", "--force", "--wait", job["id"], timeout=30)
        finally:
            super().close()


@contextlib.contextmanager
def account(uid):
    """The kernel takes a process for that account at the other end of what it connects to."""
    os.setegid(uid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


def sealed(content, seals=SEALS):
    memory = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(memory, content)
    if seals:
        fcntl.fcntl(memory, F_ADD_SEALS, seals)
    return memory


class Helper:
    """A process of the agent's account that speaks the protocol by itself."""

    def __init__(self, path, uid=AGENT):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(20)
        before = os.getgroups()
        os.setgroups([])
        try:
            with account(uid):
                self.socket.connect(path)
        except OSError:
            self.socket.close()
            raise
        finally:
            os.setgroups(before)

    def send(self, data, descriptors=()):
        rights = array.array("i", descriptors)
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)] if descriptors else []
        self.socket.sendmsg([data], ancillary)

    def receive(self):
        """The answer, or nothing: the helper has closed the connection."""
        try:
            data, ancillary, _, _ = self.socket.recvmsg(1 << 16, 1024)
        except ConnectionError:
            return None
        self.descriptors = []
        for _, _, rights in ancillary:
            found = array.array("i")
            found.frombytes(rights[: len(rights) // 4 * 4])
            self.descriptors += list(found)
        return json.loads(data) if data else None

    def ask(self, descriptors=(), **request):
        self.send(json.dumps({"version": 1, **request}).encode(), descriptors)
        return self.receive()

    def close(self):
        self.socket.close()
