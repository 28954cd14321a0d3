"""What people who know Modal do first: several programs with one function, edited files, scripts
and modules, notebooks that redefine things, output, interrupts."""
import os
import pty
import select
import signal
import subprocess
import sys
import textwrap
import unittest
import urllib.error
import urllib.request

from rig import poll
from sdk_rig import SOURCE, SdkTest, billow


class ProjectTest(SdkTest):
    def write(self, path, text):
        path = self.rig.file(path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(textwrap.dedent(text))
        return path

    def environment(self, **more):
        return {**self.rig.environment, "PYTHONPATH": SOURCE, **more}

    def start(self, *args, **more):
        return subprocess.Popen(
            [sys.executable, *map(str, args)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.rig.files,
            env=self.environment(**more),
        )

    def ok(self, *args, cwd=None, **more):
        done = subprocess.run(
            [sys.executable, *map(str, args)],
            capture_output=True,
            text=True,
            timeout=120,
            cwd=cwd or self.rig.files,
            env=self.environment(**more),
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done


class Revisions(ProjectTest):
    """Which changes make a revision, and whose workers it replaces."""

    def test_other_imports_of_a_caller_change_nothing(self):
        self.write("svc/__init__.py", "")
        self.write(
            "svc/add.py",
            """
            import billow
            from svc import tools

            @billow.function(max=1)
            def add(x):
                from svc import late
                return tools.plus(x) + late.ZERO
            """,
        )
        self.write("svc/tools.py", "def plus(x): return x + 1\n")
        self.write("svc/late.py", "ZERO = 0\n")
        self.write("svc/other.py", "X = 1\n")
        self.write("unrelated.py", "X = 1\n")
        show = "print(add.add.remote(1), add.add.info['revision'])"
        first = self.ok("-c", f"from svc import add\n{show}")
        self.assertEqual(first.stdout, "2 1\n", "a module that only the function imports is sent")
        second = self.ok("-c", f"import unrelated, svc.other\nfrom svc import add\n{show}")
        self.assertEqual(second.stdout, "2 1\n", "the same revision")
        self.write("svc/tools.py", "def plus(x): return x + 10\n")
        third = self.ok("-c", f"from svc import add\n{show}")
        self.assertEqual(third.stdout, "11 2\n", "a module that it needs has changed")

    def test_included_files_and_the_interpreter_count(self):
        program = """
            import billow, sys
            @billow.function(max=1, include=["settings.txt"], python=sys.argv[1])
            def read():
                return open("settings.txt").read().strip()
            print(read.remote(), read.info["revision"])
            """
        path = self.write("reader.py", program)
        self.write("settings.txt", "one\n")
        self.assertEqual(self.ok(path, sys.executable).stdout, "one 1\n")
        self.write("settings.txt", "two\n")
        self.assertEqual(self.ok(path, sys.executable).stdout, "two 2\n")
        other = self.rig.script(f'exec {sys.executable} "$@"\n', "own-python")
        self.assertEqual(self.ok(path, other).stdout, "two 3\n")

    def test_projects_with_equal_names_are_apart(self):
        for name in ("a", "b"):
            self.write(
                f"{name}/utils.py",
                f"""
                import billow
                @billow.function(max=1)
                def who(): return "project {name}"
                """,
            )
        names = set()
        for name in ("a", "b", "a"):
            done = self.ok(
                "-c", "import utils; print(utils.who.remote(), utils.who.name,"
                " utils.who.info['revision'])", cwd=self.rig.file(name),
            )  # fmt: skip
            said, endpoint, revision = done.stdout.rsplit(" ", 2)
            self.assertEqual((said, revision), (f"project {name}", "1\n"))
            names.add(endpoint)
        self.assertEqual(len(names), 2)

    def test_a_map_outlives_its_replacement(self):
        program = """
            import sys, time, billow
            VERSION = sys.argv[1]
            @billow.function(max=1, name="shared")
            def version(i):
                time.sleep(0.02)
                return VERSION
            if VERSION == "old":
                results = version.map(range(600))
                said = {next(results)}
                print("began", flush=True)
                sys.stdin.readline()
                said.update(results)
                print(said, version.name)
            else:
                print(version.remote(0), version.name)
            """
        path = self.write("versions.py", program)
        old = subprocess.Popen(
            [sys.executable, path, "old"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, cwd=self.rig.files, env=self.environment(),
        )  # fmt: skip
        self.assertEqual(old.stdout.readline(), "began\n")
        self.assertEqual(self.ok(path, "new").stdout, "new shared\n")
        out, err = old.communicate("go on\n", timeout=120)
        self.assertEqual(old.returncode, 0, err)
        self.assertRegex(out, r"^\{'old'\} shared-[0-9a-f]{8}\n$")
        self.assertIn('another process has deployed "shared"', err)
        self.assertEqual(self.ok(path, "new").stdout, "new shared\n")

    def test_deploying_a_file_is_deploying_its_module(self):
        self.write(
            "model.py",
            """
            import billow
            @billow.function(max=1)
            def predict(x): return 2 * x
            @billow.cls(max=1)
            class Net:
                @billow.method
                def run(self, x): return x
            @billow.cls(max=1)
            class Sized:
                def __init__(self, width): self.width = width
                @billow.method
                def run(self, x): return x
            """,
        )
        done = self.ok("-m", "billow", "deploy", "model.py")
        lines = dict(each.split(" ") for each in done.stdout.splitlines())
        self.assertEqual(set(lines), {"predict", "Net"})
        url = self.ok("-c", "import model; print(model.predict.deploy())").stdout.strip()
        self.assertEqual(lines["predict"], url)
        self.assertIn("revision", self.client.endpoint(url.rstrip("/").rsplit("/", 1)[1]))
        wrong = self.python("-m", "billow", "deploy", "model.py", "predit")
        self.assertEqual(wrong.returncode, 1)
        self.assertIn("it has predict, Net", wrong.stderr)
        self.assertEqual(self.python("-m", "billow", "deploy", "none.py").returncode, 1)

    def test_the_cost_of_nothing_is_an_error(self):
        @billow.function(max=1)
        def unused():
            return 1

        with self.assertRaises(billow.NotFound):
            unused.cost


CELLS = r"""
from IPython.terminal.interactiveshell import TerminalInteractiveShell
shell = TerminalInteractiveShell.instance(simple_prompt=True)
def cell(text):
    done = shell.run_cell(text, store_history=True)
    assert done.success, done
    return done.result
cell("import billow\nscale = 1\ndef helper(x): return x * scale")
cell("@billow.function(max=1)\ndef f(x): return helper(x)")
print(cell("f.remote(10)"), cell("f.info['revision']"))
cell("def helper(x): return -x * scale")
print(cell("f.remote(10)"), cell("f.info['revision']"))
cell("scale = 100")
print(cell("f(10), f.remote(10), f.remote(10)"), cell("f.info['revision']"))

cell("%load_ext billow")
cell("w, n, same = [1, 2], 5, {'a': 1}")
before = shell.user_ns["same"]
cell("%%billow\nw.append(n)\nsame['a']")
print(shell.user_ns["w"], shell.user_ns["same"] is before)
done = shell.run_cell("%%billow\n!echo hi")
print(type(done.error_in_exec).__name__, done.error_in_exec)
"""


class Redefined(ProjectTest):
    def test_cells_that_redefine_and_change(self):
        try:
            import IPython  # noqa: F401
        except ImportError:
            self.skipTest("IPython is missing: apt install ipython3")
        path = self.write("cells.py", CELLS)
        done = self.ok(path, IPYTHONDIR=os.path.join(self.rig.root, "ipython"))
        said = done.stdout
        for each in ("10 1\n", "-10 2\n", "(-1000, -1000, -1000) 3\n", "[1, 2, 5] True\n"):
            self.assertIn(each, said, done)
        self.assertIn("use subprocess.run", said)


@billow.function(max=1)
def lazy(n):
    return (i for i in range(n))


@billow.function(max=1)
async def alazy(n):
    return n


class Answers(ProjectTest):
    def test_a_returned_generator_is_an_error(self):
        with self.assertRaisesRegex(TypeError, "returned a generator.*yield from"):
            lazy.remote(3)
        with self.assertRaisesRegex(TypeError, "returned a generator"):
            list(lazy.map([1, 2]))

    OUTPUT = """
        import sys, billow
        @billow.function(max=1)
        def inner(x):
            print("inner", x)
        @billow.function(max=1)
        def noisy(x):
            print("hello", x)
            print("warn", x, file=sys.stderr)
            inner.remote(x)
            return x
        @billow.function(max=1)
        def items(n):
            for i in range(n):
                print("item", i)
                yield i
        noisy.remote(1)
        print("between", flush=True)
        list(noisy.map([2], progress=False))
        list(items.remote(2))
        """

    def test_prints_are_shown_where_they_are_wanted(self):
        path = self.write("noisy.py", self.OUTPUT)
        self.assertEqual(self.ok(path).stdout, "between\n", "not in a pipe")
        done = self.ok(path, BILLOW_SHOW_OUTPUT="1")
        self.assertEqual(
            done.stdout,
            "hello 1\ninner 1\nbetween\nhello 2\ninner 2\nitem 0\nitem 1\n",
            done.stderr,
        )
        self.assertEqual(done.stderr, "warn 1\nwarn 2\n")
        main, side = pty.openpty()
        with subprocess.Popen(
            [sys.executable, path], stdout=side, stderr=side, stdin=subprocess.DEVNULL,
            cwd=self.rig.files, env=self.environment(),
        ) as child:  # fmt: skip
            os.close(side)
            seen = b""
            while select.select([main], [], [], 60)[0]:
                try:
                    piece = os.read(main, 4096)
                except OSError:
                    break
                if not piece:
                    break
                seen += piece
            child.wait(60)
        os.close(main)
        self.assertIn(b"hello 1", seen, "on a terminal")
        self.assertEqual(self.ok(path, BILLOW_SHOW_OUTPUT="0").stdout, "between\n")

    def test_an_interrupted_data_set_continues(self):
        for i in range(12):
            self.write(f"in/{i}.txt", str(i))
        hold = self.write("hold", "")  # while it is there, the first call alone is answered
        path = self.write(
            "captions.py",
            f"""
            import os, time, billow
            @billow.function(max=1)
            def caption(data):
                if os.path.exists({hold!r} + "ing"):
                    while os.path.exists({hold!r}):
                        time.sleep(0.05)
                open({hold!r} + "ing", "w").close()
                return len(data)
            print(caption.map_dataset("in/*.txt", "out", files_at_once=2)["done"])
            """,
        )
        running = self.start(path)
        out = self.rig.file("out")
        poll(
            lambda: os.path.isdir(out) and any(e.endswith(".json") for e in os.listdir(out)),
            "a result", 60,
        )  # fmt: skip
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=30)
        self.assertIn("the same call continues", err)
        self.assertIn("KeyboardInterrupt", err)
        self.assertNotIn("failed", err)
        self.assertLess(sum(each.endswith(".json") for each in os.listdir(out)), 12)
        os.remove(hold)
        self.assertEqual(self.ok(path).stdout, "12\n")


@billow.web_server(max=1, include=[os.path.abspath(__file__)])
def files(port):
    import subprocess
    import sys

    subprocess.Popen([sys.executable, "-m", "http.server", "--bind", "127.0.0.1", str(port)])


@billow.function(max=1)
def has(path):
    return os.path.exists(path)


@billow.endpoint(method="POST", max=1)
def typed(text: str, top: int = 3, share: float = 0.5, loud: bool = False):
    return {"text": text, "top": top, "share": share, "loud": loud}


class Web(ProjectTest):
    def get(self, endpoint, path="", body=None):
        request = urllib.request.Request(endpoint.url + path, body)
        request.add_header("Authorization", f"Bearer {endpoint.key}")
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as problem:
            return problem.code, problem.read().decode()

    def test_a_web_server_does_not_serve_its_secret(self):
        status, listing = self.get(files)
        self.assertEqual(status, 200)
        self.assertIn("newcomer_test.py", listing, "what is included is there")
        self.assertEqual(listing.count("<li>"), 1, listing)
        for path in ("function.json", "function.pkl", "billow/__init__.py", "../function.json"):
            self.assertEqual(self.get(files, path)[0], 404, path)
        self.assertFalse(has.remote("function.json"))
        self.assertFalse(has.remote("function.pkl"))

    def test_parameters_have_the_types_of_their_annotations(self):
        self.assertEqual(
            self.get(typed, body=b'{"text": "a", "top": "4", "share": 1, "loud": true}'),
            (200, '{"text": "a", "top": 4, "share": 1.0, "loud": true}'),
        )
        for wrong in (b'{"text": 3}', b'{"text": "a", "top": 1.5}', b'{"text": "a", "loud": 1}'):
            status, said = self.get(typed, body=wrong)
            self.assertEqual(status, 400, said)
            self.assertIn("is not of type", said)


class Full(ProjectTest):
    options = {"sim": "1xH100"}

    def test_waiting_for_a_gpu_is_told(self):
        path = self.write(
            "waits.py",
            """
            import sys, billow
            @billow.function(gpus=1, max=1, idle=1, keep=1)
            def f(): return "ran"
            print(f.remote(), flush=True)
            sys.stdin.readline()
            print(f.remote())
            """,
        )
        said = self.rig.file("said")
        blocker = billow.submit("sleep 600", gpus=1)
        self.rig.wait_for(blocker.id, "running")
        with open(said, "wb") as err, subprocess.Popen(
            [sys.executable, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err,
            text=True, cwd=self.rig.files, env=self.environment(),
        ) as running:  # fmt: skip
            try:
                self.waits_once(said, blocker, 1)
                self.assertEqual(running.stdout.readline(), "ran\n", open(said).read())
                # Its worker has ended for want of calls, and its GPU is taken.
                blocker = billow.submit("sleep 600", gpus=1)
                self.rig.wait_for(blocker.id, "running")
                running.stdin.write("\n")
                running.stdin.flush()
                self.waits_once(said, blocker, 2)
                self.assertEqual(running.stdout.read(), "ran\n", open(said).read())
            finally:
                running.kill()

    def waits_once(self, said, blocker, times):
        try:
            poll(
                lambda: open(said).read().count("is waiting for a worker: ") == times,
                "the reason is shown", 60,
            )  # fmt: skip
        finally:
            blocker.stop()
        self.assertRegex(open(said).read(), "billow: waits.f-.* is waiting for a worker: .*GPU")


@billow.cls(max=1)
class BadEnter:
    @billow.enter
    def load(self):
        with open("/nonexistent/weights.pt", encoding="ascii") as file:
            self.weights = file.read()

    @billow.method
    def go(self, x):
        return x


@billow.cls(max=1)
class Doubler:
    def __init__(self, n):
        self.n = n

    @billow.method
    def go(self, x):
        return self.n * x


doubler = Doubler(2)


@billow.function(max=1)
def absent():
    import no_such_package_here

    return no_such_package_here


@billow.function(max=1)
def nested(x):
    return doubler.go.remote(x), doubler.go(x)


class Mistakes(ProjectTest):
    def test_what_fails_to_load_says_why(self):
        with self.assertRaisesRegex(billow.DeployFailed, "/nonexistent/weights.pt") as caught:
            BadEnter().go.remote(1)
        self.assertNotIsInstance(caught.exception, billow.VersionMismatch)
        self.assertNotIn("billow env save", str(caught.exception))

    def test_an_interpreter_that_does_not_exist(self):
        missing = alazy.with_options(python="/nonexistent/python3", start_timeout=30)
        with self.assertRaisesRegex(billow.DeployFailed, "/nonexistent/python3"):
            missing.remote(1)

    def test_a_package_that_only_the_worker_misses(self):
        with self.assertRaisesRegex(ModuleNotFoundError, "in the worker .*billow env save") as told:
            absent.remote()
        self.assertEqual(told.exception.name, "no_such_package_here")

    def test_deleted_and_called_again(self):
        self.assertEqual(Doubler(5).go.remote(1), 5)
        pool = billow.pool_of(Doubler(5))
        pool.delete()
        self.assertEqual(Doubler(5).go.remote(1), 5)

    def test_arguments_of_a_class_must_fit(self):
        with self.assertRaisesRegex(TypeError, "BadEnter: too many positional arguments"):
            BadEnter(3)

    def test_objects_inside_functions(self):
        self.assertEqual(doubler.go(4), 8)
        self.assertEqual(nested.remote(3), (6, 6))


if __name__ == "__main__":
    unittest.main()
