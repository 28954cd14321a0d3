// What a process does at the wrong moment: it exits, crashes, forks, ends its context … while it is
// being suspended or resumed. Every such transition meets the suspend and the resume at every call
// that the shim makes to the driver, and the other way round. Whatever the order, the process ends
// as the program meant, and the job is running, suspended or without processes; nothing waits for
// ever, and memory that is still there is right.
#include "tests/unit/shim/fixture.h"

namespace {

using namespace shimtest;

class Lifecycle : public Shim {
 protected:
  // Suspends and resumes once. Errors are allowed as long as the job's state is one of the three.
  void suspend_and_resume(bool cold) {
    const auto out = call_service(
        dir_ + "/admin",
        std::string("suspend name=job timeout_ms=3000 mode=") + (cold ? "cold" : "warm"), 30000);
    std::string phase = job("job")["phase"];
    EXPECT_EQ(phase, out ? "suspended" : "running") << (out ? "" : out.error().message);
    if (phase != "suspended")
      return;
    const auto in = call_service(dir_ + "/admin", "resume name=job", 30000);
    EXPECT_TRUE(in.has_value()) << in.error().message;
    EXPECT_TRUE(!in || !in->values.contains("lost")) << "its memory did not come back";
    EXPECT_EQ(job("job")["phase"], "running");
  }
  // False: the transition has fewer calls than n.
  bool meet(const std::string& kind, const std::string& transition, int n, int expected) {
    const bool cold = n % 5 == 4;
    Child c({LIFECYCLE_PROGRAM, kind, transition, std::to_string(n)},
            environment("token-of-job", true));
    EXPECT_EQ(c.line(), "ready");
    std::string held;
    if (kind == "shim") {
      suspend_and_resume(cold);
      c.poke();
      held = c.line();
    } else {
      c.poke();
      held = c.line();  // or nothing, if it ended before
      suspend_and_resume(cold);
    }
    const int status = c.wait(20);
    EXPECT_EQ(status, expected) << "the process did not end as it should";
    EXPECT_TRUE(eventually([&] { return job("job")["pids"] == "-"; }));
    EXPECT_EQ(job("job")["phase"], "running");
    return held == "held";
  }
  void meets(const std::string& transition, int expected) {
    add("job", 256);
    for (const char* kind : {"shim", "program"}) {
      int n = 0;
      while (n < 200) {
        SCOPED_TRACE(std::string(kind) + " held at call " + std::to_string(n) + " of " +
                     transition);
        if (!meet(kind, transition, n, expected) || HasFailure())
          break;
        n++;
      }
      EXPECT_LT(n, 200);
      RecordProperty(std::string(kind) + "_schedules", n);
    }
  }
};

TEST_F(Lifecycle, Exit) {
  meets("exit", 7);
}
TEST_F(Lifecycle, ExitWithThreadsThatUseTheGpu) {
  meets("exit_with_threads", 7);
}
TEST_F(Lifecycle, QuickExit) {
  meets("quick_exit", 7);
}
TEST_F(Lifecycle, Crash) {
  meets("crash", -SIGABRT);
}
TEST_F(Lifecycle, ExitFromASignalHandler) {
  meets("signal_handler", 7);
}
TEST_F(Lifecycle, ASignalHandlerThatUsesTheGpu) {
  meets("handler_that_calls", 0);
}
TEST_F(Lifecycle, DeviceReset) {
  meets("reset", 0);
}
TEST_F(Lifecycle, ContextDestroyed) {
  meets("context_end", 0);
}
TEST_F(Lifecycle, Fork) {
  meets("fork", 0);
}
TEST_F(Lifecycle, Exec) {
  meets("exec", 7);
}
TEST_F(Lifecycle, FreeAndAllocate) {
  meets("free_and_alloc", 0);
}
TEST_F(Lifecycle, ExitOfOneProcessOfTwo) {
  add("job", 256);
  Child stays({LIFECYCLE_PROGRAM, "program", "free_and_alloc", "0"},
              environment("token-of-job", true));
  ASSERT_EQ(stays.line(), "ready");
  int n = 0;
  for (bool held = true; held && n < 200 && !HasFailure(); ++n) {
    SCOPED_TRACE("held at call " + std::to_string(n));
    Child ends({LIFECYCLE_PROGRAM, "shim", "driver_end", std::to_string(n)},
               environment("token-of-job", true));
    ASSERT_EQ(ends.line(), "ready");
    const auto out = call_service(dir_ + "/admin", "suspend name=job timeout_ms=3000", 30000);
    EXPECT_TRUE(out.has_value()) << out.error().message;
    const auto in = call_service(dir_ + "/admin", "resume name=job", 30000);
    EXPECT_TRUE(in.has_value()) << in.error().message;
    ends.poke();
    held = ends.line() == "held";
    EXPECT_EQ(ends.wait(20), 7);
  }
  EXPECT_GT(n, 5);
  stays.poke();
  EXPECT_EQ(stays.wait(20), 0) << "its memory is right";
}
TEST_F(Lifecycle, Polling) {
  meets("polling", 0);
}
TEST_F(Lifecycle, EndOfThreads) {
  meets("thread_end", 0);
}

}  // namespace
