"""How the pages of the mail catcher look. Every value is escaped where it is put in."""

from __future__ import annotations

from typing import Final

STYLE: Final = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; overflow-wrap: anywhere; } h2 { font-size: 1rem; margin-top: 2rem; }
table { width: 100%; border-collapse: collapse; }
th, td { text-align: left; vertical-align: top; padding: .35rem .8rem .35rem 0; border-bottom: 1px solid #8884; }
td { overflow-wrap: anywhere; } td.when { white-space: nowrap; font-variant-numeric: tabular-nums; }
tr.odd-one td { background: #e0a80022; }
pre, iframe { width: 100%; box-sizing: border-box; border: 1px solid #8884; border-radius: 4px; background: #8881; }
pre { padding: .8rem; white-space: pre-wrap; overflow-wrap: anywhere; }
iframe { height: 36rem; background: #fff; }
nav { margin: .8rem 0; } nav a { margin-right: 1rem; } table.facts th { width: 14rem; } .quiet { color: #777; }
"""

TEMPLATES: Final = {
    "layout": """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{% block title %}{% endblock %} · Posthouse sandbox</title>
<link rel="stylesheet" href="/style.css">
</head>
<body>
{% block main %}{% endblock %}
</body>
</html>
""",
    "list": """{% extends "layout" %}
{% block title %}Caught mail{% endblock %}
{% block main %}
<h1>Caught mail</h1>
<p>
{{ total }} accepted{% if duplicates %}, of them {{ duplicates }} duplicates{% endif %}. Nothing leaves the sandbox.
</p>
{% if messages %}
<table>
<thead><tr><th>Accepted (UTC)</th><th>To</th><th>Subject</th></tr></thead>
<tbody>
{% for message in messages %}
<tr>
<td class="when">{{ message.at|moment }}</td>
<td>{{ message.recipients|join(", ") }}</td>
<td><a href="/messages/{{ message.message_id|urlencode }}">{{ message.subject or "(no subject)" }}</a></td>
</tr>
{% endfor %}
</tbody>
</table>
{% else %}
<p class="quiet">No message yet. Send one to <code>/v1/send</code>.</p>
{% endif %}
<nav>
{% if page > 1 %}<a href="/?page={{ page - 1 }}">Newer</a>{% endif %}
{% if page < pages %}<a href="/?page={{ page + 1 }}">Older</a>{% endif %}
</nav>
{% endblock %}
""",
    "message": """{% extends "layout" %}
{% block title %}{{ message.subject or "(no subject)" }}{% endblock %}
{% block main %}
<nav><a href="/">All mail</a></nav>
<h1>{{ message.subject or "(no subject)" }}</h1>
<table class="facts">
{% for name, value in facts %}
<tr{% if name == "Accepted with this key" %} class="odd-one"{% endif %}><th>{{ name }}</th><td>{{ value }}</td></tr>
{% endfor %}
</table>
{% if body is none %}
<p class="quiet">Its content is no longer kept.</p>
{% else %}
{% set here = "/messages/" ~ message.message_id|urlencode %}
{% if message.raw is not none %}
<nav><a href="{{ here }}/source">Source</a><a href="{{ here }}/source.eml">Download as .eml</a></nav>
{% endif %}
{% if files %}
<h2>Attachments</h2>
<table>
<thead><tr><th>Name</th><th>Type</th><th>Size</th><th>Shown by the HTML as</th></tr></thead>
<tbody>
{% for file in files %}
<tr>
<td><a href="{{ file.url }}" download>{{ file.filename or "(no name)" }}</a></td>
<td>{{ file.content_type }}</td>
<td>{{ file.size|size }}</td>
<td>{% if file.content_id %}cid:{{ file.content_id }}{% endif %}</td>
</tr>
{% endfor %}
</tbody>
</table>
{% endif %}
{% if body.get("html") %}
<h2>HTML</h2>
<iframe sandbox="" title="HTML body" src="{{ here }}/html"></iframe>
{% endif %}
{% if body.get("text") %}
<h2>Text</h2>
<pre>{{ body["text"] }}</pre>
{% endif %}
{% for alternative in body.get("alternatives") or [] %}
<h2>{{ alternative.content_type }}</h2>
<pre>{{ alternative.content }}</pre>
{% endfor %}
{% endif %}
{% endblock %}
""",
}
