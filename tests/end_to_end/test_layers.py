"""The architecture's one-way streets, read off the source: who may import whom."""

from __future__ import annotations

import ast
from pathlib import Path

import paths
import pytest

ROOT = paths.ROOT
MODULES = sorted([*ROOT.glob("kmeanalyst/**/*.py"), *ROOT.glob("release_side/**/*.py")])
ROOMS = [
    "kernels",
    "releases",
    "representation",
    "inference",
    "learning",
    "plots",
    "report",
    "cli",
]  # each may import those before it, and itself
LATE_DOORS = {  # the files that may open later rooms inside functions, and which
    ROOT / "kmeanalyst/releases/release.py": ROOMS,
}


def imported(tree: ast.AST, package: str) -> list[tuple[str, bool]]:
    """(module, whether at top level) for each import of a source tree, but for TYPE_CHECKING: it never runs."""
    found: list[tuple[str, bool]] = []

    def visit(node: ast.AST, top: bool) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        if isinstance(node, ast.Import):
            found.extend((alias.name, top) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = (node.module or "") if node.level == 0 else _absolute(package, node.level, node.module)
            found.extend((f"{base}.{alias.name}", top) for alias in node.names)
        inner = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            visit(child, top and not inner)

    visit(tree, True)
    return found


def _absolute(package: str, level: int, module: str | None) -> str:
    parts = package.split(".")
    return ".".join(parts[: len(parts) - level + 1] + ([module] if module else []))


def package_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).parts[:-1])


def room_of(module: str) -> int | None:
    """Which room a module is in; None for those outside the rooms."""
    parts = module.split(".")
    return ROOMS.index(parts[1]) if parts[0] == "kmeanalyst" and len(parts) > 1 and parts[1] in ROOMS else None


def wrong_imports(source: str, path: Path) -> list[str]:
    """What a module imports against the rules."""
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    here = room_of(module)
    wrong = []
    for name, top in imported(ast.parse(source), package_of(path)):
        if module.startswith("kmeanalyst") and name.split(".")[0] == "release_side":
            wrong.append(f"{module} imports {name}: the analyst's package never sees private rows")
        if module.startswith("release_side") and (room_of(name) or 0) >= ROOMS.index("inference"):
            wrong.append(f"{module} imports {name}: the curator's package asks no questions")
        there = room_of(name)
        late_door = not top and there is not None and ROOMS[there] in LATE_DOORS.get(path, [])
        if here is not None and there is not None and there > here and not late_door:
            wrong.append(f"{module} imports {name}: rooms open one way, {' ← '.join(ROOMS)}")
    return wrong


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_one_way(path: Path):
    assert wrong_imports(path.read_text(encoding="utf-8"), path) == []


PROBES = [
    ("kmeanalyst/kernels/base.py", "import release_side", True),
    ("kmeanalyst/cli/main.py", "def f():\n    from release_side.mechanism import GaussianNoise", True),
    ("kmeanalyst/kernels/base.py", "from kmeanalyst.releases.domain import Domain", True),
    ("kmeanalyst/kernels/base.py", "from kmeanalyst import releases", True),
    ("kmeanalyst/kernels/base.py", "from ..releases import domain", True),
    ("kmeanalyst/representation/weights/reweight.py", "from kmeanalyst.inference import results", True),
    ("kmeanalyst/releases/domain/domain.py", "def f():\n    import kmeanalyst.representation.reweight", True),
    ("kmeanalyst/releases/release.py", "import kmeanalyst.representation.reweight", True),
    ("kmeanalyst/releases/release.py", "class A:\n    def f(self):\n        import kmeanalyst.inference", False),
    ("kmeanalyst/releases/release.py", "if TYPE_CHECKING:\n    import kmeanalyst.inference.results", False),
    ("kmeanalyst/inference/compare/comparison.py", "def f():\n    from kmeanalyst.plots import witness", True),
    ("kmeanalyst/inference/compare/comparison.py", "from kmeanalyst.plots import witness", True),
    ("kmeanalyst/inference/compare/comparison.py", "def f():\n    from kmeanalyst.learning import metrics", True),
    ("kmeanalyst/inference/compare/witness.py", "def f():\n    from kmeanalyst.plots import witness", True),
    ("kmeanalyst/learning/scoring/metrics.py", "from kmeanalyst.plots import histogram", True),
    ("kmeanalyst/plots/smooth.py", "from kmeanalyst.inference import results", False),
    ("release_side/cli/main.py", "def f():\n    from kmeanalyst.plots import histogram", True),
    ("kmeanalyst/inference/two_sample/mmd_test.py", "from kmeanalyst.kernels import Gaussian", False),
    ("release_side/publish.py", "from kmeanalyst.representation import reweight", False),
    ("release_side/publish.py", "from kmeanalyst.inference import results", True),
]  # fmt: skip


@pytest.mark.parametrize(("path", "source", "refused"), PROBES)
def test_the_layer_rule_sees_what_it_should(path: str, source: str, refused: bool):
    assert bool(wrong_imports(source, ROOT / path)) == refused
