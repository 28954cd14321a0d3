"""`billow map` and `Function.map_dataset`: files in, results written exactly once, whatever dies."""
import http.server
import json
import os
import random
import subprocess
import threading
import time
import unittest

import s3
from ports import free_port
from rig import poll
from sdk_rig import SdkTest, billow
from billow import _places, _shards  # noqa: E402

DOUBLE = ["sh", "-c", "awk '{print $1 * 2}'"]
ECHO = """
import http.server, json, os, time
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    seen = set()
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status, answer = 200, {"length": len(body), "type": self.headers["Content-Type"]}
        if self.headers["Content-Type"] == "application/json":
            number = json.loads(body)["n"]
            answer = {"square": number * number}
            if number % 7 == 0 and number not in self.seen:  # once
                self.seen.add(number)
                status = 503
            if number == 5:
                status = 422
        text = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
"""


class MapTest(SdkTest):
    def setUp(self):
        self.root = self.rig.file(self.id().rsplit(".", 1)[-1])
        os.makedirs(self.root + "/in/deep")
        self.out = self.root + "/out"

    def inputs(self, count, lines=50):
        for index in range(count):
            with open(f"{self.root}/in/{index:03}.jsonl", "w", encoding="ascii") as file:
                file.writelines(f"{number}\n" for number in range(index, index + lines))

    def map(self, *args, timeout=180, env=None, **options):
        words = ["map", "--input", options.pop("input", self.root + "/in/*.jsonl")]
        words += ["--output", options.pop("output", self.out), "--json", *map(str, args)]
        return self.rig.cli(*words, timeout=timeout, env=env)

    def read(self, name):
        with open(f"{self.out}/{name}", encoding="utf-8") as file:
            return file.read()


class Commands(MapTest):
    def test_each_file_has_its_result_and_its_price(self):
        self.inputs(6)
        done = self.map("--workers", 2, "--gpus", 0.5, "--", *DOUBLE)
        self.assertEqual(done.code, 0, done)
        said = done.json
        self.assertEqual((said["files"], said["done"], said["failed"]), (6, 6, 0))
        self.assertGreater(said["usd"], 0)
        charged = self.client.get(f"/v1/jobs/{said['jobs'][0]}")["cost_nano_usd"] / 1e9
        self.assertAlmostEqual(said["usd"], charged, delta=charged / 10)
        for index in range(6):
            wanted = "".join(f"{2 * number}\n" for number in range(index, index + 50))
            self.assertEqual(self.read(f"{index:03}.jsonl"), wanted)
        left = [each for each in os.listdir(self.out + "/.billow-map") if each != "plan.json"]
        self.assertEqual(left, [], "nothing but the plan is left over")
        # Again: nothing to do. New files: only those. Another command: refused.
        again = self.map("--", *DOUBLE).json
        self.assertEqual((again["done"], again["jobs"]), (6, []))
        self.inputs(7)
        self.assertEqual(self.map("--", *DOUBLE).json["done"], 7)
        refused = self.map("--", "cat")
        self.assertEqual(refused.code, 1)
        self.assertIn("another command or endpoint", refused.errors)

    def test_a_file_that_fails_holds_up_no_other(self):
        self.inputs(4)
        flag = self.root + "/mended"
        command = (
            f"echo $BILLOW_MAP_SHARD >> {self.root}/runs;"
            f" case $BILLOW_MAP_SHARD in *002*) [ -e {flag} ] || exit 7;; esac; wc -l"
        )
        done = self.map("--tries", 2, "--", "sh", "-c", command)
        self.assertEqual(done.code, 1)
        self.assertEqual(done.json["failures"], {"002.jsonl": "sh ended with 7, 2 times"})
        self.assertFalse(os.path.exists(self.out + "/002.jsonl"), "no half result")
        with open(self.root + "/runs", encoding="ascii") as file:
            runs = file.read().split()
        self.assertEqual(runs.count("002.jsonl"), 2, "--tries counts for all workers together")
        self.assertEqual(len(runs), 5)
        with open(flag, "w", encoding="ascii"):
            pass
        done = self.map("--tries", 2, "--", "sh", "-c", command)
        self.assertEqual((done.code, done.json["done"]), (0, 4))

    def test_a_file_that_kills_its_workers_fails_in_the_end(self):
        self.inputs(3)
        command = "case $BILLOW_MAP_SHARD in *001*) kill -9 $PPID; sleep 1;; esac; cat"
        done = self.map("--tries", 3, "--workers", 2, "--", "sh", "-c", command)
        self.assertEqual(done.json["failures"], {"001.jsonl": "its worker was lost 3 times"})
        self.assertEqual(done.json["done"], 2)

    def test_mistakes(self):
        self.inputs(1)
        self.assertEqual(self.map().code, 2)
        self.assertEqual(self.map("--endpoint", "x", "--", "cat").code, 2)
        self.assertEqual(self.map("--workers", "0", "--", "cat").code, 2)
        self.assertEqual(self.map("--gpus", "-1", "--", "cat").code, 2)
        nothing = self.map("--", "cat", input=self.root + "/none/*.jsonl")
        self.assertEqual(nothing.code, 1)
        self.assertIn("no file matches", nothing.errors)
        unknown = self.map("--endpoint", "nobody")
        self.assertEqual(unknown.code, 1)
        self.assertIn("nobody", unknown.errors)
        os.makedirs(self.out + "/x", exist_ok=True)
        with open(self.out + "/000.jsonl", "w", encoding="ascii") as file:
            file.write("precious")
        kept = self.map("--", "cat")
        self.assertEqual(kept.code, 1)
        self.assertIn("not a result of map", kept.errors)
        self.assertEqual(self.read("000.jsonl"), "precious")


class Endpoints(MapTest):
    def test_lines_and_files_through_an_endpoint(self):
        server = self.rig.file("echo.py")
        with open(server, "w", encoding="utf-8") as file:
            file.write(ECHO)
        self.rig.ok(
            "deploy", "squares", "--gpus", 0.5, "--min", 1, "--", "python3", server, timeout=120
        )
        for index in range(3):
            with open(f"{self.root}/in/{index}.jsonl", "w", encoding="ascii") as file:
                file.writelines(json.dumps({"n": index * 10 + n}) + "\n" for n in range(10))
        with open(self.root + "/in/deep/picture.png", "wb") as file:
            file.write(b"\x89PNG" * 100)
        done = self.map("--endpoint", "squares", input=self.root + "/in/**/*.*")
        self.assertEqual(done.code, 0, done)
        lines = [json.loads(line) for line in self.read("0.jsonl").splitlines()]
        self.assertEqual(lines[5], {"error": {"square": 25}, "status": 422}, "a refusal is kept")
        self.assertEqual([each["square"] for each in lines[6:]], [36, 49, 64, 81], "in order")
        picture = json.loads(self.read("deep/picture.png.json"))
        self.assertEqual(picture, {"length": 400, "type": "image/png"})

    def test_a_function_over_files(self):
        program = """
import sys, json, billow

@billow.function(max=2, gpus=0.5)
def square(record):
    if record["n"] == 3 and sys.argv[3:] == ["fail"]:
        raise ValueError("three")
    return {"square": record["n"] ** 2}

if __name__ == "__main__":
    try:
        print(json.dumps(square.map_dataset(sys.argv[1], sys.argv[2])))
    finally:
        square.delete()
"""
        for index in range(3):
            with open(f"{self.root}/in/{index}.jsonl", "w", encoding="ascii") as file:
                file.writelines(json.dumps({"n": index * 10 + n}) + "\n" for n in range(10))
        done = self.script(program, self.root + "/in/*.jsonl", self.out)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)["done"], 3)
        self.assertEqual(json.loads(self.read("2.jsonl").splitlines()[1]), {"square": 441})


class Store(MapTest):
    @unittest.skipIf(s3.usable() is not None, s3.usable() or "")
    def test_buckets(self):
        server = s3.Server(self.root + "/s3", "lab")
        self.addCleanup(server.close)
        before = dict(os.environ)
        os.environ.update(server.env())
        self.addCleanup(lambda: (os.environ.clear(), os.environ.update(before)))
        bucket = _places.Bucket("s3://lab/in")
        for index in range(12):
            bucket.put(f"{index:02}.jsonl", f"{index}\n".encode())
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            self.rig.ok("secret", "set", name, stdin=b"S3RVER")
        done = self.map(
            "--secret", "AWS_ACCESS_KEY_ID", "--secret", "AWS_SECRET_ACCESS_KEY", "--", *DOUBLE,
            input="s3://lab/in/*.jsonl", output="s3://lab/out", env=server.env(),
        )  # fmt: skip
        self.assertEqual(done.code, 0, done)
        out = _places.Bucket("s3://lab/out")
        self.assertEqual(out.get("11.jsonl")[0], b"22\n")
        results = [name for name in out.names() if not name.startswith(_places.OWN)]
        self.assertEqual(len(results), 12)

    def test_of_two_who_write_the_same_object_one_does(self):
        """With a server that knows the condition, as Amazon's and MinIO do."""
        objects, lock = {}, threading.Lock()

        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self, status, body=b""):
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def do_GET(self):
                self.answer(200 if self.path in objects else 404, objects.get(self.path, b""))

            do_HEAD = do_GET

            def do_PUT(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                time.sleep(0.05)  # so that both have asked before
                with lock:
                    if self.headers.get("If-None-Match") == "*" and self.path in objects:
                        return self.answer(412)
                    objects[self.path] = body
                return self.answer(200)

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", free_port()), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.shutdown)
        before = dict(os.environ)
        os.environ["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{server.server_port}"
        self.addCleanup(lambda: (os.environ.clear(), os.environ.update(before)))
        bucket, wrote = _places.Bucket("s3://lab/out"), []

        def write(number):
            if bucket.put_new("x", f"{number}".encode()):
                wrote.append(number)

        threads = [threading.Thread(target=write, args=(each,)) for each in range(8)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        self.assertEqual(len(wrote), 1)
        self.assertEqual(objects["/lab/out/x"], f"{wrote[0]}".encode())


class Claims(unittest.TestCase):
    def test_one_of_many_claims_a_shard(self):
        import tempfile

        with tempfile.TemporaryDirectory() as root:
            place = _places.Folder(root)
            shard = _places.Shard(root, "a", 1, "a")
            claims = [_shards.Claims(place) for _ in range(8)]
            got = [claim for claim in (each.claim(shard, 3) for each in claims) if claim]
            self.assertEqual(len(got), 1)
            got[0].end()
            again = claims[0].claim(shard, 3)
            self.assertEqual(again.attempt, 1)
            again.end()

    def test_a_dead_worker_loses_its_claim_at_once(self):
        import tempfile

        with tempfile.TemporaryDirectory() as root:
            place = _places.Folder(root)
            shard = _places.Shard(root, "a", 1, "a")
            program = (
                "import sys, os; from billow import _places, _shards; p ="
                " _places.Folder(sys.argv[1]);_shards.Claims(p).claim(_places.Shard(sys.argv[1],"
                " 'a', 1, 'a'), 3); os._exit(9)"
            )
            source = os.path.dirname(os.path.dirname(_places.__file__))
            subprocess.run(
                ["python3", "-c", program, root], env={**os.environ, "PYTHONPATH": source}, check=False
            )  # fmt: skip
            claim = _shards.Claims(place).claim(shard, 3)
            self.assertEqual(claim.attempt, 2)
            claim.end()

    def test_the_first_result_stays(self):
        import tempfile

        with tempfile.TemporaryDirectory() as root:
            place = _places.Folder(root)
            for text in ("one", "two"):
                part = place.scratch()
                with open(part, "w", encoding="ascii") as file:
                    file.write(text)
                self.assertEqual(place.create("deep/r", part), text == "one")
                self.assertFalse(os.path.exists(part))
            self.assertEqual(place.get("deep/r")[0], b"one")


class Kills(MapTest):
    """Workers, commands, the driver, agent and head are killed with -9 while a map runs."""

    FILES = 150

    def test_results_are_whole_and_written_once(self):
        seed = int(os.environ.get("BILLOW_SEED") or time.time())
        chance = random.Random(seed)
        self.inputs(self.FILES)
        # Each computation has a number of its own, in its first and in its last line.
        command = (
            "n=$(cat /proc/sys/kernel/random/uuid); echo $n;"
            f" echo $BILLOW_MAP_SHARD >> {self.root}/effects; awk '{{print $1 * 2}}';"
            " sleep 0.2; echo $n"
        )
        words = ["map", "--input", self.root + "/in/*.jsonl", "--output", self.out]
        words += ["--workers", "4", "--tries", "50", "--gpus", "0.25", "--", "sh", "-c", command]
        seen, kills = {}, []

        def look():
            for name in os.listdir(self.out) if os.path.isdir(self.out) else []:
                if name.endswith(".jsonl"):
                    text = self.read(name)
                    self.assertEqual(seen.setdefault(name, text), text, f"seed {seed}: {name}")

        driver = self.rig.start(*words)
        deadline = time.monotonic() + 240
        while len(seen) < self.FILES:
            self.assertLess(time.monotonic(), deadline, f"seed {seed}: {len(seen)} results")
            time.sleep(0.15)
            look()
            if driver.poll() is not None:
                driver = self.rig.start(*words)
            if len(kills) >= 25 or not seen:
                continue
            victim = chance.choice(["worker", "worker", "worker", "driver", "agent", "head"])
            pids = {
                "worker": [
                    pid
                    for pid, line in self.rig.processes().items()
                    if "BILLOW_MAP_PROGRAM" in line
                ],
                "driver": [driver.pid],
                "agent": [self.rig.agent_pid()] if kills.count("agent") < 2 else [],
                "head": [self.rig.head_pid()] if kills.count("head") < 2 else [],
            }[victim]
            if not pids:
                continue
            kills.append(victim)
            self.rig.kill(chance.choice(pids))
            if victim in ("agent", "head"):
                poll(lambda: self.rig.cli("up", "--background", "--sim", self.rig.sim).code == 0,
                     "the head is up again", 60)  # fmt: skip
        driver.wait(120)
        final = self.map("--workers", 4, "--tries", 50, "--gpus", 0.25, "--", "sh", "-c", command)
        self.assertEqual((final.code, final.json["done"]), (0, self.FILES), final)
        look()
        with open(self.root + "/effects", encoding="ascii") as file:
            runs = len(file.readlines())
        for index in range(self.FILES):
            first, *numbers, last = seen[f"{index:03}.jsonl"].splitlines()
            self.assertEqual(first, last, "a result of one computation")
            self.assertEqual(numbers, [str(2 * n) for n in range(index, index + 50)])
        self.assertGreater(kills.count("worker"), 2)
        print(f"seed {seed}: {len(kills)} kills {sorted(set(kills))}, {runs} runs for"
              f" {self.FILES} results")  # fmt: skip


if __name__ == "__main__":
    unittest.main()
