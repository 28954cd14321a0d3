"""Traffic that leaves, metered and charged, with real sockets: a network of its own in which an address is as public as any, so that bytes
leave without going anywhere."""
import csv
import io
import json
import os
import sqlite3
import subprocess
import tempfile
import unittest

from rig import Rig, poll

OUTSIDE = "203.0.113.7"
PRICE = 1_000_000_000_007  # nano-dollars a GiB: $1000.000000007, so that rounding shows

# Everything a job may do: a long connection, many that live for milliseconds, datagrams; and what
# stays at home.
SENDER = """
import socket, sys, time
port, inside, phases = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
def tcp(to, times, size):
    for _ in range(times):
        out = socket.create_connection((to, port))
        out.sendall(bytes(size))
        out.close()
for phase in phases:
    if phase == "long":
        out = socket.create_connection(("203.0.113.7", port))
        for _ in range(20):
            out.sendall(bytes(1 << 20))
            time.sleep(0.05)
        out.close()
    elif phase == "held":                       # open for several looks at it
        out = socket.create_connection(("203.0.113.7", port))
        out.sendall(bytes(20 << 20))
        time.sleep(12)
    elif phase == "short":
        tcp("203.0.113.7", 50, 100_000)
    elif phase == "datagrams":
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        for _ in range(100):
            s.sendto(bytes(10_000), ("203.0.113.7", port))
    elif phase == "home":
        tcp("127.0.0.1", 10, 100_000)
        tcp("10.20.30.40", 10, 100_000)
    elif phase.startswith("wait:"):
        import os
        while not os.path.exists(phase[5:]): time.sleep(0.1)
    print("done", phase, flush=True)
"""
BYTES = {"long": 20 << 20, "held": 20 << 20, "short": 5_000_000, "datagrams": 1_000_000, "home": 0}

# The other side, no part of any job: takes whatever comes, and says how much of it came over TCP.
RECEIVER = """
import selectors, socket
tcp, udp = socket.create_server(("", 0)), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind(("", tcp.getsockname()[1]))
print(tcp.getsockname()[1], flush=True)
wait = selectors.DefaultSelector()
for s in (tcp, udp): wait.register(s, selectors.EVENT_READ)
while True:
    for key, _ in wait.select():
        if key.fileobj is tcp: wait.register(tcp.accept()[0], selectors.EVENT_READ)
        elif key.fileobj is udp: udp.recv(1 << 16)
        elif not key.fileobj.recv(1 << 20): wait.unregister(key.fileobj); key.fileobj.close()
"""


class Space:
    """A network and mounts of its own, kept by a process in it. `groups`: with a cgroup v2
    hierarchy, in which the kernel can count."""

    def __init__(self, groups):
        self.folder = tempfile.mkdtemp(prefix="billow-egress-")
        setup = (
            f"ip link set lo up && ip addr add {OUTSIDE}/32 dev lo && ip addr add 10.20.30.40/32"
            " dev lo"
        )
        setup += (
            f" && mount -t cgroup2 none {self.folder}"
            if groups
            else " && { umount -a -t cgroup2 2>/dev/null; true; }"
        )
        self.keeper = subprocess.Popen(
            [
                "unshare",
                "-n",
                "-m",
                "--propagation",
                "private",
                "sh",
                "-c",
                f"{setup} && echo ready && exec cat",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.usable = self.keeper.stdout.readline() == b"ready\n"

    def inside(self, *command):
        return [
            "nsenter",
            "-t",
            str(self.keeper.pid),
            "-n",
            "-m",
            "sh",
            "-c",
            'cd "$0" && exec "$@"',
            os.getcwd(),
            *command,
        ]

    def close(self):
        self.keeper.stdin.close()
        self.keeper.wait()
        self.keeper.stdout.close()
        os.rmdir(self.folder)


class Egress(unittest.TestCase):
    def start(self, groups):
        if os.geteuid() != 0:
            self.skipTest("needs root")
        space = Space(groups)
        self.addCleanup(space.close)
        if not space.usable:
            self.skipTest("no network or mounts of its own can be made here")
        receiver = subprocess.Popen(space.inside("python3", "-c", RECEIVER), stdout=subprocess.PIPE)
        self.addCleanup(receiver.stdout.close)
        self.addCleanup(receiver.wait)
        self.addCleanup(receiver.kill)
        self.port = int(receiver.stdout.readline())

        class Inside(Rig):
            def command(self, *args):
                return space.inside(*super().command(*args))

        self.rig = Inside(sim="1xH100")
        self.addCleanup(self.rig.close)
        self.rig.ok("price", "set", "H100", "--cost", "3.60")
        self.assertEqual(
            self.rig.api("PUT", "/v1/prices", {"of": "pool:local", "egress_gib": PRICE}).status, 200
        )

    def submit(self, *phases):
        return self.rig.submit(
            "--gpus", "1", "--", "python3", "-c", SENDER, self.port, OUTSIDE, *phases
        )

    def events(self, kind):
        with sqlite3.connect(f"file:{self.rig.data}/billow.db?mode=ro", uri=True) as db:
            return [
                (
                    json.loads(payload)["event"]
                    if "event" in json.loads(payload)
                    else json.loads(payload)
                )
                for (payload,) in db.execute(
                    "SELECT payload FROM events WHERE kind = ? ORDER BY seq", (kind,)
                )
            ]

    def meter(self):
        return self.events("task_ended")[-1]["usage"]["meter"]

    def check_money(self, job, meter):
        """Every figure anywhere is the metered bytes at their price, to the nano-dollar, and what
        was held."""
        egress = meter["egress_bytes"] * PRICE >> 30
        self.assertEqual(meter["egress"], egress)
        ended, placed = self.events("task_ended")[-1], self.events("job_placed")[-1]["tasks"][0]
        held = placed["rate"] * (ended["lease_to_ns"] - placed["lease_from_ns"]) // 10**9
        self.assertEqual(ended["cost"], held + egress)
        self.assertEqual(self.rig.job(job)["cost_nano_usd"], ended["cost"])
        report = self.rig.json("cost", "--job", job)
        self.assertEqual(
            (
                report["total"]["egress_nano_usd"],
                report["total"]["egress_bytes"],
                report["total"]["charge_nano_usd"],
            ),
            (egress, meter["egress_bytes"], ended["cost"]),
        )
        self.assertEqual(sum(lease["egress_nano_usd"] for lease in report["leases"]), egress)
        for by in ("project", "job", "user,day", "gpu", "node"):
            total = self.rig.json("cost", "--by", by)
            self.assertEqual(
                sum(line["charge_nano_usd"] for line in total["lines"]),
                total["total"]["charge_nano_usd"],
                by,
            )
            self.assertEqual(
                (total["total"]["charge_nano_usd"], total["total"]["egress_nano_usd"]),
                (ended["cost"], egress),
                by,
            )
            fleet = total["fleet"]
            self.assertEqual(
                fleet["active_nano_usd"] + fleet["idle_nano_usd"] + fleet["unallocated_nano_usd"],
                fleet["cost_nano_usd"],
                by,
            )
        invoice = self.rig.json("invoice", "--project", "default")
        self.assertEqual(sum(line["egress_nano_usd"] for line in invoice["lines"]), egress)
        self.assertRegex(
            self.rig.ok("invoice", "--project", "default").text, r"egress +\d+(\.\d+)? MiB"
        )
        rows = list(csv.DictReader(io.StringIO(self.rig.ok("cost", "--focus").text)))
        traffic = [row for row in rows if row["ServiceCategory"] == "Networking"]
        self.assertEqual(
            [
                (row["ChargeCategory"], row["PricingUnit"], int(row["x_EgressBytes"]))
                for row in traffic
            ],
            [("Usage", "GiB", meter["egress_bytes"])],
        )
        as_nano = lambda text: int(text.partition(".")[0]) * 10**9 + int(
            text.partition(".")[2].ljust(9, "0") or 0
        )
        self.assertEqual(as_nano(traffic[0]["BilledCost"]), egress)
        self.assertEqual(sum(as_nano(row["BilledCost"]) for row in rows), ended["cost"])

    def test_what_leaves_is_counted_by_the_kernel_and_charged_to_the_nano_dollar(self):
        self.start(groups=True)
        phases = ("long", "short", "datagrams", "home")
        job = self.submit(*phases)
        self.assertEqual(self.rig.cli("wait", job, timeout=90).code, 0)
        meter, sent = self.meter(), sum(BYTES[p] for p in phases)
        print(
            f"sent {sent} bytes, metered"
            f" {meter['egress_bytes']} ({meter['egress_bytes'] / sent * 100 - 100:+.2f} %)"
        )
        self.assertGreaterEqual(
            meter["egress_bytes"], sent
        )  # nothing is lost, however short its socket lived
        self.assertLess(meter["egress_bytes"], sent * 1.05)  # headers, and what TCP had to repeat
        self.check_money(job, meter)

    def test_a_dead_agent_and_a_dead_head_neither_lose_nor_double_it(self):
        self.start(groups=True)
        gate = [self.rig.file(f"gate{i}") for i in range(3)]
        job = self.submit(
            "long", f"wait:{gate[0]}", "short", f"wait:{gate[1]}", "datagrams", "short"
        )
        says = lambda text, times=1: poll(
            lambda: self.rig.cli("logs", job).text.count(text) >= times, text, 60
        )
        says("done long")
        self.rig.kill(self.rig.agent_pid())
        open(gate[0], "w", encoding="utf-8").close()  # sent while no agent lives
        poll(
            lambda: any("wait:" in line for line in self.rig.processes().values()),
            "the job lives on",
            30,
        )
        self.rig.kill(self.rig.head_pid())
        self.rig.up()
        says("done short")
        open(gate[1], "w", encoding="utf-8").close()
        self.assertEqual(self.rig.cli("wait", job, timeout=90).code, 0)
        meter, sent = self.meter(), BYTES["long"] + 2 * BYTES["short"] + BYTES["datagrams"]
        print(
            f"sent {sent} bytes over two lives of agent and head, metered"
            f" {meter['egress_bytes']} ({meter['egress_bytes'] / sent * 100 - 100:+.2f} %)"
        )
        self.assertGreaterEqual(meter["egress_bytes"], sent)
        self.assertLess(meter["egress_bytes"], sent * 1.05)
        self.check_money(job, meter)

    def test_what_goes_through_a_tunnel_to_a_head_outside_is_counted(self):
        self.start(groups=True)
        self.rig.ok("down")
        self.rig.up("--no-agent", "--tls-name", OUTSIDE, listen=f"{OUTSIDE}:0")
        address = self.rig.json("status")["addresses"][0]
        self.rig.start(
            "join",
            address,
            "--token",
            self.rig.ok("token", "create", "--node").text.strip(),
            "--node-name",
            "far",
            "--data",
            os.path.join(self.rig.root, "far"),
            "--sim",
            "1xH100",
            "--label",
            "far=yes",
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        poll(
            lambda: any(
                n["name"] == "far" and n["state"] == "ready"
                for n in self.rig.json("nodes")["nodes"]
            ),
            "the node",
            60,
        )
        serve = (
            "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1],"
            " flush=True); c = s.accept()[0]; c.recv(1); c.sendall(bytes(3 << 20)); c.close();"
            " input()"
        )
        job = self.rig.submit(
            "--gpus",
            "1",
            "--node-label",
            "far=yes",
            "--",
            "sh",
            "-c",
            f'mkfifo {self.rig.files}/end; python3 -c "{serve}" < {self.rig.files}/end',
        )
        with open(
            poll(
                lambda: os.path.exists(self.rig.file("end")) and self.rig.file("end"), "the job", 60
            ),
            "w",
            encoding="ascii",
        ) as end:
            port = poll(lambda: self.rig.cli("logs", job).text.strip(), "its port", 60)
            tunnel = self.rig.start("port-forward", job, f":{port}")
            here = tunnel.stdout.readline().decode()
            local = here.split("127.0.0.1:")[1].split()[0]
            take = (
                f"import socket; s = socket.create_connection(('127.0.0.1', {local}));"
                " s.sendall(b'x'); n = 0\nwhile (b := s.recv(1 << 20)): n += len(b)\nprint(n)"
            )
            took = subprocess.run(
                self.rig.command("x")[:-2] + ["python3", "-c", take],
                capture_output=True,
                check=False,
                timeout=60,
            )
            self.assertEqual(took.stdout, b"3145728\n", took)
            end.write("done\n")
        self.assertEqual(self.rig.cli("wait", job, timeout=90).code, 0)
        tunnel.kill()
        tunnel.communicate()
        metered = self.meter()["egress_bytes"]
        self.assertEqual(
            metered, 3 << 20
        )  # the payload, once, and nothing of what came the other way

    def test_where_the_kernel_cannot_count_the_sockets_say_what_they_sent(self):
        self.start(groups=False)
        job = self.submit("held", "home")
        self.assertEqual(self.rig.cli("wait", job, timeout=90).code, 0)
        meter = self.meter()
        print(
            f"sent {BYTES['held']} bytes over TCP, metered {meter['egress_bytes']} from looks at"
            " its socket"
        )
        self.assertGreater(meter["egress_bytes"], 0)
        self.assertLessEqual(
            meter["egress_bytes"], BYTES["held"]
        )  # never more than was sent: what is not known is not charged
        self.check_money(job, meter)


if __name__ == "__main__":
    unittest.main()
