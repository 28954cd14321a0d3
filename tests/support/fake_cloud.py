"""Providers of rented machines, each in the shape of its own documentation, on loopback. A machine is a
process: the start-up script that the order brought is run below a directory of its own.

A test sets faults: `cloud.fault("create", "lost")` lets the next creation happen and loses its answer.
Everything that was asked is in `cloud.requests`.
"""
import base64
import json
import os
import signal
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

from rig import BIN, MARK, poll

KEY = "key-0123456789abcdef"


class Cloud:
    """What all providers have in common. A shape says where things are."""

    def __init__(self, shape, root, mark):
        self.shape, self.root, self.mark = shape(self), root, mark
        self.lock = threading.RLock()
        self.machines, self.objects = {}, {}
        self.requests, self.faults = [], []
        self.created, self.deleted = [], []
        self.hidden_looks = 0  # a new machine is missing from so many lists
        self.first_state = None  # instead of the running state
        self.boots = True
        self.closed = False
        self.next_id = 100
        os.makedirs(root, exist_ok=True)
        cloud = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def handle_any(self):
                length = int(self.headers.get("Content-Length") or 0)
                cloud.answer(self, self.rfile.read(length))

            do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = handle_any

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}" + self.shape.base
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        with self.lock:  # connections outlive the server: an order on one of them starts nothing
            self.closed = True
            machines = list(self.machines.values())
        for machine in machines:
            self.power_off(machine)

    # ---- faults
    def fault(self, verb, what, times=1):
        with self.lock:
            self.faults += [(verb, what)] * times

    def take(self, verb):
        for i, (wanted, what) in enumerate(self.faults):
            if wanted == verb:
                del self.faults[i]
                return what
        return None

    # ---- requests
    def answer(self, handler, body):
        parts = urlsplit(handler.path)
        request = {
            "method": handler.command,
            "path": unquote(parts.path),
            "query": {k: v[0] for k, v in parse_qs(parts.query).items()},
            "url": handler.path,
            "headers": dict(handler.headers),
            "body": json.loads(body) if body else None,
        }
        with self.lock:
            self.requests.append(request)
            status, answer, lost = self.decide(request)
        if lost:
            handler.close_connection = True
            handler.connection.close()
            return
        text = answer if isinstance(answer, str) else json.dumps(answer)
        handler.send_response(status)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(text.encode())))
        if status == 429:
            handler.send_header("Retry-After", "1")
        handler.end_headers()
        handler.wfile.write(text.encode())

    def decide(self, request):
        if self.closed:
            return 0, "", True
        path = request["path"]
        if not path.startswith(self.shape.base):
            return 404, {"message": "no such path"}, False
        request["path"] = path[len(self.shape.base) :]
        if not self.shape.allowed(request):
            return 401, self.shape.error(401, "unauthorized", "bad key"), False
        verb = self.shape.verb(request)
        what = self.take(verb)
        if what == "429":
            return 429, self.shape.error(429, "rate", "slow down"), False
        if what == "500":
            return 500, "<html>Internal Server Error</html>", False
        if what == "lost-before":
            return 0, "", True
        if what == "capacity":
            return *self.shape.capacity(), False
        if isinstance(what, tuple):
            return *what, False
        status, answer = self.shape.route(verb, request)
        if what == "lost":
            return 0, "", True
        return status, answer, False

    # ---- machines
    def create(self, name, script, **facts):
        self.next_id += 1
        machine = {
            "id": str(self.next_id),
            "name": name,
            "state": self.first_state or self.shape.here,
            "hidden": self.hidden_looks,
            "script": script,
            **facts,
        }
        machine["root"] = os.path.join(self.root, machine["id"])
        self.machines[machine["id"]] = machine
        self.created.append(name)
        if self.boots and machine["state"] == self.shape.here:
            self.boot(machine)
        return machine

    def boot(self, machine):
        os.makedirs(machine["root"])
        path = os.path.join(machine["root"], "user-data")
        with open(path, "w", encoding="utf-8") as f:
            f.write(machine["script"])
        env = {
            "PATH": os.path.abspath(BIN) + ":/usr/bin:/bin",
            "HOME": machine["root"],
            "BILLOW_BOOT_ROOT": machine["root"],
            "BILLOW_BOOT_PLAIN": "1",
            "BILLOW_BOOT_END": "true",
            MARK: self.mark,
        }
        machine["process"] = subprocess.Popen(
            ["sh", path], env=env, stdin=subprocess.DEVNULL, start_new_session=True
        )

    def power_off(self, machine):
        """Ends the machine's shells first: they would start the agent again."""
        if "process" not in machine:
            return
        wanted = f"BILLOW_BOOT_ROOT={machine['root']}".encode()

        def running():
            found = []
            for pid in filter(str.isdigit, os.listdir("/proc")):
                try:
                    with open(f"/proc/{pid}/environ", "rb") as f:
                        if wanted not in f.read().split(b"\0"):
                            continue
                    with open(f"/proc/{pid}/comm", encoding="ascii") as f:
                        found.append((int(pid), f.read().strip()))
                except OSError:
                    continue
            return found

        def end():
            for pid, program in running():
                kind = signal.SIGKILL if program == "sh" else signal.SIGTERM
                try:
                    os.kill(pid, kind)
                except ProcessLookupError:
                    pass
            return not running()

        poll(end, f"machine {machine['name']} to end", 30)
        machine["process"].wait()

    def visible(self):
        shown = []
        for machine in self.machines.values():
            if machine["hidden"] > 0:
                machine["hidden"] -= 1
            else:
                shown.append(machine)
        return shown

    def delete(self, machine_id):
        machine = self.machines.pop(str(machine_id), None)
        if not machine:
            return None
        self.deleted.append(machine["name"])
        self.power_off(machine)
        return machine


class Shape:
    base = ""
    here = "active"

    def __init__(self, cloud):
        self.cloud = cloud

    def allowed(self, request):
        return request["headers"].get("Authorization") == "Bearer " + KEY

    def credential(self):
        return KEY


class Lambda(Shape):
    name, base = "lambda", "/api/v1"

    def verb(self, r):
        return {
            ("POST", "/instance-operations/launch"): "create",
            ("GET", "/instances"): "list",
            ("POST", "/instance-operations/terminate"): "delete",
            ("GET", "/instance-types"): "offers",
            ("GET", "/ssh-keys"): "keys",
        }[r["method"], r["path"]]

    def error(self, _, code, text):
        return {"error": {"code": "global/" + code, "message": text, "suggestion": ""}}

    def capacity(self):
        return 400, {
            "error": {
                "code": "instance-operations/launch/insufficient-capacity",
                "message": "Not enough capacity to fulfill launch request.",
            }
        }

    def route(self, verb, r):
        if verb == "keys":
            return 200, {"data": [{"id": "1", "name": "laptop", "public_key": "ssh-ed25519 A"}]}
        if verb == "offers":
            kind = {
                "name": "gpu_1x_h100_sxm5",
                "description": "1x H100 (80 GB SXM5)",
                "gpu_description": "H100 (80 GB SXM5)",
                "price_cents_per_hour": 329,
                "specs": {"vcpus": 26, "memory_gib": 225, "storage_gib": 2816, "gpus": 1},
            }
            places = [{"name": "us-east-1", "description": "Virginia, USA"}]
            return 200, {
                "data": {
                    kind["name"]: {
                        "instance_type": kind,
                        "regions_with_capacity_available": places,
                    }
                }
            }
        if verb == "create":
            b = r["body"]
            assert b["ssh_key_names"] == ["laptop"] and b["region_name"] == "us-east-1", b
            assert set(b) <= {
                "region_name", "instance_type_name", "ssh_key_names", "name", "user_data"
            }, b  # fmt: skip
            made = self.cloud.create(b["name"], b["user_data"])
            return 200, {"data": {"instance_ids": [made["id"]]}}
        if verb == "list":
            return 200, {
                "data": [
                    {
                        "id": m["id"],
                        "name": m["name"],
                        "status": m["state"],
                        "region": {"name": "us-east-1"},
                    }
                    for m in self.cloud.visible()
                ]
            }
        ended = [self.cloud.delete(i) for i in r["body"]["instance_ids"]]
        if None in ended:
            return 404, self.error(
                404, "object-does-not-exist", "Specified instance does not exist."
            )
        return 200, {"data": {"terminated_instances": []}}


class RunPod(Shape):
    name, base, here = "runpod", "/v2", "RUNNING"

    def verb(self, r):
        if r["path"] == "/pods":
            return "create" if r["method"] == "POST" else "list"
        return "offers" if r["path"] == "/catalog/gpus" else "delete"

    def error(self, status, code, text):
        return {"title": code, "status": status, "detail": text}

    def capacity(self):
        return 400, self.error(
            400,
            "Bad Request",
            "There are no longer any instances available with the requested specifications.",
        )

    def route(self, verb, r):
        if verb == "offers":
            return 200, {
                "gpus": [
                    {
                        "id": "NVIDIA H100 80GB HBM3",
                        "memory": 80,
                        "secure": True,
                        "price": {"secure": 2.99},
                        "maxCount": {"secure": 8},
                        "dataCenters": [{"id": "EU-RO-1", "availability": "LOW"}],
                    }
                ]
            }
        if verb == "create":
            b = r["body"]
            assert b["gpu"] == {"id": "NVIDIA H100 80GB HBM3", "count": 1}, b
            assert b["dataCenterIds"] == ["EU-RO-1"] and isinstance(b["disk"], int), b
            made = self.cloud.create(b["name"], b["args"])
            return 201, {"id": made["id"], "status": "PROVISIONING"}
        if verb == "list":
            return 200, {
                "pods": [
                    {
                        "id": m["id"],
                        "name": m["name"],
                        "status": m["state"],
                        "dataCenterId": "EU-RO-1",
                    }
                    for m in self.cloud.visible()
                ]
            }
        if not self.cloud.delete(r["path"].rsplit("/", 1)[1]):
            return 404, self.error(404, "Not Found", "The requested Pod does not exist.")
        return 204, ""


class DigitalOcean(Shape):
    name, base = "digitalocean", "/v2"
    page = 1  # a page has one machine, so that every list has several

    def verb(self, r):
        if r["path"] == "/droplets":
            return "create" if r["method"] == "POST" else "list"
        return "offers" if r["path"] == "/sizes" else "delete"

    def error(self, _, code, text):
        return {"id": code, "message": text}

    def capacity(self):
        return 422, self.error(422, "unprocessable_entity", "Size is not available in this region.")

    def route(self, verb, r):
        if verb == "offers":
            return 200, {
                "sizes": [
                    {
                        "slug": "gpu-h100x1-80gb",
                        "memory": 245760,
                        "vcpus": 20,
                        "price_hourly": 3.39,
                        "regions": ["tor1"],
                        "available": True,
                        "gpu_info": {"count": 1, "model": "nvidia_h100"},
                    }
                ],
                "links": {},
            }
        if verb == "create":
            b = r["body"]
            assert b["tags"][0] == "billow" and "ssh_keys" not in b, b
            made = self.cloud.create(b["name"], b["user_data"])
            return 202, {"droplet": {"id": int(made["id"])}}
        if verb == "list":
            gpus = r["query"].get("type") == "gpus"
            rows = [
                {"id": int(m["id"]), "name": m["name"], "status": m["state"], "tags": []}
                for m in (self.cloud.visible() if gpus else [])
            ]
            page = int(r["query"].get("page", "1"))
            links = {}
            if page < len(rows):
                links = {"pages": {"next": f"{self.cloud.url}/droplets?type=gpus&page={page + 1}"}}
            return 200, {"droplets": rows[page - 1 : page], "links": links, "meta": {"total": 1}}
        if not self.cloud.delete(r["path"].rsplit("/", 1)[1]):
            return 404, self.error(404, "not_found", "The resource could not be found.")
        return 204, ""


class Vultr(Shape):
    name, base = "vultr", "/v2"

    def verb(self, r):
        if r["path"] == "/instances":
            return "create" if r["method"] == "POST" else "list"
        return "offers" if r["path"] == "/plans" else "delete"

    def error(self, status, _, text):
        return {"error": text, "status": status}

    def capacity(self):
        return 400, self.error(400, "", "Plan is not available in the selected region.")

    def route(self, verb, r):
        if verb == "offers":
            return 200, {
                "plans": [
                    {
                        "id": "vcg-h100-16c-120g-80vram",
                        "vcpu_count": 16,
                        "ram": 122880,
                        "monthly_cost": 1800,
                        "gpu_vram_gb": 80,
                        "gpu_type": "NVIDIA_H100",
                        "locations": ["ewr"],
                    }
                ],
                "meta": {"links": {"next": "", "prev": ""}},
            }
        if verb == "create":
            b = r["body"]
            assert b["os_id"] == 1743 and b["activation_email"] is False, b
            made = self.cloud.create(b["label"], base64.b64decode(b["user_data"]).decode())
            return 202, {"instance": {"id": made["id"]}}
        if verb == "list":
            # One machine a page, by cursor.
            rows = self.cloud.visible()
            at = int(r["query"].get("cursor") or 0)
            more = str(at + 1) if at + 1 < len(rows) else ""
            return 200, {
                "instances": [
                    {
                        "id": m["id"],
                        "label": m["name"],
                        "status": m["state"],
                        "region": "ewr",
                        "power_status": "running",
                    }
                    for m in rows[at : at + 1]
                ],
                "meta": {"total": len(rows), "links": {"next": more, "prev": ""}},
            }
        if not self.cloud.delete(r["path"].rsplit("/", 1)[1]):
            return 404, self.error(404, "", "Invalid instance.")
        return 204, ""


class Hyperstack(Shape):
    name, base, here = "hyperstack", "/v1", "ACTIVE"

    def allowed(self, request):
        return request["headers"].get("api_key") == KEY

    def verb(self, r):
        known = {
            "/core/flavors": "offers",
            "/pricebook": "prices",
            "/core/environments": "environments",
            "/core/keypairs": "keys",
        }
        if r["path"] == "/core/virtual-machines":
            return "create" if r["method"] == "POST" else "list"
        assert r["path"] in known or r["method"] == "DELETE", "start and stop are GET requests"
        return known.get(r["path"], "delete")

    def error(self, _, code, text):
        return {"status": False, "message": text, "error_reason": code}

    def capacity(self):
        return 409, self.error(409, "conflict", "This GPU is out of stock in this region")

    def route(self, verb, r):
        ok = {"status": True, "message": "done"}
        if verb == "environments":
            rows = [{"name": "wrong", "region": "NORWAY-1"}, {"name": "main", "region": "CANADA-1"}]
            return 200, {**ok, "environments": rows}
        if verb == "keys":
            return 200, {**ok, "keypairs": [{"name": "mine", "environment": {"name": "main"}}]}
        if verb == "prices":
            return 200, [{"name": "H100-80G-SXM5", "value": 2.4}]
        if verb == "offers":
            flavor = {
                "name": "n3-H100-SXMx1",
                "gpu": "H100-80G-SXM5",
                "gpu_count": 1,
                "cpu": 24,
                "ram": 240.0,
                "region_name": "CANADA-1",
                "stock_available": True,
            }
            return 200, {**ok, "data": [{"gpu": "H100-80G-SXM5", "flavors": [flavor]}]}
        if verb == "create":
            b = r["body"]
            assert (b["environment_name"], b["key_name"], b["count"]) == ("main", "mine", 1), b
            assert len(b["name"]) <= 50, b
            made = self.cloud.create(b["name"], b["user_data"])
            return 200, {**ok, "instances": [{"id": int(made["id"]), "name": b["name"]}]}
        if verb == "list":
            size, page = int(r["query"]["pageSize"]), int(r["query"]["page"])
            rows = self.cloud.visible()[(page - 1) * size : page * size]
            return 200, {
                **ok,
                "instances": [
                    {
                        "id": int(m["id"]),
                        "name": m["name"],
                        "status": m["state"],
                        "environment": {"region": "CANADA-1"},
                    }
                    for m in rows
                ],
            }
        if not self.cloud.delete(r["path"].rsplit("/", 1)[1]):
            return 404, self.error(404, "not_found", "Virtual machine does not exist")
        return 200, ok


class Verda(Shape):
    name, base, here = "verda", "/v1", "running"
    token = "oauth-token-123456"
    tokens = 0

    def credential(self):
        return "client-id:" + KEY

    def allowed(self, r):
        if r["path"] == "/oauth2/token":
            return r["body"] == {
                "grant_type": "client_credentials",
                "client_id": "client-id",
                "client_secret": KEY,
            }
        return r["headers"].get("Authorization") == f"Bearer {self.token}{self.tokens}"

    def verb(self, r):
        if r["path"] == "/instances":
            return {"POST": "create", "GET": "list", "PUT": "delete"}[r["method"]]
        return {
            "/oauth2/token": "token",
            "/instance-types": "offers",
            "/instance-availability": "places",
            "/ssh-keys": "keys",
            "/volumes": "disks",
        }.get(r["path"], "scripts")

    def error(self, _, code, text):
        return {"code": code, "message": text}

    def capacity(self):
        return 400, self.error(400, "invalid_request", "Instance type is not available right now")

    def route(self, verb, r):
        cloud = self.cloud
        if verb == "token":
            self.tokens += 1
            return 200, {"access_token": f"{self.token}{self.tokens}", "expires_in": 3600}
        if verb == "keys":
            return 200, [{"id": "key-1", "name": "laptop"}]
        if verb == "disks":
            return 200, []
        if verb == "places":
            rows = [{"location_code": "FIN-01", "availabilities": ["1H100.80S.30V"]}]
            return 200, rows if r["query"]["isSpot"] == "false" else []
        if verb == "offers":
            return 200, [
                {
                    "instance_type": "1H100.80S.30V",
                    "price_per_hour": "2.19",
                    "spot_price": "0.88",
                    "model": "H100",
                    "gpu": {"number_of_gpus": 1},
                    "gpu_memory": {"size_in_gigabytes": 80},
                    "cpu": {"number_of_cores": 30},
                    "memory": {"size_in_gigabytes": 120},
                }
            ]
        if verb == "scripts":
            if r["method"] == "POST":
                cloud.next_id += 1
                cloud.objects[f"script-{cloud.next_id}"] = r["body"]
                return 201, f"script-{cloud.next_id}"
            if r["method"] == "GET":
                rows = [{"id": i, **body} for i, body in cloud.objects.items()]
                return 200, rows
            del cloud.objects[r["path"].rsplit("/", 1)[1]]
            return 200, ""
        if verb == "create":
            b = r["body"]
            assert b["is_spot"] is False and b["ssh_key_ids"] == ["key-1"], b
            made = cloud.create(b["hostname"], cloud.objects[b["startup_script_id"]]["script"])
            return 202, made["id"]
        if verb == "list":
            return 200, [
                {"id": m["id"], "hostname": m["name"], "status": m["state"], "location": "FIN-01"}
                for m in cloud.visible()
            ]
        assert r["body"]["action"] == "delete", r["body"]
        machine = cloud.machines.get(r["body"]["id"][0])
        if machine and machine["state"] == "provisioning":
            machine["refused"] = machine.get("refused", 0) + 1
            return 400, self.error(
                400, "invalid_request", "Can't discontinue a provisioning instance"
            )
        if not cloud.delete(r["body"]["id"][0]):
            return 400, self.error(400, "invalid_request", "Invalid instance id")
        return 202, ""


class Vast(Shape):
    name, base, here = "vast", "/api", "running"

    def verb(self, r):
        if r["path"].startswith("/v0/asks/"):
            return "create"
        return {"/v1/instances/": "list", "/v0/bundles/": "offers"}.get(r["path"], "delete")

    def error(self, _, code, text):
        return {"success": False, "error": code, "msg": text}

    def capacity(self):
        return 410, self.error(
            410,
            "no_such_ask",
            "error 410/3907: no_such_ask Instance type 7 is no longer available.",
        )

    def route(self, verb, r):
        if verb == "offers":
            spot = r["body"]["type"] == "bid"
            row = {
                "id": 7001 if spot else 7000,
                "gpu_name": "H100 SXM",
                "num_gpus": 1,
                "cpu_cores_effective": 24.0,
                "cpu_ram": 193000,
                "dph_total": 2.1,
                "min_bid": 0.9,
                "geolocation": "Norway, NO",
            }
            return 200, {"offers": [row]}
        if verb == "create":
            b = r["body"]
            assert b["args"][:2] == ["sh", "-c"] and sum(map(len, b["args"])) <= 4096, b
            assert b["runtype"] == "args" and ("price" in b) == r["path"].endswith("/7001/"), b
            if b.get("price", 9) < 1:
                # The bid is too low: refused, and a stopped contract exists nevertheless.
                made = self.cloud.create(b["label"], b["args"][2], state="stopped")
                answer = self.error(400, "invalid_price", "your bid is below the minimum bid")
                return 400, {**answer, "new_contract": int(made["id"])}
            made = self.cloud.create(b["label"], b["args"][2])
            return 200, {"success": True, "new_contract": int(made["id"])}
        if verb == "list":
            return 200, {
                "success": True,
                "next_token": None,
                "instances": [
                    {
                        "id": int(m["id"]),
                        "label": m["name"],
                        "actual_status": m["state"],
                        "intended_status": "stopped" if m["state"] == "stopped" else "running",
                        "geolocation": "Norway, NO",
                    }
                    for m in self.cloud.visible()
                ],
            }
        if not self.cloud.delete(r["path"].strip("/").rsplit("/", 1)[1]):
            return 404, self.error(404, "not_found", "Instance not found")
        return 200, {"success": True}


class Shadeform(Shape):
    name, base = "shadeform", "/v1"

    def allowed(self, request):
        headers = {k.lower(): v for k, v in request["headers"].items()}
        return headers.get("x-api-key") == KEY

    def verb(self, r):
        if r["path"] == "/instances":
            return "list"
        return {"/instances/create": "create", "/instances/types": "offers"}.get(
            r["path"], "delete"
        )

    def error(self, _, code, text):
        return {"code": code.upper(), "message": text}

    def capacity(self):
        return 409, self.error(409, "out_of_stock", "The instance type is out of stock")

    def route(self, verb, r):
        if verb == "offers":
            return 200, {
                "instance_types": [
                    {
                        "cloud": "hyperstack",
                        "shade_instance_type": "H100_sxm5",
                        "hourly_price": 240,
                        "configuration": {
                            "memory_in_gb": 180,
                            "vcpus": 28,
                            "num_gpus": 1,
                            "gpu_type": "H100",
                            "vram_per_gpu_in_gb": 80,
                        },
                        "availability": [{"region": "canada-1", "available": True}],
                    }
                ]
            }
        if verb == "create":
            b = r["body"]
            assert (b["cloud"], b["shade_instance_type"]) == ("hyperstack", "H100_sxm5"), b
            script = b["launch_configuration"]["script_configuration"]["base64_script"]
            made = self.cloud.create(b["name"], base64.b64decode(script).decode())
            return 200, {"id": made["id"]}
        if verb == "list":
            return 200, {
                "instances": [
                    {"id": m["id"], "name": m["name"], "status": m["state"], "region": "canada-1"}
                    for m in self.cloud.visible()
                ]
            }
        if not self.cloud.delete(r["path"].split("/")[2]):
            return 404, self.error(404, "not_found", "no such instance")
        return 200, ""


class Crusoe(Shape):
    name, base, here = "crusoe", "/v1", "STATE_RUNNING"
    secret = base64.urlsafe_b64encode(KEY.encode()).decode().rstrip("=")

    def credential(self):
        return "access-key:" + self.secret

    def allowed(self, r):
        import hashlib
        import hmac

        time = r["headers"].get("X-Crusoe-Timestamp", "")
        query = "&".join(sorted(filter(None, urlsplit(r["url"]).query.split("&"))))
        payload = f"{urlsplit(r['url']).path}\n{query}\n{r['method']}\n{time}\n"
        digest = hmac.new(KEY.encode(), payload.encode(), hashlib.sha256).digest()
        signature = base64.urlsafe_b64encode(digest).decode().rstrip("=")
        return r["headers"].get("Authorization") == f"Bearer 1.0:access-key:{signature}"

    def verb(self, r):
        vms = "/projects/p-1/compute/vms/instances"
        if r["path"] == vms:
            return "create" if r["method"] == "POST" else "list"
        if r["path"].startswith(vms + "/operations/"):
            return "operation"
        return {
            "/organizations/projects": "projects",
            "/users/ssh-keys": "keys",
            "/projects/p-1/compute/vms/types": "offers",
            "/capacities": "places",
        }.get(r["path"], "delete")

    def error(self, _, code, text):
        return {"code": code, "message": text}

    def capacity(self):
        """Accepted; the operation fails later, and there is no machine."""
        return 200, {"operation": {"operation_id": "failed-1", "state": "IN_PROGRESS"}}

    def route(self, verb, r):
        if verb == "projects":
            return 200, {"items": [{"id": "p-1", "name": "main", "organization_id": "o-1"}]}
        if verb == "keys":
            return 200, {"items": [{"id": "k", "public_key": "ssh-ed25519 AAAA"}]}
        if verb == "offers":
            row = {
                "product_name": "h100-80gb-sxm-ib.1x",
                "gpu_type": "H100-80GB-SXM",
                "num_gpu": 1,
                "cpu_cores": 22,
                "memory_gb": 235,
            }
            return 200, {"items": [row]}
        if verb == "places":
            row = {"location": "us-east1-a", "type": "h100-80gb-sxm-ib.1x", "quantity": 3}
            return 200, {"items": [row]}
        if verb == "operation":
            if r["path"].endswith("failed-1"):
                result = {"code": "out_of_stock", "message": "no h100 left in us-east1-a"}
                return 200, {"state": "FAILED", "result": result}
            return 200, {"state": "SUCCEEDED"}
        if verb == "create":
            b = r["body"]
            assert b["ssh_public_key"] == "ssh-ed25519 AAAA" and b["location"] == "us-east1-a", b
            made = self.cloud.create(b["name"], b["startup_script"])
            return 200, {
                "operation": {"operation_id": "op-" + made["id"], "metadata": {"id": made["id"]}}
            }
        if verb == "list":
            return 200, {
                "items": [
                    {
                        "id": m["id"],
                        "name": m["name"],
                        "state": m["state"],
                        "location": "us-east1-a",
                    }
                    for m in self.cloud.visible()
                ],
                "next_page_token": "",
            }
        if not self.cloud.delete(r["path"].rsplit("/", 1)[1]):
            return 404, self.error(404, "not_found", "no such VM")
        return 200, {"operation": {"operation_id": "del"}}


SHAPES = [Crusoe, DigitalOcean, Hyperstack, Lambda, RunPod, Shadeform, Vast, Verda, Vultr]
