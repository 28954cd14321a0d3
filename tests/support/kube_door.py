"""How the double of a cluster (kube_double.py) is reached: its certificates, and its HTTP."""
import json
import os
import socket
import subprocess
import urllib.parse
import uuid
from http.server import BaseHTTPRequestHandler

from kube_pod import Refused


def make_certificates(folder):
    """An authority, a server certificate of it for 127.0.0.1 and a client certificate."""

    def openssl(*args):
        subprocess.run(["openssl", *args], check=True, capture_output=True, cwd=folder)

    def key(name):
        openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", name + ".key")

    key("ca")
    openssl("req", "-x509", "-key", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=double")
    for name, subject in (("server", "/CN=kubernetes"), ("client", "/O=billow/CN=by-certificate")):
        key(name)
        openssl("req", "-new", "-key", name + ".key", "-out", name + ".csr", "-subj", subject)
        with open(os.path.join(folder, "ext"), "w", encoding="ascii") as f:
            f.write("subjectAltName=IP:127.0.0.1,DNS:kubernetes\n")
        openssl(
            *("x509", "-req", "-in", name + ".csr", "-CA", "ca.pem", "-CAkey", "ca.key"),
            *("-CAcreateserial", "-days", "2", "-out", name + ".pem", "-extfile", "ext"),
        )


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    cluster = None

    def log_message(self, *_):
        pass

    def answer(self, code, body):
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Audit-Id", str(uuid.uuid4()))
        if code == 429:
            self.send_header("Retry-After", "1")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def handle_one(self):
        url = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        cluster = self.cluster
        kind = "WATCH" if query.get("watch") else self.command
        if kind == "GET" and url.path.endswith("/pods"):
            kind = "LIST"
        cluster.requests.append((kind, url.path))
        try:
            cluster.misbehave(self)
            user = cluster.who(self)
            if query.get("watch"):
                cluster.check(user, "watch", "pods", "team")
                try:
                    return self.watch(url.path, query)
                except OSError:  # the client has gone
                    self.close_connection = True
                    return None
            if self.headers.get("Content-Type") == "application/apply-patch+yaml":
                code, answer = cluster.apply(url.path, query, body)
            else:
                code, answer = cluster.handle(user, self.command, url.path, query, body)
        except Refused as refused:
            code, answer = refused.code, refused.status
        except ConnectionAbortedError:
            self.close_connection = True
            return None
        if cluster.loses_answer(self.command, url.path):
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return None
        return self.answer(code, answer)

    def watch(self, path, query):
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in self.cluster.watch(path, query):
            if event is None:  # cut in the middle of an event
                self.wfile.write(b'14\r\n{"type":"MODIFIED","o')
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return
            line = json.dumps(event).encode() + b"\n"
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    do_GET = do_POST = do_DELETE = do_PUT = do_PATCH = lambda self: self.handle_one()
