"""Money, as people meet it: prices, budgets that hold and stop, idle jobs that are told and ended,
reports, notices."""
import csv
import http.server
import io
import json
import os
import sqlite3
import subprocess
import threading
import unittest

from rig import BILLOW, RigTest, poll


def events(rig, kind):
    """The journal's records of one kind."""
    with sqlite3.connect(f"file:{rig.data}/billow.db?mode=ro", uri=True) as db:
        return [
            json.loads(payload)
            for (payload,) in db.execute(
                "SELECT payload FROM events WHERE kind = ? ORDER BY seq", (kind,)
            )
        ]


def nano(usd):
    return int(usd * 1_000_000_000)


class Receiver:
    """A webhook's other side. `refuse` of the next answers are 503."""

    def __init__(self):
        self.messages, self.refuse = [], 0
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                refused = outer.refuse > 0
                outer.refuse -= refused
                outer.messages.append((503 if refused else 200, dict(self.headers), body))
                self.send_response(503 if refused else 200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class Reports(RigTest):
    def run_one(self, *options):
        job = self.rig.submit(*options, "--", "sh", "-c", "sleep 1")
        self.rig.ok("wait", job)
        return job

    def test_what_was_spent_adds_up(self):
        self.run_one("--gpus", 1, "--name", "small")
        job = self.run_one("--gpus", 2, "--name", "large")
        cost = self.rig.json("cost")
        self.assertEqual(cost["by"], ["project"])
        fleet, total = cost["fleet"], cost["total"]
        self.assertEqual(
            fleet["active_nano_usd"] + fleet["idle_nano_usd"] + fleet["unallocated_nano_usd"],
            fleet["cost_nano_usd"],
        )
        self.assertGreaterEqual(fleet["unallocated_nano_usd"], 0)
        self.assertGreater(total["charge_nano_usd"], 0)
        self.assertEqual(
            sum(line["charge_nano_usd"] for line in cost["lines"]), total["charge_nano_usd"]
        )
        for by in ("user", "job", "gpu", "day", "class", "node", "project,day"):
            lines = self.rig.json("cost", "--by", by)["lines"]
            self.assertEqual(
                sum(line["charge_nano_usd"] for line in lines), total["charge_nano_usd"], by
            )
        one = self.rig.json("cost", "--job", job)
        self.assertEqual(len(one["leases"]), 1)
        self.assertEqual(one["leases"][0]["milli"], 2000)
        self.assertEqual(one["total"]["charge_nano_usd"], self.rig.job(job)["cost_nano_usd"])
        self.assertIn("total", self.rig.ok("cost", "--job", job).text)
        self.assertIn("unallocated", self.rig.ok("cost").text)
        self.assertIn("CO2e", self.rig.ok("cost", "--grid", "400").text)

    def test_csv_and_focus(self):
        self.run_one("--gpus", 1)
        rows = list(
            csv.DictReader(io.StringIO(self.rig.ok("cost", "--by", "project,gpu", "--csv").text))
        )
        self.assertEqual(rows[0]["project"], "default")
        self.assertGreater(float(rows[0]["charge_usd"]), 0)
        focus = list(csv.DictReader(io.StringIO(self.rig.ok("cost", "--focus").text)))
        for column in (
            "BilledCost",
            "EffectiveCost",
            "BillingPeriodStart",
            "ChargeCategory",
            "ServiceName",
        ):
            self.assertIn(column, focus[0])
        self.assertGreater(sum(float(row["BilledCost"]) for row in focus), 0)
        # What goes out can come in: our own file as a provider's bill matches no node, and says so.
        path = self.rig.file("focus.csv")
        with open(path, "w", encoding="utf-8") as f:
            f.write(self.rig.ok("cost", "--focus").text)
        done = self.rig.json("bill", "import", path)
        self.assertEqual(done["lines"], len(focus))
        self.assertGreater(done["billed_nano_usd"], 0)

    def test_waste_invoice_and_the_rest(self):
        self.run_one("--gpus", 1, "--name", "tiny")
        waste = self.rig.json("waste")
        self.assertEqual(waste["fleet_nano_usd"] >= waste["unallocated_nano_usd"], True)
        self.assertIn("unallocated", self.rig.ok("waste").text)
        self.assertEqual(waste["scope"], "everything")
        self.assertNotIn("lines", waste)
        by_job = self.rig.json("waste", "--by", "job", "--limit", 1000)
        wasted = [line["wasted_nano_usd"] for line in by_job["lines"]]
        self.assertEqual(wasted, sorted(wasted, reverse=True))
        self.assertEqual(sum(wasted), by_job["idle_nano_usd"] + by_job["inefficient_nano_usd"])
        for line in by_job["lines"]:
            self.assertEqual(
                line["wasted_nano_usd"], line["idle_nano_usd"] + line["oversized_nano_usd"]
            )
            self.assertTrue(line["what"])
        self.assertIn(
            "WASTED", self.rig.ok("waste", "--by", "job,user").text + ("" if wasted else "WASTED")
        )
        self.assertNotEqual(self.rig.cli("waste", "--by", "colour").code, 0)
        self.rig.ok("project", "tag", "default", "cost-centre=4711")
        invoice = self.rig.json("invoice", "--project", "default")
        self.assertEqual(invoice["tags"], {"cost-centre": "4711"})
        self.assertFalse(invoice["final"])
        shown = self.rig.ok("invoice", "--project", "default")
        self.assertIn("4711", shown.text)
        self.assertIn("simulated: nothing of this is charged", shown.errors)
        self.assertNotEqual(
            self.rig.cli("month", "close", invoice["month"]).code, 0
        )  # it is not over
        self.assertEqual(self.rig.json("month", "list")["closed"], [])
        self.assertEqual(self.rig.json("anomalies")["anomalies"], [])
        self.rig.ok(
            "commitment",
            "set",
            "cud",
            "--gpu",
            "H100",
            "--gpus",
            4,
            "--rate",
            "1.85",
            "--from",
            "2026-01-01",
            "--to",
            "2030-01-01",
        )
        self.assertEqual(self.rig.json("commitment", "list")["commitments"][0]["gpus"], 4)
        self.rig.ok("commitment", "rm", "cud")
        self.assertNotEqual(self.rig.cli("commitment", "rm", "cud").code, 0)
        self.assertNotEqual(self.rig.cli("cost", "--by", "colour").code, 0)
        self.assertNotEqual(self.rig.cli("cost", "--since", "yesterday").code, 0)

    def test_prices(self):
        done = self.rig.ok(
            "price",
            "set-onprem",
            "node:" + self.rig.json("nodes")["nodes"][0]["name"],
            "--purchase",
            280000,
            "--gpus",
            8,
            "--years",
            4,
            "--power",
            7000,
            "--per-kwh",
            "0.15",
        )
        self.assertIn("per GPU", done.text)
        # 280,000 over four years and 7 kW × 1.3 × 0.15 an hour: 7.9853 + 1.365 dollars an hour for
        # the node
        node = self.rig.json("price", "list")["nodes"][0]
        self.assertAlmostEqual(node["cost_usd_h"], 280000 / (4 * 8766) + 7 * 1.3 * 0.15, places=2)
        self.rig.ok("price", "set", "H100", "--cost", "2", "--charge", "3", "--spot", "1")
        self.assertNotEqual(self.rig.cli("price", "set", "H100", "--cost", "0").code, 0)
        self.assertNotEqual(
            self.rig.cli("price", "set", "H100", "--cost", "2", "--spot", "2").code, 0
        )
        self.assertNotEqual(self.rig.cli("price", "set-onprem", "H100", "--purchase", "0").code, 0)
        self.rig.ok("price", "rm", "H100")
        self.rig.ok("price", "rm", "node:" + node["node"])


class Budgets(RigTest):
    def test_a_budget_holds_warns_and_stops(self):
        self.rig.ok(
            "price", "set", "H100", "--cost", "36000"
        )  # ten dollars a second: a budget lives for seconds
        self.rig.ok("project", "create", "tight")
        self.rig.ok(
            "project", "member", "tight", self.rig.json("status")["you"]["user"], "--role", "admin"
        )
        self.rig.ok("budget", "set", "100", "--project", "tight")
        job = self.rig.submit("--project", "tight", "--gpus", 1, "--", "sleep", 600)
        held = self.rig.wait_for(job, "held")
        self.assertIn("budget of project tight", held["reason"])
        self.assertIn("budget", self.rig.ok("explain", job).text)
        self.rig.ok("budget", "set", "6100", "--project", "tight", "--total")
        self.rig.ok("budget", "rm", "--project", "tight")
        self.rig.wait_for(job, "running")
        shown = poll(
            lambda: [
                b for b in self.rig.json("budget", "show")["budgets"] if b["spent_nano_usd"] > 0
            ],
            "money spent",
        )[0]
        self.assertEqual(
            (shown["scope"], shown["of"], shown["period"]), ("project", "tight", "total")
        )
        self.assertEqual(shown["burn_nano_usd_per_s"], nano(10))
        self.assertIn("suspend, then stop", self.rig.ok("budget", "show").text)
        # A limit below what is spent ends it at once.
        self.rig.ok("budget", "set", "1", "--project", "tight", "--total", "--grace", "1s")
        ended = poll(
            lambda: self.rig.job(job) if self.rig.job(job)["final"] else None, "the job's end"
        )
        self.assertEqual(ended["state"], "stopped")
        self.assertIn("budget", ended["reason"])
        # Since when it is spent is a moment that stays, whatever the clock does.
        spent = [b for b in self.rig.json("budget", "show")["budgets"] if b["of"] == "tight"][0]
        self.assertTrue(
            spent["capped"] and spent["spent_since"] and spent["runs_out_at"] is None, spent
        )
        self.assertRegex(
            self.rig.ok("budget", "show").text, r"spent \d+ \w+ ago, (on \S+ )?at \d\d:\d\d"
        )
        self.assertNotEqual(self.rig.cli("budget", "set", "5").code, 0)
        self.assertNotEqual(self.rig.cli("budget", "set", "-5", "--project", "tight").code, 0)
        self.assertNotEqual(self.rig.cli("budget", "rm", "--project", "tight").code, 0)

    def test_users_and_jobs_have_budgets_too(self):
        self.rig.ok("price", "set", "H100", "--cost", "36000")
        self.rig.ok("project", "create", "loose")
        self.assertIn(
            "only warnings",
            self.rig.ok("budget", "set", "5", "--project", "loose", "--warn-only").text,
        )
        self.assertRegex(self.rig.ok("budget", "show").text, r"project loose +.* warn only")
        job = self.rig.submit("--gpus", 1, "--", "sleep", 600)
        self.rig.wait_for(job, "running")
        user = self.rig.json("status")["you"]["user"]
        self.rig.ok("budget", "set", "100000", "--user", user)
        self.rig.ok("budget", "set", "100000", "--job", job)
        self.assertEqual(
            sorted(
                b["scope"]
                for b in self.rig.json("budget", "show")["budgets"]
                if b["scope"] != "project"
            ),
            ["job", "user"],
        )
        self.rig.ok("budget", "set", "none", "--user", user)
        self.rig.ok("stop", "--force", "--wait", job)


class Idleness(RigTest):
    def test_an_idle_job_is_told_kept_alive_and_ended(self):
        self.assertIn("(all others)", self.rig.ok("idle", "show").text)
        self.assertNotEqual(self.rig.cli("idle", "set", "--floor", "1m").code, 0)
        self.rig.ok("idle", "set", "--warn", "5s", "--suspend", "2m", "--stop", "2m")
        job = self.rig.submit("--gpus", 1, "--", "sleep", 3600)
        busy = self.rig.submit("--gpus", 1, "--", "sh", "-c", "while :; do :; done")
        self.rig.wait_for(job, "running")
        idle = poll(lambda: self.rig.json("waste")["idle_now"], "the warning", 90)
        self.assertEqual([i["job"] for i in idle], [job])
        self.assertRegex(
            idle[0]["text"],
            (
                r"^idle \d+s: .*(SM|utilisation) 0 %, \d+ W \(idle \d+ W\).*CPU 0 %, no I/O.*;"
                r" suspending in "
            ),
        )
        self.assertIn(idle[0]["text"].split(":")[0][:4], self.rig.ok("describe", job).text)
        # In the list, and in the answer to "what is with my job".
        self.assertRegex(self.rig.ok("ps").text, rf"(?m)^ *{job} .*idle \d+s: ")
        self.assertRegex(self.rig.ok("explain", job).text, r"idle \d+s: .*; suspending in ")
        self.assertNotIn("idle", self.rig.ok("explain", busy).text)
        # The countdown goes on, wherever it is shown, and what idles costs the same everywhere.
        first = self.rig.job(job)["reason"]
        poll(
            lambda: (now := self.rig.job(job)["reason"]) != first and "; suspending in " in now,
            "the countdown to go on",
        )
        poll(
            lambda: self.rig.json("waste")["idle_now"][0]["text"] != idle[0]["text"],
            "the countdown in the report",
        )
        rate = self.rig.json("waste")["idle_now"][0]["nano_usd_per_s"]
        metric = [
            line
            for line in self.rig.api("GET", "/metrics").body.decode().splitlines()
            if line.startswith("billow_idle_usd_per_second")
        ]
        self.assertAlmostEqual(sum(float(line.split()[-1]) for line in metric), rate / 1e9)
        self.rig.ok("keepalive", job, "--for", "1h", "--reason", "waiting for labels")
        self.assertEqual(
            events(self.rig, "kept_alive")[-1]["event"]["reason"], "waiting for labels"
        )
        other = self.rig.submit("--gpus", 1, "--", "sleep", 3600)
        suspended = poll(
            lambda: self.rig.job(other) if self.rig.job(other)["state"] == "suspended" else None,
            "the idle job's suspension",
            240,
        )
        self.assertRegex(suspended["reason"], r"^idle .*; suspended$")
        self.assertEqual(self.rig.job(job)["state"], "running", "kept alive")
        self.assertEqual(self.rig.job(busy)["state"], "running", "busy")
        cost = self.rig.json("cost", "--job", other)
        self.assertEqual([lease["class"] for lease in cost["leases"]], ["on-demand", "suspended"])
        self.rig.ok("resume", other)
        self.rig.wait_for(other, "running")
        self.rig.ok("stop", "--force", "--wait", job, busy, other)

    def test_keepalive_inside_a_job_needs_no_number(self):
        done = self.rig.ok(
            "run", "--gpus", 1, "--", BILLOW, "keepalive", "--for", "24h", "--reason", "inside"
        )
        self.assertIn("kept alive for 4h, the maximum of this project", done.text)
        event = poll(
            lambda: [
                e for e in events(self.rig, "kept_alive") if e["event"].get("reason") == "inside"
            ],
            "its record",
        )[0]
        self.assertTrue(event["actor"].startswith("task:"))
        self.assertNotEqual(self.rig.cli("keepalive").code, 0)


class Alone(RigTest):
    """What holds without a head, and for machines that are paid by the hour."""

    def test_a_machine_that_bills_says_so_and_of_which_pool_it_is(self):
        folder = os.path.join(self.rig.root, "rented")
        with open(os.path.join(self.rig.root, "rented.log"), "w", encoding="utf-8") as log:
            self.rig.started.append(
                subprocess.Popen(
                    [
                        BILLOW,
                        "agent",
                        "--head",
                        f"unix:{self.rig.data}/head.sock",
                        "--token-file",
                        self.rig.node_token_file("rented"),
                        "--data",
                        folder,
                        "--node-name",
                        "rented",
                        "--sim",
                        "1xL4",
                        "--bills",
                        "--pool",
                        "cloud",
                        "--label",
                        "rack=r1",
                    ],
                    env=self.rig.environment,
                    stdout=log,
                    stderr=log,
                    stdin=subprocess.DEVNULL,
                )
            )
        node = poll(
            lambda: next(
                (n for n in self.rig.ok("nodes", "--json").json["nodes"] if n["name"] == "rented"),
                None,
            ),
            "the rented machine",
        )
        said = {
            key: value for key, value in node["labels"].items() if key in ("bills", "pool", "rack")
        }
        self.assertEqual(said, {"bills": "yes", "pool": "cloud", "rack": "r1"})
        self.assertIn("disk-gib", node["labels"])
        self.rig.ok("price", "set", "pool:cloud", "--cost", "7.20")
        priced = {n["node"]: n for n in self.rig.ok("price", "list", "--json").json["nodes"]}
        self.assertEqual((priced["rented"]["bills"], priced["rented"]["pool"]), (True, "cloud"))
        self.assertAlmostEqual(priced["rented"]["cost_usd_h"], 7.20)
        # Its disk, where the pool has a price for it: $50 a GiB and month.
        self.rig.ok("price", "set", "pool:cloud", "--cost", "7.20", "--storage", "50")
        disk = os.statvfs(self.rig.data)
        priced = {n["node"]: n for n in self.rig.ok("price", "list", "--json").json["nodes"]}
        self.assertAlmostEqual(
            priced["rented"]["cost_usd_h"],
            7.20 + (disk.f_blocks * disk.f_frsize >> 30) * 50 / 730.5,
            delta=0.001 * priced["rented"]["cost_usd_h"],
        )

    def test_a_machine_that_has_left_is_still_known_on_its_providers_bill(self):
        folder = os.path.join(self.rig.root, "leaves")
        agent = subprocess.Popen(
            [
                BILLOW,
                "agent",
                "--head",
                f"unix:{self.rig.data}/head.sock",
                "--token-file",
                self.rig.node_token_file("leaves"),
                "--data",
                folder,
                "--node-name",
                "leaves",
                "--sim",
                "1xA10G",
                "--label",
                "provider-id=i-0abc",
            ],
            env=self.rig.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
        )
        self.rig.started.append(agent)
        self.rig.cli("budget", "rm", "--project", "default", "--total")  # of a case before
        self.rig.ok("price", "set", "A10G", "--cost", "3600")
        node = lambda: next(
            (n for n in self.rig.ok("nodes", "--json").json["nodes"] if n["name"] == "leaves"), None
        )
        poll(node, "the machine")
        job = self.rig.submit("--gpus", "1", "--gpu-type", "A10G", "--", "sleep", "601")
        self.rig.wait_for(job, "running")
        self.rig.kill(agent.pid)
        agent.wait()
        poll(lambda: self.rig.cli("node", "rm", "leaves").code == 0, "its end", 90)
        day = self.rig.json("cost")["days"]["to"]
        path = self.rig.file("bill.csv")
        with open(path, "w", encoding="utf-8") as f:
            f.write(
                "BilledCost,EffectiveCost,BillingCurrency,ChargePeriodStart,ChargePeriodEnd,ChargeCategory,ResourceId,ProviderName\n"
                f"5.00,5.00,USD,{day}T00:00:00Z,{day}T01:00:00Z,Usage,arn:aws:ec2:us-east-1:1:instance/i-0abc,AWS\n"
            )
        found = {v["resource"]: v for v in self.rig.json("bill", "import", path)["variances"]}
        self.assertEqual(
            found["leaves"]["kind"],
            "differs" if abs(found["leaves"]["difference_nano_usd"]) > nano(0.01) else "agrees",
        )
        self.assertEqual(found["leaves"]["billed_nano_usd"], nano(5))
        self.assertGreater(found["leaves"]["ours_nano_usd"], 0)
        self.assertFalse([name for name in found if name.startswith("node ")], found)
        self.assertEqual(self.rig.json("cost", "--job", job)["leases"][0]["node"], "leaves")
        for pid in [pid for pid, line in self.rig.processes().items() if "sleep 601" in line]:
            self.rig.kill(pid)  # nobody is left to end it

    def test_a_job_ends_when_its_paid_time_does_though_the_head_is_dead(self):
        self.rig.ok("price", "set", "H100", "--cost", "3600")
        job = self.rig.submit("--gpus", "1", "--", "sleep", "600")
        poll(
            lambda: self.rig.ok("describe", job, "--json").json["state"] == "running",
            "the job to run",
        )
        # A dollar a second: its agent is told at once that little more than a minute is paid.
        spent = self.rig.ok("describe", job, "--json").json["cost_nano_usd"] / 1e9
        self.rig.ok("budget", "set", f"{spent + 65:.2f}", "--project", "default", "--total")
        self.rig.ok("logs", job)  # an answer of the agent: it has heard what was sent before
        running = lambda: any("sleep 600" in line for line in self.rig.processes().values())
        poll(running, "the job's process")
        self.rig.kill(self.rig.head_pid())
        self.assertTrue(running())
        poll(lambda: not running(), "the job's end without a head", 120)
        self.rig.up()
        done = poll(
            lambda: (d := self.rig.ok("describe", job, "--json").json)["state"]
            not in ("running", "suspended")
            and d,
            "the job's end to be known",
        )
        self.assertEqual(
            (
                done["tasks"][-1]["exit"]["kind"]
                if "exit" in done["tasks"][-1]
                else done["exit"]["kind"]
            ),
            "unpaid",
            done,
        )
        # Not until the head was back and not a cent for the time it was away beyond what was paid
        # for.
        ended = events(self.rig, "task_ended")
        charged = sum(e["event"].get("cost", 0) for e in ended) / 1e9
        self.assertTrue(spent + 40 < charged < spent + 90, (spent, charged, ended))

    def test_a_head_takes_many_machines_and_jobs_keep_their_limit(self):
        self.rig.ok("down", "--stop-jobs")
        done = subprocess.run(
            [
                "sh",
                "-c",
                'ulimit -Sn 300; exec "$@"',
                "sh",
                BILLOW,
                "up",
                "--background",
                "--listen",
                "127.0.0.1:0",
                "--sim",
                self.rig.sim,
            ],
            env=self.rig.environment,
            capture_output=True,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done)
        soft = lambda pid: int(
            next(
                line
                for line in open(f"/proc/{pid}/limits", encoding="ascii")
                if line.startswith("Max open files")
            ).split()[3]
        )
        hard = lambda pid: int(
            next(
                line
                for line in open(f"/proc/{pid}/limits", encoding="ascii")
                if line.startswith("Max open files")
            ).split()[4]
        )
        head = self.rig.head_pid()
        self.assertEqual(soft(head), min(hard(head), 32768))
        self.assertEqual(self.rig.ok("run", "--", "sh", "-c", "ulimit -Sn").text.strip(), "300")


if __name__ == "__main__":
    unittest.main()
