"""What a release has computed for later questions is not part of its value."""

from __future__ import annotations

import copy
import pickle

import numpy as np

import kmeanalyst as ka
from kmeanalyst.release import Release
from kmeanalyst.releases.memo import memo
from kmeanalyst.releases.release import ReleaseData


def test_a_question_leaves_a_release_and_its_copies_as_large_as_it_was(mixed_release: Release):
    """Power: the memo itself is more than ten times as large (one mean grew a pickled release from 134 kB to 19.8 MB)."""
    fresh = mixed_release.replaced()
    before = len(pickle.dumps(fresh))
    answer = fresh.mean("age")
    fresh.to_frame("probability")
    assert memo(fresh) and len(pickle.dumps(fresh)) == before
    assert len(pickle.dumps(memo(fresh))) > 10 * before
    for other in (copy.copy(fresh), copy.deepcopy(fresh), pickle.loads(pickle.dumps(fresh))):
        assert "_memo" not in other.__dict__ and memo(fresh)
        np.testing.assert_array_equal(other.weights, fresh.weights)
    assert repr(other.mean("age")) == repr(answer)


def test_what_is_made_from_a_release_is_of_its_class(mixed_release: Release):
    class Named(Release):
        """A user's own."""

    fields = ("weights", "measurement", "kernel", "domain", "statement")
    named = Named(**{name: getattr(mixed_release, name) for name in fields}, points=mixed_release.frame)
    for made in (named.thin(10), named.transform({"double": "2 * age"}), named.replaced(), ka.thin(named, 5)):
        assert type(made) is Named
    data = ReleaseData(**{name: getattr(named, name) for name in fields}, points=named.frame)
    assert type(ka.thin(data, 5)) is ReleaseData and not hasattr(data, "mean")
