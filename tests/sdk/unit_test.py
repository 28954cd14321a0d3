"""Parts of the package that need no head: options, files, wire format, HTTP."""
import os
import pickle
import random
import re
import socket
import struct
import tempfile
import threading
import unittest

from sdk_rig import ROOT, billow  # noqa: F401
from billow import _caller, _deploy, _files, _http, _jobs, _options, _wire
from billow._errors import ConnectionFailed
from billow._progress import Progress


def stream_of(data):
    """A stream that contains these octets and then ends."""
    here, there = socket.socketpair()
    threading.Thread(target=lambda: (there.sendall(data), there.close()), daemon=True).start()
    return _http.Stream(here)


def body_of(data):
    return _http.Body(stream_of(data), {}, len(data))


class Options(unittest.TestCase):
    def test_arrays(self):
        for value, spec in (
            ("0-99", {"first": 0, "last": 99, "step": 1}),
            ("1-10:2%3", {"first": 1, "last": 9, "step": 2, "running_max": 3}),
            (range(0, 10, 5), {"first": 0, "last": 5, "step": 5}),
            ([7, 1, 2], {"first": 1, "last": 2, "more": [{"first": 7, "last": 7}]}),
            ("1,5-6", {"first": 1, "last": 1, "more": [{"first": 5, "last": 6}]}),
            (3, {"first": 3, "last": 3, "step": 1}),
        ):
            self.assertEqual(_options.spec_of(["true"], {"array": value})["array"], spec, value)
        for bad in ("", "1,,5", "9-1", "1-9:0", "x", "1%0", "3:2", [], [1, "2"], [-1], range(0)):
            with self.assertRaises(_options.InvalidOption, msg=repr(bad)):
                _options.spec_of(["true"], {"array": bad})

    def test_sizes_and_times(self):
        self.assertEqual(_options.bytes_of("20G", "mem"), 20 << 30)
        self.assertEqual(_options.mib_of("1.5g", "mem"), 1536)
        self.assertEqual(_options.mib_of(3 << 20, "mem"), 3)
        self.assertEqual(_options.mib_of("1b", "mem"), 1)
        for bare in (20, "20", "1.5"):
            with self.assertRaisesRegex(_options.InvalidOption, "has no unit") as caught:
                _options.bytes_of(bare, "gpu_mem")
            self.assertIn(f'"{bare}G" for gigabytes or "{bare}M"', str(caught.exception.hint))
        with self.assertRaisesRegex(_options.InvalidOption, "has no unit"):
            _options.seconds_of("60", "timeout")
        self.assertEqual(_options.seconds_of("1h30m", "timeout"), 5400)
        self.assertEqual(_options.seconds_of("500ms", "timeout"), 0.5)
        for bad in ("", "x", "5 parsecs", "-1", -1, True, None):
            with self.assertRaises(_options.InvalidOption):
                _options.seconds_of(bad, "timeout")
            with self.assertRaises(_options.InvalidOption):
                _options.bytes_of(bad, "mem")

    def test_gpus(self):
        def of(**options):
            return _options.spec_of(["true"], options)["resources"]

        self.assertEqual(of(gpus=2), {"gpus": 2, "share": {"milli": 1000}})
        self.assertEqual(of(gpus=0.25), {"gpus": 1, "share": {"milli": 250}})
        self.assertEqual(of(gpu_mem="20G"), {"gpus": 1, "share": {"milli": 0, "mem_mib": 20480}})
        self.assertEqual(of(gpus=1, gpu_type="L4|A10G")["gpu_types"], ["L4", "A10G"])
        self.assertEqual(of(gpus=1, gpu_type=["L4"])["gpu_types"], ["L4"])
        for bad in ({"gpus": 1.5}, {"gpus": -1}, {"gpus": "many"}, {"gpu_type": "L4"}):
            with self.assertRaises(_options.InvalidOption):
                of(**bad)

    def test_every_option_of_the_command_line_is_known(self):
        other_names = {
            "time": "timeout",
            "env_var": "env_vars",
            "no_env": "inherit_env",
            "node_label": "node_labels",
            "constraint": "node_labels",
            "label": "labels",
            "secret": "secrets",
            "volume": "volumes",
            "output": "outputs",
            "input": "inputs",
            "no_sync": "sync",
            "pack": "spread",
        }
        with open(os.path.join(ROOT, "docs/cli.md"), encoding="utf-8") as file:
            section = file.read().split("## Job options")[1].split("\n## ")[0]
        names = [
            each.replace("-", "_") for each in re.findall(r"^\| .*?`.*?--([a-z-]+)", section, re.M)
        ]
        self.assertGreater(len(names), 50)
        known = {other_names.get(each, each) for each in names}
        self.assertEqual(known - _options.JOB_OPTIONS, set(), "missing in Python")
        self.assertEqual(_options.JOB_OPTIONS - known, {"array"}, "unknown to the command line")

    def test_names_of_other_tools_are_told(self):
        for wrong, said in (
            ({"gpu": "A10G"}, "gpu_type="),
            ({"min_containers": 1}, "use min"),
            ({"memory": 4096}, 'mem="16G"'),
            ({"retrys": 1}, "did you mean retries"),
        ):
            with self.assertRaisesRegex(_options.InvalidOption, said):
                billow.function(**wrong)(len)
        given = _options.spec_of(["true"], {"volumes": {"/mnt/data": "data"}})
        self.assertEqual(given["surroundings"]["volumes"][0]["path"], "/mnt/data")

    def test_all_unknown_options_are_named(self):
        with self.assertRaises(_options.InvalidOption) as caught:
            billow.function(gpu="A100", max_containers=3, concurency=2, colour="red")(len)
        said = str(caught.exception)
        self.assertIn("unknown options colour, concurency, gpu, max_containers", said)
        for each in ("gpu_type=", "instead of max_containers, use max", "did you mean concurrency"):
            self.assertIn(each, said)
        with self.assertRaisesRegex(
            _options.InvalidOption, "unknown option colour .options: .*idle"
        ):
            billow.function(colour="red")(len)

    def test_values_of_options_are_checked_where_they_are_given(self):
        for wrong, said in (
            ({"retries": "3"}, "retries='3' is not a whole number of at least 0"),
            ({"retries": -1}, "retries=-1"),
            ({"max": 0}, "max=0 is not a whole number of at least 1"),
            ({"max": "4"}, "max='4'"),
            ({"min": 5, "max": 2}, "min=5 is more than max=2"),
            ({"concurrency": 0}, "concurrency=0"),
            ({"concurrency": True}, "concurrency=True"),
            ({"env_vars": ["A=1"]}, "env_vars=.* is not a dictionary"),
            ({"image": 3}, "image=3 is not text"),
            ({"name": "My Name!"}, "cannot be the name"),
            ({"include": "no-such-file"}, "no-such-file does not exist"),
            ({"secrets": 7}, "secrets=7 is not a list"),
            ({"gpus": "H100:2"}, 'gpus=2, gpu_type="H100"'),
            ({"gpus": "H100"}, 'gpus=1, gpu_type="H100"'),
        ):
            with self.assertRaisesRegex(_options.InvalidOption, said):
                billow.function(**wrong)(len)
        one = _options.spec_of(["true"], {"secrets": "HF_TOKEN", "volumes": "data:/mnt/data"})
        self.assertEqual(one["surroundings"]["secrets"][0]["name"], "HF_TOKEN")
        self.assertEqual(one["surroundings"]["volumes"][0]["name"], "data")
        self.assertEqual(_deploy.settings_of({"min": 20}).min, 20)

    def test_operation(self):
        given = {"strategy": "recreate", "drain": "30s", "min_at": "08:00-18:00=2", "max_spend": 5}
        self.assertEqual(
            _deploy._operation(_deploy.settings_of(given)),
            {
                "rollout": {"strategy": "recreate", "drain_ns": 30_000_000_000},
                "scaling": {"min_at": ["08:00-18:00=2"], "spend_per_hour": 5_000_000_000},
            },
        )
        self.assertEqual(_deploy._operation(_deploy.settings_of({})), {})
        for bad in ({"strategy": "blue"}, {"max_spend": "5"}, {"max_spend": -1}, {"drain": "x"}):
            with self.assertRaises(_options.InvalidOption, msg=repr(bad)):
                _deploy.settings_of(bad)

    def test_words_of_other_tools(self):
        for name, said in (
            ("App", "@billow.function"), ("Image", "billow env save"), ("Cron", "f.schedule"),
            ("fastapi_endpoint", "@billow.endpoint"), ("init", "nothing is needed"),
            ("functon", "did you mean function"),
        ):  # fmt: skip
            with self.assertRaisesRegex(AttributeError, said):
                getattr(billow, name)
        self.assertFalse(hasattr(billow, "__path_of_nothing__"))

        @billow.function
        def f(x):
            return x

        for name, said in (("remote_gen", "use remote"), ("options", "with_options"),
                           ("spwan", "did you mean spawn")):  # fmt: skip
            with self.assertRaisesRegex(AttributeError, said):
                getattr(f, name)

        @billow.endpoint
        def web(x: int = 1):
            return x

        with self.assertRaisesRegex(AttributeError, "over HTTP"):
            web.remote(1)

    def test_decorators_on_the_wrong_thing(self):
        with self.assertRaisesRegex(TypeError, "Wrong.go is a method.*@billow.cls"):

            class Wrong:
                @billow.function(gpus=1)
                def go(self, x):
                    return x

        class Plain:
            pass

        with self.assertRaisesRegex(TypeError, "Plain is a class; use @billow.cls"):
            billow.function(Plain)
        with self.assertRaisesRegex(TypeError, "use @billow.function"):
            billow.cls(len)
        with self.assertRaisesRegex(TypeError, "stands below @billow.function"):
            billow.batched(max=4)(billow.function(len))
        with self.assertRaisesRegex(_options.InvalidOption, "instead of max_batch_size, use max"):
            billow.batched(max_batch_size=4)

    def test_arguments_must_fit_before_they_travel(self):
        @billow.function
        def f(x, *, y=1):
            return x

        for call in (f.remote, f.spawn):
            with self.assertRaisesRegex(TypeError, "f: got an unexpected keyword argument 'z'"):
                call(1, z=2)
            with self.assertRaisesRegex(TypeError, "missing a required argument: 'x'"):
                call(y=2)

        @billow.cls
        class Model:
            @billow.method
            def go(self, x):
                return x

        with self.assertRaisesRegex(TypeError, "too many positional arguments"):
            Model().go.remote(1, 2)

    def test_methods_run_here_on_an_object_of_this_process(self):
        entered = []

        @billow.cls
        class Model:
            width: int = 0

            def __init__(self, n):
                self.n = n

            @billow.enter
            def load(self):
                entered.append(self)

            @billow.method
            def go(self, x):
                return self.n + x

        model = Model(3)
        self.assertEqual((model.go(1), model.go.local(2)), (4, 5))
        self.assertEqual(len(entered), 1, "entered once")
        with self.assertRaisesRegex(AttributeError, "exists only in workers"):
            model.width

    def test_parameters_of_grids_are_checked(self):
        with self.assertRaisesRegex(_options.InvalidOption, "did you mean {lr}"):
            billow.grid("train --lr {lrr}", params={"lr": [1]}, client=object())
        with self.assertRaisesRegex(_options.InvalidOption, "did you mean {lr}"):
            billow.grid(["train", "{lrr}"], params={"lr": [1]}, client=object())
        _jobs._check_names("awk '{print}' ${LRR} {lr}", ["lr"])
        jobs = [billow.Job(7, object()), billow.Job(8, object())]
        self.assertEqual(repr(billow.Grid(jobs, [{}, {}])), "<billow.Grid of 2 jobs: 7, 8>")

    def test_the_first_line_of_progress_does_not_guess(self):
        shown = Progress("f", 100, False)
        shown.add(1)
        self.assertRegex(shown.text(), "^f: ░+ 1 of 100$")
        shown._began -= 10
        self.assertRegex(shown.text(), r"1 of 100, 0\.1/s, 9\d\d s left$")

    def test_places_arrays_and_signals(self):
        def of(**options):
            return _options.spec_of(["true"], options)

        self.assertEqual(
            of(topology="rack:required", max_price="3.50/gpu-h", fabric="efa", spread=True)[
                "place"
            ],
            {
                "fabrics": ["efa"],
                "spread": "spread",
                "max_price_nano_usd_per_gpu_h": 3_500_000_000,
                "close": "rack",
                "close_required": True,
            },
        )
        self.assertEqual(of(topology="nvlink")["place"], {"nvlink_required": True})
        self.assertEqual(of(array=range(0, 10, 2))["array"], {"first": 0, "last": 8, "step": 2})
        self.assertEqual(
            of(array="1-9:2%3")["array"], {"first": 1, "last": 9, "step": 2, "running_max": 3}
        )
        self.assertEqual(of(checkpoint_signal="USR1:group")["checkpoint_signal"], 10)
        self.assertEqual(
            _options.variables_of({"checkpoint_signal": "USR1:group"})["BILLOW_CHECKPOINT_TO"],
            "group",
        )
        self.assertEqual(of(suspendable=False)["suspendable"], "no")
        for bad in (
            {"topology": "moon"},
            {"array": "9-x"},
            {"checkpoint_signal": "NONE"},
            {"share": "all"},
            {"network": "wifi"},
            {"isolation": "thick"},
            {"isolation": "strict", "network": "host"},
            {"seccomp": "none"},
        ):
            with self.assertRaises(_options.InvalidOption):
                of(**bad)

    def test_secrets_and_volumes_and_images(self):
        given = _options.spec_of(
            ["x"],
            {
                "secrets": ["A", "B=VAR", "C:file", "D:/etc/d"],
                "volumes": ["data:/mnt/data:ro"],
                "image": "python",
            },
        )["surroundings"]
        self.assertEqual(
            given["secrets"],
            [
                {"name": "A", "variable": "A"},
                {"name": "B", "variable": "VAR"},
                {"name": "C", "file": "/run/secrets/C"},
                {"name": "D", "file": "/etc/d"},
            ],
        )
        self.assertEqual(given["volumes"][0]["read_only"], True)
        self.assertEqual(given["image"], "docker.io/library/python:latest")
        with self.assertRaises(_options.InvalidOption) as refused:
            _options.spec_of(["x"], {"secrets": ["KEY=hunter2"]})
        self.assertNotIn("hunter2", str(refused.exception), "a value is never shown")

    def test_credentials_stay_here(self):
        for name in ("AWS_REGION", "HF_TOKEN", "db_password", "MY_API_KEY", "SSH_AUTH_SOCK"):
            self.assertTrue(_options.looks_like_credential(name), name)
        for name in ("PATH", "TOKENIZERS_PARALLELISM", "HOME"):
            self.assertFalse(_options.looks_like_credential(name), name)


class Files(unittest.TestCase):
    def test_ignore_rules(self):
        ignore = _files.Ignore()
        ignore.add("", "*.log\n!keep.log\n/top\nbuild/\na/**/z\n# comment\n[ab].txt\n")
        ignore.add("sub", "local\n")
        for path, directory, verdict in (
            ("x.log", False, True),
            ("deep/x.log", False, True),
            ("keep.log", False, False),
            ("top", False, True),
            ("sub/top", False, None),
            ("build", True, True),
            ("build", False, None),
            ("a/b/c/z", False, True),
            ("a/z", False, True),
            ("a.txt", False, True),
            ("c.txt", False, None),
            ("sub/local", False, True),
            ("local", False, None),
        ):
            self.assertEqual(ignore.verdict(path, directory), verdict, path)

    def test_trees(self):
        tree = _files.Tree()
        tree.add_bytes("b/c", b"x" * 5_000_000)
        tree.add_bytes("b-d", b"")
        entries = list(_files._entries(tree.encode()))
        self.assertEqual([e.path for e in entries], ["b", "b/c", "b-d"])
        self.assertEqual([len(e.pieces) for e in entries], [0, 2, 0])
        with tempfile.TemporaryDirectory() as place:
            with open(os.path.join(place, "f"), "wb") as file:
                file.write(b"one")
            scanned = _files.scan(place)
            digest = scanned.entries["f"].pieces[0]
            self.assertEqual(scanned.piece(digest), b"one")
            with open(os.path.join(place, "f"), "wb") as file:
                file.write(b"two")
            with self.assertRaisesRegex(billow.Error, "changed while it was read"):
                scanned.piece(digest)

    def test_unsafe_trees_are_refused(self):
        for path, target in (("../x", ""), ("/x", ""), ("a//b", ""), ("x", "../y"), ("x", "/y")):
            entry = _files.Entry(path, "l" if target else "f", target=target)
            tree = _files.Tree({path: entry})
            with self.assertRaisesRegex(billow.Error, "unsafe"):
                list(_files._entries(tree.encode()))


class Wire(unittest.TestCase):
    def values(self):
        big = pickle.PickleBuffer(bytearray(b"ab" * 100_000))
        return [1, "text", ("", (1, 2), {"a": [None, 2.5]}), lambda x: x + 1, {"big": big}]

    def test_there_and_back(self):
        packed = [_wire.pack(value) for value in self.values()]
        self.assertEqual([len(each.buffers) for each in packed], [0, 0, 0, 0, 1])
        ids = [bytes([i]) * 16 for i in range(len(packed))]
        pieces = _wire.request_body([(ids[i], i + 1, each) for i, each in enumerate(packed)])
        calls = _wire.read_calls(body_of(b"".join(pieces)))
        self.assertEqual([(c.id, c.attempt) for c in calls], [(ids[i], i + 1) for i in range(5)])
        back = [_wire.unpack(c.data, c.buffers) for c in calls]
        self.assertEqual(back[:3], self.values()[:3])
        self.assertEqual(back[3](1), 2)
        self.assertEqual(bytes(back[4]["big"]), b"ab" * 100_000)

    def test_damaged_requests_are_refused(self):
        whole = b"".join(_wire.request_body([(b"i" * 16, 1, _wire.pack(v)) for v in self.values()]))
        chance = random.Random(7)
        accepted = 0
        for _ in range(400):
            data = bytearray(whole[: chance.randrange(len(whole))])
            for _ in range(chance.randrange(4)):
                if data:
                    data[chance.randrange(min(len(data), 200))] = chance.randrange(256)
            try:
                _wire.read_calls(body_of(bytes(data)))
                accepted += 1
            except (ValueError, OSError, MemoryError, struct.error):
                pass
        self.assertLess(accepted, 5)

    def test_exceptions_that_cannot_be_built(self):
        class Odd(Exception):
            def __init__(self, a, b):
                super().__init__(f"{a}{b}")

        problem, text = _wire.load_failure(_wire.pack_failure(Odd(1, 2), "trace").data)
        self.assertIsInstance(problem, billow.RemoteError)
        self.assertIn("Odd", problem.type_name)
        self.assertEqual(text, "trace")
        again = pickle.loads(pickle.dumps(problem))
        self.assertEqual((again.type_name, again.traceback), (problem.type_name, "trace"))


class Http(unittest.TestCase):
    def test_a_cancelled_request_keeps_its_socket_until_its_thread_closes_it(self):
        server = socket.create_server(("127.0.0.1", 0))
        address = _http.parse_address(f"http://127.0.0.1:{server.getsockname()[1]}", _http.Tls())
        connection, request, ended = _http.Connection(address, 60.0), _caller.Request(), []

        def ask():
            try:
                connection.request("GET", "/")
            except OSError as problem:
                ended.append(problem)

        request.use(connection)
        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        far, _ = server.accept()
        far.recv(100)
        request.cancel()
        asking.join(30)
        self.assertEqual(len(ended), 1, "the thread that waits is told")
        # Otherwise the thread could come to wait for another connection with the same number.
        self.assertGreaterEqual(connection._sock.fileno(), 0)
        later = _http.Connection(address, 60.0)
        request.use(later)
        with self.assertRaises(OSError):
            later.request("GET", "/")
        for each in (connection, later, far, server):
            each.close()

    def answer(self, data):
        here, there = socket.socketpair()
        there.sendall(data)
        there.close()
        connection = object.__new__(_http.Connection)
        connection._sock = here
        connection.stream = _http.Stream(here)
        connection.usable = False
        return connection, connection._head()

    def test_bodies(self):
        for data, expected, usable in (
            (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", b"abc", True),
            (
                (
                    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                    b"2;x=y\r\nab\r\n1\r\nc\r\n0\r\nT: 1\r\n\r\n"
                ),
                b"abc",
                True,
            ),
            (b"HTTP/1.1 200 OK\r\n\r\nabc", b"abc", False),
            (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No\r\n\r\n", b"", True),
            (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", b"", False),
        ):
            connection, response = self.answer(data)
            self.assertEqual(response.read(), expected)
            self.assertEqual(connection.usable, usable, data)

    def test_broken_answers(self):
        for data in (
            b"",
            b"SSH-2.0-x\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
            b"x" * 70_000,
        ):
            with self.assertRaises(_http.BrokenAnswer):
                self.answer(data)[1].read()

    def test_addresses(self):
        self.assertEqual(_http.parse_address("https://h:7070").text, "https://h:7070")
        self.assertEqual(_http.parse_address("unix:///a/b").unix_path, "/a/b")
        self.assertTrue(_http.parse_address("http://127.0.0.1:1").is_local)
        self.assertFalse(_http.parse_address("http://10.0.0.1:1").is_local)
        for bad in ("ftp://x", "http://", "http://h:port"):
            with self.assertRaises(ConnectionFailed):
                _http.parse_address(bad)


class Questions(unittest.TestCase):
    """deploy() asks a worker which Python it has."""

    def ask(self, *answers):
        server = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(server.close)
        self.left = list(answers)

        def serve():
            connection, _ = server.accept()
            with connection:
                while self.left and connection.recv(65536):
                    connection.sendall(self.left.pop(0))

        threading.Thread(target=serve, daemon=True).start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}/f/app/"
        return _caller.Caller(_caller.Place(url, "", "", ""), None).ask("/.billow/hello")

    def test_they_wait_for_an_endpoint_whose_last_start_failed(self):
        away = (
            b"HTTP/1.1 503 No\r\nX-Billow-Problem: 1\r\nRetry-After: 0\r\nContent-Length: 2\r\n"
            b"\r\n{}"
        )
        good = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
        self.assertEqual(self.ask(away, away, good), (200, b"{}"))
        self.assertEqual(self.left, [])

    def test_what_a_worker_refuses_is_not_asked_again(self):
        refused = b"HTTP/1.1 503 No\r\nContent-Length: 2\r\n\r\nno"
        self.assertEqual(self.ask(refused, refused), (503, b"no"))
        self.assertEqual(len(self.left), 1)


if __name__ == "__main__":
    unittest.main()
