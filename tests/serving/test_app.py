"""The JSON API, in process; hostile input gets a clear answer."""

import asyncio
import json
from typing import Any

import anyio
import pytest
from starlette.testclient import TestClient

from nmt.serving.app import Api, build_app
from nmt.serving.served_run import ServedRun
from tests.sentences import SENTENCE


def test_a_translation_is_that_of_the_translator(client: TestClient, run: ServedRun) -> None:
    answer = client.post("/translate", json={"text": SENTENCE, "n_best": 2, "saliency": True})
    assert answer.status_code == 200
    found = answer.json()
    best, second = run.translator.translate_n_best([SENTENCE], 2)[0]
    assert (found["source"], found["text"], found["pieces"]) == (SENTENCE, best.text, best.pieces)
    assert [each["text"] for each in found["n_best"]] == [best.text, second.text]
    assert (found["source_words"], found["target_words"]) == (best.source_words, best.target_words)
    assert (len(found["weights"]), len(found["weights"][0])) == best.weights.shape
    assert len(found["saliency"]) == len(found["weights"])
    assert found["score"] == pytest.approx(best.score, abs=1e-4)
    assert len(found["starts"]) == len(found["target_words"])


def test_a_chosen_word_goes_on(client: TestClient) -> None:
    first = client.post("/translate", json={"text": SENTENCE}).json()
    place = first["starts"][1]
    asked = {"text": SENTENCE, "prefix": first["pieces"][:place], "n_best": 5}
    words = client.post("/next", json=asked).json()["words"]
    other = next(word for word in words if word["word"] != first["target_words"][1] and word["word"])
    second = client.post("/translate", json={"text": SENTENCE, "prefix": other["pieces"]}).json()
    assert second["pieces"][: len(other["pieces"])] == other["pieces"]
    assert second["forced"] == len(other["pieces"])
    assert client.post("/translate", json={"text": SENTENCE, "prefix": "il"}).json()["text"].startswith("il")


@pytest.mark.parametrize("text", ["", "   ", "\n"])
def test_nothing_gives_nothing(client: TestClient, text: str) -> None:
    found = client.post("/translate", json={"text": text, "saliency": True}).json()
    assert (found["text"], found["weights"], found["n_best"][0]["text"]) == ("", [], "")
    assert client.post("/next", json={"text": text}).json()["words"] == []
    forced = client.post("/translate", json={"text": text, "prefix": "il", "tree": True}).json()
    assert (forced["text"], forced["forced"], forced["tree"]) == ("", 0, {"nodes": [], "ends": []})


def test_nothing_comes_after_the_end(client: TestClient) -> None:
    pieces = client.post("/translate", json={"text": SENTENCE}).json()["pieces"]
    ended = [*pieces, "</s>"] if pieces[-1] != "</s>" else pieces
    assert client.post("/next", json={"text": SENTENCE, "prefix": ended, "n_best": 3}).json()["words"] == []


@pytest.mark.parametrize(
    "text",
    ["<script>alert(1)</script>", "a\x00\x07\x1b[31mb", "\u202e\u2066 \ufeff", "🙂🙂", "\ud83d\ude42", "a\u2028b\r\nc"],
)
def test_any_text_is_only_text(client: TestClient, text: str) -> None:
    body = json.dumps({"text": text, "saliency": True})
    answer = client.post("/translate", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.json()["source"] == json.loads(body)["text"]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "not JSON in UTF-8"),
        (b"\xff\xfe", "not JSON in UTF-8"),
        (b"[" * 60_000, "not JSON in UTF-8"),
        (b"1" * 60_000, "not JSON in UTF-8"),
        (b"[1]", 'send an object such as {"text": "..."}, not a list'),
        (b"NaN", "not a number"),
        (b"null", "not null"),
        (b"{}", "text is missing"),
        (b'{"text": 3}', "text must be a string, not an integer"),
        (b'{"text": null}', "text must be a string, not null"),
        (b'{"text": "a", "n_best": true}', "n_best must be an integer, not true or false"),
        (b'{"text": "a", "n_best": 0}', "n_best must be from 1 to 20, not 0"),
        (b'{"text": "a", "n_best": 1e9}', "n_best must be an integer, not a number"),
        (b'{"text": "a", "prefix": [1]}', "each a string"),
        (b'{"text": "a", "prefix": ["no such piece"]}', "not a subword of the model"),
        (b'{"text": "a", "run": "x"}', "run must be one of checkpoint, not 'x'"),
        (b'{"txt": "a"}', "did you mean 'text'?"),
        (b'{"text": "\\ud800"}', "lone surrogate"),
    ],
)
def test_a_wrong_request_is_told_what_is_wrong(client: TestClient, body: bytes, message: str) -> None:
    for path in ("/translate", "/next"):
        answer = client.post(path, content=body, headers={"content-type": "application/json"})
        assert answer.status_code == 400
        assert message in answer.json()["error"]


def test_too_much_is_refused(client: TestClient) -> None:
    for length in (66_000, 1_000_000):
        answer = client.post("/translate", json={"text": "a" * length})
        assert (answer.status_code, "at most 65,536 bytes" in answer.json()["error"]) == (413, True)
    answer = client.post("/translate", json={"text": "a b c d " * 50})
    assert (answer.status_code, "subwords; at most 40 (max_subwords)" in answer.json()["error"]) == (400, True)
    answer = client.post("/next", json={"text": "a", "prefix": "a b c d " * 50})
    assert (answer.status_code, answer.json()["error"].startswith("prefix is too long")) == (400, True)


def test_forms_of_other_pages_are_refused(client: TestClient) -> None:
    answer = client.post("/translate", content=b'{"text": "a"}', headers={"content-type": "text/plain"})
    assert (answer.status_code, "content-type" in answer.json()["error"]) == (415, True)
    assert client.get("/", headers={"host": "elsewhere.example"}).status_code == 400


@pytest.mark.parametrize(("path", "status"), [("/translate", 405), ("/nothing", 404), ("/page.py", 404), ("/a/b", 404)])
def test_other_addresses_say_so(client: TestClient, path: str, status: int) -> None:
    answer = client.get(path)
    assert (answer.status_code, list(answer.json())) == (status, ["error"])


def test_health_tells_what_is_served(client: TestClient, run: ServedRun) -> None:
    found = client.get("/health").json()
    assert (found["status"], found["waiting"]) == ("ok", 0)
    told = found["runs"]["checkpoint"]
    assert (told["path"], told["beam_size"], told["source_language"]) == (run.path, 3, "en")


def test_the_page_takes_nothing_from_elsewhere(client: TestClient) -> None:
    page = client.get("/")
    assert "default-src 'self'" in page.headers["content-security-policy"]
    names = ["alignment.js", "alignment.css", "page.js", "page.css"]
    texts = [page.text, *(client.get(f"/{name}").text for name in names)]
    assert all(name in page.text for name in names)
    assert not any("http" in text for text in texts)


def test_too_many_and_too_busy(run: ServedRun) -> None:
    slow = TestClient(build_app(Api({"checkpoint": run}, max_waiting=8, requests_per_second=1), ["*"]))
    statuses = [slow.post("/next", json={"text": ""}).status_code for _ in range(4)]
    assert statuses == [200, 200, 429, 429]
    full = Api({"checkpoint": run}, max_waiting=1, requests_per_second=100)
    full.queue.waiting = 1
    answer = TestClient(build_app(full, ["*"])).post("/translate", json={"text": "a"})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert "try again" in answer.json()["error"]


def test_a_server_that_ends_says_so(run: ServedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    api = Api({"checkpoint": run}, max_waiting=1, requests_per_second=100)
    client = TestClient(build_app(api, ["*"]))

    def cancelled(*_: Any) -> None:
        raise asyncio.CancelledError

    ending = (503, {"error": "the server is ending"})
    with monkeypatch.context() as patch:
        patch.setattr(api.queue, "run", cancelled)
        answer = client.post("/translate", json={"text": "a"})
        assert (answer.status_code, answer.json()) == ending
    api.queue.is_ending = lambda: True
    answer = client.post("/translate", json={"text": "a"})
    assert (answer.status_code, answer.json(), api.queue.waiting) == (*ending, 0)


def test_a_client_that_goes_while_it_sends(run: ServedRun) -> None:
    """No exception leaves the application, which would be a traceback in the log."""
    app = build_app(Api({"checkpoint": run}, max_waiting=1, requests_per_second=100), ["*"])
    scope = {"type": "http", "method": "POST", "path": "/translate", "query_string": b"", "http_version": "1.1"}
    scope["headers"] = [(b"host", b"a"), (b"content-type", b"application/json")]
    parts: list[Any] = [{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}]
    sent: list[Any] = []

    async def receive() -> Any:
        return parts.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    anyio.run(app, scope, receive, send)
    assert sent[0]["status"] == 499


def test_a_defect_is_not_told_in_detail(client: TestClient, run: ServedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(ServedRun, "translate", fail)
    answer = client.post("/translate", json={"text": "a"})
    assert (answer.status_code, "secret" in answer.text) == (500, False)
