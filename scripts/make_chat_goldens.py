"""Writes testdata/tokenizers/chat: what transformers renders for the templates there, and for
many small pieces of template.

    pip install transformers==5.23.0 jinja2==3.1.6
    python scripts/make_chat_goldens.py testdata/tokenizers/chat
"""

import datetime
import json
import sys
from pathlib import Path
from unittest import mock

import transformers.utils.chat_template_utils as chat

OUT = Path(sys.argv[1])
NOW = datetime.datetime(2024, 7, 6, 9, 5, 3)


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


def render(source, messages, options):
    kwargs = dict(options)
    messages = [{k: v for k, v in m.items() if v is not None} for m in messages]
    with mock.patch.object(chat, "datetime", Clock):
        try:
            texts, _ = chat.render_jinja_template(
                [messages], tools=kwargs.pop("tools", None), documents=kwargs.pop("documents", None), chat_template=source,
                add_generation_prompt=kwargs.pop("add_generation_prompt", False), **kwargs)
            return texts[0]
        except Exception:
            return None


TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "description": "Weather <now> & \"here\"", "parameters": {
        "type": "object", "properties": {"city": {"type": "string", "description": "Größe"}, "n": {"enum": [1, 2]}, "u": {"type": ["string", "null"]}, "l": {"type": "array", "items": {"type": "number"}}}, "required": ["city"]}}},
    {"type": "function", "function": {"name": "f", "description": "Nothing.", "parameters": {"type": "object", "properties": {}}}},
]


def call(arguments, name="get_weather", **more):
    return {"role": "assistant", "tool_calls": [{"type": "function", "id": "abcdefghi", "function": {"name": name, "arguments": arguments}}], **more}


CONVERSATIONS = {
    "user": [{"role": "user", "content": " Hi there\n"}],
    "system": [{"role": "system", "content": " Be <b>brief</b>. "}, {"role": "user", "content": "2+2?\n"}, {"role": "assistant", "content": " 4 "}, {"role": "user", "content": "日本 'q' \"dq\" \\ back"}],
    "turns": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}],
    "tool": [{"role": "user", "content": "w?"}, call({"city": "Köln", "n": 1, "x": 1.5, "l": [1, {"a": None, "b": True}]}, content=""), {"role": "tool", "name": "get_weather", "tool_call_id": "abcdefghi", "content": "{\"t\": 3}"}, {"role": "assistant", "content": "Cold."}, {"role": "user", "content": "ok"}],
    "tool_text": [{"role": "user", "content": "w?"}, call("{\"city\": \"K\"}"), {"role": "tool", "tool_call_id": "abcdefghi", "content": "3"}],
    "built_in": [{"role": "user", "content": "w?"}, call({"query": "Köln"}, "brave_search"), {"role": "tool", "tool_call_id": "abcdefghi", "content": "3"}],
    "parts": [{"role": "user", "content": [{"type": "text", "text": "Look: "}, {"type": "text", "text": "x"}]}, {"role": "assistant", "content": [{"type": "text", "text": "A cat."}]}],
    "thought": [{"role": "user", "content": "q"}, {"role": "assistant", "reasoning": "hmm\n", "content": "a1"}, {"role": "user", "content": "q2"}, {"role": "assistant", "content": "<think>\nwell\n</think>\n\na2"}],
    "disorder": [{"role": "assistant", "content": "x"}, {"role": "assistant", "content": "y"}],
    "null": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": None, "tool_calls": None}, {"role": "user", "content": "b"}],
}
OPTIONS = [
    {},
    {"add_generation_prompt": True},
    {"add_generation_prompt": True, "tools": TOOLS},
    {"add_generation_prompt": True, "tools": TOOLS, "enable_thinking": False, "builtin_tools": ["brave_search", "code_interpreter"], "tools_in_user_message": False},
]

# Variables of the snippets.
VARS = {
    "s": "  Hello, World!\n", "w": "the quick-brown (fox) x", "n": 7, "neg": -7, "f": 2.5, "big": 1e16, "small": 0.00001234, "t": True, "no": None, "u8": "Größe 日本🙂",
    "l": [3, 1, 2], "words": ["pear", "Apple", "fig", "apple"], "empty": [], "d": {"b": 1, "a": [1, 2], "c": {"x": "y"}, "items": "it"},
    "rows": [{"k": "x", "v": 1, "o": {"p": 5}}, {"k": "y", "v": 2}, {"k": "X", "v": 3}], "tree": [{"n": "a", "c": [{"n": "b", "c": []}, {"n": "c", "c": [{"n": "d", "c": []}]}]}],
    "quote": "it's \"x\" \\ \n\t\u0001é\u2028", "html": "<a href='x'>&\"</a>", "csv": "a,b,,c", "lines": "a\nb\r\nc\n\nd",
}
EXPRESSIONS = r"""
n + 1 | n - 10 | n * f | n / 2 | n // 2 | neg // 2 | neg % 3 | n % -3 | f % 2 | 2 ** 10 | -2 ** 2 | 2 ** -1 | f // 1 | 1 / 0 | n + "x" | "x" + n | "a" ~ n ~ none ~ true ~ f | s ~ missing
-n | +n | - -n | not n | not not n | n == 7.0 | true == 1 | "1" == 1 | [1, 2] == [1, 2] | (1, 2) == [1, 2] | {"a": 1} == {"a": 1.0} | n != 7 | 1 < n < 9 | 1 < n > 9 | "a" < "b" | [1, 2] < [1, 3] | n < "a"
"ell" in s | "x" not in s | 3 in l | 9 not in l | "a" in d | none in [none] | 1 in 5 | missing in "abc" | "a" in missing | n in (1, 7) | not n in l | n is not none and n > 3 or missing.x
l[0] | l[-1] | l[5] | l[1:] | l[:-1] | l[::-1] | l[::2] | l[5:] | s[2:7] | u8[::-1] | u8[0] | u8[-1] | (1, 2, 3)[1:] | (1,) | () | [] | {} | [1, [2, "x"], none, true, 1.0] | {"a": 1, 2: "b", none: [1]} | {"a": 1,} | [1,] | range(3)[1] | l["x"] | l.x | l.0 | d["a"][1] | d.c.x | d["items"] | d.b | d["zz"] | d.zz | no.x | n.x | missing.x | missing["x"] | no.x.y | l[1:][0] | d[1:]
"yes" if n > 3 else "no" | "yes" if n > 9 | ("a" if t else "b") + "c" | "a" if t else "b" if n else "c" | 1 if false else 2 if false else 3 | (n if t) | [n if t else 0]
"a" "b" 'c' | 'it\'s' | "tab\tnew\nline" | "\x41\u00e9\U0001F642\101" | "\q" | 1_000 | 0x1F | 0b101 | 0o17 | 1e3 | 1.5e-7 | 12.0 | 1_0.5 | big | small | 1e15 | 123456789.123 | 0.1 + 0.2 | 1e22 | 5e-324 | -0.0
true | True | none | None | false | missing | l | d | rows[0] | quote | [quote] | ["it's"] | ['"'] | ["it's \""] | [u8] | ["\u200b"] | namespace(a=1).a | namespace(a=1).b | dict(a=1, b=[2]) | dict([("x", 1)]) | dict({"a": 1}, b=2) | range(5) | range(2, 8, 3) | range(5, 0, -2) | range(3) | list
"""
METHODS = r"""
s.strip() | s.lstrip() | s.rstrip() | s.strip("\n !") | "xxaxx".lstrip("x") | "xxaxx".rstrip("x") | s.upper() | s.lower() | "éÀ ß".upper() | "ÀÉ".lower() | "hello wOrld".title() | "hELLO".capitalize() | s.startswith("  H") | s.startswith(("x", "  ")) | s.endswith("\n") | "abc".startswith("b", 1) | "abc".endswith("b", 0, 2)
csv.split(",") | csv.split(",", 1) | csv.rsplit(",", 1) | csv.rsplit(",") | " a  b ".split() | " a  b c ".split(none, 1) | " a b  c ".rsplit(none, 1) | "".split() | "".split(",") | "abc".split("") | lines.splitlines() | lines.splitlines(true) | csv.split(sep=",") | "a--b".split("--")[-1] | csv.partition(",") | csv.rpartition(",") | csv.partition("x") | csv.rpartition("x")
csv.replace(",", ";") | csv.replace(",", ";", 1) | csv.replace("", "-") | csv.find("b") | csv.find("x") | csv.rfind(",") | csv.index("b") | csv.index("x") | csv.count(",") | csv.count("") | u8.find("日") | csv.find(",", 2) | csv.find("a", -3) | ",".join(["a", "b"]) | ",".join("abc") | ",".join([1]) | "-".join(d) | "a".join([])
"12".isdigit() | "1a".isdigit() | "".isdigit() | "ab".isalpha() | "a1".isalnum() | "pre-x".removeprefix("pre-") | "x.py".removesuffix(".py") | "x".removeprefix("y")
"{} {}".format(1, "a") | "{1}{0}".format("a", "b") | "{a}-{b!r}".format(a=1, b="x") | "{{}}".format() | "{}".format() | "{:d}".format("x") | "{!s}".format(none)
"%s %d" % ("a", 5) | "%5.1f|%-5s|%05d|%+d" % (2.25, "a", 42, 3) | "%(x)s %(y)d" % {"x": 1, "y": 2} | "%x %X %o %e %g %%" % (255, 255, 8, 1234.5, 0.00001) | "%r" % ("x",) | "%s" % l | "%s" % none | "%d" % 3.7 | "%s %s" % ("a",) | "%s" % ("a", "b") | "%c" % "x" | "%.2s" % "abc" | "%i%%" % 50 | "x" % [] | "%d" % "x"
d.keys() | d.values() | d.items() | d.keys() | list | d.get("b") | d.get("z") | d.get("z", 5) | d.copy() | l.index(2) | l.count(1) | l.index(9) | (1, 2).index(2) | l.append(4) | d.update({}) | d.pop("a") | l.sort() | d.items() | length | d.keys()[0]
"""
FILTERS = r"""
s|trim | s|trim("\n") | "xax"|trim("x") | s|upper | s|lower | w|title | w|capitalize | n|string + "x" | 5|trim | none|trim | l|length | s|length | u8|length | d|length | missing|length | n|length | l|count | l|first | l|last | empty|first | empty|last | s|first | d|first | d|last | "abc"|last
missing|default("x") | missing|d("x") | none|default("x") | none|default("x", true) | ""|default("x", boolean=true) | missing|default | missing.x|default("y") | d.zz|default("y")
l|join(",") | words|join | rows|join(", ", attribute="k") | rows|join("-", "v") | "abc"|join(".") | [1, none, true]|join("|") | l|sort | l|sort(reverse=true) | words|sort | words|sort(case_sensitive=true) | rows|sort(attribute="k")|map(attribute="v")|list | rows|sort(attribute="k,v", reverse=true)|map(attribute="v")|list | [1, "a"]|sort | words|unique|list | words|unique(true)|list | rows|unique(attribute="k")|map(attribute="v")|list | l|min | l|max | words|min | rows|max(attribute="v") | empty|max | l|sum | rows|sum(attribute="v") | rows|sum("v", 10) | ["a"]|sum
l|reverse|list | "abc"|reverse | d|reverse|list | l|list | "abc"|list | d|list | d|items|list | missing|items|list | d|dictsort | d|dictsort(reverse=true) | {"b": 1, "A": 2}|dictsort | {"b": 1, "A": 2}|dictsort(true) | {"b": 1, "a": 2}|dictsort(by="value")
rows|map(attribute="k")|list | rows|map(attribute="o.p")|list | rows|map(attribute="o.p", default=0)|list | words|map("upper")|list | l|map("string")|join("+") | words|map("replace", "p", "P")|list | rows|map("tojson")|join | l|map("nope")|list | rows|selectattr("v", "gt", 1)|map(attribute="k")|list | rows|selectattr("o")|list|length | rows|rejectattr("o")|list|length | rows|selectattr("k", "equalto", "x")|list | rows|selectattr("k", "in", ["x", "y"])|list|length | rows|selectattr("o", "defined")|list|length | l|select("odd")|list | l|reject("odd")|list | [0, 1, "", "a"]|select|list | l|select("gt", 1)|list | rows|selectattr("k", "==", "zz")|first is defined | (rows|selectattr("k", "==", "zz")) is iterable | "T" if rows|selectattr("k", "==", "zz") else "F" | "T" if rows|selectattr("k", "==", "zz")|list else "F" | rows|map(attribute="k")|length
5|abs | neg|abs | -2.5|abs | "x"|abs | "42"|int | "42.7"|int | "x"|int | "x"|int(-1) | "ff"|int(base=16) | "0x1f"|int(0, 16) | 3.9|int | none|int | true|int | " 5 "|int | "1.5"|float | "x"|float | "x"|float(1.0) | 3|float | "1e3"|float
lines|indent | lines|indent(2, true) | lines|indent(2, blank=true) | lines|indent(width=">>") | "a"|indent(first=true) | w|replace("x", "yy") | "aaa"|replace("a", "b", 2) | 5|replace(5, 6) | html|e | html|escape | html|safe | html|forceescape | "%s-%s"|format("a", 1) | "%(a)s"|format(a=1) | d|attr("keys") is callable | d|attr("b") | namespace(q=1)|attr("q")
d|tojson | rows|tojson | quote|tojson | u8|tojson | u8|tojson(ensure_ascii=true) | html|tojson | d|tojson(indent=2) | [[], {}, [1]]|tojson(indent=1) | l|tojson(separators=(",", ":")) | d|tojson(sort_keys=true) | d|tojson(sort_keys=true, indent=4) | [1.0, 1e20, 1e-7, 0.1, none, true]|tojson | (1, 2)|tojson | {1: 2, none: 3, true: 4, 1.5: 5}|tojson | missing|tojson | d.keys()|tojson | d|tojson(false, 2) | l|tojson(indent="--") | range(2)|tojson | "\u007f\u001f"|tojson | (l|map("string"))|tojson | d|tojson|length | l|tojson(indent=0)
s|nope | n|length | 5|first | none|join | none|list | l|join(1) | "a,b"|list|length
"""
TESTS = r"""
n is defined | missing is defined | missing is undefined | d.zz is defined | d.a is defined | no is none | n is none | n is not none | s is string | n is string | n is number | t is number | f is number | n is integer | t is integer | f is float | n is float | t is boolean | t is true | n is true | false is false | d is mapping | l is mapping | l is iterable | s is iterable | n is iterable | missing is iterable | l is sequence | s is sequence | d is sequence | n is sequence | range is callable | n is callable | (l|map("string")) is sequence | d.keys() is sequence
n is odd | n is even | n is divisibleby 7 | n is divisibleby(3) | n is eq 7 | n is equalto 7 | n is ne 7 | n is gt 3 | n is ge 7 | n is lt 3 | n is le 7 | n is == 7 | n is in l | 3 is in l | "a" is in "abc" | n is sameas 7 | t is sameas true | 1 is sameas true | none is sameas none | n is nope | n is defined and n is number | not n is defined | n is not defined or t | n is number and not f is integer | l is not string and l is iterable
"""
BLOCKS = [
    "{% for x in l %}{{ x }}{% if not loop.last %},{% endif %}{% endfor %}", "{% for x in empty %}x{% else %}none{% endfor %}", "{% for x in l if x > 1 %}{{ loop.index }}/{{ loop.length }}:{{ x }} {% else %}-{% endfor %}",
    "{% for x in l if x > 9 %}{{ x }}{% else %}-{% endfor %}", "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k in d %}{{ k }}{% endfor %}", "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "{% for a, b in l %}{% endfor %}",
    "{% for x in l %}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.depth }}{{ loop.previtem }}|{{ loop.nextitem }} {% endfor %}", "{% for x in l %}{{ loop.cycle('a', 'b') }}{% endfor %}", "{% for x in [1,1,2] %}{{ loop.changed(x) }}{% endfor %}",
    "{% for x in range(6) %}{% if x == 1 %}{% continue %}{% endif %}{% if x == 4 %}{% break %}{% endif %}{{ x }}{% endfor %}", "{% for x in range(2) %}{% for y in range(3) %}{% if y == 1 %}{% break %}{% endif %}{{ x }}{{ y }}{{ loop.depth }} {% endfor %}{% endfor %}",
    "{% for i in tree recursive %}{{ i.n }}{% if i.c %}({{ loop(i.c) }}){% endif %}{{ loop.depth }}{% endfor %}", "{% for x in missing %}x{% else %}e{% endfor %}", "{% for x in n %}{% endfor %}", "{% for c in 'añ' %}[{{ c }}]{% endfor %}", "{% for x in l|map('string') %}{{ x }}{{ loop.last }}{% endfor %}",
    "{% set x = 1 %}{% for i in l %}{% set x = i %}{% endfor %}{{ x }}", "{% set ns = namespace(x=1) %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}", "{% if t %}{% set y = 2 %}{% endif %}{{ y }}", "{% for i in l %}{% if loop.first %}{% set z = i %}{% endif %}{{ z }}{% endfor %}{{ z }}",
    "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a, b = l %}", "{% set x %} hi {{ n }} {% endset %}[{{ x }}]", "{% set x | trim | upper %} hi {% endset %}[{{ x }}]", "{% set n.x = 1 %}", "{% set ns = namespace() %}{% set ns._x = 1 %}", "{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns['b'] }}{{ ns.c is defined }}", "{% set x = 1, 2 %}{{ x }}", "{% set d = dict(d, z=1) %}{{ d.z }}{{ d.b }}",
    "{% if n > 5 %}a{% elif n > 3 %}b{% else %}c{% endif %}", "{% if n > 9 %}a{% elif n > 3 %}b{% else %}c{% endif %}", "{% if n > 9 %}a{% elif n > 8 %}b{% else %}c{% endif %}", "{% if missing %}a{% endif %}", "{% if missing.x %}a{% endif %}", "{% if not missing and t or missing %}a{% endif %}",
    "{% macro m(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, c=5) }} {{ m(b=3, a=0) }} {{ m() }}", "{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, z=4) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}",
    "{% macro f(x) %}{% if x > 0 %}{{ x }}{{ f(x - 1) }}{% endif %}{% endmacro %}{{ f(3) }}", "{% macro m() %}{{ n }}{{ q }}{% endmacro %}{% set q = 5 %}{{ m() }}", "{% macro m() %}[{{ caller() }}]{% endmacro %}{% call m() %}x{{ n }}{% endcall %}", "{% macro m(l) %}{% for x in l %}{{ caller(x, y=1) }}{% endfor %}{% endmacro %}{% call(v, y=2) m(l) %}<{{ v }}{{ y }}>{% endcall %}", "{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}", "{% macro m() %}a{% endmacro %}{{ m() | upper }}{{ m.name }}", "{{ m() }}{% macro m() %}{% endmacro %}",
    "{% macro m(x) %}{% set y = x %}{{ y }}{% endmacro %}{{ m(1) }}{{ y }}", "{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a }}", "{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q }}", "{% with n = 1, m = n %}{{ n }}{{ m }}{% endwith %}", "{% filter upper %}ab{{ n }}{% endfilter %}", "{% filter replace('a', 'b') | upper %}aab{% endfilter %}",
    "a {%- if t %} b {%- endif %} c", "a\n  {% if t %}\n  b\n  {% endif %}\nc\n", "a\n  {%- if t -%}\n  b\n  {%- endif -%}\nc\n", "a\n  {%+ if t +%}\n  b\n  {% endif %}\nc", "{{- n -}}  x  {{- n -}}", "  {{ n }}  \n  {{- n }}\n", "a {# c #}\n b\n {# d -#}\n c", "  {# lead #}x\n{#- y -#}\n z", "x\n\n\n", "\n{% if t %}\n\nx\n{% endif %}\n", "{% if t %}x{% endif %}\n\n{% if t %}y{% endif %}\n", "a\r\nb\rc{% if t %}\r\nd{% endif %}", "\t{% if t %}x{% endif %}\t\n", "x  {% if t %}y{% endif %}", "{{ n }}\n{{ n }}\n", "{%- for x in l %}\n  {{ x }}\n{%- endfor %}\n", "{% for x in l -%}\n  {{ x }}\n{% endfor -%}\n .",
    "{% raw %}{{ x }}{% y %}{% endraw %}", "a\n {% raw -%}\n {{ x }}\n {%- endraw %}\nb", "  {% raw %}\n x\n  {% endraw %}\nb", "{{ '{{' }}{{ '}}' }}{{ '{%' }}", "{ {{ n }} } {x} {%% %}", "{{ {'a': {'b': n}}['a']['b'] }}", "{{ {'a': {'b': 1}} }}", "{{ '%}' }}{% set x = '}}' %}{{ x }}", "{#{{ x }}#}y", "{{ n }}{#-#} a", "{% if t %}{{ 'a\nb' }}{% endif %}", "{{ [\n 1,\n 2\n] }}",
    "{% generation %}x{{ n }}{% endgeneration %}", "{% for x in l %}{%- generation -%} {{ x }} {%- endgeneration -%}{% endfor %}", "{% generation %}{% set q = 1 %}{% endgeneration %}{{ q }}", "{{ raise_exception('no') }}", "{% if n > 9 %}{{ raise_exception('no') }}{% endif %}ok", "{{ strftime_now('%d %b %Y|%Y-%m-%d %H:%M:%S|%A %B %-d|%j %y %p %I|%%') }}",
    "{{ range(100001) | length }}", "{{ l.append(1) }}", "{% set it = l|map('string') %}{{ it|first }}{{ it|join }}{{ it|join }}", "{% set it = l|map('string') %}{{ it|list }}{{ it|list }}",
    "{{ d.items()|list|first }}", "{{ (n, l)|list }}", "{{ n, l }}", "{{ n if n }}", "{{ l|length > 2 }}", "{{ l|length * 2 + 1 }}", "{{ -n|abs }}", "{{ (-n)|abs }}", "{{ n|string|length }}", "{{ not t|string }}", "{{ 'a' in d and 'z' not in d }}", "{{ n is number|string }}", "{{ l|sort|first ~ l|sort|last }}", "{{ 'x'.upper().lower()|upper }}", "{{ (l + [4])|length }}", "{{ [1] * 3 }}", "{{ 'ab' * 2 }}", "{{ 3 * 'x' }}", "{{ (1, 2) + (3,) }}", "{{ l + (1,) }}", "{{ s == s and 'y' or 'n' }}", "{{ '' or 'x' }}{{ 0 and 1 }}", "{{ dict(**d) == d }}", "{{ range(*[1, 4])|list }}", "{{ 'a'|replace(old='a', new='b') }}", "{{ print }}", "{{ loop }}",
    "{% if n %}", "{{ n", "{% for x in l %}", "{% endif %}", "{{ n | }}", "{{ (n }}", "{{ n ] }}", "{% foo %}", "{% set %}", "{{ 'a }}", "{{ n..x }}", "{{ n ! }}", "{% if %}x{% endif %}", "{{ }}", "{% macro 1() %}{% endmacro %}", "{% for x l %}{% endfor %}", "{{ f(a=1, 2) }}", "{% break %}", "{# x", "{% raw %}x", "{{ 1 2 }}", "{% else %}", "{% if t %}x{% endfor %}", "{% include 'x' %}", "{% extends 'x' %}", "{% do l.append(1) %}",
]


def pieces(text):
    """Expressions between " | " with blanks; filters written with a plain | have no blanks."""
    return [e for line in text.strip().splitlines() for e in line.split(" | ")]


def main():
    goldens = []
    for file in sorted(OUT.glob("*.jinja")):
        for name, messages in CONVERSATIONS.items():
            for i, options in enumerate(OPTIONS):
                goldens.append([file.stem, name, i, render(file.read_text(), messages, {**TOKENS, **options})])
    answers = []  # text within the generation tags
    source = (OUT / "generation.jinja").read_text()
    for name, messages in CONVERSATIONS.items():
        messages = [{k: v for k, v in m.items() if v is not None} for m in messages]
        texts, spans = chat.render_jinja_template([messages], chat_template=source, return_assistant_tokens_mask=True)
        answers.append([name, [texts[0][a:b] for a, b in spans[0]]])
    write("golden.json", {"tokens": TOKENS, "conversations": CONVERSATIONS, "options": OPTIONS, "answers": answers, "rows": goldens})
    sources = ["{{ " + e + " }}" for part in (EXPRESSIONS, METHODS, FILTERS, TESTS) for e in pieces(part)] + BLOCKS
    write("snippets.json", {"variables": VARS, "rows": [[s, render(s, [], VARS)] for s in sources]})


def write(name, value):
    (OUT / name).write_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("],[", "],\n[") + "\n")


main()
