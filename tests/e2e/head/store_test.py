"""The store on a real PostgreSQL: the same head on it, restarts of both, URLs that lead nowhere;
and moving, backing up, restoring."""
import os
import shutil
import unittest

import postgres
import zero_bytes
from rig import Rig, WebSocket, agent_frame, poll

KEPT = 4_000_000  # events, as the operator of these heads chose


def finished(rig):
    return sorted(
        (j["id"], j["state"], j["command"]) for j in rig.json("ps", "-a", "--limit", 1000)["jobs"]
    )


class OnPostgres(postgres.PostgresTest):
    def test_the_same_head_on_another_store(self):
        url = self.pg.database("same")
        rig = Rig(args=("--store", url))
        try:
            self.assertEqual(
                rig.ok("run", "--gpus", 1, "--label", "a=b", "--", "echo", "stored").out,
                b"stored\n",
            )
            array = rig.submit("--array", "0-9", "--", "true")
            self.assertEqual(rig.cli("wait", array).code, 0)
            failed = rig.submit("--", "sh", "-c", "exit 3")
            self.assertEqual(rig.cli("wait", failed).code, 3)
            before = finished(rig)
            events = rig.api("GET", "/v1/events?limit=1000").json["events"]
            self.assertGreater(len(events), 20)
            # Everything is in the database, and nothing in a file.
            self.assertFalse(os.path.exists(os.path.join(rig.data, "billow.db")))
            self.assertEqual(
                int(self.pg.psql("SELECT count(*) FROM billow.events", "same")),
                max(e["seq"] for e in events),
            )
            rig.kill(rig.head_pid())
            rig.up()
            self.assertEqual(finished(rig), before)
            self.assertEqual(
                [e["seq"] for e in rig.api("GET", "/v1/events?limit=1000").json["events"]][
                    : len(events)
                ],
                [e["seq"] for e in events],
            )
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

    def test_a_zero_byte_in_any_text_is_refused_and_the_head_goes_on(self):
        rig = Rig(sim="1xH100", args=("--store", self.pg.database("zeros")))
        try:
            self.assertGreater(zero_bytes.check(self, rig), 100)
            for query in (
                "name=a%00b",
                "label=a%00=b",
                "user=%00",
                "state=all&project=%00",
                "q=%00",
            ):
                self.assertLess(rig.api("GET", f"/v1/jobs?{query}").status, 500, query)
            # What a node says is not refused, it is repaired: the node is not the one to ask.
            peer = WebSocket(rig, "/v1/agent", rig.node_token("zero"))
            peer.send(
                agent_frame(
                    {
                        "type": "hello",
                        "offer": {
                            "name": "zero",
                            "boot_id": "a\0b",
                            "version": "\0",
                            "cpu_milli": 0,
                            "mem_mib": 1000,
                            "labels": {"x": "y\0z"},
                        },
                    }
                )
            )
            poll(lambda: "zero" in rig.ok("nodes").text, "the node", 20)
            peer.close()
            self.assertEqual(rig.ok("run", "--", "echo", "goes on").out, b"goes on\n")
            self.assertNotIn("fatal", rig.head_log())
        finally:
            rig.close()

    def password(self, name):
        """A database that lets nobody in without one."""
        url = self.pg.database(name)
        self.pg.psql(f"CREATE ROLE {name} LOGIN SUPERUSER PASSWORD 'se cret@1'")
        with open(f"{self.pg.dir}/data/pg_hba.conf", encoding="ascii") as f:
            rules = f.read()
        with open(f"{self.pg.dir}/data/pg_hba.conf", "w", encoding="ascii") as f:
            f.write(f"host all {name} 127.0.0.1/32 scram-sha-256\n{rules}")
        self.pg.psql("SELECT pg_reload_conf()")
        return url.replace("billow@", f"{name}@"), url.replace("billow@", f"{name}:se%20cret%401@")

    def test_a_password_comes_by_a_file_or_a_variable_and_is_shown_nowhere(self):
        plain, full = self.password("guarded")
        rig = Rig(up=False, args=())
        path = rig.file("store-url")
        try:
            refused = rig.cli("up", "--background", "--listen", "127.0.0.1:0", "--store", plain)
            self.assertNotEqual(refused.code, 0, refused)
            with open(path, "w", encoding="ascii") as f:
                f.write(full + "\n")
            os.chmod(path, 0o644)
            self.assertIn(
                "can be read by other users",
                rig.cli(
                    "up", "--background", "--listen", "127.0.0.1:0", "--store-file", path
                ).errors,
            )
            os.chmod(path, 0o600)
            pgpass = rig.file("pgpass")
            with open(pgpass, "w", encoding="ascii") as f:
                f.write("*:*:*:guarded:se cret@1\n")
            os.chmod(pgpass, 0o600)
            for args, variables in (
                (["--store-file", path], {}),
                (["--store", plain], {"PGPASSWORD": "se cret@1"}),
                ([], {"BILLOW_STORE": full}),
                (["--store", plain], {"PGPASSFILE": pgpass}),
                (["--store", full], {}),
            ):
                rig.environment.update(variables)
                up = rig.up(*args)
                for name in variables:
                    del rig.environment[name]
                self.assertEqual("among the arguments" in up.errors, full in args, (args, up))
                seen = (
                    rig.ok("run", "--", "env").text
                    + rig.ok("status", "--json").text
                    + rig.head_log()
                    + rig.read("agent.log")
                    + up.text
                    + up.errors
                    + rig.read("store")
                )
                for pid in rig.processes():
                    with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as f:
                        seen += f.read()
                    if (
                        pid != rig.head_pid()
                    ):  # the head's own is what it was started with, and its user's alone
                        with open(f"/proc/{pid}/environ", encoding="utf-8", errors="replace") as f:
                            seen += f.read()
                for secret in ("se cret@1", "se%20cret%401"):
                    self.assertNotIn(secret, seen.replace(rig.files, ""), args)
                rig.ok("down")
                poll(lambda: not rig.processes(), "the end of all", 30)
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
            poll(
                lambda: "not answered" in rig.head_log() or "PostgreSQL" in rig.head_log(),
                "the head notices",
                20,
            )
            self.assertIsNone(waiting.poll())
            self.pg.start()
            self.assertEqual(waiting.wait(60), 0)
            self.assertEqual(rig.cli("wait", job, timeout=60).code, 4)
        finally:
            rig.close()

    def test_urls_that_lead_nowhere(self):
        rig = Rig(up=False)
        try:
            for url, word in (
                (f"postgres://billow:secret@127.0.0.1:{self.pg.port}/nosuch", "nosuch"),
                ("postgres://billow:secret@127.0.0.1:1/x", "cannot connect"),
                ("mysql://x/y", "not the URL of a store"),
            ):
                done = rig.cli(
                    "up", "--background", "--listen", "127.0.0.1:0", "--store", url, timeout=60
                )
                self.assertNotEqual(done.code, 0, done)
                self.assertIn(word, done.errors)
                self.assertNotIn("secret", done.errors)
        finally:
            rig.close()


class Moving(postgres.PostgresTest):
    """A store moved, backed up and restored: what a user sees afterwards is what was there before."""

    def worked(self, *args):
        rig = Rig(args=(*args, "--keep-events-max", str(KEPT)))
        rig.cli("wait", rig.submit("--array", "0-19", "--label", "k=v'\"\\{}", "--", "true"))
        rig.cli("wait", rig.submit("--gpus", 1, "--", "sh", "-c", "exit 5"))
        return rig

    def kept(self, database):
        """The limit of the journal that a database holds."""
        return self.pg.psql(
            "SELECT value FROM billow.meta WHERE key = 'keep_events_max'", database
        )

    def test_from_sqlite_to_postgres_and_on(self):
        url = self.pg.database("moved")
        rig = self.worked()
        try:
            before = finished(rig)
            events = rig.api("GET", "/v1/events?limit=1000").json["events"]
            busy = rig.cli("store", "migrate", url)
            self.assertNotEqual(busy.code, 0, "its head runs")
            self.assertIn("in use", busy.errors)
            rig.ok("down")
            done = rig.ok("store", "migrate", url)
            self.assertIn("events", done.text)
            again = rig.cli("store", "migrate", url)
            self.assertNotEqual(again.code, 0)
            self.assertIn("already", again.errors)
            self.assertEqual(self.kept("moved"), str(KEPT), "the operator's choice moves, too")
            # Nobody goes on with the old one by accident.
            old = rig.cli("run", "--", "true")
            self.assertNotEqual(old.code, 0)
            self.assertIn("--store", old.errors)
            rig.up("--store", url)
            self.assertEqual(finished(rig), before)
            self.assertEqual(
                [
                    (e["seq"], e["kind"])
                    for e in rig.api("GET", "/v1/events?limit=1000").json["events"]
                ][: len(events)],
                [(e["seq"], e["kind"]) for e in events],
            )
            self.assertEqual(len(rig.json("ps", "-a", "--label", "k=v'\"\\{}")["jobs"]), 1)
            self.assertEqual(rig.ok("run", "--", "echo", "on").out, b"on\n")
            self.assertEqual(len(finished(rig)), len(before) + 1)
        finally:
            rig.close()

    def test_backup_and_restore_of_both(self):
        for kind in ("sqlite", "postgres"):
            with self.subTest(kind):
                args = ("--store", self.pg.database("backed")) if kind == "postgres" else ()
                rig = self.worked(*args)
                try:
                    backup = rig.file("backup")
                    rig.ok("store", "backup", *args, backup)  # while it runs
                    self.assertEqual(os.stat(backup).st_mode & 0o077, 0, "it holds secrets")
                    self.assertNotEqual(
                        rig.cli("store", "backup", *args, backup).code, 0, "never over another"
                    )
                    before = finished(rig)
                    for _ in range(3):
                        rig.ok("run", "--", "true")  # after the backup: not in it
                    rig.ok("down")
                    other = Rig(up=False)
                    try:
                        target = (
                            ("--store", self.pg.database("restored")) if kind == "postgres" else ()
                        )
                        if kind == "postgres":
                            self.refuse_damaged(other, backup, target)
                        other.ok("store", "restore", backup, *target)
                        self.assertNotEqual(
                            other.cli("store", "restore", backup, *target).code,
                            0,
                            "never over another",
                        )
                        if kind == "postgres":
                            self.assertEqual(self.kept("restored"), str(KEPT))
                        # The node remembers tasks from after the backup, and starts no task of a
                        # number it knows.
                        shutil.copytree(
                            os.path.join(rig.data, "agent", "tasks"),
                            os.path.join(other.data, "agent", "tasks"),
                        )
                        other.args = list(target)
                        other.up()
                        self.assertEqual(finished(other), before)
                        with open(
                            os.path.join(rig.data, "installation"), encoding="ascii"
                        ) as a, open(
                            os.path.join(other.data, "installation"), encoding="ascii"
                        ) as b:
                            self.assertEqual(
                                a.read(), b.read(), "pools' machines know it by this name"
                            )
                        for _ in range(4):
                            self.assertEqual(
                                other.ok("run", "--gpus", 1, "--", "echo", "again").out, b"again\n"
                            )
                    finally:
                        other.close()
                finally:
                    rig.close()

    def refuse_damaged(self, rig, backup, target):
        with open(backup, "rb") as f:
            whole = f.read()
        self.assertIn(b"exit 5", whole)
        for damage in (
            whole[: len(whole) // 2],
            whole.replace(b"exit 5", b"exit 6", 1),
            b"",
            b"{}\n",
            whole[:-10],
        ):
            with open(backup + ".bad", "wb") as f:
                f.write(damage)
            bad = rig.cli("store", "restore", backup + ".bad", *target)
            self.assertNotEqual(bad.code, 0)
            self.assertIn("not a complete backup", bad.errors)

    def test_scheduled_backups_come_and_the_oldest_go(self):
        for kind in ("sqlite", "postgres"):
            with self.subTest(kind):
                rig = Rig(up=False)
                try:
                    folder = rig.file("backups")
                    rig.args = [
                        "--backup-dir",
                        folder,
                        "--backup-every",
                        "1s",
                        "--backup-keep",
                        "2",
                    ]
                    if kind == "postgres":
                        rig.args += ["--store", self.pg.database("scheduled")]
                    rig.up()
                    seen = set()

                    def there():
                        return (
                            sorted(n for n in os.listdir(folder) if not n.endswith(".partial"))
                            if os.path.isdir(folder)
                            else []
                        )

                    def look():
                        seen.update(there())
                        return len(seen) >= 4

                    poll(look, "four backups", 60)
                    rig.ok("down")
                    self.assertLessEqual(len(there()), 3)
                    # The newest is one that can be restored.
                    rig.ok(
                        "store",
                        "restore",
                        os.path.join(folder, there()[-1]),
                        *(
                            ("--store", self.pg.database("tried"))
                            if kind == "postgres"
                            else ("--data", rig.file("tried"))
                        ),
                    )
                finally:
                    rig.close()

    def test_words_that_make_no_sense(self):
        rig = Rig(up=False)
        try:
            for args, word in (
                (("store", "migrate", "mysql://me:secret@x/y"), "not a PostgreSQL"),
                (("store", "migrate", "postgres://127.0.0.1:1/x"), "no store"),
                (("store", "backup", rig.file("x")), "no store"),
                (("store", "restore", rig.file("nothing")), "not a backup"),
                (("up", "--backup-every", "1h"), "--backup-dir"),
                (("up", "--backup-dir", "/tmp/x", "--backup-keep", "0"), "--backup-keep"),
                (("up", "--standby"), "--store"),
            ):
                done = rig.cli(*args)
                self.assertNotEqual(done.code, 0, done)
                self.assertIn(word, done.errors)
                self.assertNotIn("secret", done.errors)
        finally:
            rig.close()


if __name__ == "__main__":
    unittest.main()
