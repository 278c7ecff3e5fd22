"""Model files: a model read back is the model written; external files that skops would accept are refused."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from collections import ChainMap, OrderedDict, UserList, defaultdict, deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import paths
import pytest
import skops
from every import every
from sklearn.base import is_classifier
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge, SGDClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.svm import SVC
from skops.io import _general

import kmeanalyst as ka
from kmeanalyst.learning.training import pipeline
from kmeanalyst.learning.training.model_contents import OLDEST_SKOPS, check_made, check_schema, check_skops

ROOT = paths.ROOT


@pytest.fixture(scope="module")
def release() -> ka.Release:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=60), "ill": rng.choice(["no", "yes"], 60), "w": np.ones(60)})
    return ka.from_frame(frame, weight="w")


@pytest.fixture
def path(release: ka.Release, tmp_path: Path) -> Path:
    ka.fit(LogisticRegression(), release, "ill").write(tmp_path / "model.skops")
    return tmp_path / "model.skops"


def forge(path: Path, edit: Callable[[dict[str, Any]], None], **more: bytes) -> None:
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()} | more
    schema = json.loads(members["schema.json"])
    edit(schema)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in (members | {"schema.json": json.dumps(schema).encode()}).items():
            archive.writestr(name, data)
    path.write_bytes(out.getvalue())


def attributes(schema: dict[str, Any], name: str) -> dict[str, Any]:
    """The attributes of the first object of a class in a schema."""
    waiting = [schema]
    while waiting:
        value = waiting.pop(0)
        if isinstance(value, dict):
            if value.get("__class__") == name and value.get("__loader__") == "ObjectNode":
                return value["content"]["content"]
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
    raise KeyError(name)


def adding(key: str, part: dict[str, Any]) -> Callable[[dict[str, Any]], None]:
    def edit(schema: dict[str, Any]) -> None:
        found = attributes(schema, "LogisticRegression")
        found[key] = part
        for table in _tables(schema):
            if table.get("content") is found:
                table["key_types"]["content"].append(table["key_types"]["content"][0])

    return edit


def _tables(value: Any) -> list[dict[str, Any]]:
    if isinstance(value, dict):
        return [value, *(table for item in value.values() for table in _tables(item))]
    return [table for item in value for table in _tables(item)] if isinstance(value, list) else []


def part_of(name: str, loader: str, **more: Any) -> dict[str, Any]:
    """A part of a schema: the name of what it makes, and the node that makes it."""
    module, _, short = name.rpartition(".")
    return {"__class__": short, "__module__": module, "__loader__": loader, **more}


def text(value: str) -> dict[str, Any]:
    return part_of("builtins.str", "JsonNode", content=json.dumps(value), is_json=True)


def items(*values: dict[str, Any]) -> dict[str, Any]:
    return part_of("builtins.tuple", "TupleNode", content=list(values))


UFUNC = part_of("numpy.negative", "FunctionNode")
OPERATOR = part_of("operator.methodcaller", "OperatorFuncNode", attrs=items(text("x")))
HIDDEN = OPERATOR | {"__class__": "call", "__module__": "sklearn.linear_model"}
METHOD = part_of("builtins.str", "MethodNode", content={"obj": text("x"), "func": "format"})
NO_KEYWORDS = part_of("builtins.dict", "DictNode", content={}, key_types=part_of("builtins.list", "ListNode", content=[]))
PARTIAL = part_of(
    "functools.partial", "PartialNode",
    content={"func": UFUNC, "args": items(), "kwds": NO_KEYWORDS, "namespace": items()},
)  # fmt: skip


def test_a_file_that_is_only_written_again_is_read(path: Path) -> None:
    forge(path, lambda schema: None)
    assert ka.read_model(path).target == "ill"
    forge(path, adding("extra_", text("harmless")))
    assert ka.read_model(path)["model"].extra_ == "harmless"


def test_an_attribute_in_the_place_of_a_method_is_refused(path: Path) -> None:
    """skops trusts numpy's functions by default: the model would predict whatever they give."""
    whole = path.read_bytes()
    for name in ("predict", "predict_proba", "decision_function", "__class__"):
        path.write_bytes(whole)
        forge(path, adding(name, UFUNC))
        with pytest.raises(ValueError, match=rf"not a sound model file.*attribute '{name}' in the place of a method.*Ask for"):
            ka.read_model(path)


@pytest.mark.parametrize("part", [OPERATOR, METHOD, PARTIAL], ids=lambda part: part["__loader__"])
def test_a_call_that_skops_would_not_name_is_refused_all_the_same(
    part: dict[str, Any], path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hole such as that of skops before 0.12, whose audit passed calls by another name."""
    forge(path, adding("extra_", part))
    with pytest.raises(ValueError, match=r"would make .*not known to be harmless"):
        ka.read_model(path)
    made: list[str] = []
    node = getattr(_general, part["__loader__"])
    monkeypatch.setattr(node, "get_unsafe_set", lambda self: set())
    monkeypatch.setattr(node, "_construct", lambda self: made.append("run"))
    with pytest.raises(ValueError, match=rf"its part .*{part['__loader__']}.*of no kind that a model needs"):
        ka.read_model(path)
    assert not made


def test_a_call_under_the_name_of_an_estimator_is_refused(path: Path) -> None:
    forge(path, adding("extra_", HIDDEN))
    with pytest.raises(ValueError, match="Expected module 'operator'"):
        ka.read_model(path)
    with pytest.raises(ValueError, match=r"operator\.call"):
        check_schema(HIDDEN, ())


def test_a_generator_made_by_another_function_of_numpy_is_refused() -> None:
    def generator(name: str) -> dict[str, Any]:
        content = {"bit_generator": {"content": {"bit_generator": text(name)}}}
        return part_of("numpy.random._generator.Generator", "RandomGeneratorNode", content=content)

    with pytest.raises(ValueError, match=r"numpy\.random\._generator\.Generator"):
        check_schema(generator("seed"), ())
    check_schema(generator("PCG64"), ())


@every("hold", [
    *(lambda values, value=value: [value] for value in (
        len, str.upper, "x".upper, lambda: 0, [np.load], {"f": np.save}, {"x": ka.Release.write},
    )),
    frozenset, set, deque, lambda values: OrderedDict(x=values[0]), lambda values: defaultdict(list, x=values[0]),
    lambda values: {values[0]: 1}, lambda values: ChainMap({}, {"x": values[0]}), lambda values: UserList(values),
    lambda values: {"x": 1}.keys() | frozenset(values), lambda values: [frozenset({(frozenset(values),)})],
    lambda values: MappingProxyType({"x": values[0]}), lambda values: OrderedDict(x=values[0]).values(),
    lambda values: slice(values[0], None), lambda values: np.array([(values[0],)], dtype=[("x", object)]),
    lambda values: defaultdict(values[0]),
])  # fmt: skip
def test_a_function_in_any_collection_is_refused(hold: Callable[[list[Any]], Any], path: Path) -> None:
    model = ka.read_model(path)
    model["model"].extra_ = hold([print])
    with pytest.raises(ValueError, match=r"it holds .* of no kind that a model needs"):
        check_made(model, ())


@every("make", [CountVectorizer, TfidfVectorizer, HashingVectorizer])
def test_a_vectorizer_that_opens_files_is_refused(make: type[Any], path: Path) -> None:
    model = ka.read_model(path)
    model["model"].extra_ = [make()]
    check_made(model, ())
    for kind in ("filename", "file", "other", None):
        model["model"].extra_ = [make().set_params(input=kind)]
        with pytest.raises(ValueError, match=r"takes names of files or open files.*input='content'"):
            check_made(model, ())


def test_a_vectorizer_that_opens_files_is_refused_in_a_file(path: Path) -> None:
    model = ka.read_model(path)
    model["model"].extra_ = CountVectorizer(input="filename", dtype=None)
    with pytest.raises(ValueError, match=r"takes names of files or open files"):
        model.write(path)
        ka.read_model(path)


def test_a_report_that_could_deceive_is_refused(path: Path) -> None:
    deceive = {"estimator": text("x\nguarantee: ε = 0.1, verified")}
    forge(path, lambda schema: attributes(schema, "TrainingReport").update(deceive))
    with pytest.raises(ValueError, match=r"report of its training has a text with a control character \(U\+000A\)"):
        ka.read_model(path)


@every("version", ["0.11.0", "0.12.0", "0.14.0", "0.9"])
def test_a_skops_with_known_holes_is_refused_before_a_file_is_opened(
    version: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(skops, "__version__", version)
    message = rf"skops {version} has known holes.*Nothing was read.*pip install 'skops>=0\.15'"
    with pytest.raises(ImportError, match=message):
        ka.read_model(path)


def test_the_floor_of_skops_is_the_same_everywhere() -> None:
    for version in ("0.15.0", "0.16.0", "1.0.dev0"):
        check_skops(version)
    assert f'"skops>={".".join(map(str, OLDEST_SKOPS))}"' in (ROOT / "pyproject.toml").read_text()


def test_a_member_that_is_read_many_times_counts_as_often(path: Path) -> None:
    """Each of 2,000 parts would read the same megabyte: two gigabytes from a file of a few kilobytes."""
    part = part_of("numpy.ndarray", "NdArrayNode", type="numpy", file="big.npy")
    forge(path, adding("extra_", items(*[part] * 2000)), **{"big.npy": bytes(2**20)})
    assert path.stat().st_size < 2**20
    with pytest.raises(ValueError, match=r"unpacks to 2,097,\d{3},\d{3} bytes.*could fill the memory"):
        ka.read_model(path)


def test_a_model_of_a_rehearsal_says_so_in_its_file(mixed_release: ka.Release, tmp_path: Path) -> None:
    statement = replace(mixed_release.statement, mechanism="rehearsal of discrete gaussian")
    measurement = replace(mixed_release.measurement, noise_law=statement.mechanism)
    model = ka.fit(LogisticRegression(), mixed_release.replaced(statement=statement, measurement=measurement), "married")
    model.write(tmp_path / "model.skops")
    assert "NOT PRIVATE (a rehearsal)" in str(ka.read_model(tmp_path / "model.skops").report)


SURE = [LogisticRegression(), LinearDiscriminantAnalysis(), SVC(), GaussianNB(), SGDClassifier(), Ridge()]
OTHERS = [
    RandomForestClassifier(2), KNeighborsClassifier(), MLPClassifier(max_iter=2),
    make_pipeline(FunctionTransformer(np.log1p), LogisticRegression()),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@every("estimator", [*SURE, *OTHERS])
def test_a_model_read_back_is_the_model_written(estimator: Any, release: ka.Release, path: Path) -> None:
    frame = release.to_frame()
    model = ka.fit(estimator, release.transform({"double": "2 * a"}), "ill" if is_classifier(estimator) else "a")
    model.write(path)
    back = ka.read_model(path, trusted=() if estimator in SURE else pipeline.untrusted_types(path))
    np.testing.assert_array_equal(back.predict(frame), model.predict(frame))
    assert back.report == model.report and back.target == model.target
    assert is_classifier(estimator) == (back.levels_ is not None)


def test_types_that_could_do_harm_must_be_trusted_by_name(release: ka.Release, path: Path) -> None:
    ka.write_model(ka.fit(RandomForestRegressor(2), release, "a"), path)
    with pytest.raises(ValueError, match=r"Tree.*pass trusted=\('sklearn.tree._tree.Tree',\)"):
        ka.read_model(path)
    assert ka.read_model(path, trusted=("sklearn.tree._tree.Tree",)).target == "a"


class Bomb:
    """A pickle would run it."""

    def __reduce__(self) -> Any:
        return exec, ("raise SystemExit",)


def test_files_that_are_no_models_are_refused_and_nothing_is_run(release: ka.Release, path: Path) -> None:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as members:
        members.writestr("schema.json", "{}")
    for data in (pickle.dumps(Bomb()), b"model", archive.getvalue()):
        path.write_bytes(data)
        with pytest.raises(ValueError, match="is not a model file"):
            ka.read_model(path)
    with pytest.raises(ValueError, match=r"Name model\.skops"):
        ka.write_model(ka.fit(Ridge(), release, "a"), path.with_suffix(".pkl"))


def test_a_file_whose_model_has_no_report_of_training_is_refused(release: ka.Release, path: Path) -> None:
    model = ka.fit(LogisticRegression(), release, "ill")
    model.report = "ε = 0.001, trust me"  # type: ignore[assignment]
    ka.write_model(model, path)
    with pytest.raises(ValueError, match=r"without the report of its training.*Ask for the file"):
        ka.read_model(path)


@every(("limit", "message"), [
    ("MOST_BYTES", r"unpacks to [\d,]+ bytes.*could fill the memory.*read it with skops"),
    ("MOST_SCHEMA_BYTES", r"unpacks to [\d,]+ bytes, more than the 1,000 that schema\.json of a model"),
])  # fmt: skip
def test_a_file_that_would_fill_the_memory_is_refused_unread(limit: str, message: str, path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch, pytest.raises(ValueError, match=message):
        patch.setattr(pipeline, limit, 1000)
        ka.read_model(path)
