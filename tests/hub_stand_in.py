"""A hub in a thread: what the client of the Hugging Face hub asks of its API, over HTTP, with files in memory."""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

TOKEN = "hf_of_the_tests"
LARGE = 10_000  # bytes, from which a file is uploaded as the hub's large files are


@dataclass
class Repository:
    private: bool = False
    gated: bool = False
    branches: dict[str, str] = field(default_factory=dict)  # name to commit
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)  # commit to files

    def commit(self, branch: str, files: dict[str, bytes]) -> str:
        content = json.dumps([len(self.commits), sorted(files)])
        name = hashlib.sha1(content.encode()).hexdigest()
        self.commits[name], self.branches[branch] = files, name
        return name


@dataclass
class Hub:
    """The state of the stand-in; tests look into it and change it."""

    endpoint: str
    stop: Callable[[], None]
    is_broken: bool = False
    models: dict[str, Repository] = field(default_factory=dict)
    large: dict[str, bytes] = field(default_factory=dict)  # by SHA-256
    requests: list[tuple[str, str]] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)  # of commits
    invalid_card: str | None = None  # what is wrong with any README.md

    def files(self, name: str, branch: str = "main") -> dict[str, bytes]:
        model = self.models[name]
        return model.commits[model.branches[branch]]


@contextmanager
def running_hub() -> Iterator[Hub]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})

    def stop() -> None:
        server.shutdown()
        thread.join()
        server.server_close()

    server.hub = Hub(f"http://127.0.0.1:{server.server_address[1]}", stop)  # type: ignore[attr-defined]
    thread.start()
    try:
        yield server.hub  # type: ignore[attr-defined]
    finally:
        stop()


class RefusedError(Exception):
    def __init__(self, status: int, code: str = "", message: str = "") -> None:
        self.status, self.code, self.message = status, code, message


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments: Any) -> None: ...

    def handle_any(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        self.body = self.rfile.read(size)
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            self.body = b"".join(self.chunks())
        self.hub: Hub = self.server.hub  # type: ignore[attr-defined]
        path = urlsplit(self.path).path
        self.hub.requests.append((self.command, path))
        try:
            if self.hub.is_broken:
                raise RefusedError(500)
            for method, pattern, answer in ROUTES:
                found = re.fullmatch(pattern, path)
                if found and self.command in method.split("|"):
                    answer(self, **{name: unquote(value) for name, value in found.groupdict().items()})
                    return
            raise RefusedError(404, message=f"the stand-in has no {self.command} {path}")
        except RefusedError as refused:
            headers = {"X-Error-Code": refused.code, "X-Error-Message": refused.message}
            text = refused.message or refused.code
            self.answer({"error": text, "errors": [{"message": text}]}, refused.status, headers)

    do_GET = do_HEAD = do_POST = do_PUT = handle_any  # noqa: N815

    def chunks(self) -> Iterator[bytes]:
        while size := int(self.rfile.readline(), 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    def answer(self, content: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.close_connection = True  # or a client would still be answered after the end
        for name, value in {"Content-Length": str(len(data)), "Connection": "close", **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    @property
    def is_owner(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {TOKEN}"

    def model(self, name: str) -> Repository:
        found = self.hub.models.get(name)
        if found is None or (found.private and not self.is_owner):
            raise RefusedError(404 if self.is_owner else 401, "RepoNotFound")
        if found.gated:
            raise RefusedError(403, "GatedRepo")
        return found

    def owned(self, name: str) -> Repository:
        found = self.model(name)
        if not self.is_owner:
            raise RefusedError(403, message="it is not yours")
        return found

    def at(self, name: str, revision: str) -> tuple[str, dict[str, bytes]]:
        model = self.model(name)
        commit = model.branches.get(revision, revision)
        if commit not in model.commits:
            raise RefusedError(404, "RevisionNotFound")
        return commit, model.commits[commit]


def create(it: Handler) -> None:
    asked = json.loads(it.body)
    if not it.is_owner:
        raise RefusedError(401, message="Invalid credentials in Authorization header")
    name = f"{asked['organization']}/{asked['name']}"
    if name in it.hub.models:
        raise RefusedError(409, message="You already created this model repo")
    private = asked.get("visibility") == "private" or bool(asked.get("private"))
    it.hub.models[name] = Repository(private)
    it.hub.models[name].commit("main", {".gitattributes": b"*.safetensors filter=lfs\n"})
    it.answer({"url": f"{it.hub.endpoint}/{name}"})


def info(it: Handler, name: str, revision: str = "main") -> None:
    commit, files = it.at(name, revision)
    siblings = [{"rfilename": path, "size": len(content)} for path, content in files.items()]
    it.answer({"id": name, "sha": commit, "private": it.model(name).private, "tags": [], "siblings": siblings})


def tree(it: Handler, name: str, revision: str) -> None:
    _, files = it.at(name, revision)
    it.answer([{"type": "file", "path": path, **describe(content)} for path, content in files.items()])


def describe(content: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {"oid": git_digest(content), "size": len(content)}
    if len(content) >= LARGE:
        found["lfs"] = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 130}
    return found


def git_digest(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def branch(it: Handler, name: str, branch: str) -> None:
    model = it.owned(name)
    if branch in model.branches:
        raise RefusedError(409, message="Reference already exists")
    model.branches[branch] = model.branches["main"]
    it.answer({})


def validate(it: Handler) -> None:
    if it.hub.invalid_card:
        raise RefusedError(400, message=it.hub.invalid_card)
    it.answer({"errors": [], "warnings": []})


def preupload(it: Handler, name: str, revision: str) -> None:
    it.owned(name)
    _, there = it.at(name, revision)
    modes = [
        {
            "path": each["path"],
            "uploadMode": "lfs" if each["size"] >= LARGE else "regular",
            "shouldIgnore": False,
            "oid": git_digest(there[each["path"]]) if each["path"] in there else None,
        }
        for each in json.loads(it.body)["files"]
    ]
    it.answer({"files": modes})


def batch(it: Handler, name: str) -> None:
    it.owned(name)
    objects: list[dict[str, Any]] = json.loads(it.body)["objects"]
    for each in objects:
        if each["oid"] not in it.hub.large:
            each["actions"] = {"upload": {"href": f"{it.hub.endpoint}/large/{each['oid']}"}}
    it.answer({"transfer": "basic", "objects": objects})


def put(it: Handler, digest: str) -> None:
    assert hashlib.sha256(it.body).hexdigest() == digest
    it.hub.large[digest] = it.body
    it.answer({})


def commit(it: Handler, name: str, revision: str) -> None:
    model = it.owned(name)
    files = dict(it.at(name, revision)[1])
    for line in it.body.splitlines():
        key, value = (part := json.loads(line))["key"], part["value"]
        if key == "header":
            it.hub.messages.append(value["summary"])
        elif key == "file":
            files[value["path"]] = base64.b64decode(value["content"])
        elif key == "lfsFile":
            files[value["path"]] = it.hub.large[value["oid"]]
        elif key == "deletedFile":
            del files[value["path"]]
        else:
            raise RefusedError(400, message=f"the stand-in has no {key}")
    made = model.commit(revision, files)
    it.answer({"commitUrl": f"{it.hub.endpoint}/{name}/commit/{made}", "commitOid": made})


def resolve(it: Handler, name: str, revision: str, path: str) -> None:
    made, files = it.at(name, revision)
    if path not in files:
        raise RefusedError(404, "EntryNotFound")
    content = files[path]
    headers = {"X-Repo-Commit": made, "ETag": f'"{git_digest(content)}"'}
    if len(content) < LARGE:
        it.answer(content, headers=headers)
        return
    digest = hashlib.sha256(content).hexdigest()
    it.hub.large[digest] = content
    headers |= {"X-Linked-Size": str(len(content)), "X-Linked-Etag": f'"{digest}"'}
    other_host = it.hub.endpoint.replace("127.0.0.1", "localhost")
    it.answer(b"", 302, headers | {"Location": f"{other_host}/large/{digest}"})


def large(it: Handler, digest: str) -> None:
    it.answer(it.hub.large[digest], headers={"ETag": f'"{digest}"'})


NAME = r"(?P<name>[^/]+/[^/]+)"
API = f"/api/models/{NAME}"
ROUTES = (
    ("POST", "/api/repos/create", create),
    ("POST", "/api/validate-yaml", validate),
    ("GET", API, info),
    ("GET", rf"{API}/revision/(?P<revision>[^/]+)", info),
    ("GET", rf"{API}/tree/(?P<revision>[^/]+)", tree),
    ("POST", rf"{API}/branch/(?P<branch>[^/]+)", branch),
    ("POST", rf"{API}/preupload/(?P<revision>[^/]+)", preupload),
    ("POST", rf"{API}/commit/(?P<revision>[^/]+)", commit),
    ("POST", rf"/{NAME}\.git/info/lfs/objects/batch", batch),
    ("PUT", "/large/(?P<digest>[0-9a-f]+)", put),
    ("GET|HEAD", "/large/(?P<digest>[0-9a-f]+)", large),
    ("GET|HEAD", rf"/{NAME}/resolve/(?P<revision>[^/]+)/(?P<path>.+)", resolve),
)
