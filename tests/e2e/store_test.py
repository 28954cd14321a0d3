"""The store on a real PostgreSQL: the same head on it, restarts of both, and URLs that lead nowhere."""
import os
import unittest

import postgres
from rig import Rig, poll

WHY_NOT = postgres.unusable()


def finished(rig):
    return sorted((j["id"], j["state"], j["command"]) for j in rig.json("ps", "-a", "--limit", 1000)["jobs"])


@unittest.skipIf(WHY_NOT, WHY_NOT)
class OnPostgres(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.pg = postgres.Postgres()

    @classmethod
    def tearDownClass(cls):
        cls.pg.close()

    def test_the_same_head_on_another_store(self):
        url = self.pg.database("same")
        rig = Rig(args=("--store", url))
        try:
            self.assertEqual(rig.ok("run", "--gpus", 1, "--label", "a=b", "--", "echo", "stored").out, b"stored\n")
            array = rig.submit("--array", "0-9", "--", "true")
            self.assertEqual(rig.cli("wait", array).code, 0)
            failed = rig.submit("--", "sh", "-c", "exit 3")
            self.assertEqual(rig.cli("wait", failed).code, 3)
            before = finished(rig)
            events = rig.api("GET", "/v1/events?limit=1000").json["events"]
            self.assertGreater(len(events), 20)
            # Everything is in the database, and nothing in a file.
            self.assertFalse(os.path.exists(os.path.join(rig.data, "billow.db")))
            self.assertEqual(int(self.pg.psql("SELECT count(*) FROM billow.events", "same")), max(e["seq"] for e in events))
            rig.kill(rig.head_pid())
            rig.up()
            self.assertEqual(finished(rig), before)
            self.assertEqual([e["seq"] for e in rig.api("GET", "/v1/events?limit=1000").json["events"]][:len(events)], [e["seq"] for e in events])
            self.assertEqual(len(rig.json("ps", "-a", "--label", "a=b")["jobs"]), 1)
            # A second head on it is told who leads.
            other = Rig(up=False)
            try:
                refused = other.cli("up", "--background", "--listen", "127.0.0.1:0", "--store", url)
                self.assertNotEqual(refused.code, 0)
                self.assertIn(rig.data, refused.errors)
                self.assertIn("--standby", refused.errors)
            finally:
                other.close()
        finally:
            rig.close()

    def test_a_database_that_restarts_is_waited_for(self):
        url = self.pg.database("restarts")
        rig = Rig(args=("--store", url))
        try:
            gate = rig.file("gate")
            job = rig.submit("--", "sh", "-c", f"until [ -e {gate} ]; do sleep 0.05; done; exit 4")
            rig.wait_for(job, "running")
            self.pg.stop()
            waiting = rig.start("submit", "--", "true")  # not answered before it is durable
            with open(gate, "w", encoding="ascii"):
                pass
            poll(lambda: "not answered" in rig.head_log() or "PostgreSQL" in rig.head_log(), "the head notices", 20)
            self.assertIsNone(waiting.poll())
            self.pg.start()
            self.assertEqual(waiting.wait(60), 0)
            self.assertEqual(rig.cli("wait", job, timeout=60).code, 4)
        finally:
            rig.close()

    def test_urls_that_lead_nowhere(self):
        rig = Rig(up=False)
        try:
            for url, word in ((f"postgres://billow:secret@127.0.0.1:{self.pg.port}/nosuch", "nosuch"), ("postgres://billow:secret@127.0.0.1:1/x", "cannot connect"), ("mysql://x/y", "no store")):
                done = rig.cli("up", "--background", "--listen", "127.0.0.1:0", "--store", url, timeout=60)
                self.assertNotEqual(done.code, 0, done)
                self.assertIn(word, done.errors)
                self.assertNotIn("secret", done.errors)
        finally:
            rig.close()


if __name__ == "__main__":
    unittest.main()
