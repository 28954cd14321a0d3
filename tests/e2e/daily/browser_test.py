"""The dashboard in a browser: each part of the cases in tests/browser."""
import os
import shutil
import subprocess
import unittest

from rig import BILLOW, SOURCE, Rig


@unittest.skipUnless(
    os.path.exists("/usr/bin/chromium")
    and shutil.which("node")
    and os.path.isdir(os.path.join(SOURCE, "web/node_modules/playwright-core")),
    "chromium, node or playwright-core is not installed",
)
class Browser(unittest.TestCase):
    """tests/browser in Debian's Chromium, against a head of its own."""

    def run_script(self, script, sim, timeout, **environment):
        rig = Rig(sim=sim)
        try:
            shots = os.environ.get("BILLOW_SHOTS", "")
            done = subprocess.run(
                ["node", os.path.join(SOURCE, "tests/browser", script)],
                timeout=timeout,
                check=False,
                cwd=rig.files,
                env={
                    **rig.environment,
                    "BILLOW_BIN": os.path.dirname(BILLOW),
                    "BILLOW_FILES": rig.files,
                    "BILLOW_SHOTS": shots,
                    "PATH": os.environ["PATH"],
                    **{k: v for k, v in os.environ.items() if k == "BILLOW_WEB"},
                    **environment,
                },
            )
            self.assertEqual(done.returncode, 0, "the cases above say which")
        finally:
            rig.close()

    def test_dashboard(self):
        self.run_script("dashboard.mjs", "8xH100", 600)

    def test_terminal(self):
        self.run_script("terminal.mjs", "8xH100", 240)

    def test_tasks(self):
        self.run_script("tasks.mjs", "8xH100", 240)

    def test_jobs(self):
        self.run_script("jobs.mjs", "8xH100", 600)

    def test_options(self):
        self.run_script("options.mjs", "8xH100", 240)

    def test_frame(self):
        self.run_script("frame.mjs", "8xH100", 240)

    def test_fleet(self):
        self.run_script("fleet.mjs", "64xH100", 240)

    def test_time(self):
        self.run_script("time.mjs", "8xH100", 120)

    def test_keyboard(self):
        self.run_script("keyboard.mjs", "8xH100", 300)

    def test_endpoints(self):
        self.run_script("endpoints.mjs", "8xH100", 300)

    def test_phone(self):
        self.run_script("phone.mjs", "8xH100", 300)

    def test_states(self):
        self.run_script("states.mjs", "8xH100", 420)


if __name__ == "__main__":
    unittest.main()
