"""A local HTTP server for job inputs, with faults that begin and end at set times.

Each path has its own list of faults, so one data set can be unavailable while the rest of
the server works. Content is derived from the path: the same path always gives the same bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True, slots=True)
class ServerFault:
    """What the server answers instead of the file, while `active()` is true."""

    status: int  # HTTP status; 0: send the header, then stall
    active: Callable[[], bool]


def content_of(path: str) -> bytes:
    """Return the content of a path: 200 to about 8,000 bytes that depend on the path alone."""
    digest = hashlib.sha256(path.encode()).digest()
    return digest * (7 + digest[0])


class FileServer:
    """Serves GET, HEAD and PUT on a free loopback port.

    Use it as a context manager; `url(path)` names a file, `add_fault` makes it fail.
    """

    def __init__(self) -> None:
        self._faults: dict[str, list[ServerFault]] = {}
        self._closing = threading.Event()
        faults, closing = self._faults, self._closing

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.0"

            def do_GET(self) -> None:
                self._answer(content_of(self.path))

            def do_HEAD(self) -> None:
                self._answer(content_of(self.path))

            def do_PUT(self) -> None:
                left = int(self.headers.get("Content-Length") or 0)
                while left > 0 and (piece := self.rfile.read(min(left, 1 << 16))):
                    left -= len(piece)
                self._answer(b"")

            def _answer(self, body: bytes) -> None:
                for fault in faults.get(self.path, ()):
                    if fault.active():
                        if fault.status:
                            self.send_error(fault.status)
                        else:
                            self._stall(len(body))
                        return
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body)

            def _stall(self, length: int) -> None:
                # The client must see a transfer begin: a refused connection is another
                # fault with another hold reason.
                self.send_response(200)
                self.send_header("Content-Length", str(length))
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(b"\0")
                    self.wfile.flush()
                    closing.wait(120)

            def log_message(self, format: str, *args: Any) -> None:
                pass

            def handle(self) -> None:
                # The transfer plug-in may give up first; that is no error here.
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    super().handle()

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, daemon=True, kwargs={"poll_interval": 0.1}
        )

    @property
    def port(self) -> int:
        """The port, chosen by the kernel."""
        return int(self._server.server_address[1])

    def url(self, path: str) -> str:
        """Return the URL of `path`, which begins with a slash."""
        return f"http://127.0.0.1:{self.port}{path}"

    def add_fault(
        self,
        path: str,
        status: int,
        until: float | None = None,
        since: float = 0.0,
        unless: Callable[[], bool] = lambda: False,
    ) -> None:
        """Answer `path` with `status` from `since` to `until` (Unix times; None: for ever).

        `unless` ends the fault early, once somebody has fixed it.
        """

        def active() -> bool:
            now = time.time()
            return since <= now and (until is None or now < until) and not unless()

        self._faults.setdefault(path, []).append(ServerFault(status, active))

    def __enter__(self) -> FileServer:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
