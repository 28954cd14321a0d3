"""Secrets: who may set and use them, how a job gets them, and that a value lies nowhere in plain.
"""
import hashlib
import os
import pty
import select
import subprocess
import unittest

import postgres
from rig import Rig, RigTest, poll

VALUE = "s3cr3t-Vallue-" + os.urandom(12).hex()
DIGEST = hashlib.sha256(VALUE.encode()).hexdigest()
SHM = "/dev/shm"


def files_with(value, *roots):
    """Every file below that holds the value, in plain or as base64 or hexadecimal digits."""
    import base64

    forms = [value.encode(), base64.b64encode(value.encode())[:-4], value.encode().hex().encode()]
    found = []
    for root in roots:
        for directory, _, names in os.walk(root):
            for name in names:
                path = os.path.join(directory, name)
                try:
                    if not os.path.isfile(path) or os.path.islink(path):
                        continue
                    with open(path, "rb") as f:
                        data = f.read()
                except OSError:
                    continue
                if any(form in data for form in forms):
                    found.append(path)
    return found


def command_lines():
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/cmdline", "rb") as f:
                    yield f.read()
            except OSError:
                pass


class Secrets(RigTest):
    def set(self, name="HF_TOKEN", value=VALUE, *options, **more):
        return self.rig.ok("secret", "set", name, *options, stdin=value.encode(), **more)

    def test_a_value_reaches_the_job_and_lies_nowhere(self):
        self.set()
        gate, ready = self.rig.file("gate"), self.rig.file("ready")
        # It hashes what it was given, in its own process: no command line of its own may show the
        # value.
        program = (
            "import hashlib, os, sys, time\nh = lambda b:"
            " hashlib.sha256(b).hexdigest()\nprint(h(os.environ['HF_TOKEN'].encode()),"
            " h(os.environ['OTHER'].encode()), h(open(os.environ['HF_TOKEN_FILE'], 'rb').read()),"
            " flush=True)\nprint(oct(os.stat(os.environ['HF_TOKEN_FILE']).st_mode & 0o777),"
            f" os.environ['HF_TOKEN_FILE'], flush=True)\nopen({ready!r}, 'w')\nwhile not"
            f" os.path.exists({gate!r}): time.sleep(0.02)\n"
        )
        script = self.rig.file("look.py")
        with open(script, "w", encoding="ascii") as f:
            f.write(program)
        job = self.rig.submit(
            "--secret",
            "HF_TOKEN",
            "--secret",
            "HF_TOKEN=OTHER",
            "--secret",
            "HF_TOKEN:file",
            "--",
            "python3",
            script,
        )
        poll(lambda: os.path.exists(ready), "the job has looked")
        given = self.rig.ok("logs", job).text.split()
        self.assertEqual(given[:3], [DIGEST] * 3)
        self.assertEqual(given[3], "0o400")
        path = given[4]
        # While it runs: in no file but the one it asked for, in no answer, on no command line.
        self.assertEqual([p for p in files_with(VALUE, self.rig.root, SHM) if p != path], [])
        self.assertTrue(path.startswith(SHM) or path.startswith("/run"), path)
        for line in command_lines():
            self.assertNotIn(VALUE.encode(), line)
        self.rig.ok("describe", job)
        for target in (
            f"/v1/jobs/{job}",
            f"/v1/jobs/{job}/explain",
            "/v1/jobs?state=all",
            "/v1/secrets",
            "/v1/events?limit=1000",
            "/v1/status",
            "/v1/nodes",
            f"/v1/jobs/{job}/logs",
        ):
            answer = self.rig.api("GET", target)
            self.assertEqual(answer.status, 200, answer)
            self.assertNotIn(VALUE.encode(), answer.body)
            self.assertNotIn(b'"sealed"', answer.body)  # nor what it was made into
        for command in (
            ("describe", job),
            ("describe", job, "--json"),
            ("secret", "list"),
            ("secret", "list", "--json"),
            ("ps", "-a"),
            ("events",),
        ):
            done = self.rig.cli(*command)
            self.assertNotIn(VALUE.encode(), done.out + done.err)
        with open(gate, "w", encoding="ascii"):
            pass
        self.assertEqual(self.rig.cli("wait", job).code, 0)
        poll(lambda: not os.path.exists(path), "its file is gone with it")
        self.assertEqual(files_with(VALUE, self.rig.root, SHM), [])
        mode = os.stat(os.path.join(self.rig.data, "secrets.key")).st_mode & 0o777
        self.assertEqual(mode, 0o600)
        # And across a crash of both, and a head that starts anew.
        self.rig.kill(self.rig.head_pid())
        self.rig.up()
        done = self.rig.ok(
            "run",
            "--secret",
            "HF_TOKEN",
            "--",
            "python3",
            "-c",
            (
                "import os, hashlib;"
                " print(hashlib.sha256(os.environ['HF_TOKEN'].encode()).hexdigest())"
            ),
        )
        self.assertEqual(done.text.strip(), DIGEST)
        self.assertEqual(files_with(VALUE, self.rig.root, SHM), [])

    def test_a_job_outlives_its_agent_with_what_it_was_given(self):
        self.set()
        gate = self.rig.file("gate-agent")
        job = self.rig.submit(
            "--secret",
            "HF_TOKEN",
            "--secret",
            "HF_TOKEN:file",
            "--",
            "sh",
            "-c",
            (
                f'until [ -e {gate} ]; do sleep 0.02; done; printf %s "$HF_TOKEN" | cmp -'
                ' "$HF_TOKEN_FILE" && echo same'
            ),
        )
        self.rig.wait_for(job, "running")
        agent = self.rig.agent_pid()
        self.rig.kill(agent)
        poll(lambda: self.rig.agent_pid() not in (0, agent), "another agent")
        with open(gate, "w", encoding="ascii"):
            pass
        self.assertEqual(self.rig.cli("wait", job).code, 0)
        self.assertEqual(self.rig.ok("logs", job).text, "same\n")

    def test_a_file_where_the_job_wants_it(self):
        self.set()
        place = f"/run/billow-test-{os.getpid()}/deep"
        self.addCleanup(lambda: os.path.isdir(place) and os.removedirs(place))
        look = (
            f"sha256sum < {place}/token; cmp {place}/token {place}/again && echo $HF_TOKEN_FILE;"
            f" stat -c %a {place}/token; echo x > {place}/token"
        )
        done = self.rig.cli(
            "run",
            "--secret",
            f"HF_TOKEN:{place}/token",
            "--secret",
            f"HF_TOKEN:{place}/again",
            "--",
            "sh",
            "-c",
            look,
        )
        self.assertEqual(done.text.split(), [DIGEST, "-", f"{place}/again", "400"], done)
        self.assertIn("Read-only", done.errors)
        self.assertFalse(os.path.exists(place) and os.listdir(place))
        # Where something is already, nothing of it is hidden.
        taken = self.rig.cli("run", "--secret", "HF_TOKEN:/tmp/token", "--", "true")
        self.assertEqual(taken.code, 126, taken)
        self.assertIn("/tmp exists and is not empty", taken.errors)
        poll(lambda: not files_with(VALUE, SHM), "nothing of it is left")
        for path in ("/proc/x", "//dev/x", "/etc/", "relative", "/a/../b"):
            done = self.rig.cli("run", "--secret", f"HF_TOKEN:{path}", "--", "true")
            self.assertIn(done.code, (1, 2), done)
        twice = self.rig.cli(
            "run", "--secret", "HF_TOKEN:/run/x/y", "--secret", "HF_TOKEN:/run/x/y", "--", "true"
        )
        self.assertIn("two secrets use the same file", twice.errors)

    def test_names_that_no_variable_can_have(self):
        said = self.set("hyphen-key").text
        self.assertIn("--secret hyphen-key=VARIABLE or --secret hyphen-key:file", said)
        self.assertNotIn("=VARIABLE", self.set("PLAIN_1").text)
        refused = self.rig.cli("run", "--secret", "hyphen-key", "--", "true")
        self.assertEqual(refused.code, 1, refused)
        self.assertIn("--secret hyphen-key=VARIABLE", refused.errors)
        self.set("9bad")
        done = self.rig.ok(
            "run",
            "--secret",
            "9bad:file",
            "--secret",
            "hyphen-key:file",
            "--secret",
            "hyphen-key=GIVEN",
            "--",
            "sh",
            "-c",
            (
                'sha256sum < "$_9bad_FILE"; sha256sum < "$hyphen_key_FILE"; printf %s "$GIVEN" |'
                " sha256sum"
            ),
        )
        self.assertEqual(done.text.split(), [DIGEST, "-"] * 3)
        self.assertIn("9bad", self.rig.cli("run", "--secret", "9bad", "--", "true").errors)

    def test_what_stands_on_the_command_line_is_refused_before_it_is_sent(self):
        leaked = "hf_" + os.urandom(8).hex()
        self.set()
        for args in (
            ("secret", "set", "HF_TOKEN", leaked),
            ("secret", "set", f"HF_TOKEN={leaked}"),
            ("run", "--secret", f"HF_TOKEN={leaked}", "--", "true"),
        ):
            done = self.rig.cli(*args, stdin=b"")
            self.assertEqual(done.code, 2, done)
        self.assertEqual(files_with(leaked, self.rig.root), [])
        done = self.rig.cli("run", "--secret", "LD_PRELOAD", "--", "true")
        self.assertNotEqual(done.code, 0)

    def test_what_is_asked_for_must_be_there_and_what_was_removed_is_said(self):
        done = self.rig.cli("run", "--secret", "HF_TOKNE", "--", "true")
        self.assertEqual(done.code, 1, done)
        self.assertIn("HF_TOKNE", done.errors)
        self.set("GONE")
        gate = self.rig.file("gate-gone")
        first = self.rig.submit("--", "sh", "-c", f"until [ -e {gate} ]; do sleep 0.02; done")
        second = self.rig.submit("--after", first, "--secret", "GONE", "--", "echo", "ran")
        self.rig.ok("secret", "rm", "GONE")
        with open(gate, "w", encoding="ascii"):
            pass
        self.assertNotEqual(self.rig.cli("wait", second).code, 0)
        job = self.rig.job(second)
        self.assertEqual(job["state"], "failed")
        self.assertIn("no longer has the secret GONE", str(job))
        self.assertNotIn("ran", self.rig.ok("logs", second).text)
        self.assertEqual(self.rig.cli("secret", "rm", "GONE").code, 1)

    def test_it_is_typed_without_being_shown(self):
        master, slave = pty.openpty()
        process = subprocess.Popen(
            self.rig.command("secret", "set", "TYPED"),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=self.rig.environment,
            start_new_session=True,
        )
        self.rig.started.append(process)
        os.close(slave)
        shown = b""

        def read():
            nonlocal shown
            if select.select([master], [], [], 0.05)[0]:
                try:
                    shown += os.read(master, 4096)
                except OSError:
                    pass
            return shown

        poll(lambda: b"not shown" in read(), "the prompt")
        os.write(master, VALUE.encode() + b"x\x7f\n")
        poll(lambda: (read(), process.poll())[1] is not None, "its end")
        read()
        os.close(master)
        self.assertEqual(process.returncode, 0, shown)
        self.assertNotIn(VALUE.encode(), shown)
        done = self.rig.ok(
            "run",
            "--secret",
            "TYPED",
            "--",
            "python3",
            "-c",
            "import os, hashlib; print(hashlib.sha256(os.environ['TYPED'].encode()).hexdigest())",
        )
        self.assertEqual(done.text.strip(), DIGEST)

    def test_values_that_are_no_text(self):
        binary = bytes(range(256))
        path = self.rig.file("binary")
        with open(path, "wb") as f:
            f.write(binary)
        self.rig.ok("secret", "set", "BINARY", "--file", path)
        script = 'sha256sum < "$BINARY_FILE"; cat "$BINARY_FILE"'
        done = self.rig.ok("run", "--secret", "BINARY:file", "--", "sh", "-c", script)
        digest = hashlib.sha256(binary).hexdigest()
        self.assertEqual(done.text, f"{digest}  -\n***", "the log does not show it")
        done = self.rig.cli("run", "--secret", "BINARY", "--", "true")
        self.assertNotEqual(done.code, 0)
        self.assertIn("zero byte", done.errors)
        self.assertEqual(self.rig.cli("secret", "set", "EMPTY", stdin=b"\n").code, 1)
        self.assertEqual(self.rig.cli("secret", "set", "HUGE", stdin=b"x" * 70_000).code, 1)
        answer = self.rig.api("PUT", "/v1/secrets/BROKEN", b'{"value": "' + VALUE.encode())
        self.assertEqual(answer.status, 400)
        self.assertNotIn(VALUE.encode(), answer.body)
        self.assertNotIn(VALUE, self.rig.head_log())

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to run jobs as somebody else")
    def test_members_use_admins_set_and_others_neither(self):
        for name, unix_name in (("ana", "nobody"), ("ben", "daemon"), ("eve", "bin")):
            self.rig.ok("user", "create", name, "--unix-name", unix_name)
        for project in ("red", "blue"):
            self.rig.ok("project", "create", project)
        self.rig.ok("project", "member", "red", "ana", "--role", "admin")
        self.rig.ok("project", "member", "red", "ben")
        self.rig.ok("project", "member", "blue", "eve", "--role", "admin")
        tokens = {
            name: {
                "BILLOW_TOKEN": self.rig.json("token", "create", f"{name}-secrets", "--user", name)[
                    "token"
                ]
            }
            for name in ("ana", "ben", "eve")
        }
        self.set("KEY", VALUE, "-p", "red", env=tokens["ana"])
        self.assertEqual(
            self.rig.cli("secret", "set", "KEY", stdin=b"x", env=tokens["ben"]).code, 1
        )
        self.assertEqual(self.rig.cli("secret", "rm", "KEY", env=tokens["ben"]).code, 1)
        # A member's job has it, as its own user's: another member of the machine cannot look into
        # the file.
        done = self.rig.ok(
            "run",
            "--cwd",
            "/",
            "--secret",
            "KEY:file",
            "--",
            "sh",
            "-c",
            'id -u; sha256sum < "$KEY_FILE"',
            env=tokens["ben"],
        )
        self.assertIn(DIGEST, done.text)
        gate = self.rig.file("gate-people")
        os.chmod(self.rig.files, 0o755)
        job = self.rig.json(
            "submit",
            "--cwd",
            "/",
            "--secret",
            "KEY:file",
            "--",
            "sh",
            "-c",
            f'echo "$KEY_FILE"; until [ -e {gate} ]; do sleep 0.02; done',
            env=tokens["ben"],
        )["id"]
        path = poll(lambda: self.rig.cli("logs", job).text.strip(), "its path")
        peek = self.rig.cli("run", "--cwd", "/", "--", "cat", path, env=tokens["eve"])
        self.assertNotEqual(peek.code, 0)
        self.assertIn("ermission denied", peek.errors)
        with open(gate, "w", encoding="ascii"):
            pass
        # Whether there is something where only root can look is not told by where a secret cannot
        # be put.
        closed = os.path.join(self.rig.root, "closed")
        os.makedirs(os.path.join(closed, "there"), 0o700)
        os.chmod(closed, 0o700)
        with open(os.path.join(closed, "there/file"), "w", encoding="ascii"):
            pass
        said = {}
        for name in ("there", "missing"):
            done = self.rig.cli(
                "run",
                "--cwd",
                "/",
                "--secret",
                f"KEY:{closed}/{name}/token",
                "--",
                "true",
                env=tokens["ben"],
            )
            self.assertEqual(done.code, 126, done)
            said[name] = done.errors.replace(name, "NAME")
        self.assertIn("may not look into", said["there"])
        strip = lambda text: [line for line in text.splitlines() if "cannot be put" in line][
            0
        ].split("cannot be put")[1]
        self.assertEqual(strip(said["there"]), strip(said["missing"]))
        # Another project's job cannot ask for it, by whatever way.
        for args in (
            ("run", "--cwd", "/", "--secret", "KEY", "--", "true"),
            ("run", "--cwd", "/", "-p", "red", "--secret", "KEY", "--", "true"),
            ("secret", "list", "-p", "red"),
            ("secret", "set", "KEY", "-p", "red"),
        ):
            done = self.rig.cli(*args, env=tokens["eve"], stdin=b"x")
            self.assertEqual(done.code, 1, done)
            self.assertNotIn(VALUE, done.text + done.errors)
        self.assertEqual(self.rig.json("secret", "list", env=tokens["eve"])["secrets"], [])
        names = [
            s["name"]
            for s in self.rig.json("secret", "list", "-p", "red", env=tokens["ben"])["secrets"]
        ]
        self.assertEqual(names, ["KEY"])

    def test_schedules_and_endpoints_are_held_to_the_same(self):
        done = self.rig.cli(
            "schedule",
            "add",
            "--name",
            "s1",
            "--cron",
            "@daily",
            "--secret",
            "NOSUCH",
            "--",
            "true",
        )
        self.assertEqual(done.code, 1, done)
        done = self.rig.cli("deploy", "e1", "--secret", "NOSUCH", "--", "true")
        self.assertEqual(done.code, 1, done)
        self.assertIn("NOSUCH", done.errors)


class Kept(postgres.PostgresTest):
    """The key is apart from the store: what a backup holds is of no use without it, and works with
    it."""

    def look(self, rig):
        return rig.cli(
            "run",
            "--secret",
            "KEPT",
            "--",
            "python3",
            "-c",
            "import os, hashlib; print(hashlib.sha256(os.environ['KEPT'].encode()).hexdigest())",
        )

    def test_backup_and_restore(self):
        first, second = Rig(), Rig(up=False)
        try:
            first.ok("secret", "set", "KEPT", stdin=VALUE.encode())
            backup = first.file("backup")
            first.ok("store", "backup", backup)
            self.assertEqual(files_with(VALUE, first.root), [])
            with open(os.path.join(first.data, "secrets.key"), encoding="ascii") as f:
                key = f.read()
            for path in files_with(key.strip(), first.root):
                self.assertTrue(path.endswith("/secrets.key"), path)
            second.ok("store", "restore", backup, "--data", second.data)
            second.up()
            done = self.look(second)
            self.assertNotEqual(done.code, 0, done)
            self.assertIn("secrets.key", done.errors)
            self.assertIn("key", second.ok("secret", "list").text)
            # Another secret would need another key, and the first would be lost without a word.
            refused = second.cli("secret", "set", "MORE", stdin=b"x")
            self.assertEqual(refused.code, 1, refused)
            self.assertIn("secrets.key", refused.errors)
            with open(os.path.join(second.data, "secrets.key"), "w", encoding="ascii") as f:
                os.fchmod(f.fileno(), 0o600)
                f.write(key)
            done = self.look(second)
            self.assertEqual(done.text.strip(), DIGEST, done)
        finally:
            second.close()
            first.close()

    def test_on_postgres_with_a_second_head(self):
        url = self.pg.database("secrets")
        first = Rig(args=("--store", url))
        try:
            first.ok("secret", "set", "KEPT", stdin=VALUE.encode())
            self.assertEqual(self.look(first).text.strip(), DIGEST)
            dump = self.pg.dump("secrets")
            with open(os.path.join(first.data, "secrets.key"), encoding="ascii") as f:
                for secret in (VALUE, f.read().strip()):
                    self.assertNotIn(secret, dump)
                    self.assertNotIn(secret.encode().hex(), dump)
            self.assertIn(
                "KEPT".encode().hex(), dump + dump.encode().hex()
            )  # what is looked for would be found
            first.ok("down")
            key = os.path.join(first.data, "secrets.key")
            second = Rig(args=("--store", url, "--secrets-key", key))
            try:
                self.assertEqual(self.look(second).text.strip(), DIGEST)
            finally:
                second.close()
        finally:
            first.close()


if __name__ == "__main__":
    unittest.main()
