#!/usr/bin/env python3
"""Writes tests/data/jinja/templates.jsonl: templates that use every feature of src/text/jinja/, rendered with
jinja2 as transformers does. A line {"vars": ..} gives the variables of the lines after it, a line
{"template": .., "out": ..} a template and its text; out null: jinja2 refuses. Needs jinja2.

    python3 tests/make/make_jinja_fixtures.py"""
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "../../scripts")]
import check_templates  # noqa: E402
import jinja_random  # noqa: E402
import jinja_reference as ref  # noqa: E402

# Expressions over the variables of jinja_random.py. Each is printed.
EXPRESSIONS = (r"""
1 + 2 * 3 - 4 // 3 % 2 | 2 ** 3 ** 2 | -2 ** 2 | 7 / 2 | -7 // 2 | -7 % 3 | 7.5 // -2 | 1e3 | 0.1 + 0.2 | """
r"""1e16 | 1.5e-7 | 100000.0
9223372036854775807 | 0x1F + 0b101 + 0o17 + 1_000 | true + 1 | 3 * 'ab' | [1] * 3 + [2] | 'a' 'b' "c" | """
r"""'a' ~ 1 ~ none ~ [1.0, 'x']
n < 4 < 5 | 1 < 3 > 2 == 2 | 'a' in 'cat' | 3 in l | 'a' in d | 'z' not in d | not x is defined | """
r"""not n == 3 and t
[] or 'x' | '' and 1 | undefd or 'y' | undefd and 1 | undefd is undefined | undefd.x | undefd + 1 | """
r"""undefd() | undefd|length
'yes' if n > 2 else 'no' | 'only' if z | ('only' if z) is undefined | messages[0].role | """
r"""messages[0]['content'] | messages[-1].content[0].text
l[0] | l[-1] | l[9] | l[1:] | l[::-1] | l[:-1] | l[5:] | s[1:4] | s[::-1] | u[0] | u[-2:] | u|length | """
r"""messages[1:]|length | d.b | d['items']
d.nothing | d['k y'] | d.get('q', 5) | d.get('q') | d.keys()|list | d.values()|list | d.items()|list | """
r"""mix | ds[1].c.d | (1,) | (1, 'a') | () | {}
{'a': 1, "b": [1, {'c': none}]} | dict(a=1, b='x') | range(3)|list | range(5, 1, -2)|list | """
r"""range(1, n)|list | namespace(a=1).a | true | True | none | None
'It\'s' | "x\ty\n\\z" | 'é\u00e9\x41\101' | ["it's", 'say "x"', '\n', 'é😀\u200b'] | 1.0 | 2.50 | -0.0 | """
r"""1e300 | 12345678901234567.0 | 0.00001
s.upper() | s.lower() | u.upper() | 'ß'.upper() | '  a b '.strip() | 'xxaxx'.strip('x') | """
r"""'\n\na'.lstrip('\n') | 'a..'.rstrip('.') | s.split() | s.split('o')
s.split('o', 1) | 'a,b,,c'.split(',')[-1] | s.rsplit(' ', 1) | s.startswith('He') | """
r"""s.startswith(('x', 'H')) | s.endswith('ld') | s.replace('l', 'L')
s.replace('l', 'L', 1) | '-'.join(ls) | s.find('o') | s.title() | s.capitalize() | """
r"""'{} and {}'.format(1, 'b') | '{1}{0}'.format('a', 'b')
'{x}-{y}'.format(x=1, y=none) | s.count('l') | ' 12 '|int + 1 | 'abc'|int(7) | '2.5'|float | 2.7|int | """
r"""3|float | '0x1f'|int(0, 16) | -3|abs | 2.567|round(2) | 2.5|round
ls|length | s|count | '  x '|trim | 'xxax'|trim('x') | 5|string + '!' | d|length | undefd|default('D') | """
r"""''|default('D', true) | none|default('D') | undefd|d(1)
ls|join(', ') | ds|join('-', attribute='a') | l|join | d|items|list | d|dictsort | """
r"""d|dictsort(by='value') | s|list | {'b': 1, 'A': 2, 'c': 3}|dictsort
messages|selectattr('role', 'equalto', 'user')|list | """
r"""messages|rejectattr('role', 'eq', 'user')|map(attribute='role')|list | ds|selectattr('a')|list|length
ds|map(attribute='a', default=0)|list | ls|map('upper')|list | mix|select('string')|list | """
r"""mix|reject('none')|list|length | [1, 2, 3]|select('odd')|list
s|lower | s|upper | s|replace('l', 'L') | s|replace('o', '0', 1) | 'a\nb\n\nc'|indent | """
r"""'a\nb'|indent(2, true) | 'a\n\nb'|indent(width=1, blank=true) | l|sort | ls|sort
ls|sort(reverse=true) | ls|sort(case_sensitive=true) | [3, 1, 3, 'a', 'A']|unique|list | l|min | l|max | """
r"""l|sum | ls|first | ls|last | []|first | l|reverse|list | s|reverse
s|title | s|capitalize | s|safe | d|tojson | messages|tojson | d|tojson(indent=2) | u|tojson | """
r"""u|tojson(ensure_ascii=true) | '</b>\x01"'|tojson | 1.0|tojson | 1e22|tojson
{'b': 1, 'a': [true, none]}|tojson(sort_keys=true) | {'a': [1, 2]}|tojson(separators=(',', ':')) | """
r"""[]|tojson(indent=2) | {1: 2, none: 3, true: 4}|tojson | undefd|tojson
n is defined | n is number and n is integer and not n is float | f is float | s is string | d is mapping | """
r"""l is iterable | n is iterable | s is sequence | d is sequence
t is boolean | t is true | n is true | no is none | z is false | 3 is odd | 3 is even | """
r"""9 is divisibleby 3 | 3 is in l | 'a' is in('abc') | n is eq 3 | n is ne(3)
n is lt 4 | n is ge 3 | s is equalto 'x' | s is sameas s | 'A' is upper | 'a' is lower | """
r"""range is callable | n is not none | none < 1 | 'a' + 1 | 1 // 0 | d.x.y
raise_exception('No ' ~ n) | strftime_now('%d %b %Y') | strftime_now('%Y-%m-%d %H:%M') | l|nothing | """
r"""l is nothing | 1 = 2 | (1 | [1, | 'x | a b | {{ 1 }} | 5|upper|length
l.index(2) | (1, 2) == [1, 2] | [1, 'a'] == [1.0, 'a'] | 1 == true | {'a': 1} == {'a': 1.0} | 'a' < 'b' | """
r"""[1, 2] < [1, 3] | l is sameas l | '%s-%d' % ('a', 3) | '5' | (l)(1)
""").replace("\n", " | ")

TEMPLATES = [
    "{% if n == 3 %}\nthree\n{% elif n %}\nmore\n{% else %}\nnone\n{% endif %}\nend\n\n",
    "a\n  {% if t %}  \n  b\n  {%- endif -%}  \n  c {{- n -}} d {%+ if t +%}\n x{% endif %}\n",
    "  {# gone #}\n x {#- strips -#} y\n{{ n }}\n",
    "{% raw %}{{ n }} {% if %}{% endraw %}|{%- raw -%} {# a #} {%- endraw -%} |",
    "{% for x in l %}{{ loop.index }}/{{ loop.index0 }}/{{ loop.revindex }}/{{ loop.revindex0 }}/"
    "{{ loop.length }}/{{ loop.first }}/{{ loop.last }}/{{ loop.previtem }}/{{ loop.nextitem }}/"
    "{{ loop.cycle('a', 'b') }};{% endfor %}",
    "{% for x in l if x > 1 %}{{ x }}{{ loop.length }}{% else %}none{% endfor %}{% for x in m %}{% else %}"
    "none{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }},{% endfor %}{% for a, (b, c) in [(1, (2, 3))] %}"
    "{{ a + b + c }}{% endfor %}",
    "{% for x in [1, 1, 2] %}{{ loop.changed(x) }}{% for y in x|string %}{{ loop.depth }}{{ loop.depth0 }}"
    "{% endfor %}{% endfor %}",
    "{% for x in range(9) %}{% if x == 2 %}{% continue %}{% endif %}{% if x > 4 %}{% break %}{% endif %}"
    "{{ x }}{% endfor %}",
    "{% set x = 1 %}{% for y in l %}{% set x = y %}{{ x }}{% endfor %}{{ x }}",
    "{% set ns = namespace(seen=false, n=0) %}{% for y in l %}{% set ns.n = ns.n + y %}"
    "{% set ns.seen = true %}{% endfor %}{{ ns.n }}{{ ns.seen }}",
    "{% set a, b = 1, [2] %}{% set c %}block {{ a }}{% endset %}{% set e | upper %}up{% endset %}{{ a }}"
    "{{ b }}{{ c }}{{ e }}",
    "{% set a.b = 1 %}", "{% set d.b = 1 %}", "{% set (a, b) = [1, 2] %}{{ a - b }}", "{% set a, b = [1] %}",
    "{% macro m(a, b=2, c='x' ~ b) %}[{{ a }}{{ b }}{{ c }}{{ varargs }}{{ kwargs }}]{% endmacro %}{{ m(1) }}"
    "{{ m(1, 3, 4, 5) }}{{ m(b=1, a=2, q=7) }}{{ m() }}",
    "{% macro down(n) %}{{ n }}{% if n %}{{ down(n - 1) }}{% endif %}{% endmacro %}{{ down(3) }}"
    "{{ down(n)|length }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}",
    "{% macro sees() %}{{ n }}{{ x }}{% endmacro %}{% for x in l %}{{ sees() }}{% endfor %}",
    "{%- macro type(p) -%}{% if p is mapping %}{ {%- for k, v in p|items %}{{ k }}:{{ type(v) }};"
    "{% endfor %}}{% elif p is string %}s{% else %}{{ p }}{% endif %}{%- endmacro -%}"
    "{{ type({'a': {'b': 'c'}, 'd': 1}) }}",
    "{% filter upper|replace('A', '4') %}banana {{ n }}{% endfilter %}",
    "{% generation %}answer {{ n }}{% endgeneration %}|{% generation %}{% set n = 5 %}{{ n }}"
    "{% endgeneration %}{{ n }}",
    "{% with a = 1, b = n %}{{ a + b }}{% set a = 5 %}{{ a }}{% endwith %}{{ a }}", "{% print n, s %}",
    "{{ loop }}{{ x }}",
    "{% for x in undefd %}a{% else %}b{% endfor %}", "{% for x in 5 %}{% endfor %}",
    "{% for x in l recursive %}{{ loop(x) }}{% endfor %}",
    "{% include 'x' %}", "{% import 'x' as y %}", "{% extends 'x' %}", "{% do l %}",
    "{% call m() %}{% endcall %}",
    "{% if n %}", "{% endif %}", "{% for x in l %}{% endif %}", "{{ n", "{% n %}", "{# n", "{% raw %}x",
    "{{ }}", "{% break %}",
    "{{ l|map('nothing')|list }}", "{% if false %}{{ 1|nothing }}{% endif %}",
    "{{ messages[0].role.upper().lower()[1:]|length }}",
    "{% for m in messages %}"
    "{{ '<' + m['role'] + '>' + (m.content if m.content is string else m.content[0]['text']) + '\\n' }}"
    "{% endfor %}",
    "{% set x = {'a': 1} %}{{ x }}{% set _ = x.update({'b': 2}) %}{{ x }}", "{{ ''.__class__ }}",
    "{{ d.__class__ }}", "{{ namespace(_a=1) }}",
    "{{ range(100001) }}", "{{ 'a' * 100 }}",
    "{% set x %}{% for i in l %}{{ i }},{% endfor %}{% endset %}{{ x[:-1] }}",
    "\r\na\r\n{% if t %}\r\nb{% endif %}\r",
    "{{ messages | map(attribute='content') | select('string') | join(' ') | trim }}{{- '' -}}\n",
    "{{\n n\n|\nstring }}", "{%if n%}{{n}}{%endif%}",
    "{{ 'a\nb' }}", "{% set l2 = l + [4] %}{{ l2 }}{{ l }}",
    "{{ '' if undefd else 'x' }}{{ undefd.a is defined }}", "{{ (undefd is defined and undefd.a) or 'no' }}",
]

# Chat templates in our own words, rendered with the conversations of check_templates.py.
CHATS = [
    """{%- if tools %}{{- '<tools>\\n' }}{% for tool in tools %}{{ tool | tojson }}{{ '\\n' }}{% endfor %}\
{{ '</tools>\\n' }}{% endif -%}
{% for m in messages %}
{%- if m.content is string %}{% set text = m.content %}{% elif m.content is iterable %}\
{% set text = m.content | selectattr('type', 'equalto', 'text') | map(attribute='text') | join('|') %}\
{% else %}{% set text = '' %}{% endif %}
{{- '[' ~ m.role ~ '] ' }}
{%- if m.role == 'assistant' and '</think>' in text %}{{ text.split('</think>')[-1].lstrip('\\n') }}\
{% else %}{{ text | trim }}{% endif %}
{%- if m.reasoning_content is defined and loop.last %}\
{{ '<why>' + m.reasoning_content.strip('\\n') + '</why>' }}{% endif %}
{%- for call in m.tool_calls or [] %}{{ '\\n-> ' + call.function.name }}\
({%- for k, v in (call.function.arguments | items if call.function.arguments is mapping else []) %}{{ k }}\
={{ v | tojson }}{{ ', ' if not loop.last }}{%- endfor %}){%- endfor %}
{{- eos_token if m.role == 'assistant' else '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '[assistant] ' }}\
{% if enable_thinking is defined and enable_thinking is false %}{{ '<why></why>' }}{% endif %}{% endif %}
""",
    """{{ bos_token }}{% set ns = namespace(last=-1, system='') %}
{%- if messages and messages[0].role == 'system' %}\
{% set ns.system = messages[0].content if messages[0].content is string else messages[0].content[0].text %}\
{% set rest = messages[1:] %}{% else %}{% set rest = messages %}{% endif %}
{%- for m in rest[::-1] %}{% set i = rest|length - 1 - loop.index0 %}\
{% if m.role == 'user' and ns.last < 0 %}{% set ns.last = i %}{% endif %}{% endfor %}
{%- for m in rest %}
    {%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}\
{{ raise_exception('Turns alternate, found ' + m.role + ' at ' + loop.index0|string) }}{% endif %}
    {%- if m.role == 'user' %}Q{{ loop.index }}\
{{ ' (' + ns.system + ')' if loop.index0 == ns.last and ns.system }}: {{ m.content }}
    {%- else %}{% generation %}A: {{ m.content }}{% endgeneration %}{% endif %}
{% endfor %}
{%- if documents %}{% for doc in documents %}{{ doc.title }}: {{ doc.text }};{% endfor %}{% endif %}
{%- set day = date_string if date_string is defined else strftime_now('%d %b %Y') %}
Today is {{ day }}.{{ '\\nA:' if add_generation_prompt }}
""",
]


def main():
    env = ref.environment()

    def put(f, template, variables):
        want, why = ref.reference(env, template, json.loads(json.dumps(variables)))
        f.write(json.dumps({"template": template, "out": want}, ensure_ascii=False) + "\n")
        if want is None and ("not found" in why):        # a fault of the maker
            print(f"{template!r}: {why}")
    with open("tests/data/jinja/templates.jsonl", "w", encoding="utf-8") as f:
        f.write(json.dumps({"vars": jinja_random.VARS}, ensure_ascii=False) + "\n")
        for e in EXPRESSIONS.split(" | "):
            put(f, "{{ " + e.strip() + " }}", jinja_random.VARS)
        for t in TEMPLATES:
            put(f, t, jinja_random.VARS)
        for case, variables in check_templates.conversations():
            conversation, way = case.split(", ")
            if way != "prompt" and conversation != "call and answer":
                continue
            f.write(json.dumps({"vars": variables}, ensure_ascii=False) + "\n")
            for t in CHATS:
                put(f, t, variables)


if __name__ == "__main__":
    main()
