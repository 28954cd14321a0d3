"""A policy of IAM, applied to requests as AWS does: each resource that a request touches needs a statement that allows the action on
it. What was of use is written down, so that a test can name what a policy allows and nobody needs.

https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonec2.html names the resources of each action.
"""
import fnmatch
import json
import os

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../packaging/clouds")
# What each action creates, uses without a tag of its own, or changes.
CREATES = {
    "CreateVolume": ["volume"],
    "CreateSecurityGroup": ["security-group"],
    "CreatePlacementGroup": ["placement-group"],
    "AllocateAddress": ["elastic-ip"],
    "RunInstances": ["instance", "network-interface", "volume"],
}
USES = {"CreateSecurityGroup": ["vpc"], "RunInstances": ["security-group", "subnet", "image"]}
CHANGES = {
    "TerminateInstances": [("instance", "InstanceId.1")],
    "AttachVolume": [("volume", "VolumeId"), ("instance", "InstanceId")],
    "DeleteVolume": [("volume", "VolumeId")],
    "AuthorizeSecurityGroupIngress": [("security-group", "GroupId")],
    "RevokeSecurityGroupIngress": [("security-group", "GroupId")],
    "DeleteSecurityGroup": [("security-group", "GroupId")],
    "AssociateAddress": [("elastic-ip", "AllocationId"), ("instance", "InstanceId")],
    "ReleaseAddress": [("elastic-ip", "AllocationId")],
}


def listed(value):
    return value if isinstance(value, list) else [value]


def arn_of(kind, service="ec2"):
    if service == "ssm":
        return f"arn:aws:ssm:us-east-1::parameter{kind}"
    owner = "" if kind == "image" else "123456789012"
    return f"arn:aws:ec2:us-east-1:{owner}:{kind}/x-1"


def tags_by_kind(parameters):
    """The tags that a request gives to each kind of resource."""
    out, n = {}, 1
    while f"TagSpecification.{n}.ResourceType" in parameters:
        tags, t = {}, 1
        while f"TagSpecification.{n}.Tag.{t}.Key" in parameters:
            prefix = f"TagSpecification.{n}.Tag.{t}"
            tags[parameters[prefix + ".Key"]] = parameters[prefix + ".Value"]
            t += 1
        out[parameters[f"TagSpecification.{n}.ResourceType"]] = tags
        n += 1
    return out


class Policy:
    def __init__(self, name):
        with open(os.path.join(FOLDER, name), encoding="utf-8") as f:
            self.statements = json.load(f)["Statement"]
        self.used = set()  # (Sid, action), (Sid, resource)

    def touched(self, server, service, action, parameters):
        """(ARN, tags in the request, tags that the resource has) of everything a request needs."""
        if service == "ssm":
            return [(arn_of(parameters["Name"], service), {}, {})]
        if service != "ec2":
            return [("*", {}, {})]
        given = tags_by_kind(parameters)
        out = [(arn_of(k), given.get(k, {}), {}) for k in CREATES.get(action, [])]
        out += [(arn_of(k), {}, {}) for k in USES.get(action, [])]
        if action == "RunInstances":
            if parameters.get("InstanceMarketOptions.MarketType") == "spot":
                kind = "spot-instances-request"
                out.append((arn_of(kind), given.get(kind, {}), {}))
            if "Placement.GroupName" in parameters:
                out.append((arn_of("placement-group"), {}, {}))
            if any(name.startswith("CapacityReservationSpec") for name in parameters):
                out.append((arn_of("capacity-reservation"), {}, {}))
        for kind, name in CHANGES.get(action, []):
            out.append((arn_of(kind), {}, server.tags_of(kind, parameters[name])))
        return out or [("*", {}, {})]

    def missing(self, server, service, action, parameters):
        """The first right that a request needs and does not have; empty: none."""
        for arn, given, has in self.touched(server, service, action, parameters):
            if not self.allows(f"{service}:{action}", arn, {"given": given, "has": has}):
                return f"{service}:{action} on {arn}"
        if service == "ec2" and tags_by_kind(parameters):
            if not self.allows("ec2:CreateTags", "*", {"action": action}):
                return f"ec2:CreateTags for {action}"
        if "IamInstanceProfile.Name" in parameters:
            if not self.allows("iam:PassRole", "*", {"to": "ec2.amazonaws.com"}):
                return "iam:PassRole"
        return ""

    def allows(self, action, arn, facts):
        for statement in self.statements:
            resources = listed(statement["Resource"])
            match = next((r for r in resources if fnmatch.fnmatchcase(arn, r)), None)
            if action not in listed(statement["Action"]) or match is None:
                continue
            if not self.holds(statement.get("Condition", {}), facts):
                continue
            self.used |= {(statement["Sid"], action), (statement["Sid"], match)}
            if "action" in facts:
                self.used.add((statement["Sid"], facts["action"]))
            return True
        return False

    @staticmethod
    def holds(condition, facts):
        for name, value in condition.get("Null", {}).items():
            kind, key = name.split("/")
            tags = facts.get({"aws:RequestTag": "given", "aws:ResourceTag": "has"}[kind], {})
            if (key not in tags) != (value == "true"):
                return False
        for name, values in condition.get("StringEquals", {}).items():
            fact = {"ec2:CreateAction": "action", "iam:PassedToService": "to"}[name]
            if facts.get(fact) not in listed(values):
                return False
        return True

    def surplus(self):
        """What the policy allows and no request has needed."""
        out = set()
        for statement in self.statements:
            needed = listed(statement["Action"]) + listed(statement["Resource"])
            for values in statement.get("Condition", {}).get("StringEquals", {}).values():
                needed += [v for v in listed(values) if "." not in v]
            out |= {(statement["Sid"], n) for n in needed if (statement["Sid"], n) not in self.used}
        return out
