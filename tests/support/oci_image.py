"""Container images for tests, made of files of this machine, as `ctr images import` reads them."""
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import tarfile

from rig import BIN

SHELL_TOOLS = (
    *("sh", "sleep", "cat", "echo", "true", "mv", "mkdir", "rm", "wc", "ls", "id", "hostname"),
    *(
        "nc",
        "kill",
        "tar",
        "sha256sum",
        "cut",
        "grep",
        "printf",
        "test",
        "[",
        "seq",
        "date",
        "head",
    ),
)


def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def blob(data):
    return "blobs/sha256/" + digest(data)[7:], data, 0o644, tarfile.REGTYPE


def tar_of(entries):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for path, content, mode, kind in entries:
            info = tarfile.TarInfo(path)
            info.mode, info.type = mode, kind
            if kind == tarfile.SYMTYPE:
                info.linkname = content
                content = b""
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def image_tar(name, files, links=(), entry=None):
    """An OCI image with one layer. files: (path, content, mode); links: (path, target)."""
    entries = [(d, b"", 0o1777, tarfile.DIRTYPE) for d in ("tmp", "var/tmp")]
    entries += [(d, b"", 0o755, tarfile.DIRTYPE) for d in ("proc", "sys", "dev", "etc", "billow")]
    entries += [(p, c, m, tarfile.REGTYPE) for p, c, m in files]
    entries += [(p, t, 0o777, tarfile.SYMTYPE) for p, t in links]
    layer = tar_of(entries)
    platform = {
        "architecture": {"aarch64": "arm64", "x86_64": "amd64"}[os.uname().machine],
        "os": "linux",
    }
    run = {"Env": ["PATH=/opt/billow/bin:/bin:/usr/bin"], "Cmd": ["/bin/sh"]}
    if entry:
        run["Entrypoint"] = entry
    config = json.dumps(
        {**platform, "config": run, "rootfs": {"type": "layers", "diff_ids": [digest(layer)]}}
    ).encode()
    prefix = "application/vnd.oci.image."

    def described(kind, data):
        return {"mediaType": prefix + kind, "digest": digest(data), "size": len(data)}

    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": prefix + "manifest.v1+json",
            "config": described("config.v1+json", config),
            "layers": [described("layer.v1.tar", layer)],
        }
    ).encode()
    index = {
        "schemaVersion": 2,
        "manifests": [
            {
                **described("manifest.v1+json", manifest),
                "annotations": {"io.containerd.image.name": name},
                "platform": platform,
            }
        ],
    }
    layout = json.dumps({"imageLayoutVersion": "1.0.0"}).encode()
    return tar_of(
        [
            ("oci-layout", layout, 0o644, tarfile.REGTYPE),
            ("index.json", json.dumps(index).encode(), 0o644, tarfile.REGTYPE),
            *map(blob, (config, manifest, layer)),
        ]
    )


def libraries_of(program):
    text = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    return set(re.findall(r"(/[^ ]+) \(", text))


def loaded_by_name(library):
    """Where this machine has it, or nothing: programs that load it at run time do not name it."""
    text = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=False).stdout
    found = re.search(rf"^\s*{re.escape(library)} .* => (\S+)$", text, re.M)
    return found[1] if found else ""


class Files:
    """Programs of this machine with the libraries they need, and busybox."""

    def __init__(self):
        self.files, self.libraries = [], set()
        self.add("bin/busybox", shutil.which("busybox"))

    def add(self, path, source):
        with open(source, "rb") as f:
            self.files.append((path, f.read(), 0o755))
        self.libraries |= libraries_of(source)

    def image(self, name):
        libraries = []
        for library in sorted(self.libraries):
            with open(library, "rb") as f:
                libraries.append((library.lstrip("/"), f.read(), 0o755))
        return image_tar(
            name, self.files + libraries, [("bin/" + t, "busybox") for t in SHELL_TOOLS]
        )


def billow_image(name):
    """Contains Billow's programs."""
    files = Files()
    lib = os.path.join(os.path.dirname(os.path.abspath(BIN)), "lib")
    for program in ("billow", "billow-supervise", "billow-gpumem"):
        source = os.path.join(BIN, program)
        if os.path.exists(source):
            files.add("opt/billow/bin/" + program, source)
    if libpq := loaded_by_name("libpq.so.5"):
        files.libraries |= {libpq} | libraries_of(libpq)
    if flock := shutil.which("flock"):  # jobs of tests show with it that they run once at a time
        files.add("bin/flock", flock)
    for library in os.listdir(lib) if os.path.isdir(lib) else ():
        if library.endswith(".so"):
            files.add("opt/billow/lib/" + library, os.path.join(lib, library))
    return files.image(name)


def plain_image(name):
    """Contains curl and a shell, but not Billow."""
    files = Files()
    files.libraries |= libraries_of(os.path.join(BIN, "billow"))
    files.add("bin/curl", shutil.which("curl"))
    return files.image(name)


def pause_image(name):
    """The first process of a pod: it waits, and collects what the others leave behind."""
    with open(shutil.which("busybox"), "rb") as f:
        busybox = f.read()
    pause = b"#!/bin/busybox sh\ntrap 'exit 0' TERM INT\nwhile :; do sleep 3600 & wait; done\n"
    return image_tar(
        name,
        [("bin/busybox", busybox, 0o755), ("pause", pause, 0o755)],
        [("bin/sh", "busybox"), ("bin/sleep", "busybox")],
        entry=["/pause"],
    )
