"""Groups: several roles in one job, which start together or not at all."""

from __future__ import annotations

import queue
import threading
from dataclasses import dataclass, field
from typing import Any, AsyncIterator, Dict, Iterator, List, Mapping, Optional, Union

from ._client import Client, default_client, over
from ._errors import NotFound
from ._jobs import Command, Job, post_job, prepare
from ._options import InvalidOption, command_of, spec_of, variables_of

# What a role may set for itself. Given to `group`, they apply to all roles, except `retries`,
# which then counts restarts of the whole group.
ROLE_OPTIONS = frozenset(
    "gpus gpu_mem gpu_type cpus mem procs retries image env env_vars inherit_env secrets volumes"
    " registry_secret strict share max_processes".split()
)


@dataclass(frozen=True)
class Role:
    """What the members of a role run and need; see `role`."""

    command: Command
    count: int = 1
    service: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)


def role(command: Command, *, count: int = 1, service: bool = False, **options: Any) -> Role:
    """A role of a group: `count` members that run `command`, each with its own gpus, cpus, mem,
    image and so on. A `service` runs until the members of all other roles have ended. A member
    that fails is started again up to `retries` times, while the others continue."""
    unknown = set(options) - ROLE_OPTIONS
    if unknown:
        raise InvalidOption(
            f"unknown option of a role: {', '.join(sorted(unknown))}",
            f"options of roles: {sorted(ROLE_OPTIONS)}; others belong to the group",
        )
    return Role(command, count, service, dict(options))


class Group(Job):
    """A group is a job; its members have names such as "trainer" or "rollout.2"."""

    def __repr__(self) -> str:
        return f"<billow.Group {self.id}>"

    @property
    def roles(self) -> Dict[str, Dict[str, Any]]:
        """What the head knows of each role: command, count, resources, cost."""
        return {str(each["name"]): dict(each) for each in self.document.get("roles", [])}

    @property
    def cost_by_role(self) -> Dict[str, float]:
        """The charge so far in USD; the sum is `cost`."""
        return {name: int(each["cost_nano_usd"]) / 1e9 for name, each in self.roles.items()}

    def restart(self, role: str) -> None:
        """Restarts a role, or one member such as "rollout.2", while the others continue."""
        self._client.post(f"{self._path}/restart", {"role": role})

    def members(self, role: Optional[str] = None) -> List[str]:
        """The names of all members in the order of their ranks, or of those of one role."""
        names = []
        for each in self.document.get("roles", []):
            count = int(each["count"])
            for index in range(count):
                member = str(each["name"]) if count == 1 else f"{each['name']}.{index}"
                if role is None or role in (each["name"], f"{each['name']}.{index}"):
                    names.append(member)
        if not names:
            raise NotFound(404, f"job {self.id} has no role {role!r}", f"roles: {list(self.roles)}")
        return names

    def logs(
        self, follow: bool = False, rank: Optional[int] = None, role: Optional[str] = None
    ) -> Iterator[str]:
        """The lines of all members, each behind its member's name: "[rollout.2] …". With `role`
        those of one role, or of one member such as "rollout.2"; with `rank` those of one rank.
        The lines of a single member have no name before them."""
        if rank is not None:
            return super().logs(follow, rank)
        everyone = self.members()
        chosen = [everyone.index(name) for name in self.members(role)]
        if len(chosen) == 1:
            return super().logs(follow, chosen[0])
        return self._merged({r: everyone[r] for r in chosen}, follow)

    def _merged(self, names: Mapping[int, str], follow: bool) -> Iterator[str]:
        """Lines of several members: one after the other, or with `follow` as they come."""
        one = super().logs
        if not follow:
            for rank, name in names.items():
                for line in one(False, rank):
                    yield f"[{name}] {line}"
            return
        # A thread per member; None is the end of one, an exception ends all.
        lines: "queue.Queue[Union[str, None, Exception]]" = queue.Queue(1000)
        over_now = threading.Event()

        def put(item: Union[str, None, Exception]) -> bool:
            while not over_now.is_set():
                try:
                    lines.put(item, timeout=0.2)
                    return True
                except queue.Full:
                    pass
            return False

        def read(rank: int, name: str) -> None:
            try:
                for line in one(True, rank):
                    if not put(f"[{name}] {line}"):
                        return
                put(None)
            except Exception as problem:  # noqa: BLE001 - raised again by the reader
                put(problem)

        for rank, name in names.items():
            threading.Thread(target=read, args=(rank, name), daemon=True).start()
        left = len(names)
        try:
            while left:
                item = lines.get()
                if item is None:
                    left -= 1
                elif isinstance(item, Exception):
                    raise item
                else:
                    yield item
        finally:
            over_now.set()

    def alogs(
        self, follow: bool = False, rank: Optional[int] = None, role: Optional[str] = None
    ) -> AsyncIterator[str]:
        """`logs` for asyncio."""
        return over(self.logs(follow, rank, role))


def _role_spec(name: str, given: Role, shared: Mapping[str, Any]) -> Dict[str, Any]:
    own = dict(given.options)
    options = {**shared, **own}
    spec = spec_of(command_of(given.command), options)
    variables = {**(shared.get("env_vars") or {}), **(own.get("env_vars") or {})}
    inherits = options.get("inherit_env")
    if inherits is None:
        inherits = not options.get("image")
    described: Dict[str, Any] = {
        "name": name,
        "count": given.count,
        "service": given.service,
        "env": {str(key): str(value) for key, value in variables.items()},
        "own_env": not inherits,
    }
    for key in (
        "argv",
        "cwd",
        "resources",
        "surroundings",
        "procs",
        "retries",
        "strict",
        "time_sliced",
    ):
        if spec.get(key):
            described[key] = spec[key]
    return described


def group(
    roles: Mapping[str, Union[Role, Command]], *, client: Optional[Client] = None, **options: Any
) -> Group:
    """Submits a group: members of several roles that start together or not at all.

        billow.group(
            {
                "trainer": billow.role("python train.py", gpus=4),
                "rollout": billow.role("python serve.py", gpus=1, count=4, service=True, retries=3),
            },
            name="rl",
            timeout="12h",
        )

    Every member finds the others by `BILLOW_GROUP_<ROLE>_ADDRESSES` (see docs/groups.md)."""
    if not roles:
        raise InvalidOption("a group needs at least one role")
    for name in ("nodes", "array", "reservation", "mig", "whole_node", "exclusive", "elastic"):
        if options.get(name):
            raise InvalidOption(f"{name} is not possible for a group")
    client = client or default_client()
    parts = {
        str(name): each if isinstance(each, Role) else role(each) for name, each in roles.items()
    }
    shared = {key: options[key] for key in ROLE_OPTIONS - {"retries"} if key in options}
    first = next(iter(parts.values()))
    body = prepare(client, command_of(first.command), options)
    spec = body["spec"]
    spec["resources"] = {}
    cwd = spec["cwd"]
    spec["roles"] = [{**_role_spec(name, each, shared), "cwd": cwd} for name, each in parts.items()]
    body["env"] = {**variables_of({**options, "image": None}), **_of_billow(body["env"])}
    return Group(post_job(client, body, options.get("idempotency_key")), client)


def _of_billow(variables: Mapping[str, str]) -> Dict[str, str]:
    return {name: value for name, value in variables.items() if name.startswith("BILLOW_")}
