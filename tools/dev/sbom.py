#!/usr/bin/env python3
"""Writes a software bill of materials (CycloneDX 1.5) of a built tree.

Nothing is listed by hand. A component of the program is a Debian package from which the compiler read
a header (ninja's record of dependencies) or the linker a library (the link commands); a component of
the dashboard is a package of web/package-lock.json that is no development tool; of the Python package,
what its pyproject.toml requires."""
import base64
import glob
import hashlib
import json
import os
import re
import subprocess
import sys


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def version_of(root):
    text = open(os.path.join(root, "CMakeLists.txt"), encoding="utf-8").read()
    return re.search(r"project\(billow VERSION ([0-9.]+)", text).group(1)


def files_of_the_build(build):
    """Headers that were read and libraries that were linked, outside of the tree."""
    found = set()
    ours = False
    for line in output("ninja", "-C", build, "-t", "deps").splitlines():
        if line and not line.startswith(" "):
            ours = not line.startswith(("tests/", "bench/"))
        elif ours and line.strip().startswith("/usr/"):
            found.add(os.path.realpath(line.strip()))
    for line in output("ninja", "-C", build, "-t", "commands", "bin/billow").splitlines():
        found.update(
            os.path.realpath(path)
            for path in re.findall(r"(/usr/lib/\S+\.(?:a|so)\S*)", line)
            if os.path.exists(path)
        )
    return found


def packages_of(files):
    """The Debian packages that own the files."""
    names = set()
    files = sorted(files)
    for start in range(0, len(files), 500):
        done = subprocess.run(
            ["dpkg-query", "-S", *files[start : start + 500]], capture_output=True, text=True
        )
        for line in done.stdout.splitlines():
            names.update(name.strip() for name in line.split(": ")[0].split(","))
    return sorted(names)


def licences_of(package):
    """The licences that the package's copyright file names: in its machine-readable form, or the
    texts to which it refers."""
    path = f"/usr/share/doc/{package.split(':')[0]}/copyright"
    try:
        text = open(path, encoding="utf-8", errors="replace").read()
    except OSError:
        return []
    names = re.findall(r"^License:[ \t]*(\S[^\n]*)$", text, re.M)
    names = names or re.findall(r"/usr/share/common-licenses/([\w+-]+(?:\.[\w+-]+)*)", text)
    return sorted({name.strip() for name in names})


def debian_component(package):
    fields = output("dpkg-query", "-W", "-f", "${Package}\t${Version}\t${Architecture}", package)
    name, version, architecture = fields.split("\t")
    return {
        "type": "library",
        "bom-ref": f"deb/{name}",
        "name": name,
        "version": version,
        "purl": f"pkg:deb/debian/{name}@{version}?arch={architecture}",
        "licenses": [{"license": {"name": licence}} for licence in licences_of(package)],
    }


def npm_components(root):
    lock = json.load(open(os.path.join(root, "web", "package-lock.json"), encoding="utf-8"))
    for path, entry in sorted(lock["packages"].items()):
        if not path or entry.get("dev"):
            continue
        name = path.split("node_modules/")[-1]
        algorithm, _, digest = entry["integrity"].partition("-")
        component = {
            "type": "library",
            "bom-ref": f"npm/{name}",
            "name": name,
            "version": entry["version"],
            "purl": f"pkg:npm/{name.replace('@', '%40')}@{entry['version']}",
            "hashes": [{"alg": "SHA-512", "content": base64.b64decode(digest).hex()}],
        }
        assert algorithm == "sha512", path
        if "license" in entry:
            component["licenses"] = [{"license": {"id": entry["license"]}}]
        yield component


def python_components(root):
    text = open(os.path.join(root, "sdk", "python", "pyproject.toml"), encoding="utf-8").read()
    listed = re.search(r"^dependencies\s*=\s*\[(.*?)\]", text, re.M | re.S)
    for requirement in re.findall(r'"([^"]+)"', listed.group(1) if listed else ""):
        name = re.match(r"[A-Za-z0-9_.-]+", requirement).group(0)
        yield {
            "type": "library",
            "bom-ref": f"pypi/{name}",
            "name": name,
            "purl": f"pkg:pypi/{name}",
            "description": f"required by the Python package: {requirement}",
        }


def programs(build):
    for path in sorted(glob.glob(os.path.join(build, "bin", "*"))):
        name = os.path.basename(path)
        if (
            not os.path.isfile(path)
            or name.endswith(".debug")
            or not name.startswith(("billow", "lib"))
        ):
            continue
        digest = hashlib.sha256(open(path, "rb").read()).hexdigest()
        yield {
            "type": "file",
            "bom-ref": f"file/{name}",
            "name": name,
            "hashes": [{"alg": "SHA-256", "content": digest}],
        }


def main(root, build, out):
    components = [debian_component(p) for p in packages_of(files_of_the_build(build))]
    components += npm_components(root)
    components += python_components(root)
    components += programs(build)
    version = version_of(root)
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": "billow",
                "name": "billow",
                "version": version,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            }
        },
        "components": components,
        "dependencies": [
            {"ref": "billow", "dependsOn": [component["bom-ref"] for component in components]}
        ],
    }
    with open(out, "w", encoding="utf-8") as file:
        json.dump(document, file, indent=1)
        file.write("\n")
    print(f"{out}: {len(components)} components")


if __name__ == "__main__":
    main(*sys.argv[1:4])
