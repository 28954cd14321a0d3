"""Machines that come when the queue needs them and go when nobody does: command pools with
processes as machines."""
import os
import unittest

from rig import BILLOW, MARK, Rig, poll


class PoolRig(Rig):
    """A head without a machine of its own. A rented machine is a `billow join` started by the
    create command."""

    def __init__(self, **options):
        super().__init__(sim="2xL4", args=("--no-agent", "--tls"), **options)
        self.cloud = os.path.join(self.root, "cloud")
        os.makedirs(self.cloud, exist_ok=True)

    def address(self):
        raise AssertionError("this head speaks https")

    def tool(self, name, text):
        path = os.path.join(self.root, name)
        with open(path, "w", encoding="utf-8") as f:
            f.write("#!/bin/sh\nset -u\ncloud=" + self.cloud + "\n" + text)
        os.chmod(path, 0o755)
        return path

    def add_pool(self, name, *options, create=None, sim="2xL4", first="", promised=None):
        """`first`: what the create command does before it makes a machine."""
        create = create or self.tool(
            f"create-{name}",
            f"""
[ -e "$cloud/$BILLOW_MACHINE.pid" ] && exit 0
{first}
grep -q 'billow join' "$BILLOW_USER_DATA" || exit 9
umask 077; printf '%s\\n' "$BILLOW_TOKEN" > "$cloud/$BILLOW_MACHINE.token"
{MARK}={self.data} setsid {BILLOW} join "$BILLOW_HEAD" --token-file "$cloud/$BILLOW_MACHINE.token" --node-name "$BILLOW_MACHINE" --data "$cloud/$BILLOW_MACHINE" --sim {sim} > "$cloud/$BILLOW_MACHINE.log" 2>&1 < /dev/null &
echo $! > "$cloud/$BILLOW_MACHINE.pid"
echo "$BILLOW_MACHINE" >> "$cloud/created"
""",
        )
        listing = self.tool(
            f"list-{name}",
            (
                'echo a header nobody asked for\nfor f in "$cloud"/*.pid; do [ -e "$f" ] ||'
                ' continue; n=$(basename "$f" .pid); echo "$n $(cat "$f") running"; done\n'
            ),
        )
        delete = self.tool(
            f"delete-{name}",
            (
                'p=$(cat "$cloud/$BILLOW_MACHINE.pid" 2>/dev/null) || exit 0\nkill "$p"'
                ' 2>/dev/null\nrm -f "$cloud/$BILLOW_MACHINE.pid"\necho "$BILLOW_MACHINE" >>'
                ' "$cloud/deleted"\n'
            ),
        )
        self.ok(
            "pool",
            "add",
            "command",
            name,
            "--gpu",
            promised or sim,
            "--create",
            create,
            "--list",
            listing,
            "--delete",
            delete,
            *options,
        )

    def machines(self):
        return {
            m["name"]: m for pool in self.json("pool", "list")["pools"] for m in pool["machines"]
        }

    def lines(self, name):
        try:
            with open(os.path.join(self.cloud, name), encoding="utf-8") as f:
                return f.read().split()
        except OSError:
            return []

    def rented(self):
        return sorted(n[:-4] for n in os.listdir(self.cloud) if n.endswith(".pid"))


class CommandPools(unittest.TestCase):
    def setUp(self):
        self.rig = PoolRig()

    def tearDown(self):
        self.rig.close()

    def test_a_machine_smaller_than_promised_is_described(self):
        rig = self.rig
        rig.add_pool("cloud", "--idle", "1s", promised="4xL4")
        job = rig.submit("--gpus", 4, "--", "true")
        poll(lambda: "could not run it" in rig.ok("explain", job).text, "the reason", 60)
        text = rig.ok("explain", job).text
        self.assertRegex(text, r"\(2 × L4, \d+ CPUs, \d+ GiB of memory; the pool promises 4 × L4\)")
        rig.ok("stop", job)

    def test_a_group_gets_machines_for_all_its_roles_or_none(self):
        rig = self.rig
        rig.add_pool("cloud", "--max", 2, "--idle", "2s")

        def group(trainers):
            path = rig.file("group.toml")
            with open(path, "w", encoding="utf-8") as file:
                file.write(
                    f'[[role]]\nname = "trainer"\ngpus = 2\ncount = {trainers}\n'
                    'command = "echo $BILLOW_GROUP_ROLLOUT_ADDRESSES; sleep 2"\n'
                    '[[role]]\nname = "rollout"\ngpus = 1\nservice = true\n'
                    'command = "sleep 600"\n'
                )
            return int(rig.ok("submit", "-q", path).text.strip())

        large = group(2)  # needs three machines, and two are allowed
        poll(lambda: "for all 3 members" in rig.ok("explain", large).text, "the reason", 30)
        self.assertEqual(rig.rented(), [], "nothing is rented for a part of a group")
        small = group(1)
        rig.ok("wait", "-q", small, timeout=120)
        self.assertEqual(len(rig.lines("created")), 2, "one machine for each role")
        tasks = rig.job(small)["tasks"]
        self.assertEqual(len({task["node"] for task in tasks}), 2)
        poll(lambda: not rig.rented(), "the machines given back", 60)
        self.assertEqual(len(rig.lines("created")), 2)
        self.assertEqual(rig.job(large)["state"], "queued")

    def test_a_machine_comes_for_the_queue_and_goes_when_idle(self):
        rig = self.rig
        rig.add_pool("cloud", "--max", 2, "--idle", "2s", "--price", "3.60")
        done = rig.ok("run", "--gpus", 2, "--", "sh", "-c", "sleep 1; echo rented", timeout=60)
        self.assertEqual(done.out, b"rented\n")
        self.assertEqual(len(rig.lines("created")), 1)
        job = rig.json("ps", "-a")["jobs"][0]
        self.assertGreaterEqual(
            rig.job(job["id"])["cost_nano_usd"], 1_000_000
        )  # a second and more at $3.60/h, the whole machine
        poll(lambda: not rig.rented(), "the machine given back", 60)
        poll(lambda: not rig.machines(), "nothing left in the books", 60)
        self.assertEqual(rig.json("nodes")["nodes"], [])
        self.assertEqual(len(rig.lines("created")), 1, "nothing was rented for nobody")
        # The credential went with the machine.
        self.assertFalse(
            [t for t in rig.json("token", "list")["tokens"] if t["name"].startswith("node-cloud")]
        )

    def test_a_pool_that_says_no_is_passed_over_and_explain_says_so(self):
        rig = self.rig
        rig.add_pool(
            "cheap",
            "--price",
            "1",
            "--max",
            2,
            create=rig.tool("no", "echo 'no capacity left in eu-1' >&2\nexit 1\n"),
        )
        job = rig.submit("--gpus", 1, "--", "echo", "ran")
        poll(
            lambda: "no capacity left in eu-1" in rig.ok("explain", job).text,
            "the refusal in explain",
            30,
        )
        self.assertEqual(rig.job(job)["state"], "queued")
        rig.add_pool("dear", "--price", "9", "--max", 2, "--idle", "2s")
        self.assertEqual(rig.cli("wait", job, timeout=60).code, 0)
        self.assertTrue(all(name.startswith("dear-") for name in rig.lines("created")))

    def test_strays_are_found_and_ended(self):
        rig = self.rig
        rig.add_pool("cloud", "--max", 2)
        stray = os.path.join(rig.cloud, "cloud-4711.pid")
        other = os.path.join(rig.cloud, "cloudy-4711.pid")
        for path in (stray, other):
            with open(path, "w", encoding="ascii") as f:
                f.write("999999")
        poll(lambda: not os.path.exists(stray), "the stray ended", 40)
        self.assertTrue(os.path.exists(other), "another pool's machine is not ours")

    def test_a_head_that_dies_rents_nothing_twice(self):
        rig = self.rig
        rig.add_pool("cloud", "--max", 3, "--idle", "3s")
        job = rig.submit("--gpus", 2, "--", "echo", "ran")
        poll(lambda: rig.machines(), "the machine written down", 30)
        # A rented machine was told the head's address: it comes back at the same one.
        address = rig.json("status")["addresses"][0].split("//")[1]
        rig.kill(rig.head_pid())
        rig.up(listen=address)
        self.assertEqual(rig.cli("wait", job, timeout=60).code, 0)
        self.assertEqual(len(set(rig.lines("created"))), 1, rig.lines("created"))
        poll(lambda: not rig.rented(), "given back", 60)

    def test_a_machine_whose_head_dies_while_it_is_created_joins_the_next_head(self):
        rig = self.rig
        # A repeated order makes no second machine. It ends, too, if the test fails.
        creating = (
            'mkdir "$cloud/$BILLOW_MACHINE.asked" 2>/dev/null || exit 0\n'
            'for i in $(seq 900); do [ -e "$cloud/go" ] && break; sleep 0.1; done'
        )
        rig.add_pool("cloud", "--max", 3, "--idle", "3s", first=creating)
        job = rig.submit("--gpus", 2, "--", "echo", "ran")
        asked = lambda: [n for n in os.listdir(rig.cloud) if n.endswith(".asked")]
        poll(asked, "the create command", 30)
        address = rig.json("status")["addresses"][0].split("//")[1]
        rig.kill(rig.head_pid())
        rig.up(listen=address)
        self.assertEqual(rig.lines("created"), [], "the command still runs")
        with open(os.path.join(rig.cloud, "go"), "w", encoding="ascii"):
            pass
        self.assertEqual(rig.cli("wait", job, timeout=90).code, 0)
        self.assertEqual(len(rig.lines("created")), 1, "one machine")
        self.assertEqual(len(asked()), 1, "under one name")
        self.assertEqual(rig.job(job)["tasks"][0]["node"], rig.lines("created")[0])
        poll(lambda: not rig.rented(), "given back", 60)

    def test_at_most_one_machine_is_rented_for_what_no_machine_can_hold(self):
        rig = self.rig
        rig.add_pool("cloud", "--max", 2, "--idle", "2s")
        cpus = max(64, 4 * (os.cpu_count() or 1))
        job = rig.submit("--gpus", 1, "--cpus", cpus, "--", "hostname")
        # The first machine shows what the pool's machines are like.
        poll(lambda: rig.lines("created"), "a machine to find out", 60)
        poll(lambda: not rig.machines(), "the machine given back", 60)
        self.assertEqual(len(rig.lines("created")), 1, rig.lines("created"))
        for options in (
            ("--mem", "500G"),
            ("--zone", "b"),
            ("--fabric", "infiniband"),
            ("--gpu-mem", "200G"),
            ("--placement-group", "pg1"),
            ("--pool", "nosuch"),
            ("--exclusive", "--cpus", cpus),
        ):
            rig.cli("submit", "--gpus", 1, *options, "--", "hostname")
        # One that can run brings its machine, and those before it bring none.
        self.assertEqual(rig.cli("run", "--gpus", 1, "--", "true", timeout=60).code, 0)
        poll(lambda: not rig.rented(), "that machine given back", 60)
        self.assertEqual(len(rig.lines("created")), 2, rig.lines("created"))
        self.assertEqual(rig.job(job)["state"], "queued")

    def test_a_job_for_one_pool_rents_of_no_other(self):
        rig = self.rig
        rig.add_pool("lp", "--max", 2, "--idle", "2s", "--price", "1")
        rig.add_pool("lq", "--max", 2, "--idle", "2s", "--price", "9")
        job = rig.submit("--gpus", 1, "--pool", "lq", "--", "true")
        self.assertEqual(rig.cli("wait", job, timeout=60).code, 0)
        poll(lambda: not rig.rented(), "the machine given back", 60)
        self.assertEqual(rig.lines("created"), ["lq-1"])
        # Without a name the cheaper one.
        self.assertEqual(rig.cli("run", "--gpus", 1, "--", "true", timeout=60).code, 0)
        self.assertEqual([name[:3] for name in rig.lines("created")], ["lq-", "lp-"])

    def test_a_machine_is_ended_while_the_list_hangs(self):
        rig = self.rig
        rig.add_pool("cloud", "--max", 2, "--idle", "1s")
        listing = os.path.join(rig.root, "list-cloud")
        with open(listing, encoding="utf-8") as f:
            works = f.read()
        gate = rig.file("list-gate")
        job = rig.submit("--gpus", 2, "--", "sh", "-c", f"until [ -e {gate} ]; do sleep 0.1; done")
        rig.wait_for(job, "running", 60)
        poll(lambda: [m for m in rig.machines().values() if m["external"]], "its id", 30)
        rig.tool("list-cloud", 'echo hangs >> "$cloud/lists"; exec sleep 600\n')
        poll(lambda: rig.lines("lists"), "a list that hangs", 30)
        with open(gate, "w", encoding="ascii"):
            pass
        poll(lambda: not rig.rented(), "the machine ended", 20)
        with open(listing, "w", encoding="utf-8") as f:
            f.write(works)
        poll(lambda: not rig.machines(), "nothing left in the books", 90)

    def test_a_machine_that_no_list_has_shown_is_ended_by_its_name(self):
        rig = self.rig
        rig.add_pool("cloud", "--max", 1, "--idle", "1s")
        listing = os.path.join(rig.root, "list-cloud")
        with open(listing, encoding="utf-8") as f:
            works = f.read()
        rig.tool("list-cloud", "exit 1\n")
        self.assertEqual(rig.cli("run", "--gpus", 2, "--", "true", timeout=60).code, 0)
        self.assertEqual([m["external"] for m in rig.machines().values()], [""])
        poll(lambda: not rig.rented(), "the machine ended", 60)
        poll(lambda: set(rig.lines("deleted")) == {"cloud-1"}, "delete has ended", 30)
        self.assertTrue(rig.machines(), "no list has shown that it has ended")
        with open(listing, "w", encoding="utf-8") as f:
            f.write(works)
        poll(lambda: not rig.machines(), "nothing left in the books", 90)

    def test_a_create_that_hangs_holds_up_no_other(self):
        rig = self.rig
        hangs = '[ "$BILLOW_MACHINE" = cloud-1 ] && until [ -e "$cloud/go" ]; do sleep 0.1; done\n'
        rig.add_pool("cloud", "--max", 2, "--idle", "2s", first=hangs)
        jobs = [rig.submit("--gpus", 2, "--", "true") for _ in range(2)]
        poll(lambda: "cloud-2" in rig.lines("created"), "the other machine", 60)
        self.assertEqual(rig.lines("created"), ["cloud-2"])
        poll(lambda: "succeeded" in [rig.job(job)["state"] for job in jobs], "a job on it", 60)
        with open(os.path.join(rig.cloud, "go"), "w", encoding="ascii"):
            pass
        for job in jobs:
            self.assertEqual(rig.cli("wait", job, timeout=60).code, 0)
        poll(lambda: not rig.rented(), "given back", 60)

    def test_a_create_that_is_killed_is_asked_again_and_is_no_refusal(self):
        rig = self.rig
        killed = '[ -e "$cloud/killed" ] || { touch "$cloud/killed"; kill -9 $$; }\n'
        rig.add_pool("cloud", "--max", 2, "--idle", "2s", first=killed)
        self.assertEqual(rig.cli("run", "--gpus", 2, "--", "true", timeout=90).code, 0)
        self.assertEqual(rig.lines("created"), ["cloud-1"], "under the same name")
        poll(lambda: not rig.rented(), "given back", 60)

    def test_nothing_is_rented_for_a_job_no_pool_can_run(self):
        rig = self.rig
        rig.add_pool("cloud", "--max", 2)
        rig.cli("submit", "--gpus", 1, "--gpu-type", "B200", "--", "true")
        rig.cli("submit", "--gpus", 8, "--", "true")
        # One that can run brings its machine, and those before it brought none.
        self.assertEqual(rig.cli("run", "--gpus", 1, "--", "true", timeout=60).code, 0)
        self.assertEqual(len(rig.lines("created")), 1, rig.lines("created"))

    def test_a_pool_that_is_removed_gives_everything_back(self):
        rig = self.rig
        rig.add_pool("cloud", "--min", 1, "--max", 2)
        poll(
            lambda: [m for m in rig.machines().values() if m["state"] == "here"],
            "the machine it keeps",
            40,
        )
        rig.ok("pool", "rm", "cloud")
        poll(lambda: not rig.json("pool", "list")["pools"], "the pool gone", 60)
        self.assertEqual(rig.rented(), [])

    def test_bad_pools_are_refused_with_what_to_do(self):
        rig = self.rig
        for args, word in (
            (("slurm", "x"), "partition"),
            (("command", "x", "--gpu", "2xL4"), "three commands"),
            (("cloud", "x"), "unknown pool kind"),
            (("slurm", "x", "--partition", "gpu", "--gres", "gpu:h100:8;reboot"), "gres"),
            (("slurm", "x", "--partition", "-p evil"), "partition"),
            (("slurm", "x", "--partition", "gpu", "--sbatch", "x;y"), "long option"),
            (("command", "x", "--gpu", "9xWARP"), "WARP"),
            (
                (
                    "command",
                    "x",
                    "--min",
                    "5",
                    "--max",
                    "2",
                    "--create",
                    "a",
                    "--list",
                    "b",
                    "--delete",
                    "c",
                ),
                "--min 5",
            ),
        ):
            done = rig.cli("pool", "add", *args)
            self.assertNotEqual(done.code, 0, args)
            self.assertIn(word, done.errors, args)
        self.assertEqual(rig.json("pool", "list")["pools"], [])


if __name__ == "__main__":
    unittest.main()
