"""A head and machines that join it over a real network with real TLS, each in a network namespace
of its own."""
import os
import subprocess
import unittest

import net
from rig import BILLOW, MARK, Rig, poll


class FarRig(Rig):
    """A head on one machine of a Net; commands run there too, unless another machine is named."""

    def __init__(self, network, host="head", **options):
        self.net, self.host = network, host
        super().__init__(sim="1xH100", **options)

    def command(self, *args):
        return [*self.net.inside(self.host), BILLOW, *map(str, args)]

    def up(self, *more):
        done = self.cli(
            "up",
            "--background",
            "--listen",
            "0.0.0.0:7070",
            "--no-agent",
            *self.args,
            *more,
            timeout=60,
        )
        if done.code != 0:
            raise AssertionError(f"up failed: {done!r}\n{self.head_log()[-3000:]}")
        return done

    @property
    def url(self):
        return f"https://{self.net.address(self.host)}:7070"

    def join_token(self, *options):
        return self.ok("token", "create", "--node", "--reusable", *options).text.strip()

    def join_all(self, hosts):
        token = self.join_token()
        for host in hosts:
            self.join(host, token)
        for host in hosts:
            self.node_here(host)

    def on(self, host, *args, home=None, stdin=None, timeout=60, env=None):
        """A command on another machine, by somebody without this head's files."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("BILLOW_", "XDG_"))}
        environment.update({MARK: self.data, "HOME": home or self.home(host), **(env or {})})
        return subprocess.run(
            [*self.net.inside(host), BILLOW, *map(str, args)],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            env=environment,
            check=False,
        )

    def home(self, host):
        path = os.path.join(self.root, f"home-{host}")
        os.makedirs(path, exist_ok=True)
        return path

    def node_dir(self, host):
        return os.path.join(self.root, f"node-{host}")

    def join(self, host, token, *options, url=None, sim="4xH100"):
        """An agent on that machine, as a process of its own. The token may be in a file."""
        log = open(os.path.join(self.root, f"{host}.log"), "a", encoding="utf-8")
        process = subprocess.Popen(
            [
                *self.net.inside(host),
                BILLOW,
                "join",
                url or self.url,
                "--token-file" if os.path.isabs(token) else "--token",
                token,
                "--node-name",
                host,
                "--data",
                self.node_dir(host),
                "--sim",
                sim,
                *options,
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**self.environment, "HOME": self.home(host)},
        )
        log.close()
        self.started.append(process)
        return process

    def log_of(self, host):
        with open(os.path.join(self.root, f"{host}.log"), encoding="utf-8", errors="replace") as f:
            return f.read()

    def nodes(self):
        return {n["name"]: n for n in self.json("nodes")["nodes"]}

    def node_here(self, name, seconds=30):
        return poll(
            lambda: (lambda n: n if n and n.get("state", "ready") == "ready" else None)(
                self.nodes().get(name)
            ),
            f"node {name}",
            seconds,
        )

    def close(self):
        try:
            for job in self.api("GET", "/v1/jobs?state=active").json.get("jobs", []):
                self.cli("stop", "--force", job["id"])
            poll(lambda: not self.json("ps")["jobs"], "no job left", 30)
        finally:
            super().close()


class FarCase(unittest.TestCase):
    """Tests that share one such head and its machines."""

    hosts = ("head", "a", "b")
    joined = ("a", "b")

    @classmethod
    def setUpClass(cls):
        why = net.usable()
        if why:
            raise unittest.SkipTest(why)
        cls.rig = None
        cls.net = net.Net(*cls.hosts)
        try:
            cls.rig = FarRig(cls.net)
            cls.prepare()
        except BaseException:
            cls.tearDownClass()
            raise

    @classmethod
    def prepare(cls):
        cls.rig.join_all(cls.joined)

    @classmethod
    def tearDownClass(cls):
        try:
            if cls.rig:
                cls.rig.close()
        finally:
            cls.net.close()
