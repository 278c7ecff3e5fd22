"""The .kme file: a zip of JSON, CSV and npy members (FORMAT.md, schema_v1.json), written atomically and read with distrust.

Files come from strangers. The reader bounds every size before it allocates, accepts known names only, recomputes the
basis of every claim, and builds values only from numbers, texts and its own classes: there is no pickle, no code and no
import path in a file. Anything else raises `FileRefused`.

A file is read in layers, one module for each: `archive` (bytes to members), `header` (JSON to checked fields), `points`
(the table), `kernel`, and `measurement` (arrays, feature map, guarantee). `reading` puts them together and computes derived
columns again, `writing` is the reverse, `function` does both for a released function, `validating` computes again what a
sound file claims, and `export` writes points for other programs.
"""

from kmeanalyst.releases.file.function import read_function, write_function
from kmeanalyst.releases.file.limits import FileRefused
from kmeanalyst.releases.file.validating import validate_release
from kmeanalyst.releases.file.writing import write_release

__all__ = ["FileRefused", "read_function", "validate_release", "write_function", "write_release"]
