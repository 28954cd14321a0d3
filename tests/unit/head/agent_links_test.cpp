// Who may speak for a node that is connected already.
#include "head/agent_links.h"

#include <gtest/gtest.h>

#include "store/sim_journal.h"

namespace billow::head {
namespace {

struct HandClock final : Clock {
  WallTime wall() const override { return WallTime{1'800'000'000'000'000'000}; }
  SteadyTime steady() const override { return at; }
  SteadyTime at{1'000'000'000};
};

struct FakeLink final : AgentLink {
  std::vector<std::string> sent;
  bool is_open = true;
  bool send(const wire::agent_v1::ToAgent& message, std::string_view) override {
    if (holds_alternative<wire::agent_v1::Welcome>(message))
      sent.emplace_back("welcome");
    if (holds_alternative<wire::agent_v1::Refused>(message))
      sent.emplace_back("refused");
    return true;
  }
  bool open() const override { return is_open; }
  void close(std::string_view) override { is_open = false; }
  std::string peer() const override { return "10.0.0.1:1"; }
  bool welcome() const { return !sent.empty() && sent.front() == "welcome"; }
};

struct AgentLinksTest : testing::Test {
  HandClock clock;
  SimDisk disk;
  std::unique_ptr<SimJournal> journal = std::make_unique<SimJournal>(disk, 1);
  std::unique_ptr<Engine> engine;
  AgentLinks links{clock, [this]() -> Engine& {
                     return *engine;
                   }};

  AgentLinksTest() {
    JournalHooks hooks;
    hooks.on_durable = [this](Seq durable) {
      if (engine)
        engine->on_durable(durable);
    };
    journal->set_hooks(std::move(hooks));
    auto restored = Engine::restore(
        {.journal = journal.get(),
         .clock = &clock,
         .deliver = [](const control::Effect&) {},
         .observe = [](const control::State&, const Event&) -> std::function<void()> {
           return {};
         }},
        {});
    engine = std::move(*restored);
    run(StartHead{.version = "1",
                  .epoch = journal->epoch(),
                  .admin = "ana",
                  .admin_token_hash = "a",
                  .node_token_hash = "n"});
    for (const char* hash : {"one", "two"})
      run(CreateToken{
          .name = hash, .hash = hash, .user = "ana", .scope = TokenScope::node, .node = "box"});
  }
  void run(const Command& command) {
    engine->execute(command, {"user:ana", ""}, {});
    (void)journal->flush(seconds(1));
  }
  std::shared_ptr<FakeLink> opened(const char* credential) {
    auto link = std::make_shared<FakeLink>();
    link->credential = engine->state().token_by_hash.at(credential);
    return link;
  }
  void hello(const std::shared_ptr<FakeLink>& link, const std::string& boot = "boot") {
    wire::agent_v1::Hello h;
    h.version = wire::agent_v1::protocol_version_min;
    h.offer.name = "box";
    h.offer.boot_id = boot;
    links.hello(link, h);
    (void)journal->flush(seconds(1));
  }
  std::shared_ptr<FakeLink> hello(const char* credential) {
    auto link = opened(credential);
    hello(link);
    return link;
  }
};

TEST_F(AgentLinksTest, AKnownBootIdDoesNotTakeAConnectedNodeOver) {
  const auto agent = hello("one");
  ASSERT_TRUE(agent->welcome());
  const auto thief = hello("two");
  EXPECT_FALSE(thief->welcome());
  EXPECT_TRUE(agent->is_open) << "the agent is not disturbed";
  const auto again = hello("one");
  EXPECT_TRUE(again->welcome()) << "the agent itself connects again";
  EXPECT_FALSE(agent->is_open);
}

TEST_F(AgentLinksTest, ALateHelloChangesNothing) {
  const auto given_up = opened("one");
  const auto agent = hello("one");
  ASSERT_TRUE(agent->welcome());
  hello(given_up);
  EXPECT_FALSE(given_up->welcome());
  EXPECT_TRUE(agent->is_open);
}

// The machine lost its power and is here again; its agent has just been killed. What the last boot
// had sent arrives now, and knows nothing of the tasks of this one.
TEST_F(AgentLinksTest, ALateHelloOfAnEarlierBootChangesNothing) {
  const auto given_up = opened("one");
  const auto agent = opened("one");
  hello(agent, "second boot");
  ASSERT_TRUE(agent->welcome());
  links.closed(agent);
  hello(given_up, "first boot");
  EXPECT_FALSE(given_up->welcome());
  EXPECT_EQ(engine->state().node_by_name("box")->offer.boot_id, "second boot");
  const auto again = opened("one");
  hello(again, "second boot");
  EXPECT_TRUE(again->welcome());
}

TEST_F(AgentLinksTest, SilenceIsNoticedTenSecondsAfterTheLastFrame) {
  const auto link = hello("one");
  ASSERT_TRUE(link->welcome());
  link->heard = clock.at;
  const auto look = [&] {
    links.watch_silence([&](const AgentLinkPtr& cut) { links.closed(cut); });
    (void)journal->flush(seconds(1));
  };
  const auto box = [&]() -> const Node& {
    return *engine->state().node_by_name("box");
  };
  const SteadyTime heard = clock.at;
  clock.at = heard + seconds(9);
  look();
  EXPECT_TRUE(box().reachable);
  clock.at = heard + seconds(11);  // the link is cut, and the node is silent since it was heard
  look();
  EXPECT_FALSE(link->is_open);
  EXPECT_FALSE(box().reachable);
}

}  // namespace
}  // namespace billow::head
