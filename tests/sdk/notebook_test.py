"""`%%billow` in a real IPython."""
import importlib.util
import os
import subprocess
import sys
import unittest

from sdk_rig import ROOT, SOURCE, SdkTest

CELLS = r'''
import os, signal, sys, threading, time
from IPython.terminal.interactiveshell import TerminalInteractiveShell
shell = TerminalInteractiveShell.instance(simple_prompt=True)
run = lambda line, cell: shell.run_cell(f"%%billow {line}\n{cell}")
shell.run_cell("%load_ext billow")
shell.run_cell("numbers = [1, 2, 3]\ndef scale(x):\n    return 10 * x")

done = run("--gpus 0.5", """
import os
class Point:
    def __init__(self, x):
        self.x = x
print('out', os.environ['CUDA_VISIBLE_DEVICES'] != '-1')
print('err', file=__import__('sys').stderr)
total = [scale(n) for n in numbers]
point = Point(7)
len(total)
""")
assert done.success, done
assert done.result == 3, done.result
assert shell.user_ns["total"] == [10, 20, 30]
assert shell.user_ns["point"].x == 7
print("variables", shell.user_ns["total"])

again = run("--gpus 0.5", "print('again', point.x + total[2], type(point).__name__)")
assert again.success

failed = run("--gpus 0.5", "1 / 0")
assert isinstance(failed.error_in_exec, ZeroDivisionError), failed.error_in_exec

lock = run("--gpus 0.5", "import threading\nheld = threading.Lock()\nkept = 5")
assert lock.success and shell.user_ns["kept"] == 5 and "held" not in shell.user_ns

threading.Timer(2.0, os.kill, (os.getpid(), signal.SIGINT)).start()
began = time.monotonic()
stopped = run("--gpus 0.5", "import time\nprint('sleeps', flush=True)\nfor i in range(600): time.sleep(0.1)")
assert isinstance(stopped.error_in_exec, KeyboardInterrupt), stopped.error_in_exec
assert time.monotonic() - began < 30
after = run("--gpus 0.5", "after = 'free'")
assert shell.user_ns["after"] == "free"
print("all done")
'''


NO_IPYTHON = importlib.util.find_spec("IPython") is None


@unittest.skipIf(NO_IPYTHON, "IPython is missing: apt install ipython3")
class Notebook(SdkTest):
    def run_cells(self, *command):
        environment = {**self.rig.environment, "PYTHONPATH": SOURCE}
        environment["IPYTHONDIR"] = os.path.join(self.rig.root, "ipython")
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=150,
            cwd=self.rig.files,
            env=environment,
            check=False,
        )

    def test_cells(self):
        path = self.rig.file("cells.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(CELLS)
        done = self.run_cells(sys.executable, path)
        said = done.stdout + done.stderr
        self.assertEqual(done.returncode, 0, said)
        for each in ("out True", "err", "variables [10, 20, 30]", "again 37 Point", "all done"):
            self.assertIn(each, said)
        self.assertIn("ZeroDivisionError", said)
        self.assertIn("held cannot be pickled and stayed in the worker", said)

    def test_the_example(self):
        example = os.path.join(ROOT, "examples/python/notebook.py")
        done = self.run_cells(sys.executable, "-m", "IPython", "--no-banner", example)
        self.assertTrue(done.stdout.endswith("summed on a GPU\n6\n"), done)
