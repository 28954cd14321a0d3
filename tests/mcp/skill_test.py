"""Every command that the skill teaches runs, with an agent token."""

import os
import re
import subprocess
import unittest

from rig import BIN, Rig

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))


class Skill(unittest.TestCase):
    def test_every_command_in_it_runs(self):
        with open(os.path.join(ROOT, "packaging/agent-skill/SKILL.md"), encoding="utf-8") as f:
            blocks = re.findall(r"```sh\n(.*?)```", f.read(), re.S)
        commands = [line for block in blocks for line in block.splitlines() if line.strip()]
        self.assertGreaterEqual(len(commands), 15)
        rig = Rig()
        self.addCleanup(rig.close)
        limits = ["--budget", "20", "--per-job", "5", "--gpus", "2", "--expires", "8h"]
        token = rig.ok("token", "create", "--agent", "skill", *limits).text.split()[0]
        environment = rig.environment | {
            "BILLOW_TOKEN": token,
            "BILLOW_DATA": rig.data,
            "PATH": os.path.abspath(BIN) + ":" + rig.environment["PATH"],
        }
        for command in commands:
            with self.subTest(command):
                done = subprocess.run(
                    ["sh", "-c", command],
                    env=environment,
                    capture_output=True,
                    text=True,
                    timeout=120,
                    check=False,
                )
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
