"""Uses the client for a session from its opening to its deletion, for client.test.ts.

Arguments: the gateway's URL, its admin key, and the names of the API's operations as a JSON list.
"""

import json
import sys
import urllib.request

from trialgate_client import (
    Engine,
    EngineList,
    OpenedSession,
    Page,
    Sample,
    SampleLine,
    Session,
    Summary,
    TrialgateApiError,
    TrialgateClient,
    Turn,
)

url, admin_key, operations = sys.argv[1:]


def assert_typed(reply: dict, kind: type) -> None:
    assert kind.__required_keys__ <= set(reply) <= set(kind.__annotations__), (
        kind,
        set(reply) ^ set(kind.__annotations__),
    )


client = TrialgateClient(url, admin_key)
assert all(callable(getattr(client, name)) for name in json.loads(operations))

session = client.open(
    "used", budgets={"calls": 5}, sampling={"temperature": 1, "top_p": {"default": 1}, "seed": "agent"}
)
assert client.open("used", attempt=1) == session
assert_typed(session, OpenedSession)
ask = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Say hello"}]}).encode()
headers = {"Authorization": f"Bearer {session['api_key']}"}
with urllib.request.urlopen(
    urllib.request.Request(f"{session['base_url']}/chat/completions", data=ask, headers=headers)
) as reply:
    assert reply.status == 200

client.reward("used", 0.5, key=session["api_key"])
client.complete("used")
record = client.get("used")
assert (record["completed"], record["reported_reward"], len(record["turns"])) == (True, 0.5, 1), record
assert_typed(record, Session)
assert_typed(record["turns"][0], Turn)
(sample,) = client.samples("used")["samples"]
assert_typed(sample, Sample)
assert list(client.export()) == [record]
(line,) = client.export_samples()
assert_typed(line, SampleLine)
assert line["samples"] == [sample]
page = client.list({"status": "completed"})
assert_typed(page, Page)
assert [each["session_id"] for each in page["sessions"]] == ["used"]
assert_typed(page["sessions"][0], Summary)
client.delete("used")
others = [client.create(budgets={"calls": 5}, metadata=None) for _ in range(2)]
assert_typed(others[0], OpenedSession)
client.batch_delete([each["session_id"] for each in others])
assert list(client.all()) == []
try:
    client.get("used")
except TrialgateApiError as error:
    assert (error.status, error.code) == (404, "session_not_found")
else:
    raise AssertionError("a deleted session was read")
joined = client.change_engine("http://127.0.0.1:9", "join")
assert_typed(joined, EngineList)
assert_typed(joined["engines"][0], Engine)
assert sorted(str(each["found_by"]) for each in joined["engines"]) == ["hand", "list"]
assert client.change_engine("http://127.0.0.1:9", "leave") == client.engines()
assert client.health()["status"] == "ok"
assert "trialgate_calls_accepted_total 1" in client.metrics()
print("used")
