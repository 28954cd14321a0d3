// Asynchronous calls: how many may wait and for whom, whose an idempotency key is, and which kept
// answers go first.
#include "base/limits.h"
#include "core/model/call_limits.h"
#include "world.h"

namespace billow::control {
namespace {

struct Calls : testing::Test {
  World w;
  int last = 0;
  void deploy(std::string name, EndpointAccess access, std::string project = "") {
    DeployEndpoint c{.name = std::move(name), .user = w.core.state().users.begin()->first};
    c.project = std::move(project);
    c.spec.argv = {"serve"};
    c.policy.access = access;
    w.must(c);
  }
  AsyncCall call(std::string endpoint, std::size_t bytes, std::string key = "") {
    AsyncCall c;
    c.id = "call-" + std::to_string(++last);
    c.endpoint = std::move(endpoint);
    c.method = "POST";
    c.target = "/";
    c.body = std::string(bytes, 'x');
    c.idempotency_key = std::move(key);
    return c;
  }
  // Until one is refused; how many were taken.
  int fill(const std::string& endpoint, std::size_t bytes) {
    for (int taken = 0;; ++taken) {
      const auto step = w.core.execute(AcceptCall{call(endpoint, bytes)}, {"gateway", ""}, w.now);
      if (step)
        continue;
      EXPECT_EQ(step.error().code, Code::exhausted);
      EXPECT_FALSE(step.error().hint.empty());
      return taken;
    }
  }
  std::size_t waiting_bytes() {
    std::size_t sum = 0;
    for (const auto& [id, c] : w.core.state().calls)
      sum += c.state == CallState::waiting ? c.body.size() : 0;
    return sum;
  }
};

constexpr std::size_t mib = 1 << 20;

TEST_F(Calls, WaitingCallsAreLimitedPerEndpointOpenAndOverall) {
  w.must(AddProject{"other"});
  deploy("open", EndpointAccess::open);
  deploy("closed", EndpointAccess::key);
  const int of_open = fill("open", mib);
  EXPECT_EQ(of_open,
            static_cast<int>(limits::async_waiting_of_open_endpoint_bytes_max / (mib + 1024)));
  const int of_closed = fill("closed", mib);
  EXPECT_EQ(of_closed,
            static_cast<int>(limits::async_waiting_of_endpoint_bytes_max / (mib + 1024)));
  for (int i = 0; i < 20; ++i) {
    deploy("flood-" + std::to_string(i), EndpointAccess::key);
    fill("flood-" + std::to_string(i), mib);
  }
  EXPECT_LE(waiting_bytes(), limits::async_waiting_bytes_max);
  EXPECT_GT(waiting_bytes(), limits::async_waiting_bytes_max - 2 * mib);
  // Whoever has nothing waiting gets in all the same.
  deploy("theirs", EndpointAccess::key, "other");
  EXPECT_EQ(fill("theirs", mib),
            static_cast<int>(limits::async_sure_of_project_bytes / (mib + 1024)));
}

TEST_F(Calls, OpenEndpointsTogetherHaveAPart) {
  w.must(AddProject{"other"});
  for (int i = 0; i < 10; ++i) {
    deploy("open-" + std::to_string(i), EndpointAccess::open);
    fill("open-" + std::to_string(i), mib);
  }
  EXPECT_LE(waiting_bytes(), limits::async_waiting_of_open_bytes_max);
  deploy("closed", EndpointAccess::local);
  EXPECT_GT(fill("closed", mib), 40);
}

TEST_F(Calls, ManySmallOnesHaveALimitToo) {
  deploy("open", EndpointAccess::open);
  EXPECT_EQ(fill("open", 10), static_cast<int>(limits::async_waiting_of_open_endpoint_max));
}

TEST_F(Calls, AnIdempotencyKeyBelongsToOneCallerAndRequest) {
  deploy("app", EndpointAccess::key);
  const auto accept = [&](std::string key) {
    return w.core.execute(AcceptCall{call("app", 1, std::move(key))}, {"gateway", ""}, w.now);
  };
  EXPECT_EQ(accept("bound:mine:one")->events.size(), 1U);
  EXPECT_TRUE(accept("bound:mine:one")->events.empty());
  const auto other_request = accept("bound:mine:two");
  ASSERT_FALSE(other_request);
  EXPECT_EQ(other_request.error().code, Code::conflict);
  EXPECT_EQ(accept("bound:theirs:one")->events.size(), 1U);
  // Of before keys were bound: as they are.
  EXPECT_EQ(accept("order:1")->events.size(), 1U);
  EXPECT_EQ(accept("order:2")->events.size(), 1U);
}

TEST_F(Calls, TheEndpointWithMostAnswersLosesItsOldest) {
  deploy("loud", EndpointAccess::open);
  deploy("quiet", EndpointAccess::key);
  const auto serve = [&](const std::string& endpoint, std::size_t bytes) {
    AsyncCall c = call(endpoint, 1);
    ASSERT_TRUE(w.core.execute(AcceptCall{c}, {"gateway", ""}, w.now));
    c.state = CallState::done;
    c.answer = std::string(bytes, 'y');
    w.now = w.now + milliseconds(1);
    ASSERT_TRUE(w.core.execute(EndCall{c}, {"gateway", ""}, w.now));
  };
  serve("quiet", mib);
  const std::string kept = "call-1", first = "call-2";
  const auto times = 2 * limits::async_kept_bytes_max / mib;
  for (std::size_t i = 0; i < times; ++i)
    serve("loud", mib);
  std::size_t bytes = 0;
  for (const auto& [id, c] : w.core.state().calls)
    bytes += c.answer.size();
  EXPECT_LE(bytes, limits::async_kept_bytes_max);
  EXPECT_GT(bytes, limits::async_kept_bytes_max - 2 * mib);
  EXPECT_TRUE(w.core.state().calls.contains(kept));
  EXPECT_FALSE(w.core.state().calls.contains(first));
  EXPECT_TRUE(check_invariants(w.core.state()));
}

}  // namespace
}  // namespace billow::control
