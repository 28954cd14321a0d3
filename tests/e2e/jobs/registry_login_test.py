"""Private images: a secret of the project is the login at their registry, on every node."""
import base64
import ctypes
import glob
import json
import os
import subprocess
import threading
import unittest

import images
from ports import free_port
from rig import BILLOW, Rig, poll

WHY_NOT = images.missing()
USER, PASSWORD = "puller", "Correct-Horse-71-Battery"
LOGIN = f"{USER}:{PASSWORD}"
ENCODED = base64.b64encode(LOGIN.encode()).decode()
LANDLOCK = ctypes.CDLL(None).syscall(444, None, 0, 1) >= 2

# Looks into the descriptors of all processes until it is ended, and says what it finds.
LOOK = """
import os
print("looking", flush=True)
while True:
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            for fd in os.listdir(f"/proc/{pid}/fd"):
                path = f"/proc/{pid}/fd/{fd}"
                if "memfd:login" in os.readlink(path):
                    with open(path) as f:
                        print("GOT", len(f.read()), flush=True)
        except OSError:
            pass
"""


class Watch(threading.Thread):
    """Looks for texts in the command lines and variables of all processes until it is ended."""

    def __init__(self, *texts):
        super().__init__(daemon=True)
        self.texts = [text.encode() for text in texts]
        self.over, self.found, self.pulls = threading.Event(), [], set()

    def run(self):
        while not self.over.is_set():
            for pid in filter(str.isdigit, os.listdir("/proc")):
                for name in ("cmdline", "environ"):
                    try:
                        with open(f"/proc/{pid}/{name}", "rb") as f:
                            content = f.read()
                    except OSError:
                        continue
                    if any(text in content for text in self.texts):
                        self.found.append((pid, name, content[:200]))
                    if name == "cmdline" and b"\0pull\0" in content:
                        self.pulls.add(pid)

    def end(self):
        self.over.set()
        self.join()
        return self.found


@unittest.skipIf(WHY_NOT, WHY_NOT)
class RegistryLogins(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rig = Rig(sim="2xH100", up=False, args=("--tls",))
        try:
            cls.listen = f"127.0.0.1:{free_port()}"
            cls.rig.up(listen=cls.listen)
            cls.registry = images.Registry(cls.rig.root, login=(USER, PASSWORD))
            cls.host = f"127.0.0.1:{cls.registry.port}"
            cls.rig.ok("secret", "set", "pull", stdin=(LOGIN + "\n").encode())
            cls.rig.ok("secret", "set", "wrong", stdin=f"{USER}:Not-It-At-All".encode())
        except BaseException:
            cls.rig.close()
            raise

    @classmethod
    def tearDownClass(cls):
        try:
            cls.registry.close()
        finally:
            cls.rig.close()

    def image(self, name):
        """An image that no node has yet."""
        return self.registry.push(name, images.root_tar({"etc/which": name.encode()}))

    def run_in(self, image, *options, **more):
        return self.rig.cli(
            "run", "--image", image, *options, "--", "sh", "-c", "cat /etc/hello; env",
            timeout=120, **more,
        )  # fmt: skip

    def test_a_secret_is_the_login_and_is_nowhere_else(self):
        image = self.image("private:1")
        watch = Watch(PASSWORD, ENCODED)
        watch.start()
        done = self.run_in(image, "--registry-secret", "pull")
        found = watch.end()
        self.assertEqual(done.code, 0, done)
        self.assertTrue(done.text.startswith("from the image\n"), done)
        self.assertTrue(watch.pulls, "no pull was seen, so nothing was watched")
        self.assertEqual(found, [], "the login on a command line or in variables")
        self.assertNotIn(PASSWORD, done.text + done.errors)
        job = self.rig.json("ps", "-a")["jobs"][0]["id"]
        shown = self.rig.json("describe", job)
        self.assertEqual(shown["registry_secret"], "pull")
        self.assertRegex(self.rig.ok("describe", job).text, "registry login +secret pull")
        # Neither in the head's data, nor in the agent's, nor beside the images.
        places = [self.rig.data, images.work_place(os.path.join(self.rig.data, "agent"))]
        places += glob.glob("/dev/shm/billow-*") + glob.glob("/run/billow-*")
        for text in (PASSWORD, ENCODED):
            left = subprocess.run(
                ["grep", "-rlaF", "--devices=skip", text, *places],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            self.assertEqual(left.stdout, "")

    def test_as_another_user(self):
        image = self.image("private:2")
        self.rig.ok("user", "create", "ana", "--unix-name", "nobody")
        self.rig.ok("project", "member", "default", "ana")
        token = {"BILLOW_TOKEN": self.rig.token_for("ana")}
        denied = self.run_in(image, "--cwd", "/", env=token)
        self.assertEqual(denied.code, 125, denied)
        self.assertIn("--registry-secret", denied.errors)
        done = self.run_in(image, "--cwd", "/", "--registry-secret", "pull", env=token)
        self.assertEqual(done.code, 0, done)

    @unittest.skipUnless(LANDLOCK, "this kernel has no Landlock, which hides it from plain jobs")
    def test_a_plain_job_of_the_account_does_not_see_it(self):
        image = self.registry.push("private:8", images.root_tar(size=24 << 20))
        self.rig.ok("user", "create", "eva", "--unix-name", "nobody")
        self.rig.ok("project", "member", "default", "eva")
        token = {"BILLOW_TOKEN": self.rig.token_for("eva")}
        job = self.rig.cli(
            "submit", "--json", "--cwd", "/", "--", "/usr/bin/python3", "-c", LOOK, env=token
        ).json["id"]  # fmt: skip
        self.addCleanup(self.rig.cli, "stop", "--force", job)
        poll(lambda: "looking" in self.rig.cli("logs", job).text, "the job that looks", 60)
        watch = Watch(PASSWORD, ENCODED)
        watch.start()
        done = self.run_in(image, "--cwd", "/", "--registry-secret", "pull", env=token)
        watch.end()
        self.assertEqual(done.code, 0, done)
        self.assertTrue(watch.pulls, "no pull was seen, so nothing was to be found")
        self.assertNotIn("GOT", self.rig.ok("logs", job).text)

    def test_a_wrong_password_is_named(self):
        image = self.image("private:3")
        done = self.run_in(image, "--registry-secret", "wrong")
        self.assertEqual(done.code, 125, done)
        self.assertIn(
            f"registry {self.host} does not accept the login of secret wrong", done.errors
        )
        self.assertIn("billow secret set wrong", done.errors)
        self.assertNotIn("Not-It-At-All", done.errors)
        # Set right, the same job runs.
        self.rig.ok("secret", "set", "mended", stdin=b"somebody:else")
        self.assertEqual(self.run_in(image, "--registry-secret", "mended").code, 125)
        self.rig.ok("secret", "set", "mended", stdin=LOGIN.encode())
        self.assertEqual(self.run_in(image, "--registry-secret", "mended").code, 0)

    def test_what_is_no_login_is_refused_without_quoting_it(self):
        image = self.image("private:4")
        other = {"auths": {"ghcr.io": {"auth": ENCODED}}}
        for text, why in (
            ("just-a-token-without-user", "must be USER:PASSWORD"),
            ("{broken-json-text", "cannot be read"),
            (json.dumps(other), f"secret odd has no login for registry {self.host}"),
        ):
            self.rig.ok("secret", "set", "odd", stdin=text.encode())
            jobs = len(self.rig.json("ps", "-a")["jobs"])
            done = self.run_in(image, "--registry-secret", "odd")
            self.assertNotEqual(done.code, 0, done)
            self.assertIn(why, done.errors)
            # What no registry accepts is refused when it is submitted.
            if "auths" not in text:
                self.assertEqual(len(self.rig.json("ps", "-a")["jobs"]), jobs)
            self.assertNotIn(text, done.errors)
            self.assertNotIn(ENCODED, done.errors)

    def test_the_file_of_podman_or_docker_is_a_login_too(self):
        image = self.image("private:5")
        file = {
            "auths": {self.host: {"auth": ENCODED}, "ghcr.io": {"auth": "eDp5"}},
            "credsStore": "none",
        }
        self.rig.ok("secret", "set", "file", stdin=json.dumps(file, indent=1).encode())
        self.assertEqual(self.run_in(image, "--registry-secret", "file").code, 0)

    def test_another_project_cannot_use_it(self):
        image = self.image("private:6")
        self.rig.ok("project", "create", "elsewhere")
        done = self.run_in(image, "--project", "elsewhere", "--registry-secret", "pull")
        self.assertNotEqual(done.code, 0)
        self.assertIn('project elsewhere has no secret "pull"', done.errors)

    def test_it_is_for_an_image(self):
        done = self.rig.cli("run", "--registry-secret", "pull", "--", "true")
        self.assertIn("this job has none", done.errors)
        done = self.rig.cli("run", "--image", "x", "--registry-secret", LOGIN, "--", "true")
        self.assertIn("the name of a secret", done.errors)
        self.assertNotIn(PASSWORD, done.errors)

    def test_a_node_that_joined_needs_no_login_of_its_own(self):
        image = self.image("private:7")
        token = self.rig.ok("token", "create", "--node").text.strip()
        with open(os.path.join(self.rig.root, "far.log"), "w", encoding="utf-8") as log:
            agent = subprocess.Popen(
                [
                    *(BILLOW, "join", f"https://{self.listen}", "--token", token),
                    *("--node-name", "far", "--data", os.path.join(self.rig.root, "far")),
                    *("--sim", "1xL4"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.rig.environment,
            )
        self.rig.started.append(agent)
        poll(lambda: len(self.rig.json("nodes")["nodes"]) == 2, "the other node", 60)
        done = self.run_in(image, "--gpu-type", "L4", "--gpus", 1, "--registry-secret", "pull")
        self.assertEqual(done.code, 0, done)


if __name__ == "__main__":
    unittest.main()
