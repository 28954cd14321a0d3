"""Where hooks run: in the job's control groups, mounts and image, as its user, and never longer
than they may."""
import os
import unittest

from box_test import ImageTest
from rig import RigTest, poll

LOOK = (
    "sed 's/^[0-9]*://' /proc/self/cgroup | sort > {0}-cgroup; readlink /proc/self/ns/mnt >"
    " {0}-mounts; ls {1} > {0}-volume 2>&1; id -u > {0}-user; grep NoNewPrivs /proc/self/status >"
    " {0}-privileges"
)


def text(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


@unittest.skipIf(os.geteuid() != 0, "volumes are mounted: that needs root")
class Hooks(RigTest):
    options = {"sim": "1xH100"}

    def running(self, *options, script="sleep 600"):
        job = self.rig.submit("--gpus", 1, *options, "--", "sh", "-c", script)
        poll(
            lambda: [t["state"] for t in self.rig.job(job)["tasks"]] == ["running"],
            "the job to run",
        )
        return job

    def test_a_hook_runs_where_the_job_runs(self):
        shelf = os.path.join(self.rig.root, "shelf")
        os.makedirs(shelf)
        with open(os.path.join(shelf, "book"), "w", encoding="ascii"):
            pass
        self.rig.ok("volume", "add", "shelf", "--path", shelf)
        for name in ("job", "before", "after"):
            self.assertFalse(os.path.exists(self.rig.file(name + "-user")))
        mine = (
            "cd "
            + self.rig.files
            + "; "
            + LOOK.format("job", "/mnt/shelf")
            + "; touch job-done; sleep 600"
        )
        job = self.running(
            "--mem",
            "512M",
            "--cpus",
            1,
            "--volume",
            "shelf:/mnt/shelf",
            "--suspend-hook",
            LOOK.format("before", "/mnt/shelf") + "; (yes | head -1) 2> before-pipe",
            "--resume-hook",
            LOOK.format("after", "/mnt/shelf") + "; touch after-done",
            script=mine,
        )
        poll(lambda: os.path.exists(self.rig.file("job-done")), "the job to look around")
        self.rig.ok("suspend", "--wait", job)
        self.rig.ok("resume", "--wait", job)
        poll(lambda: os.path.exists(self.rig.file("after-done")), "the resume hook")
        ours = os.readlink("/proc/self/ns/mnt")
        for hook in ("before", "after"):
            for what in ("cgroup", "mounts", "volume", "user"):
                self.assertEqual(
                    text(self.rig.file(f"{hook}-{what}")),
                    text(self.rig.file(f"job-{what}")),
                    f"{hook} {what}",
                )
            self.assertEqual(text(self.rig.file(f"{hook}-privileges")), "NoNewPrivs:\t1\n")
            self.assertEqual(text(self.rig.file(f"{hook}-volume")), "book\n")
            self.assertNotEqual(text(self.rig.file(f"{hook}-mounts")).strip(), ours)
        self.assertIn("billow", text(self.rig.file("before-cgroup")))
        self.assertEqual(text(self.rig.file("before-pipe")), "")
        self.rig.ok("stop", "--force", "--wait", job)

    def test_a_checkpoint_command_runs_where_the_job_runs(self):
        shared = os.path.join(self.rig.root, "shared")
        os.makedirs(shared, mode=0o777)
        look = (
            "cat /proc/self/cgroup | sed 's/^[0-9]*://' | sort > $BILLOW_CHECKPOINT_DIR/cgroup;"
            " grep NoNewPrivs /proc/self/status > $BILLOW_CHECKPOINT_DIR/privileges"
        )
        job = self.running(
            "--mem",
            "512M",
            "--checkpoint-every",
            "1s",
            "--checkpoint-dir",
            shared,
            "--checkpoint-cmd",
            look,
            script=(
                f"sed 's/^[0-9]*://' /proc/self/cgroup | sort > {self.rig.file('own-cgroup')};"
                " sleep 600"
            ),
        )
        kept = poll(lambda: (self.rig.job(job).get("checkpoint") or {}).get("path"), "a checkpoint")
        self.assertEqual(text(os.path.join(kept, "cgroup")), text(self.rig.file("own-cgroup")))
        self.assertEqual(text(os.path.join(kept, "privileges")), "NoNewPrivs:\t1\n")
        self.rig.ok("stop", "--force", "--wait", job)

    def test_a_hook_runs_in_the_jobs_environment(self):
        tree = os.path.join(self.rig.root, "tree")
        os.makedirs(tree)
        with open(os.path.join(tree, "saved"), "w", encoding="ascii"):
            pass
        self.rig.ok("env", "save", "tree", tree, timeout=120)
        job = self.running(
            "--env",
            "tree",
            "--suspend-hook",
            f"cat {tree}/mine > {self.rig.file('hook-env')}",
            script=f"echo private > {tree}/mine; touch {self.rig.file('env-up')}; sleep 600",
        )
        poll(
            lambda: os.path.exists(self.rig.file("env-up")), "the job to run in its environment", 60
        )
        self.rig.ok("suspend", "--wait", job)
        self.assertEqual(text(self.rig.file("hook-env")), "private\n")
        self.assertFalse(
            os.path.exists(os.path.join(tree, "mine")),
            "what is written in an environment is the task's alone",
        )
        self.rig.ok("stop", "--force", "--wait", job)

    def test_what_a_hook_leaves_running_ends_with_it(self):
        job = self.running(
            "--suspend-hook",
            (
                "(setsid sh -c 'echo $$ > left; exec sleep 600' > /dev/null 2>&1 &); while ! test"
                " -s left; do sleep 0.05; done"
            ),
        )
        self.rig.ok("suspend", "--wait", job)
        pid = int(text(self.rig.file("left")))
        poll(lambda: not os.path.exists(f"/proc/{pid}"), "what the hook started to end")
        self.rig.ok("stop", "--force", "--wait", job)


class HooksInImages(ImageTest):
    def test_a_hook_runs_in_the_image(self):
        hook = (
            "cat /etc/hello > hook-saw; echo $FLAVOUR >> hook-saw; id -u >> hook-saw; grep -c"
            " NoNewPrivs:.1 /proc/self/status >> hook-saw; test -e /usr/bin/python3 || echo image"
            " >> hook-saw"
        )
        job = self.rig.submit(
            "--gpus",
            1,
            "--image",
            self.image,
            "--suspend-hook",
            hook,
            "--",
            "sh",
            "-c",
            "echo up; sleep 600",
        )
        poll(lambda: "up" in self.rig.cli("logs", job).text, "the job to run in its image", 60)
        self.rig.ok("suspend", "--wait", job)
        self.assertEqual(text(self.rig.file("hook-saw")), "from the image\nplain\n0\n1\nimage\n")
        self.rig.ok("stop", "--force", "--wait", job)


if __name__ == "__main__":
    unittest.main()
