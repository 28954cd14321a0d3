"""Jobs with --network project reach each other and nothing else."""
import json
import os
import signal

import world as around
from attacks_internet_test import OnANode, STRICT, networks
from attacks_neighbour_test import NEEDS_ROOT
from rig import alive, poll


# Offers a port on all addresses, and says which one is its own.
OFFERS = """
import os, socket
s = socket.create_server(("0.0.0.0", 7777))
loopback = socket.create_server(("127.0.0.1", 7778))
hidden = socket.socket(socket.AF_UNIX)
hidden.bind("\\0billow-offer")
hidden.listen()
print("offers at", os.environ["BILLOW_JOB_ADDRESS"], flush=True)
while True:
    s.accept()[0].sendall(b"neighbour")
"""
VISITS = """
import errno, json, socket, sys
def tcp(host, port):
    return socket.create_connection((host, port), 3).recv(64).decode()
def unix():
    socket.socket(socket.AF_UNIX).connect("\\0billow-offer")
    return "connected"
def spoof():
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    return "made"
out = {}
for name, attempt in {
    **{"port of " + host: lambda host=host: tcp(host, 7777) for host in sys.argv[1:]},
    "its loopback": lambda: tcp(sys.argv[1], 7778),
    "its abstract socket": unix,
    "the Internet": lambda: tcp("198.51.100.10", 80),
    "a name": lambda: tcp("good.test", 80),
    "the node": lambda: tcp("203.0.113.7", 80),
    "the node's loopback": lambda: tcp("127.0.0.1", 80),
    "a private network": lambda: tcp("10.20.30.40", 80),
    "the metadata service": lambda: tcp("169.254.169.254", 80),
    "the first address": lambda: tcp("100.64.0.1", 80),
    "packets of its own": spoof,
}.items():
    try:
        out[name] = "GOT " + attempt()
    except socket.gaierror:
        out[name] = "no name"
    except socket.timeout:
        out[name] = "silence"
    except OSError as e:
        out[name] = errno.errorcode.get(e.errno, str(e.errno))
print(json.dumps(out))
"""


@NEEDS_ROOT
class Project(OnANode):
    network = "project"

    def offer(self, *options, user="bo"):
        job = self.submit(OFFERS, *options, user=user)
        self.logged(job, "offers at")
        return job, self.rig.cli("logs", job).text.split()[-1]

    def visit(self, *hosts, options=(), user="bo"):
        where = self.directory(visits=VISITS)
        words = ("run", "--gpus", "0", *STRICT, "--network", "project", *options)
        done = self.cli(*words, "--", around.PYTHON, "visits.py", *hosts, user=user, cwd=where)
        self.assertEqual(done.code, 0, done)
        got = json.loads(done.text.strip().splitlines()[-1])
        open_ = {name: result for name, result in got.items() if name.startswith("port of")}
        rest = {name: result for name, result in got.items() if name not in open_}
        self.assertEqual({n: r for n, r in rest.items() if r.startswith("GOT")}, {})
        return [open_["port of " + host] for host in hosts]

    def test_jobs_of_one_project_reach_each_other_and_nothing_else(self):
        job, address = self.offer("--name", "server")
        got = self.visit(address, f"job-{job}", "server")
        self.assertEqual(got, ["GOT neighbour"] * 3)

    def test_jobs_of_other_projects_do_not(self):
        job, address = self.offer()
        other = ("--project", "other")
        got = self.visit(address, f"job-{job}", options=other, user="eve")
        self.assertEqual([g for g in got if g.startswith("GOT")], [])
        third, _ = self.offer(*other, user="eve")
        self.assertEqual(self.visit(f"job-{third}"), ["no name"])

    def test_a_job_takes_no_name_of_others(self):
        self.offer("--name", "Localhost")
        self.offer("--name", "job-999999")
        words = ("run", "--gpus", "0", *STRICT, "--network", "project", "--", "cat", "/etc/hosts")
        hosts = self.cli(*words, user="bo", cwd=self.directory()).text
        self.assertIn("job-", hosts)
        self.assertNotIn("Localhost", hosts)
        self.assertNotIn("job-999999", hosts)

    def test_they_reach_each_other_after_the_agent_was_killed(self):
        job, address = self.offer()
        network = os.stat(f"/proc/{self.first_process(job)}/ns/net").st_ino
        agent = self.rig.agent_pid()
        os.kill(agent, signal.SIGKILL)
        poll(lambda: not alive(agent), "the agent's end")
        self.rig.up()
        self.rig.wait_for(job, "running", 60)
        poll(
            lambda: self.visit(address, f"job-{job}") == ["GOT neighbour"] * 2, "the old job", 60
        )
        self.rig.ok("stop", "--force", job)
        poll(lambda: network not in networks(), "the end of the job's network", 20)

    def test_the_node_shows_nothing_of_it(self):
        before = self.devices()
        self.offer()
        self.assertEqual(self.devices(), before)

    def devices(self):
        with open(f"/proc/{self.world.node}/net/dev", encoding="ascii") as f:
            return [line.split(":")[0].strip() for line in f if ":" in line]
