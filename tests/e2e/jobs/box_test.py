"""Jobs in container images and saved environments: real podman, runc and registry, without a
network."""
import json
import os
import pwd
import shutil
import subprocess
import unittest

import images
from far import FarCase
from rig import BILLOW, BIN, SOURCE, Rig, poll

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
        self.assertEqual(missing.code, 125, missing)
        self.assertIn("is not on this node", missing.errors + missing.text)

    def test_ranks_have_a_room_each(self):
        done = self.sh(
            'echo "rank $RANK of $WORLD_SIZE"; touch /root/$RANK; ls /root', "--procs", "2"
        )
        self.assertEqual(done.code, 0, done)
        self.assertEqual(
            sorted(done.text.split("\n"))[1:],
            ["[0] 0", "[0] rank 0 of 2", "[1] 1", "[1] rank 1 of 2"],
        )


@unittest.skipIf(WHY_NOT, WHY_NOT)
@unittest.skipUnless(
    os.path.exists(SIM_CUDA + "/libcuda.so.1"), "the simulated driver is not built"
)
class Slices(unittest.TestCase):
    """A CUDA program in an image, on a simulated driver, behind the real shim and the real GPU
    memory service."""

    def test_the_shim_keeps_the_slice_and_suspends_it(self):
        rig = Rig(sim="1xH100", BILLOW_CUDA=SIM_CUDA + "/libcuda.so.1")
        registry = images.Registry(rig.root)
        try:
            image = registry.push(
                "cuda:1",
                images.python_tar(
                    {
                        "/usr/lib/libcuda.so.1": SIM_CUDA + "/libcuda.so.1",
                        "/srv/cuda_loop.py": os.path.join(SOURCE, "tests/support/cuda_loop.py"),
                    }
                ),
                "ENV LD_LIBRARY_PATH=/usr/lib",
            )
            done, count = rig.file("done"), rig.file("count")
            job = rig.submit(
                "--image",
                image,
                "--gpu-mem",
                "1G",
                "--",
                "python3",
                "/srv/cuda_loop.py",
                done,
                count,
                64,
            )

            def number():
                with open(count, encoding="ascii") as f:
                    return int(f.read() or 0)

            poll(
                lambda: os.path.exists(count) and number() > 2 or rig.job(job)["final"],
                "the slice to run",
                90,
            )
            self.assertIn("total 1024 MiB", rig.ok("logs", job).text)
            rig.ok("suspend", job)
            self.assertGreaterEqual(
                rig.wait_for(job, "suspended", 60)["tasks"][0]["ram_mib"], 64
            )  # its device memory lies in the GPU memory service
            before = number()
            rig.ok("resume", job)
            rig.wait_for(job, "running", 60)
            poll(lambda: number() > before, "it to count on")
            open(done, "w", encoding="ascii").close()
            rig.wait_for(job, "succeeded", 60)
        finally:
            registry.close()
            rig.close()


@unittest.skipIf(WHY_NOT, WHY_NOT)
class OtherUsers(unittest.TestCase):
    def test_a_job_is_its_user_outside_and_root_inside(self):
        try:
            user = pwd.getpwnam("nobody")
        except KeyError:
            self.skipTest("there is no user nobody")
        rig = Rig(sim="1xH100")
        registry = images.Registry(rig.root)
        try:
            image = registry.push("tools:1", images.root_tar())
            rig.ok("user", "create", "worker", "--unix-name", "nobody")
            rig.ok("project", "create", "red")
            rig.ok("project", "member", "red", "worker")
            token = rig.json("token", "create", "worker-token", "--user", "worker")["token"]
            work = os.path.join(rig.root, "work")
            os.mkdir(work)
            os.chown(work, user.pw_uid, user.pw_gid)
            done = rig.cli(
                "run",
                "--cwd",
                work,
                "--image",
                image,
                "--",
                "sh",
                "-c",
                "id -u; touch made; cat /etc/hello; cat /proc/self/uid_map",
                env={"BILLOW_TOKEN": token},
                timeout=120,
            )
            self.assertEqual(done.code, 0, done)
            lines = done.text.split("\n")
            self.assertEqual(lines[0], "0")
            self.assertEqual(lines[2].split(), ["0", str(user.pw_uid), "1"])
            self.assertEqual(os.stat(os.path.join(work, "made")).st_uid, user.pw_uid)
        finally:
            registry.close()
            rig.close()


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Ordinary(unittest.TestCase):
    def test_an_agent_without_any_privilege(self):
        """Head, agent, image and environment, all as nobody."""
        rig = Rig(sim="1xH100", up=False, HOME="/nonexistent")
        uid = pwd.getpwnam("nobody").pw_uid
        registry = images.Registry(rig.root)
        try:
            image = registry.push("tools:1", images.root_tar())
            place = os.path.join(rig.files, "tools")
            os.makedirs(os.path.join(place, "bin"))
            with open(os.path.join(place, "bin/greet"), "w", encoding="utf-8") as f:
                f.write("#!/bin/sh\necho saved\n")
            os.chmod(os.path.join(place, "bin/greet"), 0o755)
            os.makedirs(rig.data)
            for path in (
                rig.data,
                rig.files,
                place,
                os.path.join(place, "bin"),
                os.path.join(place, "bin/greet"),
            ):
                os.chown(path, uid, -1)
            done = rig.cli(
                "run",
                "--gpus",
                "1",
                "--image",
                image,
                "--",
                "sh",
                "-c",
                "id -u; cat /etc/hello; exit 6",
                user=uid,
                timeout=120,
            )
            self.assertEqual((done.code, done.text), (6, "0\nfrom the image\n"), done)
            self.assertEqual(
                rig.cli(
                    "env",
                    "save",
                    "tools",
                    place,
                    user=uid,
                    env={"XDG_CACHE_HOME": rig.data},
                    timeout=120,
                ).code,
                0,
            )
            os.remove(os.path.join(place, "bin/greet"))
            done = rig.cli(
                "run",
                "--env",
                "tools",
                "--",
                "sh",
                "-c",
                f"greet; id -un; echo mine > {place}/bin/new; ls {place}/bin",
                user=uid,
                timeout=120,
            )
            self.assertEqual((done.code, done.text), (0, "saved\nnobody\ngreet\nnew\n"), done)
            self.assertEqual(os.listdir(os.path.join(place, "bin")), [])
            self.assertEqual(rig.cli("down", "--stop-jobs", user=uid).code, 0)
        finally:
            registry.close()
            rig.close()


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
