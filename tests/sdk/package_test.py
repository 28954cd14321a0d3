"""The package as it is delivered: types, wheel, source archive, Python 3.9."""
import ast
import hashlib
import io
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

from sdk_rig import ROOT, SOURCE, SdkTest, billow

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


def has_venv():
    try:
        import ensurepip  # noqa: F401
    except ImportError:
        return False
    return True


@unittest.skipIf(not has_venv(), "venv is not installed: apt install python3-venv")
class Install(SdkTest):
    """The wheel that the head serves, and `billow sdk install`. No index can be reached: pip's own
    is set to a port that nobody listens on."""

    OFFLINE = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_CONFIG_FILE": "/dev/null"}

    def version_in(self, python, **environment):
        done = subprocess.run(
            [python, "-c", "import billow; print(billow.__version__, billow.__file__)"],
            capture_output=True,
            text=True,
            cwd="/",
            env={"PATH": os.environ["PATH"], **environment},
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.split()

    def test_the_head_serves_the_wheel_that_fits_it(self):
        version = self.client.status()["version"]
        name = f"billow-{version}-py3-none-any.whl"
        page = self.rig.api("GET", "/sdk/", token="")
        self.assertEqual(page.status, 200)
        self.assertIn(f'href="/sdk/{name}#sha256=', page.body.decode())
        wheel = self.rig.api("GET", f"/sdk/{name}", token="").body
        with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
            self.assertIn("billow/_worker.py", archive.namelist())
        self.assertIn(hashlib.sha256(wheel).hexdigest(), page.body.decode())
        other = self.rig.api("GET", "/sdk/billow-9.9.9-py3-none-any.whl", token="")
        self.assertEqual(other.status, 404)
        self.assertIn(name, other.json["hint"])

    def test_pip_takes_it_from_the_head(self):
        host, port = self.rig.address()
        venv = os.path.join(self.rig.root, "by-pip")
        subprocess.run(
            [sys.executable, "-m", "venv", "--system-site-packages", venv],
            check=True,
            capture_output=True,
        )
        python = os.path.join(venv, "bin/python")
        for words in (
            [f"http://{host}:{port}/sdk/billow-{billow.__version__}-py3-none-any.whl"],
            ["--find-links", f"http://{host}:{port}/sdk/", "--no-index", "billow"],
            ["--index-url", f"http://{host}:{port}/sdk/", "billow"],
        ):
            done = subprocess.run(
                [python, "-m", "pip", "install", "--force-reinstall", "--no-deps", *words],
                capture_output=True,
                text=True,
                env={"PATH": os.environ["PATH"], **self.OFFLINE},
                check=False,
            )
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertEqual(self.version_in(python)[0], billow.__version__)

    def test_install_into_a_new_environment_without_network(self):
        venv = os.path.join(self.rig.root, "fresh")
        done = self.rig.cli(
            "sdk", "install", "--venv", venv, "--python", sys.executable, env=self.OFFLINE, timeout=180
        )  # fmt: skip
        self.assertEqual(done.code, 0, done)
        version, path = self.version_in(os.path.join(venv, "bin/python"))
        self.assertEqual(version, billow.__version__)
        self.assertTrue(path.startswith(venv), path)
        # It works: a function runs from there, with the cloudpickle that came along.
        program = self.rig.file("uses.py")
        with open(program, "w", encoding="utf-8") as file:
            file.write(
                "import billow\n@billow.function\ndef twice(x):\n    return 2 * x\n"
                "if __name__ == '__main__':\n    print(twice.remote(21))\n    twice.delete()\n"
            )
        said = self.python(program, python=os.path.join(venv, "bin/python"))
        self.assertEqual(said.stdout.strip(), "42", said.stderr)

    def test_nothing_is_installed_for_everybody_without_being_asked(self):
        base = os.path.realpath(sys.executable)
        environment = {"PATH": "/usr/bin:/bin", "CONDA_PREFIX": "", **self.OFFLINE}
        done = self.rig.cli("sdk", "install", "--python", base, env=environment, timeout=60)
        self.assertEqual(done.code, 1, done)
        self.assertIn("no virtual environment is active", done.errors)
        self.assertIn("nothing was installed", done.errors)
        for way in ("--venv .venv", "--user", "--system"):
            self.assertIn(way, done.errors)
        both = self.rig.cli("sdk", "install", "--system", "--user", env=environment)
        self.assertEqual(both.code, 2)

    def test_install_into_a_directory_without_a_head(self):
        target = os.path.join(self.rig.root, "target")
        done = self.rig.cli(
            "sdk", "install", "--target", target, "--python", sys.executable,
            env={**self.OFFLINE, "BILLOW_DATA": os.path.join(self.rig.root, "none")}, timeout=180,
        )  # fmt: skip
        self.assertEqual(done.code, 0, done)
        _, path = self.version_in(sys.executable, PYTHONPATH=target)
        self.assertTrue(path.startswith(target), path)
        both = self.rig.cli("sdk", "install", "--target", target, "--user")
        self.assertEqual(both.code, 2)


if __name__ == "__main__":
    unittest.main()
