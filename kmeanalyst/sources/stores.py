"""Files in object stores (s3://, gs://, az://, …) and other places that fsspec knows by a URL.

Credentials come from the environment or from files of configuration, as fsspec finds them, and never from a URL: a URL is shown.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any, TypeVar

from kmeanalyst.releases.texts import SECRET
from kmeanalyst.sources.source import SourceError

_T = TypeVar("_T")
_URL = re.compile(r"(?!postgres)[A-Za-z][A-Za-z0-9+.\-:]*://")
_BLOCK = 2**22  # bytes asked of a store at a time


def is_url(source: object) -> bool:
    """Whether a table is named by a URL of a store; the address of a database is not."""
    return isinstance(source, str) and _URL.match(source) is not None


@dataclass(frozen=True)
class StoreFile:
    """A file in a store, by its name alone, so that it can be pickled and holds no secret.

    source   the URL that was typed, which finds the store.
    path     the name in the store.
    url      the file's own URL, which messages show.
    """

    source: str
    path: str
    url: str

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    def __str__(self) -> str:
        return self.url

    def open(self, mode: str = "rb", *, cache: str = "readahead") -> IO[bytes]:
        """The file for reading; SourceError if that is refused.

        cache   "none" for a reader that asks for long ranges only.
        """
        return _asked(self.url, lambda: _store(self.source)[0].open(self.path, mode, block_size=_BLOCK, cache_type=cache))

    def size(self) -> int:
        """Bytes; SourceError if the store does not say."""
        return _asked(self.url, lambda: int(_store(self.source)[0].size(self.path)))


def store_files(url: str, is_table: Callable[[str], bool]) -> list[StoreFile]:
    """The files behind a URL: one, those in a folder whose names are those of tables, or those that a glob matches.

    Errors   SourceError if there is none, it may not be read, or the URL holds a secret, which is not shown.
    """
    if SECRET.search(url):
        raise SourceError(
            "the URL holds a password or a signature, so it is not repeated here: URLs stand in histories of commands and in "
            "messages. Leave it out, and put the credentials into the environment or a file of configuration of fsspec."
        )
    if url.startswith(("file:", "local:")) or "::" in url:
        raise SourceError(
            f"{url} leads to files of this machine or through another store, so that one file would have several names. Pass a "
            "path without file://, or the URL of the store itself."
        )
    return _asked(url, lambda: _listed(url, is_table))


def _listed(url: str, is_table: Callable[[str], bool]) -> list[StoreFile]:
    store, path = _store(url)
    store.invalidate_cache()  # sizes of files that have been replaced since
    if any(sign in path for sign in "*?["):
        names = [name for name, facts in store.glob(path, detail=True).items() if facts["type"] == "file"]
    elif store.info(path)["type"] == "directory":
        names = [each["name"] for each in store.ls(path, detail=True) if each["type"] == "file" and is_table(each["name"])]
    else:
        names = [path]
    if not names:
        raise FileNotFoundError
    return [StoreFile(url, name, store.unstrip_protocol(name)) for name in sorted(names)]


def _store(url: str) -> tuple[Any, str]:
    import fsspec.core

    return fsspec.core.url_to_fs(url)


def _asked(url: str, ask: Callable[[], _T]) -> _T:
    try:
        return ask()
    except ImportError:
        raise SourceError(
            f"{url} needs a package that is not installed (fsspec, and s3fs for s3://, gcsfs for gs://, adlfs for az://). Type pip "
            "install 'kmeanalyst[sources]', which has fsspec and s3fs, or install the one of your store."
        ) from None
    except FileNotFoundError:
        raise SourceError(
            f"no file at {url}. Check the bucket and the path; a glob must match at least one file, and a folder must hold a table."
        ) from None
    except Exception as error:
        if isinstance(error, PermissionError) or "Credential" in type(error).__name__:
            raise SourceError(
                f"{url} may not be read with the credentials of this process. Set those of your store in the environment or its "
                "file of configuration, or ask for the permission to list and to read."
            ) from None
        raise SourceError(
            f"{url} could not be listed or opened: the store does not answer, or it is of a kind that fsspec does not know. Check "
            "the URL, and try it with fsspec.core.url_to_fs."
        ) from None
