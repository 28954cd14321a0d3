"""Fabric checks: nodes on a real network (namespaces) that send to each other, and GPUs of the
simulated driver."""
import os
import subprocess
import unittest

from far import FarCase
from rig import BILLOW, Rig, poll

SIM_CUDA = os.path.join(os.path.dirname(os.path.abspath(BILLOW)), "../sim-cuda/libcuda.so.1")


def slow_down(network, host, rate):
    """Limits what the switch sends to that host; False where the kernel cannot."""
    return (
        subprocess.run(
            [
                "ip",
                "netns",
                "exec",
                network.switch,
                "tc",
                "qdisc",
                "replace",
                "dev",
                network.hosts[host][1],
                "root",
                "tbf",
                "rate",
                rate,
                "burst",
                "64kb",
                "latency",
                "50ms",
            ],
            capture_output=True,
            check=False,
        ).returncode
        == 0
    )


class Network(FarCase):
    hosts = ("head", "a", "b", "c")
    joined = ("a", "b", "c")

    def check(self, *options):
        return self.rig.json("check", "fabric", *options, timeout=120)

    def listening(self, host):
        return subprocess.run(
            [*self.net.inside(host), "ss", "-Hltn"], capture_output=True, text=True, check=True
        ).stdout.strip()

    def test_slow_links_are_found_kept_and_told(self):
        before = self.listening("a")
        first = self.check()
        ways = {(w["from"], w["to"]): w for w in first["ways"]}
        self.assertEqual(len(ways), 3, first)
        for way in ways.values():
            self.assertEqual(way["error"], "", way)
            self.assertGreater(way["mbit_s"], 0)
            self.assertEqual(
                (way["interface"], way["expected_mbit_s"]), ("eth0", 10000)
            )  # a veth says ten gigabits
        poll(
            lambda: all("fabric-net-mbit-s" in n["labels"] for n in self.rig.nodes().values()),
            "the figures as labels",
            30,
        )
        if not slow_down(self.net, "c", "20mbit"):
            self.skipTest("this kernel has no token bucket")
        second = self.check()
        slow = {n["name"]: n for n in second["nodes"]}
        self.assertLess(slow["c"]["net_mbit_s"], 60, second)
        self.assertTrue([w for w in second["warnings"] if w.startswith("c: ")], second)
        poll(
            lambda: self.rig.nodes()["c"]["labels"].get("fabric-net") == "slow",
            "the verdict as a label",
            30,
        )
        text = self.rig.ok("check", "fabric", "--node", "b", "--node", "c", timeout=120).text
        self.assertIn("should give", text)
        # Whoever starts a gang over it is told before it runs, and everybody who asks.
        gang = ("--nodes", 3, "--gpus", 1)
        done = self.rig.ok("run", *gang, "--", "true", timeout=60)
        self.assertIn("warning: slow network at", done.errors)
        job = self.rig.submit(*gang, "--", "sleep", "60")
        self.rig.wait_for(job, "running")
        self.assertIn("slow network at", self.rig.ok("explain", job).text)
        self.rig.ok("stop", "--force", "--wait", job)
        alone = self.rig.ok("run", "--gpus", 1, "--", "true", timeout=60)
        self.assertNotIn("warning", alone.errors)
        # Nothing listens any more than before.
        poll(lambda: self.listening("a") == before, "no port left open", 40)
        # The figures are the node's own, and outlive its agent.
        self.assertEqual(self.rig.nodes()["c"]["labels"].get("fabric-net"), "slow")

    def test_what_cannot_be_checked_is_said(self):
        done = self.rig.cli("check", "fabric", "--node", "nowhere")
        self.assertNotEqual(done.code, 0)
        self.assertIn('no node "nowhere"', done.errors)
        done = self.rig.cli("check", "fabric", "--pool", "nowhere")
        self.assertIn('no pool "nowhere"', done.errors)
        alone = self.check("--node", "a")
        self.assertEqual(alone["ways"], [])
        job = self.rig.submit("--gpus", 1, "--", "sleep", "60")
        node = self.rig.wait_for(job, "running")["tasks"][0]["node"]
        busy = self.check("--node", node)["nodes"][0]
        self.assertIn("in use", busy["why_not"])
        self.rig.ok("stop", "--force", "--wait", job)


class Gpus(unittest.TestCase):
    """The driver is the simulated one: it proves how the figures are made, kept and compared, and
    no figure."""

    def run_with(self, gb_s, sim="4xH100"):
        rig = Rig(
            sim=sim,
            BILLOW_CUDA=SIM_CUDA,
            BILLOW_SIM_CUDA_DEVICES="4",
            BILLOW_SIM_CUDA_PEER_GB_S=str(gb_s),
        )
        try:
            poll(lambda: rig.json("nodes")["nodes"], "the node")
            result = rig.json("check", "fabric", timeout=120)
            labels = poll(
                lambda: (lambda l: l if "fabric-gpu" in l else None)(
                    rig.json("nodes")["nodes"][0]["labels"]
                ),
                "the figures as labels",
                30,
            )
            told = rig.ok("run", "--gpus", 2, "--", "true", timeout=60).errors
            return result, labels, told
        finally:
            rig.close()

    def test_links_as_fast_as_they_should_be(self):
        result, labels, told = self.run_with(
            5000
        )  # faster than it need be: a busy machine wakes late
        node = result["nodes"][0]
        self.assertTrue(node["gpus_measured"], result)
        pairs = [p for p in node["gpu_pairs"] if p["from"] != "host"]
        self.assertEqual(len(pairs), 12)
        self.assertEqual(
            {p["expected_mb_s"] for p in pairs}, {450_000}
        )  # eighteen links of the fourth generation
        self.assertEqual(
            (labels["gpu-link"], labels["nvlink-gpus"], labels["fabric-gpu"]),
            ("nvlink4", "4", "ok"),
        )
        self.assertNotIn("warning", told)

    def test_a_slow_link_is_told(self):
        result, labels, told = self.run_with(20)
        self.assertEqual(labels["fabric-gpu"], "slow")
        self.assertTrue([w for w in result["warnings"] if "from GPU" in w], result)
        self.assertIn("slower than their hardware should", told)

    def test_where_nothing_can_be_measured_nothing_is_called_fast(self):
        rig = Rig(sim="2xL4", BILLOW_CUDA="/nonexistent/libcuda.so.1")
        try:
            poll(lambda: rig.json("nodes")["nodes"], "the node")
            rig.wait_for(
                rig.submit("--", "sleep", "60"), "running"
            )  # it holds no GPU, so it is in nobody's way
            text = rig.ok("check", "fabric", timeout=120).text
            self.assertIn("GPUs not measured: no CUDA driver", text)
            self.assertNotIn("billow:", text)
            self.assertIn("no link was measured", text)
        finally:
            rig.close()

    def test_cards_without_nvlink_are_told(self):
        rig = Rig(sim="2xL4")
        try:
            node = poll(lambda: rig.json("nodes")["nodes"], "the node")[0]
            self.assertEqual(node["labels"]["gpu-link"], "pcie4")
            self.assertIn(
                "have no NVLink and exchange data over PCIe",
                rig.ok("run", "--gpus", 2, "--", "true").errors,
            )
            self.assertNotIn("NVLink", rig.ok("run", "--gpus", 1, "--", "true").errors)
        finally:
            rig.close()


if __name__ == "__main__":
    unittest.main()
