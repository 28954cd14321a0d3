"""Requests that belong together get the same replica (`--sticky`), and samples of requests go to a
bucket (`--sample`)."""

import collections
import http.client
import json
import os
import re
import signal
import threading
import unittest

import replica
import s3
from endpoints_test import EndpointTest
from rig import Rig, poll

SERVER = replica.program(
    """
COOKIES = (("Set-Cookie", "mine=1"), ("Set-Cookie", "billow_replica=forged; Path=/"))
def answer(self):
    body = self.body()
    if self.path.startswith("/slow"):
        time.sleep(2)
    cookie = None if self.path.startswith("/ask") else self.headers.get("Cookie")
    out = {"pid": os.getpid(), "cookie": cookie, "got": body.decode("latin1")}
    self.say(b"y" * 200000 if self.path.startswith("/large") else out, headers=COOKIES)
"""
)


class StickyTest(EndpointTest):
    server = SERVER

    def pid(self, name, headers=None, path="/"):
        status, _, body = self.call(name, path, headers=headers)
        self.assertEqual(status, 200, body)
        return json.loads(body)["pid"]

    def ready(self, name, count):
        poll(lambda: self.figure(name, "ready") == count, f"{count} replicas", 90)


class Sticky(StickyTest):
    def test_a_header_chooses_the_replica_until_it_dies(self):
        self.deploy("by-user", "--min", 3, "--max", 3, "--sticky", "header:X-User")
        self.ready("by-user", 3)
        users = [{"X-User": f"user-{i}"} for i in range(40)]
        first = [self.pid("by-user", user) for user in users]
        self.assertEqual(len(set(first)), 3, "all replicas have users")
        for _ in range(2):
            self.assertEqual([self.pid("by-user", user) for user in users], first)
        dead = first[0]
        os.kill(dead, signal.SIGKILL)
        later = [self.pid("by-user", user) for user in users]
        self.assertNotIn(dead, later)
        # Only the users of the dead replica move, and those that its successor gets.
        for before, after in zip(first, later):
            if before != dead and after in first:
                self.assertEqual(after, before)

    def cookie(self, name, headers=None, path="/"):
        """(pid, the gateway's cookie or None)"""
        host, port = self.gateway()
        connection = http.client.HTTPConnection(host, port, timeout=60)
        connection.request("GET", f"/f/{name}{path}", headers=headers or {})
        answer = connection.getresponse()
        body = json.loads(answer.read())
        connection.close()
        own = [
            v
            for k, v in answer.getheaders()
            if k.lower() == "set-cookie" and v.startswith("billow_replica=")
        ]
        self.assertLessEqual(len(own), 1)
        self.assertNotIn("billow_replica=forged; Path=/", own, "a replica sets none")
        self.assertNotIn("billow_replica", body["cookie"] or "", "a replica sees none")
        return body["pid"], own[0] if own else None

    def test_a_cookie_names_the_replica_and_cannot_be_invented(self):
        self.deploy("by-cookie", "--min", 2, "--max", 2, "--sticky", "cookie")
        self.ready("by-cookie", 2)
        # The replicas take turns while both are busy, so both become known.
        known = {}

        def learn():
            pid, cookie = self.cookie("by-cookie", path="/slow")
            known[pid] = cookie

        threads = [threading.Thread(target=learn) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(known), 2, known)
        for pid, cookie in known.items():
            self.assertRegex(
                cookie, "^billow_replica=[0-9a-f]{32}; Path=/f/by-cookie/; HttpOnly; SameSite=Lax$"
            )
            pair = cookie.split(";")[0]
            for _ in range(5):
                self.assertEqual(
                    self.cookie("by-cookie", {"Cookie": f"a=1; {pair}; b=2"}), (pid, None)
                )
        # What names no replica counts as none: a new cookie comes with the answer.
        for invented in ("0" * 32, "", "x", "f" * 4000, str(self.endpoint("by-cookie"))[:40]):
            pid, cookie = self.cookie(
                "by-cookie", {"Cookie": "billow_replica=" + re.sub(r"[^0-9a-z]", "", invented)}
            )
            self.assertEqual(cookie, known[pid])
        # The replica of a cookie is gone: another one answers, and is named from then on.
        pid, cookie = known.popitem()
        os.kill(pid, signal.SIGKILL)
        other, renamed = self.cookie("by-cookie", {"Cookie": cookie.split(";")[0]})
        self.assertNotEqual(other, pid)
        self.assertNotEqual(renamed.split(";")[0], cookie.split(";")[0])

    def test_a_full_replica_is_left_for_another(self):
        self.deploy(
            "full", "--min", 2, "--max", 2, "--concurrency", 2, "--sticky", "header:X-User"
        )
        self.ready("full", 2)
        seen = collections.Counter()
        lock = threading.Lock()

        def one():
            pid = self.pid("full", {"X-User": "one"}, "/slow")
            with lock:
                seen[pid] += 1

        threads = [threading.Thread(target=one) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(sorted(seen.values()), [2, 2], "four at once, two each")

    def test_bad_words(self):
        done = self.rig.cli("deploy", "bad", "--sticky", "moon", "--", "true")
        self.assertIn("--sticky must be client, cookie, header:NAME or cookie:NAME", done.errors)
        done = self.rig.cli("deploy", "bad", "--sample", "101%", "--", "true")
        self.assertIn("--sample must be a percentage", done.errors)


WHY_NOT = s3.usable()


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Samples(StickyTest):
    @classmethod
    def setUpClass(cls):
        cls.rig = Rig(up=False)
        cls.addClassCleanup(cls.rig.close)
        cls.bucket = s3.Server(os.path.join(cls.rig.root, "s3"), "data")
        cls.addClassCleanup(lambda: cls.bucket.close())
        cls.rig.args += ["--sample-to", "s3://data/our/samples/"]
        cls.rig.environment.update(
            cls.bucket.env(), AWS_EC2_METADATA_DISABLED="true", HOME=cls.rig.root
        )
        cls.rig.up()

    @classmethod
    def tearDownClass(cls):
        pass

    def samples(self, endpoint):
        out = []
        for folder, _, files in os.walk(os.path.join(self.bucket.root, "data")):
            for name in files:
                path = os.path.join(folder, name)
                if f"our/samples/{endpoint}/" not in path or not name.endswith("_object"):
                    continue
                with open(path, encoding="utf-8") as f:
                    try:
                        out += [json.loads(line) for line in f.read().splitlines()]
                    except ValueError:
                        pass  # the server is still writing it
        return out

    def dropped(self):
        _, _, text = self.call(None, "/metrics")
        return {
            k: int(v)
            for k, v in re.findall(r"^billow_gateway_samples_(\w+)_total (\d+)", text.decode(), re.M)
        }

    def test_requests_with_their_bodies_and_without_their_secrets(self):
        self.deploy("all", "--min", 1, "--sample", "100%", "--access", "key")
        key = self.rig.ok("endpoint-key", "all", "--name", "ci").text.strip()
        for i in range(3):
            status, _, _ = self.call(
                "all",
                "/ask?secret=in-the-query",
                "POST",
                json.dumps({"prompt": f"question {i}", "pasted": key}),
                {
                    "Authorization": f"Bearer {key}",
                    "Cookie": "session=private",
                    "X-Secret": "private",
                    "User-Agent": "test",
                    "Content-Type": "application/json",
                },
            )
            self.assertEqual(status, 200)
        self.call("all", "/bytes", "POST", b"\xff\x00\xfe", {"X-Api-Key": key})
        self.call("all", "/large", "POST", b"z" * 100000, {"X-Api-Key": key})
        found = poll(
            lambda: len(self.samples("all")) >= 5 and self.samples("all"), "five samples", 60
        )
        text = json.dumps(found)
        for secret in (key, key[4:], "private", "in-the-query", "Authorization", "Cookie"):
            self.assertFalse(secret in text, secret)
        asked = sorted(
            (s for s in found if s["path"].endswith("/ask")), key=lambda s: s["request"]["body"]
        )
        self.assertEqual(len(asked), 3)
        self.assertEqual((asked[0]["key"], asked[0]["method"], asked[0]["status"]), ("ci", "POST", 200))
        self.assertIn("question 0", asked[0]["request"]["body"])
        self.assertIn("bwk_*", asked[0]["request"]["body"])
        self.assertIn("question 0", asked[0]["answer"]["body"])
        self.assertEqual(asked[0]["request"]["headers"]["User-Agent"], "test")
        raw = next(s for s in found if s["path"].endswith("/bytes"))
        self.assertEqual(raw["request"]["body_base64"], "/wD+")
        large = next(s for s in found if s["path"].endswith("/large"))
        for side, size in (("request", 100000), ("answer", 200000)):
            self.assertEqual(len(large[side]["body"]), 65536)
            self.assertEqual((large[side]["bytes"], large[side]["truncated"]), (size, True))

    def test_a_part_is_kept_and_none_without_the_word(self):
        self.deploy("part", "--min", 1, "--sample", "20%")
        self.deploy("none", "--min", 1)
        sent = self.dropped()["sent"]
        for _ in range(200):
            self.call("part")
            self.call("none")
        poll(lambda: self.dropped()["sent"] > sent, "some samples", 60)
        # 200 of a chance of 0.2: less than 10 or more than 90 would be a miracle.
        poll(lambda: 10 <= len(self.samples("part")) <= 90, "about a fifth", 30)
        self.assertEqual(self.samples("none"), [])

    def test_a_bucket_that_is_away_costs_samples_and_no_requests(self):
        self.deploy("away", "--min", 1, "--sample", "100%")
        port = self.bucket.port
        self.bucket.close()
        for _ in range(20):
            self.assertEqual(self.call("away")[0], 200)
        # 16 MiB are kept; what is more is dropped.
        before = self.dropped()
        for _ in range(300):
            self.assertEqual(self.call("away", "/large")[0], 200)
        poll(lambda: self.dropped()["dropped"] > before["dropped"], "dropped samples", 60)
        type(self).bucket = s3.Server(os.path.join(self.rig.root, "s3"), "data", port=port)
        poll(lambda: len(self.samples("away")) > 20, "those that waited", 90)


if __name__ == "__main__":
    unittest.main()
