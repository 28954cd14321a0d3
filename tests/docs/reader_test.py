"""The reader of the pages itself: what it accepts, and what it must not let pass."""
import unittest

import pages
from shell import commands_of


class Reader(unittest.TestCase):
    def page(self, text):
        return pages.read_page(text, "p.md")

    def test_reads_blocks_with_their_marks(self):
        page = self.page(
            "# A\n<!-- head: none -->\n```sh\ntrue\n```\n<!-- not run: needs a cluster"
            " -->\n```sh\nx\n```\n<!-- file: a.toml -->\n```toml\n[job]\n```\n<!-- run: mkdir x"
            " -->\n"
        )
        self.assertEqual([], page.mistakes)
        self.assertEqual("none", page.head)
        self.assertEqual(["", "needs a cluster", ""], [b.reason for b in page.blocks])
        self.assertEqual("a.toml", page.blocks[2].file)
        self.assertEqual("mkdir x", page.parts[-1].text)

    def test_a_page_may_give_one_reason_for_all_its_blocks(self):
        page = self.page("<!-- page not run: needs a cloud account -->\n```\nls\n```\n")
        self.assertEqual(("needs a cloud account", []), (page.reason, page.mistakes))

    def test_finds_mistakes(self):
        for text, message in (
            ("```\nls\n```\n", "no language"),
            ("```shell\nls\n```\n", "unknown language"),
            ("```sh\nls\n", "no end"),
            ("<!-- not run: -->\n```sh\nls\n```\n", "says nothing"),
            ("<!-- not run: why -->\ntext\n```sh\nls\n```\n", "above no block"),
            ("<!-- not run: why -->\n```toml\n[job]\n```\n", "is never run"),
        ):
            mistakes = self.page(text).mistakes
            self.assertTrue(any(message in m for m in mistakes), (text, mistakes))

    def test_output_is_compared_loosely(self):
        for shown, printed, same in (
            ("job 1 running", "job 1 running", True),
            ("job 1 running", "job 2 running", False),
            ("job 1 … $0.02", "job 1 succeeded · 3s · $0.0000005", True),
            ("a   b", "a b", True),
            ("in 4 min, at 14:02", "in 9 s, at 09:59", True),
            ("first\n…\nlast", "first\nx\ny\nlast", True),
            ("first\n…\nlast", "first\nlast", True),
            ("first\n…\nlast", "first\nx", False),
            ("only", "only\nmore", False),
            ("No GPU is free.", "No GPU is free. Job 3 ends soon.", True),
            ("No GPU is free.", "No GPU is free.x", False),
            ("http://127.0.0.1:7070 (…)", "http://127.0.0.1:3333 (data)", True),
        ):
            self.assertEqual(
                same, pages.matches(shown.split("\n"), printed.split("\n")), (shown, printed)
            )

    def test_console_blocks_have_commands_and_output(self):
        steps = pages.console_steps("$ a\nx\ny\n\n$ b \\\n> c\nz\n$ d\n")
        self.assertEqual([("a", ["x", "y"]), ("b \\\nc", ["z"]), ("d", [])], steps)
        with self.assertRaises(ValueError):
            pages.console_steps("output\n$ a\n")

    def test_commands_may_span_lines(self):
        text = "a b # c\n# only a comment\n\nfor x in 1 2; do\n  echo $x\ndone\ncat <<E\nhi\nE\n"
        self.assertEqual(
            ["a b # c", "for x in 1 2; do\n  echo $x\ndone", "cat <<E\nhi\nE"], commands_of(text)
        )
        with self.assertRaises(ValueError):
            commands_of("for x in 1; do\n")


if __name__ == "__main__":
    unittest.main()
