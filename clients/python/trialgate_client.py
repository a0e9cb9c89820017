"""Client for the session routes of a Trialgate gateway. Needs Python 3.9 and nothing but the standard library.

Any OpenAI client gets answers at a session's `base_url` with its `api_key`:

    gateway = TrialgateClient("http://127.0.0.1:8700", admin_key)
    session = gateway.open("my-trial")
    OpenAI(base_url=session["base_url"], api_key=session["api_key"])
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from http.client import HTTPResponse
from typing import Any, Literal, TypedDict, cast
from urllib.error import HTTPError
from urllib.parse import quote, urlencode
from urllib.request import Request, urlopen

Outcome = Literal["scored", "truncated", "timed_out", "agent_error", "verifier_error", "infra_error", "cancelled"]


class Budgets(TypedDict, total=False):
    """`seconds` count from the opening of the attempt; `tokens` are sampled tokens, `bytes` are stored bytes."""

    calls: int
    tokens: int
    seconds: float
    bytes: int
    prompt_tokens: int


class OpenedSession(TypedDict):
    session_id: str
    status: Literal["created"]
    attempt: int
    api_key: str
    base_url: str


class Filter(TypedDict, total=False):
    run_id: str
    group_id: str
    outcome: Outcome
    status: Literal["created", "completed"]
    cursor: str


class SessionState(TypedDict):
    session_id: str
    run_id: str | None
    group_id: str | None
    attempt: int
    exhausted: str | None
    outcome: Outcome | None
    rewards: dict[str, float] | None
    """The rewards that the verifier gave."""
    reported_reward: float | None
    """The score that the agent gave itself, outside any run."""
    reason: str | None
    metadata: dict[str, Any] | None
    created_at: float


class Summary(SessionState):
    trial_index: int | None
    task: str | None
    agent: str | None
    status: Literal["created", "completed"]
    policy_version: int | None
    usage: dict[str, int]
    completed_at: float | None


class Page(TypedDict):
    sessions: list[Summary]
    next_cursor: str | None


class Turn(TypedDict):
    call_id: str
    choice_of: str | None
    parent_call_id: str | None
    continuation: Literal["clean", "drifted", "branched"] | None
    attempt: int
    status: Literal["completed", "failed", "cancelled"]
    reason: str | None
    untrainable: str | None
    http_status: int
    request_bytes: int | None
    protocol: str
    stream: bool
    request_messages: list[Any]
    prompt: Any
    tools: list[Any] | None
    sampling: dict[str, Any]
    prompt_token_ids: list[int]
    completion_token_ids: list[int]
    completion_logprobs: list[float]
    """In nats, one for each sampled token."""
    completion_text: str
    finish_reason: str | None
    tool_calls: list[Any] | None
    left_out: list[Any] | None
    policy_version: int | None
    weight_version: str | None
    version_spans: list[dict[str, int]] | None
    routed_experts: dict[str, Any] | None
    started_at: float
    first_token_at: float | None
    ended_at: float


class Session(SessionState):
    turns: list[Turn]
    unfinished: list[Turn]
    next: int
    refusals: dict[str, Any]
    completed: bool
    current_attempt: int
    sampling: dict[str, Any]
    budgets: dict[str, float]
    usage: dict[str, int]


class SamplingMask(TypedDict, total=False):
    """`sampling_mask` has the ids over which each log-probability is normalized. Only truncated sampling has one."""

    sampling_mask: list[list[int] | None]


class Sample(SamplingMask):
    """One trainable token sequence. Every list but `call_ids` has one entry a token."""

    token_ids: list[int]
    loss_mask: list[int]
    logprobs: list[float]
    policy_versions: list[int | None]
    call_ids: list[str]


class Samples(TypedDict):
    samples: list[Sample]


class SampleLine(SessionState):
    samples: list[Sample]


class ClaimedTrial(TypedDict):
    trial_id: str
    trial_index: int
    attempt: int
    api_key: str
    base_url: str


class ClaimedGroup(TypedDict):
    group_id: str
    task: str
    trials: list[ClaimedTrial]


class ClaimReply(TypedDict):
    run: Literal["running", "blocked", "completed", "failed", "cancelled"]
    reason: str | None
    group: ClaimedGroup | None
    """None when no group waits now."""


class ReportReply(TypedDict):
    trial_id: str
    attempt: int
    outcome: Outcome
    rewards: dict[str, float] | None


class Engine(TypedDict):
    url: str
    found_by: str | None
    state: str
    drained_by_hand: bool
    run_id: str | None
    weight_version: str | None
    in_rotation: bool
    calls_in_flight: int


class EngineList(TypedDict):
    engines: list[Engine]


class TrialgateApiError(Exception):
    """The gateway answered with an error. `code` is stable, such as `session_not_found` or `attempt_closed`."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(f"{status} {code}: {message}")
        self.status = status
        self.code = code


class TrialgateClient:
    def __init__(self, base_url: str, admin_key: str | None = None, timeout: float = 60.0) -> None:
        """`timeout` is the number of seconds that the gateway may be silent."""
        self._base_url = base_url.rstrip("/")
        self._admin_key = admin_key
        self._timeout = timeout

    def create(self, **opening: Any) -> OpenedSession:
        """Opens a session with an id that the gateway chooses. Takes the keyword arguments of `open`."""
        return cast(
            OpenedSession,
            self._json("POST", "/sessions", body={name: value for name, value in opening.items() if value is not None}),
        )

    def open(
        self,
        trial_id: str,
        *,
        attempt: int | None = None,
        run_id: str | None = None,
        group_id: str | None = None,
        sampling: Mapping[str, float | str | Mapping[str, float]] | None = None,
        budgets: Budgets | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> OpenedSession:
        """Opens a session, or its next attempt.

        `sampling` gives each setting by name: a number forces it, `{"default": number}` applies where the agent names
        none, and "agent" leaves it to the agent.
        """
        opening = {
            "attempt": attempt,
            "run_id": run_id,
            "group_id": group_id,
            "sampling": sampling,
            "budgets": budgets,
            "metadata": metadata,
        }
        given = {name: value for name, value in opening.items() if value is not None}
        return cast(OpenedSession, self._json("POST", _session(trial_id), body=given))

    def get(self, trial_id: str, attempt: int | None = None) -> Session:
        return cast(Session, self._json("GET", _session(trial_id), {"attempt": attempt}))

    def samples(self, trial_id: str, attempt: int | None = None) -> Samples:
        return cast(Samples, self._json("GET", f"{_session(trial_id)}/samples", {"attempt": attempt}))

    def blob(self, trial_id: str, sha256: str) -> bytes:
        """Reads bytes that a turn names by their SHA-256."""
        with self._send("GET", f"{_session(trial_id)}/blobs/{sha256}") as reply:
            return reply.read()

    def complete(self, trial_id: str) -> None:
        self._json("POST", f"{_session(trial_id)}/complete")

    def reward(self, trial_id: str, reward: float, key: str | None = None) -> None:
        """Reports the agent's own score for a session outside any run. `key` is the session's own key."""
        self._json("POST", f"{_session(trial_id)}/reward", body={"reward": reward}, key=key)

    def claim(self, run_id: str, task: str, claim: str, key: str | None = None) -> ClaimReply:
        """Claims the next group of a run with `rollouts: external`. `Run.group` does this for you.

        `claim` is a new id for each claim: the same id again gets the same group. `key` is the run's key.
        """
        body = {"task": task, "claim": claim}
        return cast(ClaimReply, self._json("POST", f"{_run(run_id)}/groups", body=body, key=key))

    def report(
        self,
        run_id: str,
        trial_id: str,
        attempt: int,
        reward: float | Mapping[str, float] | None,
        reason: str | None = None,
        key: str | None = None,
    ) -> ReportReply:
        """Ends a claimed trial with its reward, or without one. `Trial.report` and `Trial.discard` do this for you."""
        body: dict[str, Any] = {"attempt": attempt, "reward": reward}
        if reason is not None:
            body["reason"] = reason
        path = f"{_run(run_id)}/trials/{quote(trial_id, safe='')}/reward"
        return cast(ReportReply, self._json("POST", path, body=body, key=key))

    def delete(self, trial_id: str) -> None:
        self._json("DELETE", _session(trial_id))

    def batch_delete(self, trial_ids: Sequence[str]) -> None:
        """Deletes up to 1,000 sessions. An unknown id changes nothing."""
        self._json("POST", "/sessions/batch_delete", body={"session_ids": [*trial_ids]})

    def list(self, wanted: Filter | None = None, limit: int | None = None) -> Page:
        return cast(Page, self._json("GET", "/sessions", {**(wanted or {}), "limit": limit}))

    def all(self, wanted: Filter | None = None) -> Iterator[Summary]:
        """Yields every session that matches `wanted`, page after page."""
        cursor: dict[str, Any] = {}
        while True:
            page = cast(Page, self._json("GET", "/sessions", {**(wanted or {}), **cursor}))
            yield from page["sessions"]
            if page["next_cursor"] is None:
                return
            cursor = {"cursor": page["next_cursor"]}

    def export(self, wanted: Filter | None = None) -> Iterator[Session]:
        """Yields every session that matches `wanted`, with its calls, as the gateway sends them."""
        return cast(Iterator[Session], self._lines({**(wanted or {})}))

    def export_samples(self, wanted: Filter | None = None) -> Iterator[SampleLine]:
        return cast(Iterator[SampleLine], self._lines({**(wanted or {}), "samples": "true"}))

    def transcript(self, trial_id: str, attempt: int | None = None, after: int | None = None) -> dict[str, Any]:
        """Reads what an attempt's agent saw, call by call, with each message once. `next` is the next `after`."""
        query = {"attempt": attempt, "after": after}
        return cast(dict[str, Any], self._json("GET", f"{_session(trial_id)}/transcript", query))

    def call_request(self, trial_id: str, call_id: str) -> dict[str, Any]:
        """Reads the whole request of one call: `body` is JSON text for the route `path` of OpenAI's API."""
        return cast(dict[str, Any], self._json("GET", f"{_session(trial_id)}/calls/{call_id}/request"))

    def tokens(self, trial_id: str, attempt: int | None = None) -> Samples:
        """Reads the same as `samples`, as a person's page does: it waits for others, and refuses very long attempts."""
        return cast(Samples, self._json("GET", f"{_session(trial_id)}/tokens", {"attempt": attempt}))

    def runs(self, cursor: str | None = None, limit: int | None = None) -> dict[str, Any]:
        """Lists the runs, the newest first."""
        return cast(dict[str, Any], self._json("GET", "/runs", {"cursor": cursor, "limit": limit}))

    def run(self, run_id: str) -> dict[str, Any]:
        return cast(dict[str, Any], self._json("GET", _run(run_id)))

    def start_run(self, file: str, **values: str) -> Iterator[dict[str, Any]]:
        """Checks the text of a run file and starts its run, as `trialgate train` does.

        Yields {"progress": line} while it is checked, and at the end {"run_id", "message"} or {"error"}. `values` are
        "run_id", "file_name" and "as". When this client goes away, the gateway goes on. An answer that was cut before
        its end raises a ConnectionError: then the run may have started or not.
        """
        is_done = False
        with self._send("POST", "/runs", body={"file": file, **values}) as reply:
            for text in reply:
                # An empty one says that the gateway is still at work.
                if line := json.loads(text):
                    is_done = "run_id" in line or "error" in line
                    yield line
        if not is_done:
            raise ConnectionError("the answer was cut: look for the run in the list before you start it again")

    def operate(self, run_id: str, verb: str, **values: str | float | bool) -> dict[str, Any]:
        """Does "pause", "resume", "stop", "cancel", "redo" or "fork", as the command of that name does.

        It may take longer than this client's timeout: then the verb goes on without it.
        """
        return cast(dict[str, Any], self._json("POST", _run(run_id), body={"verb": verb, **values}))

    def run_events(self, run_id: str, after: str | None = None) -> Iterator[tuple[str, str]]:
        """Follows a run: yields ("now", id) at first, then ("changed", id) whenever something of it has changed.

        `after` is the id of the last event before a cut.
        """
        headers = {} if after is None else {"Last-Event-ID": after}
        with self._send("GET", f"{_run(run_id)}/events", headers=headers) as reply:
            name = ""
            for line in reply:
                field, _, value = line.decode().rstrip("\n").partition(": ")
                if field == "event":
                    name = value
                elif field == "id":
                    yield name, value

    def iterations(self, run_id: str, start: int | None = None, limit: int | None = None) -> dict[str, Any]:
        """Reads a run's iterations from `start` on, with their rewards and metrics."""
        query = {"from": start, "limit": limit}
        return cast(dict[str, Any], self._json("GET", f"{_run(run_id)}/iterations", query))

    def timeline(self, run_id: str, iteration: int, **query: str | int | None) -> dict[str, Any]:
        """Reads when each attempt of a take's trials began and ended. Without `take` it is the newest."""
        return cast(dict[str, Any], self._json("GET", f"{_run(run_id)}/iterations/{iteration}/timeline", query))

    def groups(self, run_id: str, **query: str | int | None) -> dict[str, Any]:
        """Lists groups with their trials: of an `iteration`, of an `evaluation`, or those `dropped` for a reason."""
        return cast(dict[str, Any], self._json("GET", f"{_run(run_id)}/groups", query))

    def dropped(self, run_id: str) -> dict[str, Any]:
        """Counts what of a run is not trained, by reason."""
        return cast(dict[str, Any], self._json("GET", f"{_run(run_id)}/dropped"))

    def search(self, run_id: str, q: str, after: str | None = None) -> dict[str, Any]:
        """Searches the messages of a run's transcripts for all words of `q`. `next_after` is the next `after`."""
        return cast(dict[str, Any], self._json("GET", f"{_run(run_id)}/search", {"q": q, "after": after}))

    def engines(self) -> EngineList:
        """Lists the engines, with the calls that this gateway process has under way there."""
        return cast(EngineList, self._json("GET", "/engines"))

    def change_engine(self, url: str, change: str) -> EngineList:
        """Changes one engine.

        "join" adds it or lets it serve again, "drain" gives it no new calls, "leave" removes one that "join" added.
        """
        return cast(EngineList, self._json("POST", "/engines", body={"url": url, "change": change}))

    def deployment(self) -> dict[str, Any]:
        """Reads the state of the engines, and what of the runs under way works and waits."""
        return cast(dict[str, Any], self._json("GET", "/deployment"))

    def health(self) -> dict[str, Any]:
        return cast(dict[str, Any], self._json("GET", "/health"))

    def metrics(self) -> str:
        with self._send("GET", "/metrics") as reply:
            return reply.read().decode()

    def _json(
        self, method: str, path: str, query: dict[str, Any] | None = None, body: Any = None, key: str | None = None
    ) -> Any:
        with self._send(method, path, query, body, key) as reply:
            return json.load(reply)

    def _lines(self, query: dict[str, Any]) -> Iterator[Any]:
        with self._send("GET", "/sessions/export", query) as reply:
            for line in reply:
                yield json.loads(line)

    def _send(
        self,
        method: str,
        path: str,
        query: dict[str, Any] | None = None,
        body: Any = None,
        key: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> HTTPResponse:
        given = {name: value for name, value in (query or {}).items() if value is not None}
        url = f"{self._base_url}{path}{'?' + urlencode(given) if given else ''}"
        data = None if body is None else json.dumps(body).encode()
        request = Request(
            url, data=data, method=method, headers={"Content-Type": "application/json", **(headers or {})}
        )
        bearer = key or self._admin_key
        if bearer is not None:
            request.add_header("Authorization", f"Bearer {bearer}")
        try:
            return cast(HTTPResponse, urlopen(request, timeout=self._timeout))
        except HTTPError as error:
            with error:
                raise _failure(error.code, error.read()) from None


def _session(trial_id: str) -> str:
    return f"/sessions/{quote(trial_id, safe='')}"


def _run(run_id: str) -> str:
    return f"/runs/{quote(run_id, safe='')}"


def _failure(status: int, body: bytes) -> TrialgateApiError:
    try:
        error = json.loads(body)["error"]
        return TrialgateApiError(status, error["code"], error["message"])
    except (ValueError, KeyError, TypeError):
        return TrialgateApiError(status, "no_trialgate", body[:200].decode(errors="replace"))
