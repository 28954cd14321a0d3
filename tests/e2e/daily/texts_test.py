"""Texts that are no text, too long, or cut within a letter: none of them stops a head or loses a
node."""
import unittest

from rig import RigTest, poll

ASK = """
import os, socket
s = socket.socket(socket.AF_UNIX)
s.connect(os.environ["BILLOW_AGENT_SOCKET"])
s.sendall(b"60 bad\\xff\\n")
print(s.recv(100).decode().split()[0])
"""


class Texts(RigTest):
    sim = "2xH100"

    def node(self):
        return self.rig.json("nodes")["nodes"][0]

    def works(self):
        self.assertEqual(
            self.rig.ok("run", "--gpus", 1, "--", "echo", "fine", timeout=60).out, b"fine\n"
        )

    def test_what_is_cut_within_a_letter_is_read_again(self):
        key = {"Idempotency-Key": b"a\xc3".decode("latin-1")}
        refused = self.rig.api("POST", "/v1/jobs", self.rig.spec("true"), headers=key)
        self.assertEqual((refused.status, refused.json["code"]), (400, "invalid"))
        job = self.rig.submit("--", "sleep", "600")
        self.rig.wait_for(job, "running")
        kept = self.rig.api(
            "POST", f"/v1/jobs/{job}/keepalive", {"for_s": 60, "reason": "a" * 255 + "é"}
        )
        self.assertEqual(kept.status, 200, kept)
        stopped = self.rig.api(
            "POST", f"/v1/jobs/{job}/stop", {"reason": "a" * 255 + "é", "force": True}
        )
        self.assertEqual(stopped.status, 200, stopped)
        self.rig.wait_for(job, "stopped")
        after = self.rig.api(
            "POST", "/v1/jobs", self.rig.spec("true", after=[{"job": job, "kind": "any"}])
        )
        self.assertEqual(after.status, 201, after)
        self.assertEqual(self.rig.api("GET", f"/v1/jobs/{job}").status, 200)
        self.rig.kill(self.rig.head_pid())
        self.works()  # a plain command starts it again

    def test_a_command_whose_failure_is_cut_within_a_letter_costs_no_node(self):
        for word in ("x" + "é" * 400, "é" * 400, "xx" + "é" * 400):
            answer = self.rig.api("POST", "/v1/jobs", self.rig.spec(word, rerun_if_lost=True))
            self.assertEqual(answer.status, 201, answer)
            self.rig.wait_for(answer.json["id"], "failed")
        self.works()
        self.rig.kill(self.rig.agent_pid())
        poll(lambda: self.node()["state"] == "ready" and self.rig.agent_pid(), "the agent's return")
        self.works()

    def test_a_job_that_says_no_text_to_its_agent_costs_no_connection(self):
        with open(self.rig.file("ask.py"), "w", encoding="ascii") as f:
            f.write(ASK)
        self.assertEqual(self.rig.ok("run", "--", "python3", self.rig.file("ask.py")).out, b"ok\n")
        self.works()

    def test_what_no_start_order_could_carry_is_refused(self):
        long = self.rig.api("POST", "/v1/jobs", self.rig.spec("true", suspend_hook="x" * 5_000_000))
        self.assertEqual((long.status, long.json["code"]), (413, "too_large"))
        body = self.rig.spec("true")
        body["env"]["BIG"] = "x" * 7_500_000
        schedule = self.rig.api(
            "POST", "/v1/schedules", {"name": "big", "cron": "* * * * *", **body}
        )
        self.assertEqual((schedule.status, schedule.json["code"]), (413, "too_large"))
        # Within the limit as text, and six times as long as it is sent.
        answer = self.rig.api(
            "POST", "/v1/jobs", self.rig.spec("true", suspend_hook="\x01" * 1_000_000)
        )
        self.assertEqual(answer.status, 201, answer)
        self.rig.wait_for(answer.json["id"], "failed")
        self.assertIn("exceed the", self.rig.ok("explain", answer.json["id"]).text)
        self.works()

    def test_times_that_do_not_count_any_more_are_refused(self):
        for limit in (2**63 - 1, 8 * 10**18):
            answer = self.rig.api("POST", "/v1/jobs", self.rig.spec("true", time_limit_ns=limit))
            self.assertEqual((answer.status, answer.json["code"]), (400, "invalid"))
        job = self.rig.submit("--", "sleep", "600")
        self.rig.wait_for(job, "running")
        self.assertEqual(
            self.rig.api("POST", f"/v1/jobs/{job}/keepalive", {"for_s": 18446744074}).status, 400
        )
        self.rig.ok("stop", "--force", "--wait", job)


if __name__ == "__main__":
    unittest.main()
