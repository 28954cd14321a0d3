"""Past the gateway: other accounts and jobs of a node call the port of a replica there."""
import json
import os
import socket
import subprocess

from attacks_neighbour_test import NEEDS_ROOT
from endpoints_test import EndpointTest
from rig import USUAL_POLICY, Rig, poll

# The replica listens at all addresses. Asked for /self, it calls itself.
SERVER = """
import http.server, os, socket, urllib.request
port = int(os.environ["PORT"])
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        out = b"the answer"
        if self.path == "/self":
            out += urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5).read()
        self.send_response(200)
        self.send_header("Content-Length", str(len(out)))
        self.end_headers()
        self.wfile.write(out)
    def log_message(self, *args):
        pass
class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6
    request_queue_size = 128
Server(("::", port), Handler).serve_forever()
"""

# Prints a line for each way to the port: what came of it.
CALLER = """
import concurrent.futures, json, socket, sys
port, own = int(sys.argv[1]), sys.argv[2]
REQUEST = b"GET / HTTP/1.0\\r\\n\\r\\n"
def call(address, family=socket.AF_INET, protocol=0, setup=None, first=b""):
    s = socket.socket(family, socket.SOCK_STREAM, protocol)
    s.settimeout(4)
    if setup:
        setup(s)
    if first:
        s.sendto(first, 0x20000000, (address, port))  # MSG_FASTOPEN
    else:
        s.connect((address, port))
        s.sendall(REQUEST)
    got = b""
    while piece := s.recv(4096):
        got += piece
    return "REACHED " + got[-10:].decode()
def option(level, name, value):
    return lambda s: s.setsockopt(level, name, value)
tries = {
    "loopback": lambda: call("127.0.0.1"),
    "another loopback address": lambda: call("127.3.2.1"),
    "from another loopback address": lambda: call("127.0.0.1", setup=lambda s: s.bind(("127.9.9.9", 0))),
    "IPv6": lambda: call("::1", socket.AF_INET6),
    "mapped": lambda: call("::ffff:127.0.0.1", socket.AF_INET6),
    "any": lambda: call("0.0.0.0"),
    "the node's address": lambda: call(own),
    "multipath": lambda: call("127.0.0.1", protocol=262),
    "data in the first packet": lambda: call("127.0.0.1", first=REQUEST),
    "priority": lambda: call("127.0.0.1", setup=option(socket.SOL_SOCKET, 12, 0x62770001)),
    "type of service": lambda: call("127.0.0.1", setup=option(socket.IPPROTO_IP, socket.IP_TOS, 0x10)),
    "a low port": lambda: call("127.0.0.1", setup=lambda s: s.bind(("127.0.0.1", 1011))),
    "the loopback device": lambda: call("127.0.0.1", setup=option(socket.SOL_SOCKET, 25, b"lo\\0")),
}
def outcome(one):
    try:
        return one()
    except OSError as e:
        return str(e) or type(e).__name__
with concurrent.futures.ThreadPoolExecutor(len(tries)) as pool:
    print(json.dumps(dict(zip(tries, pool.map(outcome, tries.values())))), flush=True)
"""


def own_address():
    """Of this machine, beside loopback; loopback if it has no other."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            s.connect(("192.0.2.1", 9))
            return s.getsockname()[0]
        except OSError:
            return "127.0.0.1"


@NEEDS_ROOT
class ReplicaPorts(EndpointTest):
    server = SERVER

    @classmethod
    def setUpClass(cls):
        cls.rig = Rig(sim="1xH100")
        cls.addClassCleanup(cls.rig.close)
        cls.rig.ok("user", "create", "bo", "--unix-name", "nobody")
        cls.rig.ok("project", "member", "default", "bo")
        cls.bo = {"BILLOW_TOKEN": cls.rig.token_for("bo")}

    @classmethod
    def tearDownClass(cls):
        """Done by the cleanup of the class."""

    def setUp(self):
        super().setUp()
        if "replica guard: not available" in self.rig.cli("doctor", "--json").text:
            self.skipTest("this machine attaches no BPF programs to control groups")
        with open(self.rig.file("caller.py"), "w", encoding="utf-8") as f:
            f.write(CALLER)
        self.addCleanup(self.rig.node_policy, USUAL_POLICY)

    def serve(self, *options):
        self.deploy("app", "--max", 1, *options)
        self.assertEqual(self.call("app")[2], b"the answer")
        replica = self.endpoint("app")["replicas"][0]["job"]
        return replica, self.port_of(replica)

    def port_of(self, job):
        return int(self.rig.job(job)["labels"]["billow.port"])

    def words(self, port):
        return ["python3", self.rig.file("caller.py"), str(port), own_address()]

    def from_account(self, port, uid):
        done = subprocess.run(
            self.words(port), stdout=subprocess.PIPE, check=True, user=uid, group=uid, timeout=120
        )
        return json.loads(done.stdout)

    def from_job(self, port, *options, **env):
        words = ("run", "--gpus", "0", "--no-sync", *options, "--", *self.words(port))
        return json.loads(self.rig.ok(*words, cwd="/", env=env or None, timeout=120).text)

    def refused(self, got):
        self.assertGreater(len(got), 10)
        self.assertEqual({k: v for k, v in got.items() if "REACHED" in v}, {})

    def test_other_accounts_and_jobs_do_not_reach_it(self):
        _, port = self.serve()
        os.chmod(self.rig.files, 0o755)
        for who, attack in {
            "an account without a job": lambda: self.from_account(port, 65534),
            "a job of another user": lambda: self.from_job(port, **self.bo),
        }.items():
            with self.subTest(who):
                self.refused(attack())
        for who, attack in {
            "root without a job": lambda: self.from_account(port, 0),
            "a job of root, whose replica it is": lambda: self.from_job(port),
        }.items():
            with self.subTest(who):
                got = attack()
                got.pop("priority")  # root can say that it is the agent
                self.refused(got)
        self.assertEqual(self.call("app")[2], b"the answer")

    def test_the_agent_fetches_nothing_from_it(self):
        _, port = self.serve()
        done = self.rig.cli(
            "run", "--gpus", "0", "--input", f"http://127.0.0.1:{port}/:got", "--", "cat", "got",
            cwd="/", env=self.bo, timeout=120,
        )
        self.assertNotIn("the answer", done.text, done)

    def test_a_tunnel_to_an_address_that_looks_like_any_does_not_reach_it(self):
        with open(self.rig.file("serve.py"), "w", encoding="utf-8") as f:
            # At one address, so that the same port is free at others.
            f.write(SERVER.replace('("::"', '("127.0.0.1"').replace("AF_INET6", "AF_INET"))
        _, port = self.serve()
        # IP_FREEBIND, which everybody may set: at an address that this machine does not have.
        listen = (
            "import socket, time; s = socket.socket(); s.setsockopt(0, 15, 1)"
            f"; s.bind(('0.1.2.3', {port})); s.listen(); print('begun', flush=True)"
            "; time.sleep(600)"
        )
        words = ("submit", "--json", "--gpus", "0", "--no-sync", "--", "python3", "-c", listen)
        job = self.rig.cli(*words, cwd="/", env=self.bo).json["id"]
        self.addCleanup(self.rig.cli, "stop", "--force", job)
        poll(lambda: "begun" in self.rig.cli("logs", job).text, "its start", 60)
        self.assertNotIn(b"the answer", self.through_tunnel(job, port, self.bo))

    def through_tunnel(self, job, port, env=None):
        """What comes back for a request through `billow port-forward`."""
        tunnel = self.rig.start("port-forward", job, f":{port}", env=env or {})
        try:
            local = int(tunnel.stdout.readline().decode().split(":")[1].split()[0])
            with socket.create_connection(("127.0.0.1", local), 20) as s:
                s.sendall(b"GET / HTTP/1.0\r\n\r\n")
                got = b""
                while piece := s.recv(4096):
                    got += piece
                return got
        except ConnectionError:
            return b""
        finally:
            tunnel.terminate()
            tunnel.wait()
            tunnel.stdout.close()
            tunnel.stderr.close()

    def test_its_gateway_itself_and_tunnels_reach_it(self):
        replica, port = self.serve()
        self.assertEqual(self.call("app", "/self")[2], b"the answerthe answer")
        self.assertIn(b"the answer", self.through_tunnel(replica, port))

    def test_it_stays_closed_while_agent_and_gateway_are_replaced(self):
        _, port = self.serve()
        self.rig.kill(self.rig.agent_pid())
        self.refused(self.from_account(port, 65534))
        before = self.gateway_pid()
        self.rig.kill(before)
        poll(lambda: self.gateway_pid() not in (0, before), "another gateway", 60)
        self.assertEqual(self.again("app")[2], b"the answer")
        self.refused(self.from_account(port, 65534))

    def test_the_nodes_owner_can_open_it(self):
        self.rig.node_policy(USUAL_POLICY + "\nreplicas open")
        _, port = self.serve()
        self.assertIn("REACHED", self.from_account(port, 65534)["loopback"])

