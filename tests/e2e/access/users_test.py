"""People on one machine: whom jobs run as, who sees what, and which files others can read."""
import os
import pwd
import stat
import unittest

from rig import RigTest, poll


@unittest.skipUnless(os.geteuid() == 0, "needs root, to run jobs as somebody else")
class Users(RigTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for name, unix_name in (("ana", "nobody"), ("ben", "daemon")):
            cls.rig.ok("user", "create", name, "--unix-name", unix_name)
        for project in ("red", "blue"):
            cls.rig.ok("project", "create", project)
        cls.rig.ok("project", "member", "red", "ana")
        cls.rig.ok("project", "member", "blue", "ben")
        cls.tokens = {
            name: cls.rig.json("token", "create", f"{name}-token", "--user", name)["token"]
            for name in ("ana", "ben")
        }

    def cli(self, who, *args, **options):
        return self.rig.cli(*args, env={"BILLOW_TOKEN": self.tokens[who]}, **options)

    def test_jobs_run_as_the_account_of_their_user(self):
        done = self.cli(
            "ana",
            "run",
            "--cwd",
            "/",
            "--",
            "sh",
            "-c",
            "id -u; id -g; id -G; echo $HOME $USER; grep NoNewPrivs /proc/self/status",
        )
        nobody = pwd.getpwnam("nobody")
        lines = done.text.splitlines()
        self.assertEqual(done.code, 0, done)
        self.assertEqual(lines[:2], [str(nobody.pw_uid), str(nobody.pw_gid)])
        self.assertNotIn("0", lines[2].split())
        self.assertEqual(lines[3], f"{nobody.pw_dir} nobody")
        self.assertRegex(lines[4], r"1$")
        self.assertEqual(self.rig.cli("run", "--", "id", "-u").text.strip(), "0")

    def test_nobody_is_made_root(self):
        for unix_name in ("root", "0"):
            answer = self.rig.api(
                "POST",
                "/v1/users",
                {"name": f"evil-{unix_name}", "unix_name": unix_name, "role": "member"},
            )
            self.assertEqual(answer.status // 100, 4, answer)
        self.assertEqual(
            self.rig.api(
                "POST", "/v1/users", {"name": "root2", "unix_name": "root", "role": "admin"}
            ).status,
            400,
        )
        self.assertNotIn("evil-root", self.rig.ok("user", "list").text)

    def test_a_user_without_an_account_gets_a_clear_end(self):
        self.rig.ok("user", "create", "carl", "--unix-name", "no-such-account")
        self.rig.ok("project", "member", "red", "carl")
        token = self.rig.json("token", "create", "carl-token", "--user", "carl")["token"]
        done = self.rig.cli("run", "--cwd", "/", "--", "id", env={"BILLOW_TOKEN": token})
        self.assertEqual(done.code, 126)
        self.assertIn("no user 'no-such-account'", done.errors)

    def test_a_job_cannot_reach_into_the_data_directory(self):
        for path in ("token", "node-token", "billow.db", "agent", "."):
            done = self.cli(
                "ana",
                "run",
                "--cwd",
                "/",
                "--",
                "ls",
                "-l",
                os.path.join(self.rig.data, path, "" if path in ("agent", ".") else "").rstrip("/")
                + ("/" if path in ("agent", ".") else ""),
            )
            self.assertNotEqual(done.code, 0, path)
            self.assertIn("ermission denied", done.errors)

    def test_files_are_for_their_owner_alone(self):
        self.rig.ok("run", "--", "echo", "private")

        def mode(name):
            return stat.S_IMODE(os.stat(os.path.join(self.rig.data, name)).st_mode)

        self.assertEqual(mode(""), 0o700)
        for name in ("token", "node-token", "head.json"):
            self.assertEqual(mode(name), 0o600, name)
        for name in ("billow.db", "head.log", "agent.log"):
            self.assertEqual(mode(name) & 0o077 & ~0o044, 0, name)
        self.assertEqual(mode("agent") & 0o077, 0)

    def test_each_sees_the_jobs_of_their_projects(self):
        ana = int(self.cli("ana", "submit", "-q", "--cwd", "/", "--", "sleep", "600").text)
        ben = int(self.cli("ben", "submit", "-q", "--cwd", "/", "--", "sleep", "600").text)
        for job in (ana, ben):
            self.rig.wait_for(job, "running")
        self.assertEqual([j["id"] for j in self.cli("ana", "ps", "--json").json["jobs"]], [ana])
        self.assertEqual([j["id"] for j in self.cli("ben", "ps", "--json").json["jobs"]], [ben])
        self.assertEqual({j["id"] for j in self.rig.json("ps")["jobs"]}, {ana, ben})
        for command in (["describe"], ["logs"], ["stop"], ["explain"]):
            done = self.cli("ben", *command, str(ana))
            self.assertNotEqual(done.code, 0, command)
            self.assertIn("no", done.errors)
        self.assertEqual(self.rig.job(ana)["state"], "running")
        # A member who may look is not one who may act on others' jobs.
        self.rig.ok("project", "member", "red", "ben")
        self.assertEqual(self.cli("ben", "describe", str(ana), "--json").json["user"], "ana")
        done = self.cli("ben", "stop", str(ana))
        self.assertIn("belongs to another user", done.errors)
        self.rig.ok("project", "remove", "red", "ben")
        self.assertNotEqual(self.cli("ben", "describe", str(ana)).code, 0)
        self.assertEqual(self.cli("ana", "stop", "--wait", "-f", str(ana)).code, 0)
        self.rig.ok("stop", "--wait", "-f", ben)
        self.assertNotEqual(self.cli("ben", "describe", str(ana)).code, 0)
        self.assertEqual(self.cli("ana", "describe", str(ana)).code, 0)

    def test_submit_tokens_reach_one_project(self):
        token = self.rig.json(
            "token", "create", "robot", "--user", "ana", "--scope", "submit", "--project", "red"
        )["token"]
        env = {"BILLOW_TOKEN": token}
        self.assertEqual(
            self.rig.cli("run", "--cwd", "/", "--", "echo", "made", env=env).out, b"made\n"
        )
        done = self.rig.cli("submit", "--project", "blue", "--cwd", "/", "--", "true", env=env)
        self.assertIn("only submit to project red", done.errors)
        # A schedule is a submission too, named project or not.
        done = self.rig.cli(
            "submit",
            "--project",
            "blue",
            "--cron",
            "0 3 * * *",
            "--name",
            "other",
            "--cwd",
            "/",
            "--",
            "true",
            env=env,
        )
        self.assertIn("only submit to project red", done.errors)
        self.assertEqual(
            self.rig.cli(
                "submit",
                "--cron",
                "0 3 * * *",
                "--name",
                "own",
                "--cwd",
                "/",
                "--",
                "true",
                env=env,
            ).code,
            0,
        )
        self.assertEqual(
            [
                s["project"]
                for s in self.rig.json("schedule", "list")["schedules"]
                if s["name"] == "own"
            ],
            ["red"],
        )

    def test_who_did_it_is_on_record(self):
        job = int(self.cli("ana", "submit", "-q", "--cwd", "/", "--", "true").text)
        self.cli("ana", "wait", str(job))
        events = self.rig.api("GET", "/v1/events?limit=1000").json["events"]
        submitted = [
            e for e in events if e["kind"] == "jobs_submitted" and e["event"].get("first") == job
        ]
        self.assertEqual([e["actor"] for e in submitted], ["user:ana"])


@unittest.skipUnless(os.geteuid() == 0, "needs root, to become somebody else")
class Ordinary(unittest.TestCase):
    def test_an_ordinary_user_has_a_whole_billow_too(self):
        from rig import Rig

        rig = Rig(up=False, HOME="/nonexistent")
        uid = pwd.getpwnam("nobody").pw_uid
        try:
            os.makedirs(rig.data)
            os.chown(rig.data, uid, -1)
            os.chown(rig.files, uid, -1)
            done = rig.cli("run", "--gpus", "1", "--", "id", "-un", user=uid)
            self.assertEqual((done.code, done.out), (0, b"nobody\n"), done)
            self.assertEqual(rig.cli("status", "--json", user=uid).json["you"]["user"], "nobody")
            done = rig.cli("down", "--stop-jobs", user=uid)
            self.assertEqual(done.code, 0, done)
            poll(lambda: not rig.processes(), "nothing left")
        finally:
            rig.close()
