"""/metrics of the head and its nodes, read by a real Prometheus and as dashboards ask for them."""
import json
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.request

import replica
from eyes_test import write
from rig import SOURCE, Rig, poll

# What the eight panels of the dashboard that NVIDIA publishes for dcgm-exporter ask for.
NVIDIA_PANELS = {
    "GPU Temperature": "DCGM_FI_DEV_GPU_TEMP",
    "GPU Avg. Temp": "avg(DCGM_FI_DEV_GPU_TEMP)",
    "GPU Power Usage": "DCGM_FI_DEV_POWER_USAGE",
    "GPU Power Total": "sum(DCGM_FI_DEV_POWER_USAGE)",
    "GPU SM Clocks": "DCGM_FI_DEV_SM_CLOCK * 1000000",
    "GPU Utilization": "DCGM_FI_DEV_GPU_UTIL",
    "GPU Framebuffer Mem Used": "DCGM_FI_DEV_FB_USED",
    "Tensor Core Utilization": "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
}


class Prometheus(unittest.TestCase):
    def start_prometheus(self, rig, *options):
        """Prometheus with prometheus.yml of the rig, and a function that asks it."""
        probe = __import__("socket").socket()
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
        probe.close()
        prometheus = subprocess.Popen(
            [
                "prometheus",
                "--config.file",
                rig.file("prometheus.yml"),
                "--storage.tsdb.path",
                rig.file("tsdb"),
                "--web.listen-address",
                f"127.0.0.1:{free}",
                *options,
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        rig.started.append(prometheus)

        def ask(path, *parameters):
            done = subprocess.run(
                [
                    "curl",
                    "-sf",
                    *(part for p in parameters for part in ("--data-urlencode", p)),
                    f"http://127.0.0.1:{free}/api/v1/{path}",
                ],
                capture_output=True,
                check=False,
            )
            return json.loads(done.stdout)["data"] if done.returncode == 0 and done.stdout else {}

        return prometheus, ask

    def test_rules_hold(self):
        folder = os.path.join(SOURCE, "packaging/prometheus")
        for args in (["check", "rules", "billow.rules.yml"], ["test", "rules", "billow.test.yml"]):
            done = subprocess.run(
                ["promtool", *args], cwd=folder, capture_output=True, text=True, check=False
            )
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_the_head_tells_what_gateways_say_of_endpoints(self):
        rig = Rig(sim="1xH100")
        try:
            rig.ok(
                "deploy",
                "files",
                "--gpus",
                "0.5",
                "--min",
                "1",
                "--",
                "sh",
                "-c",
                "exec python3 -m http.server --bind 127.0.0.1 $PORT",
                timeout=120,
            )
            url = rig.json("endpoints")["endpoints"][0]["url"]
            for _ in range(3):
                with urllib.request.urlopen(url, timeout=60) as answer:
                    self.assertEqual(answer.status, 200)

            def told():
                lines = rig.api("GET", "/metrics").body.decode().splitlines()
                return {
                    line.split("{")[0]: float(line.rsplit(" ", 1)[1])
                    for line in lines
                    if line.startswith("billow_endpoint_") and 'endpoint="files"' in line
                }

            poll(
                lambda: told().get("billow_endpoint_requests_total", 0) >= 3,
                "the requests, counted",
                30,
            )
            figures = told()
            self.assertEqual(figures["billow_endpoint_replicas_ready"], 1)
            self.assertEqual(figures["billow_endpoint_held"], 0)
            self.assertGreater(figures["billow_endpoint_first_byte_seconds_p99"], 0)
            self.assertGreaterEqual(figures["billow_endpoint_cold_starts_total"], 1)
            checked = subprocess.run(
                ["promtool", "check", "metrics"],
                input=rig.api("GET", "/metrics").body,
                capture_output=True,
                check=False,
            )
            self.assertEqual(
                [
                    line
                    for line in (checked.stdout + checked.stderr).decode().splitlines()
                    if "billow_endpoint" in line
                ],
                [],
            )
        finally:
            rig.close()

    def test_exemplars_lead_to_traces_jobs_and_requests(self):
        rig = Rig(sim="1xH100")
        try:
            # fmt: off
            rig.ok(
                "deploy", "files", "--gpus", 0, "--min", 1, "--access", "open", "--",
                "sh", "-c", "exec python3 -m http.server --bind 127.0.0.1 $PORT", timeout=120,
            )
            # fmt: on
            url = rig.json("endpoints")["endpoints"][0]["url"]
            traces = {flag: os.urandom(16).hex() for flag in ("01", "00")}
            for flag, trace in traces.items():
                traced = {"traceparent": f"00-{trace}-{os.urandom(8).hex()}-{flag}"}
                with urllib.request.urlopen(
                    urllib.request.Request(url, headers=traced), timeout=60
                ) as answer:
                    self.assertEqual(answer.status, 200)
            job = rig.submit("--", "true")
            rig.wait_for(job, "succeeded")
            token = rig.api("POST", "/v1/tokens", {"name": "prom", "scope": "read"}).json["token"]
            write(rig.file("token"), token)
            host, port = rig.address()
            target = {
                "job_name": "billow",
                "authorization": {"credentials_file": rig.file("token")},
                "static_configs": [{"targets": [f"{host}:{port}"]}],
            }
            config = {"global": {"scrape_interval": "1s"}, "scrape_configs": [target]}
            write(rig.file("prometheus.yml"), json.dumps(config))
            _, ask = self.start_prometheus(rig, "--enable-feature=exemplar-storage")

            def named(family):
                window = (f"start={time.time() - 600}", f"end={time.time() + 60}")
                return {
                    tuple(e["labels"].items())
                    for series in ask("query_exemplars", f"query={family}_bucket", *window) or []
                    for e in series["exemplars"]
                }

            poll(
                lambda: (("trace_id", traces["01"]),)
                in named("billow_endpoint_first_byte_seconds"),
                "the trace of a request",
                60,
            )
            self.assertNotIn(
                (("trace_id", traces["00"]),),
                named("billow_endpoint_first_byte_seconds"),
                "a trace that nobody records leads nowhere",
            )
            poll(lambda: (("job", str(job)),) in named("billow_job_wait_seconds"), "the job", 60)

            def scrape(who, accept="application/openmetrics-text;version=1.0.0"):
                return rig.api("GET", "/metrics", token=who, headers={"Accept": accept})

            answer = scrape(token)
            self.assertIn("application/openmetrics-text", answer.headers["content-type"])
            text = answer.body.decode()
            self.assertTrue(text.endswith("\n# EOF\n"))
            self.assertIn("# TYPE billow_jobs_ended counter\nbillow_jobs_ended_total{", text)
            self.assertIn(f'# {{job="{job}"}} ', text)
            request = re.search(r'# \{request_id="([^"]+)"\}', text).group(1)
            events = rig.api("GET", "/v1/events?limit=1000").json["events"]
            self.assertIn(request, [e["request_id"] for e in events], "the journal has it")
            # Others get no exemplars that name jobs and requests of all projects, and whoever
            # does not ask for OpenMetrics gets none at all.
            rig.ok("user", "create", "eve")
            self.assertNotIn("# {", scrape(rig.token_for("eve", scope="read")).body.decode())
            plain = scrape(token, "*/*")
            self.assertIn("text/plain", plain.headers["content-type"])
            self.assertNotIn("# {", plain.body.decode())
        finally:
            rig.close()

    def test_native_histograms_of_latencies(self):
        rig = Rig(sim="1xH100")
        try:
            serve = rig.script(
                replica.program("def answer(self):\n    time.sleep(0.3)\n    self.say(b'')\n")
            )
            rig.ok("deploy", "slow", "--min", 1, "--access", "open", "--", "python3", serve,
                   timeout=120)  # fmt: skip
            url = rig.json("endpoints")["endpoints"][0]["url"]
            for _ in range(10):
                with urllib.request.urlopen(url, timeout=60) as answer:
                    self.assertEqual(answer.status, 200)
            token = rig.api("POST", "/v1/tokens", {"name": "prom", "scope": "read"}).json["token"]
            write(rig.file("token"), token)
            host, port = rig.address()
            target = {
                "job_name": "billow",
                "authorization": {"credentials_file": rig.file("token")},
                "static_configs": [{"targets": [f"{host}:{port}"]}],
            }
            config = {"global": {"scrape_interval": "1s"}, "scrape_configs": [target]}
            write(rig.file("prometheus.yml"), json.dumps(config))
            _, ask = self.start_prometheus(rig, "--enable-feature=native-histograms")

            def value(query):
                result = ask("query", f"query={query}").get("result", [])
                return result[0] if result else {}

            family = "billow_endpoint_first_byte_seconds"
            native = poll(lambda: value(family).get("histogram"), "a native histogram", 60)[1]
            poll(
                lambda: value(family)["histogram"][1]["count"] == "10", "all requests in it", 60
            )
            native = value(family)["histogram"][1]
            self.assertGreaterEqual(float(native["sum"]), 3)
            for _, lower, upper, _ in native["buckets"]:
                self.assertAlmostEqual(float(upper) / float(lower), 2 ** (1 / 8), places=6)
            median = float(value(f"histogram_quantile(0.5, {family})")["value"][1])
            self.assertGreaterEqual(median, 0.27)
            self.assertLess(median, 0.5, "the text format knows only that it is below 0.5")
            self.assertEqual(value(family + "_bucket"), {}, "these are not the coarse buckets")
            # A scrape has one format, so everything else is in it too.
            text = rig.api("GET", "/metrics", token=token).body.decode()
            families = {
                line.split()[2]
                for line in text.splitlines()
                if line.startswith("# TYPE ") and not line.endswith(" histogram")
            }
            self.assertGreater(len(families), 50)
            poll(
                lambda: families <= set(ask("label/__name__/values")),
                "every other metric",
                30,
            )
            labelled = 'billow_endpoint_requests_total{endpoint="slow",project="default"}'
            self.assertEqual(value(labelled)["value"][1], "10")
            answer = rig.api("GET", "/metrics", token=token, headers={
                "Accept": "application/openmetrics-text,application/vnd.google.protobuf;"
                          "encoding=delimited;q=0.5"})  # fmt: skip
            self.assertIn("openmetrics-text", answer.headers["content-type"])
        finally:
            rig.close()

    def test_the_grafana_dashboard_is_well_formed(self):
        dashboard = json.load(
            open(os.path.join(SOURCE, "packaging/grafana/billow.json"), encoding="utf-8")
        )
        panels = dashboard["panels"]
        self.assertEqual(len({p["id"] for p in panels}), len(panels))
        taken = set()
        for p in panels:
            at = p["gridPos"]
            cells = {
                (x, y)
                for x in range(at["x"], at["x"] + at["w"])
                for y in range(at["y"], at["y"] + at["h"])
            }
            self.assertFalse(cells & taken, f"{p['title']} lies over another panel")
            self.assertLessEqual(at["x"] + at["w"], 24, p["title"])
            taken |= cells
        # One choice of node, project and endpoint for all panels, and a way back from each of them.
        names = [v["name"] for v in dashboard["templating"]["list"]]
        self.assertEqual(names, ["datasource", "node", "project", "endpoint", "billow"])
        choices = {"Hostname": "$node", "project": "$project", "endpoint": "$endpoint"}
        for p in panels:
            asked = " ".join(t["expr"] for t in p["targets"])
            for label in re.findall(r"by \((Hostname|project|endpoint)\)", asked):
                self.assertIn(f'{label}=~"{choices[label]}"', asked, p["title"])
                (link,) = p["fieldConfig"]["defaults"]["links"]
                self.assertIn("${billow}/#/", link["url"], p["title"])
                self.assertIn("${__field.labels." + label + "}", link["url"], p["title"])
        for wanted in (
            "billow_endpoint_held",
            "billow_endpoint_in_flight",
            "billow_endpoint_first_byte_seconds_p99",
            "billow_endpoint_cold_starts_total",
            "billow_endpoint_wakes_total",
        ):
            self.assertTrue(any(wanted in t["expr"] for p in panels for t in p["targets"]), wanted)
        # Every question is PromQL: promtool reads them as rules.
        rules = {
            "groups": [
                {
                    "name": "grafana",
                    "rules": [
                        {"record": f"panel:{p['id']}:{t['refId'].lower()}", "expr": t["expr"]}
                        for p in panels
                        for t in p["targets"]
                    ],
                }
            ]
        }
        with tempfile.NamedTemporaryFile("w", suffix=".yml") as f:
            json.dump(rules, f)
            f.flush()
            checked = subprocess.run(
                ["promtool", "check", "rules", f.name], capture_output=True, check=False
            )
        self.assertEqual(checked.returncode, 0, checked)

    def check_metrics(self, text):
        """promtool finds nothing but the names and labels of dcgm-exporter."""
        checked = subprocess.run(
            ["promtool", "check", "metrics"], input=text, capture_output=True, check=False
        )
        complaints = [
            line
            for line in (checked.stdout + checked.stderr).decode().splitlines()
            if line and "DCGM_" not in line and "camelCase" not in line
        ]
        self.assertEqual(complaints, [])

    def start_second_agent(self, rig, head):
        """An agent with two L4; returns the address of its metrics."""
        agent = rig.start(
            "agent",
            *("--head", f"http://{head}", "--token-file", rig.node_token_file("second")),
            *("--data", rig.file("n2"), "--sim", "2xL4", "--node-name", "second"),
            *("--metrics", "127.0.0.1:0"),
            stderr=subprocess.PIPE,
        )
        address = None
        deadline = time.monotonic() + 20
        while address is None and time.monotonic() < deadline:
            found = re.search(rb"metrics at http://([\d.:]+)/", agent.stderr.readline())
            address = found and found.group(1).decode()
        self.assertTrue(address, "the agent says where its metrics are")
        threading.Thread(target=agent.stderr.read, daemon=True).start()
        return address

    def configure_prometheus(self, rig, head, agent):
        token = rig.api("POST", "/v1/tokens", {"name": "prom", "scope": "read"}).json["token"]
        write(rig.file("token"), token)
        settings = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [os.path.join(SOURCE, "packaging/prometheus/billow.rules.yml")],
            "scrape_configs": [
                {
                    "job_name": "billow",
                    "authorization": {"credentials_file": rig.file("token")},
                    "static_configs": [{"targets": [head]}],
                },
                {"job_name": "agent", "static_configs": [{"targets": [agent]}]},
            ],
        }
        write(rig.file("prometheus.yml"), json.dumps(settings))

    def check_own_figures(self, query, node):
        def some(expression, least):
            return any(float(r["value"][1]) >= least for r in query(expression))

        poll(lambda: len(query("up == 1")) == 2, "both targets up", 60)
        poll(
            lambda: query('billow_endpoint_replicas_ready{endpoint="hello"}'),
            "what the gateway says of an endpoint",
            60,
        )
        poll(
            lambda: len(query(f'DCGM_FI_DEV_GPU_UTIL{{job="billow",Hostname="{node}"}}')) == 4,
            "four GPUs by dcgm-exporter's name",
            30,
        )
        poll(
            lambda: len(query('DCGM_FI_DEV_GPU_TEMP{job="agent",Hostname="second"}')) == 2,
            "the agent's own two",
            30,
        )
        poll(lambda: some('billow_jobs{state="running"}', 1), "a running job", 30)
        poll(lambda: some("billow:spend_usd_per_hour", 1e-9), "a recorded rule over it", 40)

    def check_nvidia_panels(self, query):
        for panel, expression in NVIDIA_PANELS.items():
            asked = re.sub(r"(DCGM_\w+)", r'\1{instance=~".+",gpu=~"(0|1|2|3)"}', expression)
            got = poll(lambda asked=asked: query(asked), f"data for NVIDIA's panel {panel}", 30)
            if "(" in expression:
                continue
            for job, cards in (("billow", 4), ("agent", 2)):
                seen = [r for r in got if r["metric"]["job"] == job]
                # Profiling figures exist from Hopper on: an L4 has none.
                wanted = cards if job == "billow" or "_PROF_" not in expression else 0
                self.assertGreaterEqual(len(seen), wanted, f"{panel}: {got}")

    def check_our_dashboard(self, query):
        """Each panel asks for something that exists; histograms may still be empty."""
        with open(os.path.join(SOURCE, "packaging/grafana/billow.json"), encoding="utf-8") as f:
            panels = json.load(f)["panels"]
        expressions = [t["expr"] for p in panels for t in p["targets"]]
        self.assertGreater(len(expressions), 20)
        for expression in expressions:
            for name in re.findall(r"\b(?:billow|DCGM)_\w+", expression):
                self.assertTrue(
                    query(f'count({{__name__=~"{name}"}})'),
                    f"{name} of the Grafana dashboard is not exported",
                )

    def test_a_real_prometheus_scrapes_the_head_and_an_agent(self):
        rig = Rig(sim="4xH100")
        try:
            job = rig.submit("--gpus", 1, "--", "sleep", 300)
            rig.wait_for(job, "running")
            poll(lambda: "util_pct" in rig.json("nodes")["nodes"][0]["gpus"][0], "readings", 30)
            self.check_metrics(rig.api("GET", "/metrics").body)
            head = "{}:{}".format(*rig.address())
            self.configure_prometheus(rig, head, self.start_second_agent(rig, head))
            prometheus, ask = self.start_prometheus(rig)

            def query(expression):
                return ask("query", f"query={expression}").get("result", [])

            server = ("sh", "-c", "exec python3 -m http.server $PORT")
            rig.ok("deploy", "hello", "--max", 1, "--", *server, timeout=90)
            self.check_own_figures(query, rig.json("nodes")["nodes"][0]["name"])
            self.check_nvidia_panels(query)
            rules = [r for g in ask("rules")["groups"] for r in g["rules"]]
            self.assertEqual([r["name"] for r in rules if r["health"] == "err"], [])
            self.check_our_dashboard(query)
            prometheus.send_signal(signal.SIGTERM)
            prometheus.wait(20)
        finally:
            rig.close()


if __name__ == "__main__":
    unittest.main()
