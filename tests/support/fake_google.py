"""A server that plays Google: its token endpoint, Compute Engine and the part of Resource Manager
that tells rights. Orders are accepted at once; what becomes of them shows in their operation."""
import re
import threading
import time
import uuid

from cloud_server import Answer, CloudServer

ZONE = re.compile(
    r"^/compute/v1/projects/([^/]+)/zones/([^/]+)/(instances|operations)(?:/([^/]+))?$"
)
DISK = re.compile(r"^/compute/v1/projects/[^/]+/zones/([^/]+)/disks(?:/([^/]+))?$")
ATTACH = re.compile(r"^/compute/v1/projects/[^/]+/zones/([^/]+)/instances/([^/]+)/attachDisk$")
POLICY = re.compile(r"^/compute/v1/projects/[^/]+/regions/([^/]+)/resourcePolicies(?:/([^/]+))?$")
BULK = re.compile(r"^/compute/v1/projects/([^/]+)/zones/([^/]+)/instances/bulkInsert$")
NAME = re.compile(r"^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$")
LABEL = re.compile(r"^[a-z0-9_-]{0,63}$")
FILTER = re.compile(r'\(labels\.([a-z-]+) = "([^"]*)"\)')


def problem(status, reason, message):
    return Answer(
        status,
        {
            "error": {
                "code": status,
                "message": message,
                "errors": [{"message": message, "domain": "global", "reason": reason}],
            }
        },
    )


class FakeGoogle(CloudServer):
    def __init__(self, certificate=None, page=500):
        super().__init__(certificate)
        self.page = page
        self.instances = {}  # (zone, name) → resource
        self.disks, self.addresses = set(), set()
        self.caches = {}  # (zone, name) → disks that stay
        self.policies = {}  # (region, name) → resource
        self.policies_made = []
        self.room = {}  # zone → how many machines it can still take
        self.operations = {}
        self.by_request = {}  # requestId → operation name
        self.created = []  # every instance that ever was
        self.capacity = {}  # zone → (code, message) of late refusals
        self.provision_s = 0.0  # until an accepted instance runs, or its operation fails
        self.delete_s = 0.0
        self.policy_s = 0.0  # until a placement policy is ready
        self.silent_zones, self.empty_zones = [], []
        self.tokens = set()
        self.used = set()  # permissions that the requests needed
        self.granted = None  # None: all
        self.quotas = {}  # region or "" → quotas
        self.types = []
        self.boot = None  # called with each instance that begins to run
        self.halt = None  # called with each instance that is deleted

    # ---- time

    def after(self, seconds, action):
        def run():
            with self.lock:
                action()

        if seconds <= 0:
            action()
            return
        timer = threading.Timer(seconds, run)
        timer.daemon = True
        timer.start()

    # ---- requests

    def serve(self, request):
        if request.path == "/token":
            token = "ya29." + uuid.uuid4().hex
            self.tokens.add(token)
            return Answer(200, {"access_token": token, "expires_in": 3599, "token_type": "Bearer"})
        if request.path.startswith("/computeMetadata/v1/"):
            return self.metadata(request)
        if request.headers.get("authorization", "")[7:] not in self.tokens:
            return problem(401, "authError", "Request had invalid authentication credentials.")
        if request.path == "/tokeninfo":
            return Answer(200, {"email": "somebody@example.com", "scope": "a b", "expires_in": 99})
        if request.path.endswith(":testIamPermissions"):
            asked = request.json()["permissions"]
            given = asked if self.granted is None else [p for p in asked if p in self.granted]
            return Answer(200, {"permissions": given})
        if found := POLICY.match(request.path):
            return self.policy(request, *found.groups())
        if request.path.endswith("/aggregated/resourcePolicies"):
            return self.list_policies(request)
        if found := DISK.match(request.path):
            return self.cache_disk(request, *found.groups())
        if found := ATTACH.match(request.path):
            return self.attach_disk(request, *found.groups())
        if request.path.endswith("/aggregated/disks"):
            return self.list_disks(request)
        if found := BULK.match(request.path):
            return self.bulk_insert(request, *found.groups())
        if found := ZONE.match(request.path):
            return self.in_zone(request, *found.groups())
        if request.path.endswith("/aggregated/instances"):
            return self.list(request)
        if request.path.endswith("/aggregated/machineTypes"):
            self.used.add("compute.machineTypes.list")
            items = {}
            for zone, kind in self.types:
                items.setdefault(f"zones/{zone}", {"machineTypes": []})["machineTypes"].append(kind)
            return Answer(200, {"items": items})
        if found := re.match(r"^/compute/v1/projects/[^/]+/regions/([^/]+)$", request.path):
            self.used.add("compute.regions.get")
            return Answer(200, {"quotas": self.quotas.get(found.group(1), [])})
        if re.match(r"^/compute/v1/projects/[^/]+$", request.path):
            self.used.add("compute.projects.get")
            return Answer(200, {"quotas": self.quotas.get("", [])})
        return problem(404, "notFound", f"no such method: {request}")

    def metadata(self, request):
        if request.headers.get("metadata-flavor") != "Google":
            return Answer(403)
        what = request.path[len("/computeMetadata/v1/") :]
        if what == "instance/service-accounts/default/token":
            self.tokens.add("ya29.machine")
            return Answer(200, {"access_token": "ya29.machine", "expires_in": 1800})
        texts = {
            "instance/service-accounts/default/email": b"machine@example.com",
            "project/project-id": b"their-project",
        }
        return Answer(200, texts[what]) if what in texts else Answer(404)

    def in_zone(self, request, project, zone, kind, name):
        if kind == "operations":
            self.used.add("compute.zoneOperations.get")
            operation = self.operations.get(name)
            return Answer(200, operation) if operation else problem(404, "notFound", name)
        if request.method == "POST":
            return self.insert(request, project, zone)
        instance = self.instances.get((zone, name))
        if request.method == "GET":
            self.used.add("compute.instances.get")
            return Answer(200, instance) if instance else problem(404, "notFound", name)
        self.used.add("compute.instances.delete")
        if not instance:
            return problem(404, "notFound", f"The resource 'instances/{name}' was not found")
        return self.delete(zone, name)

    def operation(self, zone, kind):
        name = "operation-" + uuid.uuid4().hex
        self.operations[name] = {
            "kind": "compute#operation",
            "name": name,
            "zone": f"{self.url}/compute/v1/projects/p/zones/{zone}",
            "operationType": kind,
            "status": "RUNNING",
        }
        return self.operations[name]

    def insert(self, request, project, zone):
        body, request_id = request.json(), request.query.get("requestId", "")
        if request_id in self.by_request:
            return Answer(200, dict(self.operations[self.by_request[request_id]]))
        name, labels = body["name"], body["labels"]
        if not NAME.match(name) or not all(LABEL.match(v) for v in labels.values()):
            return problem(400, "invalid", f"Invalid value for field 'resource.name': '{name}'")
        self.note_rights(project, body)
        if (zone, name) in self.instances:
            return problem(409, "alreadyExists", f"The resource '{name}' already exists")
        if zone in self.empty_zones:
            return problem(
                404,
                "notFound",
                f"The resource 'projects/p/zones/{zone}/machineTypes/x' was not found",
            )
        operation = self.operation(zone, "insert")
        self.by_request[request_id] = operation["name"]
        if zone in self.capacity:
            code, message = self.capacity[zone]

            def refuse():
                operation["status"] = "DONE"
                operation["httpErrorStatusCode"] = 503
                operation["error"] = {"errors": [{"code": code, "message": message}]}

            answer = dict(operation)
            self.after(self.provision_s, refuse)
            return Answer(200, answer)
        instance = dict(body, zone=f"{self.url}/compute/v1/projects/p/zones/{zone}")
        instance["status"] = "PROVISIONING"
        instance["creationTimestamp"] = time.strftime("%Y-%m-%dT%H:%M:%S.000-00:00", time.gmtime())
        self.instances[(zone, name)] = instance
        self.disks.add((zone, name))
        if any(card.get("accessConfigs") for card in body["networkInterfaces"]):
            self.addresses.add((zone, name))
        self.created.append(name)

        def run():
            operation["status"] = "DONE"
            if self.instances.get((zone, name)) is instance:
                instance["status"] = "RUNNING"
                if self.boot:
                    self.boot(instance)

        answer = dict(operation)
        self.after(self.provision_s, run)
        return Answer(200, answer)

    # ---- cache disks

    def cache_disk(self, request, zone, name):
        if request.method == "POST":
            self.used |= {"compute.disks.create", "compute.disks.setLabels"}
            body = request.json()
            if not NAME.match(body["name"]):
                return problem(400, "invalid", f"Invalid value: '{body['name']}'")
            if (zone, body["name"]) in self.caches:
                return problem(409, "alreadyExists", f"The resource '{body['name']}' exists")
            disk = dict(body, status="READY", users=[])
            disk["creationTimestamp"] = time.strftime("%Y-%m-%dT%H:%M:%S.000-00:00", time.gmtime())
            self.caches[(zone, body["name"])] = disk
            return Answer(200, dict(self.operation(zone, "insert"), status="DONE"))
        self.used.add("compute.disks.delete")
        disk = self.caches.get((zone, name))
        if not disk:
            return problem(404, "notFound", f"The resource 'disks/{name}' was not found")
        if disk["users"]:
            return problem(400, "resourceInUseByAnotherResource", f"'{name}' is in use")
        del self.caches[(zone, name)]
        return Answer(200, dict(self.operation(zone, "delete"), status="DONE"))

    def attach_disk(self, request, zone, instance):
        self.used |= {"compute.instances.attachDisk", "compute.disks.use"}
        body = request.json()
        disk = self.caches.get((zone, body["source"].rsplit("/", 1)[1]))
        if not disk or (zone, instance) not in self.instances:
            return problem(404, "notFound", "no such disk or instance")
        if disk["users"]:
            return problem(400, "resourceInUseByAnotherResource", f"'{disk['name']}' is in use")
        if body["autoDelete"]:
            return problem(400, "invalid", "a cache must stay")
        disk["users"] = [f"{self.url}/compute/v1/projects/p/zones/{zone}/instances/{instance}"]
        disk["device"] = body["deviceName"]
        return Answer(200, dict(self.operation(zone, "attachDisk"), status="DONE"))

    def list_disks(self, request):
        self.used.add("compute.disks.list")
        wanted = dict(FILTER.findall(request.query["filter"]))
        items = {"zones/us-west1-a": {"warning": {"code": "NO_RESULTS_ON_PAGE"}}}
        for (zone, _), disk in sorted(self.caches.items()):
            if all(disk["labels"].get(k) == v for k, v in wanted.items()):
                items.setdefault(f"zones/{zone}", {}).setdefault("disks", []).append(disk)
        return Answer(200, {"items": items})

    def detach(self, zone, name):
        for disk in self.caches.values():
            disk["users"] = [u for u in disk["users"] if not u.endswith(f"{zone}/instances/{name}")]

    # ---- gangs

    def policy(self, request, region, name):
        right = "compute.resourcePolicies."
        if request.method == "POST":
            self.used.add(right + "create")
            body = request.json()
            key = (region, body["name"])
            if key in self.policies:
                return problem(409, "alreadyExists", f"The resource '{key[1]}' already exists")
            placed = body["groupPlacementPolicy"]
            assert placed["collocation"] == "COLLOCATED" and NAME.match(body["name"]), body
            policy = dict(body, status="CREATING")
            policy["creationTimestamp"] = time.strftime(
                "%Y-%m-%dT%H:%M:%S.000-00:00", time.gmtime()
            )
            self.policies[key] = policy
            self.policies_made.append(key[1])
            self.after(self.policy_s, lambda: policy.update(status="READY"))
            return Answer(200, dict(self.operation(region, "insert"), status="RUNNING"))
        policy = self.policies.get((region, name))
        if request.method == "GET":
            self.used.add(right + "get")
            return Answer(200, policy) if policy else problem(404, "notFound", name)
        self.used.add(right + "delete")
        if not policy:
            return problem(404, "notFound", name)
        if any(
            name in instance.get("resourcePolicies", [])
            for (zone, _), instance in self.instances.items()
            if zone.startswith(region)
        ):
            why = f"The resource_policy resource '{name}' is already being used by an instance"
            return problem(400, "resourceInUseByAnotherResource", why)
        del self.policies[(region, name)]
        return Answer(200, dict(self.operation(region, "delete")))

    def list_policies(self, request):
        self.used.add("compute.resourcePolicies.list")
        wanted = re.compile(re.match(r'name eq "(.*)"$', request.query["filter"]).group(1))
        items = {"regions/us-west1": {"warning": {"code": "NO_RESULTS_ON_PAGE"}}}
        for (region, name), policy in sorted(self.policies.items()):
            if wanted.fullmatch(name):
                scope = items.setdefault(f"regions/{region}", {})
                scope.setdefault("resourcePolicies", []).append(policy)
        return Answer(200, {"items": items})

    def bulk_insert(self, request, project, zone):
        """All or none: those that were made are deleted if there are fewer than minCount."""
        body, request_id = request.json(), request.query.get("requestId", "")
        if request_id in self.by_request:
            return Answer(200, dict(self.operations[self.by_request[request_id]]))
        properties, names = body["instanceProperties"], list(body["perInstanceProperties"])
        assert int(body["count"]) == int(body["minCount"]) == len(names), body
        if any("/" in properties[key] for key in ("machineType",)):
            return problem(503, "backendError", "short names are wanted")
        if not all(NAME.match(name) for name in names):
            return problem(400, "invalid", f"Invalid name in {names}")
        if any((zone, name) in self.instances for name in names):
            return problem(409, "alreadyExists", f"The resource '{names[0]}' already exists")
        self.note_rights(project, properties)
        for policy in properties.get("resourcePolicies", []):
            self.used.add("compute.resourcePolicies.use")
            known = self.policies.get((zone.rsplit("-", 1)[0], policy))
            if not known or known["status"] != "READY":
                return problem(400, "resourceNotReady", f"policy {policy} is not ready")
        operation = self.operation(zone, "bulkInsert")
        self.by_request[request_id] = operation["name"]
        refusal = self.capacity.get(zone)
        if self.room.get(zone, len(names)) < len(names):
            refusal = ("VM_MIN_COUNT_NOT_REACHED", "Requested minimum count could not be reached")
        made = []
        for name in names[: self.room.get(zone, len(names))] if zone not in self.capacity else []:
            instance = dict(properties, name=name, status="PROVISIONING")
            instance["zone"] = f"{self.url}/compute/v1/projects/p/zones/{zone}"
            instance["creationTimestamp"] = time.strftime(
                "%Y-%m-%dT%H:%M:%S.000-00:00", time.gmtime()
            )
            self.instances[(zone, name)] = instance
            self.disks.add((zone, name))
            if any(card.get("accessConfigs") for card in properties["networkInterfaces"]):
                self.addresses.add((zone, name))
            made.append(instance)

        def finish():
            operation["status"] = "DONE"
            if refusal:
                code, message = refusal
                operation["error"] = {"errors": [{"code": code, "message": message}]}
                for instance in made:
                    for things in (self.instances, self.disks, self.addresses):
                        key = (zone, instance["name"])
                        things.pop(key, None) if things is self.instances else things.discard(key)
                return
            for instance in made:
                if self.instances.get((zone, instance["name"])) is instance:
                    instance["status"] = "RUNNING"
                    if self.boot:
                        self.boot(instance)

        if not refusal:
            self.created += names
        answer = dict(operation)
        self.after(self.provision_s, finish)
        return Answer(200, answer)

    def note_rights(self, project, body):
        used = {"compute.instances.create", "compute.subnetworks.use"}
        if body.get("labels"):
            used.add("compute.instances.setLabels")
        if body.get("metadata"):
            used.add("compute.instances.setMetadata")
        for disk in body["disks"]:
            if disk.get("initializeParams"):
                used.add("compute.disks.create")
                used.add("compute.images.useReadOnly")
                if disk["initializeParams"].get("labels"):
                    used.add("compute.disks.setLabels")
        if any(card.get("accessConfigs") for card in body["networkInterfaces"]):
            used.add("compute.subnetworks.useExternalIp")
        self.used |= used

    def delete(self, zone, name):
        instance, operation = self.instances[(zone, name)], self.operation(zone, "delete")
        instance["status"] = "STOPPING"
        if self.halt:
            self.halt(instance)

        def gone():
            operation["status"] = "DONE"
            self.instances.pop((zone, name), None)
            self.detach(zone, name)
            self.addresses.discard((zone, name))
            if all(disk.get("autoDelete") for disk in instance["disks"]):
                self.disks.discard((zone, name))

        answer = dict(operation)
        self.after(self.delete_s, gone)
        return Answer(200, answer)

    def list(self, request):
        self.used.add("compute.instances.list")
        wanted = dict(FILTER.findall(request.query["filter"]))
        assert wanted, request
        found = [
            (zone, instance)
            for (zone, _), instance in sorted(self.instances.items())
            if all(instance["labels"].get(k) == v for k, v in wanted.items())
        ]
        start = int(request.query.get("pageToken") or 0)
        items = {"zones/us-west1-a": {"warning": {"code": "NO_RESULTS_ON_PAGE"}}}
        for zone, instance in found[start : start + self.page]:
            items.setdefault(f"zones/{zone}", {}).setdefault("instances", []).append(instance)
        answer = {"items": items}
        if start + self.page < len(found):
            answer["nextPageToken"] = str(start + self.page)
        if self.silent_zones:
            answer["unreachables"] = [f"projects/p/zones/{zone}" for zone in self.silent_zones]
        return Answer(200, answer)

    def gangs(self):
        """The orders of several machines."""
        return [r for r in self.requests if r.path.endswith("/bulkInsert")]

    def left(self):
        """What still costs money, and the placement policies."""
        things = (self.instances, self.disks, self.addresses, self.policies)
        return tuple(sorted(kind) for kind in things)
