"""The house's rules, read off the source: which floor may import which, no circles, and where noise is drawn.

Imports at load time, late ones and those for type checking count alike.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import paths

MODULES = sorted([*paths.ROOT.glob("kmeanalyst/**/*.py"), *paths.ROOT.glob("release_side/**/*.py")])
FLOORS = [
    "kernels", "releases", "sources", "representation", "inference", "learning", "plots", "report", "release", "cli",
]  # fmt: skip
CURATORS_UPPER_FLOORS = (
    "release_side.publishing",
    "release_side.quality",
    "release_side.cli",
)  # the others import up to `representation`
NAMES_ALL = {"kmeanalyst", "release_side"}  # the packages' own files list the public names of every floor
DRAWS_NOISE = {"opendp"}  # the library whose noise meets private data
EXACT = "release_side.quality"  # the one room besides the door that sees exact numbers: the command alone calls it


def name_of(path: Path) -> str:
    parts = path.relative_to(paths.ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {name_of(path) for path in MODULES}


@cache
def imported(source: str, module: str, *, is_package: bool = False) -> tuple[str, ...]:
    """The modules that a source imports, wherever the statement stands; of other projects the top package."""
    return tuple(_imported(source, module, is_package))


def _imported(source: str, module: str, is_package: bool) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = module.split(".")
            package = parts[: len(parts) - node.level + is_package] if node.level else []
            base = ".".join([*package, *([node.module] if node.module else [])])
            for alias in node.names:
                yield f"{base}.{alias.name}" if f"{base}.{alias.name}" in NAMES else base


def floor_of(module: str) -> int | None:
    """Which floor of `kmeanalyst` a module is on; None elsewhere."""
    parts = module.split(".")
    return FLOORS.index(parts[1]) if parts[0] == "kmeanalyst" and len(parts) > 1 and parts[1] in FLOORS else None


def wrong_imports(source: str, path: Path) -> list[str]:
    module = name_of(path)
    here, wrong = floor_of(module), []
    for name in imported(source, module, is_package=path.name == "__init__.py"):
        there = floor_of(name)
        if module.startswith("kmeanalyst") and name.split(".")[0] == "release_side":
            wrong.append(f"{module} imports {name}: the analyst's package never sees private rows")
        if here is not None and there is not None and there > here:
            wrong.append(f"{module} imports {name}: a floor imports those below it, {' ← '.join(FLOORS)}")
        if module.startswith("release_side.") and not module.startswith(CURATORS_UPPER_FLOORS):
            if there is not None and there > FLOORS.index("representation"):
                wrong.append(f"{module} imports {name}: it needs kernels, releases and representation alone")
            if name.startswith(CURATORS_UPPER_FLOORS) and module != "release_side.__main__":
                wrong.append(f"{module} imports {name}: publishing, quality and the command line are above it")
        if _is_of(name, EXACT) and not _is_of(module, EXACT) and module != "release_side.cli.quality":
            wrong.append(f"{module} imports {name}: exact numbers of private rows stay in the room and its command")
        if _is_of(module, EXACT) and name.startswith(("release_side.door", "release_side.budget", "release_side.publishing")):
            wrong.append(f"{module} imports {name}: exact numbers are near no noise, no budget and no release")
        if name.split(".")[0] in DRAWS_NOISE and not module.startswith("release_side.door."):
            wrong.append(f"{module} imports {name}: noise is drawn behind release_side/door/ alone")
        if name.startswith("release_side.door.private_mean") and not module.startswith(
            ("release_side.door.", "release_side.publishing.")
        ):
            wrong.append(f"{module} imports {name}: only publishing sends rows through the door")
    return wrong


def _is_of(module: str, room: str) -> bool:
    return module == room or module.startswith(f"{room}.")


def circles(arrows: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected components of more than one module (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in sorted(arrows[module]):
            if other not in index:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in stack:
                low[module] = min(low[module], index[other])
        if low[module] == index[module]:
            cut = stack.index(module)
            if len(stack) - cut > 1:
                found.append(sorted(stack[cut:]))
            del stack[cut:]

    for module in sorted(arrows):
        if module not in index:
            visit(module)
    return found


def arrows_of(sources: dict[str, tuple[str, bool]]) -> dict[str, set[str]]:
    """Module → the modules of the house that it imports."""
    return {
        module: (set(imported(source, module, is_package=package)) & set(sources)) - {module}
        for module, (source, package) in sources.items()
    }


def test_a_floor_imports_those_below_it():
    wrong = [line for path in MODULES for line in wrong_imports(path.read_text(encoding="utf-8"), path)]
    assert not wrong, "\n".join(wrong)


def test_no_import_goes_in_a_circle():
    sources = {
        name_of(path): (path.read_text(encoding="utf-8"), path.name == "__init__.py")
        for path in MODULES
        if name_of(path) not in NAMES_ALL
    }
    assert circles(arrows_of(sources)) == []


def test_every_folder_says_what_it_is_for_and_has_about_ten_entries():
    for path in (path for path in MODULES if path.name == "__init__.py"):
        assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), f"{path} has no docstring"
        entries = [each for each in path.parent.iterdir() if each.suffix == ".py" or (each / "__init__.py").is_file()]
        assert len(entries) <= 14, f"{path.parent} has {len(entries)} entries"


PROBES = [
    ("kmeanalyst/kernels/base.py", "import release_side", True),
    ("kmeanalyst/cli/main.py", "def f():\n    from release_side.door.mechanism import GaussianNoise", True),
    ("kmeanalyst/kernels/base.py", "from kmeanalyst.releases.domain.domain import Domain", True),
    ("kmeanalyst/kernels/base.py", "from kmeanalyst import releases", True),
    ("kmeanalyst/kernels/base.py", "from ..releases import domain", True),
    ("kmeanalyst/representation/represent.py", "from kmeanalyst.inference import estimate", True),
    ("kmeanalyst/releases/domain/domain.py", "def f():\n    import kmeanalyst.representation.represent", True),
    ("kmeanalyst/releases/release.py", "class A:\n    def f(self):\n        import kmeanalyst.inference", True),
    ("kmeanalyst/releases/release.py", "if TYPE_CHECKING:\n    import kmeanalyst.inference.estimate", True),
    ("kmeanalyst/inference/compare/comparison.py", "def f():\n    from kmeanalyst.plots import histogram", True),
    ("kmeanalyst/learning/digest.py", "from kmeanalyst.release import Release", True),
    ("kmeanalyst/release.py", "def f():\n    from kmeanalyst import plots", False),
    ("kmeanalyst/plots/joint.py", "from kmeanalyst.inference import estimate", False),
    ("release_side/cli/main.py", "from kmeanalyst.cli import terminal", False),
    ("release_side/budget/ledger.py", "def f():\n    from kmeanalyst.plots import style", True),
    ("release_side/door/mechanism.py", "from release_side.publishing import publish", True),
    ("release_side/publishing/publish.py", "from kmeanalyst.release import Release", False),
    ("release_side/publishing/publish.py", "import opendp.prelude as dp", True),
    ("release_side/door/mechanism.py", "import opendp.prelude as dp", False),
    ("release_side/choices/options.py", "from release_side.door.private_mean import private_mean", True),
    ("release_side/quality/models.py", "from kmeanalyst.learning.training.training import fit", False),
    ("release_side/quality/models.py", "from release_side.quality.questions import Compared", False),
    ("release_side/cli/quality.py", "def f():\n    from release_side.quality.quality import quality", False),
    ("release_side/cli/main.py", "def f():\n    from release_side.quality.quality import quality", True),
    ("release_side/__init__.py", "from release_side.quality.quality import quality", True),
    ("release_side/publishing/publish.py", "def f():\n    from release_side import quality", True),
    ("release_side/door/door.py", "from release_side.quality import questions", True),
    ("release_side/quality/quality.py", "from release_side.door.mechanism import GaussianNoise", True),
    ("release_side/quality/quality.py", "def f():\n    import release_side.budget.ledger", True),
    ("release_side/quality/quality.py", "if TYPE_CHECKING:\n    from release_side.publishing.publish import publish", True),
]  # fmt: skip


def test_the_rule_of_floors_sees_what_it_should():
    seen = [(path, source, bool(wrong_imports(source, paths.ROOT / path))) for path, source, _ in PROBES]
    assert seen == PROBES


def test_a_circle_is_seen_whatever_kind_its_imports_are():
    sources = {
        "a": ("from b import x", False), "b": ("def f():\n    import c", False),
        "c": ("if TYPE_CHECKING:\n    import a", False), "d": ("import a", False),
    }  # fmt: skip
    assert circles(arrows_of(sources)) == [["a", "b", "c"]]
