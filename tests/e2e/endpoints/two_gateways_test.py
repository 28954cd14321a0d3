"""Two gateways of one region: either serves every request, one of them decides, and the other takes
its place when it dies."""

import http.client
import json
import os
import signal
import subprocess
import threading
import unittest

import replica
from endpoints_test import EndpointTest
from rig import poll

# Each answer tells how many requests the replica has had at once.
COUNTS = """
lock, now, most = threading.Lock(), 0, 0

def answer(self):
    global now, most
    if self.path.startswith("/work"):
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.02)
        with lock:
            now -= 1
    if self.path.startswith("/seen"):
        return self.say({"who": sys.argv[1], "fields": [name.lower() for name in self.headers]})
    self.say({"most": most})
"""


class TwoGateways(EndpointTest):
    server = replica.program(COUNTS)

    def open_second(self):
        directory = os.path.join(self.rig.root, "second-gateway")
        process = self.rig.start(
            "gateway",
            "--head",
            "unix:" + self.rig.data + "/head.sock",
            "--token-file",
            self.rig.data + "/token",
            "--listen",
            "127.0.0.1:0",
            "--data",
            directory,
            "--threads",
            "2",
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

        def address():
            try:
                with open(directory + "/address", encoding="ascii") as f:
                    return f.read().strip()
            except OSError:
                return ""

        host, port = poll(address, "the second gateway").rsplit(":", 1)
        poll(lambda: len(self.endpoint("app")["urls"]) == 2, "the head knows of both")
        return process, (host, int(port))

    def first_pid(self):
        """Of the gateway that the head has started."""
        return next(
            (
                pid
                for pid, line in self.rig.processes().items()
                if " gateway --head" in line and "second-gateway" not in line
            ),
            0,
        )

    def ask(self, at, path="/", **headers):
        connection = http.client.HTTPConnection(*at, timeout=60)
        try:
            fields = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request("GET", "/f/app" + path, headers=fields)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except OSError as e:
            return 0, repr(e).encode()
        finally:
            connection.close()

    def test_slots_hold_for_both_and_the_second_takes_the_place_of_the_first(self):
        self.deploy("app", "--min", 1, "--max", 1, "--concurrency", 2, "--access", "open")
        first = self.gateway()
        _, second = self.open_second()
        poll(lambda: self.ask(second)[0] == 200, "an answer through the second")
        answers = []

        def work(at):
            for _ in range(15):
                answers.append(self.ask(at, "/work"))

        threads = [threading.Thread(target=work, args=(at,)) for at in (first, second) * 3]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([a for a in answers if a[0] != 200], [])
        self.assertEqual(self.ask(second)[1], b'{"most": 2}')

        # The first dies: the second decides now, and the one that the head starts again passes on.
        old = self.first_pid()
        os.kill(old, signal.SIGKILL)
        status, said = self.ask(second, "/work")
        self.assertEqual(status, 200, said)
        poll(lambda: self.first_pid() not in (0, old), "the head starts another", 60)
        poll(lambda: self.ask(self.gateway())[0] == 200, "an answer through it", 60)
        self.assertEqual(self.ask(self.gateway())[1], b'{"most": 2}')

    def test_nothing_of_a_request_leads_past_the_key_of_another_endpoint(self):
        self.deploy("app", "--min", 1, "--access", "open", version="app")
        self.deploy("other", "--min", 1, "--access", "key", version="other")
        _, second = self.open_second()
        poll(lambda: self.ask(second)[0] == 200, "an answer through the second")
        for headers in ({}, {"Billow_Endpoint": "other"}, {"Host": "other.example.org"}):
            status, said = self.ask(second, "/seen", **headers)
            self.assertEqual((status, json.loads(said)["who"]), (200, "app"), headers)
            self.assertNotIn("x-billow-peer", json.loads(said)["fields"])
        # What gateways say to each other is not for clients, not even empty.
        for value in ("", "guess"):
            self.assertEqual(self.ask(second, "/seen", X_Billow_Peer=value)[0], 403, value)
            self.assertEqual(self.ask(second, "/seen", X_Billow_Internal=value)[0], 403, value)


if __name__ == "__main__":
    unittest.main()
