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
    if self.path.startswith("/sleep"):
        time.sleep(4)
    if self.path.startswith("/seen"):
        return self.say({"who": sys.argv[1], "fields": [name.lower() for name in self.headers]})
    self.say({"most": most})
"""


class TwoGateways(EndpointTest):
    server = replica.program(COUNTS)

    def open_second(self, token=None, listed=True):
        directory = os.path.join(self.rig.root, "second-gateway")
        process = self.rig.start(
            "gateway",
            "--head",
            "unix:" + self.rig.data + "/head.sock",
            "--token-file",
            token or self.rig.data + "/token",
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
        if listed:
            poll(lambda: len(self.endpoint("app")["urls"]) == 2, "the head knows of both")
        return process, (host, int(port))

    def gateways(self):
        return self.rig.json("gateways")["gateways"]

    def counted(self, name):
        return self.endpoint("app")["figures"][name]

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

        # The head shows both, and what the endpoint has had.
        served = poll(lambda: self.counted("requests") >= 92 and self.counted("requests"), "counts")
        poll(lambda: all(g["requests"] > 40 for g in self.gateways()), "what each has served")
        listed = {g["own"]: g for g in self.gateways()}
        self.assertEqual({True, False}, set(listed))
        for own, g in listed.items():
            self.assertEqual((g["state"], g["steers"]), ("connected", own))
            self.assertEqual(g["loops"], 1 if own else 2)
            self.assertTrue(g["version"] and g["host"] and g["id"] and g["connected_at"], g)
        self.assertIn(f"127.0.0.1:{second[1]}", self.rig.ok("gateways").text)
        self.assertEqual(self.rig.ok("describe", "app").text.count("   gateway  "), 2)

        # The first dies: the second decides now, and the one that the head starts again passes on.
        old = self.first_pid()
        os.kill(old, signal.SIGKILL)
        before = listed[True]["id"]
        poll(
            lambda: not any(
                g["state"] == "connected" and g["id"] == before for g in self.gateways()
            ),
            "the head has seen its end",
        )
        self.assertGreaterEqual(self.counted("requests"), served, "counts fell with the gateway")
        status, said = self.ask(second, "/work")
        self.assertEqual(status, 200, said)
        poll(lambda: self.first_pid() not in (0, old), "the head starts another", 60)
        poll(lambda: self.ask(self.gateway())[0] == 200, "an answer through it", 60)
        self.assertEqual(self.ask(self.gateway())[1], b'{"most": 2}')

    def healthz(self, at):
        connection = http.client.HTTPConnection(*at, timeout=60)
        self.addCleanup(connection.close)
        connection.request("GET", "/healthz")
        with connection.getresponse() as answer:
            return answer.status

    def test_errors_of_the_first_are_told_apart_from_those_of_the_application(self):
        self.deploy("app", "--min", 1, "--max", 1, "--access", "open", "--timeout", "1s")
        process, second = self.open_second()
        poll(lambda: self.ask(second)[0] == 200, "an answer through the second")
        for at in (self.gateway(), second):
            connection = http.client.HTTPConnection(*at, timeout=60)
            self.addCleanup(connection.close)
            connection.request("GET", "/f/app/sleep")
            with connection.getresponse() as answer:
                told = answer.status, answer.headers.get("X-Billow-Problem")
            self.assertEqual(told, (504, "1"))
        process.kill()
        process.wait()
        os.unlink(os.path.join(self.rig.root, "second-gateway", "address"))  # for the next test

    def test_an_expelled_gateway_serves_nothing_until_it_is_accepted_again(self):
        self.deploy("app", "--min", 1, "--max", 1, "--access", "open")
        made = self.rig.json("token", "create", "guest", "--scope", "gateway")
        token = os.path.join(self.rig.root, "guest-token")
        with open(token, "w", encoding="ascii") as f:
            f.write(made["token"])
        process, second = self.open_second(token)
        poll(lambda: self.ask(second)[0] == 200, "an answer through the second")

        self.rig.ok("token", "revoke", str(made["id"]))
        status, said = poll(
            lambda: next((a for a in [self.ask(second)] if a[0] == 503), None), "it stops serving"
        )
        self.assertIn(b"the head no longer accepts this gateway", said)
        self.assertEqual(self.healthz(second), 503)
        # Nor does it serve what it has kept, when it starts again.
        process.kill()
        process.wait()
        os.unlink(os.path.join(self.rig.root, "second-gateway", "address"))
        process, second = self.open_second(token, listed=False)
        for _ in range(20):
            self.assertEqual(self.ask(second)[0], 503)

        with open(token, "w", encoding="ascii") as f:
            f.write(self.rig.json("token", "create", "again", "--scope", "gateway")["token"])
        poll(lambda: self.ask(second)[0] == 200, "it serves again")
        process.kill()
        process.wait()
        os.unlink(os.path.join(self.rig.root, "second-gateway", "address"))  # for the next test

    def test_counts_do_not_fall_when_a_gateway_goes_for_good(self):
        self.deploy("app", "--min", 1, "--max", 1, "--access", "open")
        process, second = self.open_second()
        poll(lambda: self.ask(second)[0] == 200, "an answer through the second")
        for _ in range(20):
            self.assertEqual(self.ask(second)[0], 200)
        most = {}

        def grown(when):
            """Reads every sum that people see."""
            figures = self.endpoint("app")["figures"]
            shown = {"requests": figures["requests"], "asked": sum(figures["first_byte"]["counts"])}
            for line in self.rig.api("GET", "/metrics").body.decode().splitlines():
                if line.startswith("billow_endpoint_") and "_total{" in line:
                    shown[line.split("{")[0]] = float(line.rsplit(" ", 1)[1])
            for name, value in shown.items():
                self.assertGreaterEqual(value, most.get(name, 0), f"{name} {when}")
            most.update(shown)
            return shown

        poll(lambda: grown("while both live")["requests"] >= 40, "both have counted")
        process.kill()
        process.wait()
        os.unlink(os.path.join(self.rig.root, "second-gateway", "address"))  # for the next test
        row = poll(
            lambda: next((g for g in self.gateways() if g["state"] == "gone"), None), "it has gone"
        )
        self.assertFalse(row["own"])
        self.assertIn("gone", self.rig.ok("gateways").text)
        grown("after it was killed")
        self.assertEqual(self.ask(self.gateway())[0], 200)
        poll(lambda: grown("after one more request")["requests"] >= 41, "one more is counted")
        # The counts are in the journal: a new head has them before and after gateways connect.
        most.pop("asked")
        self.rig.kill(self.rig.head_pid())
        self.rig.up()
        poll(lambda: self.endpoint("app")["urls"], "the head's gateway")
        figures = self.endpoint("app")["figures"]
        self.assertGreaterEqual(figures["requests"], most["requests"], "after the head's restart")

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
