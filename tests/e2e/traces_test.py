"""Traces of requests through a gateway: the caller's context, the replica's, and what a collector
gets."""

import http.client
import http.server
import json
import re
import threading
import unittest

from http2_test import Gateway
from rig import poll

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


if __name__ == "__main__":
    unittest.main()
