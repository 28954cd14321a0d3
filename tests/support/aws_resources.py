"""What a region of the EC2 double (aws_server.py) has besides instances: cache disks, subnets, groups
and fixed addresses."""
import time


class Refused(Exception):
    def __init__(self, status, code, message=""):
        super().__init__(code)
        self.status, self.code, self.message = status, code, message


class Resources:
    # ---- cache disks
    def CreateVolume(self, region, p):
        with self.lock:
            token = (region, p["ClientToken"])
            if token in self.volume_tokens and not self.forgets_volume_tokens:
                return {"volumeId": self.volume_tokens[token]}
            if p["AvailabilityZone"] not in self.zones.get(region, []):
                raise Refused(400, "InvalidZone.NotFound")
            tags = self.tags_in(p)
            if p["TagSpecification.1.ResourceType"] != "volume" or p["VolumeType"] != "gp3":
                self.mistakes.append("a volume without tags")
            self.volumes_made += 1
            one = {
                "id": f"vol-{self.volumes_made:017x}",
                "region": region,
                "zone": p["AvailabilityZone"],
                "gib": int(p["Size"]),
                "tags": tags,
                "instance": "",
                "made": int(time.time()),
                "looks": self.invisible_disk_looks,
            }
            self.volumes[one["id"]] = one
            self.volume_tokens[token] = one["id"]
            return {"volumeId": one["id"]}

    def DescribeVolumes(self, region, p):
        wanted = self.filters(p)
        rows = []
        with self.lock:
            for one in self.volumes.values():
                if one["region"] != region or not self.matches(one["tags"], wanted):
                    continue
                if one["looks"] > 0:
                    one["looks"] -= "NextToken" not in p
                    continue
                rows.append(
                    {
                        "volumeId": one["id"],
                        "availabilityZone": one["zone"],
                        "status": "in-use" if one["instance"] else "available",
                        "createTime": time.strftime(
                            "%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(one["made"])
                        ),
                        "tagSet": self.tag_set(one["tags"]),
                    }
                )
            return self.paged(rows, p, "volumeSet")

    def AttachVolume(self, region, p):
        with self.lock:
            volume = self.volumes.get(p["VolumeId"])
            one = self.instances.get(p["InstanceId"])
            if not volume or volume["region"] != region:
                raise Refused(400, "InvalidVolume.NotFound")
            if not one or one["state"] != "running":
                raise Refused(400, "IncorrectState")
            if one["zone"] != volume["zone"]:
                raise Refused(400, "InvalidVolume.ZoneMismatch")
            if volume["instance"]:
                raise Refused(400, "VolumeInUse")
            if any(v["instance"] == one["id"] for v in self.volumes.values()):
                raise Refused(400, "InvalidParameterValue", "the attachment point is in use")
            volume["instance"] = one["id"]
            volume["used"] = volume.get("used", 0) + 1
            if self.machines:
                self.machines.attach(one["id"], volume["id"], volume["gib"])
            return {"volumeId": volume["id"], "instanceId": one["id"], "status": "attaching"}

    def DeleteVolume(self, region, p):
        with self.lock:
            volume = self.volumes.get(p["VolumeId"])
            if not volume:
                raise Refused(400, "InvalidVolume.NotFound")
            if volume["instance"]:
                raise Refused(400, "VolumeInUse", f"{volume['id']} is attached")
            del self.volumes[volume["id"]]
            if self.machines:
                self.machines.drop_disk(volume["id"])
            return {"return": "true"}

    # ---- what the machines of a region share
    def DescribeSubnets(self, region, p):
        rows = [
            {"subnetId": f"subnet-{z}", "vpcId": f"vpc-{region}", "availabilityZone": z}
            for z in self.zones.get(region, [])
        ]
        return self.paged(rows, p, "subnetSet")

    def DescribeSecurityGroups(self, region, p):
        wanted, rows = self.filters(p), []
        for name, found in self.groups.get(region, {}).items():
            facts = self.group_facts[found]
            if name not in wanted.get("group-name", [name]):
                continue
            if not self.matches(facts["tags"], wanted):
                continue
            rules = [
                {"fromPort": port, "toPort": port, "ipRanges": [{"cidrIp": network}]}
                for port, network in sorted(facts["rules"])
            ]
            row = {"groupId": found, "groupName": name, "ipPermissions": rules}
            rows.append({**row, "tagSet": self.tag_set(facts["tags"])})
        return self.paged(rows, p, "securityGroupInfo")

    def CreatePlacementGroup(self, region, p):
        with self.lock:
            if p["Strategy"] != "cluster" or (region, p["GroupName"]) in self.placement_groups:
                raise Refused(400, "InvalidPlacementGroup.Duplicate")
            self.placement_groups.add((region, p["GroupName"]))
            return {"return": "true"}

    def CreateSecurityGroup(self, region, p):
        with self.lock:
            groups = self.groups.setdefault(region, {})
            if p["GroupName"] in groups:
                raise Refused(400, "InvalidGroup.Duplicate")
            made = f"sg-{region}-{len(self.group_facts)}"
            groups[p["GroupName"]] = made
            self.group_facts[made] = {"tags": self.tags_in(p), "rules": set(), "inside": False}
            return {"groupId": made}

    def AuthorizeSecurityGroupIngress(self, region, p):
        """Only the head's port may be open, and only to networks that somebody has named."""
        network = p.get("IpPermissions.1.IpRanges.1.CidrIp")
        if network:
            facts = self.group_facts[p["GroupId"]]
            if "billow:head" not in facts["tags"] or p["IpPermissions.1.FromPort"] != "7070":
                self.mistakes.append("a port is open to the world")
            if p["IpPermissions.1.FromPort"] != p["IpPermissions.1.ToPort"]:
                self.mistakes.append("several ports are open")
            if (7070, network) in facts["rules"]:
                raise Refused(400, "InvalidPermission.Duplicate")
            facts["rules"].add((7070, network))
        elif p["IpPermissions.1.Groups.1.GroupId"] == p["GroupId"]:
            if self.group_facts[p["GroupId"]]["inside"]:
                raise Refused(400, "InvalidPermission.Duplicate")
            self.group_facts[p["GroupId"]]["inside"] = True
        return {"return": "true"}

    def RevokeSecurityGroupIngress(self, region, p):
        rule = (7070, p["IpPermissions.1.IpRanges.1.CidrIp"])
        if rule not in self.group_facts[p["GroupId"]]["rules"]:
            raise Refused(400, "InvalidPermission.NotFound")
        self.group_facts[p["GroupId"]]["rules"].discard(rule)
        return {"return": "true"}

    def DeleteSecurityGroup(self, region, p):
        with self.lock:
            groups = self.groups.get(region, {})
            name = next((n for n, i in groups.items() if i == p["GroupId"]), None)
            if not name:
                raise Refused(400, "InvalidGroup.NotFound")
            if any(one.get("group") == p["GroupId"] for one in self.alive()):
                raise Refused(400, "DependencyViolation", "resource has a dependent object")
            del groups[name]
            return {"return": "true"}

    # ---- fixed addresses: EC2 has no client token for them
    def AllocateAddress(self, region, p):
        with self.lock:
            if not self.free_addresses:
                raise Refused(400, "AddressLimitExceeded", "Too many addresses allocated")
            ip = self.free_addresses.pop(0)
            self.allocations += 1
            one = {"id": f"eipalloc-{self.allocations}", "ip": ip, "region": region}
            self.addresses[one["id"]] = {**one, "tags": self.tags_in(p), "instance": ""}
            return {"publicIp": ip, "allocationId": one["id"], "domain": "vpc"}

    def DescribeAddresses(self, region, p):
        wanted = self.filters(p)
        rows = [
            {"publicIp": a["ip"], "allocationId": a["id"], "tagSet": self.tag_set(a["tags"])}
            for a in self.addresses.values()
            if a["region"] == region and self.matches(a["tags"], wanted)
        ]
        return {"addressesSet": rows}

    def AssociateAddress(self, region, p):
        with self.lock:
            if self.instances[p["InstanceId"]]["state"] != "running":
                raise Refused(400, "InvalidInstanceID", "the instance is not running")
            self.addresses[p["AllocationId"]]["instance"] = p["InstanceId"]
            return {"associationId": "eipassoc-1"}

    def ReleaseAddress(self, region, p):
        with self.lock:
            one = self.addresses.get(p["AllocationId"])
            if not one:
                raise Refused(400, "InvalidAllocationID.NotFound")
            used = self.instances.get(one["instance"])
            if used and used["state"] != "terminated":
                raise Refused(400, "InvalidIPAddress.InUse")
            del self.addresses[one["id"]]
            self.free_addresses.append(one["ip"])
            return {"return": "true"}
