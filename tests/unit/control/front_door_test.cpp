// Names of models, domains and limits of requests, as the head decides and keeps them.
#include "tests/unit/control/world.h"

namespace billow::control {
namespace {

struct FrontDoorRules : testing::Test {
  World w;
  const State& state() { return w.core.state(); }
  const FrontDoor& door() { return state().front_door; }
  void SetUp() override {
    w.must(AgentHello{offer("n1", 8), {}});
    for (const char* name : {"chat", "chat-b", "small"}) {
      DeployEndpoint deploy{.name = name, .project = "default"};
      deploy.user = state().users.begin()->first;
      deploy.spec.argv = {"serve"};
      w.must(deploy);
    }
  }
  SetModelRoute route(std::string name,
                      std::vector<ModelTarget> to,
                      std::vector<std::string> fallbacks = {}) {
    SetModelRoute command;
    command.route.name = std::move(name);
    command.route.user = state().users.begin()->first;
    command.route.to = std::move(to);
    command.route.fallbacks = std::move(fallbacks);
    return command;
  }
  SetDomain domain(std::string name, std::string endpoint) {
    SetDomain command;
    command.domain.name = std::move(name);
    command.domain.endpoint = std::move(endpoint);
    command.domain.user = state().users.begin()->first;
    return command;
  }
  void TearDown() override { w.check_replay(); }
};

TEST_F(FrontDoorRules, ARouteIsKeptChangedAndRemoved) {
  w.must(route("org/gpt:1", {{"chat", 90}, {"chat-b", 10}}, {"small"}));
  EXPECT_EQ(door().models.at("org/gpt:1").to.size(), 2);
  const auto events = w.history.size();
  w.must(route("org/gpt:1", {{"chat", 90}, {"chat-b", 10}}, {"small"}));
  EXPECT_EQ(w.history.size(), events) << "nothing has changed";
  w.must(route("org/gpt:1", {{"chat"}}));
  EXPECT_TRUE(door().models.at("org/gpt:1").fallbacks.empty());
  w.must(route("org/gpt:1", {}));
  EXPECT_TRUE(door().models.empty());
  EXPECT_FALSE(w.run(route("org/gpt:1", {}))) << "it is gone";
}

TEST_F(FrontDoorRules, WrongRoutesAreRefused) {
  EXPECT_FALSE(w.run(route("a", {{"nosuch"}})));
  EXPECT_FALSE(w.run(route("a", {{"chat"}}, {"nosuch"})));
  EXPECT_FALSE(w.run(route("a", {{"chat"}, {"chat"}})));
  EXPECT_FALSE(w.run(route("a", {{"chat"}}, {"chat"})));
  EXPECT_FALSE(w.run(route("a", {{"chat", 0}})));
  EXPECT_FALSE(w.run(route("a", {}, {"chat"})));
  for (const char* name : {"", "-a", "a b", "a\"b", "a\nb", "/a"})
    EXPECT_FALSE(w.run(route(name, {{"chat"}}))) << name;
}

TEST_F(FrontDoorRules, DomainsAreHostNames) {
  w.must(domain("API.Example.org", "chat"));
  EXPECT_EQ(door().domains.at("api.example.org").endpoint, "chat");
  for (const char* name : {"localhost", "10.0.0.7", "a..b", "-a.org", "a.org/x", "a.org:80",
                           "*.a.org", "a_b.org", "", "."})
    EXPECT_FALSE(w.run(domain(name, "chat"))) << name;
  EXPECT_FALSE(w.run(domain("a.org", "nosuch")));
  w.must(domain("api.example.org", ""));
  EXPECT_TRUE(door().domains.empty());
}

// A later endpoint of the same name may belong to somebody else.
TEST_F(FrontDoorRules, NothingLeadsToADeletedEndpoint) {
  w.must(route("a", {{"chat"}, {"small"}}, {"chat-b"}));
  w.must(route("b", {{"chat"}}, {"small"}));
  w.must(domain("api.example.org", "chat"));
  w.must(SetRequestLimits{{.endpoint = "chat", .body_bytes_max = 10}});
  w.must(DeleteEndpoint{"chat"});
  EXPECT_EQ(door().models.at("a").to, std::vector<ModelTarget>({{"small"}}));
  EXPECT_FALSE(door().models.contains("b"));
  EXPECT_TRUE(door().domains.empty());
  EXPECT_TRUE(door().limits.empty());
}

TEST_F(FrontDoorRules, LimitsOfZeroAreNone) {
  w.must(SetRequestLimits{{.endpoint = "chat", .body_bytes_max = 10, .header_bytes_max = 20}});
  EXPECT_EQ(door().limits.at("chat").header_bytes_max, 20);
  w.must(SetRequestLimits{{.endpoint = "chat"}});
  EXPECT_TRUE(door().limits.empty());
  EXPECT_FALSE(w.run(SetRequestLimits{{.endpoint = "nosuch", .body_bytes_max = 1}}));
}

}  // namespace
}  // namespace billow::control
