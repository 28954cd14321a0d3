"""Where the head is and how to prove who asks: the same contexts, tokens, fingerprints and sockets
as the command line (see docs/access.md)."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import pwd
import stat
from dataclasses import dataclass
from typing import Any, Dict, List, Optional

from ._errors import ConnectionFailed
from ._http import Address, Connection, Tls, parse_address

FILE_BYTES_MAX = 1 << 20


@dataclass(frozen=True)
class Head:
    address: Address
    token: str
    data_dir: str = ""
    named: str = ""  # as the user wrote it; empty: the head of this machine


def _variable(name: str) -> str:
    return os.environ.get(name, "")


def home_directory() -> str:
    return _variable("HOME") or pwd.getpwuid(os.geteuid()).pw_dir


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read(FILE_BYTES_MAX)


def config_directory() -> str:
    return os.path.join(_variable("XDG_CONFIG_HOME") or home_directory() + "/.config", "billow")


def state_directory() -> str:
    state = _variable("XDG_STATE_HOME")
    return os.path.join(
        state if state.startswith("/") else home_directory() + "/.local/state", "billow"
    )


def contexts() -> Dict[str, Any]:
    path = os.path.join(config_directory(), "contexts.json")
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return {}
    if stat.S_IMODE(mode) & 0o077:
        raise ConnectionFailed(
            f"{path} contains tokens but other users can read it", f"run `chmod 600 {path}`"
        )
    try:
        found = json.loads(_read(path))
    except (OSError, ValueError) as problem:
        raise ConnectionFailed(
            f"cannot read {path}: {problem}", "delete it and log in again: billow login URL"
        ) from None
    if not isinstance(found, dict):
        raise ConnectionFailed(f"{path} is not a context file", "log in again: billow login URL")
    return found


def _data_directory(option: str) -> str:
    if option or _variable("BILLOW_DATA"):
        return option or _variable("BILLOW_DATA")
    if _variable("XDG_DATA_HOME"):
        return _variable("XDG_DATA_HOME") + "/billow"
    return "/var/lib/billow" if os.geteuid() == 0 else home_directory() + "/.local/share/billow"


def _lock_is_held(path: str) -> bool:
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(fd)


def _lives_in(data_dir: str) -> bool:
    return _lock_is_held(data_dir + "/lock") or _lock_is_held(data_dir + "/agent/lock")


def _running_heads() -> List[str]:
    directory = os.path.join(state_directory(), "heads")
    try:
        names = sorted(os.listdir(directory))
        boot = _read("/proc/sys/kernel/random/boot_id").strip()
    except OSError:
        return []
    found = set()
    for name in names:
        try:
            pointer = json.loads(_read(os.path.join(directory, name)))
        except (OSError, ValueError):
            continue
        if isinstance(pointer, dict) and pointer.get("boot_id") == boot:
            data_dir = str(pointer.get("data_dir", ""))
            if data_dir and _lives_in(data_dir):
                found.add(data_dir)
    return sorted(found)


def _meant_data_directory(option: str) -> str:
    named = _data_directory(option)
    if option or _variable("BILLOW_DATA") or _lives_in(named):
        return named
    heads = _running_heads()
    if len(heads) > 1:
        raise ConnectionFailed(
            f"{len(heads)} of your heads run on this machine: {', '.join(heads[:4])}",
            f"choose one with data={heads[0]!r} or the variable BILLOW_DATA",
        )
    return heads[0] if heads else named


def _split(token: str, tls: Tls) -> "tuple[str, Tls]":
    """A token may carry, behind a dot, the fingerprint of its head's authority."""
    secret, _, fingerprint = token.partition(".")
    if fingerprint and not tls.ca and not tls.fingerprint:
        tls = Tls(fingerprint=fingerprint)
    return secret, tls


def _answers(address: Address) -> bool:
    try:
        connection = Connection(address, 2.0)
    except (OSError, ConnectionFailed):
        return False
    try:
        return connection.request("GET", "/healthz").status == 200
    except OSError:
        return False
    finally:
        connection.close()


def _named_head(url: str) -> Head:
    context = contexts().get(url)
    context = context if isinstance(context, dict) else {}
    token = _variable("BILLOW_TOKEN") or str(context.get("token", ""))
    tls = Tls(str(context.get("ca", "")), str(context.get("fingerprint", "")))
    token, tls = _split(token, tls)
    # Of several heads of one store ("URL,URL") only the leader answers.
    addresses = [parse_address(each, tls) for each in url.split(",")]
    address = addresses[0]
    if len(addresses) > 1:
        address = next((each for each in addresses if _answers(each)), address)
    if not token and address.unix_path:
        try:
            token, tls = _split(_read(os.path.dirname(address.unix_path) + "/token").strip(), tls)
        except OSError:
            pass
    if not token:
        raise ConnectionFailed(
            f"no token for {url}", f"log in with `billow login {url}`, or set BILLOW_TOKEN"
        )
    return Head(address, token, named=url)


def find_head(head: Optional[str] = None, data: Optional[str] = None) -> Head:
    """The head that is meant: `head`, BILLOW_HEAD, the one last logged in to, or this machine's."""
    url = head or ("" if data else _variable("BILLOW_HEAD"))
    if not url and not data and not _variable("BILLOW_DATA"):
        url = str(contexts().get("current", ""))
    if url:
        return _named_head(url)
    data_dir = _meant_data_directory(data or "")
    path = data_dir + "/head.sock"
    if not os.path.exists(path):
        # The socket may be elsewhere if its path would be too long; the head says where.
        try:
            told = json.loads(_read(data_dir + "/head.json")).get("socket", "")
            path = told or path
        except (OSError, ValueError, AttributeError):
            pass
    token = _variable("BILLOW_TOKEN")
    if not token:
        try:
            token = _read(data_dir + "/token").strip()
        except PermissionError:
            raise ConnectionFailed(
                f"you have no permission to read the token of the head in {data_dir}",
                "set BILLOW_TOKEN to your own token",
            ) from None
        except OSError:
            raise ConnectionFailed(
                f"no head is running here (looked in {data_dir})",
                "start one with `billow up`, or log in to one: billow login https://HEAD:7070",
            ) from None
    return Head(Address(unix_path=path), _split(token, Tls())[0], data_dir)


def key_path(head: Head, endpoint: str) -> str:
    """Where the key for an endpoint of this head is kept, readable only by its user."""
    where = f"{head.named or head.data_dir}\n{endpoint}"
    return os.path.join(
        state_directory(), "endpoint-keys", hashlib.sha256(where.encode()).hexdigest()[:32]
    )
