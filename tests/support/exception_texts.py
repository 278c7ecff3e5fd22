"""Every text that an exception carries, for tests that search it for a private cell."""

from __future__ import annotations

import pickle
import traceback


def everything_of(error: BaseException) -> str:
    """All texts in an exception, in what caused it or came before it, and in a pickle of it."""
    texts, waiting, seen = [], [error], set()
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        texts += [str(each), repr(each), repr(each.args), *getattr(each, "__notes__", []), repr(vars(each))]
        waiting += [other for other in (each.__cause__, each.__context__) if other is not None]
    return "\n".join([*texts, *traceback.format_exception(error), repr(pickle.dumps(error))])
