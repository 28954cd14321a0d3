"""What the dashboard's run form says is the same in Python is the same: each line of
tests/web/run_forms.json is given to the package itself."""
import json
import os
import unittest

from sdk_rig import ROOT, billow  # noqa: F401
from billow import _jobs, _options


def without_defaults(spec):
    """The request as the head keeps it: without empty members and defaults that the package sends."""
    out = {}
    for name, value in spec.items():
        if isinstance(value, dict) and name not in ("labels", "node_labels"):
            value = without_defaults(value)
        if isinstance(value, list):
            value = [without_defaults(v) if isinstance(v, dict) else v for v in value]
        usual = {"step": 1, "kind": "ok", "read_only": False}.get(name)
        if value not in ({}, [], "", None) and value != usual:
            out[name] = value
    return out


class Forms(unittest.TestCase):
    def test_each_form_is_the_same_job(self):
        with open(os.path.join(ROOT, "tests/web/run_forms.json"), encoding="utf-8") as f:
            forms = json.load(f)
        self.assertGreaterEqual(len(forms), 45)
        for path, form in forms.items():
            seen = []

            class Package:
                """Stands for the module, so that nothing is submitted."""

                @staticmethod
                def submit(command, **options):
                    seen.append((command, options))

            exec(  # the text is the committed file's
                form["python"].replace("import billow", ""), {"billow": Package}
            )
            ((command, options),) = seen
            spec = _options.spec_of(_options.command_of(command), options)
            if options.get("after"):
                spec["after"] = _jobs._dependencies(None, options["after"])
            with self.subTest(path):
                self.assertEqual(without_defaults(spec), without_defaults(form["spec"]))


if __name__ == "__main__":
    unittest.main()
