#!/usr/bin/env python3
"""Writes the templates of the Helm chart from `billow install kubernetes`, so that both are the same.

  packaging/helm/generate.py build/bin/billow [FOLDER]

A value of the chart stands where the program's option would: it is given as that option.
"""
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
VALUES = (
    *("--namespace", "{{ .Release.Namespace }}", "--image", "{{ .Values.image }}"),
    *("--storage", "{{ .Values.storage }}"),
)


def documents(billow, *options):
    """(kind, name) -> text of what the program prints."""
    out = subprocess.run(
        [billow, "install", "kubernetes", *VALUES, *options],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found = {}
    for text in out.split("---\n")[1:]:
        lines = text.splitlines()
        kind = next(l for l in lines if l.startswith("kind: "))[6:]
        name = next(l for l in lines if l.startswith("  name: "))[8:]
        found[kind, name] = text
    return found


def templates(billow):
    plain = documents(billow)
    more = documents(
        *(billow, "--host", "{{ .Values.host }}", "--pod-monitor", "--daemonset", "--postgres"),
        *("--files-class", "{{ .Values.filesClass }}"),
    )
    head = ("StatefulSet", "billow-head")
    host = ("--host", "{{ .Values.host }}")
    shared = ("--postgres", "--files-class", "{{ .Values.filesClass }}")
    head_text = ""
    for condition, options in (
        ("if and .Values.postgres .Values.filesClass .Values.host", (*shared, *host)),
        ("else if and .Values.postgres .Values.filesClass", shared),
        ("else if and .Values.postgres .Values.host", ("--postgres", *host)),
        ("else if .Values.postgres", ("--postgres",)),
        ("else if .Values.host", host),
        ("else", ()),
    ):
        head_text += f"{{{{- {condition} }}}}\n" + documents(billow, *options)[head]
    head_text += "{{- end }}\n"
    files = {"head.yaml": head_text}
    rest = [text for key, text in plain.items() if key != head and key[0] != "Namespace"]
    files["cluster.yaml"] = "---\n".join(rest)
    for name, kind, condition in (
        ("ingress.yaml", "Ingress", ".Values.host"),
        ("pod-monitor.yaml", "PodMonitor", ".Values.podMonitor"),
        ("daemon-set.yaml", "DaemonSet", ".Values.daemonSet"),
        ("shared.yaml", "PersistentVolumeClaim", "and .Values.postgres .Values.filesClass"),
    ):
        text = next(text for key, text in more.items() if key[0] == kind)
        files[name] = f"{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n"
    return files


if __name__ == "__main__":
    folder = sys.argv[2] if len(sys.argv) > 2 else os.path.join(HERE, "billow", "templates")
    os.makedirs(folder, exist_ok=True)
    for name, text in templates(sys.argv[1]).items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
            f.write(text)
