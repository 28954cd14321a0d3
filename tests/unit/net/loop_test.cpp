#include <atomic>
#include <csignal>
#include <thread>

#include "net/workers.h"
#include "net_test_support.h"

namespace billow::net {

TEST(Loop, TimersFireAndStopWithTheirHandle) {
  Loop loop;
  int ticks = 0, never = 0;
  Timer every = loop.every(milliseconds(1), [&] {
    if (++ticks == 3)
      every.cancel();
  });
  {
    Timer dropped = loop.after(milliseconds(1), [&] { ++never; });
  }
  bool once = false;
  Timer after = loop.after(milliseconds(20), [&] { once = true; });
  ASSERT_TRUE(loop.run_until([&] { return once && ticks == 3; }, patience));
  bool later = false;
  Timer wait = loop.after(milliseconds(10), [&] { later = true; });
  ASSERT_TRUE(loop.run_until([&] { return later; }, patience));
  EXPECT_EQ(ticks, 3);
  EXPECT_EQ(never, 0);
}

TEST(Loop, ATimerMayReplaceItself) {
  Loop loop;
  int count = 0;
  Timer timer;
  std::function<void()> again = [&] {
    if (++count < 5)
      timer = loop.after(microseconds(10), again);
  };
  timer = loop.after(microseconds(10), again);
  EXPECT_TRUE(loop.run_until([&] { return count == 5; }, patience));
}

// When such a callback is dropped, its timer's destructor comes back to the loop: this destroyed
// the callback twice.
TEST(Loop, ACallbackMayOwnItsOwnTimer) {
  Loop loop;
  const auto owned = std::make_shared<int>(0);
  bool ran = false;
  {
    auto timer = std::make_shared<Timer>();
    *timer = loop.after(milliseconds(1), [&ran, timer, owned] { ran = true; });
  }
  EXPECT_EQ(owned.use_count(), 2);
  ASSERT_TRUE(loop.run_until([&] { return ran; }, patience));
  EXPECT_EQ(owned.use_count(), 1);
}

TEST(Loop, PostsFromThreadsComeInOrderAndAThrowDoesNotEndTheLoop) {
  Loop loop;
  std::vector<int> got;
  std::thread other([&] {
    loop.post([] { throw std::runtime_error("thrown on purpose"); });
    for (int i = 0; i < 1000; ++i)
      loop.post([&, i] { got.push_back(i); });
    loop.post([&] { loop.stop(); });
  });
  loop.run();
  other.join();
  ASSERT_EQ(got.size(), 1000u);
  EXPECT_TRUE(std::is_sorted(got.begin(), got.end()));
}

TEST(Loop, WatchesDescriptorsBothWays) {
  Loop loop;
  int pair[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
  Fd a(pair[0]), b(pair[1]);
  int readable = 0;
  bool writable = false;
  std::string got;
  Watch read = loop.on_readable(a.get(), [&] {
    char c;  // one byte at a time: the watch must come again while there is more
    if (::read(a.get(), &c, 1) == 1)
      got += c;
    ++readable;
  });
  Watch write = loop.on_writable(b.get(), [&] {
    writable = true;
    write.cancel();
    EXPECT_EQ(::write(b.get(), "abc", 3), 3);
  });
  ASSERT_TRUE(loop.run_until([&] { return got == "abc"; }, patience));
  EXPECT_TRUE(writable);
  EXPECT_EQ(readable, 3);
  read.cancel();
  ASSERT_EQ(::write(b.get(), "d", 1), 1);
  bool later = false;
  Timer t = loop.after(milliseconds(5), [&] { later = true; });
  ASSERT_TRUE(loop.run_until([&] { return later; }, patience));
  EXPECT_EQ(got, "abc");
}

// run() stays with descriptors while they are busy; everything else must have its turn too.
TEST(Loop, BusyDescriptorsHoldUpNeitherTimersNorPostsNorTheEnd) {
  Loop loop;
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const Fd in(ends[0]), out(ends[1]);
  ASSERT_EQ(::write(out.get(), "x", 1), 1);
  // Never read: it is readable in every turn.
  std::uint64_t turns = 0;
  const Watch busy = loop.on_readable(in.get(), [&] { ++turns; });
  int fired = 0;
  const Timer timer = loop.every(milliseconds(5), [&] { ++fired; });
  std::atomic<int> posted = 0;
  std::atomic<bool> over = false;
  const auto begun = system_clock().steady();
  std::thread other([&] {
    while (posted < 20 && !over) {
      const int before = posted;
      loop.post([&] { ++posted; });
      while (posted == before && !over)
        std::this_thread::yield();
    }
    loop.stop();
  });
  const Timer give_up = loop.after(seconds(20), [&] { loop.stop(); });
  loop.run();
  over = true;
  other.join();
  EXPECT_EQ(posted, 20) << "posts of another thread run";
  EXPECT_GT(turns, 0u);
  const auto took = system_clock().steady() - begun;
  EXPECT_LT(took, seconds(10));
  // And timers, while nothing is posted.
  fired = 0;
  const Timer end = loop.after(milliseconds(300), [&] { loop.stop(); });
  loop.run();
  EXPECT_GE(fired, 5) << "of about sixty";
}

// A post that comes while the loop waits for the next event of its descriptors is not late.
TEST(Loop, APostInterruptsTheWaitForEvents) {
  Loop loop;
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const Fd in(ends[0]), out(ends[1]);
  const Watch reader = loop.on_readable(in.get(), [&] {
    char byte = 0;
    (void)!::read(in.get(), &byte, 1);
  });
  std::atomic<int> done = 0;
  std::thread other([&] {
    for (int i = 1; i <= 500; ++i) {
      (void)!::write(out.get(), "x", 1);
      loop.post([&] { ++done; });
      while (done < i)
        std::this_thread::yield();
    }
    loop.stop();
  });
  loop.run();
  other.join();
  EXPECT_EQ(done, 500);
}

TEST(Loop, SignalsArriveOnTheLoop) {
  Loop loop;
  int signal = 0;
  Watch watch = loop.on_signal({SIGUSR1, SIGUSR2}, [&](int s) { signal = s; });
  ::raise(SIGUSR2);
  EXPECT_TRUE(loop.run_until([&] { return signal == SIGUSR2; }, patience));
}

TEST(Workers, ResultsComeBackOnTheLoopAndTheQueueIsBounded) {
  Loop loop;
  std::mutex gate;
  gate.lock();
  int done = 0;
  {
    Workers workers(loop, {.threads = 1, .queue_max = 2});
    int accepted = 0;
    const auto loop_thread = std::this_thread::get_id();
    Status last;
    for (int i = 0; i < 5 && last; ++i) {
      last = workers.submit(
          [&] {
            std::lock_guard hold(gate);
            return 7;
          },
          [&](int seven) {
            EXPECT_EQ(seven, 7);
            EXPECT_EQ(std::this_thread::get_id(), loop_thread);
            ++done;
          });
      accepted += last.has_value();
    }
    ASSERT_FALSE(last);
    EXPECT_EQ(last.error().code, Code::exhausted);
    EXPECT_LE(accepted, 3);
    gate.unlock();
    EXPECT_TRUE(loop.run_until([&] { return done == accepted; }, patience));
  }
}

}  // namespace billow::net
