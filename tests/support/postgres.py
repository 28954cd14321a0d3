"""A real PostgreSQL for a test: Debian's programs, an unprivileged user, a directory and a port of
its own."""
import glob
import os
import pwd
import shutil
import subprocess
import tempfile
import unittest

from ports import free_port


def programs():
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"))
    return os.path.dirname(found[-1]) if found else ""


def unusable():
    """Why there can be none, or an empty string."""
    if not programs():
        return "PostgreSQL's server is not installed (package postgresql)"
    if os.geteuid() == 0:
        try:
            pwd.getpwnam("postgres")
        except KeyError:
            return "there is no user postgres to run it as"
    return ""


class Postgres:
    """inside: what its programs run behind (nsenter into a network); address, allow: where it
    listens there, and for which network."""

    def __init__(self, inside=(), address="127.0.0.1", allow=""):
        self.inside, self.address = inside, address
        self.dir = tempfile.mkdtemp(prefix="billow-pg-")
        self.port = free_port()
        self.user = "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
        if os.geteuid() == 0:
            shutil.chown(self.dir, "postgres")
        os.chmod(self.dir, 0o755)
        self.run(
            "initdb",
            "-D",
            f"{self.dir}/data",
            "-U",
            "billow",
            "--auth=trust",
            "--no-sync",
            "-E",
            "UTF8",
            "--locale=C.UTF-8",
        )
        if allow:
            with open(f"{self.dir}/data/pg_hba.conf", "a", encoding="ascii") as f:
                f.write(f"host all all {allow} trust\n")
        self.process = None
        self.start()

    def run(self, program, *args):
        prefix = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        done = subprocess.run(
            [*self.inside, *prefix, os.path.join(programs(), program), *args],
            capture_output=True,
            text=True,
            cwd="/",
            check=False,
        )
        if done.returncode != 0:
            raise AssertionError(f"{program}: {done.stderr[-2000:]}")
        return done.stdout

    def start(self):
        self.run(
            "pg_ctl",
            "-D",
            f"{self.dir}/data",
            "-w",
            "-t",
            "60",
            "-l",
            f"{self.dir}/log",
            "-o",
            (
                f"-p {self.port} -k {self.dir} -c listen_addresses={self.address}"
                " -c shared_buffers=32MB -c max_connections=60"
            ),
            "start",
        )

    def stop(self, mode="fast"):
        self.run("pg_ctl", "-D", f"{self.dir}/data", "-w", "-t", "60", "-m", mode, "stop")

    def psql(self, sql, database="postgres"):
        return self.run(
            "psql",
            "-h",
            self.dir,
            "-p",
            str(self.port),
            "-U",
            "billow",
            "-d",
            database,
            "-Atc",
            sql,
        ).strip()

    def dump(self, database):
        """Everything in it, as text; what is bytes there is hexadecimal digits."""
        return self.run("pg_dump", "-h", self.dir, "-p", str(self.port), "-U", "billow", database)

    def database(self, name):
        """A new, empty one; its URL."""
        self.psql(f"CREATE DATABASE {name}")
        return f"postgres://billow@{self.address}:{self.port}/{name}"

    def close(self):
        try:
            self.stop("immediate")
        finally:
            shutil.rmtree(self.dir, ignore_errors=True)


@unittest.skipIf(unusable(), unusable())
class PostgresTest(unittest.TestCase):
    """Cases that share one server."""

    @classmethod
    def setUpClass(cls):
        cls.pg = Postgres()

    @classmethod
    def tearDownClass(cls):
        cls.pg.close()
