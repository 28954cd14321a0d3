"""As much of JSON Schema 2020-12 as Billow's OpenAPI file uses: enough to hold real answers against it.

A keyword that is not known here is an error, so that a schema cannot promise what nobody checks.
"""
import re

ANNOTATIONS = {
    "description",
    "title",
    "example",
    "examples",
    "default",
    "deprecated",
    "readOnly",
    "writeOnly",
    "format",
    "$comment",
    "contentEncoding",
    "contentMediaType",
}
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}


class Schemas:
    def __init__(self, document):
        self.document = document

    def resolve(self, node):
        while "$ref" in node:
            target = self.document
            for part in node["$ref"].removeprefix("#/").split("/"):
                target = target[part.replace("~1", "/").replace("~0", "~")]
            node = target
        return node

    def problems(self, schema, value, at="$"):
        """What is wrong with `value`, as a list of sentences."""
        if schema is True or schema == {}:
            return []
        if schema is False:
            return [f"{at}: must not be there"]
        found = []
        if "$ref" in schema:
            found += self.problems(self.resolve(schema), value, at)
        for keyword, argument in schema.items():
            if keyword in ANNOTATIONS or keyword == "$ref":
                continue
            check = getattr(self, "check_" + keyword, None)
            if check is None:
                raise AssertionError(f'{at}: the validator does not know "{keyword}"')
            found += check(argument, value, at, schema)
        return found

    def check_type(self, wanted, value, at, _):
        kinds = wanted if isinstance(wanted, list) else [wanted]
        for kind in kinds:
            if kind == "integer" and isinstance(value, int) and not isinstance(value, bool):
                return []
            if kind == "number" and isinstance(value, (int, float)) and not isinstance(value, bool):
                return []
            if kind in TYPES and isinstance(value, TYPES[kind]):
                return []
        return [f"{at}: {value!r} is not {' or '.join(kinds)}"]

    def check_properties(self, properties, value, at, _):
        if not isinstance(value, dict):
            return []
        return [
            p
            for name, schema in properties.items()
            if name in value
            for p in self.problems(schema, value[name], f"{at}.{name}")
        ]

    def check_required(self, names, value, at, _):
        return (
            [f"{at}: lacks {name}" for name in names if name not in value]
            if isinstance(value, dict)
            else []
        )

    def check_additionalProperties(self, schema, value, at, whole):
        if not isinstance(value, dict):
            return []
        extra = [name for name in value if name not in whole.get("properties", {})]
        return [p for name in extra for p in self.problems(schema, value[name], f"{at}.{name}")]

    def check_propertyNames(self, schema, value, at, _):
        return (
            [p for name in value for p in self.problems(schema, name, f"{at}.{name} (name)")]
            if isinstance(value, dict)
            else []
        )

    def check_items(self, schema, value, at, _):
        return (
            [p for i, item in enumerate(value) for p in self.problems(schema, item, f"{at}[{i}]")]
            if isinstance(value, list)
            else []
        )

    def check_enum(self, allowed, value, at, _):
        return [] if value in allowed else [f"{at}: {value!r} is none of {allowed}"]

    def check_const(self, wanted, value, at, _):
        return [] if value == wanted else [f"{at}: {value!r} is not {wanted!r}"]

    def check_pattern(self, pattern, value, at, _):
        return (
            []
            if not isinstance(value, str) or re.search(pattern, value)
            else [f"{at}: {value!r} does not match {pattern}"]
        )

    def check_minimum(self, least, value, at, _):
        return (
            [f"{at}: {value} < {least}"]
            if isinstance(value, (int, float)) and value < least
            else []
        )

    def check_maximum(self, most, value, at, _):
        return (
            [f"{at}: {value} > {most}"] if isinstance(value, (int, float)) and value > most else []
        )

    def check_exclusiveMinimum(self, bound, value, at, _):
        return (
            [f"{at}: {value} <= {bound}"]
            if isinstance(value, (int, float)) and value <= bound
            else []
        )

    def check_minLength(self, least, value, at, _):
        return (
            [f"{at}: shorter than {least}"] if isinstance(value, str) and len(value) < least else []
        )

    def check_maxLength(self, most, value, at, _):
        return [f"{at}: longer than {most}"] if isinstance(value, str) and len(value) > most else []

    def check_minItems(self, least, value, at, _):
        return (
            [f"{at}: fewer than {least} items"]
            if isinstance(value, list) and len(value) < least
            else []
        )

    def check_maxItems(self, most, value, at, _):
        return (
            [f"{at}: more than {most} items"]
            if isinstance(value, list) and len(value) > most
            else []
        )

    def check_allOf(self, schemas, value, at, _):
        return [p for schema in schemas for p in self.problems(schema, value, at)]

    def check_anyOf(self, schemas, value, at, _):
        every = [self.problems(schema, value, at) for schema in schemas]
        return [] if any(not p for p in every) else [f"{at}: fits none of {len(schemas)}: {every}"]

    def check_oneOf(self, schemas, value, at, _):
        fits = sum(not self.problems(schema, value, at) for schema in schemas)
        return [] if fits == 1 else [f"{at}: fits {fits} of {len(schemas)}, not one"]
