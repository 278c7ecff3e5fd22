"""Refusals of the .kme file's outer shell: the path, the limits, the zip."""

from __future__ import annotations

import io
import os
import socket
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from file_tools import Members, check_refusals, members_of, opened, same, zipped

from kmeanalyst.release import read_release
from kmeanalyst.releases.file import FileRefused, write_release
from kmeanalyst.releases.file import archive as archive_module


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(FileRefused, match=r"absent\.kme: there is no such file: nothing .* read\. Check the name"):
        read_release(tmp_path / "absent.kme")
    with pytest.raises(FileRefused, match=r"cannot be read: .*directory\. Name a file that you may read"):
        read_release(tmp_path)


@pytest.mark.parametrize("name", ["pipe", "device", "socket"])
def test_a_path_that_is_no_file_is_refused_without_waiting(name, tmp_path):
    """In this process: a reader that waited for a pipe's writer would never end."""
    path = Path("/dev/zero") if name == "device" else tmp_path / name
    if name == "pipe":
        os.mkfifo(path)
    if name == "socket":
        monitor = socket.socket(socket.AF_UNIX)
        monitor.bind(str(path))
        monitor.close()
    message = r"(it is a pipe or a device: nothing was read, for it may have no end|the file cannot be read: .*)\. Name a file"
    with pytest.raises(FileRefused, match=message):
        read_release(path)


def test_a_link_to_a_file_is_that_file(mixed_path, mixed_release, tmp_path):
    (tmp_path / "link.kme").symlink_to(mixed_path)
    same(mixed_release, read_release(tmp_path / "link.kme"))
    (tmp_path / "circle.kme").symlink_to(tmp_path / "circle.kme")
    with pytest.raises(FileRefused, match=r"the file cannot be read: .* Name a file that you may read"):
        read_release(tmp_path / "circle.kme")


def test_a_file_over_the_limit_is_refused_before_it_is_read(mixed_path, monkeypatch):
    monkeypatch.setattr(archive_module, "MOST_BYTES", 1000)
    with pytest.raises(FileRefused, match=r"has \d+ bytes: a release has at most 1000\. Check that it is a \.kme file"):
        read_release(mixed_path)


def test_a_release_over_the_limit_is_not_written(numeric_release, tmp_path, monkeypatch):
    monkeypatch.setattr(archive_module, "MOST_BYTES", 1000)
    with pytest.raises(ValueError, match=r"cannot be written: it needs \d+ bytes, .* more than 1000\. Publish fewer"):
        write_release(numeric_release, tmp_path / "a.kme")
    assert list(tmp_path.iterdir()) == []


def members_in(data: bytes) -> Members:
    return members_of(io.BytesIO(data))


def with_flag(data: bytes, flag: int) -> bytes:
    """The archive with a general-purpose flag set on its first member, in both headers."""
    out, central = bytearray(data), data.index(b"PK\1\2")
    for offset in (6, central + 8):
        out[offset : offset + 2] = struct.pack("<H", struct.unpack("<H", data[offset : offset + 2])[0] | flag)
    return bytes(out)


def with_gap(members: Members) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
            archive.fp.write(b"hidden")
            archive.start_dir = archive.fp.tell()
    return out.getvalue()


def as_link(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.create_system, info.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    return info


def with_extra(name: str, kind: int = 0x7777) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.extra = struct.pack("<HHQ", kind, 8, 1)
    return info


def sized(data: bytes, size: int) -> bytes:
    """The archive whose first member says that it is of another size, in both headers."""
    central = data.index(b"PK\1\2")
    return patched(patched(data, 18, struct.pack("<2L", size, size)), central + 20, struct.pack("<2L", size, size))


def overlapping(data: bytes) -> bytes:
    """The archive whose second member starts where the first does."""
    second = data.index(b"PK\1\2", data.index(b"PK\1\2") + 4)
    return patched(data, second + 42, bytes(4))


def appended(data: bytes, *more: tuple[str | zipfile.ZipInfo, bytes]) -> bytes:
    return zipped([*members_in(data).items(), *more])


def patched(data: bytes, offset: int, value: bytes) -> bytes:
    return data[:offset] + value + data[offset + len(value) :]


def with_end(data: bytes, **changes: int) -> bytes:
    names = ["disk", "first", "here", "total", "size", "offset", "comment"]
    fields = dict(zip(names, struct.unpack("<4H2LH", data[-18:]), strict=True)) | changes
    return data[:-18] + struct.pack("<4H2LH", *fields.values())


def without(data: bytes, name: str) -> bytes:
    return zipped([(n, member) for n, member in members_in(data).items() if n != name])


def packed(data: bytes, which: str, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, member in members_in(data).items():
            archive.writestr(name, member, method if name == which else zipfile.ZIP_STORED)
    return out.getvalue()


def deflate(data: bytes, level: int = 9) -> bytes:
    compressor = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
    return compressor.compress(data) + compressor.flush()


def repacked(data: bytes, pack: Callable[[bytes], bytes]) -> bytes:
    """The archive with other deflated bytes for its points, under headers that declare the true length and checksum."""
    members = members_in(data)
    points = members.pop("points.csv")
    packed_points = pack(points)
    out = bytearray(zipped([*members.items(), ("points.csv", packed_points)]))
    facts = struct.pack("<3L", zlib.crc32(points), len(packed_points), len(points))
    local, central = out.rindex(b"PK\3\4"), out.rindex(b"PK\1\2")
    out[local + 8 : local + 10] = out[central + 10 : central + 12] = b"\x08\0"
    out[local + 14 : local + 26] = out[central + 16 : central + 28] = facts
    return bytes(out)


def test_an_archive_that_is_not_plain_and_whole_is_refused(mixed_path, tmp_path):
    data = mixed_path.read_bytes()
    check_refusals("archive", lambda forge: opened(forge(data), tmp_path), **globals())
    assert not (tmp_path / "evil").exists()


def test_inflating_stops_where_more_comes_than_was_declared():
    """At the first block that is too long, not at the end of what may be gigabytes."""
    packed = deflate(bytes(2 * archive_module.BLOCK))
    with pytest.raises(FileRefused, match=r"points\.csv"):
        next(archive_module._inflate(memoryview(packed), 1))
