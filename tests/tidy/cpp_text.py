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


# What a statement may stand behind: `if ()`, `else`, `for ()`, `case 1:` and the like.
BEFORE = re.compile(
    r"\s*(?:(?:if(?: constexpr)?|for|while|switch) ?\(\)|else\b|do\b|case\b[^:]*(?:::[^:]*)*:(?!:)"
    r"|\w+:(?!:)|\[\])\s*"
)
# What is no declaration: it changes or calls something, or leaves with a value.
EXPRESSION = re.compile(
    r"[*(]*[\w:]+(?:(?:\.|->|::)\s*~?\w+|\(\)|\[\]|\{\})*\)*\s*(?:[-+*/%|&^<>]*=[^=]|\+\+|--|<<|>>|,)"
    r"|\+\+|--|(?:return|throw|delete)\b|\(\)|[\"']"
)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.M)


def without_template_arguments(text):
    while text != (fewer := re.sub(r"(?<=\w)<[^<>;]*>", "", text)):
        text = fewer
    return text


def comma_statement(text):
    """Where the statement begins that the comma operator joins; None in any other text. All
    brackets of the text are empty."""
    begin = 0
    while before := BEFORE.match(text, begin):
        begin = before.end()
    begin += len(text[begin:]) - len(text[begin:].lstrip())
    rest = without_template_arguments(text[begin:])
    return begin if "," in rest and EXPRESSION.match(rest) else None


def is_value(after):
    """Whether `}` closes a value, so that its statement goes on: not a block."""
    between, char = re.match(r"( *(?:\n\s*)?)(.?)", after, re.S).groups()
    return char in tuple(".,;)?:") if "\n" in between else not char.isalpha()


def comma_statements(code):
    """The lines of statements such as `a = 1, b = 2;`, wherever they stand."""
    code = DIRECTIVE.sub(lambda found: "\n" * found.group(0).count("\n"), code)
    found, outer = [], []
    text, lines, depth, line = "", [], 0, 1  # the statement outside brackets, and its lines
    for at, char in enumerate(code):
        line += char == "\n"
        if char == "{":
            outer.append((text, lines, depth))
            text, lines, depth = "", [], 0
        elif char == "}" and outer:
            text, lines, depth = outer.pop()
            if depth == 0:
                goes_on = is_value(code[at + 1 : at + 200])
                text, lines = (text + "{}", [*lines, line, line]) if goes_on else ("", [])
        elif char == ";" and depth == 0:
            if (begin := comma_statement(text)) is not None:
                found.append(lines[begin])
            text, lines = "", []
        else:
            depth -= char in ")]" and depth > 0
            if depth == 0:
                text += char
                lines.append(line)
            depth += char in "(["
    return sorted(found)
