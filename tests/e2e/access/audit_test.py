"""The journal as an audit trail: who, from where, with which token; and changes made behind the
head's back are found, by the head's client, in an exported file and in the store itself."""
import json
import os
import sqlite3
import tempfile
import unittest

from rig import Rig


class Audit(unittest.TestCase):
    def setUp(self):
        self.rig = Rig()
        self.addCleanup(self.rig.close)
        self.rig.ok("run", "--", "true")

    def records(self):
        lines = self.rig.ok("audit", "export").text.splitlines()
        return [json.loads(line) for line in lines]

    def verify(self, *args):
        done = self.rig.cli("audit", "verify", *args, "--json")
        return json.loads(done.out)

    def change(self, sql, *values):
        """As somebody would who can write the data directory."""
        self.rig.kill(self.rig.head_pid())
        with sqlite3.connect(os.path.join(self.rig.data, "billow.db")) as db:
            self.assertGreater(db.execute(sql, values).rowcount, 0)
        db.close()
        self.rig.up()

    def submitted(self):
        return [r for r in self.records() if r["kind"] == "jobs_submitted"][0]

    def test_a_record_says_who_from_where_and_with_which_token(self):
        record = self.submitted()
        self.assertTrue(record["actor"].startswith("user:"))
        self.assertEqual(record["from"], f"unix:uid={os.getuid()}")
        self.assertGreater(record["token_id"], 0)
        self.assertEqual(len(record["chain"]["link"]), 64)

    def test_an_unchanged_journal_is_intact_across_restarts(self):
        first = self.verify()
        self.assertTrue(first["intact"], first)
        self.assertEqual(first["without_link"], 0)
        self.rig.kill(self.rig.head_pid())
        self.rig.up()
        self.rig.ok("run", "--", "true")
        second = self.verify("--anchor", f"{first['last']}:{first['link']}")
        self.assertTrue(second["intact"], second)
        self.assertGreater(second["records"], first["records"])
        stored = json.loads(self.rig.ok("store", "verify", "--data", self.rig.data, "--json").out)
        self.assertGreaterEqual(stored["records"], second["records"])

    def test_a_changed_record_is_named(self):
        seq = self.submitted()["seq"]
        self.change(
            "UPDATE events SET payload = replace(payload, '\"user:', '\"user:not-') WHERE seq = ?",
            seq,
        )
        found = self.verify()
        self.assertFalse(found["intact"])
        self.assertIn(f"record {seq} ", found["problem"])
        refused = self.rig.cli("store", "verify", "--data", self.rig.data)
        self.assertEqual(refused.code, 1)
        self.assertIn(f"record {seq} ", refused.errors)

    def test_a_removed_record_is_named(self):
        records = self.records()
        denied = self.rig.api("GET", "/v1/status", token="not-a-token")
        self.assertEqual(denied.status, 401)
        seq = records[3]["seq"]
        self.change("DELETE FROM events WHERE seq = ?", seq)
        found = self.verify()
        self.assertFalse(found["intact"])
        self.assertIn(f"from record {seq - 1} to {seq + 1}", found["problem"])

    def test_records_whose_first_ones_are_gone_are_not_intact(self):
        lines = self.rig.ok("audit", "export").out.splitlines(keepends=True)
        with tempfile.NamedTemporaryFile() as file:
            file.write(b"".join(lines[5:]))
            file.flush()
            found = self.verify(file.name)
        self.assertFalse(found["intact"])
        self.assertIn("begins with record 6", found["problem"])

    def test_a_chain_computed_anew_does_not_fit_the_anchor(self):
        noted = self.verify()
        import hashlib

        self.rig.kill(self.rig.head_pid())
        db = sqlite3.connect(os.path.join(self.rig.data, "billow.db"))
        db.execute("UPDATE events SET at = at - 1 WHERE seq = 2")
        link = ""
        rows = db.execute(
            "SELECT seq, epoch, at, kind, payload FROM events ORDER BY seq"
        ).fetchall()
        for seq, epoch, at, kind, payload in rows:
            digest = hashlib.sha256(payload.encode()).hexdigest()
            text = f"{link}\n{seq}\n{epoch}\n{at}\n{kind}\n{digest}"
            link = hashlib.sha256(text.encode()).hexdigest()
            db.execute("UPDATE events SET link = ? WHERE seq = ?", (link, seq))
        db.commit()
        db.close()
        self.rig.up()
        self.assertTrue(self.verify()["intact"])
        found = self.verify("--anchor", f"{noted['last']}:{noted['link']}")
        self.assertFalse(found["intact"])
        self.assertIn("anchor", found["problem"])

    def test_exported_files_are_checked_without_a_head(self):
        exported = self.rig.ok("audit", "export").out
        with tempfile.NamedTemporaryFile() as file:
            file.write(exported)
            file.flush()
            self.assertTrue(self.verify(file.name)["intact"])
            lines = exported.splitlines(keepends=True)
            changed = json.loads(lines[2])
            changed["kind"] = "something_else"
            lines[2] = (json.dumps(changed) + "\n").encode()
            file.seek(0)
            file.truncate()
            file.write(b"".join(lines))
            file.flush()
            found = self.verify(file.name)
            self.assertFalse(found["intact"])
            self.assertIn("record 3 ", found["problem"])

    def test_the_formats_of_other_systems(self):
        line = self.rig.ok("audit", "export", "--format", "syslog").text.splitlines()[0]
        self.assertRegex(line, r"^<110>1 \d{4}-\d\d-\d\dT\S+Z \S+ billow - [a-z_]+ - \{")
        event = json.loads(self.rig.ok("audit", "export", "--format", "ocsf").text.splitlines()[0])
        self.assertEqual(event["class_uid"], 6003)
        self.assertEqual(event["type_uid"], event["class_uid"] * 100 + event["activity_id"])
        refused = self.rig.cli("audit", "export", "--format", "xml")
        self.assertEqual(refused.code, 2)
        self.assertIn("json, syslog or ocsf", refused.errors)

    def test_only_admins_read_it(self):
        self.rig.ok("user", "create", "ana")
        token = self.rig.ok("token", "create", "t", "--user", "ana").text.split()[-1]
        self.assertEqual(self.rig.api("GET", "/v1/events?chain=1", token=token).status, 403)


if __name__ == "__main__":
    unittest.main()
