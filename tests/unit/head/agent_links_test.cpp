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
  std::shared_ptr<FakeLink> hello(const char* credential, std::int64_t sent_at_s) {
    auto link = std::make_shared<FakeLink>();
    link->credential = engine->state().token_by_hash.at(credential);
    wire::agent_v1::Hello h;
    h.version = wire::agent_v1::protocol_version_min;
    h.offer.name = "box";
    h.offer.boot_id = "boot";
    h.sent_at = SteadyTime{sent_at_s * 1'000'000'000};
    links.hello(link, h);
    (void)journal->flush(seconds(1));
    return link;
  }
};

TEST_F(AgentLinksTest, AKnownBootIdDoesNotTakeAConnectedNodeOver) {
  const auto agent = hello("one", 100);
  ASSERT_TRUE(agent->welcome());
  const auto thief = hello("two", 200);
  EXPECT_FALSE(thief->welcome());
  EXPECT_TRUE(agent->is_open) << "the agent is not disturbed";
  const auto again = hello("one", 300);
  EXPECT_TRUE(again->welcome()) << "the agent itself connects again";
  EXPECT_FALSE(agent->is_open);
}

TEST_F(AgentLinksTest, AHelloFromTheFutureDoesNotLockTheAgentOut) {
  const auto future = hello("one", 1'000'000'000);
  ASSERT_TRUE(future->welcome());
  EXPECT_TRUE(hello("one", 200)->welcome());
}

TEST_F(AgentLinksTest, ALateHelloChangesNothing) {
  const auto agent = hello("one", 200);
  ASSERT_TRUE(agent->welcome());
  EXPECT_FALSE(hello("one", 199)->welcome());
  EXPECT_TRUE(agent->is_open);
}

TEST_F(AgentLinksTest, SilenceIsNoticedTenSecondsAfterTheLastFrame) {
  const auto link = hello("one", 1);
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
