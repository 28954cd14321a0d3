"""An endpoint in two regions, with a gateway in each: own replicas first, own demand, and a region
that is lost."""
import http.client
import json
import os
import subprocess
import threading
import unittest

from endpoints_test import EndpointTest
from rig import poll


class Regions(EndpointTest):
    """Two regions on one machine: a node and a gateway in each."""

    options = {"args": ("--label", "region=eu", "--node-name", "eu1")}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.join_us()
        cls.us_dir = os.path.join(cls.rig.root, "us-gateway")
        cls.us = cls.open_us()

    @classmethod
    def join_us(cls):
        node = cls.rig.start(
            "agent",
            "--head",
            "unix:" + cls.rig.data + "/head.sock",
            "--token-file",
            cls.rig.node_token_file("us1"),
            "--data",
            os.path.join(cls.rig.root, "us-node"),
            "--sim",
            "4xH100",
            "--node-name",
            "us1",
            "--label",
            "region=us",
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        poll(
            lambda: {
                n["name"]
                for n in cls.rig.json("nodes")["nodes"]
                if n.get("state", "ready") == "ready"
            }
            == {"eu1", "us1"},
            "both nodes",
        )
        return node

    @classmethod
    def open_us(cls):
        return cls.rig.start(
            "gateway",
            "--region",
            "us",
            "--head",
            "unix:" + cls.rig.data + "/head.sock",
            "--token-file",
            cls.rig.data + "/token",
            "--listen",
            "127.0.0.1:0",
            "--data",
            cls.us_dir,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def at(self, region, path="/", headers=None, timeout=60, starting=False):
        """The answer's document through that region's gateway. Empty from one that is starting and
        has not heard from its head yet."""
        if region == "eu":
            host, port = self.gateway()
        else:

            def there():
                try:
                    with open(self.us_dir + "/address", encoding="ascii") as f:
                        return f.read().strip()
                except OSError:
                    return ""

            host, port = poll(there, "the gateway of us").rsplit(":", 1)
        connection = http.client.HTTPConnection(host, int(port), timeout=timeout)
        try:
            connection.request("GET", "/f/chat" + path, headers=headers or {})
            answer = connection.getresponse()
            body = answer.read()
            if starting and answer.status == 503 and b"not reached its head yet" in body:
                return {}
            self.assertEqual(answer.status, 200, body)
            return json.loads(body)
        finally:
            connection.close()

    def replicas(self):
        """region -> job -> state of its task"""
        out = {"eu": {}, "us": {}}
        for r in self.endpoint("chat")["replicas"]:
            out.setdefault(r.get("region", ""), {})[str(r["job"])] = r.get("task_state")
        return out

    def serve(self, *options):
        # Nothing is deployed before both gateways are there: the first is started with the first
        # endpoint.
        self.deploy("warm", "--gpus", 0)
        poll(lambda: len(self.endpoint("warm")["urls"]) == 2, "both gateways")
        self.deploy("chat", "--regions", "eu,us", "--gpus", 1, *options)

    def test_each_region_serves_its_own_and_follows_its_own_demand(self):
        self.serve("--max", 3, "--concurrency", 4, "--idle", "1m")
        began = poll(
            lambda: (lambda r: r if all(len(r[x]) == 1 for x in ("eu", "us")) else None)(
                self.replicas()
            ),
            "a replica in each region",
        )
        where = {str(r["job"]): r["node"] for r in self.endpoint("chat")["replicas"]}
        for region in ("eu", "us"):
            answer = self.at(region)
            self.assertIn(answer["job"], began[region], "served by its own region")
            self.assertEqual(where[answer["job"]], region + "1")
            self.assertIsNone(answer["peer"])
        self.assertEqual(set(began), {"eu", "us"})
        threads = [threading.Thread(target=self.at, args=("us", "/slow=2")) for _ in range(16)]
        for t in threads:
            t.start()
        poll(lambda: len(self.replicas()["us"]) == 3, "more where the requests are")
        self.assertEqual(len(self.replicas()["eu"]), 1)
        for t in threads:
            t.join()

    def test_where_nobody_is_awake_the_nearest_region_serves_and_one_is_woken(self):
        self.serve("--idle", "1m", "--access", "open")  # one that proxies may call
        replicas = self.replicas()
        mine, other = next(iter(replicas["us"])), next(iter(replicas["eu"]))
        self.at("eu")
        poll(lambda: self.at("us")["job"] == mine, "us in its own hands")
        self.rig.ok("suspend", "--wait", mine)
        answer = self.at("us", headers={"X-Forwarded-For": "6.6.6.6"})
        self.assertIn(answer["job"], (other, mine))
        self.assertIsNone(answer["peer"], "no replica learns how gateways know each other")
        self.assertEqual(answer["from"], "127.0.0.1")
        poll(lambda: self.at("us")["job"] == mine, "its own replica again, woken by that demand")
        self.assertEqual(len(self.replicas()["us"]), 1)
        # A client does not pass for a gateway.
        with self.assertRaises(AssertionError):
            self.at("us", headers={"X-Billow-Peer": "guess"})

    def test_a_region_that_is_lost_is_served_by_the_other(self):
        self.serve("--idle", "1m")
        jobs = self.replicas()
        us = poll(
            lambda: (lambda a: a if a["job"] in jobs["us"] else None)(self.at("us")),
            "us in its own hands",
        )
        node = next(p for p in self.rig.started if "us1" in p.args and p.poll() is None)
        node.kill()
        node.wait()
        os.kill(us["pid"], 9)
        for _ in range(20):
            self.assertIn(self.at("us")["job"], jobs["eu"])
        # Its gateway goes as well: the other serves on, and takes it back when it returns.
        self.us.kill()
        self.us.wait()
        for _ in range(5):
            self.assertIn(self.at("eu")["job"], jobs["eu"])
        os.unlink(
            self.us_dir + "/address"
        )  # of the one that was killed: the next has another port, and says so when it listens
        type(self).us = self.open_us()
        self.join_us()
        poll(
            lambda: self.at("us", starting=True).get("job", "") not in ("", *jobs["eu"]),
            "a replica of us in the place of the one that died",
            60,
        )


if __name__ == "__main__":
    unittest.main()
