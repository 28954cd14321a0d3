"""A neighbour on the node that binds the ports of replicas: what it answers is never taken for
theirs."""
import json
import os

from endpoints_test import EndpointTest
from rig import poll

# Binds whatever port it finds wanted, as soon as it can be had, and notes each request it is asked.
SQUATTER = """
import glob, os, socket, sys, threading, time
os.chdir(sys.argv[1])
def serve(listener):
    while True:
        connection, _ = listener.accept()
        head = connection.recv(65536).decode("latin-1")
        with open("stolen", "a") as f:
            f.write(head.split("\\r\\n")[0] + "\\n")
        connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 6\\r\\nConnection: close\\r\\n\\r\\nstolen")
        connection.close()
have = set()
open("squatting", "w").close()
while True:
    for name in glob.glob("want-*"):
        port = int(name.split("-")[1])
        if port in have:
            continue
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
            listener.listen(16)
        except OSError:
            listener.close()
            continue
        have.add(port)
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        open(f"taken-{port}", "w").close()
    time.sleep(0.001)
"""

# The first replica is slow to bind its port and loses it; what it does then is told by its
# argument. Its successors are quick.
SERVER = """
import errno, http.server, os, sys, threading, time
os.chdir(sys.argv[1])
port, on_loss = int(os.environ["PORT"]), sys.argv[2]
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"mine")
        if self.path == "/drop":
            open(f"want-{port}", "w").close()
            server.socket.close()
    def log_message(self, *args):
        pass
class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128
if on_loss != "drop":
    try:
        os.close(os.open("robbed", os.O_CREAT | os.O_EXCL))
        open(f"want-{port}", "w").close()
        while not os.path.exists(f"taken-{port}"):
            time.sleep(0.001)
    except FileExistsError:
        pass
try:
    server = Server(("127.0.0.1", port), Handler)
except OSError as e:
    assert e.errno == errno.EADDRINUSE
    if on_loss == "exit":
        sys.exit(9)
    time.sleep(600)
try:
    server.serve_forever()
except (OSError, ValueError):
    time.sleep(600)
"""


class Squat(EndpointTest):
    def setUp(self):
        super().setUp()
        for name, text in (("squat.py", SQUATTER), ("slow.py", SERVER)):
            with open(self.rig.file(name), "w", encoding="utf-8") as f:
                f.write(text)
        self.squatter = self.rig.json(
            "submit", "--", "python3", self.rig.file("squat.py"), self.rig.files
        )["id"]
        self.addCleanup(self.rig.cli, "stop", str(self.squatter))
        poll(lambda: os.path.exists(self.rig.file("squatting")), "the squatter")

    def serve(self, on_loss):
        return self.rig.json(
            "deploy",
            "app",
            "--max",
            1,
            "--",
            "python3",
            self.rig.file("slow.py"),
            self.rig.files,
            on_loss,
            timeout=90,
        )

    def stolen(self):
        try:
            with open(self.rig.file("stolen"), encoding="utf-8") as f:
                return f.read()
        except FileNotFoundError:
            return ""

    def robbed_replicas(self):
        jobs = self.rig.json("ps", "--all")["jobs"]
        return [
            j
            for j in jobs
            if j["id"] > self.squatter
            and "another process uses its port" in json.dumps(j)
        ]

    def only_mine(self):
        for _ in range(20):
            status, _, body = self.call("app", "/call")
            self.assertEqual((status, body), (200, b"mine"))

    def robbed_while_starting(self, on_loss):
        self.serve(on_loss)
        self.only_mine()
        self.assertEqual(self.stolen(), "", "the neighbour was asked, if only for its health")
        robbed = poll(self.robbed_replicas, "the replica that lost its port")
        self.assertEqual([j["state"] for j in robbed], ["failed"])
        self.assertEqual(
            [r["state"] for r in self.endpoint("app")["revisions"]],
            ["serving"],
            "no fault of the revision",
        )

    def test_a_port_taken_before_a_slow_replica_binds_it(self):
        self.robbed_while_starting("hang")

    def test_a_replica_that_ends_because_its_port_is_taken(self):
        self.robbed_while_starting("exit")

    def test_a_port_taken_over_from_a_replica_that_served(self):
        self.serve("drop")
        self.only_mine()
        first = self.endpoint("app")["replicas"][0]["job"]
        self.assertEqual(self.call("app", "/drop")[2], b"mine")
        # From its agent's next look on nobody is sent there, whoever has it; its successor has
        # another port.
        poll(
            lambda: [j for j in self.robbed_replicas() if j["id"] == first]
            or not any(r["job"] == first for r in self.endpoint("app")["replicas"]),
            "the end of the replica without a port",
        )
        asked = self.stolen()
        self.only_mine()
        self.assertEqual(self.stolen(), asked)
