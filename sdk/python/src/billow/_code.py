"""What a function needs in a worker, by content: its project's modules, the versions of its
packages, its included files, and the digest that names its revision.

All of it follows from the function alone, not from what else the calling process has imported:
otherwise two programs that call the same function would replace each other's workers.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import importlib.metadata
import json
import os
import platform
import re
import sys
import sysconfig
import types
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Set

from ._files import Tree
from ._pickle import without_random_ids

_WORD = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*")
_IMPORT = re.compile(
    rb"(?:^|[:;])[ \t]*(?:from[ \t]+([A-Za-z_]\w*)|import[ \t]+([A-Za-z_][^\n#;]*))", re.MULTILINE
)
_OWN = frozenset({"billow", "cloudpickle", "__main__", "__mp_main__"})


def digest_of(parts: Iterable[bytes]) -> str:
    total = hashlib.sha256()
    for part in parts:
        total.update(len(part).to_bytes(8, "little"))
        total.update(part)
    return total.hexdigest()


# ---- modules


def package_files(package: types.ModuleType) -> Dict[str, str]:
    """path in the tree → file, for the Python files of a package."""
    root = os.path.dirname(os.path.abspath(package.__file__ or ""))
    return dict(_files_below(root, package.__name__))


def _files_below(root: str, name: str) -> Iterator["tuple[str, str]"]:
    for directory, folders, files in os.walk(root):
        folders[:] = sorted(e for e in folders if e.isidentifier() and e != "__pycache__")
        for each in files:
            if each.endswith(".py") or each == "py.typed":
                path = os.path.join(directory, each)
                yield os.path.join(name, os.path.relpath(path, root)), path


def _installed_roots() -> List[str]:
    paths = {sysconfig.get_paths()[each] for each in ("stdlib", "platstdlib", "purelib", "platlib")}
    paths |= {each for each in sys.path if each.endswith(("site-packages", "dist-packages"))}
    return sorted(os.path.realpath(each) + os.sep for each in paths if each)


def is_installed(file: str) -> bool:
    """Whether a file belongs to Python or to an installed package, and not to a project."""
    real = os.path.realpath(file)
    return any(real.startswith(each) for each in _installed_roots())


def home_of(module: str) -> str:
    """What tells modules with equal names apart: the file of a project's module, the name of an
    installed one."""
    file: Optional[str] = getattr(sys.modules.get(module), "__file__", None)
    return os.path.realpath(file) if file and not is_installed(file) else module


class _Project:
    """The modules of the calling process that are not installed."""

    def __init__(self) -> None:
        self._roots = tuple(_installed_roots())
        self._loaded: Dict[str, List[str]] = {}  # top → all its modules
        for name in list(sys.modules):
            self._loaded.setdefault(name.partition(".")[0], []).append(name)
        self.names = set(self._loaded)  # that are worth a look
        for place in sys.path:
            if not self._is_own(os.path.join(place, "")) or not os.path.isdir(place or "."):
                continue
            for each in os.listdir(place or "."):
                self.names.add(each[: -len(".py")] if each.endswith(".py") else each)

    def _is_own(self, path: str) -> bool:
        return not (os.path.realpath(path) + os.sep).startswith(self._roots)

    def files_of(self, top: str, imported: bool) -> Dict[str, str]:
        """path in the tree → file, of a module or a whole package by its first name; nothing if it
        is installed. `imported`: an import statement names it, so that a directory without
        `__init__.py` is a package too."""
        if top in _OWN or top in sys.builtin_module_names:
            return {}
        first = getattr(sys.modules.get(top), "__file__", None)
        if first and not self._is_own(first):
            return {}
        out: Dict[str, str] = {}
        for name in self._loaded.get(top, ()):
            file = getattr(sys.modules.get(name), "__file__", None)
            if file and file.endswith(".py") and self._is_own(file):
                end = "/__init__.py" if os.path.basename(file) == "__init__.py" else ".py"
                out[os.path.join(*name.split(".")) + end] = os.path.realpath(file)
        for directory in self._directories_of(top, out, imported):
            if self._is_own(os.path.join(directory, "")):
                for path, file in _files_below(directory, top):
                    out.setdefault(path, os.path.realpath(file))
        return out

    def _directories_of(self, top: str, out: Dict[str, str], imported: bool) -> List[str]:
        """Those of a package. Its modules count whether they have been imported or not. A module
        that is one file is put into `out` instead."""
        loaded = sys.modules.get(top)
        if loaded is not None:
            return [str(each) for each in getattr(loaded, "__path__", [])]
        try:
            spec = importlib.machinery.PathFinder.find_spec(top)
        except (ImportError, ValueError):
            return []
        if spec is None:
            return []
        places = [str(each) for each in spec.submodule_search_locations or []]
        if not places and spec.origin and spec.origin.endswith(".py") and self._is_own(spec.origin):
            out[top + ".py"] = os.path.realpath(spec.origin)
        return places if imported or spec.origin else []


def _imports_of(file: str) -> Set[str]:
    """The first names of the modules that a source imports, anywhere in it."""
    try:
        with open(file, "rb") as source:
            text = source.read()
    except OSError:
        return set()
    found: Set[str] = set()
    for one, many in _IMPORT.findall(text):
        words = [one] if one else [each.strip().partition(b" ")[0] for each in many.split(b",")]
        found.update(each.partition(b".")[0].decode("ascii", "replace") for each in words)
    return {each for each in found if each.isidentifier()}


def modules_of(pickled: bytes) -> Dict[str, str]:
    """path in the tree → file, for the project's modules that a pickled function names, and for
    those that these import. They are shipped so that a worker can import them as this process."""
    project = _Project()
    out: Dict[str, str] = {}
    seen: Set[str] = set()
    words = {each.decode("ascii") for each in set(_WORD.findall(pickled))}
    todo = [(each, False) for each in sorted(words & project.names)]
    while todo:
        top, imported = todo.pop()
        if top in seen:
            continue
        found = project.files_of(top, imported)
        if found or imported:
            seen.add(top)
        for path, file in found.items():
            if path not in out:
                out[path] = file
                todo += [(each, True) for each in _imports_of(file)]
    return out


# ---- packages


def packages_of(pickled: bytes) -> Dict[str, str]:
    """The installed packages that a pickled function names, with their versions."""
    found: Dict[str, str] = {}
    names = {each.decode("ascii") for each in _WORD.findall(pickled)}
    by_module = _distributions()
    for name in names & set(sys.modules) & set(by_module):
        for distribution in by_module[name]:
            try:
                found[distribution] = importlib.metadata.version(distribution)
            except importlib.metadata.PackageNotFoundError:
                continue
    return {name: found[name] for name in sorted(found) if name not in ("billow", "cloudpickle")}


_by_module: Optional[Mapping[str, List[str]]] = None


def _distributions() -> Mapping[str, List[str]]:
    """module → distributions that provide it."""
    global _by_module
    if _by_module is None:
        out: Dict[str, List[str]] = {}
        for distribution in importlib.metadata.distributions():
            name = distribution.metadata["Name"]
            top = (distribution.read_text("top_level.txt") or name or "").split()
            for module in top:
                out.setdefault(module.replace("-", "_"), []).append(name)
        _by_module = out
    return _by_module


# ---- the revision


def add_path(tree: Tree, path: str) -> str:
    """Adds an included file or directory under its last name, which is returned."""
    name = os.path.basename(os.path.abspath(path))
    if not os.path.isdir(path):
        tree.add_file(name, path)
        return name
    for directory, folders, files in os.walk(path):
        folders[:] = [each for each in folders if each not in ("__pycache__", ".git")]
        for each in files:
            file = os.path.join(directory, each)
            tree.add_file(os.path.join(name, os.path.relpath(file, path)), file)
    return name


def revision_of(settings: Any, code: bytes) -> str:
    """The digest of everything that makes a worker behave differently, except variables of this
    process: `env_vars` counts, what a shell has exported does not."""
    import billow

    parts = [without_random_ids(code), json.dumps(settings.shape(), sort_keys=True).encode()]
    rest = {
        "job": settings.job,
        "policy": [settings.min, settings.max, settings.idle, settings.keep, settings.access],
        "python": platform.python_version_tuple()[:2],
        "interpreter": settings.python,
    }
    parts.append(json.dumps(rest, sort_keys=True, default=str).encode())
    files = {**package_files(billow), **modules_of(code)}
    for path in sorted(files):
        parts.append(path.encode())
        with open(files[path], "rb") as file:
            parts.append(file.read())
    included = Tree()
    for each in settings.include:
        add_path(included, each)
    for path, entry in sorted(included.entries.items()):
        parts += [path.encode(), entry.target.encode(), *entry.pieces]
    return digest_of(parts)[:32]
