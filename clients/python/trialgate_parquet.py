"""Writes the samples of a gateway's sessions as Parquet, which TRL and prime-rl read.

    pip install './clients/python[parquet]'
    export TRIALGATE_URL=http://127.0.0.1:8700 TRIALGATE_ADMIN_KEY=...
    python -m trialgate_parquet samples.parquet --run first --min-reward 1

docs/trl.md says what the columns are.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from trialgate_client import Filter, Sample, Session, TrialgateApiError, TrialgateClient, Turn

IGNORED = -100
ROWS_AT_A_TIME = 64

_CALL = pa.struct(
    [
        ("id", pa.string()),
        ("type", pa.string()),
        ("function", pa.struct([("name", pa.string()), ("arguments", pa.string())])),
    ]
)
_MESSAGE = pa.struct(
    [
        ("role", pa.string()),
        ("content", pa.string()),
        ("tool_calls", pa.list_(_CALL)),
        ("tool_call_id", pa.string()),
        ("name", pa.string()),
    ]
)
SCHEMA = pa.schema(
    [
        ("input_ids", pa.list_(pa.int64())),
        ("labels", pa.list_(pa.int64())),
        ("logprobs", pa.list_(pa.float32())),
        ("policy_versions", pa.list_(pa.int64())),
        ("messages", pa.list_(_MESSAGE)),
        ("tools", pa.string()),
        ("reward", pa.float64()),
        ("session_id", pa.string()),
        ("run_id", pa.string()),
        ("group_id", pa.string()),
        ("outcome", pa.string()),
    ]
)


class Counts:
    """What was written and what was left out."""

    rows = 0
    sessions = 0
    below = 0
    evaluations = 0
    deleted = 0
    with_images = 0


def rows_of(session: Session, samples: list[Sample]) -> Iterator[dict[str, Any] | None]:
    """Yields a row for each sample, or None for one whose messages are not text alone."""
    turns = {turn["call_id"]: turn for turn in session["turns"]}
    for sample in samples:
        if not turns.keys() >= set(sample["call_ids"]):
            # The session goes on, and this call was recorded after it was read.
            continue
        # The last call's request has the whole conversation.
        last = turns[sample["call_ids"][-1]]
        messages = _messages(last)
        if messages is None:
            yield None
            continue
        mask = sample["loss_mask"]
        yield {
            "input_ids": sample["token_ids"],
            "labels": [token if mask[i] else IGNORED for i, token in enumerate(sample["token_ids"])],
            "logprobs": sample["logprobs"],
            "policy_versions": sample["policy_versions"],
            "messages": messages,
            "tools": json.dumps(last["tools"] or []),
            "reward": reward_of(session),
            "session_id": session["session_id"],
            "run_id": session["run_id"],
            "group_id": session["group_id"],
            "outcome": session["outcome"],
        }


def reward_of(session: Session) -> float | None:
    """Returns the sum of the verifier's rewards, without weights, else the score that the agent gave itself."""
    rewards = session["rewards"]
    return sum(rewards.values()) if rewards else session["reported_reward"]


def _messages(turn: Turn) -> list[dict[str, Any]] | None:
    reply = {"role": "assistant", "content": turn["completion_text"], "tool_calls": turn["tool_calls"]}
    messages = []
    for message in [*turn["request_messages"], reply]:
        content = _text(message.get("content"))
        if content is None:
            return None
        calls = [_call(call) for call in message.get("tool_calls") or []]
        known = {name: message.get(name) for name in ("role", "tool_call_id", "name")}
        messages.append({**known, "content": content, "tool_calls": calls or None})
    return messages


def _call(call: dict[str, Any]) -> dict[str, Any]:
    function = call["function"]
    arguments = function.get("arguments")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    return {"id": call.get("id"), "type": "function", "function": {"name": function.get("name"), "arguments": text}}


def _text(content: Any) -> str | None:
    """Returns the text of a message's content; None when it has other parts, such as an image."""
    if content is None or isinstance(content, str):
        return content or ""
    if any(part.get("type") != "text" for part in content):
        return None
    return "".join(part["text"] for part in content)


def is_evaluation(session: Session) -> bool:
    """Tells whether the trial was an evaluation on held-out tasks."""
    return "/eval@" in (session["group_id"] or "")


def write(
    client: TrialgateClient,
    wanted: Filter,
    file: str,
    min_reward: float | None = None,
    with_evaluations: bool = False,
) -> Counts:
    """Writes the samples of all sessions that match, and returns how many.

    `file` is as it was until all are written.
    """
    unfinished = f"{file}.unfinished"
    try:
        counts = _write(client, wanted, unfinished, min_reward, with_evaluations)
        os.replace(unfinished, file)
    finally:
        Path(unfinished).unlink(missing_ok=True)
    return counts


def _write(
    client: TrialgateClient, wanted: Filter, file: str, min_reward: float | None, with_evaluations: bool
) -> Counts:
    counts = Counts()
    with pq.ParquetWriter(file, SCHEMA) as writer:
        rows: list[dict[str, Any]] = []
        for session in client.export(wanted):
            counts.sessions += 1
            if is_evaluation(session) and not with_evaluations:
                counts.evaluations += 1
                continue
            reward = reward_of(session)
            if min_reward is not None and (reward is None or reward < min_reward):
                counts.below += 1
                continue
            try:
                samples = client.samples(session["session_id"], session["attempt"])["samples"]
            except TrialgateApiError as error:
                if error.code != "session_not_found":
                    raise
                counts.deleted += 1
                continue
            for row in rows_of(session, samples):
                if row is None:
                    counts.with_images += 1
                    continue
                rows.append(row)
                counts.rows += 1
            if len(rows) >= ROWS_AT_A_TIME:
                writer.write_table(pa.Table.from_pylist(rows, SCHEMA))
                rows = []
        writer.write_table(pa.Table.from_pylist(rows, SCHEMA))
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m trialgate_parquet", description=__doc__.splitlines()[0])
    parser.add_argument("file", help="the Parquet file to write")
    parser.add_argument("--run", help="only the trials of this run")
    parser.add_argument("--group", help="only the trials of this group")
    parser.add_argument("--outcome", help="only trials that ended so, for instance scored")
    parser.add_argument("--min-reward", type=float, help="only trials with at least this reward")
    parser.add_argument(
        "--with-evaluations", action="store_true", help="also the trials on held-out tasks; --group takes them too"
    )
    given = parser.parse_args()
    url = os.environ.get("TRIALGATE_URL")
    if not url:
        sys.exit(
            "TRIALGATE_URL is not set: it is the gateway's address, http://127.0.0.1:8700 after `npx trialgate up`"
        )
    filters = {"run_id": given.run, "group_id": given.group, "outcome": given.outcome}
    wanted: Any = {name: value for name, value in filters.items() if value is not None}
    try:
        counts = write(
            TrialgateClient(url, os.environ.get("TRIALGATE_ADMIN_KEY")),
            wanted,
            given.file,
            given.min_reward,
            given.with_evaluations or given.group is not None,
        )
    except (TrialgateApiError, OSError) as error:
        sys.exit(f"the samples could not be written: {error}")
    left_out = [
        f"{count} {what}"
        for count, what in (
            (counts.below, "sessions with less reward"),
            (counts.evaluations, "sessions of evaluations (--with-evaluations writes them)"),
            (counts.deleted, "sessions that were deleted meanwhile"),
            (counts.with_images, "samples with images, which have no text form"),
        )
        if count
    ]
    print(f"{counts.rows} samples of {counts.sessions} sessions are in {given.file}", *left_out, sep="; left out: ")
    if counts.rows == 0:
        sys.exit("no sample matches: look with `npx trialgate trials RUN`, or leave filters out")


if __name__ == "__main__":
    main()
