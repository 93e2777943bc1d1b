"""A web server with faults, and small trees of images."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from PIL import Image


@dataclass
class Server:
    """Serves `files`; `cut_after` ends answers early, `status` replaces them, `ranges` were asked for."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    cut_after: list[int] = field(default_factory=list)
    status: list[int] = field(default_factory=list)
    ranges: list[str | None] = field(default_factory=list)
    understands_ranges: bool = True


def _handler(server: Server) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = self.headers.get("Range")
            server.ranges.append(asked)
            content = server.files.get(self.path.lstrip("/"))
            status = server.status.pop(0) if server.status else 404 if content is None else 200
            content = content or b""
            if status == 200 and asked and server.understands_ranges:
                start = int(asked.removeprefix("bytes=").removesuffix("-"))
                status, content = (206, content[start:]) if start < len(content) else (416, b"")
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: server.cut_after.pop(0)] if server.cut_after else content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler


@pytest.fixture
def server() -> Iterator[Server]:
    described = Server()
    listening = ThreadingHTTPServer(("127.0.0.1", 0), _handler(described))
    described.url = f"http://127.0.0.1:{listening.server_port}"
    thread = threading.Thread(target=listening.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield described
    listening.shutdown()
    listening.server_close()


@pytest.fixture
def make_images(tmp_path: Path) -> Callable[..., Path]:
    """Writes `count` images a class; their colours tell the classes apart."""

    def make(classes: tuple[str, ...] = ("cat", "dog"), count: int = 12, below: str = "images") -> Path:
        root = tmp_path / below
        for number, name in enumerate(classes):
            (root / name).mkdir(parents=True)
            for i in range(count):
                noise = np.random.default_rng((number, i)).integers(0, 60, (48, 64, 3), dtype=np.uint8)
                noise[:, :, number % 3] += 190
                suffix = "jpg" if i % 2 else "png"
                Image.fromarray(noise).save(root / name / f"{i:03}.{suffix}")
        return root

    return make
