import json
import re
import sys

from transformers.utils.chat_template_utils import render_jinja_template

import make_small_model
from make_small_model import CARD, TOOL_TEMPLATE, TOOL_USE

# The model's own template, as the GGUF has it.
PLAIN = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n"
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
SYSTEM = {"role": "system", "content": "You are brief."}
USER = {"role": "user", "content": "Add 1 and 2. <b>{{ x }}</b>\n"}
REPLY = {"role": "assistant", "content": " 3"}
ADD = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}


def rendered(template, messages, tools=None, add_generation_prompt=True):
    texts, _ = render_jinja_template(
        [messages], tools=tools, chat_template=template, add_generation_prompt=add_generation_prompt
    )
    return texts[0]


def test_without_tools_the_template_for_tools_writes_what_the_models_own_template_writes():
    for messages in ([USER], [SYSTEM, USER], [USER, REPLY, SYSTEM, USER], [SYSTEM], [SYSTEM, USER, REPLY]):
        for opens in (True, False):
            for tools in (None, []):
                own = rendered(PLAIN, messages, None, opens)
                assert rendered(TOOL_TEMPLATE, messages, tools, opens) == own


def test_the_template_shows_tools_calls_and_results_in_the_form_that_the_parser_hermes_reads():
    calls = [{"type": "function", "function": {"name": "add", "arguments": {"a": "1 < 2", "b": "é"}}}] * 2
    turn = [{"role": "assistant", "content": None, "tool_calls": calls}, {"role": "tool", "content": "3"}]
    text = rendered(TOOL_TEMPLATE, [USER, *turn], [ADD])
    start = rendered(PLAIN, [USER])
    system, rest = text.split("<|im_end|>\n", 1)
    assert start.startswith(system.split("\n\n")[0])
    assert json.loads(re.search(r"<tools>\n(.*)\n</tools>", system)[1]) == ADD
    reply, result, opening = rest.split("<|im_end|>\n")[1:]
    assert [json.loads(each) for each in re.findall(r"<tool_call>\n(.*)\n</tool_call>", reply)] == [
        call["function"] for call in calls
    ]
    assert reply.startswith("<|im_start|>assistant\n<tool_call>\n")
    assert result == "<|im_start|>tool\n<tool_response>\n3\n</tool_response>"
    assert opening == "<|im_start|>assistant\n"
    # The call continues what was rendered before it, and so do its ids.
    assert text.startswith(rendered(TOOL_TEMPLATE, [USER], [ADD]))


def test_a_folder_of_an_earlier_release_gets_template_and_card_and_keeps_all_else(tmp_path, monkeypatch):
    kept = {"model.safetensors": "weights", "tokenizer.json": "{}", "chat_template.jinja": PLAIN, "mine.txt": "mine"}
    for name, text in kept.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(sys, "argv", ["make_small_model.py", str(tmp_path)])
    make_small_model.main()
    assert {name: (tmp_path / name).read_text() for name in kept} == kept
    assert (tmp_path / TOOL_USE).read_text() == TOOL_TEMPLATE
    assert (tmp_path / "README.md").read_text() == CARD
    assert "was not trained on tools" in CARD
    (tmp_path / "README.md").write_text("my own notes")
    (tmp_path / TOOL_USE).write_text("{# Trialgate's of an earlier release #}")
    make_small_model.main()
    assert (tmp_path / "README.md").read_text() == "my own notes"
    assert (tmp_path / TOOL_USE).read_text() == TOOL_TEMPLATE
    assert {path.name for path in tmp_path.iterdir()} == {*kept, TOOL_USE.parent.name, "README.md"}
