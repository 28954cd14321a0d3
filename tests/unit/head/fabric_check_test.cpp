// Who is asked again, and who is not waited for: agents that say hello anew while the roll is
// called, and those that never answer.
#include "head/fabric_check.h"

#include <gtest/gtest.h>

namespace billow::head {
namespace {

using namespace wire::fabric_v1;

struct Fleet {
  net::Loop loop;
  control::State state;
  int refusals = 0;  // sends that find nobody there
  int lost = 0;      // asks that arrive and whose answers do not
  std::vector<Step> asked;
  std::optional<Result<Json>> result;
  FabricCheck check{{.loop = &loop,
                     .state = [this]() -> const control::State& { return state; },
                     .send = [this](NodeId node, const Ask& ask) { return send(node, ask); },
                     .now =
                         [] {
                           return WallTime{};
                         }}};

  Fleet() {
    Node node;
    node.id = NodeId{1};
    node.offer.name = "a";
    state.nodes.emplace(node.id, node);
  }
  bool send(NodeId node, const Ask& ask) {
    if (refusals > 0) {
      --refusals;
      return false;
    }
    asked.push_back(ask.step);
    if (lost > 0) {
      --lost;
      return true;
    }
    loop.post([this, node, id = ask.id] { check.take(node, Answer{.id = id}); });
    return true;
  }
  Json run() {
    loop.post([this] {
      check.start({NodeId{1}}, [this](Result<Json> done) {
        result = std::move(done);
        loop.stop();
      });
    });
    loop.run();
    return result->value();
  }
};

std::string why_not(const Json& result) {
  return result["nodes"].items().at(0)["why_not"].as_string();
}

TEST(FabricCheck, AnAgentThatIsBackInAMomentIsAskedAgain) {
  Fleet fleet;
  fleet.refusals = 2;
  EXPECT_EQ(why_not(fleet.run()), "it has no GPU");
  EXPECT_EQ(fleet.asked, std::vector<Step>{Step::keep});
}

TEST(FabricCheck, AnAnswerLostOnTheWayIsAskedForAgain) {
  Fleet fleet;
  fleet.lost = 1;
  EXPECT_EQ(why_not(fleet.run()), "it has no GPU");
  EXPECT_EQ(fleet.asked, (std::vector<Step>{Step::keep, Step::keep}));
}

TEST(FabricCheck, ANodeThatIsKnownToBeAwayIsNotWaitedFor) {
  Fleet fleet;
  fleet.state.nodes.at(NodeId{1}).reachable = false;
  fleet.refusals = 1;
  EXPECT_EQ(why_not(fleet.run()), "its agent is not connected");
  EXPECT_TRUE(fleet.asked.empty());
}

}  // namespace
}  // namespace billow::head
