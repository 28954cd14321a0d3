"""Options of jobs and functions as Python values, and the description of a job made from them."""

from __future__ import annotations

import os
import re
import shlex
from typing import Any, Dict, List, Mapping, Sequence, Union

from ._errors import Error

Size = Union[int, str]  # bytes, or "20G"
Time = Union[int, float, str]  # seconds, or "90m"

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}

JOB_OPTIONS = frozenset(
    "gpus gpu_mem gpu_type mig nodes procs cpus mem disk whole_node exclusive node_labels region zone"
    " pool timeout name labels project priority spot retries after image env env_vars inherit_env"
    " secrets volumes inputs outputs cwd sync rerun_if_lost suspendable checkpoint_every"
    " checkpoint_signal checkpoint_dir stop_grace reservation array".split()
)


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
        raise InvalidOption(f"gpus={gpus!r} is not a number", "examples: 1, 8, 0.25") from None
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


def _secret(text: str) -> Dict[str, str]:
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


def _volume(text: str) -> Dict[str, Any]:
    read_only = text.endswith(":ro")
    name, _, path = (text[:-3] if read_only else text).partition(":")
    if not path.startswith("/"):
        raise InvalidOption(f"volume {text!r} has no directory", "write NAME:/mnt/NAME")
    return {"name": name, "path": path, "read_only": read_only}


def _surroundings(options: Mapping[str, Any]) -> Dict[str, Any]:
    out: Dict[str, Any] = {}
    if options.get("image"):
        out["image"] = full_image_name(str(options["image"]))
    if options.get("env"):
        out["environment"] = str(options["env"])
    if options.get("secrets"):
        out["secrets"] = [_secret(each) for each in options["secrets"]]
    if options.get("volumes"):
        out["volumes"] = [_volume(each) for each in options["volumes"]]
    inputs = []
    for each in options.get("inputs") or []:
        url, colon, path = each.rpartition(":")
        if not colon or path.startswith("//"):
            url, path = each, each.rstrip("/").rsplit("/", 1)[-1]
        inputs.append({"url": url, "path": path})
    if inputs:
        out["inputs"] = inputs
    stored = [each.split("=", 1) for each in options.get("outputs") or [] if "=s3://" in each]
    if stored:
        out["outputs"] = [{"url": url, "path": path} for path, url in stored]
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


def spec_of(argv: Sequence[str], options: Mapping[str, Any]) -> Dict[str, Any]:
    """The JobSpec of the API for a command with these options."""
    unknown = set(options) - JOB_OPTIONS
    if unknown:
        raise InvalidOption(
            f"unknown option {', '.join(sorted(unknown))}", f"options: {sorted(JOB_OPTIONS)}"
        )
    spec: Dict[str, Any] = {
        "argv": [str(word) for word in argv],
        "cwd": os.path.abspath(options.get("cwd") or "."),
        "resources": _resources(options),
        "surroundings": _surroundings(options),
    }
    for name in ("name", "priority", "nodes", "procs", "retries", "labels", "node_labels"):
        if options.get(name):
            spec[name] = options[name]
    for name in ("spot", "rerun_if_lost"):
        if options.get(name):
            spec[name] = True
    for name, field in (
        ("timeout", "time_limit_ns"),
        ("checkpoint_every", "checkpoint_every_ns"),
        ("stop_grace", "stop_grace_ns"),
    ):
        if options.get(name):
            spec[field] = nanoseconds_of(options[name], name)
    for name in ("checkpoint_signal", "checkpoint_dir", "suspendable", "reservation", "array"):
        if options.get(name):
            spec[name] = options[name]
    place = {
        plural: _names(options[name], name)
        for name, plural in (("region", "regions"), ("zone", "zones"), ("pool", "pools"))
        if options.get(name)
    }
    if place:
        spec["place"] = place
    return spec


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
    for name, value in (options.get("env_vars") or {}).items():
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
