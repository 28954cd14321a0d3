"""The APIs of providers of rented machines, for fake_cloud.py: Crusoe, DigitalOcean, Hyperstack, Lambda
and Vultr."""
import base64
from urllib.parse import urlsplit


KEY = "key-0123456789abcdef"


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
