"""What people type wrongly on their first day, and whether the answer leads them on."""
import os
import unittest

from rig import RigTest, poll


class FirstDay(RigTest):
    def test_a_command_that_cannot_start_says_what_to_do(self):
        path = self.rig.script("exit 0", "locked.sh")
        os.chmod(path, 0o644)
        done = self.rig.cli("run", "--", path)
        self.assertEqual(done.code, 126)
        self.assertIn(f"hint: make it executable: chmod +x {path}", done.errors)
        missing = self.rig.cli("run", "--", "no-such-command-here")
        self.assertEqual(missing.code, 127)
        self.assertIn("hint: the node has no such program", missing.errors)
        # The command's own errors are its own.
        self.assertNotIn("hint", self.rig.cli("run", "--", "ls", "/nowhere").errors)

    def test_a_node_is_not_a_job(self):
        node = self.rig.json("nodes")["nodes"][0]["name"]
        done = self.rig.cli("describe", node)
        self.assertEqual(done.code, 1)
        self.assertIn(f"{node} is a node, not a job", done.errors)
        self.assertIn(f"billow nodes {node}", done.errors)
        self.assertIn("no job called nothing", self.rig.cli("describe", "nothing").errors)

    def test_a_time_of_every_day_is_not_a_moment(self):
        done = self.rig.cli("schedule", "add", "--name", "nightly", "--", "true")
        self.assertEqual(done.code, 2)
        self.assertIn("(every day at 3:00 UTC)", done.errors)

    def test_the_name_of_an_environment_comes_first(self):
        done = self.rig.cli("env", "save", self.rig.file("venv"), "torch")
        self.assertEqual(done.code, 2)
        self.assertIn(f"billow env save torch {self.rig.file('venv')}", done.errors)
        self.assertIn("not a valid", self.rig.cli("env", "save", "a/b").errors)

    def test_a_token_of_machines_and_an_address_without_tls(self):
        url = "http://{}:{}".format(*self.rig.address())
        join = self.rig.json("token", "create", "--node")["token"]
        done = self.rig.cli("login", url, "--token", join, env={"HOME": self.rig.root})
        self.assertIn("a join token can only let machines join", done.errors)
        self.assertIn("billow token create NAME --user USER", done.errors)
        secure = url.replace("http:", "https:")
        done = self.rig.cli("login", secure, "--token", "bw_x", env={"HOME": self.rig.root})
        self.assertEqual(done.code, 69, done)
        self.assertIn(f"does not use TLS: try {url}", done.errors)

    def test_an_endpoint_that_does_not_listen_is_explained(self):
        deploying = self.rig.start("deploy", "deaf", "--", "sleep", "600")
        poll(
            lambda: "did not answer the health check" in self.rig.cli("explain", "deaf").text,
            "the reason",
        )
        self.assertNotIn("nothing blocks it", self.rig.ok("explain", "deaf").text)
        deploying.kill()
        deploying.wait()
        self.rig.ok("delete", "deaf")


class CommandPoolMistakes(RigTest):
    """A pool whose commands are scripts beside the person who adds it."""

    def tool(self, name, text, mode=0o755):
        path = self.rig.file(name)
        with open(path, "w", encoding="utf-8") as f:
            f.write("#!/bin/sh\n" + text)
        os.chmod(path, mode)

    def add(self, *options, gpu="2xL4", env=None):
        return self.rig.cli(
            *("pool", "add", "command", "cloud", "--gpu", gpu, "--create", "./create.sh"),
            *("--list", "./list.sh", "--delete", "./delete.sh", *options),
            env=env,
        )

    def test_scripts_are_found_where_the_person_is(self):
        self.tool("create.sh", "pwd; exit 1\n", 0o644)
        self.tool("list.sh", "true\n")
        done = self.add()
        self.assertEqual(done.code, 2, done)
        self.assertIn(f"{self.rig.file('create.sh')} is not executable", done.errors)
        self.assertIn("chmod +x", done.errors)
        self.tool("create.sh", "echo sold out; exit 1\n")
        done = self.add()
        self.assertEqual(done.code, 2, done)
        missing = self.rig.file("delete.sh")
        self.assertIn(f"--delete ./delete.sh: {missing} does not exist", done.errors)
        self.tool("delete.sh", "true\n")
        other = {"BILLOW_TOKEN": self.rig.token()}
        done = self.add("--head", "http://{}:{}".format(*self.rig.address()), env=other)
        self.assertIn("the path is relative", done.errors)
        self.assertEqual(self.rig.json("pool", "list")["pools"], [])
        self.assertEqual(self.add().code, 0)
        job = self.rig.submit("--gpus", 1, "--gpu-type", "L4", "--", "true")
        poll(lambda: "(sold out)" in self.rig.ok("explain", job).text, "its own answer")
        self.rig.ok("stop", job)
        self.rig.ok("pool", "rm", "cloud")

    def test_a_type_of_several_sizes_is_named(self):
        for given, wanted in (("1xA100", "did you mean A100-40, A100-80"), ("1xA10", "A10G")):
            done = self.add(gpu=given)
            self.assertEqual(done.code, 2, done)
            self.assertIn(wanted, done.errors)


if __name__ == "__main__":
    unittest.main()
