"""Writes internal/serve/tools/testdata/goldens.json: answers with tool calls as rendered by chat
templates of models, and the parsed calls.

    pip install transformers==5.23.0 jinja2==3.1.6
    pip download --no-deps trl==1.16.0 && unzip trl-1.16.0-*.whl 'trl/chat_templates/*'
    python scripts/make_tool_goldens.py trl/chat_templates
"""

import json
import sys
from pathlib import Path

import transformers.utils.chat_template_utils as chat

ROOT = Path(__file__).parent.parent
OURS = ROOT / "testdata/tokenizers/chat"
OUT = ROOT / "internal/serve/tools/testdata/goldens.json"

# The end of an answer in Mistral's templates since Small 3.2 and since Devstral 2.
NAMED = "[/INST]{{ messages[-1].content }}{% for c in messages[-1].tool_calls %}[TOOL_CALLS]{{ c.function.name }}[CALL_ID]{{ c.id }}[ARGS]{{ c.function.arguments | tojson }}{% endfor %}</s>"
PLAIN = "[/INST]{{ messages[-1].content }}{% for c in messages[-1].tool_calls %}[TOOL_CALLS]{{ c.function.name }}[ARGS]{{ c.function.arguments | tojson }}{% endfor %}</s>"

# Syntax, templates, prefix of an answer, its end, prefix of calls.
FAMILIES = [
    ("hermes", ["qwen2_5", "qwen3", "qwen3_instruct_2507", "qwen3_vl", OURS / "qwen3_style.jinja"], "<|im_start|>assistant\n", "<|im_end|>\n", "<tool_call>"),
    ("qwen3_coder", ["qwen3_5_think", "qwen3_5_nothink", "qwen3_6", "qwen3_8", "nemotron_3_nano", "nemotron_3_super"], "<|im_start|>assistant\n", "<|im_end|>\n", "<tool_call>"),
    ("llama3_json", ["llama3_1", "llama3_2", OURS / "llama31_style.jinja"], "<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>", '{"name"'),
    ("mistral", [NAMED, PLAIN, OURS / "mistral_style.jinja"], "[/INST]", "</s>", "[TOOL_CALLS]"),
    ("deepseek_v3", ["deepseek_r1_distill", "deepseekv3", OURS / "deepseek_style.jinja"], "<｜Assistant｜>", "<｜end▁of▁sentence｜>", "<｜tool▁calls▁begin｜>"),
]

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string"}, "days": {"type": "integer"}, "ratio": {"type": "number"}, "metric": {"type": "boolean"}, "unit": {"type": ["string", "null"]},
        "tags": {"type": "array", "items": {"type": "string"}}, "where": {"$ref": "#/$defs/place"}, "code": {"type": "string"},
    },
    "$defs": {"place": {"type": "object", "properties": {"lat": {"type": "number"}, "names": {"type": "array", "items": {}}}}},
}
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "The weather.", "parameters": SCHEMA}},
    {"type": "function", "function": {"name": "stop-all", "description": "Stops.", "parameters": {"type": "object", "properties": {}}}},
]
CALLS = [
    [("get_weather", {"city": "Köln 🙂", "days": 3})],
    [("stop-all", {})],
    [("get_weather", {"city": "a \"b\" \\ c\td\u0001", "metric": True, "unit": None, "ratio": -1.5e-07})],
    [("get_weather", {"code": "if x < 3 {\n\treturn \"</tool_call>\" // } ] [TOOL_CALLS]\n}\n", "tags": ["a", "b ]", "\n"], "where": {"lat": 50.9, "names": [None, True, {"x": []}]}})],
    [("get_weather", {"city": "Oslo", "unit": "c"}), ("get_weather", {"city": "", "metric": False}), ("stop-all", {})],
]


def render(template, content, calls, text):
    source = template if "{{" in str(template) else (Path(sys.argv[1]) / f"{template}.jinja" if isinstance(template, str) else template).read_text()
    dump = (lambda a: json.dumps(a, ensure_ascii=False)) if text else (lambda a: a)
    message = {"role": "assistant", "content": content, "tool_calls": [
        {"id": f"call{i:05}", "type": "function", "function": {"name": n, "arguments": dump(a)}} for i, (n, a) in enumerate(calls)]}
    try:
        texts, _ = chat.render_jinja_template([[{"role": "user", "content": "Hi."}, message]], tools=TOOLS, chat_template=source, bos_token="<s>", eos_token="</s>")
        return texts[0]
    except Exception as e:  # some templates refuse several calls, content with calls, or neither
        print(template if len(str(template)) < 80 else template[:20], "refuses:", str(e)[:70], file=sys.stderr)


def main():
    rows = []
    for syntax, templates, head, tail, mark in FAMILIES:
        for template in templates:
            for content in ("", "I look it up."):
                for calls in CALLS:
                    deepseek = syntax == "deepseek_v3" and isinstance(template, str)
                    whole = render(template, None if deepseek and not content else content, calls, deepseek)
                    if whole is None or mark not in whole.split(head)[-1]:
                        continue
                    text = whole.split(head)[-1].removesuffix("\n").removesuffix(tail.strip()).removesuffix(tail)
                    rows.append({"syntax": syntax, "answer": text, "text": text[: text.index(mark)].strip(),
                                 "calls": [{"name": n, "arguments": json.dumps(a, ensure_ascii=False)} for n, a in calls]})
    unique = [r for i, r in enumerate(rows) if r not in rows[:i]]
    lines = ",\n".join(json.dumps(r, ensure_ascii=False, separators=(",", ":")) for r in unique)
    OUT.write_text('{"tools":' + json.dumps(TOOLS, separators=(",", ":")) + ',\n"rows":[\n' + lines + "\n]}\n")
    print(len(unique), "answers")


main()
