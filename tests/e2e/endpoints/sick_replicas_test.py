"""Replicas that hang, say that they are sick, or answer with errors: the others keep serving, and the
sick one is replaced or returns."""
import json
import os
import threading
import time
import unittest

import replica
from endpoints_test import EndpointTest
from rig import poll

SERVER = replica.program(
    """
HUNG = threading.Event()
BAD = set()
SERIAL = threading.Lock()
def answer(self):
    if self.path in ("/hang", "/sick", "/errors"):
        (HUNG.set if self.path == "/hang" else lambda: BAD.add(self.path))()
    elif HUNG.is_set():
        time.sleep(3600)
    bad = "/sick" in BAD if self.path == "/health" else "/errors" in BAD
    if self.path == "/work":
        with SERIAL:
            time.sleep(0.05)
    self.say({"pid": os.getpid()}, 503 if bad else 200)
"""
)


class SickReplicas(EndpointTest):
    server = SERVER

    def pid(self, name, path="/"):
        status, _, body = self.call(name, path)
        return json.loads(body)["pid"] if status == 200 else status

    def load(self, name, path, clients, seconds):
        """The statuses and the replicas' process ids of what so many clients got."""
        until, got, lock = time.monotonic() + seconds, [], threading.Lock()

        def one():
            while time.monotonic() < until:
                status, _, body = self.call(name, path)
                with lock:
                    got.append((status, json.loads(body).get("pid") if body else None))

        threads = [threading.Thread(target=one) for _ in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return got

    def test_a_hung_replica_does_not_take_the_endpoint_along(self):
        self.deploy("hang", "--min", 4, "--max", 4, "--timeout", "2s", "--health", "/health")
        hung = self.pid("hang", "/hang")
        self.load("hang", "/", 8, 6)
        poll(lambda: self.figure("hang", "left_out") >= 1, "the hung replica left out", 30)
        later = self.load("hang", "/", 8, 3)
        self.assertEqual({status for status, _ in later}, {200})
        self.assertNotIn(hung, {pid for _, pid in later})
        poll(lambda: not os.path.exists(f"/proc/{hung}"), "the hung replica replaced", 90)
        poll(lambda: self.figure("hang", "ready") == 4, "four replicas again", 60)

    def test_a_replica_that_says_it_is_sick_gets_nothing(self):
        self.deploy("sick", "--min", 2, "--max", 2, "--health", "/health")
        sick = self.pid("sick", "/sick")
        poll(lambda: self.figure("sick", "left_out") >= 1, "the sick replica left out", 60)
        got = self.load("sick", "/", 4, 2)
        self.assertEqual({status for status, _ in got}, {200})
        self.assertNotIn(sick, {pid for _, pid in got})

    def test_a_replica_that_answers_with_errors_is_left_out(self):
        self.deploy("errors", "--min", 3, "--max", 3, "--health", "/health")
        self.call("errors", "/errors")
        self.load("errors", "/", 6, 3)
        poll(lambda: self.figure("errors", "left_out") >= 1, "the failing replica left out", 30)
        got = self.load("errors", "/", 4, 2)
        self.assertGreater(len(got), 20)
        self.assertEqual({status for status, _ in got}, {200})

    def test_awake_replicas_share_the_work(self):
        self.deploy("share", "--min", 4, "--max", 4)
        poll(lambda: self.figure("share", "ready") == 4, "four replicas")
        got = self.load("share", "/work", 8, 3)
        self.assertEqual(len({pid for _, pid in got}), 4)


if __name__ == "__main__":
    unittest.main()
