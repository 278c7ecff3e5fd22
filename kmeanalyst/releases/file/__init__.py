"""The .kme file: a zip of stored members (FORMAT.md, schema_v1.json), written whole and read with distrust.

Files come from strangers. The reader bounds every size before it allocates, knows every name beforehand,
recomputes what a claim rests on, and builds values only from numbers, texts and its own classes: there is
no pickle, no code and no import path in a file. Whatever does not fit is a `FileRefused`.

A file is read in layers, one module for each: `archive` (bytes to members), `header` (JSON to checked fields),
`points` and `parquet_footer` (the table), `derived` (columns that follow from others), `measurement` (arrays,
feature map, promise). `reading` puts them
together, `writing` goes the other way, `function` does both for a released function, and `validating` computes again
what a sound file claims.
"""

from kmeanalyst.releases.file.function import read_function, write_function
from kmeanalyst.releases.file.limits import FileRefused
from kmeanalyst.releases.file.validating import validate_release
from kmeanalyst.releases.file.writing import write_release

__all__ = ["FileRefused", "read_function", "validate_release", "write_function", "write_release"]
