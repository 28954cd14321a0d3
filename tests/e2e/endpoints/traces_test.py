"""Traces of requests through a gateway: the caller's context, the replica's, and what a collector
gets; and the head's metrics, pushed to a collector."""

import http.client
import http.server
import json
import re
import threading
import unittest

from http2_test import Gateway
from rig import Rig, poll

CALLER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


class Collector:
    """A server on this machine that keeps what is posted to it. With `status`, it refuses it."""

    def __init__(self):
        self.posts, self.status = [], 200
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.posts.append((self.path, json.loads(body)))
                self.send_response(outer.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def do_GET(self):
                out = json.dumps(dict((k.lower(), v) for k, v in self.headers.items())).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(out)))
                self.end_headers()
                self.wfile.write(out)

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.address = f"127.0.0.1:{self.server.server_address[1]}"

    def spans(self):
        return [
            span
            for _, body in self.posts
            for resource in body["resourceSpans"]
            for scope in resource["scopeSpans"]
            for span in scope["spans"]
        ]


class Traces(Gateway):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.collector, cls.replica = Collector(), Collector()
        cls.addClassCleanup(cls.collector.server.shutdown)
        cls.addClassCleanup(cls.replica.server.shutdown)
        _, cls.at = cls.start(
            f"echo={cls.replica.address}", "--otlp", f"http://{cls.collector.address}/v1/traces"
        )

    def headers_at_the_replica(self, path="/f/echo/", **headers):
        connection = http.client.HTTPConnection(self.at, timeout=30)
        try:
            connection.request("GET", path, headers=headers)
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()

    def spans_of(self, trace):
        return [s for s in self.collector.spans() if s["traceId"] == trace]

    def test_a_callers_trace_goes_on_at_the_replica_and_at_the_collector(self):
        passed = self.headers_at_the_replica("/f/echo/a?secret=1", traceparent=CALLER)
        version, trace, parent, flags = passed["traceparent"].split("-")
        self.assertEqual((version, trace, flags), ("00", CALLER.split("-")[1], "01"))
        poll(lambda: len(self.spans_of(trace)) == 2, "two spans", 30)
        spans = {s["kind"]: s for s in self.spans_of(trace)}
        self.assertEqual(spans[2]["parentSpanId"], CALLER.split("-")[2])
        self.assertEqual(spans[3]["parentSpanId"], spans[2]["spanId"])
        self.assertEqual(spans[3]["spanId"], parent)
        attributes = {a["key"]: a["value"] for a in spans[2]["attributes"]}
        self.assertEqual(attributes["billow.endpoint"], {"stringValue": "echo"})
        self.assertEqual(attributes["http.response.status_code"], {"intValue": "200"})
        self.assertNotIn("secret", json.dumps(spans))
        self.assertGreaterEqual(
            int(spans[2]["endTimeUnixNano"]), int(spans[2]["startTimeUnixNano"])
        )
        self.assertEqual(self.collector.posts[0][0], "/v1/traces")

    def test_a_trace_begins_here_if_there_is_none_or_it_is_not_valid(self):
        for given in (
            {},
            {"traceparent": "00-zz"},
            {"traceparent": CALLER.replace("00f0", "00F0")},
        ):
            passed = self.headers_at_the_replica(**given)["traceparent"]
            self.assertTrue(re.fullmatch("00-[0-9a-f]{32}-[0-9a-f]{16}-01", passed), passed)
            self.assertNotIn(CALLER.split("-")[1], passed)

    def test_a_trace_that_is_not_sampled_is_passed_on_and_not_exported(self):
        quiet = "00-" + "ab" * 16 + "-" + "cd" * 8 + "-00"
        passed = self.headers_at_the_replica(traceparent=quiet)["traceparent"]
        self.assertTrue(passed.startswith("00-" + "ab" * 16) and passed.endswith("-00"))
        self.headers_at_the_replica(traceparent=CALLER.replace("4bf9", "5bf9"))
        poll(lambda: self.spans_of("5" + CALLER.split("-")[1][1:]), "the next one", 30)
        self.assertEqual(self.spans_of("ab" * 16), [])

    def test_a_collector_that_refuses_costs_spans_and_no_requests(self):
        self.collector.status = 500
        self.addCleanup(setattr, self.collector, "status", 200)
        for _ in range(20):
            self.headers_at_the_replica()

        def dropped():
            connection = http.client.HTTPConnection(self.at, timeout=30)
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
            connection.close()
            return int(re.search(r"^billow_gateway_spans_dropped_total (\d+)", text, re.M)[1])

        poll(lambda: dropped() >= 40, "the dropped spans", 30)


class Metrics(unittest.TestCase):
    """`--otlp-metrics`: a collector gets what /metrics serves, under the same names and labels."""

    @classmethod
    def setUpClass(cls):
        cls.collector = Collector()
        cls.addClassCleanup(cls.collector.server.shutdown)
        cls.rig = Rig(
            args=(
                *("--otlp-metrics", f"http://{cls.collector.address}/v1/metrics"),
                *("--otlp-every", "1s"),
            )
        )
        cls.addClassCleanup(cls.rig.close)

    def pushed(self):
        """The newest of each series: {(name, labels): point}, and {name: metric}."""
        points, metrics = {}, {}
        for path, body in list(self.collector.posts):
            self.assertEqual(path, "/v1/metrics")
            for resource in body["resourceMetrics"]:
                service = resource["resource"]["attributes"]
                self.assertEqual(
                    service, [{"key": "service.name", "value": {"stringValue": "billow"}}]
                )
                for scope in resource["scopeMetrics"]:
                    for metric in scope["metrics"]:
                        metrics[metric["name"]] = metric
                        (kind,) = set(metric) & {"gauge", "sum", "histogram"}
                        for point in metric[kind]["dataPoints"]:
                            labels = frozenset(
                                (a["key"], a["value"]["stringValue"]) for a in point["attributes"]
                            )
                            points[metric["name"], labels] = point
        return points, metrics

    def scraped(self):
        """{(name, labels): value} and {name: type} of /metrics."""
        text = self.rig.api("GET", "/metrics").body.decode()
        types = dict(re.findall(r"^# TYPE (\S+) (\S+)", text, re.M))
        series = {}
        for name, labels, value in re.findall(r"^(\w+)(?:\{(.*)\})? (\S+)$", text, re.M):
            pairs = re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels)
            series[name, frozenset(pairs)] = float(value)
        return series, types

    def test_a_collector_gets_the_same_series_as_a_scrape(self):
        job = self.rig.submit("--gpus", 1, "--", "sleep", 600)
        self.rig.wait_for(job, "running")
        held = lambda: [
            point
            for (name, labels), point in self.pushed()[0].items()
            if name == "billow_gpu_job_info" and ("job", str(job)) in labels
        ]
        poll(held, "the job's series", 60)
        readings = lambda: [k for k in self.scraped()[0] if k[0] == "DCGM_FI_DEV_FB_FREE"]
        poll(readings, "readings of the GPUs", 60)
        series, types = self.scraped()
        numbers = [key for key in series if types.get(key[0]) in ("gauge", "counter")]
        poll(lambda: set(numbers) <= set(self.pushed()[0]), "every series of a scrape", 60)
        points, metrics = self.pushed()
        self.assertEqual(held()[0]["asDouble"], 1)
        for name, kind in types.items():
            self.assertIn(name, metrics)
            field = {"counter": "sum", "gauge": "gauge", "histogram": "histogram"}[kind]
            self.assertIn(field, metrics[name], name)
            if kind == "counter":
                self.assertTrue(metrics[name]["sum"]["isMonotonic"])
                self.assertEqual(metrics[name]["sum"]["aggregationTemporality"], 2)
        memory = next(k for k in series if k[0] == "DCGM_FI_DEV_FB_FREE")
        self.assertGreater(points[memory]["asDouble"], 0)
        self.rig.ok("stop", "--force", job)

    def test_histograms_have_counts_between_their_bounds(self):
        self.rig.ok("run", "--", "true")
        poll(
            lambda: "billow_command_seconds" in self.pushed()[1],
            "a histogram",
            60,
        )
        (point,) = self.pushed()[1]["billow_command_seconds"]["histogram"]["dataPoints"]
        counts = [int(c) for c in point["bucketCounts"]]
        self.assertEqual(len(counts), len(point["explicitBounds"]) + 1)
        self.assertEqual(sum(counts), int(point["count"]))
        self.assertGreater(int(point["count"]), 0)
        self.assertGreater(int(point["timeUnixNano"]), int(point["startTimeUnixNano"]))

    def test_a_bad_address_is_refused_at_the_start(self):
        rig = Rig(up=False)
        self.addCleanup(rig.close)
        refused = rig.cli("up", "--otlp-metrics", "not a url", "--listen", "127.0.0.1:0")
        self.assertNotEqual(refused.code, 0)
        self.assertIn("--otlp-metrics", refused.errors)


if __name__ == "__main__":
    unittest.main()
