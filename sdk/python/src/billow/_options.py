"""Options of jobs and functions as Python values, and the description of a job made from them."""

from __future__ import annotations

import datetime
import difflib
import os
import re
import shlex
import signal
import time
from typing import AbstractSet, Any, Dict, Iterable, List, Mapping, Sequence, Union

from ._errors import Error

Size = Union[int, str]  # bytes, or "20G"
Time = Union[int, float, str]  # seconds, or "90m"

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}

ARRAY_MAX = 100_000  # elements
JOB_OPTIONS = frozenset(
    "gpus gpu_mem gpu_type mig nodes procs cpus mem disk whole_node exclusive node_labels region"
    " zone pool cloud max_price by fabric placement_group topology spread elastic timeout name"
    " labels project priority spot retries backoff after image env network allow isolation"
    " seccomp max_processes env_vars inherit_env secrets registry_secret volumes inputs outputs cwd"
    " sync rerun_if_lost suspendable strict share suspend_hook resume_hook checkpoint_every"
    " checkpoint_cmd checkpoint_signal checkpoint_dir stop_grace reservation array"
    " idempotency_key".split()
)
# What people who know other tools write, and what it is called here.
ELSEWHERE = {
    "gpu": 'gpus=1 and, for a type, gpu_type="H100"',
    "num_gpus": "gpus",
    "accelerators": 'gpus=8, gpu_type="H100"',
    "cpu": "cpus",
    "num_cpus": "cpus",
    "memory": 'mem="16G"',
    "min_containers": "min",
    "keep_warm": "min",
    "max_containers": "max",
    "concurrency_limit": "max",
    "scaledown_window": "idle",
    "container_idle_timeout": "idle",
    "max_inputs": "concurrency",
    "allow_concurrent_inputs": "concurrency",
    "max_retries": "retries",
    "cloud_provider": "cloud",
    "schedule": 'f.schedule("0 6 * * *") for functions, billow.schedule(…) for commands',
    "time": "timeout",
    "environment": "env for a saved environment, env_vars for variables",
    "secret": "secrets",
    "volume": "volumes",
    "max_batch_size": "max",
    "mounts": "include=[PATH, …]",
}
NEEDLESS = {
    "serialized": "functions are sent by value",
    "enable_memory_snapshot": "idle workers are suspended with their memory",
}
CLOSENESS = ("switch", "rack", "zone", "region", "anywhere")


class InvalidOption(Error, ValueError):
    """An option of a job or function has a value that cannot be used."""


def bytes_of(value: Size, option: str) -> int:
    """Bytes. A small number hardly means bytes, so it must have a unit."""
    if isinstance(value, int) and not isinstance(value, bool):
        if value >= 1 << 20:
            return value
    elif isinstance(value, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]i?b?|b)\s*", value.lower())
        if found and float(found[1]) > 0:
            return int(float(found[1]) * _UNITS[found[2].rstrip("ib")])
    if re.fullmatch(r"\s*0*[1-9]\d*(\.\d+)?\s*", str(value)):
        number = str(value).strip()
        raise InvalidOption(
            f"{option}={value!r} has no unit",
            f'write "{number}G" for gigabytes or "{number}M" for megabytes',
        )
    raise InvalidOption(f"{option}={value!r} is not a size", 'write bytes or, for example, "20G"')


def mib_of(value: Size, option: str) -> int:
    return -(-bytes_of(value, option) // (1 << 20))


def seconds_of(value: Time, option: str) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if value >= 0:
            return float(value)
    elif isinstance(value, str):
        parts = re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)", value.replace(" ", ""))
        if parts and "".join(a + b for a, b in parts) == value.replace(" ", ""):
            return sum(float(number) * _SECONDS[unit] for number, unit in parts)
        if re.fullmatch(r"\s*\d+(\.\d+)?\s*", value):
            number = value.strip()
            raise InvalidOption(
                f"{option}={value!r} has no unit",
                f'write "{number}s" for seconds or "{number}m" for minutes',
            )
    raise InvalidOption(f"{option}={value!r} is not a time", 'write seconds or, e.g., "90m"')


def nanoseconds_of(value: Time, option: str) -> int:
    return int(seconds_of(value, option) * 1e9)


def _names(value: Union[str, Sequence[str]], option: str) -> List[str]:
    parts = re.split(r"[|,]", value) if isinstance(value, str) else list(value)
    names = [str(part).strip() for part in parts if str(part).strip()]
    if not names:
        raise InvalidOption(f"{option}={value!r} names nothing")
    return names


def _resources(options: Mapping[str, Any]) -> Dict[str, Any]:
    out: Dict[str, Any] = {}
    gpus = options.get("gpus") or 0
    try:
        amount = float(gpus)
    except (TypeError, ValueError):
        kind, _, count = str(gpus).partition(":")
        hint = "examples: 1, 8, 0.25"
        if re.fullmatch(r"[A-Z][A-Z0-9][\w-]*", kind):  # "H100:2", as elsewhere
            hint = f'write gpus={count if count.isdigit() else 1}, gpu_type="{kind}"'
        raise InvalidOption(f"gpus={gpus!r} is not a number", hint) from None
    if amount < 0:
        raise InvalidOption(f"gpus={gpus!r} must not be negative")
    if amount > 1 and amount != int(amount):
        raise InvalidOption(f"gpus={gpus!r}: more than one GPU must be a whole number")
    if amount >= 1:
        out.update(gpus=int(amount), share={"milli": 1000})
    elif amount > 0:
        out.update(gpus=1, share={"milli": max(1, round(amount * 1000))})
    if options.get("gpu_mem"):
        share = {"milli": 0} if amount == 0 or amount >= 1 else dict(out["share"])
        share["mem_mib"] = mib_of(options["gpu_mem"], "gpu_mem")
        out.update(gpus=out.get("gpus", 1), share=share)
    if options.get("mig"):
        out.update(gpus=max(1, int(amount)), share={"milli": 1000}, mig_profile=options["mig"])
    if options.get("gpu_type"):
        if not out.get("gpus") and not options.get("whole_node") and not options.get("exclusive"):
            raise InvalidOption("gpu_type needs gpus", "add gpus=1")
        out["gpu_types"] = _names(options["gpu_type"], "gpu_type")
    if options.get("cpus"):
        out["cpu_milli"] = round(float(options["cpus"]) * 1000)
    if options.get("mem"):
        out["mem_mib"] = mib_of(options["mem"], "mem")
    if options.get("disk"):
        out["disk_mib"] = mib_of(options["disk"], "disk")
    for name in ("whole_node", "exclusive"):
        if options.get(name):
            out[name] = True
    return out


def list_of(value: Any, option: str) -> List[Any]:
    """A list; one text is a list of one, not of its letters."""
    if value is None:
        return []
    if isinstance(value, (str, bytes, os.PathLike)):
        return [os.fspath(value)]
    try:
        return list(value)
    except TypeError:
        raise InvalidOption(f"{option}={value!r} is not a list") from None


def mapping_of(value: Any, option: str) -> Mapping[Any, Any]:
    if value is not None and not isinstance(value, Mapping):
        raise InvalidOption(f"{option}={value!r} is not a dictionary", f'{option}={{"A": "1"}}')
    return value or {}


def whole_number(value: Any, option: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidOption(f"{option}={value!r} is not a whole number of at least {least}")
    return value


def _secret(text: Any) -> Dict[str, str]:
    if not isinstance(text, str):
        raise InvalidOption("a secret is given by its name", 'write secrets=["HF_TOKEN"]')
    found = re.fullmatch(r"([^=:]+)(?:=([A-Z0-9_]+)|:(file|/.*))?", text)
    if not found:
        raise InvalidOption(
            f"secret {text.split('=')[0]!r}: expected NAME, NAME=VARIABLE or NAME:file",
            "set the value with `billow secret set NAME`, never here",
        )
    name, variable, place = found.groups()
    if place:
        return {"name": name, "file": f"/run/secrets/{name}" if place == "file" else place}
    return {"name": name, "variable": variable or name}


def _volume(text: Any) -> Dict[str, Any]:
    if not isinstance(text, str):
        raise InvalidOption(f"volume {text!r} is not text", 'write volumes=["NAME:/mnt/NAME"]')
    read_only = text.endswith(":ro")
    name, _, path = (text[:-3] if read_only else text).partition(":")
    if not path.startswith("/"):
        raise InvalidOption(f"volume {text!r} has no directory", "write NAME:/mnt/NAME")
    return {"name": name, "path": path, "read_only": read_only}


def _surroundings(options: Mapping[str, Any]) -> Dict[str, Any]:
    out: Dict[str, Any] = {}
    for name in ("image", "env"):
        if options.get(name) and not isinstance(options[name], str):
            raise InvalidOption(f"{name}={options[name]!r} is not text", f'write {name}="NAME"')
    if options.get("image"):
        out["image"] = full_image_name(str(options["image"]))
    if options.get("env"):
        out["environment"] = str(options["env"])
    if options.get("network"):
        out["network"] = _choice(
            options["network"], "network", ("host", "none", "internet", "project")
        )
    if options.get("allow"):
        out["allow"] = list_of(options["allow"], "allow")
    if options.get("isolation"):
        out["isolation"] = _choice(options["isolation"], "isolation", ("plain", "strict"))
        if out["isolation"] == "strict" and out.get("network") == "host":
            raise InvalidOption(
                "isolation='strict' and network='host' exclude each other", "drop network"
            )
    if isinstance(options.get("seccomp"), (list, tuple)):  # names, as in a file
        out["refused_calls"] = list_of(options["seccomp"], "seccomp")
    elif options.get("seccomp"):
        out["seccomp"] = _choice(options["seccomp"], "seccomp", ("default", "strict"))
    if options.get("max_processes"):
        out["processes_max"] = int(options["max_processes"])
    if options.get("secrets"):
        out["secrets"] = [_secret(each) for each in list_of(options["secrets"], "secrets")]
    if options.get("registry_secret"):
        name = options["registry_secret"]
        if not isinstance(name, str) or not re.fullmatch(r"[\w.-]+", name):
            raise InvalidOption(
                "registry_secret expects the name of a secret, not its value",
                "set the value with `billow secret set NAME`, never here",
            )
        out["registry_secret"] = name
    if options.get("volumes"):
        given = options["volumes"]
        if isinstance(given, Mapping):  # {"/mnt/data": "data"}
            given = [f"{name}:{path}" for path, name in given.items()]
        out["volumes"] = [_volume(each) for each in list_of(given, "volumes")]
    inputs = []
    for each in list_of(options.get("inputs"), "inputs"):
        url, colon, path = each.rpartition(":")
        if not colon or path.startswith("//"):
            url, path = each, each.rstrip("/").rsplit("/", 1)[-1]
        inputs.append({"url": url, "path": path})
    if inputs:
        out["inputs"] = inputs
    stored = [
        each.split("=", 1)
        for each in list_of(options.get("outputs"), "outputs")
        if "=s3://" in each
    ]
    if stored:
        out["outputs"] = [{"url": url, "path": path} for path, url in stored]
    return out


def _choice(value: Any, option: str, choices: Sequence[str]) -> str:
    if value not in choices:
        raise InvalidOption(f"{option}={value!r}: unknown", f"use {', '.join(choices)}")
    return str(value)


_RANGE = re.compile(r"\s*(\d+)(?:-(\d+)(?::([1-9]\d*))?)?\s*")


def _runs(indices: Sequence[int]) -> List[Dict[str, int]]:
    """Ascending ranges with these ascending indices."""
    out: List[Dict[str, int]] = []
    for index in indices:
        run = out[-1] if out else None
        if run and run["last"] + 1 == index:
            run["last"] = index
        else:
            out.append({"first": index, "last": index})
    return out


def _array(value: Any) -> Dict[str, Any]:
    """ "0-99", "0-99%10", "1-9:2", "1,5,7-9", a range, or whole numbers."""
    most = None
    if isinstance(value, str):
        text, _, most = value.partition("%")
        found = [_RANGE.fullmatch(part) for part in text.split(",")]
        parts = [match.groups() for match in found if match]
        ranges = [range(int(a), int(b or a) + 1, int(step or 1)) for a, b, step in parts]
        good = len(parts) == len(found) and (not most or re.fullmatch(r"[1-9]\d*", most))
    elif isinstance(value, range) or isinstance(value, int):
        ranges, good = [value if isinstance(value, range) else range(value, value + 1)], True
    else:
        ranges = [range(index, index + 1) for index in value if isinstance(index, int)]
        good = len(ranges) == len(value)
    if not good or not ranges or not all(ranges) or min(r.start for r in ranges) < 0:
        raise InvalidOption(
            f"array={value!r} names no indices", 'write "0-99", "1,5,7-9", range(100) or [1, 5, 7]'
        )
    if sum(map(len, ranges)) > ARRAY_MAX:
        raise InvalidOption(f"array={value!r} has more than {ARRAY_MAX} elements")
    if len(ranges) == 1 and ranges[0].step > 0:
        only = ranges[0]
        out: Dict[str, Any] = {"first": only.start, "last": only[-1], "step": only.step}
    else:
        first, *more = _runs(sorted({index for each in ranges for index in each}))
        out = {**first, "more": more} if more else dict(first)
    return {**out, "running_max": int(most)} if most else out


def _signal(value: Any) -> int:
    """The number of a signal: 10, "USR1", "SIGUSR1"; "USR1:group" says who gets it."""
    name = str(value).split(":")[0].upper()
    if name.isdigit():
        return int(name)
    try:
        return int(signal.Signals[name if name.startswith("SIG") else "SIG" + name])
    except KeyError:
        raise InvalidOption(f"checkpoint_signal={value!r} is not a signal", "e.g. USR1") from None


def _place(options: Mapping[str, Any]) -> Dict[str, Any]:
    out: Dict[str, Any] = {
        plural: _names(options[name], name)
        for name, plural in (
            ("region", "regions"),
            ("zone", "zones"),
            ("pool", "pools"),
            ("fabric", "fabrics"),
        )
        if options.get(name)
    }
    if options.get("placement_group"):
        out["placement_group"] = str(options["placement_group"])
    if options.get("spread"):
        out["spread"] = "spread"
    if options.get("max_price"):
        price = float(str(options["max_price"]).replace("/gpu-h", "").lstrip("$"))
        out["max_price_nano_usd_per_gpu_h"] = round(price * 1e9)
    for each in _names(options["topology"], "topology") if options.get("topology") else ():
        level, _, how = each.partition(":")
        if how:
            how = _choice(how, "topology", ("required", "preferred"))
        if level == "nvlink":
            out["nvlink_required"] = True
        elif level in ("required", "preferred"):
            how = level
        else:
            out["close"] = _choice(level, "topology", (*CLOSENESS, "nvlink"))
        if how:
            out["close_required"] = how == "required"
    return out


def full_image_name(name: str) -> str:
    """`ubuntu` means docker.io/library/ubuntu:latest, as for Docker."""
    first, slash, _ = name.partition("/")
    if not slash:
        name = "docker.io/library/" + name
    elif "." not in first and ":" not in first and first != "localhost":
        name = "docker.io/" + name
    last = name.rsplit("/", 1)[-1]
    return name if ":" in last or "@" in last else name + ":latest"


def check_names(options: Iterable[str], known: AbstractSet[str]) -> None:
    """Refuses unknown options: names all of them, and what each is called here."""
    unknown = sorted(set(options) - known)
    if not unknown:
        return
    said = []
    for each in unknown:
        near = difflib.get_close_matches(each, known, 1, 0.75)
        if each in NEEDLESS:
            said.append(f"{each} is not needed: {NEEDLESS[each]}")
        elif each in ELSEWHERE:
            said.append(f"instead of {each}, use {ELSEWHERE[each]}")
        elif near:
            said.append(f"instead of {each}, did you mean {near[0]}?")
    plural = "s" if len(unknown) > 1 else ""
    raise InvalidOption(
        f"unknown option{plural} {', '.join(unknown)}",
        "; ".join(said) or f"options: {', '.join(sorted(known))}",
    )


def spec_of(argv: Sequence[str], options: Mapping[str, Any]) -> Dict[str, Any]:
    """The JobSpec of the API for a command with these options."""
    check_names(options, JOB_OPTIONS)
    mapping_of(options.get("env_vars"), "env_vars")
    spec: Dict[str, Any] = {
        "argv": [str(word) for word in argv],
        "cwd": os.path.abspath(options.get("cwd") or "."),
        "resources": _resources(options),
        "surroundings": _surroundings(options),
    }
    for name in ("name", "priority", "nodes", "procs", "retries", "labels", "node_labels"):
        if options.get(name):
            spec[name] = options[name]
    for name in ("spot", "rerun_if_lost", "elastic", "strict"):
        if options.get(name):
            spec[name] = True
    if spec.get("elastic"):  # as on the command line: a member that is replaced may have run
        spec["rerun_if_lost"] = True
    for name, field in (
        ("timeout", "time_limit_ns"),
        ("checkpoint_every", "checkpoint_every_ns"),
        ("stop_grace", "stop_grace_ns"),
        ("backoff", "retry_backoff_ns"),
    ):
        if options.get(name):
            spec[field] = nanoseconds_of(options[name], name)
    for name in ("checkpoint_cmd", "checkpoint_dir", "suspend_hook", "resume_hook", "reservation"):
        if options.get(name):
            spec[name] = options[name]
    if options.get("share"):
        spec["time_sliced"] = _choice(options["share"], "share", ("time",)) == "time"
    if options.get("suspendable") is not None:
        given = options["suspendable"]
        given = {True: "yes", False: "no"}[given] if isinstance(given, bool) else given
        spec["suspendable"] = _choice(given, "suspendable", ("auto", "yes", "no"))
    if options.get("checkpoint_signal"):
        spec["checkpoint_signal"] = _signal(options["checkpoint_signal"])
    if options.get("array") is not None:
        spec["array"] = _array(options["array"])
    if options.get("cloud"):
        spec["node_labels"] = {**spec.get("node_labels", {}), "cloud": str(options["cloud"])}
    if options.get("by"):
        spec["labels"] = {**spec.get("labels", {}), "by": str(_moment(options["by"]))}
    place = _place(options)
    if place:
        spec["place"] = place
    return spec


def _moment(value: Any) -> int:
    """Seconds since 1970 of a datetime, or of a time from now such as "4h"."""
    if isinstance(value, datetime.datetime):
        return int(value.timestamp())
    return int(time.time() + seconds_of(value, "by"))


# ---- variables

_INSIDE = (
    "SECRET PASSWORD PASSWD PASSPHRASE CREDENTIAL APIKEY API_KEY PRIVATE_KEY ACCESS_KEY"
    " AUTHORIZATION COOKIE"
).split()
_AT_END = "TOKEN TOKENS _KEY _KEYS _PASS _PWD _PAT _DSN DATABASE_URL".split()
_AT_START = ("AWS_", "AZURE_", "GCP_", "VAULT_", "OP_SESSION")
_EXACTLY = frozenset(
    "SSH_AUTH_SOCK SSH_AGENT_PID GPG_AGENT_INFO KRB5CCNAME XAUTHORITY DBUS_SESSION_BUS_ADDRESS"
    " NETRC KUBECONFIG".split()
)
_HERE = frozenset(
    "_ SHLVL OLDPWD PWD COLUMNS LINES CUDA_VISIBLE_DEVICES NVIDIA_VISIBLE_DEVICES"
    " HIP_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES BILLOW_NVML LISTEN_FDS BILLOW_FILES BILLOW_OUTPUTS"
    " PORT BILLOW_ENDPOINT".split()
)


def looks_like_credential(name: str) -> bool:
    text = name.upper()
    return (
        any(part in text for part in _INSIDE)
        or any(text.endswith(end) for end in _AT_END)
        or text.startswith(_AT_START)
        or text in _EXACTLY
    )


def variables_of(options: Mapping[str, Any]) -> Dict[str, str]:
    """The variables that follow a job: those set here, without credentials and without those that
    describe this machine, and `env_vars`. In an image only `env_vars`."""
    chosen: Dict[str, str] = {}
    inherit = options.get("inherit_env")
    if inherit is None:
        inherit = not options.get("image")
    if inherit:
        for name, value in os.environ.items():
            own = name in _HERE or name.startswith(
                (
                    "BILLOW_JOB",
                    "BILLOW_TASK",
                    "BILLOW_RANK",
                    "BILLOW_ROLE",
                    "BILLOW_GROUP",
                    "BILLOW_PORT",
                    "BILLOW_ARRAY",
                    "BILLOW_FUNCTION",
                )
            )
            if own or looks_like_credential(name):
                continue
            try:
                (name + value).encode("utf-8")
            except UnicodeEncodeError:
                continue  # what is not UTF-8 cannot be stored; the job runs without it
            chosen[name] = value
    if options.get("checkpoint_signal"):
        to = str(options["checkpoint_signal"]).partition(":")[2] or "main"
        chosen["BILLOW_CHECKPOINT_TO"] = _choice(to, "checkpoint_signal", ("main", "group", "all"))
    for name, value in mapping_of(options.get("env_vars"), "env_vars").items():
        chosen[str(name)] = str(value)
    return chosen


def command_of(command: Union[str, Sequence[str]]) -> List[str]:
    """A string is for the shell; a sequence is a program with its arguments."""
    if isinstance(command, str):
        return ["sh", "-c", command]
    words = [os.fspath(word) if hasattr(word, "__fspath__") else str(word) for word in command]
    if not words:
        raise InvalidOption("no command given", 'for example: ["python", "train.py"]')
    return words


def shown(words: Sequence[str]) -> str:
    return " ".join(shlex.quote(word) for word in words)
