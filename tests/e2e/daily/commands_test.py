"""Commands that no other test calls by name, and that each command is called by some test."""
import os
import re
import unittest

from rig import SOURCE, RigTest

TESTS = os.path.join(SOURCE, "tests")
CODE = (".py", ".cpp", ".sh", ".mjs", ".ts")


def text_of_tests():
    texts = []
    for folder, folders, names in os.walk(TESTS):
        folders[:] = [each for each in folders if each != "node_modules"]
        for name in names:
            if name.endswith(CODE):
                with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as f:
                    texts.append(f.read())
    return "\n".join(texts)


class EveryCommand(unittest.TestCase):
    def test_is_called_by_a_test(self):
        with open(os.path.join(SOURCE, "docs/cli.md"), encoding="utf-8") as f:
            commands = re.findall(r"^### billow (.+)$", f.read(), re.M)
        self.assertGreater(len(commands), 100)
        text = text_of_tests()
        missing = [
            command
            for command in commands
            if not re.search(r'["\s`]' + r'(?:"\s*,\s*"|\s)'.join(command.split()) + r'["\s`]', text)
        ]
        self.assertEqual(missing, [], "add a test that calls it")


class Rest(RigTest):
    options = {"sim": "2xH100"}

    def test_lists_that_are_empty_say_so(self):
        for command, key, words in (
            (("cloud", "list"), "clouds", "there are no clouds"),
            (("secret-backend", "list"), "backends", "there are no secret backends"),
            (("env", "list"), "environments", "there are no environments"),
        ):
            self.assertIn(words, self.rig.ok(*command).errors)
            self.assertEqual(self.rig.json(*command), {key: []})

    def test_events_name_their_jobs_as_lists_do(self):
        array = self.rig.submit("--name", "seen", "--array", "0-1", "--gpus", 1, "--", "true")
        self.rig.ok("wait", array)
        text = self.rig.ok("events", "--limit", 1000).text
        self.assertRegex(text, rf"root +array {array} \(seen\) submitted .*2 elements, 1 GPU: true")
        for index in (0, 1):
            job = rf"job {array}\.{index} \(seen\)"
            self.assertRegex(text, rf"{job} placed on \S+, 1 GPU at \$[0-9.]+/h per GPU")
            self.assertRegex(text, rf"{job} on \S+ ended; cost \$")
            self.assertRegex(text, rf"{job} succeeded")
        # What came before the listing is not needed for it.
        last = self.rig.json("events", "--limit", 1000)["events"]
        ended = [e for e in last if e["kind"] == "task_ended"][-1]
        text = self.rig.ok("events", "--after", ended["seq"] - 1, "--limit", 1).text
        self.assertRegex(text, rf"job {ended['job']} \(seen\) ended; cost \$")

    def test_refusals_give_their_reason(self):
        array = self.rig.submit("--array", "0-1", "--", "true")
        done = self.rig.cli("attach", array)
        self.assertIn("cannot attach to an array", done.errors)
        self.assertNotIn("400", done.errors)
        self.rig.ok("wait", array)
        job = f"{array}.1"
        done = self.rig.cli("suspend", job)
        self.assertRegex(done.errors, rf"job {array}\.1 has ended: it succeeded \d+ s ago \(")
        done = self.rig.cli("logs", job, "--rank", 3)
        self.assertEqual(done.code, 1, done)
        self.assertIn("has no rank 3", done.errors)

    def test_settings_of_this_machine(self):
        environment = {"XDG_CONFIG_HOME": self.rig.file("settings")}
        listed = ("config", "list", "--json")
        self.assertEqual(self.rig.ok(*listed, env=environment).json, {"pass_env": []})
        self.rig.ok("config", "set", "pass-env", "FOO", env=environment)
        self.assertEqual(self.rig.ok(*listed, env=environment).json, {"pass_env": ["FOO"]})

    def test_a_token_gets_a_new_value(self):
        made = self.rig.json("token", "create", "ci")
        fresh = self.rig.json("token", "rotate", made["id"], "--grace", "1h")["token"]
        self.assertNotEqual(fresh, made["token"])
        for token in (made["token"], fresh):
            self.assertEqual(self.rig.api("GET", "/v1/status", token=token).status, 200)
        missing = self.rig.cli("token", "rotate", 999)
        self.assertEqual(missing.code, 1)
        self.assertIn("there is no token 999", missing.errors)

    def test_a_check_of_links_needs_a_driver(self):
        done = self.rig.cli("check", "gpus", env={"LD_LIBRARY_PATH": self.rig.file("no-driver")})
        if done.code == 0:
            self.assertIn("GPU", done.text)
        else:
            self.assertIn("libcuda.so.1", done.errors)

    def test_prompts_are_balanced_by_their_beginnings(self):
        path = self.rig.file("requests.csv")
        with open(path, "w", encoding="ascii") as f:
            f.write("TIMESTAMP,ContextTokens,GeneratedTokens\n")
            for second in range(30):
                f.write(f"2023-11-16 18:17:{second:02}.97,{100 + 20 * second},20\n")
        found = self.rig.json("simulate", "prefixes", "--trace", path, "--replicas", 2)
        self.assertEqual((found["requests"], found["replicas"]), (30, 2))
        hits = {each["name"]: each["hit_pct"] for each in found["results"]}
        self.assertGreaterEqual(hits["prefix"], hits["random"])
        self.assertGreater(hits["prefix"], 0)


if __name__ == "__main__":
    unittest.main()
