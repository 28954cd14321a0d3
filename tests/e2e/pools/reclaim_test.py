"""Clouds that take their machines back: the agent reads the notice, the work leaves in time, and
goes on elsewhere."""
import os
import unittest

from metadata import Metadata
from pool_test import PoolRig
from rig import BILLOW, MARK, poll


class SpotRig(PoolRig):
    """A pool whose first machine is in a cloud with metadata, as its cloud-init says; later ones
    are in one that takes nothing back."""

    def add_spot_pool(self, metadata, cloud="auto"):
        create = self.tool(
            "create-spot",
            f"""
[ -e "$cloud/$BILLOW_MACHINE.pid" ] && exit 0
grep -q -- '--reclaim-notices auto' "$BILLOW_USER_DATA" || {{ echo 'the cloud-init of a spot machine reads no notices' >&2; exit 9; }}
umask 077; printf '%s\\n' "$BILLOW_TOKEN" > "$cloud/$BILLOW_MACHINE.token"
watch="--reclaim-notices {cloud} --metadata-url {metadata.url}"
[ -e "$cloud/first" ] && watch=
: > "$cloud/first"
{MARK}={self.data} setsid {BILLOW} join "$BILLOW_HEAD" --token-file "$cloud/$BILLOW_MACHINE.token" --node-name "$BILLOW_MACHINE" --data "$cloud/$BILLOW_MACHINE" --sim 2xL4 $watch > "$cloud/$BILLOW_MACHINE.log" 2>&1 < /dev/null &
echo $! > "$cloud/$BILLOW_MACHINE.pid"
echo "$BILLOW_MACHINE" >> "$cloud/created"
""",
        )
        self.add_pool("spot", "--max", 2, "--idle", "2s", "--spot", create=create)


class Reclaim(unittest.TestCase):
    def reclaimed(self, cloud, said, by="auto"):
        metadata, rig = Metadata(cloud), SpotRig()
        try:
            rig.add_spot_pool(metadata, by)
            shared = rig.file("shared")
            os.makedirs(shared)
            counted = rig.file("began-from")
            work = (
                f'cat "$BILLOW_CHECKPOINT/state" > {counted} 2>/dev/null && exit 0; while :; do'
                " sleep 0.05; done"
            )
            job = rig.submit(
                "--gpus",
                1,
                "--checkpoint-every",
                "1h",
                "--checkpoint-cmd",
                "echo saved > $BILLOW_CHECKPOINT_DIR/state",
                "--checkpoint-dir",
                shared,
                "--",
                "sh",
                "-c",
                work,
            )
            node = rig.wait_for(job, "running", 60)["tasks"][0]["node"]
            poll(lambda: metadata.asked >= 2, "the agent looking for notices", 60)
            self.assertEqual(
                rig.job(job)["state"], "running"
            )  # nothing is planned, or it is another machine's turn
            metadata.going = True
            self.assertEqual(rig.cli("wait", job, timeout=90).code, 0)
            with open(counted, encoding="utf-8") as f:
                self.assertEqual(
                    f.read(), "saved\n"
                )  # from the checkpoint that was made between the notice and the end
            done = rig.job(job)
            self.assertEqual(done["attempt"], 2)
            self.assertNotEqual(done["tasks"][-1]["node"], node)
            with open(os.path.join(rig.cloud, f"{node}.log"), encoding="utf-8") as f:
                self.assertIn(said, f.read())
            self.assertIn(said, rig.head_log())
        finally:
            try:
                rig.close()
            finally:
                metadata.close()

    def test_aws(self):
        self.reclaimed("aws", "AWS takes it back (terminate at 2030-09-18T08:22:00Z)")

    def test_gcp(self):
        self.reclaimed("gcp", "GCP preempts it", by="gcp")

    def test_azure(self):
        self.reclaimed(
            "azure", "Azure takes it back (Preempt, not before Mon, 19 Sep 2030 18:29:47 GMT)"
        )

    def test_a_cloud_nobody_knows_is_refused(self):
        rig = SpotRig()
        try:
            done = rig.cli(
                "join",
                "https://127.0.0.1:1",
                "--token",
                "bw_x",
                "--data",
                rig.file("x"),
                "--reclaim-notices",
                "moon",
            )
            self.assertEqual(done.code, 2)
            self.assertIn("aws, gcp, azure", done.errors)
        finally:
            rig.close()


if __name__ == "__main__":
    unittest.main()
