"""Machines of providers that a file describes come with the disk that their jobs ask for, where the provider's API takes a size."""
import os
import unittest

from cloud_server import Answer, CloudServer, Driver

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../data/providers")


class Recorder(CloudServer):
    """Accepts every order, and has nothing else."""

    def serve(self, request):
        if request.path.endswith("/oauth2/token"):
            return Answer(200, {"access_token": "t", "expires_in": 3600})
        if request.path.endswith("/ssh-keys"):
            return Answer(200, [{"id": "key-1", "name": "k"}])
        if request.path.endswith("/scripts") and request.method == "POST":
            return Answer(201, b'"script-1"')
        if request.method in ("POST", "PUT"):
            return Answer(200, {"id": "m-1", "new_contract": 7, "success": True})
        return Answer(200, {"runpod": {"pods": []}, "vast": {"instances": []}}.get(self.name, b"[]"))


class Disks(unittest.TestCase):
    def provider(self, name, server):
        """The shipped file, with the server's address."""
        with open(os.path.join(FOLDER, name + ".toml"), encoding="utf-8") as f:
            lines = f.read().splitlines(keepends=True)
        path = f"/tmp/billow-disks-{name}-{os.getpid()}.toml"
        self.addCleanup(lambda: os.path.exists(path) and os.unlink(path))
        with open(path, "w", encoding="utf-8") as f:
            f.writelines(
                f'address = "{server.url}"\n' if line.startswith("address") else line
                for line in lines
            )
        return path

    def size_of(self, name, at, disk_gib, **options):
        server = Recorder()
        server.name = name
        self.addCleanup(server.close)
        keys = {"RUNPOD_API_KEY": "k", "VAST_API_KEY": "k"}
        keys |= {"VERDA_CLIENT_ID": "k", "VERDA_CLIENT_SECRET": "k"}
        pool = Driver("rest", {"provider": self.provider(name, server), **options}, env=keys)
        self.addCleanup(pool.close)
        offer = {"instance": "17", "region": "EU-RO-1", "gpus": 1}
        pool.want("fast-1", offer=offer, gpus=1, disk_mib=disk_gib << 10)
        orders = [r for r in server.requests if r.method in ("POST", "PUT") and r.json()]
        orders = [r.json() for r in orders if "/oauth2/" not in r.path and "/scripts" not in r.path]
        self.assertTrue(orders, [str(r.path) for r in server.requests])
        value = orders[0]
        for part in at:
            value = value[part]
        return value

    def test_a_job_with_a_disk_gets_it_and_the_system_keeps_its_own(self):
        for name, at in (("runpod", ["disk"]), ("vast", ["disk"]), ("verda", ["os_volume", "size"])):
            with self.subTest(name):
                self.assertEqual(self.size_of(name, at, 0), 100)
                self.assertEqual(self.size_of(name, at, 500), 600)
                self.assertEqual(self.size_of(name, at, 500, **{"disk-gb": "900"}), 900)


if __name__ == "__main__":
    unittest.main()
