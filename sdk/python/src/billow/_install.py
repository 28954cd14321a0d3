"""`billow sdk install`: installs the wheel with pip, without network.

The package needs cloudpickle. If the environment does not have it and no index can be reached, it
is taken from another Python of this machine, as the wheel that its files make.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from typing import Any, Dict, List, Optional

FIND = (
    "import cloudpickle, os; print(os.path.dirname(cloudpickle.__file__)); "
    "print(cloudpickle.__version__)"
)
REMEDY = (
    "install cloudpickle there: `apt install python3-cloudpickle`, or `pip install cloudpickle`"
)


class Failed(Exception):
    pass


def say(text: str) -> None:
    print(f"billow: {text}", file=sys.stderr)


def _run(words: List[str]) -> "subprocess.CompletedProcess[str]":
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    return subprocess.run(words, capture_output=True, text=True, env=environment, check=False)


def _own_python() -> str:
    """The Python that runs this; of a virtual environment, the one of that environment."""
    return sys.executable or "python3"


def _environment(place: str) -> str:
    """The Python of a virtual environment, which is created if it does not exist."""
    python = os.path.join(place, "bin", "python")
    if os.path.exists(python):
        return python
    done = _run([_own_python(), "-m", "venv", place])
    if done.returncode != 0:
        raise Failed(
            f"the virtual environment {place} could not be created:\n{done.stdout}{done.stderr}\n"
            "hint: on Debian: apt install python3-venv"
        )
    say(f"created the virtual environment {place}")
    return python


def _wheel_of(directory: str, version: str, out: str) -> str:
    """A wheel of an installed pure Python package, from its files."""
    info = f"cloudpickle-{version}.dist-info"
    files: Dict[str, bytes] = {}
    for folder, folders, names in os.walk(directory):
        folders[:] = [each for each in folders if each != "__pycache__"]
        for each in names:
            if each.endswith(".py"):
                path = os.path.join(folder, each)
                with open(path, "rb") as file:
                    name = os.path.relpath(path, os.path.dirname(directory))
                    files[name.replace(os.sep, "/")] = file.read()
    files[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: cloudpickle\nVersion: {version}\n".encode()
    )
    files[f"{info}/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: billow\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    record = ""
    for name, data in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(data)}\n"
    files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    path = os.path.join(out, f"cloudpickle-{version}-py3-none-any.whl")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, data in sorted(files.items()):
            wheel.writestr(name, data)
    return path


def _cloudpickle_from(pythons: List[str], out: str) -> Optional[str]:
    for python in pythons:
        if not shutil.which(python):
            continue
        found = _run([python, "-c", FIND])
        if found.returncode == 0:
            directory, version = found.stdout.split("\n")[:2]
            say(f"cloudpickle {version} is taken from {directory}")
            return _wheel_of(directory, version, out)
    return None


def _isolated(python: str) -> bool:
    """Whether that Python belongs to a virtual or conda environment."""
    look = (
        "import os, sys; conda = os.environ.get('CONDA_PREFIX'); "
        "print(sys.prefix != sys.base_prefix or (bool(conda) and sys.prefix == conda))"
    )
    return _run([python, "-c", look]).stdout.strip() == "True"


def install(request: Dict[str, Any]) -> None:
    wheel, target = str(request["wheel"]), str(request.get("target") or "")
    venv = str(request.get("venv") or "")
    python = _environment(venv) if venv else _own_python()
    named = venv or target or request.get("user") or request.get("system")
    if not named and not _isolated(python):
        raise Failed(
            f"no virtual environment is active: {python} is used by other programs, and nothing "
            "was installed\nhint: use --venv .venv (created if needed), --user for your account, "
            "or --system for all users of this Python"
        )
    if _run([python, "-m", "pip", "--version"]).returncode != 0:
        raise Failed(f"{python} has no pip\nhint: on Debian: apt install python3-pip python3-venv")
    words = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    # The same version may have been built again: the newest files count.
    words += ["--upgrade", "--force-reinstall"]
    if target:
        words += ["--target", target]
    if request.get("user"):
        words.append("--user")
    there = not target and _run([python, "-c", "import cloudpickle"]).returncode == 0
    with tempfile.TemporaryDirectory() as place:
        extra: List[str] = []
        if not there:
            direct = _run([*words[:-2], "--timeout", "5", "--retries", "0", "cloudpickle"])
            if direct.returncode != 0:
                found = _cloudpickle_from([python, "/usr/bin/python3", "python3"], place)
                if found is None:
                    raise Failed(
                        f"{python} has no cloudpickle, and no package index answers\nhint: {REMEDY}"
                    )
                extra = [found]
        done = _run([*words, "--no-index", "--no-deps", *extra, wheel])
    if done.returncode != 0:
        raise Failed(f"pip failed:\n{done.stdout}{done.stderr}")
    where = f"PYTHONPATH={target} {python}" if target else python
    say(f"installed {os.path.basename(wheel)}; try: {where} -c 'import billow'")


def main() -> int:
    try:
        install(json.loads(sys.argv[1]))
    except Failed as problem:
        say(str(problem))
        return 1
    return 0
