"""DP-MERF on MNIST: digits that a generator draws from one private mean, and classifiers trained on them.

    python tests/benchmarks/generator_mnist.py [--epsilon 1] [--rows 60000] [--features 2000] [--points 10000]

Reads ../shared/data/mnist and says so when it is not there. The training images are a table of 784 numbers from 0 to
255 and a label (its classes are nearly even), published at δ = 1e-5 with the kernel 1(label = label') · exp(−‖x − x'‖²/2ℓ²)
of Harder, Adamczewski & Park (2021), with the labels' own table; ℓ from the bounds alone. Classifiers trained on the
generated rows are scored on the real test images; the same on real rows for comparison.
"""

from __future__ import annotations

import gzip
import logging
import time
import warnings
from typing import Any

import numpy as np
import pandas as pd
from harness import DATA, command_line, require, show
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from kmeanalyst.releases.domain.column import Column
from kmeanalyst.releases.domain.domain import Domain
from kmeanalyst.releases.domain.levels import Categorical
from kmeanalyst.releases.domain.numbers import Integer
from release_side import publish

IMAGES = DATA / "mnist"
DELTA = 1e-5
SIDE = 28
PIXELS = [f"p{i}" for i in range(SIDE**2)]
MODELS: dict[str, Any] = {
    "logistic regression": lambda: LogisticRegression(max_iter=200, random_state=0),
    "network of 100": lambda: MLPClassifier(max_iter=15, random_state=0),
}


def images(part: str) -> pd.DataFrame:
    """A table of pixels (0 to 255) and label ("0" to "9")."""
    pixels = np.frombuffer(gzip.decompress((IMAGES / f"{part}-images-idx3-ubyte.gz").read_bytes()), np.uint8, offset=16)
    labels = np.frombuffer(gzip.decompress((IMAGES / f"{part}-labels-idx1-ubyte.gz").read_bytes()), np.uint8, offset=8)
    frame = pd.DataFrame(pixels.reshape(-1, SIDE**2).astype(float), columns=PIXELS)
    return frame.assign(label=labels.astype(str))


def domain() -> Domain:
    """Pixels are whole numbers from 0 to 255, the label a digit."""
    columns: list[Column] = [Integer(name=name, lower=0, upper=255) for name in PIXELS]
    return Domain((*columns, Categorical(name="label", levels=tuple("0123456789"))))


def accuracies(train: pd.DataFrame, test: pd.DataFrame) -> dict[str, float]:
    """The share of test images that each model, trained on these rows, gets right."""
    found = {}
    for name, make in MODELS.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of iterations that are cut short
            model = make().fit(train[PIXELS].to_numpy(float) / 255, train["label"])
        found[name] = float(model.score(test[PIXELS].to_numpy(float) / 255, test["label"]))
    return found


def main() -> None:
    arguments = command_line(__doc__, epsilon=(1.0,), rows=60_000, features=2000, points=10_000)
    require(IMAGES)
    logging.disable()
    train, test = images("train")[: arguments.rows], images("t10k")
    lines: list[dict[str, Any]] = [{"rows": "real"} | accuracies(train[: arguments.points], test)]
    for epsilon in arguments.epsilon:
        started = time.perf_counter()
        release = publish(
            train, domain(), epsilon=epsilon, delta=DELTA, method="generator", target="label",
            features=arguments.features, points=arguments.points,
        )  # fmt: skip
        seconds = time.perf_counter() - started
        lines.append({"rows": f"ε = {epsilon:g}"} | accuracies(release.to_frame(), test) | {"s": seconds})
    show(lines)


if __name__ == "__main__":
    main()
