"""Work that is submitted and looked at: submit, wait, ps, describe, logs, stop, arrays,
dependencies, retries, schedules, job files."""
import http.server
import os
import re
import subprocess
import threading
import unittest

from rig import Rig, RigTest, WebSocket, poll


class Submit(RigTest):
    def test_prints_a_number_that_every_other_command_takes(self):
        made = self.rig.json(
            "submit",
            "--name",
            "first",
            "--label",
            "team=vision",
            "--",
            "sh",
            "-c",
            "echo hello; exit 3",
        )
        self.assertEqual(made["count"], 1)
        job = made["id"]
        self.assertEqual(self.rig.cli("wait", job).code, 3)
        document = self.rig.json("describe", job)
        self.assertEqual(
            (document["state"], document["exit_code"], document["final"], document["name"]),
            ("failed", 3, True, "first"),
        )
        self.assertEqual(document["labels"], {"team": "vision"})
        self.assertEqual(document["argv"], ["sh", "-c", "echo hello; exit 3"])
        self.assertEqual(self.rig.ok("logs", job).out, b"hello\n")
        listed = self.rig.json("ps", "-a", "--label", "team=vision")["jobs"]
        self.assertEqual([j["id"] for j in listed], [job])
        self.assertIn(str(job), self.rig.ok("ps", "-a").text)
        self.assertIn("exit code 3", self.rig.ok("describe", job).text)
        self.assertEqual(self.rig.ok("submit", "-q", "--", "true").text.strip(), str(job + 1))

    def test_a_file_of_commands_is_a_job_each(self):
        path = self.rig.file("commands")
        with open(path, "w", encoding="utf-8") as f:
            f.write(
                "echo one > $OUT/1\n\n# not this one\n   echo 'two  words' > \"$OUT/2\"  \nexit 3\n"
            )
        out = self.rig.file("made")
        os.makedirs(out)
        numbers = self.rig.ok(
            "submit", "-q", "--label", "from=lines", "--env-var", f"OUT={out}", "--lines", path
        ).text.split()
        self.assertEqual(len(numbers), 3)
        self.assertEqual([self.rig.cli("wait", n).code for n in numbers], [0, 0, 3])
        self.assertEqual(sorted(os.listdir(out)), ["1", "2"])
        with open(os.path.join(out, "2"), encoding="ascii") as f:
            self.assertEqual(f.read(), "two  words\n")
        self.assertEqual(
            sorted(j["id"] for j in self.rig.json("ps", "-a", "--label", "from=lines")["jobs"]),
            sorted(map(int, numbers)),
        )
        said = self.rig.cli("submit", "--lines", "-", stdin=b"true\ntrue\n")
        self.assertRegex(said.text, r"^2 jobs, \d+ to \d+\n$")
        for args, word in (
            (["--lines", path, "--", "true"], "exclude each other"),
            (["--lines", path + "-none"], "--lines"),
            (["--lines", "/dev/null"], "no commands"),
            (["--lines", path, "--cron", "0 3 * * *"], "--cron"),
        ):
            refused = self.rig.cli("submit", *args)
            self.assertNotEqual(refused.code, 0, refused)
            self.assertIn(word, refused.errors)

    def test_wait_gives_up_when_told(self):
        job = self.rig.submit("--", "sleep", "600")
        done = self.rig.cli("wait", "--timeout", "1s", job)
        self.assertEqual(done.code, 124)
        self.rig.ok("stop", "--wait", job)

    def test_stop_is_gentle_first(self):
        job = self.rig.submit(
            "--", "sh", "-c", "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done"
        )
        poll(lambda: self.rig.ok("logs", job).out == b"up\n", "its first line")
        stopped = self.rig.json("stop", "--wait", "--reason", "enough of it", job)
        self.assertEqual((stopped["state"], stopped["reason"]), ("stopped", "enough of it"))
        # The shell may also say that its sleep was ended; the whole tree gets the signal.
        log = self.rig.ok("logs", job).out.split(b"\n")
        self.assertEqual(log[0], b"up")
        self.assertIn(b"bye", log)
        # Again is no error.
        self.assertEqual(self.rig.json("stop", job)["state"], "stopped")

    def test_stop_with_force_does_not_wait_for_the_job(self):
        job = self.rig.submit(
            "--", "sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.05; done"
        )
        poll(lambda: self.rig.ok("logs", job).out == b"up\n", "its first line")
        self.assertEqual(self.rig.json("stop", "--force", "--wait", job)["state"], "stopped")

    def test_stop_ends_the_whole_tree(self):
        pids = self.rig.file("pids")
        job = self.rig.submit(
            "--stop-grace",
            "1s",
            "--",
            "sh",
            "-c",
            (
                f"(setsid sh -c 'echo $$ >> {pids}; trap \"\" TERM; sleep 600' &) ; sh -c 'echo $$"
                f" >> {pids}; exec sleep 600'"
            ),
        )
        poll(
            lambda: os.path.exists(pids) and len(open(pids, encoding="ascii").read().split()) == 2,
            "two processes",
        )
        with open(pids, encoding="ascii") as f:
            tree = f.read().split()
        self.rig.ok("stop", "--wait", job)
        poll(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in tree), "the end of the tree")

    def test_a_queued_job_is_cancelled_without_running(self):
        keeper = self.rig.submit("--gpus", 8, "--", "sleep", "600")
        self.rig.wait_for(keeper, "running")
        waiting = self.rig.submit("--gpus", 1, "--", "touch", self.rig.file("never"))
        why = self.rig.json("explain", waiting)
        self.assertEqual(why["state"], "queued")
        self.assertTrue(why["reasons"])
        self.assertEqual(self.rig.json("stop", waiting)["state"], "stopped")
        self.rig.ok("stop", "--force", "--wait", keeper)
        self.assertFalse(os.path.exists(self.rig.file("never")))

    def test_an_idempotency_key_makes_one_job(self):
        one = self.rig.json("submit", "--idempotency-key", "once", "--", "true")["id"]
        two = self.rig.json("submit", "--idempotency-key", "once", "--", "true")["id"]
        self.rig.ok("wait", one)
        three = self.rig.json("submit", "--idempotency-key", "once", "--", "true")["id"]
        self.assertEqual((one, one), (two, three))

    def test_logs_follow_to_the_end_and_tail(self):
        job = self.rig.submit(
            "--", "sh", "-c", "for i in 1 2 3 4 5; do echo line $i; sleep 0.1; done"
        )
        self.assertEqual(
            self.rig.ok("logs", "-f", job).text.splitlines(), [f"line {i}" for i in range(1, 6)]
        )
        self.assertEqual(self.rig.ok("logs", "-n", 2, job).text, "line 4\nline 5\n")
        self.assertTrue(self.rig.ok("logs", "--tail", "7B", job).text.endswith("line 5\n"))

    def test_large_logs_come_whole(self):
        job = self.rig.submit("--", "sh", "-c", "seq 1 1000000")
        self.rig.ok("wait", job)
        out = self.rig.ok("logs", job).out
        self.assertEqual(len(out), sum(len(str(i)) + 1 for i in range(1, 1000001)))
        self.assertTrue(out.endswith(b"\n999999\n1000000\n"))


class Arrays(RigTest):
    def test_run_each_index_once_and_no_more_at_a_time_than_allowed(self):
        folder = self.rig.file("array")
        os.mkdir(folder)
        script = self.rig.script(
            f"""
        mkdir {folder}/now.$BILLOW_ARRAY_INDEX
        ls {folder} | grep -c now >> {folder}/seen
        echo $BILLOW_ARRAY_INDEX >> {folder}/ran
        sleep 0.1
        rmdir {folder}/now.$BILLOW_ARRAY_INDEX
        [ $BILLOW_ARRAY_INDEX != 7 ]
        """,
            "element.sh",
        )
        made = self.rig.json("submit", "--array", "0-19%4", "--", script)
        self.assertEqual(made["count"], 20)
        array = made["id"]
        self.assertNotEqual(self.rig.cli("wait", array).code, 0)
        with open(f"{folder}/ran", encoding="ascii") as f:
            self.assertEqual(sorted(map(int, f.read().split())), list(range(20)))
        with open(f"{folder}/seen", encoding="ascii") as f:
            self.assertLessEqual(max(map(int, f.read().split())), 4)
        document = self.rig.json("describe", array)
        self.assertEqual(
            document["elements"],
            {"count": 20, "left": 0, "running": 0, "succeeded": 19, "stopped": 0},
        )
        self.assertEqual(document["state"], "failed")
        self.assertEqual(self.rig.json("describe", f"{array}.7")["exit_code"], 1)
        self.assertEqual(self.rig.json("describe", f"{array}.8")["exit_code"], 0)

    def test_ended_arrays_keep_their_numbering(self):
        array = self.rig.submit("--array", "10-20:5", "--", "sh", "-c", "echo $BILLOW_ARRAY_INDEX")
        self.rig.ok("wait", array)
        self.assertEqual(self.rig.ok("logs", f"{array}.15").out, b"15\n")
        self.assertEqual(
            self.rig.json("describe", f"{array}.20")["array"], {"id": array, "index": 20}
        )
        missing = self.rig.cli("describe", f"{array}.11")
        self.assertEqual(missing.code, 1)
        self.assertIn(f"array {array} has no element 11", missing.errors)
        self.assertIn("its indices are 10-20:5", missing.errors)

    def test_lists_and_steps_as_slurm_names_them(self):
        script = "echo $BILLOW_ARRAY_INDEX of $BILLOW_ARRAY_COUNT; test $BILLOW_ARRAY_INDEX != 7"
        array = self.rig.submit("--name", "few", "--array", "7,1,5-9:2%2", "--", "sh", "-c", script)
        self.rig.cli("wait", array)
        listed = self.rig.json("ps", "-a", "--array", array)["jobs"]
        self.assertEqual(sorted(j["array"]["index"] for j in listed), [1, 5, 7, 9])
        self.assertEqual(self.rig.ok("logs", f"{array}.9").text, "9 of 4\n")
        self.assertIn("1,5-9:2%2", self.rig.ok("describe", array).text)
        self.assertIn("has no element 6", self.rig.cli("logs", "few.6").errors)
        # After a restart, the journal gives the same elements.
        self.rig.ok("down")
        self.rig.up()
        self.assertEqual(self.rig.ok("logs", "few.5").text, "5 of 4\n")
        again = self.rig.json("rerun", "few")["id"]
        self.rig.cli("wait", again)
        self.assertEqual(
            [j["array"]["index"] for j in self.rig.json("ps", "-a", "--array", again)["jobs"]], [7]
        )

    def test_bad_lists_say_what_is_wrong(self):
        for text, why in (
            ("1,,5", "an index is missing beside a comma"),
            ("1%2,5", "% limits the whole array, so it must come last"),
            ("9-1", "the last index, 1, is below the first, 9"),
            ("1-9:0", "the step after"),
            ("5-", "the last index is missing"),
        ):
            done = self.rig.cli("submit", "--array", text, "--", "true")
            self.assertEqual(done.code, 2, done)
            self.assertIn(f"--array {text}: {why}", done.errors)
            self.assertIn("1,5,7", done.errors)  # the examples

    def test_stop_ends_all_elements(self):
        array = self.rig.submit("--array", "0-9%2", "--", "sleep", "600")
        poll(
            lambda: len(
                [j for j in self.rig.json("ps", "-x", "--state", "running")["jobs"] if "array" in j]
            )
            == 2,
            "two elements at work",
        )
        self.rig.ok("stop", "--wait", array)
        self.assertEqual(self.rig.json("ps")["jobs"], [])
        self.assertEqual(self.rig.json("describe", f"{array}.9")["state"], "stopped")


class Dependencies(RigTest):
    def test_start_after_what_they_name(self):
        order = self.rig.file("order")
        first = self.rig.submit("--", "sh", "-c", f"sleep 0.3; echo first >> {order}")
        second = self.rig.submit("--after", first, "--", "sh", "-c", f"echo second >> {order}")
        third = self.rig.submit(
            "--after", f"any:{second}", "--", "sh", "-c", f"echo third >> {order}"
        )
        self.rig.ok("wait", third)
        with open(order, encoding="ascii") as f:
            self.assertEqual(f.read().split(), ["first", "second", "third"])

    def test_that_can_no_longer_be_met_stop_the_job(self):
        first = self.rig.submit("--", "sh", "-c", "sleep 0.3; exit 1")
        ok = self.rig.submit("--after", first, "--", "true")
        failed = self.rig.submit("--after", f"failed:{first}", "--", "true")
        self.assertEqual(self.rig.cli("wait", failed).code, 0)
        document = poll(
            lambda: (lambda d: d if d["final"] else None)(self.rig.json("describe", ok)), "its end"
        )
        self.assertEqual(document["state"], "stopped")
        self.assertIn(f"job {first} ended failed", document["reason"])
        done = self.rig.cli("submit", "--after", first, "--", "true")
        self.assertNotEqual(done.code, 0)
        self.assertIn("could never start", done.errors)

    def test_on_arrays_wait_for_all_elements(self):
        array = self.rig.submit("--array", "0-3", "--", "sleep", "0.2")
        after = self.rig.submit("--after", array, "--", "true")
        self.assertEqual(self.rig.cli("wait", after).code, 0)
        self.assertEqual(self.rig.json("describe", array)["state"], "succeeded")


class Retries(RigTest):
    def test_run_again_after_a_failure_with_back_off(self):
        attempts = self.rig.file("attempts")
        job = self.rig.submit(
            "--retries",
            3,
            "--backoff",
            "100ms",
            "--",
            "sh",
            "-c",
            f"echo $BILLOW_ATTEMPT | tee -a {attempts}; [ $BILLOW_ATTEMPT = 3 ]",
        )
        self.assertEqual(self.rig.cli("wait", job).code, 0)
        with open(attempts, encoding="ascii") as f:
            self.assertEqual(f.read().split(), ["1", "2", "3"])
        self.assertEqual(self.rig.json("describe", job)["attempt"], 3)
        self.assertEqual(self.rig.ok("logs", job).out, b"3\n")

    def test_end_when_they_are_used_up(self):
        job = self.rig.submit("--retries", 1, "--backoff", "50ms", "--", "sh", "-c", "exit 8")
        self.assertEqual(self.rig.cli("wait", job).code, 8)
        self.assertEqual(self.rig.json("describe", job)["attempt"], 2)

    def test_run_shows_every_attempt(self):
        done = self.rig.cli(
            "run",
            "--retries",
            "2",
            "--backoff",
            "1ms",
            "--",
            "sh",
            "-c",
            "echo attempt $BILLOW_ATTEMPT; [ $BILLOW_ATTEMPT = 3 ]",
        )
        self.assertEqual(
            (done.code, done.out), (0, b"attempt 1\nattempt 2\nattempt 3\n"), done.errors
        )
        # However late somebody attaches: to a job that is long over, what each attempt said comes
        # in order.
        job = self.rig.json("ps", "-a")["jobs"][0]["id"]
        peer, said = WebSocket(self.rig, f"/v1/jobs/{job}/attach?offset=0", self.rig.token()), b""
        while (frame := peer.receive()) and frame[0] != 8:
            said += frame[1][9:] if frame[0] == 2 else b""
        peer.close()
        self.assertEqual(said, b"attempt 1\nattempt 2\nattempt 3\n")


class Files(RigTest):
    def test_a_job_file_is_a_submission(self):
        with open(self.rig.file("job.toml"), "w", encoding="utf-8") as f:
            f.write(
                '[job]\nname = "from-file"\ncommand = ["sh", "-c", "echo $GREETING'
                ' $BILLOW_ARRAY_INDEX"]\ngpus = 0.25\narray = "0-1"\nretries = 2\nlabel ='
                ' ["a=b"]\ntime = "5m"\n\n[env]\nGREETING = "hello"\n'
            )
        array = self.rig.json("submit", "job.toml")["id"]
        self.rig.ok("wait", array)
        document = self.rig.json("describe", f"{array}.1")
        self.assertEqual(
            (
                document["name"],
                document["gpu_milli"],
                document["retries"],
                document["labels"],
                document["time_limit_s"],
            ),
            ("from-file", 250, 2, {"a": "b"}, 300),
        )
        self.assertEqual(self.rig.ok("logs", f"{array}.1").out, b"hello 1\n")

    def test_a_mistake_in_one_is_named_with_its_place(self):
        for text, words in (
            ('[job]\ncommand = ["true"]\ngpuz = 1\n', ["gpuz", "gpus"]),
            ("[job\n", ["job.toml"]),
            ('[job]\nname = "x"\n', ["command"]),
        ):
            with open(self.rig.file("job.toml"), "w", encoding="utf-8") as f:
                f.write(text)
            done = self.rig.cli("submit", "job.toml")
            self.assertNotEqual(done.code, 0)
            for word in words:
                self.assertIn(word, done.errors)


class Schedules(RigTest):
    def test_fire_by_the_clock(self):
        # A second one comes with its directory as it was then, and with an input.
        class File(http.server.BaseHTTPRequestHandler):
            def answer(self):
                self.send_response(200)
                self.send_header("Content-Length", "6")
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(b"input\n")

            do_GET = do_HEAD = answer

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), File)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.shutdown)
        with open(self.rig.file("here.txt"), "w", encoding="ascii") as f:
            f.write("then\n")
        self.rig.ok(
            "schedule",
            "add",
            "--name",
            "fed",
            "--cron",
            "* * * * *",
            "--input",
            f"http://127.0.0.1:{server.server_port}/x",
            "--",
            "cat",
            "here.txt",
            "x",
        )
        with open(self.rig.file("here.txt"), "w", encoding="ascii") as f:
            f.write("now\n")
        self.rig.ok("submit", "--name", "often", "--cron", "* * * * *", "--", "echo", "tick")
        named = lambda: {s["name"]: s for s in self.rig.json("schedule", "list")["schedules"]}
        schedule = named()["often"]
        self.assertEqual(schedule["cron"], "* * * * *")
        self.assertRegex(schedule["next_at"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:00Z$")
        # Its next time is at most a minute away.
        job = poll(lambda: named()["often"]["last_job"], "its first job", 75)
        fed = poll(lambda: named()["fed"]["last_job"], "the first job with an input", 75)
        self.assertEqual(self.rig.cli("wait", fed).code, 0)
        self.assertIn("then\ninput\n", self.rig.ok("logs", fed).text)
        self.rig.ok("schedule", "rm", "fed")
        self.rig.ok("wait", job)
        self.assertEqual(self.rig.ok("logs", job).out, b"tick\n")
        self.assertEqual(self.rig.json("describe", job)["labels"], {"schedule": "often"})
        self.rig.ok("schedule", "rm", "often")
        self.assertEqual(self.rig.json("schedule", "list")["schedules"], [])

    def test_that_make_no_sense_are_refused(self):
        for cron in ("61 * * * *", "* * *", "often"):
            done = self.rig.cli("submit", "--name", "odd", "--cron", cron, "--", "true")
            self.assertNotEqual(done.code, 0, cron)
            self.assertIn("cron", done.errors)
        self.assertNotEqual(self.rig.cli("schedule", "rm", "not-there").code, 0)


class Words(RigTest):
    """What prints, prints JSON when asked, and every command explains itself."""

    def commands(self):
        table = self.rig.ok("help", "--all").text
        return re.findall(r"(?m)^  ([a-z]+(?: [a-z]+)?)  +\S", table)

    def test_every_command_has_help_with_an_example(self):
        names = self.commands()
        for wanted in (
            "run",
            "submit",
            "ps",
            "logs",
            "stop",
            "wait",
            "describe",
            "nodes",
            "shell",
            "attach",
            "up",
            "down",
            "status",
            "doctor",
        ):
            self.assertIn(wanted, [name.split()[0] for name in names])
        for name in names:
            text = self.rig.ok(*name.split(), "--help").text
            self.assertRegex(text, rf"(?is)example.*billow {name}", name)

    def test_whatever_looks_prints_json(self):
        job = self.rig.submit("--", "true")
        self.rig.ok("wait", job)
        for command in (
            ["ps"],
            ["ps", "-a"],
            ["describe", job],
            ["explain", job],
            ["wait", job],
            ["stop", job],
            ["nodes"],
            ["status"],
            ["project", "list"],
            ["user", "list"],
            ["token", "list"],
            ["schedule", "list"],
        ):
            self.assertIsInstance(self.rig.json(*command), (dict, list), command)
        self.assertIn("findings", self.rig.cli("doctor", "--json").json)

    def test_a_wrong_word_gets_a_suggestion(self):
        done = self.rig.cli("submitt", "--", "true")
        self.assertEqual(done.code, 2)
        self.assertIn("submit", done.errors)
        done = self.rig.cli("submit", "--gpu", "1", "--", "true")
        self.assertEqual(done.code, 2)
        self.assertIn("--gpus", done.errors)

    def test_completion_is_shell_that_parses(self):
        for shell in ("bash",):
            script = self.rig.ok("completion", shell).out
            self.assertEqual(subprocess.run([shell, "-n"], input=script, check=False).returncode, 0)
            self.assertIn(b"submit", script)


class Names(RigTest):
    """Jobs by the names people gave them, and names that cannot be."""

    def test_a_name_of_several_means_all_of_them_to_whoever_waits(self):
        lines = self.rig.file("lines.txt")
        with open(lines, "w", encoding="ascii") as f:
            f.write("exit 4\nread line < go\nread line < go\n")
        os.mkfifo(self.rig.file("go"))
        first = self.rig.ok("submit", "-q", "--name", "sweep", "--lines", lines).text.split()[0]
        self.assertEqual(self.rig.cli("wait", first).code, 4)
        after = self.rig.submit("--after", "any:sweep", "--", "true")
        self.assertEqual(len(self.rig.json("describe", after)["after"]), 3)
        waits = self.rig.start("wait", "sweep")
        with open(self.rig.file("go"), "w", encoding="ascii") as f:
            f.write("on\non\n")
            f.flush()
            out, err = waits.communicate(timeout=60)
        self.assertIn(b"waiting for 3 jobs named sweep", err)
        self.assertEqual((waits.returncode, out.count(b"\n")), (4, 3), (out, err))
        self.assertEqual(self.rig.cli("wait", after).code, 0)

    def test_an_element_has_its_index_in_its_name(self):
        job = self.rig.submit("--name", "grid", "--array", "0-2", "--", "true")
        self.rig.ok("wait", job)
        self.assertIn("grid.2", self.rig.ok("ps", "-a", "--expand").text)
        self.assertIn("grid.1", self.rig.ok("describe", f"{job}.1").text)

    def test_a_number_is_no_name(self):
        for command in (
            ("submit", "--name", "12", "--", "true"),
            ("submit", "--name", "1.2", "--", "true"),
            ("reserve", "--gpus", 1, "--for", "1h", "--name", "7"),
        ):
            done = self.rig.cli(*command)
            self.assertNotEqual(done.code, 0, done)
            self.assertIn("take it for a number", done.errors)
        status = self.rig.api(
            "POST", "/v1/jobs", {"spec": {"argv": ["true"], "name": "12"}, "env": {}}
        ).status
        self.assertEqual(status, 400)
        done = self.rig.cli("submit", "--time", "0", "--", "true")
        self.assertEqual(done.code, 2)
        self.assertIn("omit --time", done.errors)


class Drained(unittest.TestCase):
    def test_nodes_take_nothing_new(self):
        rig = Rig(args=("--node-name", "box"))
        try:
            rig.ok("cordon", "box")
            self.assertEqual(rig.json("nodes", "box")["state"], "drained")
            rig.ok("uncordon", "box")
            rig.ok("drain", "box", "--reason", "new fans")
            (node,) = rig.json("nodes")["nodes"]
            self.assertEqual((node["state"], node["reason"]), ("drained", "new fans"))
            job = rig.submit("--", "true")
            self.assertEqual(rig.job(job)["state"], "queued")
            rig.ok("undrain", "box")
            rig.ok("wait", job)
        finally:
            rig.close()
