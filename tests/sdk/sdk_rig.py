"""A head for tests of the Python package, which runs in this process like its user's code."""
import os
import sys
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
SOURCE = os.path.join(ROOT, "sdk/python/src")
sys.path.insert(0, SOURCE)

try:
    import cloudpickle  # noqa: F401
except ImportError:
    raise unittest.SkipTest("the package needs cloudpickle: apt install python3-cloudpickle")

import billow  # noqa: E402
from rig import Rig  # noqa: E402


class SdkTest(unittest.TestCase):
    """Cases of one class share a head with simulated GPUs."""

    options = {}

    @classmethod
    def setUpClass(cls):
        cls.rig = Rig(**cls.options)
        cls.before = dict(os.environ)
        for name in [each for each in os.environ if each.startswith("BILLOW_")]:
            if name != "BILLOW_BIN":
                del os.environ[name]
        os.environ.update(
            {
                name: value
                for name, value in cls.rig.environment.items()
                if name.startswith(("BILLOW_", "XDG_"))
            }
        )
        cls.client = billow.connect()

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        os.environ.clear()
        os.environ.update(cls.before)
        cls.rig.close()

    def script(self, text, *args, timeout=120, python=None):
        """Runs a program as a user would: in a file of its own, so that its functions belong to
        __main__."""
        path = self.rig.file("program.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return self.python(path, *args, timeout=timeout, python=python)

    def python(self, *args, timeout=120, python=None, cwd=None):
        import subprocess

        environment = {**self.rig.environment, "PYTHONPATH": SOURCE}
        return subprocess.run(
            [python or sys.executable, *map(str, args)],
            capture_output=True,
            text=True,
            timeout=timeout,
            cwd=cwd or self.rig.files,
            env=environment,
            check=False,
        )
