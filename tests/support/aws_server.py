"""Amazon EC2 (with STS, SSM, Service Quotas and the keys of SSO) for tests, on loopback.

It recomputes every signature as AWS does, keeps the semantics that matter for not leaking machines
(client tokens per zone, paging, tags in the create, terminated machines that stay listed, new ones
that are not listed yet) and fails on request: no capacity by zone, quotas, throttles, errors before
the act, answers lost after it, machines that end after they were accepted.

An instance with `boots=True` runs its own user data as a real machine would: a shell script below a
directory of its own.
"""
import base64
import collections
import hashlib
import hmac
import json
import os
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from xml.sax.saxutils import escape

from aws_resources import Refused, Resources

KEY, SECRET = "AKIDTESTTESTTESTTEST", "secretsecretsecretsecretsecretsecretsecr"
ACCOUNT = "123456789012"
TERMINATED_KEPT_S = 3600
# Requests at once and per second that EC2 lets an account make in a region, by kind:
# https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-throttling.html
REQUEST_LIMITS = {"RunInstances": (5, 2.0), "read": (50, 10.0), "change": (50, 5.0)}


def xml(name, value):
    """A tree of dicts and lists as XML; lists become <item>s, as EC2 writes them."""
    if isinstance(value, dict):
        inner = "".join(xml(k, v) for k, v in value.items() if v is not None)
    elif isinstance(value, list):
        inner = "".join(xml("item", v) for v in value)
    else:
        inner = escape(str(value))
    return f"<{name}>{inner}</{name}>"


class Lost(Exception):
    """The answer never reaches the client."""


class AwsServer(Resources):
    def __init__(self, boots=False, machines=None, page=2, listening=None):
        self.lock = threading.RLock()
        self.boots, self.machines, self.page = boots, machines, page
        self.keys = {KEY: SECRET}
        self.zones = {"us-east-1": ["us-east-1a", "us-east-1b"]}
        self.instances = {}  # id -> dict
        self.secrets = {}  # name -> text, or bytes
        self.tokens = {}  # (region, zone, token) -> (hash of the request, ids)
        self.groups = {}  # region -> name -> id
        self.group_facts = {}  # id -> {"tags", "rules": {(port, network)}, "inside"}
        self.free_addresses = []  # public addresses that can be allocated
        self.addresses = {}  # allocation -> dict: fixed addresses
        self.allocations = 0
        self.placement_groups = set()
        self.raw = collections.deque(maxlen=200)  # the last requests as they came
        self.requests = []  # (service, region, action, parameters)
        self.capacity = {}  # zone -> error code, or (code, status, message)
        self.types = {"g6.xlarge", "p5.48xlarge", "t3.small", "t4g.small"}
        self.denied = set()  # actions that the credentials may not call
        self.policies = {}  # key -> Policy (aws_policy): what its owner may do; none: everything
        self.quota = 1000.0
        self.invisible_looks = 0  # a new instance is missing from this many lists
        self.dies_after_accept = {}  # zone -> stateReason
        self.chaos = None  # random.Random: faults by chance
        self.chaos_rate = 0.2
        self.limited = False  # keeps to REQUEST_LIMITS
        self.buckets = {}  # (region, kind) -> (tokens, time)
        self.throttled = 0
        self.logins = {}  # access token of SSO -> (account, role)
        self.created = 0  # instances ever made
        self.volumes = {}  # id -> dict: cache disks
        self.volume_tokens = {}  # (region, token) -> id
        self.forgets_volume_tokens = False  # a repeated order makes a second disk
        self.invisible_disk_looks = 0  # as invisible_looks, of disks
        self.loses = []  # actions whose next answer is lost after the act
        self.volumes_made = 0
        self.made_for = {}  # machine -> how many times instances were made for it
        self.mistakes = []  # requests that a correct client never sends
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                try:
                    status, kind, text = owner.answer(self.headers, self.path, body)
                except Lost:
                    self.close_connection = True
                    self.connection.close()
                    return
                self.send(status, kind, text)

            def do_GET(self):
                try:
                    self.send(200, "application/json", owner.keys_of_login(self.headers, self.path))
                except Refused as no:
                    self.send(no.status, "application/json", json.dumps({"message": no.message}))

            def send(self, status, kind, text):
                data = text.encode()
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 256

            def handle_error(self, request, client_address):
                pass

        self.server = Server(("127.0.0.1", 0), Handler, bind_and_activate=not listening)
        if listening:  # a socket of another network namespace
            self.server.socket.close()
            self.server.socket, self.server.server_address = listening, listening.getsockname()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        if self.machines:
            self.machines.close()

    # ---- signatures
    def verify(self, headers, path, body):
        """Recomputes the signature; returns service and region."""
        said = headers.get("Authorization", "")
        if not said.startswith("AWS4-HMAC-SHA256 "):
            raise Refused(401, "AuthFailure", "no signature")
        fields = dict(p.strip().split("=", 1) for p in said[17:].split(","))
        key, date, region, service, end = fields["Credential"].split("/")
        if key not in self.keys:
            raise Refused(401, "AuthFailure", "unknown key")
        stamp = headers["x-amz-date"]
        if stamp[:8] != date or end != "aws4_request":
            raise Refused(401, "SignatureDoesNotMatch", "scope")
        age = abs(time.time() - time.mktime(time.strptime(stamp, "%Y%m%dT%H%M%SZ")) + time.timezone)
        if age > 900:
            raise Refused(401, "RequestExpired")
        names = fields["SignedHeaders"].split(";")
        unsigned = [
            n.lower()
            for n in headers
            if (n.lower() == "host" or n.lower().startswith("x-amz-")) and n.lower() not in names
        ]
        if unsigned or names != sorted(names):
            raise Refused(401, "SignatureDoesNotMatch", f"unsigned: {unsigned}")
        payload = hashlib.sha256(body).hexdigest()
        if headers.get("x-amz-content-sha256", payload) != payload:
            raise Refused(401, "SignatureDoesNotMatch", "body")
        canonical = "".join(f"{n}:{' '.join(headers[n].split())}\n" for n in names)
        asked = f"POST\n{path}\n\n{canonical}\n{';'.join(names)}\n{payload}"
        scope = f"{date}/{region}/{service}/aws4_request"
        text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(asked.encode()).hexdigest()}"
        secret = b"AWS4" + self.keys[key].encode()
        for part in (date, region, service, "aws4_request"):
            secret = hmac.new(secret, part.encode(), hashlib.sha256).digest()
        right = hmac.new(secret, text.encode(), hashlib.sha256).hexdigest()
        if not hmac.compare_digest(right, fields["Signature"]):
            raise Refused(403, "SignatureDoesNotMatch")
        return key, service, region

    def permit(self, key, service, action, parameters):
        policy = self.policies.get(key)
        with self.lock:
            missing = policy and policy.missing(self, service, action, parameters)
        if missing or action in self.denied:
            raise Refused(403, "UnauthorizedOperation", f"not authorized: {missing or action}")

    def tags_of(self, kind, name):
        things = {
            "instance": self.instances,
            "volume": self.volumes,
            "security-group": self.group_facts,
            "elastic-ip": self.addresses,
        }
        return things[kind].get(name, {}).get("tags", {})

    # ---- requests
    def answer(self, headers, path, body):
        try:
            with self.lock:
                self.raw.append(
                    {
                        "method": "POST",
                        "path": path,
                        "headers": dict(headers.items()),
                        "body": body.decode(),
                    }
                )
            key, service, region = self.verify(headers, path, body)
            if service == "secretsmanager":
                return self.secret_call(region, headers["X-Amz-Target"], json.loads(body))
            if service in ("ssm", "servicequotas"):
                target = headers["X-Amz-Target"].split(".")[-1]
                self.permit(key, service, target, json.loads(body))
                return (
                    200,
                    "application/x-amz-json-1.1",
                    self.json_call(region, target, json.loads(body)),
                )
            parameters = dict(urllib.parse.parse_qsl(body.decode(), keep_blank_values=True))
            action = parameters.pop("Action")
            wanted = "2011-06-15" if service == "sts" else "2016-11-15"
            if parameters.pop("Version") != wanted:
                raise Refused(400, "InvalidParameterValue", "Version")
            with self.lock:
                self.requests.append((service, region, action, parameters))
            self.permit(key, service, action, parameters)
            if parameters.get("DryRun") == "true":
                raise Refused(412, "DryRunOperation", "Request would have succeeded.")
            self.keep_limits(region, action)
            fault = self.fault()
            if fault == "before":
                raise Refused(500, "InternalError", "An internal error has occurred")
            if fault == "throttle":
                raise Refused(503, "RequestLimitExceeded", "Request limit exceeded.")
            result = getattr(self, action)(region, parameters)
            if fault == "twice":  # a proxy delivered the same bytes once more
                result = getattr(self, action)(region, parameters)
            if action in self.loses:
                self.loses.remove(action)
                fault = "lost"
            if fault == "lost":
                raise Lost()
            root = f"{action}Response"
            return 200, "text/xml", xml(root, {"requestId": "r-1", **result})
        except Refused as no:
            error = {"Code": no.code, "Message": no.message or no.code}
            text = (
                f"<Response><Errors>{xml('Error', error)}</Errors><RequestID>r</RequestID></Response>"
            )
            return no.status, "text/xml", text

    def secret_call(self, region, target, body):
        """Secrets Manager: its errors are JSON too."""
        kind, name = "application/x-amz-json-1.1", body.get("SecretId")
        with self.lock:
            self.requests.append(("secretsmanager", region, target, body))
        if target != "secretsmanager.GetSecretValue" or set(body) != {"SecretId"}:
            return 400, kind, json.dumps({"__type": "InvalidRequestException", "Message": target})
        if "GetSecretValue" in self.denied:
            return 400, kind, json.dumps({"__type": "AccessDeniedException", "Message": "no"})
        if name not in self.secrets:
            error = {"__type": "ResourceNotFoundException", "Message": "cannot find the secret"}
            return 400, kind, json.dumps(error)
        value = self.secrets[name]
        form = (
            {"SecretBinary": base64.b64encode(value).decode()}
            if isinstance(value, bytes)
            else {"SecretString": value}
        )
        return 200, kind, json.dumps({"Name": name, "VersionId": "v1", **form})

    def keep_limits(self, region, action):
        if not self.limited:
            return
        kind = "read" if action.startswith(("Describe", "Get")) else "change"
        kind = action if action in REQUEST_LIMITS else kind
        burst, per_s = REQUEST_LIMITS[kind]
        with self.lock:
            now = time.monotonic()
            tokens, at = self.buckets.get((region, kind), (burst, now))
            tokens = min(burst, tokens + (now - at) * per_s)
            self.buckets[region, kind] = (max(tokens - 1, tokens if tokens < 1 else 0), now)
            if tokens < 1:
                self.throttled += 1
                raise Refused(503, "RequestLimitExceeded", "Request limit exceeded.")

    def keys_of_login(self, headers, path):
        """What the portal of SSO gives for the access token of a login: keys of a role."""
        url = urllib.parse.urlparse(path)
        asked = dict(urllib.parse.parse_qsl(url.query))
        login = self.logins.get(headers.get("x-amz-sso_bearer_token", ""))
        if url.path != "/federation/credentials" or login is None:
            raise Refused(401, "UnauthorizedException", "Session token not found or invalid")
        if (asked.get("account_id"), asked.get("role_name")) != login:
            raise Refused(403, "ForbiddenException", "No access")
        self.keys["ASIASSO"] = "ssosecret"
        return json.dumps(
            {
                "roleCredentials": {
                    "accessKeyId": "ASIASSO",
                    "secretAccessKey": "ssosecret",
                    "sessionToken": "token/of+sso=",
                    "expiration": int((time.time() + 3600) * 1000),
                }
            }
        )

    def fault(self):
        if not self.chaos:
            return ""
        with self.lock:
            if self.chaos.random() > self.chaos_rate:
                return ""
            return self.chaos.choice(["before", "throttle", "lost", "lost", "twice"])

    @staticmethod
    def listed(parameters, prefix):
        out = []
        while f"{prefix}.{len(out) + 1}" in parameters:
            out.append(parameters[f"{prefix}.{len(out) + 1}"])
        return out

    @staticmethod
    def tags_in(p):
        tags, n = {}, 1
        while f"TagSpecification.1.Tag.{n}.Key" in p:
            tags[p[f"TagSpecification.1.Tag.{n}.Key"]] = p[f"TagSpecification.1.Tag.{n}.Value"]
            n += 1
        return tags

    @staticmethod
    def matches(tags, wanted):
        """Whether something with these tags passes the filters that are about tags."""
        return all(
            tags.get(name[4:]) in values
            for name, values in wanted.items()
            if name.startswith("tag:")
        ) and all(key in tags for key in wanted.get("tag-key", []))

    @staticmethod
    def tag_set(tags):
        return [{"key": k, "value": v} for k, v in tags.items()]

    def filters(self, parameters):
        out, n = {}, 1
        while f"Filter.{n}.Name" in parameters:
            out[parameters[f"Filter.{n}.Name"]] = self.listed(parameters, f"Filter.{n}.Value")
            n += 1
        return out

    def paged(self, rows, parameters, name):
        """At most `page` rows at once, whatever the client asks for."""
        begin = int(parameters.get("NextToken", "0"))
        more = begin + self.page < len(rows)
        return {
            name: rows[begin : begin + self.page],
            "nextToken": str(begin + self.page) if more else None,
        }

    # ---- instances
    def RunInstances(self, region, p):
        with self.lock:
            zone = p["Placement.AvailabilityZone"]
            count = int(p["MinCount"])
            asked = hashlib.sha256(json.dumps(p, sort_keys=True).encode()).hexdigest()
            token = (region, zone, p["ClientToken"])
            if token in self.tokens:
                before, ids = self.tokens[token]
                if before != asked:
                    raise Refused(400, "IdempotentParameterMismatch")
                if all(self.instances[i]["state"] == "terminated" for i in ids):
                    raise Refused(400, "IdempotentInstanceTerminated")
                return {"instancesSet": [self.row(self.instances[i]) for i in ids]}
            self.check_launch(region, p)
            no = self.capacity.get(zone)
            if callable(no):
                no = no(p)
            if no:
                code, status, message = (
                    no if isinstance(no, tuple) else (no, 500, f"{no} in {zone}")
                )
                raise Refused(status, code, message)
            tags = self.tags_in(p)
            ids = []
            for index in range(count):
                self.created += 1
                one = {
                    "id": f"i-{self.created:017x}",
                    "region": region,
                    "zone": zone,
                    "type": p["InstanceType"],
                    "spot": p.get("InstanceMarketOptions.MarketType") == "spot",
                    "tags": tags,
                    "group": p["NetworkInterface.1.SecurityGroupId.1"],
                    "index": index,
                    "state": "pending",
                    "reason": "",
                    "looks": self.invisible_looks,
                    "launched": int(time.time()),
                    "data": base64.b64decode(p["UserData"]).decode(),
                    "since": time.time(),
                    "ended": 0,
                }
                self.instances[one["id"]] = one
                ids.append(one["id"])
            machine = tags.get("billow:machine", "head")
            self.made_for[machine] = self.made_for.get(machine, 0) + 1
            self.tokens[token] = (asked, ids)
        for i in ids:
            one = self.instances[i]
            if zone in self.dies_after_accept:
                one.update(
                    state="terminated", reason=self.dies_after_accept[zone], ended=time.time()
                )
            else:
                one["state"] = "running"
                if self.boots:
                    self.start_machine(one)
        return {"instancesSet": [self.row(self.instances[i]) for i in ids]}

    def check_launch(self, region, p):
        """What a careful client sends; anything else is a mistake of the test's subject."""
        wanted = {
            "InstanceInitiatedShutdownBehavior": "terminate",
            "MetadataOptions.HttpTokens": "required",
            "BlockDeviceMapping.1.Ebs.DeleteOnTermination": "true",
            "NetworkInterface.1.DeleteOnTermination": "true",
            "MaxCount": p["MinCount"],
            "TagSpecification.1.ResourceType": "instance",
        }
        for name, value in wanted.items():
            if p.get(name) != value:
                self.mistakes.append(f"{name}={p.get(name)}")
        if len(p["ClientToken"]) > 64 or len(base64.b64decode(p["UserData"])) > 16384:
            raise Refused(400, "InvalidParameterValue", "too long")
        if p["InstanceType"] not in self.types:
            raise Refused(400, "InvalidParameterValue", "Invalid value for instance type")
        if p["NetworkInterface.1.SubnetId"] != f"subnet-{p['Placement.AvailabilityZone']}":
            raise Refused(400, "InvalidParameterCombination", "subnet")
        if p["NetworkInterface.1.SecurityGroupId.1"] not in self.groups.get(region, {}).values():
            raise Refused(400, "InvalidGroup.NotFound")
        if p["ImageId"] != f"ami-{region}":
            raise Refused(400, "InvalidAMIID.NotFound")

    def row(self, one):
        return {
            "instanceId": one["id"],
            "instanceType": one["type"],
            "amiLaunchIndex": one["index"],
            "placement": {"availabilityZone": one["zone"]},
            "instanceState": {"name": one["state"]},
            "stateReason": {"code": one["reason"]} if one["reason"] else None,
            "launchTime": time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(one["launched"])),
            "reason": (
                time.strftime("User initiated (%Y-%m-%d %H:%M:%S GMT)", time.gmtime(one["ended"]))
                if one["ended"]
                else None
            ),
            "tagSet": self.tag_set(one["tags"]),
        }

    def DescribeInstances(self, region, p):
        wanted = self.filters(p)
        rows = []
        with self.lock:
            for one in self.instances.values():
                if one["region"] != region:
                    continue
                if one["ended"] and time.time() - one["ended"] > TERMINATED_KEPT_S:
                    continue
                if not self.matches(one["tags"], wanted):
                    continue
                if one["looks"] > 0 and "NextToken" not in p:
                    one["looks"] -= 1
                    continue
                if one["looks"] > 0:
                    continue
                rows.append({"reservationId": "r-1", "instancesSet": [self.row(one)]})
            return self.paged(rows, p, "reservationSet")

    def TerminateInstances(self, region, p):
        ids = self.listed(p, "InstanceId")
        with self.lock:
            for i in ids:
                if i not in self.instances or self.instances[i]["region"] != region:
                    raise Refused(400, "InvalidInstanceID.NotFound", i)
            for i in ids:
                self.end(i, "Client.UserInitiatedShutdown")
        return {
            "instancesSet": [{"instanceId": i, "currentState": {"name": "terminated"}} for i in ids]
        }

    def end(self, i, reason):
        one = self.instances[i]
        if one["state"] != "terminated":
            one.update(state="terminated", reason=reason, ended=int(time.time()))
            self.stop_machine(one)
            for volume in self.volumes.values():
                if volume["instance"] == i:
                    volume["instance"] = ""

    def alive(self):
        with self.lock:
            return [one for one in self.instances.values() if one["state"] != "terminated"]

    def bill_s(self, one):
        """Seconds on Amazon's meter: whole ones, at least sixty."""
        return max(60, (one["ended"] or int(time.time())) - one["launched"])

    def DescribeImages(self, region, p):
        return {"imagesSet": [{"imageId": p.get("ImageId.1", ""), "rootDeviceName": "/dev/sda1"}]}

    def DescribeInstanceTypeOfferings(self, region, p):
        wanted = self.filters(p).get("instance-type", [])
        rows = [
            {"instanceType": t, "location": z}
            for t in wanted
            if t in self.types
            for z in self.zones.get(region, [])
        ]
        return self.paged(rows, p, "instanceTypeOfferingSet")

    def DescribeInstanceTypes(self, region, p):
        """Local disks and network adapters of the types that tests rent."""
        facts = {"g6.xlarge": (250, 1, 0), "p5.48xlarge": (30400, 32, 32)}
        rows = []
        for name in self.listed(p, "InstanceType"):
            disk_gb, cards, adapters = facts[name]
            network = {
                "maximumNetworkCards": cards,
                "efaSupported": "true" if adapters else "false",
                "efaInfo": {"maximumEfaInterfaces": adapters} if adapters else None,
            }
            storage = {"totalSizeInGB": disk_gb}
            rows.append(
                {"instanceType": name, "instanceStorageInfo": storage, "networkInfo": network}
            )
        return {"instanceTypeSet": rows}

    def DescribeSpotPriceHistory(self, region, p):
        return {"spotPriceHistorySet": []}

    def DescribeCapacityReservations(self, region, p):
        return {"capacityReservationSet": []}

    def GetCallerIdentity(self, region, p):
        arn = f"arn:aws:iam::{ACCOUNT}:user/billow"
        return {"GetCallerIdentityResult": {"Account": ACCOUNT, "Arn": arn, "UserId": "AIDA"}}

    def AssumeRole(self, region, p):
        key, secret = "ASIAROLE", "rolesecret"
        self.keys[key] = secret
        until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600))
        return {
            "AssumeRoleResult": {
                "Credentials": {
                    "AccessKeyId": key,
                    "SecretAccessKey": secret,
                    "SessionToken": "token/of+role=",
                    "Expiration": until,
                }
            }
        }

    def json_call(self, region, target, body):
        if target == "GetParameter":
            return json.dumps({"Parameter": {"Value": f"ami-{region}"}})
        if target == "GetServiceQuota":
            return json.dumps({"Quota": {"QuotaCode": body["QuotaCode"], "Value": self.quota}})
        raise Refused(400, "InvalidAction")

    # ---- machines
    def start_machine(self, one):
        one["home"] = self.machines.start(one["id"], one["data"], one["index"])

    def stop_machine(self, one):
        if self.machines:
            self.machines.stop(one["id"])

    def powered_off(self):
        """Machines that ended themselves; EC2 terminates them because of their shutdown behaviour."""
        for one in self.alive():
            if "home" in one and os.path.exists(one["home"] + "/off"):
                with self.lock:
                    self.end(one["id"], "Client.InstanceInitiatedShutdown")
