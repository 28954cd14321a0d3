"""A zero byte in every text that the API takes. JSON can say it; no name, path or argument has one,
and PostgreSQL's text refuses it."""
import copy


def resolved(document, schema):
    while "$ref" in schema:
        node = document
        for part in schema["$ref"].lstrip("#/").split("/"):
            node = node[part]
        schema = node
    if "allOf" in schema:
        merged = {"type": "object", "properties": {}}
        for part in schema["allOf"]:
            merged["properties"].update(resolved(document, part).get("properties", {}))
        return merged
    for choice in ("oneOf", "anyOf"):
        if choice in schema:
            return resolved(document, schema[choice][0])
    return schema


def texts(document, schema, depth=0):
    """Values of this schema, each with the zero byte in another place: [(path, value)]."""
    schema = resolved(document, schema)
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = kind[0]
    if depth > 5:
        return
    if kind == "string":
        yield "", "a\0b"
    elif kind == "array":
        for path, value in texts(document, schema.get("items", {}), depth + 1):
            yield "[0]" + path, [value]
    elif kind == "object" or "properties" in schema:
        for name, member in schema.get("properties", {}).items():
            for path, value in texts(document, member, depth + 1):
                yield f".{name}{path}", {name: value}
        more = schema.get("additionalProperties")
        if isinstance(more, dict):
            yield ".(name)", {"a\0b": "x"}
            for path, value in texts(document, more, depth + 1):
                yield ".x" + path, {"x": value}


def check(case, rig):
    """Each is refused, and says where it was. Returns how many were sent."""
    document = rig.api("GET", "/v1/openapi.json").json
    base = {"/v1/jobs": rig.spec("true")}
    sent = named = 0
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            content = (
                operation.get("requestBody", {}).get("content", {}).get("application/json")
                if isinstance(operation, dict)
                else None
            )
            if not content:
                continue
            target = path
            for part in ("{id}", "{job}", "{task}"):
                target = target.replace(part, "1")
            while "{" in target:
                target = target[: target.index("{")] + "default" + target[target.index("}") + 1 :]
            for where, value in texts(document, content["schema"]):
                body = copy.deepcopy(base.get(path, {}))
                merge(body, value)
                answer = rig.api(method.upper(), target, body)
                sent += 1
                case.assertTrue(400 <= answer.status < 500, (method, target, where, answer))
                named += answer.status == 400 and "zero byte" in answer.json.get("detail", "")
    # Where the path names nothing that exists, that may be said first.
    case.assertGreater(named, sent // 2, (named, sent))
    return sent


def merge(into, value):
    for key, member in value.items():
        if isinstance(member, dict) and isinstance(into.get(key), dict):
            merge(into[key], member)
        else:
            into[key] = member
