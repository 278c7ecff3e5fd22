"""A release's members and the zip that contains them: bytes on disk to named members, and back.

Two zip readers must not see two different files in one archive. The archive is therefore plain: members of known names,
one after another without a gap, every byte accounted for. All are stored except points.csv, which may be deflated: it then
expands to exactly the length that its headers declare, and this length is bounded before a byte is inflated.

Also the atomic writing of files: they appear whole or not at all.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import secrets
import stat
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kmeanalyst.releases.file.limits import MOST_BYTES, MOST_MEMBERS, FileRefused, limits, refusal, refusing, too_large
from kmeanalyst.releases.texts import shown

HEADER, POINTS, NOISY_SUM = "release.json", "points.csv", "measurement/noisy_sum.npy"
RELATIVE_NOISE = "measurement/relative_noise.npy"
BLOCK = 2**23  # bytes of a member that are inflated at a time
PIVOTS = "measurement/points.npy"  # the points of a released function; the release of a subspace has a member of this name too


def scores_name(number: int) -> str:
    return f"measurement/scores_{number}.npy"


_LEVEL = 1  # deflate level: higher ones save little on numbers and take seven times as long
_CHECK = "Check that it is a .kme file"

_END = struct.Struct("<4s4H2LH")
_MOST_ENTRY_BYTES = 256  # bytes that a member may take in the central directory
_LOCAL = struct.Struct("<4s5H3L2H")
_UNFINISHED = ("release.kme", "choices.json")  # members of OUT.partial
_MEMBER_NAME = re.compile(r"release\.json|points\.csv|measurement/[a-z][a-z0-9_]*\.npy")
_ROOM = 2**20  # bytes; a release of usual size has less


@dataclass(frozen=True)
class Member:
    """A member of an archive, whose checksum has been verified.

    data       bytes as the archive has them.
    size       bytes of the member itself: of `data`, or of what they expand to.
    sha256     digest of the member itself, in lower-case hexadecimal.
    deflated   whether `data` are deflated, as only points.csv may be.
    """

    data: memoryview
    size: int
    sha256: str
    deflated: bool = False

    def blocks(self) -> Iterator[bytes | memoryview]:
        """The member itself, at most BLOCK bytes at a time."""
        if self.deflated:
            return _inflate(self.data, self.size)
        return (self.data[start : start + BLOCK] for start in range(0, len(self.data), BLOCK))


Members = Mapping[str, Member]  # by name


def contents(path: Path) -> bytes:
    """The bytes of a file; FileRefused if it is larger than a release can be."""
    try:
        with open(path, "rb", opener=_open_without_waiting) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise refusal("it is a pipe or a device", "nothing was read, for it may have no end", "Name a file")
            if status.st_size > MOST_BYTES:
                raise refusal(f"the file has {status.st_size} bytes", f"a release has at most {MOST_BYTES}", _CHECK)
            return file.read(status.st_size)
    except FileNotFoundError:
        raise refusal("there is no such file", "nothing could be read", "Check the name and the folder") from None
    except OSError as error:
        raise refusal("the file cannot be read", f"{error.strerror}", "Name a file that you may read") from None


def _open_without_waiting(path: str, flags: int) -> int:
    """A file descriptor; also of a pipe, without waiting for its writer."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def members_in(raw: bytes) -> dict[str, Member]:
    """The members by name, of a zip whose every byte is accounted for.

    The members must fill the file from its start without a gap: two zip readers then cannot see two files.
    """
    directory = _check_end(raw)
    with refusing("the archive"), zipfile.ZipFile(io.BytesIO(raw)) as archive:
        listed = archive.infolist()
    for info in listed:
        _check_entry(info)
    twice = sorted(name for name, times in Counter(info.filename for info in listed).items() if times > 1)
    if twice:
        raise refusal(f"the members {twice!r:.200} occur twice", "readers would disagree on which of them counts")
    members, position = {}, 0
    for info in sorted(listed, key=lambda info: info.header_offset):
        members[info.filename], position = _member(raw, info, position, directory)
    if position != directory:
        raise refusal("the archive has bytes that belong to no member", "readers could see different files in it")
    if HEADER not in members or not {POINTS, NOISY_SUM} & set(members):  # a release has points, a function none
        raise without_points()
    return members


def without_points() -> FileRefused:
    return refusal(f"the archive lacks {HEADER} or {POINTS}", "it is not a release", _CHECK)


def _check_end(raw: bytes) -> int:
    """Where the central directory begins; FileRefused unless the end record fits the file and ends it."""
    if len(raw) < _END.size or raw[-_END.size :][:4] != b"PK\5\6":
        raise refusal("the file is not a whole zip archive", "it is truncated, padded, or no release at all")
    _, disk, first_disk, here, total, size, offset, comment = _END.unpack(raw[-_END.size :])
    wide = raw[-_END.size - 20 :][:4] == b"PK\6\7"  # the 64-bit record would override this one
    if wide or disk or first_disk or comment or here != total or offset + size + _END.size != len(raw):
        raise refusal("the archive's end record does not fit the file", "it is truncated, padded or altered")
    if total > MOST_MEMBERS or size > total * _MOST_ENTRY_BYTES:
        raise refusal(f"the archive lists {total} members in {size} bytes", f"a release has at most {MOST_MEMBERS}")
    return int(offset)


def _check_entry(info: zipfile.ZipInfo) -> None:
    name = info.orig_filename
    kind = stat.S_IFMT(info.external_attr >> 16)
    if info.flag_bits & 0x1:
        raise refusal(f"member {name!r:.80} is encrypted", "a release hides nothing from its reader")
    if kind not in (0, stat.S_IFREG):
        raise refusal(f"member {name!r:.80} is a link or a device", "a release has plain members only")
    if name in _UNFINISHED:
        what = "the file is what a publication drew before it ended"
        raise refusal(what, "its points are not fitted yet", "Its curator makes the release of it with release-side finish")
    if not _MEMBER_NAME.fullmatch(name):
        raise refusal(f"member name {name!r:.80}", "no member of a release is called so, and no path is followed")
    if info.flag_bits & ~0x800 or info.extra or info.comment:
        raise refusal(f"member {name!r:.80} has flags, extra fields or a comment", "readers could take it differently")
    _check_size(info)


def _check_size(info: zipfile.ZipInfo) -> None:
    name = info.orig_filename
    deflated = info.compress_type == zipfile.ZIP_DEFLATED
    if info.compress_type != zipfile.ZIP_STORED and not (deflated and name == POINTS):
        raise refusal(f"member {name!r:.80} is compressed", f"only {POINTS} may be, by the method deflate")
    if not (info.compress_size < info.file_size if deflated else info.compress_size == info.file_size):
        raise refusal(f"member {name!r:.80} has two sizes that do not fit each other", "it was damaged or altered")
    if name == POINTS and info.file_size > limits().points_bytes:
        raise too_large(f"{POINTS} has {info.file_size} bytes", f"at most {limits().points_bytes} are read")


def _member(raw: bytes, info: zipfile.ZipInfo, position: int, end: int) -> tuple[Member, int]:
    name = info.orig_filename.encode()
    start = position + _LOCAL.size + len(name)
    stop = start + info.compress_size
    if info.header_offset != position or stop > end:
        raise refusal(f"member {info.filename} is not where it should be", "members overlap or leave a gap")
    found = _LOCAL.unpack(raw[position : position + _LOCAL.size])
    sizes = info.compress_size, info.file_size
    facts = (b"PK\3\4", info.flag_bits, info.compress_type, info.CRC, *sizes, len(name), 0)
    if found[:1] + found[2:4] + found[6:] != facts or raw[start - len(name) : start] != name:
        raise refusal(f"member {info.filename} has two headers that differ", "readers would disagree on it")
    data, deflated = memoryview(raw)[start:stop], info.compress_type == zipfile.ZIP_DEFLATED
    checksum, digest = 0, hashlib.sha256()
    for block in Member(data, info.file_size, "", deflated).blocks():
        checksum = zlib.crc32(block, checksum)
        digest.update(block)
    if checksum != info.CRC:
        raise refusal(f"member {info.filename} does not have its checksum", "the file was damaged or altered")
    return Member(data, info.file_size, digest.hexdigest(), deflated), stop


def _inflate(data: memoryview, size: int) -> Iterator[bytes]:
    """Inflate a block at a time; FileRefused, at most one block too late, unless the result has `size` bytes."""
    inflate, rest, n_bytes = zlib.decompressobj(-zlib.MAX_WBITS), bytes(data), 0
    while not inflate.eof:
        try:
            block = inflate.decompress(rest, BLOCK)
        except zlib.error as error:
            raise refusal(f"member {POINTS} cannot be inflated", str(error)) from None
        rest, n_bytes = inflate.unconsumed_tail, n_bytes + len(block)
        if n_bytes > size or not (block or inflate.eof):
            break
        yield block
    if n_bytes != size or not inflate.eof or inflate.unused_data:
        raise refusal(f"member {POINTS} does not expand to the {size} bytes that it declares", "it was altered")


def zipped(members: dict[str, bytes]) -> bytes:
    """A zip whose bytes depend on the members alone; points.csv is deflated if that makes it smaller."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name, data in members.items():
            info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            info.create_system, info.external_attr = 3, (stat.S_IFREG | 0o644) << 16
            start = data[:BLOCK]
            deflate = name == POINTS and len(zlib.compress(start, _LEVEL)) < len(start)
            method = zipfile.ZIP_DEFLATED if deflate else zipfile.ZIP_STORED
            archive.writestr(info, data, compress_type=method, compresslevel=_LEVEL)
    archive_bytes = out.getvalue()
    if len(archive_bytes) > MOST_BYTES:
        raise ValueError(
            f"this release cannot be written: it needs {len(archive_bytes)} bytes, and readers refuse more than "
            f"{MOST_BYTES}. Publish fewer features, or fewer levels."
        )
    return archive_bytes


# ---------------------------------------------------------------------- atomic writing


def ending_of(path: str | Path, known: Collection[str], work: str) -> str:
    """The ending of a file's name, in lower case; ValueError unless it is one of those that are known."""
    if (ending := Path(path).suffix.lower()) not in known:
        raise ValueError(
            f"cannot {work} to {path}: the ending of the name says which format is meant, and only {', '.join(known)} are known. "
            "Name a file with one of these endings."
        )
    return ending


@contextmanager
def atomic_write(path: str | Path, *, mode: int = 0o666) -> Iterator[Path]:
    """A temporary path in the folder of `path`; what is written there becomes `path` when the block ends without an error.

    Until then an older file at `path` is unchanged. If the block raises, the temporary file is removed.
    mode   permissions of the file, from the moment that it is made; the process's umask takes some away.
    """
    target = Path(path)
    temporary = _temporary(target)
    _create(temporary, mode)
    try:
        yield temporary
        _flush(temporary)
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _flush_folder(target.parent)


def check_place(path: str | Path) -> None:
    """OSError or ValueError now if `atomic_write(path)` would fail later: it takes every step except the last.

    A temporary file of `_ROOM` bytes is written and removed; `path` is not touched. A larger file may still not fit.
    """
    temporary = _temporary(Path(path))
    _create(temporary)
    try:
        temporary.write_bytes(bytes(_ROOM))
        _flush(temporary)
    finally:
        temporary.unlink(missing_ok=True)
    _flush_folder(temporary.parent)


def _temporary(target: Path) -> Path:
    if target.is_dir():
        raise IsADirectoryError(f"{target} is a folder: a file cannot take its place. Name a file within it.")
    return target.with_name(f".{target.name}.{secrets.token_hex(8)}.partial")


def _create(temporary: Path, mode: int = 0o666) -> None:
    try:
        open(temporary, "xb", opener=lambda name, flags: os.open(name, flags, mode)).close()
    except FileNotFoundError:
        folder = shown(temporary.parent)
        raise FileNotFoundError(f"there is no folder {folder}, so nothing was written. Create it first.") from None


def _flush_folder(folder: Path) -> None:
    if os.name == "posix":
        _flush(folder, os.O_RDONLY)


def _flush(path: Path, flags: int = os.O_RDWR) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
