"""Builds the wheel and the source archive of sdk/python: sdk_wheel.py SOURCE OUT. Standard library only,
and the same sources give the same bytes, so that a head can serve the wheel that fits it."""
import base64
import gzip
import hashlib
import io
import os
import re
import sys
import tarfile
import zipfile

DATE = (2020, 1, 1, 0, 0, 0)


def project(source):
    """The few lines of pyproject.toml that the metadata needs; tomllib is not in Python 3.9."""
    with open(os.path.join(source, "pyproject.toml"), encoding="utf-8") as file:
        text = file.read()
    found = dict(re.findall(r'^(name|version|description|requires-python) = "([^"]*)"', text, re.M))
    found["license"] = re.search(r'^license = \{ text = "([^"]*)"', text, re.M)[1]
    listed = re.search(r"^dependencies = \[(.*?)\]", text, re.M | re.S)[1]
    found["dependencies"] = re.findall(r'"([^"]+)"', listed)
    return found


def metadata(about, source):
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {about['name']}",
        f"Version: {about['version']}",
        f"Summary: {about['description']}",
        f"License: {about['license']}",
        f"Requires-Python: {about['requires-python']}",
        *(f"Requires-Dist: {each}" for each in about["dependencies"]),
        "Description-Content-Type: text/markdown",
    ]
    with open(os.path.join(source, "README.md"), encoding="utf-8") as file:
        return "\n".join(lines) + "\n\n" + file.read()


def sources(source):
    """(path below SOURCE, content), sorted."""
    out = []
    for folder, folders, names in os.walk(source):
        folders[:] = sorted(
            f for f in folders if f not in ("__pycache__", ".mypy_cache", "build", "dist")
        )
        for name in sorted(names):
            if name.endswith((".pyc", ".egg-info")):
                continue
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                out.append((os.path.relpath(path, source), file.read()))
    return sorted(out)


def build_wheel(source, out):
    about = project(source)
    info = f"{about['name']}-{about['version']}.dist-info"
    files = {p[len("src/") :]: data for p, data in sources(source) if p.startswith("src/")}
    files[f"{info}/METADATA"] = metadata(about, source).encode()
    files[f"{info}/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: billow\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    record = []
    for path, data in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record.append(f"{path},sha256={digest},{len(data)}")
    record.append(f"{info}/RECORD,,")
    files[f"{info}/RECORD"] = ("\n".join(record) + "\n").encode()
    path = os.path.join(out, f"{about['name']}-{about['version']}-py3-none-any.whl")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, data in sorted(files.items()):
            entry = zipfile.ZipInfo(name, DATE)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o100644 << 16
            wheel.writestr(entry, data)
    return path


def build_sdist(source, out):
    about = project(source)
    top = f"{about['name']}-{about['version']}"
    files = sources(source) + [("PKG-INFO", metadata(about, source).encode())]
    path = os.path.join(out, top + ".tar.gz")
    with open(path, "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed:
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for name, data in sorted(files):
                entry = tarfile.TarInfo(f"{top}/{name}")
                entry.size = len(data)
                entry.mode = 0o644
                archive.addfile(entry, io.BytesIO(data))
    return path


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: sdk_wheel.py SOURCE OUT")
    os.makedirs(sys.argv[2], exist_ok=True)
    print(build_wheel(sys.argv[1], sys.argv[2]))
    print(build_sdist(sys.argv[1], sys.argv[2]))
