"""Renders the part of Helm's template language that our chart uses: values, if, else if, else, and.

It is no Helm. It fails on everything else, so that a template it renders is one that Helm renders
to the same text.
"""
import os
import re

import yaml

HERE = os.path.dirname(os.path.abspath(__file__))
CHART = os.path.join(HERE, "../../packaging/helm/billow")
TAG = re.compile(r"(?:\n?[ \t]*\{\{-|\{\{)\s*(.*?)\s*\}\}")


def value_of(path, context):
    if not re.fullmatch(r"(\.\w+)+", path):
        raise ValueError(f"not rendered here: {path}")
    for part in path[1:].split("."):
        context = context[part]
    return context


def is_true(condition, context):
    words = condition.split()
    if words[0] == "and":
        return all(value_of(word, context) for word in words[1:])
    if len(words) != 1:
        raise ValueError(f"not rendered here: {condition}")
    return bool(value_of(words[0], context))


def render(text, context):
    out, at = [], 0
    branches = []  # for each open `if`: [this branch is rendered, one was before]
    for tag in TAG.finditer(text):
        if all(shown for shown, _ in branches):
            out.append(text[at : tag.start()])
        at = tag.end()
        words = tag[1]
        if words.startswith("if "):
            shown = is_true(words[3:], context)
            branches.append([shown, shown])
        elif words.startswith("else"):
            condition = words[4:].strip().removeprefix("if ").strip()
            shown = not branches[-1][1] and (not condition or is_true(condition, context))
            branches[-1] = [shown, branches[-1][1] or shown]
        elif words == "end":
            branches.pop()
        elif all(shown for shown, _ in branches):
            out.append(str(value_of(words, context)))
    if branches:
        raise ValueError("an `if` without its `end`")
    return "".join(out) + text[at:]


def render_chart(namespace, **values):
    """All documents of the chart as one text."""
    with open(os.path.join(CHART, "values.yaml"), encoding="utf-8") as f:
        context = {"Values": yaml.safe_load(f), "Release": {"Namespace": namespace}}
    unknown = set(values) - set(context["Values"])
    if unknown:
        raise ValueError(f"the chart has no value {unknown}")
    context["Values"].update(values)
    texts = []
    for name in sorted(os.listdir(os.path.join(CHART, "templates"))):
        with open(os.path.join(CHART, "templates", name), encoding="utf-8") as f:
            texts.append(render(f.read(), context))
    return "\n---\n".join(text for text in texts if text.strip())
