"""Retention of the journal on a running head: small limits, many jobs, kill -9 while old events are
removed. What people ask for afterwards is as it was: jobs, bills, variables, the audit trail."""
import json
import os
import sqlite3
import time
import unittest

from rig import Rig, poll

KEPT = 200  # events


class Retention(unittest.TestCase):
    def setUp(self):
        self.rig = Rig(args=("--keep-events-max", str(KEPT)))
        self.addCleanup(self.rig.close)

    def database(self, sql):
        path = os.path.join(self.rig.data, "billow.db")
        db = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10)
        try:
            return db.execute(sql).fetchone()
        finally:
            db.close()

    def removed(self):
        """The number of the last event that was removed."""
        row = self.database("SELECT seq FROM pruned")
        return row[0] if row else 0

    def snapshots(self):
        folder = os.path.join(self.rig.data, "snapshots")
        return sorted(os.listdir(folder)) if os.path.isdir(folder) else []

    def verify(self):
        answer = json.loads(self.rig.cli("audit", "verify", "--json").out)
        self.assertTrue(answer["intact"], answer)
        return answer

    def work(self, jobs):
        array = self.rig.submit("--gpus", 1, "--array", f"0-{jobs - 1}", "--", "true")
        self.assertEqual(self.rig.cli("wait", array, timeout=180).code, 0)

    def bills(self):
        """What each job was charged and cost, in nano-dollars."""
        lines = self.rig.json("cost", "--by", "job", "--since", "2d")["lines"]
        return {
            line["job"]: (line["charge_nano_usd"], line["cost_nano_usd"]) for line in lines
        }

    def jobs(self):
        return sorted(
            (j["id"], j["state"])
            for j in self.rig.json("ps", "-a", "--expand", "--limit", 1000)["jobs"]
        )

    def test_old_events_go_and_nothing_that_people_ask_for(self):
        first = self.rig.submit("--env-var", "WORD=remembered", "--", "sh", "-c", "echo $WORD")
        self.assertEqual(self.rig.cli("wait", first).code, 0)
        # Old events go when a second snapshot was made, and each needs some new events.
        for jobs in (60, 60):
            snapshots = self.snapshots()
            self.work(jobs)
            poll(lambda: self.snapshots() != snapshots, "a snapshot", 30)
        bills, jobs = self.bills(), self.jobs()
        self.assertEqual(len(jobs), 121)
        self.assertEqual(len(bills), 121)
        self.assertGreater(sum(charge for charge, _ in bills.values()), 0)
        anchor = self.verify()
        # kill -9 as soon as something was removed: most of it is still to come.
        before = self.removed()
        end = time.monotonic() + 90
        while self.removed() == before:
            self.assertLess(time.monotonic(), end, "nothing is removed")
            time.sleep(0.001)
        self.rig.kill(self.rig.head_pid())
        self.verify_stored()
        self.rig.up()
        self.assertEqual(self.bills(), bills)
        self.assertEqual(self.jobs(), jobs)
        for jobs_more in (40, 40):
            snapshots = self.snapshots()
            self.work(jobs_more)
            poll(lambda: self.snapshots() != snapshots, "another snapshot", 30)
        # Replay needs what follows the older of two snapshots, so a few more events than asked for.
        poll(
            lambda: self.database("SELECT count(*) FROM events")[0] < 3 * KEPT,
            "old events removed",
            90,
        )
        self.assertGreater(self.removed(), before)
        self.verify()
        self.assertGreater(self.verify()["last"], anchor["last"])
        self.verify_stored()
        now = self.bills()
        self.assertEqual({job: now[job] for job in bills}, bills)
        self.assertEqual([j for j in self.jobs() if j in jobs], jobs)
        submitted = self.database(
            f"SELECT count(*) FROM events WHERE kind = 'jobs_submitted' AND seq <= {self.removed()}"
        )
        self.assertEqual(submitted[0], 0)
        # The variables of a job whose events are gone.
        again = self.rig.json("rerun", first)["id"]
        poll(lambda: self.rig.job(again)["state"] == "succeeded", "the job again", 30)
        self.assertEqual(self.rig.ok("logs", again).text, "remembered\n")

    def verify_stored(self):
        done = self.rig.ok("store", "verify", "--data", self.rig.data, "--json")
        self.assertGreater(json.loads(done.out)["records"], 0)


if __name__ == "__main__":
    unittest.main()
