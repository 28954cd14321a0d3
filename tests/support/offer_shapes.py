"""The APIs of providers that sell machines by offers, for fake_cloud.py: RunPod, Shadeform, Vast and
Verda."""
import base64

from cloud_shapes import KEY, Shape


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
