"""A stranger's table end to end: about 30,000 visits of 13,500 patients, from the CSV to 61 questions with their truth.

Identifiers, ICD codes, ZIP codes with zeros, days as 18.05.2024, costs with zeros, -9 and 999 for missing cells, wards in two
spellings, Y/N, free text. The domain is drafted from 1,500 other patients; a patient is the unit. Truths are of the table, every
patient of equal weight. Prints what the draft asks, what is not held, and per kind of question how many are.

Run: python tests/benchmarks/hospital.py [--epsilon 1] [--seed 1]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import kmeanalyst as ka
import release_side

ICD = [
    "I10", "E11.9", "J45.909", "N39.0", "K21.9", "M54.5", "F32.9", "I25.10", "J18.9", "Z51.11", "S72.001", "O80", "C50.911",
    "A41.9", "R07.9",
]  # fmt: skip
WARDS = ("Medicine", "Surgery", "surgery", "ORTHO", "Maternity", "Emergency")
ZIPS = ("02116", "02139", "94110", "10001", "60614", "00501")


def visits(patients: int, seed: int, start: int) -> pd.DataFrame:
    """One row for each visit, as its hospital would write it."""
    rng = np.random.default_rng(seed)
    age0, sex = (np.clip(rng.gamma(5, 11, patients), 0, 101).astype(int), rng.choice(["F", "M"], patients, p=[0.54, 0.46]))
    homes = rng.choice(ZIPS, patients, p=[0.3, 0.2, 0.2, 0.15, 0.1, 0.05])
    who = np.repeat(np.arange(patients), rng.geometric(0.45, patients).clip(1, 9))
    n, age = len(who), age0[who]
    usual = np.array([16, 12, 9, 8, 8, 10, 7, 6, 6, 4, 3, 4, 3, 2, 2]) / 100
    icd = np.where((age > 70) & (rng.random(n) < 0.3), rng.choice([7, 8, 10, 13], n), rng.choice(15, n, p=usual))
    icd = np.where((age < 18) & (rng.random(n) < 0.5), 2, icd)
    ward = np.where(icd == 11, 4, np.where(icd == 10, 3, rng.choice([0, 1, 2, 5], n, p=[0.45, 0.25, 0.08, 0.22])))
    stay = np.where(ward == 5, rng.integers(0, 2, n), rng.geometric(1 / (2.5 + 0.05 * age), n)).clip(0, 90)
    admitted = pd.Timestamp("2023-01-01") + pd.to_timedelta(rng.integers(0, 700, n), unit="D")
    cost = np.round(np.exp(6.2 + 0.12 * np.sqrt(stay * 10) + 0.4 * rng.standard_normal(n)), 2)
    bmi = np.round(np.clip(27 + 5 * rng.standard_normal(n) + 0.02 * (age - 40), 13, 60), 1)
    died = rng.random(n) < np.clip(0.002 + 0.0018 * np.maximum(age - 50, 0) * np.isin(icd, [13, 8, 7]), 0, 0.5)
    frame = pd.DataFrame({
        "patient_id": [f"P{start + k:06d}" for k in who], "age": age, "sex": sex[who], "zip": homes[who], "icd": np.array(ICD)[icd],
        "ward": np.array(WARDS)[ward], "admitted": admitted.strftime("%d.%m.%Y"),
        "discharged": (admitted + pd.to_timedelta(stay, unit="D")).strftime("%d.%m.%Y"), "stay": stay,
        "cost": np.where(rng.random(n) < 0.12, 0, cost), "smoker": rng.choice(["Y", "N", ""], n, p=[0.2, 0.7, 0.1]),
        "bmi": np.where(rng.random(n) < 0.06, -9, bmi), "pain": np.where(rng.random(n) < 0.04, 999, rng.integers(0, 11, n)),
        "died": np.where(died, "Y", "N"), "notes": [f"free text {k}" for k in rng.integers(0, 10**6, n)],
    })  # fmt: skip
    return frame.sample(frac=1, random_state=seed)


ONE = (
    "age > 65", "age <= 18", "sex == 'F'", "zip == '02116'", "zip == '00501'", "icd == 'I10'", "icd == 'O80'", "icd == 'A41.9'",
    "ward == 'Surgery' or ward == 'surgery'", "ward == 'ORTHO'", "stay > 7", "stay == 0", "cost == 0", "cost > 2000", "bmi > 30",
    "bmi <= 25", "missing(bmi)", "missing(pain)", "pain >= 8", "died", "smoker", "missing(smoker)", "admitted >= '2024-01-01'",
    "discharged < '2023-07-01'",
)  # fmt: skip
VALUE = ("pain == 10", "age == 80", "stay == 3")
TWO = (
    "age > 65 and sex == 'M'", "age < 18 and icd == 'J45.909'", "ward == 'Emergency' and stay == 0", "died and age > 70",
    "icd == 'O80' and ward == 'Maternity'", "cost > 2000 and stay > 7", "bmi > 30 and sex == 'F'", "zip == '94110' and age > 65",
)  # fmt: skip
THREE = (
    "age > 70 and icd == 'A41.9' and died", "sex == 'F' and age > 65 and stay > 7",
    "ward == 'Medicine' and cost > 1000 and age > 50",
)  # fmt: skip
DATES = ("discharged < admitted", "discharged - admitted > 7")


def asked(release: Any) -> dict[tuple[str, str], Any]:
    """Each question's answer, an estimate of a release."""
    kinds = {"P(one)": ONE, "P(x == v)": VALUE, "P(two)": TWO, "P(three)": THREE, "two dates": DATES}
    found = {(kind, text): release.probability(text) for kind, texts in kinds.items() for text in texts}
    present = {"bmi": "not missing(bmi)", "pain": "not missing(pain)"}
    for name in ("age", "stay", "cost", "bmi", "pain"):
        found["mean", name] = release.mean(name, where=present.get(name))
    found |= {("std", name): release.std(name) for name in ("age", "cost", "stay")}
    found |= {("quantile", f"{name} {q}"): release.quantile(name, q) for name, q in (("age", 0.5), ("stay", 0.9), ("cost", 0.5))}
    for name, where in (("age", "icd == 'I25.10'"), ("stay", "age > 65"), ("cost", "ward == 'Emergency'")):
        found["group mean", f"{name} | {where}"] = release.mean(name, where=where)
    for name, one, other in (("stay", "sex == 'M'", "sex == 'F'"), ("cost", "smoker", "not smoker")):
        found["difference", f"{name}: {one} - {other}"] = release.mean(name, where=one) - release.mean(name, where=other)
    for text, where in (("died", "age > 80"), ("stay > 7", "icd == 'A41.9'")):
        found["conditional", f"{text} | {where}"] = release.probability(text, where=where)
    for one, other in (("age", "stay"), ("stay", "cost")):
        found["corr", f"{one}, {other}"] = release.corr([one, other])[one, other]
    found["two dates", "mean of discharged - admitted"] = release.mean("discharged - admitted")
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        private, public = Path(folder) / "visits.csv", Path(folder) / "public.csv"
        table = visits(13_500, given.seed, 100_000)
        table.to_csv(private, index=False)
        visits(1500, given.seed + 1, 900_000).to_csv(public, index=False)
        started = time.perf_counter()
        draft = release_side.draft_domain(
            public, this_sample_is_public=True, without=["patient_id", "notes"], missing_codes={"bmi": [-9], "pain": [999]},
        )  # fmt: skip
        checks = [f"{name}: {note}" for name, notes in draft.notes.items() for note in notes if note.startswith("CHECK")]
        print(f"{len(checks)} lines marked CHECK:", *(check[:100] for check in checks), sep="\n  ")
        release = release_side.publish(private, draft.domain, epsilon=given.epsilon, delta=1e-6, unit="patient_id", uncounted=True)
        print(f"from the CSV to a release: {time.perf_counter() - started:.0f} s")
        rows = draft.domain.decode(draft.domain.encode(table))
    weights = 1 / table.groupby("patient_id")["age"].transform("size").to_numpy()
    truths = asked(ka.from_frame(rows.assign(weight=weights / weights.sum()), weight="weight", domain=draft.domain))
    held: dict[str, list[bool]] = {}
    for (kind, text), answer in asked(release).items():
        low, high = answer.interval(0.95)
        truth = truths[kind, text].value
        held.setdefault(kind, []).append(low - 1e-9 <= truth <= high + 1e-9)
        if not held[kind][-1] or kind == "two dates":
            said = "" if held[kind][-1] else " MISSED"
            print(f"{kind}: {text}: {answer.value:.4f} ({low:.4f} to {high:.4f}), truth {truth:.4f}{said}")
    print({kind: f"{sum(each)}/{len(each)}" for kind, each in held.items()}, sum(map(sum, held.values())), "held")


if __name__ == "__main__":
    main()
