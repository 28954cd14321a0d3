"""The server that replicas of endpoints run in tests. A test writes only what its answers are; the
rest is here: HTTP/1.1 with many connections on 127.0.0.1:$PORT."""

PRELUDE = '''
import http.server, json, os, sys, threading, time

class Replica(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def body(self):
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))
    def say(self, out, status=200, headers=()):
        """Answers with bytes, or with a value as JSON."""
        if not isinstance(out, bytes):
            out = json.dumps(out).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(out)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(out)
    def log_message(self, *args):
        pass

class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128
    daemon_threads = True
'''

SERVE = '''
Replica.do_GET = Replica.do_POST = answer
Server(("127.0.0.1", int(os.environ["PORT"])), Replica).serve_forever()
'''


def program(answer):
    """The program of a replica. `answer` defines `answer(self)`, for GET and POST."""
    return PRELUDE + answer + SERVE
