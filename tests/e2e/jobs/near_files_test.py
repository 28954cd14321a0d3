"""Files of jobs whose client, head and node are on one machine: their content is read once, nothing is fetched into the
node's store, and neither a killed head, a killed client nor a power failure gives a job wrong files."""
import hashlib
import os
import random
import unittest

from rig import Rig, poll

MIB = 1 << 20


class NearFiles(unittest.TestCase):
    def setUp(self):
        self.rig = Rig(sim="1xL4")
        self.rig.environment["XDG_CACHE_HOME"] = os.path.join(self.rig.root, "cache")
        self.project = os.path.join(self.rig.root, "project")
        chance = random.Random(7)
        for i in range(300):
            self.write(f"d{i % 7}/f{i}", chance.randbytes(chance.randrange(1, 9000)))
        self.write("empty", b"")
        self.write("large", chance.randbytes(9 * MIB + 1))
        self.write("tool", b"#!/bin/sh\n")
        os.chmod(os.path.join(self.project, "tool"), 0o755)

    def tearDown(self):
        self.rig.close()

    def write(self, name, content):
        path = os.path.join(self.project, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(content)

    def sums(self):
        """The digest of every file, as `sha256sum` prints them, and the modes."""
        out = {}
        for folder, _, names in os.walk(self.project):
            for name in names:
                path = os.path.join(folder, name)
                with open(path, "rb") as f:
                    digest = hashlib.sha256(f.read()).hexdigest()
                mode = f"{os.stat(path).st_mode & 0o777:o}"
                out["./" + os.path.relpath(path, self.project)] = (digest, mode)
        return out

    LOOK = "find . -type f -exec sha256sum {} + -exec stat -c '%a mode %n' {} +"

    def seen(self, text):
        digests, modes = {}, {}
        for line in text.splitlines():
            first, rest = line.split(maxsplit=1)
            if rest.startswith("mode "):
                modes[rest[5:]] = first
            else:
                digests[rest] = first
        return {name: (digest, modes[name]) for name, digest in digests.items()}

    def run_job(self):
        done = self.rig.ok("run", "-q", "--sync", "--", "sh", "-c", self.LOOK, cwd=self.project)
        return self.seen(done.text)

    def submit(self, *command):
        return self.rig.json(
            "submit", "--sync", "--gpus", "1", "--", *command, cwd=self.project
        )["id"]

    def packs(self, where):
        return os.listdir(os.path.join(self.rig.data, where, "packs"))

    def test_a_job_gets_what_is_there_and_the_node_stores_nothing(self):
        self.assertEqual(self.run_job(), self.sums())
        self.assertEqual(self.run_job(), self.sums())
        with open(os.path.join(self.project, "large"), "ab") as f:
            f.write(b"more")
        self.write("d0/new", b"new")
        os.unlink(os.path.join(self.project, "d1/f1"))
        self.assertEqual(self.run_job(), self.sums())
        self.assertTrue(self.packs("files"))
        self.assertEqual(self.packs("agent/files"), [])

    # Hides as well as it can what it changes.
    SPOIL = r"""
import os
for name in ("d0/f0", "d1/f1", "large"):
    before = os.stat(name)
    with open(name, "r+b") as f:
        f.write(b"spoiled"[:before.st_size])
    os.utime(name, ns=(before.st_atime_ns, before.st_mtime_ns))
os.unlink("d2/f2")
os.symlink("/etc/passwd", "d2/f2")
os.makedirs("junk/deep")
os.chmod("tool", 0o700)
"""

    def test_what_a_job_does_to_its_copy_the_next_does_not_get(self):
        for _ in range(3):
            self.rig.ok(
                "run", "-q", "--sync", "--", "python3", "-c", self.SPOIL, cwd=self.project
            )
            self.assertEqual(self.run_job(), self.sums())
            # Of the same size, within a tick of the clock of files.
            self.write("d3/f3", os.urandom(os.path.getsize(os.path.join(self.project, "d3/f3"))))

    def test_two_jobs_at_once_have_a_copy_each(self):
        self.assertEqual(self.run_job(), self.sums())
        meet = "until [ -e $MEET/1 ] && [ -e $MEET/2 ]; do :; done"
        place = os.path.join(self.rig.root, "meet")
        os.mkdir(place)
        jobs = [
            self.rig.json(
                *("submit", "--sync", "--gpus", "0.5", "--env-var", f"MEET={place}", "--"),
                *("sh", "-c", f"{self.LOOK}; echo mine {i} > d0/f0; : > $MEET/{i}; {meet}; cat d0/f0"),
                cwd=self.project,
            )["id"]
            for i in (1, 2)
        ]
        for i, job in enumerate(jobs, 1):
            self.rig.wait_for(job, "succeeded", seconds=60)
            *look, last = self.rig.ok("logs", job).text.splitlines()
            self.assertEqual(self.seen("\n".join(look)), self.sums())
            self.assertEqual(last, f"mine {i}")
        self.assertEqual(self.run_job(), self.sums())

    def test_a_killed_head_loses_no_files(self):
        """The job waits when the head is killed, right after it has taken the files."""
        blocker = self.rig.submit("--gpus", "1", "--", "sleep", "600")
        self.rig.wait_for(blocker, "running")
        expected = self.sums()
        job = self.submit("sh", "-c", self.LOOK)
        self.rig.kill(self.rig.head_pid())
        self.write("large", b"changed after it was submitted")
        self.rig.up()
        self.rig.ok("stop", blocker)
        self.rig.wait_for(job, "succeeded", seconds=60)
        self.assertEqual(self.seen(self.rig.ok("logs", job).text), expected)

    def test_a_killed_client_leaves_nothing_that_disturbs_the_next(self):
        self.write("huge", random.Random(1).randbytes(200 * MIB))
        process = self.rig.start("run", "-q", "--sync", "--", "true", cwd=self.project)
        poll(lambda: self.packs("files"), "the first files to arrive")
        process.kill()
        process.wait()
        self.assertEqual(self.run_job(), self.sums())

    def test_content_torn_by_a_power_failure_is_uploaded_again(self):
        blocker = self.rig.submit("--gpus", "1", "--", "sleep", "600")
        self.rig.wait_for(blocker, "running")
        waiting = self.submit("true")
        self.rig.kill(self.rig.head_pid())
        folder = os.path.join(self.rig.data, "files/packs")
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            with open(path, "r+b") as f:
                f.truncate(os.path.getsize(path) - 1)
                f.truncate(os.path.getsize(path) + 1)
        with open(os.path.join(self.rig.data, "files/boot"), "w", encoding="ascii") as f:
            f.write("another start of the machine")
        self.rig.up()
        self.rig.ok("stop", blocker)
        self.rig.wait_for(waiting, "failed", seconds=60)
        self.assertIn("submit the job again", repr(self.rig.cli("logs", waiting)))
        self.assertEqual(self.run_job(), self.sums())


if __name__ == "__main__":
    unittest.main()
