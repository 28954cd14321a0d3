"""Functions that behave badly, and callers that do: each call has an outcome, and workers go on."""
import asyncio
import dataclasses
import gc
import os
import threading
import time
import unittest

from rig import poll
from sdk_rig import SdkTest, billow

MIB = 1 << 20


class Unspeakable(Exception):
    def __str__(self):
        raise RuntimeError("no message")


class Unbuildable(Exception):
    def __init__(self, one, two):
        super().__init__("only one argument is kept")


class Explosive(Exception):
    def __reduce__(self):
        raise KeyboardInterrupt


class Holder(Exception):
    def __init__(self, text):
        super().__init__(text)
        self.lock = threading.Lock()


class Slotted(Exception):
    def __init__(self, text, extra=None):
        super().__init__(text)
        self.extra = extra
        self.me = self


@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    code: int


@billow.function(max=1)
def odd(kind):
    if kind == "cause":
        try:
            {}["missing"]
        except KeyError as problem:
            raise ValueError("outer") from problem
    if kind == "deep":

        def down(n):
            return down(n + 1)

        down(0)
    raise {
        "unspeakable": lambda: Unspeakable(),
        "unbuildable": lambda: Unbuildable(1, 2),
        "explosive": lambda: Explosive("x"),
        "holder": lambda: Holder("has a lock"),
        "frozen": lambda: Frozen(7),
        "slotted": lambda: Slotted("with itself", extra=[1]),
        "system": lambda: SystemExit(3),
        "keyboard": lambda: KeyboardInterrupt(),
        "generator": lambda: GeneratorExit(),
        "api": lambda: billow.ApiError(409, "refused", "do this", "conflict"),
        "job": lambda: billow.JobFailed("job 7 failed", 7, 3),
        "group": lambda: RuntimeError("x" * 1_000_000),
    }[kind]()


@billow.function(max=1)
def worker_pid(_=None):
    return os.getpid()


@billow.function(max=1)
def size(value):
    return len(value)


@billow.function(max=1)
def big(count):
    return b"x" * count


@billow.function(max=1)
def locked(_):
    return threading.Lock()


@billow.function(max=1)
def endless(path):
    try:
        for i in range(10**9):
            yield i
    finally:
        with open(path, "a", encoding="ascii") as file:
            file.write("closed\n")


class OnlyThere:
    """Can be built in a worker and nowhere else."""

    def __setstate__(self, state):
        if not billow.is_worker():
            raise RuntimeError("not here")
        self.__dict__.update(state)


@billow.function(max=1)
def strange_items():
    yield 1
    item = OnlyThere()
    item.x = 1
    yield item
    yield 3


@billow.function(max=1, timeout=1)
def slow_items():
    for i in range(100):
        yield b"x" * MIB
        time.sleep(0.05)


@billow.function(max=1)
async def async_items(n):
    for i in range(n):
        await asyncio.sleep(0)
        yield i


@billow.function(max=1, concurrency=2, timeout=0.5)
def slow_thread(seconds):
    time.sleep(seconds)
    return "in time"


@billow.function(max=1, timeout=3)
def waits_for_itself(n):
    return [n] if n == 0 else list(waits_for_itself.map([n - 1]))


@billow.function(max=1)
@billow.batched(max=8, wait_ms=20)
def doubled(xs):
    assert isinstance(xs, list)
    return [2 * x for x in xs]


@billow.function(max=2)
def note(path, i):
    with open(path, "a", encoding="ascii") as file:
        file.write(f"{i}\n")
    return i


@billow.cls(max=1)
class Parentheses:
    @billow.enter()
    def load(self):
        self.base = 40

    @billow.method()
    def add(self, n):
        return self.base + n


class Hostile(SdkTest):
    def test_exceptions_with_odd_attributes(self):
        first = worker_pid.remote()
        for kind, expected, said in (
            ("unbuildable", billow.RemoteError, "only one argument"),
            ("explosive", billow.RemoteError, "Explosive"),
            ("holder", billow.RemoteError, "has a lock"),
            ("slotted", Slotted, "with itself"),
            ("system", billow.RemoteError, "SystemExit"),
            ("keyboard", billow.RemoteError, "KeyboardInterrupt"),
            ("generator", billow.RemoteError, "GeneratorExit"),
            ("deep", RecursionError, "recursion"),
            ("api", billow.ApiError, "do this"),
            ("job", billow.JobFailed, "job 7"),
            ("group", RuntimeError, "xxx"),
        ):
            with self.subTest(kind), self.assertRaisesRegex(expected, said) as caught:
                odd.remote(kind)
            self.assertIn("hostile_test.py", str(caught.exception.__cause__), kind)
        with self.assertRaises(Unspeakable) as unspeakable:
            odd.remote("unspeakable")
        self.assertIn("str() failed", str(unspeakable.exception.__cause__))
        with self.assertRaises(Exception) as frozen:
            odd.remote("frozen")
        self.assertIn("Frozen", str(type(frozen.exception)) + str(frozen.exception))
        with self.assertRaises(ValueError) as chained:
            odd.remote("cause")
        self.assertIn("KeyError: 'missing'", str(chained.exception.__cause__))
        with self.assertRaises(billow.ApiError) as api:
            odd.remote("api")
        self.assertEqual((api.exception.status, api.exception.code), (409, "conflict"))
        jobs = [r["job"] for r in odd.info["replicas"]]
        self.assertEqual(len(jobs), 1, "the worker was never lost")
        self.assertEqual(worker_pid.remote(), first)

    def test_what_cannot_be_pickled(self):
        with self.assertRaisesRegex(TypeError, "argument cannot be sent .*inside the function"):
            size.remote(threading.Lock())
        with self.assertRaisesRegex(TypeError, "argument cannot be sent"):
            size.spawn(threading.Event())
        with self.assertRaisesRegex(TypeError, "result cannot be pickled"):
            locked.remote(0)
        mixed = ["ab", threading.Lock(), "c", (i for i in "x"), "defg"]
        results = list(size.map(mixed, return_exceptions=True))
        self.assertEqual([results[0], results[2], results[4]], [2, 1, 4])
        self.assertIsInstance(results[1], TypeError)
        self.assertIsInstance(results[3], TypeError)
        got = []
        with self.assertRaises(TypeError):
            for each in size.map(mixed):
                got.append(each)
        self.assertEqual(got, [2], "what came before the mistake")

    def test_huge_arguments_and_results(self):
        self.assertEqual(size.remote(b"x" * (300 * MIB)), 300 * MIB)
        self.assertEqual(len(big.remote(300 * MIB)), 300 * MIB)
        self.assertEqual(size.remote(list(range(2_000_000))), 2_000_000)
        self.assertEqual(list(size.map([b"y" * (20 * MIB)] * 5)), [20 * MIB] * 5)
        deep = value = []
        for _ in range(100_000):
            value.append([])
            value = value[0]
        with self.assertRaisesRegex(TypeError, "recursion"):
            size.remote(deep)
        self.assertEqual(size.remote("small"), 5)

    def test_generators_end_early_and_strangely(self):
        path = self.rig.file("endless")
        values = endless.remote(path)
        self.assertEqual([next(values) for _ in range(100)], list(range(100)))
        values.close()
        poll(lambda: os.path.exists(path), "the generator in the worker was closed")
        dropped = endless.remote(path)
        next(dropped)
        del dropped
        gc.collect()
        poll(lambda: open(path).read().count("closed") == 2, "also one that was only dropped")
        items = strange_items.remote()
        self.assertEqual(next(items), 1)
        with self.assertRaisesRegex(billow.Error, "cannot be loaded here"):
            next(items)
        self.assertEqual(next(strange_items.remote()), 1, "the worker goes on")
        with self.assertRaises(billow.CallTimeout):
            for _ in slow_items.remote():
                pass
        self.assertEqual(list(async_items.remote(5)), [0, 1, 2, 3, 4])

        async def collected():
            return [each async for each in async_items.aiter(3)]

        self.assertEqual(asyncio.run(collected()), [0, 1, 2])
        for call in (endless.spawn, endless.map, lambda x: asyncio.run(endless.aio(x))):
            with self.assertRaisesRegex(TypeError, "is a generator"):
                call([path])

    def test_time_limits_in_threads(self):
        self.assertEqual(slow_thread.remote(0), "in time")
        began = time.monotonic()
        with self.assertRaisesRegex(billow.CallTimeout, "longer than 0.5 s"):
            slow_thread.remote(5)
        self.assertLess(time.monotonic() - began, 5, "its caller does not wait for the thread")

    def test_a_function_that_waits_for_itself_ends_with_its_time_limit(self):
        self.assertEqual(waits_for_itself.remote(0), [0])
        with self.assertRaises(billow.CallTimeout):
            waits_for_itself.remote(1)
        self.assertEqual(waits_for_itself.remote(0), [0], "the worker is free again")

    def test_thousands_of_dropped_futures_run_and_leave_nothing(self):
        path = self.rig.file("dropped")
        note.deploy()
        for i in range(3000):
            note.spawn(path, i)
        gc.collect()

        def written():
            with open(path, encoding="ascii") as file:
                return sorted(map(int, file.read().split()))

        poll(lambda: os.path.exists(path) and len(written()) >= 3000, "all calls ran", 120)
        self.assertEqual(written(), list(range(3000)), "each once")
        threads = [t for t in threading.enumerate() if t.name.startswith("billow-call")]
        self.assertLess(len(threads), 64)
        many = [note.spawn(path, 10_000 + i) for i in range(2000)]
        for each in many:
            each.cancel()
        self.assertEqual(note.remote(path, -1), -1, "cancelled calls do not hold it up")

    def test_other_options_keep_the_rest(self):
        again = doubled.with_options(max=2)
        self.assertEqual(list(again.map(range(20))), [2 * i for i in range(20)])
        names = [
            self.script(
                "import billow\n@billow.function\ndef f(x):\n    return x\n"
                "print(f.with_options(gpus=0.5).name)\n"
            ).stdout
            for _ in range(2)
        ]
        self.assertTrue(names[0])
        self.assertEqual(names[0], names[1], "the same endpoint in each process")
        again.delete()

    def test_decorators_with_parentheses(self):
        self.assertEqual(Parentheses().add.remote(2), 42)
        self.assertEqual(Parentheses.local().add(3), 43)


if __name__ == "__main__":
    unittest.main()
