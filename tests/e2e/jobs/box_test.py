"""Jobs in container images and saved environments: real podman, runc and registry, without a
network."""
import json
import os
import shutil
import subprocess
import unittest

import images
from rig import BILLOW, BIN, Rig, poll

WHY_NOT = images.missing()
SIM_CUDA = os.path.join(os.path.dirname(os.path.abspath(BIN)), "sim-cuda")


@unittest.skipIf(WHY_NOT, WHY_NOT)
class ImageTest(unittest.TestCase):
    """A rig with an image in a registry of its own."""

    @classmethod
    def setUpClass(cls):
        cls.rig = Rig(sim="2xH100")
        try:
            cls.registry = images.Registry(cls.rig.root)
            cls.image = cls.registry.push(
                "tools:1", images.root_tar(), "ENV FLAVOUR=plain", "WORKDIR /srv"
            )
        except BaseException:
            cls.rig.close()
            raise

    @classmethod
    def tearDownClass(cls):
        try:
            cls.registry.close()
        finally:
            cls.rig.close()

    def run_in(self, *args, image=None, **options):
        at = args.index("--")
        return self.rig.cli(
            "run", "--image", image or self.image, *args[:at], *args[at:], timeout=120, **options
        )

    def last(self):
        return self.rig.json("ps", "-a")["jobs"][0]["id"]

    def sh(self, script, *options, **more):
        return self.run_in(*options, "--", "sh", "-c", script, **more)


class Images(ImageTest):
    def test_the_image_is_the_root_and_the_directory_comes_along(self):
        with open(self.rig.file("here.txt"), "w", encoding="utf-8") as f:
            f.write("mine\n")
        done = self.sh(
            (
                'cat /etc/hello here.txt; echo "$FLAVOUR $HOME"; echo out > left.txt; pwd; test -e'
                " /usr/bin/python3 || echo no python"
            ),
            env={"OUTSIDE": "1"},
        )
        self.assertEqual(done.code, 0, done)
        self.assertEqual(
            done.text.split("\n")[:5],
            ["from the image", "mine", "plain /root", self.rig.files, "no python"],
        )
        with open(self.rig.file("left.txt"), encoding="utf-8") as f:
            self.assertEqual(f.read(), "out\n")

    def test_a_copied_directory_comes_along_and_its_outputs_return(self):
        # As on every node that is not the user's own machine. Root's copy is closed to the
        # unprivileged user that root is outside the container.
        with open(self.rig.file("model.txt"), "w", encoding="utf-8") as f:
            f.write("copied\n")
        done = self.sh(
            "cat model.txt; mkdir out; echo result > out/loss", "--sync", "--output", "out"
        )
        self.assertEqual((done.code, done.text), (0, "copied\n"), done)
        self.rig.ok("cp", f"{self.last()}:out/loss", self.rig.file("loss"))
        with open(self.rig.file("loss"), encoding="utf-8") as f:
            self.assertEqual(f.read(), "result\n")

    def test_only_named_variables_come_along(self):
        done = self.sh("env", "--env-var", "GIVEN=yes", env={"OUTSIDE": "1"})
        self.assertIn("GIVEN=yes", done.text)
        self.assertIn("BILLOW_JOB_ID=", done.text)
        self.assertNotIn("OUTSIDE", done.text)
        self.assertNotIn("BILLOW_BOX_PLAN", done.text)

    def test_exit_codes_signals_and_missing_commands(self):
        self.assertEqual(self.sh("exit 7").code, 7)
        self.assertEqual(self.sh("kill -9 $$").code, 137)
        gone = self.run_in("--", "no-such-command")
        self.assertEqual(gone.code, 127, gone)
        self.assertIn("command not found in the image", gone.errors + gone.text)
        self.assertEqual(self.run_in("--", "/no/such").code, 127)

    def test_input_is_passed_on(self):
        done = self.run_in("--", "cat", stdin=b"a line\n" * 1000)
        self.assertEqual(done.out, b"a line\n" * 1000)

    def test_what_one_job_writes_the_next_does_not_see(self):
        self.assertEqual(
            self.sh("echo changed > /etc/hello; echo new > /root/new; cat /etc/hello").text,
            "changed\n",
        )
        self.assertEqual(self.sh("cat /etc/hello; ls /root").text, "from the image\n")
        scratch = os.path.join(images.boxes(os.path.join(self.rig.data, "agent")), "0", "scratch")
        poll(
            lambda: not os.path.isdir(scratch) or not os.listdir(scratch),
            "the writable layers gone",
        )

    def test_root_inside_is_nobody_outside(self):
        done = self.sh(
            "id -u; cat /proc/self/uid_map; grep -c 'CapEff.*0000' /proc/self/status; mkdir"
            " /sys/fs/cgroup/x 2>&1; mount -t tmpfs none /root 2>&1; grep NoNewPrivs"
            " /proc/self/status; true"
        )
        lines = done.text.split("\n")
        self.assertEqual(lines[0], "0")
        # A user namespace of one user, who is not root outside.
        inside, outside, count = lines[1].split()
        self.assertEqual((inside, count), ("0", "1"))
        self.assertGreaterEqual(int(outside), 65536)
        self.assertIn("Read-only", done.text)
        self.assertRegex(done.text, "mount: .*(denied|permitted)")
        self.assertIn("NoNewPrivs:\t1", done.text)

    def test_its_processes_stay_in_the_jobs_control_groups_and_limits_hold(self):
        groups = self.sh("cat /proc/self/cgroup", "--mem", "64M", "--cpus", "0.5")
        self.assertIn("/billow/", groups.text)
        eaten = self.sh("dd if=/dev/zero of=/dev/null bs=200M count=1", "--mem", "64M")
        self.assertEqual(eaten.code, 137, eaten)
        self.assertIn("memory", eaten.errors)

    def test_stopping_is_gentle_first(self):
        job = self.rig.submit(
            "--image",
            self.image,
            "--",
            "sh",
            "-c",
            "trap 'echo told; exit 3' TERM; echo ready; while true; do sleep 0.1; done",
        )
        poll(lambda: "ready" in self.rig.cli("logs", job).text, "the job's first word")
        self.rig.ok("stop", job)
        self.rig.wait_for(job, "stopped")
        self.assertIn("told", self.rig.ok("logs", job).text)

    def test_a_terminal(self):
        script = "tty; stty size; echo done"
        done = subprocess.run(
            [
                "script",
                "-qec",
                " ".join(
                    [
                        *self.rig.command("run", "-t", "--image", self.image, "--"),
                        "sh",
                        "-c",
                        f"'{script}'",
                    ]
                ),
                "/dev/null",
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=self.rig.environment,
            cwd=self.rig.files,
            timeout=120,
            check=False,
        )
        self.assertIn(b"/dev/pts/", done.stdout)
        self.assertIn(b"done", done.stdout)

    def secure_shell(self, image, *options):
        """A job in the image, and how ssh reaches it."""
        if not shutil.which("ssh") or not os.path.exists("/usr/sbin/sshd"):
            self.skipTest("OpenSSH's client or server is missing")
        job = self.rig.submit("--image", image, *options, "--", "sh", "-c", "echo up; sleep 600")
        self.addCleanup(self.rig.cli, "stop", "--force", job)
        poll(lambda: "up" in self.rig.cli("logs", job).text, "the job", 60)
        env = {**self.rig.environment, "XDG_CONFIG_HOME": os.path.join(self.rig.root, "config")}
        config = self.rig.file(f"ssh-config-{job}")
        with open(config, "w", encoding="utf-8") as f:
            f.write(
                self.rig.ok("ssh-config", job, env={"XDG_CONFIG_HOME": env["XDG_CONFIG_HOME"]}).text
            )
        tool = lambda name, *args: subprocess.run(
            [name, "-F", config, *[str(a).replace("@JOB", f"billow-{job}") for a in args]],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=env,
            timeout=60,
            check=False,
        )
        return job, tool, env["XDG_CONFIG_HOME"]

    def test_a_secure_shell_is_inside_the_image(self):
        job, tool, home = self.secure_shell(self.image, "--gpus", "1", "--env-var", "GIVEN=yes")
        done = tool(
            "ssh",
            "@JOB",
            (
                "cat /etc/hello; echo $FLAVOUR $GIVEN $BILLOW_JOB_ID; pwd; id -u; test -e"
                " /usr/bin/python3 || echo no python; env | grep -c CUDA_VISIBLE_DEVICES; cat"
                " /proc/self/cgroup; exit 7"
            ),
        )
        self.assertEqual(done.returncode, 7, done)
        lines = done.stdout.decode().splitlines()
        self.assertEqual(
            lines[:6],
            ["from the image", f"plain yes {job}", self.rig.files, "0", "no python", "1"],
            done,
        )
        self.assertIn("/billow/", done.stdout.decode())
        # With no more than the job's own program has.
        done = tool(
            "ssh",
            "@JOB",
            (
                "grep -E 'CapEff|CapBnd|NoNewPrivs' /proc/self/status; cat /proc/self/uid_map;"
                " mount -t tmpfs none /root 2>&1; mkdir /sys/fs/cgroup/x 2>&1; true"
            ),
        )
        own = self.sh(
            "grep -E 'CapEff|CapBnd|NoNewPrivs' /proc/self/status; cat /proc/self/uid_map"
        ).text
        theirs, own = done.stdout.decode().splitlines(), own.splitlines()
        self.assertEqual(theirs[:3], own[:3], done)
        # Each task has another user outside.
        self.assertEqual([line.split()[::2] for line in (theirs[3], own[3])], [["0", "1"]] * 2)
        self.assertRegex(done.stdout.decode(), "mount: .*(denied|permitted)")
        self.assertIn("Read-only", done.stdout.decode())
        # The shell's own way round the image is closed: sockets of the node's files.
        self.assertNotEqual(
            tool(
                "ssh",
                "-o",
                "ExitOnForwardFailure=yes",
                "-R",
                f"{self.rig.files}/made.sock:127.0.0.1:9",
                "@JOB",
                "true",
            ).returncode,
            0,
        )
        self.assertFalse(os.path.exists(self.rig.file("made.sock")))
        # What it writes the job sees: it is the same room.
        self.assertEqual(tool("ssh", "@JOB", "echo left > /etc/left").returncode, 0)
        self.assertEqual(tool("ssh", "@JOB", "cat /etc/left").stdout, b"left\n")
        done = self.rig.cli("ssh", job, "--", "pwd; cat /etc/hello", env={"XDG_CONFIG_HOME": home})
        self.assertEqual((done.code, done.text), (0, f"{self.rig.files}\nfrom the image\n"), done)
        # Files go by sftp where the image has its server, and are refused in words where it has
        # not.
        with open(self.rig.file("to-send"), "wb") as f:
            f.write(b"sent")
        done = tool("sftp", "@JOB")
        self.assertIn(b"has no sftp-server", done.stderr)
        done = tool("scp", self.rig.file("to-send"), "@JOB:/etc/sent")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(b"unsupported", done.stderr)

    def test_a_secure_shell_as_the_images_own_user_and_files_by_sftp(self):
        server = "/usr/lib/openssh/sftp-server"
        if not os.path.exists(server):
            self.skipTest("there is no sftp-server to put into an image")
        image = self.registry.push("served:1", images.python_tar({server: server}), "USER app")
        _, tool, _ = self.secure_shell(image)
        self.assertEqual(
            tool("ssh", "@JOB", "id -u; echo $HOME; grep CapEff /proc/self/status")
            .stdout.decode()
            .split("\n")[:3],
            ["1000", "/home/app", "CapEff:\t0000000000000000"],
        )
        data = os.urandom(100_000)
        with open(self.rig.file("to-send"), "wb") as f:
            f.write(data)
        for copy in (
            (self.rig.file("to-send"), "@JOB:/home/app/sent"),
            ("@JOB:/home/app/sent", self.rig.file("came-back")),
        ):
            done = tool("scp", *copy)
            self.assertEqual(done.returncode, 0, done)
        with open(self.rig.file("came-back"), "rb") as f:
            self.assertEqual(f.read(), data)
        self.assertEqual(
            tool("ssh", "@JOB", "cat /home/app/sent | wc -c").stdout.decode().strip(), "100000"
        )

    def test_suspended_and_resumed(self):
        job = self.rig.submit(
            "--image",
            self.image,
            "--",
            "sh",
            "-c",
            "i=0; while true; do i=$((i+1)); echo $i; sleep 0.1; done",
        )
        poll(lambda: "3\n" in self.rig.cli("logs", job).text, "some numbers")
        self.rig.ok("suspend", job)
        self.rig.wait_for(job, "suspended")
        before = self.rig.ok("logs", job).text
        self.rig.ok("resume", job)
        self.rig.wait_for(job, "running")
        poll(lambda: len(self.rig.cli("logs", job).text) > len(before) + 5, "it counts on")
        self.assertTrue(
            self.rig.ok("logs", job).text.startswith(before)
        )  # it went on, and did not begin again
        self.rig.ok("stop", job, "--force")

    def test_gpus_come_by_the_device_interface(self):
        done = self.sh("env | grep -E 'BILLOW_GPU_|CUDA_VISIBLE' | sort", "--gpus", "1")
        self.assertRegex(done.text, r"BILLOW_GPU_[01]=GPU-")
        self.assertRegex(done.text, r"CUDA_VISIBLE_DEVICES=GPU-")
        self.assertNotIn("BILLOW_GPU_", self.sh("env | grep BILLOW_GPU_ || true").text)

    def test_the_devices_are_described_for_others_too(self):
        """podman itself reads the agent's description, and gives a container the same."""
        described = json.loads(self.rig.read("agent/cdi.json"))
        self.assertEqual(described["kind"], "billow.io/gpu")
        self.assertLessEqual({"0", "1", "all"}, {d["name"] for d in described["devices"]})
        command = (
            'mkdir -p /tmp/cdi && mount -t tmpfs none /tmp/cdi && mkdir -p /tmp/cdi/cdi && cp "$0"'
            " /tmp/cdi/cdi/billow.json && mount -t overlay -o lowerdir=/tmp/cdi:/etc none /etc &&"
            ' exec "$@"'
        )
        podman = [
            "podman",
            f"--root={self.registry.root}/storage",
            f"--runroot={self.registry.root}/run",
            f"--tmpdir={self.registry.root}/tmp",
            "--runtime=runc",
            "--cgroup-manager=cgroupfs",
            "--events-backend=none",
        ]
        done = subprocess.run(
            [
                "unshare",
                "-m",
                "sh",
                "-c",
                command,
                os.path.join(self.rig.data, "agent/cdi.json"),
                *podman,
                "run",
                "--rm",
                "--network=none",
                "--ulimit=nofile=1024:1024",
                "--ulimit=nproc=1024:1024",
                "--device",
                "billow.io/gpu=1",
                self.image,
                "env",
            ],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done)
        self.assertRegex(done.stdout, "BILLOW_GPU_1=GPU-")
        self.assertNotIn("BILLOW_GPU_0=", done.stdout)

    def test_cgroups_of_every_kind(self):
        """The same room where the machine shows only cgroup v1, and only v2."""
        views = {
            "v1": "umount /sys/fs/cgroup/unified 2>/dev/null || true",
            "v2": "umount -R /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup",
        }
        for kind, view in views.items():
            with self.subTest(kind):
                rig = Rig(sim="1xH100", up=False)
                rig.command = lambda *args, view=view: [
                    "unshare",
                    "-m",
                    "sh",
                    "-c",
                    view + '; exec "$0" "$@"',
                    BILLOW,
                    *map(str, args),
                ]
                try:
                    rig.up()
                    done = rig.cli(
                        "run",
                        "--image",
                        self.image,
                        "--",
                        "sh",
                        "-c",
                        "cat /etc/hello; exit 4",
                        timeout=120,
                    )
                    self.assertEqual((done.code, done.text), (4, "from the image\n"), done)
                finally:
                    rig.close()

    def test_a_node_without_podman_says_so(self):
        rig = Rig(sim="1xH100", up=False)
        rig.command = lambda *args: [
            "unshare",
            "-m",
            "sh",
            "-c",
            'mount --bind /dev/null "$(readlink -f "$(command -v podman)")"; exec "$0" "$@"',
            BILLOW,
            *map(str, args),
        ]
        try:
            rig.up()
            done = rig.cli("run", "--image", self.image, "--", "true", timeout=60)
            self.assertEqual(done.code, 125, done)
            self.assertIn("podman is not installed on this node", done.errors)
            self.assertIn("apt install podman runc", done.errors)
        finally:
            rig.close()

    def test_pulled_once_and_pinned_for_a_rerun(self):
        name = self.registry.push("moving:1", images.root_tar({"etc/version": b"one\n"}))
        first = self.rig.submit("--image", name, "--", "cat", "/etc/version")
        self.rig.wait_for(first, "succeeded", 60)
        digest = images.manifest_digest(self.registry, "moving", "1")
        self.assertEqual(self.rig.job(first)["image_digest"], digest)
        blobs = self.registry.gets("blobs")
        self.assertEqual(self.run_in("--", "cat", "/etc/version", image=name).text, "one\n")
        self.assertEqual(self.registry.gets("blobs"), blobs)  # nothing was fetched again
        self.registry.push("moving:1", images.root_tar({"etc/version": b"two\n"}))
        again = self.rig.json("rerun", first)["id"]
        self.rig.wait_for(again, "succeeded", 60)
        self.assertEqual(self.rig.ok("logs", again).text, "one\n")
        self.assertTrue(
            self.rig.job(again)["image"].endswith("@" + digest), self.rig.job(again)["image"]
        )

    def test_an_image_of_the_users_own_podman(self):
        if shutil.which("podman") is None:
            self.skipTest("no podman")
        done = subprocess.run(
            [
                "podman",
                "--runtime=runc",
                "--cgroup-manager=cgroupfs",
                "import",
                "-",
                "localhost/billow-e2e:1",
            ],
            input=images.root_tar({"etc/own": b"built here\n"}),
            capture_output=True,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        try:
            self.assertEqual(
                self.run_in("--", "cat", "/etc/own", image="localhost/billow-e2e:1").text,
                "built here\n",
            )
        finally:
            subprocess.run(
                [
                    "podman",
                    "--runtime=runc",
                    "--cgroup-manager=cgroupfs",
                    "rmi",
                    "localhost/billow-e2e:1",
                ],
                capture_output=True,
                check=False,
            )

    def test_what_is_waited_for_is_said(self):
        big = self.registry.push("big:1", images.root_tar(size=150_000_000))
        job = self.rig.submit("--image", big, "--", "true")
        seen = []

        def look():
            document = self.rig.api("GET", f"/v1/jobs/{job}").json
            if document.get("waits_for"):
                seen.append(document["waits_for"])
                self.assertEqual(document["reason"], document["waits_for"])
            return document["final"]

        poll(look, "the end", 120)
        self.assertTrue(any("pulling" in text and big in text for text in seen), seen)
        self.assertEqual(self.rig.job(job)["state"], "succeeded")

    def test_stopped_while_its_image_is_brought(self):
        # Nobody listens there; podman tries for a while.
        job = self.rig.submit("--image", "10.255.255.1:1/x:1", "--", "true")
        poll(
            lambda: self.rig.api("GET", f"/v1/jobs/{job}").json.get("waits_for")
            or self.rig.api("GET", f"/v1/jobs/{job}").json["final"],
            "the pull",
        )
        self.rig.ok("stop", job)
        self.rig.wait_for(job, "stopped", 20)

    def test_images_that_are_not_there(self):
        for name, words in (
            (self.registry.name("nosuch:1"), "does not exist"),
            ("localhost/nosuch", "there is no image"),
            ("127.0.0.1:9/x", "could not be pulled"),
        ):
            done = self.run_in("--", "true", image=name)
            self.assertEqual(done.code, 125, done)
            self.assertIn(words, done.errors)

    def test_names_with_options_in_them(self):
        for name in (
            "-v",
            "--privileged",
            "a b",
            "x\ty",
            "x\n-v",
            "docker://ubuntu",
            "UPPER",
            "a//b",
            "../x",
            "x:",
            "x@sha256:1",
            "x;reboot",
            "$(id)",
            "a" * 600,
            "ünicode",
            "host:99999/x",
        ):
            typed = self.rig.cli("run", "--image=" + name, "--", "true")
            self.assertEqual(typed.code, 2, (name, typed))
            self.assertIn("is not the name of an image", typed.errors)
            sent = self.rig.api(
                "POST",
                "/v1/jobs",
                {
                    "spec": {"argv": ["true"], "cwd": "/", "surroundings": {"image": name}},
                    "env": {},
                },
            )
            self.assertEqual(sent.status, 400, (name, sent))

    def test_volumes_are_seen_inside(self):
        data = os.path.join(self.rig.root, "volume")
        os.mkdir(data)
        with open(os.path.join(data, "word"), "w", encoding="utf-8") as f:
            f.write("shared\n")
        self.rig.ok("volume", "add", "words", "--path", data)
        done = self.sh(
            "cat /mnt/words/word; echo more > /mnt/words/made; touch /mnt/still/x 2>&1",
            "--volume",
            "words:/mnt/words",
            "--volume",
            "words:/mnt/still:ro",
        )
        self.assertIn("shared\n", done.text)
        self.assertIn("Read-only", done.text)
        with open(os.path.join(data, "made"), encoding="utf-8") as f:
            self.assertEqual(f.read(), "more\n")
        self.rig.ok("volume", "add", "gone", "--path", os.path.join(self.rig.root, "nowhere"))
        missing = self.sh("true", "--volume", "gone:/mnt/gone")
        self.assertEqual(missing.code, 126, missing)
        self.assertIn("nowhere is not on this node", missing.errors + missing.text)

    def test_ranks_have_a_room_each(self):
        done = self.sh(
            'echo "rank $RANK of $WORLD_SIZE"; touch /root/$RANK; ls /root', "--procs", "2"
        )
        self.assertEqual(done.code, 0, done)
        self.assertEqual(
            sorted(done.text.split("\n"))[1:],
            ["[0] 0", "[0] rank 0 of 2", "[1] 1", "[1] rank 1 of 2"],
        )


if __name__ == "__main__":
    unittest.main()
