"""`billow notebook`: the job, its port, its token and its sleep.

JupyterLab is not in Debian 12. A small server stands in for it here (`--server`); where Debian's
Jupyter Notebook is installed (apt install jupyter-notebook), one case opens the real one."""
import http.client
import importlib.util
import os
import re
import signal
import subprocess
import sys
import unittest
import urllib.error
import urllib.request

from rig import poll
from sdk_rig import SdkTest

STAND_IN = """
import http.server, os, time
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    counter = 0
    def do_GET(self):
        good = "token=" + os.environ["JUPYTER_TOKEN"] in self.path
        Handler.counter += good
        text = ("%d in %s" % (Handler.counter, os.getcwd()) if good else "no").encode()
        self.send_response(200 if good else 403)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)
    def log_message(self, *_):
        pass
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
"""


class Notebooks(SdkTest):
    def setUp(self):
        path = self.rig.file("stand_in.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(STAND_IN)
        self.server = f"exec python3 {path}"

    def tearDown(self):
        for each in self.client.jobs():
            self.rig.cli("stop", each["id"], "--force")
        poll(lambda: not self.client.jobs(), "no job is left")

    def open(self, *more):
        """(the process, the address with its token)"""
        process = self.rig.start(
            "notebook", "--gpus", "0.5", *more, "--server", self.server, stderr=subprocess.STDOUT
        )
        line = process.stdout.readline().decode()
        self.assertRegex(line, r"^http://127\.0\.0\.1:\d+/\?token=\S+\n$")
        return process, line.strip()

    def get(self, url):
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.read().decode()

    def job(self):
        (only,) = self.client.jobs()
        return only

    def test_sleeps_when_nobody_asks_and_wakes_for_a_request(self):
        process, url = self.open("--sleep-after", "2s")
        self.assertEqual(self.get(url), f"1 in {os.path.realpath(self.rig.files)}")
        with self.assertRaises(urllib.error.HTTPError):
            self.get(url[:-3])  # another token
        poll(lambda: self.job()["state"] == "suspended", "it sleeps", 30)
        self.assertEqual(self.get(url).split()[0], "2", "the same process: its memory was kept")
        self.assertEqual(self.job()["state"], "running")
        # A connection that is kept open and says nothing does not keep it awake.
        kept = http.client.HTTPConnection(url.split("/")[2], timeout=60)
        kept.request("GET", "/" + url.split("/")[3])
        kept.getresponse().read()
        poll(lambda: self.job()["state"] == "suspended", "it sleeps again", 30)
        kept.request("GET", "/" + url.split("/")[3])
        self.assertEqual(kept.getresponse().read().split()[0], b"4")
        kept.close()
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(30), 0)
        poll(lambda: self.job()["state"] == "suspended", "Ctrl-C suspends it", 30)
        again, url = self.open()
        self.assertEqual(self.get(url).split()[0], "5")
        again.kill()  # the notebook outlives its window
        again.wait()
        self.assertEqual(self.job()["state"], "running")
        third, url = self.open()
        self.assertEqual(self.get(url).split()[0], "6")
        self.rig.ok("notebook", "--stop")
        self.assertEqual(third.wait(60), 0)
        self.assertEqual(self.rig.cli("notebook", "--stop").code, 1)

    def test_the_token_is_only_on_the_terminal(self):
        process, url = self.open()
        token = re.search("token=(.*)", url)[1]
        self.get(url)
        for pid, line in self.rig.processes().items():
            self.assertNotIn(token, line, f"the command line of {pid}")
        job = self.job()["id"]
        said = [
            self.rig.ok("logs", job).text,
            self.rig.ok("describe", job, "--json").text,
            self.rig.head_log(),
        ]
        for text in said:
            self.assertNotIn(token, text)
        for directory, _, names in os.walk(self.rig.data):
            for name in names:
                path = os.path.join(directory, name)
                if os.path.isfile(path) and not os.path.islink(path):
                    with open(path, "rb") as file:
                        self.assertNotIn(token.encode(), file.read(), path)
        process.kill()

    def test_without_jupyter_it_says_what_to_do(self):
        # A Python without installed packages.
        self.rig.script('exec /usr/bin/python3 -S "$@"', "python3")
        path = self.rig.files + ":" + os.environ["PATH"]
        done = self.rig.cli("notebook", "--python", sys.executable, env={"PATH": path})
        self.assertEqual(done.code, 1, done)
        self.assertIn("JupyterLab is not installed", done.errors)
        self.assertIn("pip install jupyterlab", done.errors)
        os.unlink(self.rig.file("python3"))

    @unittest.skipIf(
        importlib.util.find_spec("notebook") is None
        and importlib.util.find_spec("jupyterlab") is None,
        "Jupyter is not installed: apt install jupyter-notebook",
    )
    def test_the_real_one(self):
        self.server = ""
        process = self.rig.start(
            "notebook", stderr=subprocess.STDOUT, env={"PATH": "/usr/bin:/bin"}
        )
        url = process.stdout.readline().decode().strip()
        self.assertRegex(url, "^http://127")
        api = url.replace("/?", "/api/status?")
        self.assertIn("kernels", self.get(api))
        with self.assertRaises(urllib.error.HTTPError):
            self.get(api[:-3])
        process.kill()


if __name__ == "__main__":
    unittest.main()
