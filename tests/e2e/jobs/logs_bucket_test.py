"""Logs in a bucket (`billow up --logs s3://…`): they outlive machines, the head's own copies, and the head's disk."""
import json
import os
import shutil
import unittest

import s3
from pool_test import PoolRig
from rig import poll

WHY_NOT = s3.usable()


@unittest.skipIf(WHY_NOT, WHY_NOT)
class Bucket(unittest.TestCase):
    def setUp(self):
        self.rig = rig = PoolRig(up=False)
        self.server = s3.Server(os.path.join(rig.root, "s3"), "data")
        rig.args = (*rig.args, "--logs", "s3://data/our/logs")
        rig.environment.update(self.server.env(), AWS_EC2_METADATA_DISABLED="true", HOME=rig.root)

    def tearDown(self):
        self.rig.close()
        self.server.close()

    def objects(self):
        found = []
        for folder, _, files in os.walk(os.path.join(self.server.root, "data")):
            found += [os.path.join(folder, f) for f in files if "_s3rver" in f or "." in f]
        return found

    def names(self):
        return {os.path.basename(f).split("._S3rver")[0] for f in self.objects()}

    def run_job(self):
        rig = self.rig
        rig.add_pool("cloud", "--max", 1, "--idle", "1s")
        job = rig.submit("--gpus", 1, "--", "sh", "-c", "seq 1 50000; echo failed >&2; exit 3")
        self.assertEqual(rig.cli("wait", job, timeout=90).code, 3)
        poll(lambda: not rig.rented() and not rig.machines(), "the machine given back", 90)
        return job, "".join(f"{i}\n" for i in range(1, 50001)) + "failed\n"

    def test_a_log_is_read_from_the_bucket_when_the_head_has_it_no_longer(self):
        rig = self.rig
        rig.up()
        job, whole = self.run_job()
        poll(lambda: {"1.log", "1.json"} <= self.names(), "the log in the bucket", 60)
        end = next(f for f in self.objects() if "1.json" in f and f.endswith("_object"))
        with open(end, encoding="utf-8") as f:
            said = json.load(f)
        self.assertEqual(said["exit"]["code"], 3, said)
        self.assertIn("usage", said)
        # A disk that is lost takes the head's copies.
        rig.kill(rig.head_pid())
        shutil.rmtree(os.path.join(rig.data, "files", "logs"))
        rig.up()
        self.assertEqual(rig.ok("logs", job).text, whole)
        self.assertEqual(rig.ok("logs", "-n", 2, job).text, "50000\nfailed\n")
        self.assertEqual(rig.ok("logs", job, "--grep", "4999").text.count("\n"), 15)

    def test_what_could_not_be_sent_is_sent_later_also_by_the_next_head(self):
        rig = self.rig
        port = self.server.port
        self.server.close()
        rig.up()
        job, whole = self.run_job()
        self.assertEqual(rig.ok("logs", job).text, whole, "the head has it")
        rig.kill(rig.head_pid())
        self.server = s3.Server(os.path.join(rig.root, "s3"), "data", port=port)
        rig.up()
        poll(lambda: "1.log" in self.names(), "the log in the bucket", 60)
        shutil.rmtree(os.path.join(rig.data, "files", "logs"))
        rig.kill(rig.head_pid())
        rig.up()
        self.assertEqual(rig.ok("logs", job).text, whole)

    def test_what_is_no_bucket_is_refused(self):
        rig = self.rig
        done = rig.cli("up", "--background", "--no-agent", "--logs", "/var/log")
        self.assertNotEqual(done.code, 0)
        self.assertIn("use s3://bucket/prefix", done.errors)


if __name__ == "__main__":
    unittest.main()
