// Names of models, domains and limits of requests, as the head decides and keeps them.
#include "core/control/decide/front_door.h"
#include "core/control/quotas.h"
#include "tests/unit/control/world.h"

namespace billow::control {
namespace {

struct FrontDoorRules : testing::Test {
  World w;
  const State& state() { return w.core.state(); }
  const FrontDoor& door() { return state().front_door; }
  void SetUp() override {
    w.must(AgentHello{offer("n1", 8), {}});
    for (const char* name : {"chat", "chat-b", "small"})
      w.must(endpoint(name));
    w.must(AddProject{"other"});
    w.must(AddUser{"mal"});
    w.must(SetMember{"other", "mal", roles::member});
    mal = state().user_by_name("mal")->id;
    w.must(endpoint("evil", "other"));
  }
  UserId mal;  // a member of the project that has the endpoint "evil"
  DeployEndpoint endpoint(std::string name, std::string project = "default") {
    DeployEndpoint deploy{.name = std::move(name), .project = std::move(project)};
    deploy.user = mal && deploy.project == "other" ? mal : state().users.begin()->first;
    deploy.spec.argv = {"serve"};
    return deploy;
  }
  void refused(const Command& command, Code code, std::string_view because) {
    const Status done = w.run(command);
    ASSERT_FALSE(done) << because;
    EXPECT_EQ(done.error().code, code) << done.error().message;
    EXPECT_NE(done.error().message.find(because), std::string::npos) << done.error().message;
    EXPECT_FALSE(done.error().hint.empty());
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
  const auto events = w.history.size();
  w.must(domain("Api.Example.org.", "chat"));
  EXPECT_EQ(w.history.size(), events) << "the same name";
  w.must(domain("api.example.ORG.", ""));
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
  EXPECT_EQ(door().domains.at("api.example.org").endpoint, "");
  EXPECT_TRUE(door().limits.empty());
}

// DNS still leads the name here, and clients still send their keys to it.
TEST_F(FrontDoorRules, ADomainOfADeletedEndpointStaysWithItsProject) {
  w.must(domain("api.example.org", "chat"));
  w.must(DeleteEndpoint{"chat"});
  SetDomain take = domain("API.example.org.", "evil");
  take.domain.user = mal;
  refused(take, Code::forbidden, "only an admin");
  w.must(domain(held_name("chat"), ""));
  w.must(endpoint("chat", "other"));
  EXPECT_EQ(door().domains.at("api.example.org").endpoint, "") << "the name alone gives nothing";
  w.must(domain("api.example.org", "small"));
  EXPECT_EQ(door().domains.at("api.example.org").endpoint, "small");
  w.must(DeleteEndpoint{"small"});
  w.must(domain("api.example.org", ""));
  EXPECT_FALSE(door().domains.contains("api.example.org"));
}

// Its clients still call it, with their prompts and cookies.
TEST_F(FrontDoorRules, ANameOfADeletedEndpointIsHeldForItsProject) {
  const ProjectId other = state().project_by_name("other")->id;
  const auto objects = objects_of(state(), QuotaScope::project, other.value, w.now);
  w.must(route("llama", {{"evil"}}));
  w.must(DeleteEndpoint{"evil"});
  EXPECT_EQ(objects_of(state(), QuotaScope::project, other.value, w.now), objects - 1);
  EXPECT_TRUE(served_front_door(state()).domains.empty());
  for (const char* name : {"evil", "EVIL", "llama"}) {
    refused(endpoint(name), Code::conflict, "is held for that project");
    refused(route(name, {{"chat"}}), Code::conflict, "is held for that project");
  }
  w.must(endpoint("evil", "other"));
  w.must(DeleteEndpoint{"evil"});
  w.now = w.now + (name_held_for - seconds(1));
  refused(endpoint("evil"), Code::conflict, "is held for that project");
  w.now = w.now + (seconds(1));
  w.must(endpoint("evil"));
}

TEST_F(FrontDoorRules, AHeldNameCanBeFreed) {
  w.must(route("llama", {{"chat"}}));
  w.must(route("llama", {}));
  refused(route("llama", {{"evil"}}), Code::conflict, "is held for that project");
  w.must(domain(held_name("llama"), ""));
  w.must(route("llama", {{"evil"}}));
  refused(domain(held_name("x"), "chat"), Code::invalid, "not a valid domain name");
}

TEST_F(FrontDoorRules, AProjectHoldsABoundedNumberOfNames) {
  for (std::size_t i = 0; i < held_names_max + 2; ++i) {
    w.must(route("m" + std::to_string(i), {{"evil"}}));
    w.must(route("m" + std::to_string(i), {}));
    w.now = w.now + (seconds(1));
  }
  EXPECT_EQ(door().domains.size(), held_names_max);
  w.must(route("m1", {{"chat"}}));
  refused(route("m2", {{"chat"}}), Code::conflict, "is held for that project");
}

TEST_F(FrontDoorRules, OnlyAdminsGiveProjectsHostNames) {
  SetDomain wanted = domain("gw.corp.example", "evil");
  wanted.domain.user = mal;
  refused(wanted, Code::forbidden, "only an admin");
  wanted.domain.user = {};
  refused(wanted, Code::forbidden, "only an admin");
  w.must(domain("gw.corp.example", "chat"));
  wanted.domain.user = mal;
  refused(wanted, Code::forbidden, "only an admin");
  w.must(domain("evil.example", "evil"));
  w.must(endpoint("evil-2", "other"));
  SetDomain moved = domain("evil.example", "evil-2");
  moved.domain.user = mal;
  w.must(moved);
  EXPECT_EQ(door().domains.at("evil.example").endpoint, "evil-2") << "its project has it already";
  moved.domain.endpoint = "chat";
  refused(moved, Code::forbidden, "only an admin");
}

TEST_F(FrontDoorRules, GatewaysKeepTheirOwnNames) {
  const GatewayNames own{.domains = {"Example.org", "apps.corp.example."},
                         .hosts = {"GW.corp.example:7071", "10.0.0.7:7071", "[::1]:7071"}};
  for (const char* name : {"example.org", "chat.example.org", "a.b.example.org", "gw.corp.example",
                           "apps.corp.example", "x.apps.corp.example", "localhost", "a.localhost"})
    EXPECT_FALSE(check_not_of_gateways(domain_name(name), own)) << name;
  EXPECT_FALSE(check_not_of_gateways(domain_name("GW.Corp.Example."), own));
  for (const char* name : {"notexample.org", "example.org.evil.com", "corp.example",
                           "x.corp.example", "chat.gw.corp.example"})
    EXPECT_TRUE(check_not_of_gateways(domain_name(name), own)) << name;
}

TEST_F(FrontDoorRules, AModelDoesNotTakeTheNameOfAnotherProjectsEndpoint) {
  refused(route("chat", {{"evil"}}), Code::conflict, "another project's endpoint");
  refused(route("CHAT", {{"evil"}}), Code::conflict, "another project's endpoint");
  w.must(route("chat", {{"chat-b"}}));
  w.must(route("GPT", {{"chat"}}));
  refused(route("gpt", {{"evil"}}), Code::conflict, "another project's model");
}

TEST_F(FrontDoorRules, AnEndpointDoesNotGetTheNameOfAnotherProjectsModel) {
  w.must(route("llama", {{"evil"}}));
  refused(endpoint("llama"), Code::conflict, "is a model of another project");
  refused(endpoint("Llama"), Code::conflict, "is a model of another project");
  w.must(endpoint("llama", "other"));
  w.must(route("gpt", {{"chat"}}));
  w.must(endpoint("gpt"));
}

TEST_F(FrontDoorRules, EndpointsDifferInMoreThanCase) {
  refused(endpoint("Chat", "other"), Code::conflict, "differs only in case");
  refused(endpoint("CHAT"), Code::conflict, "differs only in case");
  w.must(endpoint("chat"));  // its next revision
}

// Journals of versions before these rules have such pairs.
TEST_F(FrontDoorRules, AnEndpointsOwnNameWinsOverAnOldRoute) {
  w.must(route("llama", {{"evil"}}));
  w.must(route("gpt", {{"chat"}}));
  State old = restore(image(state())).value();
  Endpoint llama = old.endpoints.at("chat");
  llama.name = "llama";
  old.endpoints["llama"] = llama;
  const FrontDoorImage served = served_front_door(old);
  ASSERT_EQ(served.models.size(), 1);
  EXPECT_EQ(served.models.front().name, "gpt");
  EXPECT_EQ(served_front_door(state()).models.size(), 2);
}

TEST_F(FrontDoorRules, DomainsAndRoutesCountAsObjects) {
  const ProjectId other = state().project_by_name("other")->id;
  const auto objects = [&] {
    return objects_of(state(), QuotaScope::project, other.value, w.now);
  };
  const auto before = objects();
  w.must(domain("a.example", "evil"));
  w.must(route("m", {{"evil"}}));
  EXPECT_EQ(objects(), before + 2);
}

TEST_F(FrontDoorRules, AProjectHasAPartOfAllRoutes) {
  const std::size_t part = limits::model_routes_max / 8;
  for (std::size_t i = 0; i < part; ++i)
    w.must(route("m" + std::to_string(i), {{"evil"}}));
  const Status one_more = w.run(route("more", {{"evil"}}));
  ASSERT_FALSE(one_more);
  EXPECT_EQ(one_more.error().code, Code::exhausted);
  w.must(route("of-another-project", {{"chat"}}));
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
