"""Functions in workers, as a user calls them."""
import asyncio
import os
import signal
import threading
import time
import unittest
import unittest.mock

from rig import poll
from sdk_rig import SdkTest, billow
from billow import _caller, _lane
from billow._wire import pack

try:
    import numpy
except ImportError:
    numpy = None


class OwnError(Exception):
    def __init__(self, code, detail):
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.detail = detail

    def __reduce__(self):
        return (OwnError, (self.code, self.detail))


@billow.function(max=2)
def square(x):
    return x * x


@billow.function(max=1)
def describe(value, *more, sep="-"):
    return sep.join([type(value).__name__, *map(str, more)])


@billow.function(max=1)
def fail(kind):
    if kind == "value":
        raise ValueError("not this")
    if kind == "own":
        raise OwnError(7, "mine")
    if kind == "exit":
        raise SystemExit(3)
    raise type("Local", (Exception,), {})("made up")


@billow.function(max=1)
def count(n):
    for i in range(n):
        yield i


@billow.function(max=1)
def slow(path, seconds):
    with open(path, "a", encoding="utf-8") as file:
        file.write("began\n")
    try:
        time.sleep(seconds)
    finally:
        with open(path, "a", encoding="utf-8") as file:
            file.write("ended\n")
    return "done"


@billow.function(max=1)
def outer(x):
    return square.remote(x) + 1


@billow.function(max=4)
def fibonacci(n):
    return n if n < 2 else fibonacci.remote(n - 1) + fibonacci.local(n - 2)


@billow.function(max=1)
def countdown(n):
    return 0 if n == 0 else 1 + countdown.remote(n - 1)


@billow.function(max=1)
def flaky(path, times):
    with open(path, "a", encoding="utf-8") as file:
        file.write("x")
    if os.path.getsize(path) <= times:
        raise RuntimeError("not yet")
    return os.path.getsize(path), billow.current_call().attempt


@billow.function(max=1)
async def later(x):
    await asyncio.sleep(0.01)
    return x + 1


@billow.function(max=1)
@billow.batched(max=16, wait_ms=50)
def together(xs):
    return [(x, len(xs)) for x in xs]


@billow.function(max=1)
def reverse(array):
    return array[::-1].copy()


@billow.function(max=1)
def identity(value):
    return value


@billow.function(max=1, concurrency=4)
def overlap(seconds):
    time.sleep(seconds)
    return threading.current_thread().name


@billow.function(max=1, timeout=0.5)
def hasty(seconds):
    time.sleep(seconds)
    return "in time"


@billow.cls(max=1)
class Counter:
    def __init__(self, start=0):
        self.start = start

    @billow.enter
    def load(self):
        self.value = self.start

    @billow.method
    def add(self, n):
        self.value += n
        return self.value

    @billow.exit
    def leave(self):
        print("left with", self.value)


class Functions(SdkTest):
    def test_one_call(self):
        self.assertEqual(square.remote(12), 144)
        self.assertEqual(square(5), 25, "called directly it runs here")
        self.assertEqual(describe.remote([], 1, 2, sep="+"), "list+1+2")
        revisions = square.info["revisions"]
        self.assertEqual(square.deploy(), square.info["urls"][0])
        self.assertEqual(square.info["revisions"], revisions, "the same version is deployed once")

    def test_spawn_and_await(self):
        futures = [square.spawn(i) for i in range(20)]
        self.assertEqual([each.result(30) for each in futures], [i * i for i in range(20)])
        self.assertTrue(all(each.done() and each.seconds >= 0 for each in futures))

        async def both():
            return await asyncio.gather(square.aio(3), square.spawn(4))

        self.assertEqual(asyncio.run(both()), [9, 16])
        self.assertEqual(billow.gather(square.spawn(2), square.spawn(3)), [4, 9])

    def test_map(self):
        numbers = list(range(3000))
        self.assertEqual(list(square.map(numbers)), [i * i for i in numbers])
        self.assertEqual(sorted(square.map(numbers, ordered=False)), sorted(i * i for i in numbers))
        self.assertEqual(list(describe.starmap([(1, 2), ("a", 3)])), ["int-2", "str-3"])
        self.assertEqual(square.for_each(range(10)), 10)
        self.assertEqual(list(square.map([])), [])
        results = square.map(range(100))
        self.assertEqual(sum(results), sum(i * i for i in range(100)))
        self.assertGreater(results.seconds, 0)
        requests = square.info["figures"]["requests"]
        self.assertLess(requests, 1000, "small calls travel together")

        async def collected():
            return [each async for each in square.amap(range(10))]

        self.assertEqual(asyncio.run(collected()), [i * i for i in range(10)])

    def test_map_reads_as_far_as_its_window(self):
        read = []

        def source():
            for i in range(100_000):
                read.append(i)
                yield i

        results = square.map(source())
        self.assertEqual([next(results) for _ in range(5)], [0, 1, 4, 9, 16])
        self.assertLess(len(read), 20_000, "inputs are read as results are")
        results.close()

    def test_exceptions_keep_their_type_and_traceback(self):
        with self.assertRaisesRegex(ValueError, "not this") as caught:
            fail.remote("value")
        cause = str(caught.exception.__cause__)
        self.assertIn('raise ValueError("not this")', cause)
        self.assertIn("functions_test.py", cause)
        self.assertNotIn("_execute.py", cause, "frames of the worker itself are left out")
        with self.assertRaises(OwnError) as own:
            fail.remote("own")
        self.assertEqual((own.exception.code, own.exception.detail), (7, "mine"))
        with self.assertRaisesRegex(billow.RemoteError, "SystemExit"):
            fail.remote("exit")
        with self.assertRaisesRegex(Exception, "made up"):
            fail.remote("local")
        self.assertEqual(describe.remote(1), "int", "the worker goes on")
        results = list(square.map([1, "a", 3], return_exceptions=True))
        self.assertEqual((results[0], results[2]), (1, 9))
        self.assertIsInstance(results[1], TypeError)
        with self.assertRaises(TypeError):
            list(square.map([1, "a", 3]))

    def test_generators_stream(self):
        self.assertEqual(list(count.remote(1000)), list(range(1000)))
        values = count.remote(10**9)
        self.assertEqual([next(values) for _ in range(3)], [0, 1, 2])
        values.close()
        self.assertEqual(list(count.remote(3)), [0, 1, 2], "the endless one was cancelled")

    def test_cancel_interrupts(self):
        path = self.rig.file("slow")
        call = slow.spawn(path, 60)
        poll(lambda: os.path.exists(path), "the call began")
        self.assertTrue(call.cancel())
        self.assertTrue(call.cancelled())
        with self.assertRaises(billow.Cancelled):
            call.result()
        poll(lambda: "ended" in open(path).read(), "the call was interrupted", 10)
        self.assertEqual(slow.remote(path, 0), "done", "the worker is free again")
        self.assertFalse(call.cancel())

    def test_timeout_of_a_call(self):
        self.assertEqual(hasty.remote(0), "in time")
        with self.assertRaisesRegex(billow.CallTimeout, "longer than 0.5 s"):
            hasty.remote(30)
        with self.assertRaises(TimeoutError):
            hasty.remote(30)

    def test_nested_and_recursive(self):
        self.assertEqual(outer.remote(5), 26)
        self.assertEqual(fibonacci.remote(4), 3)
        # Deeper than it has workers: each call runs in the worker of the one that waits for it.
        self.assertEqual(countdown.remote(20), 20)
        self.assertEqual(list(countdown.map([5] * 8)), [5] * 8)

    def test_the_gateway_is_known_by_its_certificate(self):
        square.deploy()
        place = square._pool.caller().place
        self.assertRegex(place.fingerprint, "^[0-9a-f]{64}$")
        secure = place._replace(url=place.url.replace("http://", "https://"))
        packed = [pack(("", (7,), {}))]
        outcome = _caller.Caller(secure, None).run([_caller.new_id()], packed)[0]
        self.assertEqual((outcome.value, outcome.error), (49, None))
        wrong = _caller.Caller(secure._replace(fingerprint="00" * 32), None)
        with unittest.mock.patch.object(_caller, "AWAY_S", 0.3):
            outcome = wrong.run([_caller.new_id()], packed)[0]
        self.assertIsInstance(outcome.error, billow.ConnectionFailed)

    def test_retries_after_exceptions(self):
        path = self.rig.file("flaky")
        with self.assertRaises(RuntimeError):
            flaky.remote(path, 2)
        self.assertEqual(os.path.getsize(path), 1, "by default an exception is not repeated")
        patient = flaky.with_options(retries=3)
        self.assertEqual(patient.remote(path, 3), (4, 3))
        patient.delete()

    def test_async_functions_and_threads(self):
        self.assertEqual(list(later.map(range(50))), list(range(1, 51)))
        overlap.deploy()
        began = time.monotonic()
        names = {each.result() for each in [overlap.spawn(0.5) for _ in range(4)]}
        self.assertEqual(len(names), 4)
        self.assertLess(time.monotonic() - began, 1.9, "at the same time")

    def test_batched(self):
        results = list(together.map(range(64)))
        self.assertEqual([x for x, _ in results], list(range(64)))
        self.assertGreater(max(size for _, size in results), 1)
        self.assertLessEqual(max(size for _, size in results), 16)

    def test_classes_stay_loaded(self):
        one = Counter(10)
        self.assertEqual([one.add.remote(1), one.add.remote(1)], [11, 12])
        self.assertEqual(Counter(10).add.remote(1), 13, "equal arguments share their workers")
        self.assertEqual(Counter(100).add.remote(1), 101)
        with self.assertRaisesRegex(AttributeError, "it has add"):
            one.subtract
        pool = billow.pool_of(one)
        job = pool.info["replicas"][0]["job"]
        pool.delete()
        self.rig.wait_for(job, "stopped")
        self.assertIn("left with 13", self.rig.ok("logs", job).text)

    @unittest.skipIf(numpy is None, "numpy is missing")
    def test_arrays_travel_as_they_are(self):
        array = numpy.arange(4_000_000, dtype=numpy.float64)
        back = reverse.remote(array)
        self.assertTrue((back == array[::-1]).all())
        self.assertTrue(back.flags.writeable)
        mixed = {"a": array[:100_000], "b": [b"x" * 1_000_000, "text"], "c": array[::2]}
        again = identity.remote(mixed)
        self.assertTrue((again["a"] == mixed["a"]).all() and (again["c"] == mixed["c"]).all())
        self.assertEqual(again["b"], mixed["b"])
        self.assertEqual(
            [int(each[0]) for each in reverse.map([array[:70_000] + i for i in range(20)])],
            [69_999 + i for i in range(20)],
        )

    @unittest.skipIf(numpy is None, "numpy is missing")
    def test_arrays_without_shared_memory(self):
        array = numpy.arange(1_000_000, dtype=numpy.float64)
        caller = identity._pool.caller()
        self.assertTrue(caller.shares_memory, "this machine's memory")
        with unittest.mock.patch.object(_lane, "_identity", ""):
            far = _caller.Caller(caller.place, None)
        outcome = far.run([_caller.new_id()], [pack(("", (array,), {}))])[0]
        self.assertTrue((outcome.value == array).all(), outcome)
        self.assertFalse(far.shares_memory)
        # A worker that turns out to be elsewhere gets the arrays again, through the gateway.
        with unittest.mock.patch.object(_lane, "put", lambda _: "0" * 32):
            self.assertTrue((identity.remote(array) == array).all())
        self.assertFalse(caller.shares_memory)
        self.assertTrue((identity.remote(array) == array).all())

    @unittest.skipIf(numpy is None, "numpy is missing")
    def test_shared_memory_is_used_again_and_left_clean(self):
        array = numpy.arange(1_000_000, dtype=numpy.float64)
        with unittest.mock.patch.object(identity._pool.caller(), "_apart_until", 0.0):
            identity.remote(0)
            kept = [identity.remote(array + i) for i in range(4)]
            for i in range(30):
                back = identity.remote(array * i)
                self.assertTrue((back == array * i).all())
                back += 1  # changes nothing elsewhere
            for i, each in enumerate(kept):
                self.assertTrue((each == array + i).all(), "nobody writes to memory that is in use")
        place = f"/dev/shm/billow-lane-{os.geteuid()}"
        self.assertLess(len(os.listdir(place)), 20, "files are used again")
        del kept, back, each
        _lane._spares.clear()
        stale = os.path.join(place, "f" * 32)
        with open(stale, "wb") as file:
            file.write(b"left by a killed process")
        os.utime(stale, (1, 1))
        _lane._directory()
        self.assertFalse(os.path.exists(stale))

    def test_costs_are_known(self):
        gpu = square.with_options(gpus=0.5, max=1)
        call = gpu.spawn(3)
        self.assertEqual(call.result(60), 9)
        rates = self.client.get("/v1/prices/rates")["rates"]
        rate = next(
            r["nano_usd_per_s"]
            for r in rates
            if r["gpu_type"] == "H100" and r["class"].replace("_", "-") == "on-demand"
        )
        self.assertAlmostEqual(call.cost, call.seconds * rate / 2 / 1e9, places=12)
        self.assertGreater(call.cost, 0)
        results = gpu.map([1, 2, 3])
        list(results)
        self.assertAlmostEqual(results.cost, results.seconds * rate / 2 / 1e9, places=12)
        self.assertGreater(results.cost, 0)
        poll(lambda: gpu.cost > 0, "a charge")
        gpu.delete()

    def test_strangers_cannot_call(self):
        square.deploy()
        url = square.info["urls"][0]
        import http.client

        host = url.split("/")[2]
        place = square._pool.caller().place
        for headers, status in (
            ({}, 401),
            ({"X-Api-Key": place.key}, 403),
            ({"X-Api-Key": place.key, "X-Billow-Secret": "0" * 48}, 403),
        ):
            connection = http.client.HTTPConnection(host)
            connection.request("POST", f"/f/{square.name}/.billow/call", b"BWC1....", headers)
            self.assertEqual(connection.getresponse().status, status, headers)
            connection.close()


class Programs(SdkTest):
    """Functions of scripts: __main__ travels by value, modules beside it with their source."""

    PROGRAM = """
import dataclasses, billow, helper

@dataclasses.dataclass
class Point:
    x: int
    y: int

class Odd(Exception):
    pass

SCALE = 3

@billow.function(max=1)
def work(p):
    if p.x % 2:
        raise Odd(p.x)
    return Point(helper.double(p.x) * SCALE, p.y)

if __name__ == "__main__":
    answer = work.remote(Point(2, 5))
    assert isinstance(answer, Point), answer
    try:
        work.remote(Point(1, 1))
    except Odd as problem:
        print("odd", problem)
    print(answer.x, answer.y, work.info["revision"])
"""

    def write_helper(self, factor):
        with open(self.rig.file("helper.py"), "w", encoding="utf-8") as file:
            file.write(f"def double(x):\n    return {factor} * x\n")

    def test_main_and_modules_and_new_versions(self):
        self.write_helper(2)
        first = self.script(self.PROGRAM)
        self.assertEqual(first.stdout, "odd 1\n12 5 1\n", first)
        again = self.script(self.PROGRAM)
        self.assertEqual(again.stdout, "odd 1\n12 5 1\n", "an unchanged program deploys nothing")
        changed = self.script(self.PROGRAM.replace("SCALE = 3", "SCALE = 4"))
        self.assertEqual(changed.stdout, "odd 1\n16 5 2\n", changed)
        self.write_helper(10)
        other = self.script(self.PROGRAM.replace("SCALE = 3", "SCALE = 4"))
        self.assertEqual(other.stdout, "odd 1\n80 5 3\n", other)

    def test_what_differs_is_told_before_the_call(self):
        fake = self.rig.script('exec "$REAL" -S "$@"\n', "python-bare")
        done = self.script(
            f"""
import os, sys, billow
try:
    import numpy
except ImportError:
    print("skip"); sys.exit()

@billow.function(max=1, python={fake!r}, env_vars={{"REAL": sys.executable}})
def total(n):
    return numpy.arange(n).sum()

try:
    total.remote(3)
except billow.VersionMismatch as problem:
    print(problem)
"""
        )
        if done.stdout.startswith("skip"):
            self.skipTest("numpy is missing")
        self.assertIn("No module named 'numpy'", done.stdout, done)
        self.assertIn("numpy missing instead of", done.stdout)
        self.assertIn("billow env save", done.stdout)

    def test_mistakes_are_told(self):
        done = self.script(
            """
import threading, billow
lock = threading.Lock()

@billow.function
def locked():
    return lock

for call in (
    lambda: locked.remote(),
    lambda: billow.function(gpus=-1)(len),
    lambda: billow.function(colour="red")(len),
    lambda: billow.function(gpu_type="H100")(len),
    lambda: billow.function(mem="much")(len),
    lambda: billow.connect("http://127.0.0.1:1"),
):
    try:
        call()
        print("no error")
    except billow.Error as problem:
        print(type(problem).__name__, problem)
"""
        )
        lines = done.stdout.splitlines()
        self.assertIn("cannot be sent to a worker", lines[0], done)
        self.assertIn("must not be negative", done.stdout)
        self.assertIn("unknown option colour", done.stdout)
        self.assertIn("gpu_type needs gpus", done.stdout)
        self.assertIn("mem='much' is not a size", done.stdout)
        self.assertIn("no token for http://127.0.0.1:1", done.stdout)


class Scaling(SdkTest):
    options = {"sim": "4xH100"}

    def test_scales_out_and_to_zero(self):
        @billow.function(max=3, idle=1, gpus=1)
        def where(seconds):
            time.sleep(seconds)
            return os.environ["BILLOW_JOB_ID"]

        self.assertTrue(where.remote(0))
        calls = [where.spawn(1.5) for _ in range(9)]
        self.assertGreater(len({each.result(90) for each in calls}), 1, "several workers")
        poll(
            lambda: all(r.get("task_state") == "suspended" for r in where.info["replicas"]),
            "all workers asleep",
            60,
        )
        self.assertTrue(where.remote(0), "the next call wakes one")

    def test_a_worker_that_ends_itself(self):
        @billow.function(max=1, retries=0)
        def die():
            os.kill(os.getpid(), signal.SIGKILL)

        with self.assertRaisesRegex(billow.CallLost, "retries=0"):
            die.remote()

    def test_a_call_that_kills_its_worker_takes_no_others_with_it(self):
        @billow.function(max=1, retries=1)
        def fragile(i):
            if i == 137:
                os.kill(os.getpid(), signal.SIGKILL)
            return i

        results = list(fragile.map(range(300), return_exceptions=True))
        lost = [i for i, each in enumerate(results) if isinstance(each, Exception)]
        self.assertEqual(lost, [137], results[137])
        self.assertIsInstance(results[137], billow.CallLost)


if __name__ == "__main__":
    unittest.main()
