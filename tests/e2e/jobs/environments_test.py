"""Saved environments: what is saved, fetched and shared."""
import json
import os
import subprocess
import unittest

import images
from box_test import WHY_NOT
from far import FarCase
from rig import poll


def fetched(log, name):
    return log.count(f"environment {name} (")


class Environments(FarCase):
    @classmethod
    def prepare(cls):
        super().prepare()
        cls.place = os.path.join(
            cls.rig.root, "tools"
        )  # seen by all three, which share a disk: the saved content must win
        os.makedirs(os.path.join(cls.place, "bin"))
        os.makedirs(os.path.join(cls.place, "lib", "deep"))
        cls.write("bin/greet", "#!/bin/sh\ncat $(dirname $0)/../lib/word\n", 0o755)
        cls.write("lib/word", "saved\n")
        cls.write("lib/deep/empty", "")
        os.symlink("/bin/sh", os.path.join(cls.place, "bin/shell"))
        cls.rig.ok("env", "save", "tools", cls.place, timeout=120)
        cls.write("lib/word", "changed since\n")

    @classmethod
    def write(cls, path, text, mode=0o644):
        with open(os.path.join(cls.place, path), "w", encoding="utf-8") as f:
            f.write(text)
        os.chmod(os.path.join(cls.place, path), mode)

    def run_job(self, *command, env="tools", options=()):
        return self.rig.cli(
            "run", "--env", env, "--no-sync", "--cwd", "/", *options, "--", *command, timeout=120
        )

    def test_the_saved_tree_is_seen_at_its_place_and_its_programs_come_first(self):
        done = self.run_job("greet")
        self.assertEqual((done.code, done.text), (0, "saved\n"), done)
        self.assertEqual(
            self.run_job(
                "sh",
                "-c",
                (
                    f"readlink {self.place}/bin/shell; test -x {self.place}/bin/greet && stat -c %s"
                    f" {self.place}/lib/deep/empty"
                ),
            ).text,
            "/bin/sh\n0\n",
        )

    def test_each_node_fetches_it_once(self):
        for _ in range(2):
            done = self.run_job("greet", options=("--nodes", "2"))  # one on each
            self.assertEqual(sorted(done.text.split("\n"))[1:], ["[0] saved", "[1] saved"], done)
        for host in "ab":
            self.assertEqual(
                fetched(self.rig.log_of(host), "tools"), 1, self.rig.log_of(host)[-2000:]
            )

    def test_what_a_job_writes_is_its_own(self):
        wrote = self.run_job(
            "sh", "-c", f"echo mine > {self.place}/lib/word; echo new > {self.place}/new; greet"
        )
        self.assertEqual(wrote.text, "mine\n", wrote)
        self.assertEqual(
            self.run_job("sh", "-c", f"greet; test -e {self.place}/new || echo clean").text,
            "saved\nclean\n",
        )
        with open(os.path.join(self.place, "lib/word"), encoding="utf-8") as f:
            self.assertEqual(f.read(), "changed since\n")

    def test_saved_again_a_rerun_keeps_what_it_ran_with(self):
        place = os.path.join(self.rig.root, "other")
        os.makedirs(os.path.join(place, "bin"))

        def save(word):
            with open(os.path.join(place, "bin/say"), "w", encoding="utf-8") as f:
                f.write(f"#!/bin/sh\necho {word} $WHO\n")
            os.chmod(os.path.join(place, "bin/say"), 0o755)
            return self.rig.json("env", "save", "other", place, timeout=120)["digest"]

        one = save("one")
        job = self.rig.submit(
            "--env", "other", "--no-sync", "--cwd", "/", "--env-var", "WHO=me", "--", "say"
        )
        self.rig.wait_for(job, "succeeded", 60)
        two = save("two")
        self.assertNotEqual(one, two)
        self.assertEqual(self.run_job("say", env="other").text.strip(), "two")
        again = self.rig.json("rerun", job)["id"]
        self.rig.wait_for(again, "succeeded", 60)
        self.assertEqual(self.rig.ok("logs", again).text, "one me\n")
        self.assertEqual(self.rig.job(again)["environment"], {"name": "other", "digest": one})
        # Gone by name: what ran can still be run again, and nothing new can ask for it.
        self.rig.ok("env", "rm", "other")
        gone = self.run_job("say", env="other")
        self.assertNotEqual(gone.code, 0)
        self.assertIn("environment", gone.errors)
        last = self.rig.json("rerun", job)["id"]
        self.rig.wait_for(last, "succeeded", 60)
        self.assertEqual(self.rig.ok("logs", last).text, "one me\n")

    def test_a_rerun_has_the_files_of_then(self):
        work = os.path.join(self.rig.root, "work")
        os.makedirs(work)

        def write(text):
            with open(os.path.join(work, "said"), "w", encoding="utf-8") as f:
                f.write(text)

        write("then\n")
        job = self.rig.json(
            "submit",
            "--sync",
            "--env",
            "tools",
            "--env-var",
            "WHO=personal",
            "--",
            "sh",
            "-c",
            "cat said; echo $WHO; greet",
            cwd=work,
        )["id"]
        self.rig.wait_for(job, "succeeded", 60)
        write("now\n")
        again = self.rig.json("rerun", job)["id"]
        self.rig.wait_for(again, "succeeded", 60)
        self.assertEqual(self.rig.ok("logs", again).text, "then\npersonal\nsaved\n")
        # Variables are for the job, not for whoever can look at it.
        self.assertNotIn("personal", json.dumps(self.rig.job(again)))

    def test_removed_while_in_use(self):
        place = os.path.join(self.rig.root, "brief")
        os.makedirs(os.path.join(place, "bin"))
        self.rig.ok("env", "save", "brief", place, timeout=120)
        job = self.rig.submit(
            "--env",
            "brief",
            "--no-sync",
            "--cwd",
            "/",
            "--",
            "sh",
            "-c",
            f"echo up; while ! test -e {self.rig.root}/go; do sleep 0.1; done; ls {place}",
        )
        poll(lambda: "up" in self.rig.cli("logs", job).text, "the job")
        self.rig.ok("env", "rm", "brief")
        open(os.path.join(self.rig.root, "go"), "w", encoding="utf-8").close()
        self.rig.wait_for(job, "succeeded", 60)
        self.assertEqual(self.rig.ok("logs", job).text, "up\nbin\n")

    def test_a_root_file_system(self):
        if WHY_NOT:
            self.skipTest(WHY_NOT)
        place = os.path.join(self.rig.root, "rootfs")
        os.makedirs(place)
        subprocess.run(["tar", "-C", place, "-xf", "-"], input=images.root_tar(), check=True)
        self.rig.ok("env", "save", "tiny", place, timeout=120)
        self.assertEqual(self.rig.json("env", "show", "tiny")["path"], "/")
        done = self.run_job("sh", "-c", "cat /etc/hello; ls / /run", env="tiny")
        self.assertEqual(done.code, 0, done)
        self.assertTrue(done.text.startswith("from the image\n"), done)
        # Of the node's files only Billow's own program is there, in /run.
        for theirs in ("boot", "usr"):
            self.assertNotIn(theirs + "\n", done.text)
        self.assertIn("billow-as-user\n", done.text)

    def test_made_of_an_image(self):
        if WHY_NOT:
            self.skipTest(WHY_NOT)
        # The registry is on the head's machine, and only there: a node that knew nothing but its
        # name could not reach it.
        registry = images.Registry(self.rig.root, self.net.inside("head"))
        try:
            image = registry.push(
                "base:1",
                images.root_tar({"etc/made": b"of an image\n"}),
                "ENV MOOD=good",
                "WORKDIR /srv",
            )
            self.rig.ok("env", "create", "base", "--image", image, timeout=120)
        finally:
            registry.close()
        done = self.run_job("sh", "-c", "cat /etc/made; echo $MOOD; pwd", env="base")
        self.assertEqual((done.code, done.text), (0, "of an image\ngood\n/srv\n"), done)

    def test_names(self):
        typo = self.run_job("true", env="tolls")
        self.assertNotEqual(typo.code, 0)
        variable = self.rig.cli("run", "--env", "A=b", "--", "true")
        self.assertEqual(variable.code, 2)
        self.assertIn("--env-var A=b", variable.errors)
        both = self.rig.cli("run", "--env", "tools", "--image", "ubuntu", "--", "true")
        self.assertNotEqual(both.code, 0)
        listed = self.rig.json("env", "list")["environments"]
        self.assertIn("tools", [e["name"] for e in listed])


if __name__ == "__main__":
    unittest.main()
