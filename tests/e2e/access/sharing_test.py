"""What people share: reservations, quotas, places, and the answers of explain."""
from rig import RigTest, alive, poll


class Sharing(RigTest):
    def setUp(self):
        self.rig.ok(
            "project", "set", "default", "--guarantee", "0", "--max", "none", "--policy", "fair"
        )

    def reasons(self, job):
        return [reason["kind"] for reason in self.rig.json("explain", job)["reasons"]]

    def test_a_reservation_keeps_gpus_free_and_is_shown_used_and_cancelled(self):
        made = self.rig.json(
            "reserve", "--gpus", 8, "--from", "+2h", "--for", "4h", "--name", "demo"
        )
        self.assertEqual(
            (made["state"], made["gpu_milli"], made["price_class"]), ("waiting", 8000, "reserved")
        )
        self.assertIn("demo", self.rig.ok("reserve", "list").text)
        calendar = self.rig.ok("reserve", "calendar", "--days", 1).text
        self.assertIn("A", calendar)
        self.assertIn("demo", calendar)
        endless = self.rig.submit("--gpus", 1, "--", "sleep", 600)
        self.assertEqual(self.reasons(endless), ["reserved"])
        self.assertIn("--time", self.rig.ok("explain", endless).text)
        self.assertEqual(
            self.rig.ok("run", "--gpus", 1, "--time", "1h", "--", "echo", "passes").text, "passes\n"
        )
        again = self.rig.cli("reserve", "--gpus", 1, "--from", "+3h", "--for", "1h")
        self.assertEqual(again.code, 1)
        self.assertIn(b"--from", again.err)
        self.rig.ok("reserve", "cancel", "demo")
        self.assertEqual(self.rig.cli("reserve", "cancel", "demo").code, 1)
        self.rig.ok("stop", "--wait", endless)

    def test_spot_work_runs_before_a_reservation_and_who_waits_for_one_hears_the_cure(self):
        spot = self.rig.submit("--gpus", 6, "--spot", "--", "sleep", 600)
        self.rig.wait_for(spot, "running")
        made = self.rig.cli(
            "reserve", "--gpus", 8, "--from", "+3h", "--for", "1h", "--name", "later"
        )
        self.assertEqual(made.code, 0)
        self.assertIn(f"will be preempted when it begins: {spot} ".encode(), made.err)
        also = self.rig.submit("--gpus", 1, "--spot", "--", "sleep", 600)
        self.rig.wait_for(also, "running")
        said = self.rig.ok("submit", "--gpus", 1, "--", "sleep", 600).text
        self.assertIn("The free capacity is kept for reservation", said)
        self.assertIn("--time 2h50m or --spot would start now", said)
        waiting = int(said.split()[1])
        self.rig.ok("stop", "--force", "--wait", waiting, spot, also)
        self.rig.ok("reserve", "cancel", "later")

    def test_explain_says_how_a_job_ended_and_what_is_far_too_much(self):
        failed = self.rig.submit("--", "sh", "-c", "exit 3")
        self.rig.cli("wait", failed)
        why = self.rig.json("explain", failed)
        self.assertEqual((why["state"], why["reasons"][0]["kind"]), ("failed", "ended"))
        self.assertIn("exit code 3", why["reasons"][0]["text"])
        self.assertIn(f"billow logs {failed}", self.rig.ok("explain", failed).text)
        much = self.rig.cli("submit", "--gpus", 1000000, "--", "true")
        self.assertEqual(much.code, 1)
        self.assertIn(b"no node has 1000000 GPUs; the largest has 8", much.err)
        self.assertIn(b"at most --gpus 8", much.err)

    def test_a_reservation_leaves_spot_work_alone_where_there_is_room_and_its_jobs_do_not_become_others(
        self,
    ):
        spot = self.rig.submit("--spot", "--gpus", 2, "--", "sleep", 600)
        poll(lambda: self.rig.json("describe", spot)["state"] == "running", "the spot job runs")
        made = self.rig.ok("reserve", "--gpus", 0.5, "--for", "1h", "--name", "half")
        self.assertIn("0.5 GPUs, ", made.text)
        self.assertIn("cores and ", made.text)
        self.assertIn(b"--gpus 0.5 --", made.err)
        too_large = self.rig.cli("submit", "--reservation", "half", "--gpus", 1, "--", "true")
        self.assertEqual(too_large.code, 1)
        self.assertIn(b"holds 0.5 GPUs", too_large.err)
        first = self.rig.submit("--reservation", "half", "--gpus", 0.5, "--", "sleep", 600)
        second = self.rig.submit("--reservation", "half", "--gpus", 0.5, "--", "echo", "went on")
        poll(
            lambda: self.rig.json("describe", first)["state"] == "running", "the first runs inside"
        )
        cancelled = self.rig.ok("reserve", "cancel", "half")
        self.assertIn(f"billow resume --on-demand {second}".encode(), cancelled.err)
        self.assertEqual(self.reasons(second), ["held"])
        self.assertIn("reservation", self.rig.ok("explain", second).text)
        refused = self.rig.cli("resume", second)
        self.assertEqual(refused.code, 1)
        self.assertIn(b"--on-demand", refused.err)
        self.rig.ok("resume", "--on-demand", second)
        self.assertEqual(self.rig.json("wait", second)["state"], "succeeded")
        self.assertEqual(self.rig.json("describe", spot)["state"], "running")
        self.assertEqual(self.rig.json("describe", first)["state"], "running")
        self.rig.ok("stop", "--wait", first, spot)
        poll(
            lambda: any(
                "unused" in line["job"] for line in self.rig.json("cost", "--by", "job")["lines"]
            ),
            "what was reserved and not used has a name",
        )

    def test_a_job_runs_inside_a_reservation(self):
        made = self.rig.json("reserve", "--gpus", 2, "--for", "1h", "--name", "inside")
        job = self.rig.submit("--reservation", "inside", "--gpus", 2, "--", "true")
        self.assertEqual(self.rig.cli("wait", job).code, 0)
        self.assertEqual(made["state"], "active")
        self.assertTrue(self.rig.json("reserve", "cancel", "inside")["ok"])

    def test_quotas_hold_and_explain_says_what_would_help(self):
        self.rig.ok("project", "set", "default", "--max", 4)
        first = self.rig.submit("--gpus", 3, "--", "sleep", 600)
        second = self.rig.submit("--gpus", 2, "--", "sleep", 600)
        self.assertEqual(self.reasons(second), ["project_limit"])
        self.assertIn("--gpus 1", self.rig.ok("explain", second).text)
        never = self.rig.cli("submit", "--gpus", 5, "--", "true")
        self.assertEqual(never.code, 1)
        self.assertIn(b"the job needs 5 GPUs; project default may use 4 at once", never.err)
        listed = self.rig.json("project", "list")["projects"][0]
        self.assertEqual((listed["limit_milli"], listed["running_milli"]), (4000, 3000))
        self.rig.ok("stop", "--wait", first, second)

    def test_what_makes_no_sense_is_refused_with_a_hint(self):
        for words, said in (
            (("reserve", "--gpus", 8), b"the length is missing"),
            (("reserve", "--for", "1h"), b"--gpus"),
            (("reserve", "--gpus", 8, "--from", "then", "--for", "1h"), b"is not a time"),
            (("project", "set", "default", "--policy", "luck"), b"fair"),
            (("submit", "--gpus", 1, "--elastic", "--", "true"), b"--nodes 2"),
            (("submit", "--topology", "moon", "--", "true"), b"rack"),
            (("submit", "--region", "nowhere", "--", "true"), b"region"),
        ):
            done = self.rig.cli(*words)
            self.assertNotEqual(done.code, 0, words)
            self.assertIn(said, done.err, words)
        nine = self.rig.cli("submit", "--gpus", 9, "--", "true")
        self.assertNotIn(b"--nodes", nine.err, "one node cannot be two")

    def test_a_whole_node_is_cleaned_when_its_job_ends(self):
        """What the job left running is ended with it, the GPUs are seen to be empty, and the node
        takes work again."""
        script = self.rig.script(
            "setsid sleep 12345 < /dev/null > /dev/null 2>&1 &\necho $! > left\necho all of it\n"
        )
        ran = self.rig.ok("run", "--whole-node", "--", "sh", script)
        self.assertEqual(ran.text, "all of it\n")
        with open(self.rig.file("left"), encoding="ascii") as f:
            left = int(f.read())
        poll(lambda: not alive(left), "what the job left behind to end")
        node = self.rig.json("nodes")["nodes"][0]
        self.assertEqual(node["state"], "ready", node)
        self.assertEqual(self.rig.ok("run", "--gpus", 1, "--", "echo", "next").text, "next\n")

    def test_fifo_waits_in_order_and_says_for_whom(self):
        self.rig.ok("project", "set", "default", "--policy", "fifo")
        first = self.rig.submit("--gpus", 6, "--", "sleep", 600)
        second = self.rig.submit("--gpus", 4, "--", "sleep", 600)
        third = self.rig.submit("--gpus", 1, "--", "sleep", 600)
        self.rig.wait_for(first, "running")
        self.assertEqual(self.rig.job(third)["state"], "queued")
        self.assertIn(f"job {second} is first", self.rig.ok("explain", third).text)
        self.rig.ok("project", "set", "default", "--policy", "fair")
        self.rig.wait_for(third, "running")
        self.rig.ok("stop", "--wait", first, second, third)
