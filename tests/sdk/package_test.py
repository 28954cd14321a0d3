"""The package as it is delivered: types, wheel, source archive, Python 3.9."""
import ast
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

from sdk_rig import ROOT, SOURCE

PACKAGE = os.path.join(ROOT, "sdk/python")


def build(out):
    script = os.path.join(ROOT, "tools/dev/sdk_wheel.py")
    done = subprocess.run(
        [sys.executable, script, PACKAGE, out], capture_output=True, text=True, check=True
    )
    return done.stdout.split()


class Package(unittest.TestCase):
    @unittest.skipIf(shutil.which("mypy") is None, "mypy is not installed: apt install mypy")
    def test_types(self):
        with tempfile.TemporaryDirectory() as cache:
            done = subprocess.run(
                ["mypy", "--cache-dir", cache, "src/billow"],
                cwd=PACKAGE,
                capture_output=True,
                text=True,
                check=False,
            )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_syntax_of_python_3_9(self):
        for folder, _, names in os.walk(SOURCE):
            for name in names:
                if name.endswith(".py"):
                    path = os.path.join(folder, name)
                    with open(path, encoding="utf-8") as file:
                        ast.parse(file.read(), path, feature_version=(3, 9))

    def test_same_sources_same_wheel(self):
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
            first, second = build(one), build(two)
            for a, b in zip(first, second):
                with open(a, "rb") as x, open(b, "rb") as y:
                    self.assertEqual(x.read(), y.read())

    def test_wheel_in_a_fresh_environment_without_network(self):
        try:
            import ensurepip  # noqa: F401
        except ImportError:
            self.skipTest("venv is not installed: apt install python3-venv")
        with tempfile.TemporaryDirectory() as place:
            wheel, sdist = build(place)
            with zipfile.ZipFile(wheel) as archive:
                names = archive.namelist()
            self.assertIn("billow/py.typed", names)
            self.assertIn("billow/_worker.py", names)
            venv = os.path.join(place, "venv")
            # The only dependency, cloudpickle, comes from the system.
            subprocess.run(
                [sys.executable, "-m", "venv", "--system-site-packages", venv],
                check=True,
                capture_output=True,
            )
            python = os.path.join(venv, "bin/python")
            environment = {k: v for k, v in os.environ.items() if not k.startswith("PIP_")}
            environment.pop("PYTHONPATH", None)
            done = subprocess.run(
                [python, "-m", "pip", "install", "--no-index", wheel],
                capture_output=True,
                text=True,
                env=environment,
                check=False,
            )
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            said = subprocess.run(
                [python, "-c", "import billow; print(billow.__version__, billow.__file__)"],
                capture_output=True,
                text=True,
                env=environment,
                cwd=place,
                check=True,
            ).stdout.split()
            self.assertTrue(said[1].startswith(venv), said)
            with open(os.path.join(ROOT, "CMakeLists.txt"), encoding="utf-8") as file:
                self.assertIn(f"VERSION {said[0]} ", file.read(), "the version of the program")


if __name__ == "__main__":
    unittest.main()
