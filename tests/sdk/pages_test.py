"""The Python blocks of docs/python.md and docs/groups.md run as they stand, in the order of the page.

What the text leaves out (a training script, a folder of photos) is made here; nothing that it shows
is replaced."""
import os
import stat
import sys
import unittest

from sdk_rig import ROOT, SdkTest

sys.path.insert(0, os.path.join(ROOT, "tests/docs"))
import pages  # noqa: E402

# What the pages suppose to be there.
PRELUDE = """
import asyncio, inspect, subprocess, billow

@billow.function(max=2)
def embed(name, text):
    return name, [len(text)]

def pairs():
    yield from (("a", "one"), ("b", "three"))

@billow.function(max=2)
def caption(content):
    return f"{len(content)} bytes"

@billow.function(max=1)
def report(kind):
    return kind

def read_weights(name):
    return f"weights of {name}"
"""
RUN = """
import ast, sys


flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
for path, line, text in BLOCKS:
    code = compile("\\n" * line + text, path, "exec", flags)
    exec_done = eval(code, globals())
    if inspect.iscoroutine(exec_done):
        asyncio.run(exec_done)
    print(f"{path}:{line} ran", flush=True)
"""
FILES = {
    "train.py": "import sys, time; print('training', *sys.argv[1:]); time.sleep(1)\n",
    "serve.py": "import time; print('serving', flush=True); time.sleep(600)\n",
    "report.py": "print('report')\n",
    "Makefile": "data:\n\tmkdir -p results; echo weights > results/model.pt\n",
}


class Pages(SdkTest):
    def setUp(self):
        for name, text in FILES.items():
            with open(self.rig.file(name), "w", encoding="ascii") as file:
                file.write(text)
        os.makedirs(self.rig.file("photos"), exist_ok=True)
        for i in range(3):
            with open(self.rig.file(f"photos/{i}.jpg"), "wb") as file:
                file.write(b"x" * (i + 1))
        # `python` is this interpreter, as in an activated environment.
        programs = self.rig.file("bin")
        os.makedirs(programs, exist_ok=True)
        python = os.path.join(programs, "python")
        with open(python, "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        os.chmod(python, os.stat(python).st_mode | stat.S_IXUSR)
        before = self.rig.environment["PATH"]
        self.rig.environment["PATH"] = programs + os.pathsep + before
        self.addCleanup(self.rig.environment.__setitem__, "PATH", before)

    def run_page(self, name):
        with open(os.path.join(ROOT, "docs", name), encoding="utf-8") as file:
            page = pages.read_page(file.read(), name)
        blocks = [(name, b.line, b.text) for b in page.blocks if b.language == "python"]
        self.assertTrue(blocks)
        done = self.script(PRELUDE + f"\nBLOCKS = {blocks!r}\n" + RUN, timeout=240)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(done.stdout.count(" ran\n"), len(blocks), done.stdout)
        return done.stdout

    def test_python(self):
        said = self.run_page("python.md")
        self.assertIn("49\n332833500\n49\n", said)

    def test_groups(self):
        self.run_page("groups.md")


if __name__ == "__main__":
    unittest.main()
