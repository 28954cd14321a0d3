"""C++ as tidy reads it: text without comments and strings, the functions of a file with their lines,
and statements joined by the comma operator. It reads formatted code (clang-format), not any C++."""
import re

STRING = re.compile(
    r'R"(?P<tag>[^()\s]{0,16})\(.*?\)(?P=tag)"'
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'(?:\\.|[^'\\\n])'|'\\[^']{1,8}'"
    r"|//[^\n]*|/\*.*?\*/",
    re.S,
)


def blank_comments_and_strings(text):
    """The same lines, with the inside of comments and literals gone."""

    def blank(match):
        found = match.group(0)
        newlines = "\n" * found.count("\n")
        if found.startswith(("//", "/*")):
            return newlines
        return '""' + newlines if '"' in found[:2] else "' '"

    return STRING.sub(blank, text)


NOT_FUNCTION = re.compile(
    r"^(?:template\s*<.*>\s*)?(?:inline\s+)?(?:namespace|struct|class|enum|union|extern)\b"
)


def functions(code):
    """(name, first line, last line) of each function body; lambdas count as part of theirs."""
    code = re.sub(r"^[ \t]*#.*?(?<!\\)$", "", code, flags=re.M)
    stack, found, line, head, head_line = [], [], 1, "", 1
    for char in code:
        if char == "\n":
            line += 1
        if char == "{":
            inside = any(kind for kind, _, _ in stack)
            is_function = not inside and ")" in head and not NOT_FUNCTION.match(head.strip())
            stack.append((is_function, head.strip(), head_line))
            head = ""
        elif char == "}":
            if stack:
                is_function, signature, first = stack.pop()
                if is_function:
                    name = re.search(r"([\w~:]+|operator\S+)\s*\(", signature)
                    found.append((name.group(1) if name else "?", first, line))
            head = ""
        elif char == ";":
            head = ""
        else:
            if not head.strip() and not char.isspace():
                head, head_line = "", line
            head += char
    return found


ASSIGNMENT = re.compile(
    r"^(?:[\w.:*]|->|\[[^\]]*\]|\(\))+\s*(?:[-+*/|&]?=[^=]|\+\+|--)|^(?:\+\+|--|return\b)"
)


def comma_statements(code):
    """The lines of statements such as `a = 1, b = 2;`."""
    found, line = [], 1
    depth, start, text = 0, 1, ""
    for char in code:
        if char == "\n":
            line += 1
        if char in "([":
            depth += 1
        elif char in ")]":
            depth = max(0, depth - 1)
        if char in "{};" and depth == 0:
            if char == ";" and "," in text and ASSIGNMENT.match(text.strip()):
                found.append(start)
            text = ""
            continue
        if depth == 0:
            if not text.strip():
                start = line
            text += "<" if char in "([" else char
    return found
