"""Another Python than the one the tests run in: PyPy, which Debian has and which speaks 3.9, the
oldest version that the package promises."""
import importlib.util
import os
import shutil
import subprocess
import sys
import unittest

from sdk_rig import SOURCE, SdkTest

OTHER = shutil.which("pypy3")
CLOUDPICKLE = os.path.dirname(os.path.dirname(importlib.util.find_spec("cloudpickle").origin))

CALLS = """
import os, platform, sys
import billow

SCALE = 3

class Answer:
    def __init__(self, value):
        self.value = value

@billow.function(max=1, python=sys.executable, env_vars={"PYTHONPATH": os.environ["PYTHONPATH"]})
def work(x):
    if x < 0:
        raise ValueError("below zero")
    return Answer((SCALE * x, platform.python_implementation()))

print(*work.remote(4).value)
print(sum(each.value[0] for each in work.map(range(100))))
try:
    work.remote(-1)
except ValueError as problem:
    print(problem)
"""

DIFFERS = """
import billow

@billow.function(max=1, python=%r, env_vars={"PYTHONPATH": %r})
def work(x):
    return x

try:
    work.remote(1)
except billow.VersionMismatch as problem:
    print(problem)
"""


@unittest.skipIf(OTHER is None, "PyPy is missing: apt install pypy3")
class Versions(SdkTest):
    def setUp(self):
        # Only the package and cloudpickle: Debian's folder also has modules made for CPython.
        self.path = self.rig.file("modules")
        os.makedirs(self.path, exist_ok=True)
        for name, folder in (("billow", SOURCE), ("cloudpickle", CLOUDPICKLE)):
            link = os.path.join(self.path, name)
            if not os.path.lexists(link):
                os.symlink(os.path.join(folder, name), link)

    def run_with(self, python, text):
        path = self.rig.file("program.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return subprocess.run(
            [python, "-B", path],
            capture_output=True,
            text=True,
            timeout=180,
            env={**self.rig.environment, "PYTHONPATH": self.path},
            check=False,
        )

    def test_the_oldest_python_calls_functions(self):
        done = self.run_with(OTHER, CALLS)
        self.assertEqual(done.stdout, "12 PyPy\n14850\nbelow zero\n", done)

    def test_a_worker_with_another_python_is_told_before_the_call(self):
        done = self.run_with(sys.executable, DIFFERS % (OTHER, self.path))
        mine = ".".join(map(str, sys.version_info[:3]))
        self.assertRegex(done.stdout, r"workers of .* have Python 3\.9\.\d+ \(.*pypy3", done)
        self.assertIn(f"this process has {mine}", done.stdout)
        self.assertIn("billow env save", done.stdout)


if __name__ == "__main__":
    unittest.main()
