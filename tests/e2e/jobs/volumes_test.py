"""Volumes: folders of the node that jobs of some projects may have."""
import os

from objects_test import Rigged


class Volumes(Rigged):
    def volume(self, name, *options):
        path = os.path.join(self.rig.root, "volumes", name)
        os.makedirs(path, exist_ok=True)
        with open(os.path.join(path, "data.txt"), "w", encoding="ascii") as f:
            f.write(f"of {name}\n")
        self.rig.ok("volume", "add", name, "--path", path, *options)
        return path

    def made(self, *places):
        """A job of root's makes them for real, and empty."""
        for place in places:
            self.addCleanup(lambda path=place: os.path.isdir(path) and os.removedirs(path))

    def test_a_volume_is_where_the_job_wants_it_and_nowhere_else(self):
        path = self.volume("plain")
        self.made("/mnt/billow-test/deep")
        done = self.rig.ok(
            "run",
            "--volume",
            "plain:/mnt/billow-test/deep",
            "--",
            "sh",
            "-c",
            (
                "cat /mnt/billow-test/deep/data.txt && echo new > /mnt/billow-test/deep/written &&"
                " ls /mnt"
            ),
        )
        self.assertEqual(done.text.splitlines()[0], "of plain")
        self.assertIn("billow-test", done.text)
        with open(os.path.join(path, "written"), encoding="ascii") as f:
            self.assertEqual(f.read(), "new\n")
        self.assertFalse(
            os.path.exists("/mnt/billow-test") and os.listdir("/mnt/billow-test/deep"),
            "seen on the node itself",
        )
        self.assertIn("plain at /mnt/billow-test/deep", self.rig.ok("describe", self.last()).text)
        # Over what is there already, and read-only where the job says so.
        over = self.rig.file("over")
        os.makedirs(over, exist_ok=True)
        done = self.rig.cli(
            "run",
            "--volume",
            f"plain:{over}:ro",
            "--",
            "sh",
            "-c",
            f"cat {over}/data.txt; echo x > {over}/no",
        )
        self.assertNotEqual(done.code, 0)
        self.assertIn("of plain", done.text)
        self.assertIn("Read-only", done.errors)
        self.assertEqual(os.listdir(over), [])

    def test_a_place_directly_below_the_root(self):
        self.volume("top")
        self.made("/billow-newtop/a/b")
        done = self.rig.ok(
            "run",
            "--volume",
            "top:/billow-newtop",
            "--",
            "sh",
            "-c",
            "cat /billow-newtop/data.txt; pwd; test -x /bin/sh && ls -d /proc/self",
        )
        self.assertEqual(done.text.splitlines(), ["of top", self.rig.files, "/proc/self"])
        self.assertFalse(os.path.exists("/billow-newtop") and os.listdir("/billow-newtop"))
        self.assertEqual(
            self.rig.ok(
                "run",
                "--gpus",
                "1",
                "--volume",
                "top:/billow-newtop/a/b:ro",
                "--volume",
                "top:/mnt/other",
                "--",
                "sh",
                "-c",
                "cat /billow-newtop/a/b/data.txt /mnt/other/data.txt",
            ).text,
            "of top\n" * 2,
        )

    def test_a_volume_declared_read_only_stays_so(self):
        path = self.volume("fixed", "--read-only")
        done = self.rig.cli(
            "run",
            "--volume",
            "fixed:/mnt/fixed:rw",
            "--",
            "sh",
            "-c",
            "cat /mnt/fixed/data.txt; touch /mnt/fixed/x",
        )
        self.assertIn("of fixed", done.text)
        self.assertNotEqual(done.code, 0)
        self.assertEqual(os.listdir(path), ["data.txt"])

    def test_only_nodes_that_have_it_and_projects_that_may(self):
        self.volume("far", "--label", "zone=nowhere")
        done = self.rig.cli("run", "--volume", "far:/mnt/far", "--", "true")
        self.assertEqual(done.code, 1, done)
        self.assertIn('no node has a label "zone"', done.errors)
        self.rig.ok("project", "create", "owners")
        self.volume("owned", "--project", "owners")
        done = self.rig.cli("run", "--volume", "owned:/mnt/owned", "--", "true")
        self.assertEqual(done.code, 1, done)
        self.assertIn('has no volume "owned"', done.errors)
        self.assertEqual(
            self.rig.ok(
                "run",
                "--project",
                "owners",
                "--volume",
                "owned:/mnt/owned",
                "--",
                "cat",
                "/mnt/owned/data.txt",
            ).text,
            "of owned\n",
        )

    def test_what_cannot_be_is_refused(self):
        path = self.volume("gone")
        for wish, word in (
            ("nothing:/mnt/x", "no volume"),
            ("gone:mnt", "does not begin with /"),
            ("gone", "not NAME:DIRECTORY"),
            ("gone:/mnt/x:wo", "neither ro nor rw"),
            ("gone:/", "cannot be mounted at /"),
            ("gone://", "cannot be mounted at /"),
            ("gone:/mnt/../etc", "contains . or .."),
            ("gone:/proc/x", "cannot be mounted in /proc"),
            ("gone://proc", "cannot be mounted in /proc"),
            ("gone:///dev//shm", "cannot be mounted in /proc"),
            ("gone:/proc/../proc", "contains . or .."),
        ):
            done = self.rig.cli("run", "--volume", wish, "--", "true")
            self.assertNotEqual(done.code, 0, done)
            self.assertIn(word, done.errors)
        link = os.path.join(self.rig.root, "link")
        os.symlink("/proc", link)
        done = self.rig.cli("run", "--volume", f"gone:{link}/x", "--", "true")
        self.assertNotEqual(done.code, 0, done)
        self.assertIn("leads into /proc, /sys or /dev", done.errors)
        os.unlink(os.path.join(path, "data.txt"))
        os.rmdir(path)
        done = self.rig.cli("run", "--volume", "gone:/mnt/gone", "--", "true")
        self.assertNotEqual(done.code, 0, done)
        self.assertIn("not on this node", done.errors + self.rig.cli("describe", self.last()).text)
        self.assertIn("gone", self.rig.ok("volume", "list").text)
        self.rig.ok("volume", "rm", "gone")
        self.assertNotIn("gone", self.rig.ok("volume", "list").text)
        self.assertEqual(self.rig.cli("volume", "rm", "gone").code, 1)
