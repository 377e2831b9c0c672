"""A loopback server that answers the calls which the real W&B client makes, and keeps them.

Runs as a thread of the test. Only what the client needs to go on is answered; what it sends
is kept by meaning: sweeps, runs, their history, and the Authorization headers.
"""

from __future__ import annotations

import gzip
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class WandbServer:
    """What the server has received."""

    def __init__(self) -> None:
        self.sweeps: list[dict[str, Any]] = []
        self.runs: dict[str, dict[str, Any]] = {}
        self.history: dict[str, dict[int, dict[str, Any]]] = {}
        self.authorizations: set[str] = set()
        self.operations: list[str] = []
        self.refuse = False
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def _body(self) -> bytes:
                if self.headers.get("Transfer-Encoding") == "chunked":
                    data = b""
                    while size := int(self.rfile.readline(), 16):
                        data += self.rfile.read(size)
                        self.rfile.readline()
                    self.rfile.readline()
                else:
                    data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                return gzip.decompress(data) if self.headers.get("Content-Encoding") else data

            def _answer(self) -> None:
                body = self._body()
                server.authorizations.add(self.headers.get("Authorization", ""))
                status, found = server.answer(self.path, body)
                data = json.dumps(found).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data)

            do_GET = do_POST = do_PUT = do_HEAD = _answer  # noqa: N815

        class Server(ThreadingHTTPServer):
            def handle_error(self, *_: object) -> None:
                """Ignore errors: the client does not close its connections."""

        self._http = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True)

    def __enter__(self) -> WandbServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    def answer(self, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
        if self.refuse:
            return 401, {"errors": [{"message": "user is not logged in"}]}
        if path.endswith("/file_stream"):
            self._stream(path.split("/")[-2], json.loads(body))
            return 200, {"exitcode": None, "limits": {}}
        if path == "/graphql":
            asked = json.loads(body)
            name = re.search(r"(?:query|mutation)\s+(\w+)", asked["query"])
            operation = name[1] if name else "?"
            self.operations.append(operation)
            return 200, {"data": self._graphql(operation, asked.get("variables") or {})}
        return 200, {}

    def _stream(self, run: str, sent: dict[str, Any]) -> None:
        rows = sent.get("files", {}).get("wandb-history.jsonl")
        if rows:
            kept = self.history.setdefault(run, {})
            for index, line in enumerate(rows["content"]):
                kept[rows["offset"] + index] = json.loads(line)
        if sent.get("complete") is not None:
            self.runs.setdefault(run, {})["exit_code"] = sent.get("exitcode")

    def _graphql(self, operation: str, variables: dict[str, Any]) -> dict[str, Any]:
        name = variables.get("project") or variables.get("projectName")
        project = {"id": "p", "name": name, "entity": {"id": "e", "name": "somebody"}}
        if operation == "UpsertBucket":
            run = self.runs.setdefault(variables["name"], {})
            run |= {key: value for key, value in variables.items() if value is not None}
            bucket = {
                "id": f"id-{variables['name']}",
                "name": variables["name"],
                "displayName": variables.get("displayName") or variables["name"],
                "description": None,
                "config": variables.get("config"),
                "sweepName": variables.get("sweep"),
                "project": project,
                "historyLineCount": 0,
            }
            return {"upsertBucket": {"bucket": bucket, "inserted": True}}
        if operation == "UpsertSweep":
            self.sweeps.append(variables)
            sweep = {"name": f"sweep{len(self.sweeps)}", "project": project}
            return {"upsertSweep": {"sweep": sweep, "configValidationWarnings": []}}
        if operation == "CreateRunFiles":
            files = [
                {"name": name, "uploadUrl": f"{self.url}/upload/{name}"}
                for name in variables["files"]
            ]
            return {"createRunFiles": {"runID": "r", "uploadHeaders": [], "files": files}}
        if operation == "Viewer":
            viewer = {
                "id": "u",
                "entity": "somebody",
                "username": "somebody",
                "flags": "{}",
                "teams": {"edges": []},
            }
            return {"viewer": viewer, "serverInfo": {"cliVersionInfo": {}}}
        if operation in ("ServerInfo", "ServerFeaturesQuery", "ProbeServerCapabilities"):
            return {
                "serverInfo": {"cliVersionInfo": {"max_cli_version": "99.0.0"}, "features": []},
                "QueryType": {"fields": []},
                "MutationType": {"fields": []},
                "ServerInfoType": {"fields": []},
            }
        return {}
