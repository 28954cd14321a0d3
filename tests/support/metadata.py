"""A cloud's metadata service as machines see it, on loopback: the protocols of AWS (version 2, with its token), GCP and Azure, each
answering only to its own way of being asked. A test says when the machine is to go."""
import http.server
import json
import threading


class Metadata:
    def __init__(self, cloud, name="vm-1"):
        self.cloud, self.name, self.going, self.asked, self.wrong = cloud, name, False, 0, []
        metadata = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self, status, body="", **headers):
                data = body.encode()
                self.send_response(status)
                for key, value in headers.items():
                    self.send_header(key.replace("_", "-"), value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def do_PUT(self):
                if (
                    metadata.cloud == "aws"
                    and self.path == "/latest/api/token"
                    and self.headers.get("X-aws-ec2-metadata-token-ttl-seconds")
                ):
                    return self.answer(200, "token-4711")
                return self.answer(405)

            def do_GET(self):
                return getattr(self, metadata.cloud)()

            def aws(self):
                if self.headers.get("X-aws-ec2-metadata-token") != "token-4711":
                    return self.answer(401)
                if self.path != "/latest/meta-data/spot/instance-action":
                    return self.answer(404)
                metadata.asked += 1
                return (
                    self.answer(
                        200, json.dumps({"action": "terminate", "time": "2030-09-18T08:22:00Z"})
                    )
                    if metadata.going
                    else self.answer(404)
                )

            def gcp(self):
                if self.headers.get("Metadata-Flavor") != "Google":
                    return self.answer(403)
                values = {
                    "/computeMetadata/v1/instance/preempted": "TRUE" if metadata.going else "FALSE",
                    "/computeMetadata/v1/instance/maintenance-event": "NONE",
                }
                if self.path not in values:
                    return self.answer(404)
                metadata.asked += 1
                return self.answer(200, values[self.path], Metadata_Flavor="Google")

            def azure(self):
                if self.headers.get("Metadata") != "true" or "api-version=" not in self.path:
                    return self.answer(400)
                if self.path.startswith("/metadata/instance/compute/name"):
                    return self.answer(200, metadata.name)
                if not self.path.startswith("/metadata/scheduledevents"):
                    return self.answer(404)
                metadata.asked += 1
                # Others of the same set come and go all the time.
                events = [
                    {
                        "EventId": "1",
                        "EventType": "Preempt",
                        "EventStatus": "Scheduled",
                        "ResourceType": "VirtualMachine",
                        "Resources": ["another"],
                        "NotBefore": "",
                    }
                ]
                if metadata.going:
                    events.append(
                        {
                            "EventId": "2",
                            "EventType": "Preempt",
                            "EventStatus": "Scheduled",
                            "ResourceType": "VirtualMachine",
                            "Resources": [metadata.name],
                            "NotBefore": "Mon, 19 Sep 2030 18:29:47 GMT",
                        }
                    )
                return self.answer(200, json.dumps({"DocumentIncarnation": 1, "Events": events}))

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
