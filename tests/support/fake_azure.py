"""A server that plays Azure: the login service, the metadata service and Resource Manager with
virtual machines. Orders are accepted at once; a failed one leaves a machine in the state Failed
behind, as Azure does."""
import copy
import re
import threading
import uuid

from cloud_server import Answer, CloudServer

GROUP = re.compile(r"^/subscriptions/([^/]+)/resource[gG]roups/([^/]+)$")
THING = re.compile(
    r"^/subscriptions/([^/]+)/resourceGroups/([^/]+)/providers/(Microsoft\.\w+/\w+)(?:/([^/]+))?$"
)
ATTACH = re.compile(r"^/subscriptions/.*/virtualMachines/([^/]+)/attachDetachDataDisks$")
OPERATION = re.compile(
    r"^/subscriptions/[^/]+/providers/Microsoft.Compute/locations/\w+/operations/([^/]+)$"
)


def problem(status, code, message, **headers):
    return Answer(status, {"error": {"code": code, "message": message}}, **headers)


class FakeAzure(CloudServer):
    def __init__(self, certificate=None, page=50):
        super().__init__(certificate)
        self.page = page
        self.groups, self.networks, self.security = {}, {}, {}
        self.machines = {}  # name → resource
        self.sets = {}  # name of a scale set → resource
        self.disks, self.cards, self.addresses = set(), set(), set()
        self.caches = {}  # disks that stay
        self.operations, self.created = {}, []
        self.capacity = {}  # region or region-zone → (code, message) of late refusals
        self.refused = {}  # region → (status, code, message) at once
        self.leaves_corpse = True
        self.provision_s = self.delete_s = self.network_s = 0.0
        self.tokens, self.used = set(), set()
        self.permissions = [{"actions": ["*"], "notActions": []}]
        self.usages, self.sizes = {}, {}
        self.boot = self.halt = None

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

    def serve(self, request):
        if request.path.endswith("/oauth2/v2.0/token"):
            token = "eyJ." + uuid.uuid4().hex
            self.tokens.add(token)
            return Answer(200, {"access_token": token, "expires_in": 3599, "token_type": "Bearer"})
        if request.path == "/metadata/identity/oauth2/token":
            if request.headers.get("metadata") != "true":
                return Answer(400, {"error": "invalid_request"})
            self.tokens.add("machine.token")
            return Answer(200, {"access_token": "machine.token", "expires_in": "86399"})
        if request.headers.get("authorization", "")[7:] not in self.tokens:
            return problem(401, "InvalidAuthenticationToken", "The access token is invalid.")
        if "api-version" not in request.query:
            return problem(400, "MissingApiVersionParameter", "api-version is required")
        return self.manage(request)

    def manage(self, request):
        if found := GROUP.match(request.path):
            return self.group(request, found.group(2))
        if found := ATTACH.match(request.path):
            return self.attach_disk(request, found.group(1))
        if found := THING.match(request.path):
            _, group, kind, name = found.groups()
            if group not in self.groups:
                return problem(404, "ResourceGroupNotFound", f"'{group}' could not be found.")
            if kind == "Microsoft.Compute/virtualMachineScaleSets":
                return self.scale_set(request, name)
            if kind == "Microsoft.Compute/disks":
                return self.cache_disk(request, name)
            if kind == "Microsoft.Compute/virtualMachines":
                return self.machine(request, name)
            return self.network(request, kind, name)
        if found := OPERATION.match(request.path):
            self.used.add("Microsoft.Compute/locations/operations/read")
            operation = self.operations.get(found.group(1))
            return Answer(200, operation) if operation else problem(404, "NotFound", "gone")
        if found := re.match(r".*/Microsoft.Compute/locations/(\w+)/usages$", request.path):
            self.used.add("Microsoft.Compute/locations/usages/read")
            return Answer(200, {"value": self.usages.get(found.group(1), [])})
        if request.path.endswith("/Microsoft.Compute/skus"):
            self.used.add("Microsoft.Compute/skus/read")
            region = re.match(r"location eq '(\w+)'", request.query["$filter"]).group(1)
            return Answer(200, {"value": self.sizes.get(region, [])})
        if request.path.endswith("/Microsoft.Authorization/permissions"):
            self.used.add("Microsoft.Authorization/permissions/read")
            return Answer(200, {"value": self.permissions})
        if re.match(r"^/subscriptions/[^/]+$", request.path):
            self.used.add("Microsoft.Resources/subscriptions/read")
            return Answer(200, {"subscriptionId": "s", "state": "Enabled"})
        return problem(404, "NotFound", f"{request}")

    def group(self, request, name):
        right = "Microsoft.Resources/subscriptions/resourceGroups/"
        if request.method == "PUT":
            self.used.add(right + "write")
            new = name not in self.groups
            self.groups[name] = request.json()
            return Answer(201 if new else 200, {"name": name, **request.json()})
        self.used.add(right + "read")
        if name not in self.groups:
            return problem(404, "ResourceGroupNotFound", f"'{name}' could not be found.")
        return Answer(200, {"name": name, **self.groups[name]})

    def network(self, request, kind, name):
        things = {
            "Microsoft.Network/virtualNetworks": self.networks,
            "Microsoft.Network/networkSecurityGroups": self.security,
        }[kind]
        if request.method == "GET":
            self.used.add(kind + "/read")
            thing = things.get(name)
            return Answer(200, thing) if thing else problem(404, "ResourceNotFound", name)
        self.used.add(kind + "/write")
        if kind.endswith("virtualNetworks"):  # its subnet names a security group
            self.used.add("Microsoft.Network/networkSecurityGroups/join/action")
        thing = {"name": name, **request.json()}
        thing["properties"] = {**thing["properties"], "provisioningState": "Updating"}
        things[name] = thing
        self.after(
            self.network_s, lambda: thing["properties"].update(provisioningState="Succeeded")
        )
        return Answer(201, thing)

    def machine(self, request, name):
        right = "Microsoft.Compute/virtualMachines/"
        if name is None:
            self.used.add(right + "read")
            return self.list(request)
        if request.method == "PUT":
            self.used.add(right + "write")
            return self.create(request, name)
        machine = self.machines.get(name)
        if request.method == "GET":
            self.used.add(right + "read")
            if not machine:
                return problem(404, "ResourceNotFound", name)
            if request.query.get("$expand") != "instanceView":
                machine = dict(machine, properties=dict(machine["properties"]))
                machine["properties"].pop("instanceView", None)
            return Answer(200, machine)
        self.used.add(right + "delete")
        return self.delete(name) if machine else Answer(204)

    def cache_disk(self, request, name):
        right = "Microsoft.Compute/disks/"
        if name is None:
            self.used.add(right + "read")
            return self.list(request, self.caches)
        if request.method == "PUT":
            self.used.add(right + "write")
            body = request.json()
            assert body["properties"]["creationData"] == {"createOption": "Empty"}, body
            disk = {"name": name, "managedBy": "", **body}
            disk["properties"] = {**body["properties"], "provisioningState": "Succeeded"}
            kept = self.caches.setdefault(name, disk)
            return Answer(202, kept)
        self.used.add(right + "delete")
        if name in self.caches and self.caches[name]["managedBy"]:
            return problem(409, "OperationNotAllowed", f"Disk {name} is attached to a VM")
        return Answer(202 if self.caches.pop(name, None) else 204)

    def attach_disk(self, request, name):
        self.used.add("Microsoft.Compute/virtualMachines/attachDetachDataDisks/action")
        if name not in self.machines:
            return problem(404, "ResourceNotFound", name)
        for wish in request.json()["dataDisksToAttach"]:
            disk = self.caches.get(wish["diskId"].rsplit("/", 1)[1])
            if not disk:
                return problem(404, "ResourceNotFound", wish["diskId"])
            if disk["managedBy"]:
                return problem(409, "AttachDiskWhileBeingDetached", "in use")
            assert wish["deleteOption"] == "Detach", wish
            disk["managedBy"], disk["lun"] = name, wish["lun"]
        return Answer(202, None)

    def start_operation(self, region):
        name = str(uuid.uuid4())
        self.operations[name] = {"name": name, "status": "InProgress"}
        place = f"{self.url}/subscriptions/s/providers/Microsoft.Compute/locations/{region}"
        return self.operations[name], f"{place}/operations/{name}?api-version=2026-03-01"

    def create(self, request, name):
        if name in self.machines and request.headers.get("if-none-match") == "*":
            return problem(412, "PreconditionFailed", f"{name} exists")
        body = request.json()
        region = body["location"]
        if region in self.refused:
            return problem(*self.refused[region])
        profile = body["properties"]["networkProfile"]["networkInterfaceConfigurations"][0]
        address = profile["properties"]["ipConfigurations"][0]["properties"]
        self.note_rights(address)
        machine = copy.deepcopy({"name": name, **body})
        machine["properties"]["provisioningState"] = "Creating"
        del machine["properties"]["osProfile"]["customData"]
        operation, url = self.start_operation(region)
        self.machines[name] = machine
        self.cards.add(name)
        if "publicIPAddressConfiguration" in address:
            self.addresses.add(name)
        self.created.append(name)
        refusal = self.capacity.get(f"{region}-{body.get('zones', [''])[0]}")
        refusal = refusal or self.capacity.get(region)

        def fail():
            code, message = refusal
            operation.update(status="Failed", error={"code": code, "message": message})
            machine["properties"]["provisioningState"] = "Failed"
            view = {"statuses": [{"code": f"ProvisioningState/failed/{code}", "message": message}]}
            machine["properties"]["instanceView"] = view
            if not self.leaves_corpse:
                self.remove(name)

        def run():
            operation["status"] = "Succeeded"
            if self.machines.get(name) is machine:
                self.disks.add(name)
                machine["properties"]["provisioningState"] = "Succeeded"
                view = {"statuses": [{"code": "PowerState/running"}]}
                machine["properties"]["instanceView"] = view
                if self.boot:
                    self.boot(body, name)

        answer = Answer(201, dict(machine), azure_asyncoperation=url, retry_after=1)
        self.after(self.provision_s, fail if refusal else run)
        return answer

    # ---- gangs

    def scale_set(self, request, name):
        right = "Microsoft.Compute/virtualMachineScaleSets/"
        if name is None:
            self.used.add(right + "read")
            return self.list(request, self.sets)
        if request.method == "PUT":
            self.used.add(right + "write")
            return self.create_set(request, name)
        found = self.sets.get(name)
        if request.method == "GET":
            self.used.add(right + "read")
            return Answer(200, found) if found else problem(404, "ResourceNotFound", name)
        self.used.add(right + "delete")
        if not found:
            return Answer(204)
        found["properties"]["provisioningState"] = "Deleting"
        operation, url = self.start_operation(found["location"])
        if self.halt:
            for rank in range(found["sku"]["capacity"]):
                self.halt(f"{name}_{rank}")

        def gone():
            operation["status"] = "Succeeded"
            self.sets.pop(name, None)
            for things in (self.disks, self.cards, self.addresses):
                things -= {one for one in things if one.startswith(name + "_")}

        self.after(self.delete_s, gone)
        return Answer(202, None, azure_asyncoperation=url)

    def create_set(self, request, name):
        if name in self.sets and request.headers.get("if-none-match") == "*":
            return problem(412, "PreconditionFailed", f"{name} exists")
        body = request.json()
        region, properties = body["location"], body["properties"]
        profile = properties["virtualMachineProfile"]
        wanted = dict(singlePlacementGroup=True, platformFaultDomainCount=1, overprovision=False)
        for key, value in dict(wanted, orchestrationMode="Uniform").items():
            assert properties[key] == value, body
        card = profile["networkProfile"]["networkInterfaceConfigurations"][0]["properties"]
        self.note_rights(card["ipConfigurations"][0]["properties"])
        kept = copy.deepcopy({"name": name, **body})
        kept["properties"]["provisioningState"] = "Creating"
        del kept["properties"]["virtualMachineProfile"]["osProfile"]["customData"]
        operation, url = self.start_operation(region)
        self.sets[name] = kept
        self.created.append(name)
        members = [f"{name}_{rank}" for rank in range(body["sku"]["capacity"])]
        refusal = self.capacity.get(f"{region}-{body.get('zones', [''])[0]}")
        refusal = refusal or self.capacity.get(region)

        def finish():
            if self.sets.get(name) is not kept:
                return
            running = members[:1] if refusal else members  # a part of it may have been made
            self.disks |= set(running)
            self.cards |= set(running)
            if "publicIPAddressConfiguration" in card["ipConfigurations"][0]["properties"]:
                self.addresses |= set(running)
            state = "Failed" if refusal else "Succeeded"
            kept["properties"]["provisioningState"] = operation["status"] = state
            if refusal:
                operation["error"] = {"code": refusal[0], "message": refusal[1]}
            elif self.boot:
                for rank, member in enumerate(members):
                    self.boot({"properties": profile}, member, rank)

        answer = Answer(201, dict(kept), azure_asyncoperation=url, retry_after=1)
        self.after(self.provision_s, finish)
        return answer

    def note_rights(self, address):
        self.used |= {
            "Microsoft.Compute/disks/write",
            "Microsoft.Network/networkInterfaces/read",
            "Microsoft.Network/networkInterfaces/write",
            "Microsoft.Network/networkInterfaces/join/action",
            "Microsoft.Network/networkSecurityGroups/join/action",
            "Microsoft.Network/virtualNetworks/subnets/join/action",
        }
        if "publicIPAddressConfiguration" in address:
            kind = "Microsoft.Network/publicIPAddresses/"
            self.used |= {kind + "read", kind + "write", kind + "join/action"}

    def remove(self, name):
        machine = self.machines.pop(name, None)
        if not machine:
            return
        for disk in self.caches.values():
            disk["managedBy"] = "" if disk["managedBy"] == name else disk["managedBy"]
        properties = machine["properties"]
        card = properties["networkProfile"]["networkInterfaceConfigurations"][0]["properties"]
        address = card["ipConfigurations"][0]["properties"].get("publicIPAddressConfiguration")
        if properties["storageProfile"]["osDisk"].get("deleteOption") == "Delete":
            self.used.add("Microsoft.Compute/disks/delete")
            self.disks.discard(name)
        if card.get("deleteOption") == "Delete":
            self.used.add("Microsoft.Network/networkInterfaces/delete")
            self.cards.discard(name)
        if address and address["properties"].get("deleteOption") == "Delete":
            self.used.add("Microsoft.Network/publicIPAddresses/delete")
            self.addresses.discard(name)

    def delete(self, name):
        machine = self.machines[name]
        machine["properties"]["provisioningState"] = "Deleting"
        operation, url = self.start_operation(machine["location"])
        if self.halt:
            self.halt(name)

        def gone():
            operation["status"] = "Succeeded"
            self.remove(name)

        self.after(self.delete_s, gone)
        return Answer(202, None, azure_asyncoperation=url)

    def list(self, request, things=None):
        things = self.machines if things is None else things
        found = [things[name] for name in sorted(things)]
        start = int(request.query.get("$skiptoken") or 0)
        answer = {"value": found[start : start + self.page]}
        if start + self.page < len(found):
            answer["nextLink"] = (
                f"{self.url}{request.path}?api-version={request.query['api-version']}"
                f"&$skiptoken={start + self.page}"
            )
        return Answer(200, answer)

    def gangs(self):
        """The orders of several machines."""
        return [r for r in self.requests if r.method == "PUT" and "ScaleSets" in r.path]

    def left(self):
        """What still costs money."""
        things = (self.machines, self.disks, self.cards, self.addresses, self.sets)
        return tuple(sorted(kind) for kind in things)
