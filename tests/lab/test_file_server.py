"""The file server serves healthy paths, and fails faulty ones for as long as it should."""

from __future__ import annotations

import time
import urllib.error
import urllib.request

from condor_advice.lab.fileserver import FileServer


def status(url: str, method: str = "GET", body: bytes | None = None) -> int:
    request = urllib.request.Request(url, data=body, method=method)
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_a_fault_affects_only_its_path_and_ends_on_time() -> None:
    with FileServer() as server:
        server.add_fault("/data/a", 503, until=time.time() + 0.6)
        assert status(server.url("/data/a")) == 503
        assert status(server.url("/data/b")) == 200
        time.sleep(0.7)
        assert status(server.url("/data/a")) == 200


def test_a_fault_without_an_end_lasts_until_it_is_fixed() -> None:
    mended = []
    with FileServer() as server:
        server.add_fault("/data/a", 403, unless=lambda: bool(mended))
        assert status(server.url("/data/a")) == 403
        mended.append(True)
        assert status(server.url("/data/a")) == 200


def test_the_same_path_always_gives_the_same_bytes() -> None:
    def read(url: str) -> bytes:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bytes(answer.read())

    with FileServer() as server:
        assert read(server.url("/x")) == read(server.url("/x")) != read(server.url("/y"))


def test_uploads_are_accepted_and_refused() -> None:
    with FileServer() as server:
        server.add_fault("/up/full", 507)
        assert status(server.url("/up/ok"), "PUT", b"x" * 100_000) == 200
        assert status(server.url("/up/full"), "PUT", b"x" * 100_000) == 507


def test_a_stalled_transfer_begins_and_then_stops() -> None:
    with FileServer() as server:
        server.add_fault("/slow", 0)
        request = urllib.request.urlopen(server.url("/slow"), timeout=1)
        assert int(request.headers["Content-Length"]) > 100
        begun = time.monotonic()
        try:
            request.read()
        except TimeoutError:
            pass
        else:
            raise AssertionError("the whole file came")
        assert time.monotonic() - begun > 0.5
