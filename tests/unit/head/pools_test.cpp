// What the head believes of a provider's lists and answers: machines that a list lacks, orders that
// are under way, answers that were lost, and wall clocks that are set.
#include "tests/unit/head/pooled.h"

namespace billow::head::pools_tests {
namespace {

TEST_F(Pooled, AMachineThatWasNeverCreatedIsForgottenThoughTheClockWasSetBack) {
  script.want = no_answer;
  order_in_vain();
  clock.wall_now = clock.wall_now - hours(6);
  pass(minutes(4));
  EXPECT_TRUE(has("cloud-1")) << "a list may lag by five minutes";
  pass(minutes(12));
  EXPECT_FALSE(has("cloud-1")) << "every list since then seems to be older than its order";
}

TEST_F(Pooled, AMachineMayBeListedLateThoughTheClockWasSetForward) {
  script.want = no_answer;
  order_in_vain();
  pass(seconds(20));
  clock.wall_now = clock.wall_now + hours(6);
  pass(minutes(2));
  ASSERT_TRUE(has("cloud-1")) << "it is forgotten, and its costs with it";
  script.listed = {sighting("i-1")};
  pass(seconds(20));
  ASSERT_FALSE(script.released.empty());
  EXPECT_EQ(script.released.front(), "i-1");
  script.listed[0].ended = true;
  script.listed[0].billed_to = script.listed[0].billed_from + minutes(1);
  pass(seconds(20));
  ASSERT_EQ(state().machine_bills.size(), 1u);
  EXPECT_EQ(state().machine_bills[0].amount.value, 60'000);
}

TEST_F(Pooled, AMachineIsNotForgottenWhileItsOrderIsUnderWay) {
  script.hold = true;
  order_in_vain();
  pass(minutes(8));
  ASSERT_TRUE(has("cloud-1")) << "the order may still bring it";
  for (const auto& answer : std::exchange(script.held, {}))
    answer();
  pass(minutes(4));
  EXPECT_TRUE(has("cloud-1")) << "a list may lag by five minutes";
  pass(minutes(2));
  EXPECT_FALSE(has("cloud-1"));
}

TEST_F(Pooled, AMachineThatAppearsLateMayBeOmittedOnceMore) {
  script.want = no_answer;
  order_in_vain();
  pass(minutes(5) + seconds(15));
  ASSERT_TRUE(has("cloud-1")) << "one list after the lag ended it";
  script.listed = {sighting("i-1")};
  pass(seconds(20));
  ASSERT_FALSE(script.released.empty()) << "it is billed";
}

TEST_F(Pooled, ARefusalAfterALostAnswerDoesNotMeanThatThereIsNoMachine) {
  int orders = 0;
  script.want = [&](const pool::Order& order) -> pool::Ordered {
    if (++orders == 1)
      return no_answer(order);
    return std::unexpected(pool::Refusal{RefusalKind::capacity, "sold out"});
  };
  submit();
  pass(seconds(30));
  ASSERT_GE(orders, 2);
  ASSERT_TRUE(has("cloud-1")) << "the first order may have created it";
  script.listed = {sighting("i-1")};
  pass(seconds(20));
  ASSERT_FALSE(script.released.empty());
  EXPECT_EQ(script.released.front(), "i-1");
}

TEST_F(Pooled, AHeadThatHasJustStartedDoesNotBelieveOneList) {
  submit();
  pass(seconds(5));
  script.listed = {sighting("i-1")};
  pass(minutes(6));  // its lag is over
  ASSERT_EQ(state().machines.at("cloud-1").external, "i-1");
  start();
  const auto shown = std::exchange(script.listed, {});
  pass(seconds(10));
  ASSERT_TRUE(has("cloud-1")) << "one list that lacks it ended it";
  script.listed = shown;
  pass(seconds(10));
  EXPECT_TRUE(script.released.empty());
  script.listed.clear();
  pass(minutes(1));
  EXPECT_FALSE(has("cloud-1")) << "list after list lacks it";
}

// Such machines in a row would stop the pool.
TEST_F(Pooled, MachinesThatCouldNotJoinBecauseNoHeadRanDoNotCount) {
  order(4);
  clock.wall_now = clock.wall_now + hours(1);
  clock.steady_now = clock.steady_now + hours(1);
  start();
  pass(seconds(5));
  EXPECT_EQ(state_of("cloud-1"), MachineState::releasing);
  EXPECT_EQ(state().pools.begin()->second.unused_in_row, 0u);
  script.listed.clear();
  pass(minutes(1));
  EXPECT_EQ(state().pools.begin()->second.unused_in_row, 0u);
  EXPECT_TRUE(has("cloud-5")) << "their jobs get others";
}

// What is listed and not in the state may have been ordered by a successor of this head.
TEST_F(Pooled, AStrayIsEndedOnASecondLook) {
  pass(seconds(10));
  script.listed = {sighting("i-9")};
  script.listed[0].name = "cloud-77";
  pools->look();
  clock.steady_now = clock.steady_now + seconds(2);
  pools->look();
  EXPECT_TRUE(script.released.empty());
  pass(seconds(20));
  EXPECT_FALSE(script.released.empty()) << "it is billed";
}

// Its order was answered, and another machine comes of it when the pool is already removed.
TEST_F(Pooled, WhatALateOrderBringsAfterThePoolIsRemovedIsEndedAndBooked) {
  order_in_vain();
  script.listed = {sighting("i-1")};
  pass(seconds(10));
  run(RemovePool{"cloud"});
  script.listed[0].ended = true;
  script.listed[0].billed_to = clock.wall_now;
  pass(minutes(5));
  EXPECT_FALSE(has("cloud-1"));
  script.released.clear();
  script.listed = {sighting("i-2")};
  clock.wall_now = clock.wall_now + hours(9);
  pass(seconds(40));
  EXPECT_TRUE(has("cloud-1~2"));
  EXPECT_EQ(script.released.at(0), "i-2");
  script.listed[0].ended = true;
  script.listed[0].billed_to = clock.wall_now;
  pass(minutes(6));
  EXPECT_TRUE(state().pools.empty());
}

TEST_F(Pooled, ARemovedPoolWhoseProviderDoesNotListIsForgotten) {
  order_in_vain();
  script.listed = {sighting("i-1")};
  run(RemovePool{"cloud"});
  script.listed[0].ended = true;
  script.listed[0].billed_to = clock.wall_now;
  pass(seconds(30));
  ASSERT_FALSE(has("cloud-1"));
  script.silent = true;
  pass(minutes(50));
  EXPECT_FALSE(state().pools.empty());
  pass(minutes(15));
  EXPECT_TRUE(state().pools.empty());
}

// Its first list is also the one that says so, and gives an id that the state never gets.
TEST_F(Pooled, AMachineThatItsProviderCouldNotKeepLeavesTheBooks) {
  submit();
  pass(seconds(5));
  list_failed("i-1");
  pass(seconds(15));
  ASSERT_FALSE(script.released.empty());
  stop_all();
  script.listed.clear();
  pass(minutes(1));
  EXPECT_FALSE(has("cloud-1"));
}

TEST_F(Pooled, NothingIsEndedBeforeTheDecisionIsDurable) {
  order_in_vain();
  script.listed = {sighting("i-1")};
  disk.broken = true;  // as of a head that has been replaced: nothing becomes durable any more
  pass(minutes(1));
  ASSERT_EQ(state().machines.at("cloud-1").state, MachineState::releasing);
  EXPECT_TRUE(script.released.empty());
}

// Each of these bills until its provider is asked to end it.
TEST_F(Pooled, AMachineIsEndedWhileAListHangs) {
  order(1);
  script.hold_lists = true;
  pass(seconds(15));
  ASSERT_FALSE(script.held.empty()) << "no list is under way";
  stop_all();
  pass(seconds(15));
  EXPECT_EQ(script.released, std::vector<std::string>{"i-1"});
}

TEST_F(Pooled, AMachineIsEndedWhileListsFail) {
  order(1);
  script.silent = true;
  pass(seconds(15));
  stop_all();
  pass(seconds(15));
  EXPECT_EQ(script.released, std::vector<std::string>{"i-1"});
  EXPECT_TRUE(has("cloud-1")) << "no list has shown its end";
}

TEST_F(Pooled, AMachineIsEndedWhileAnOrderHangs) {
  order(1);
  script.hold = true;
  submit();
  pass(seconds(5));
  ASSERT_EQ(script.ordered.size(), 2u);
  ASSERT_FALSE(script.held.empty()) << "no order is under way";
  stop_all();
  pass(seconds(15));
  EXPECT_TRUE(std::ranges::count(script.released, "i-1")) << "it waits for the order";
}

TEST_F(Pooled, ADeletionThatHangsHoldsUpNoOther) {
  order(2);
  script.hanging = {"i-1"};
  run(ReleaseMachine{"cloud-1", "enough"});
  pass(seconds(15));
  ASSERT_EQ(script.released, std::vector<std::string>{"i-1"});
  run(ReleaseMachine{"cloud-2", "enough"});
  pass(seconds(5));
  EXPECT_TRUE(std::ranges::count(script.released, "i-2")) << "it waits for the other";
  pass(seconds(30));
  EXPECT_EQ(std::ranges::count(script.released, "i-1"), 1) << "its deletion is still under way";
}

TEST_F(Pooled, AnOrderThatHangsHoldsUpNoOther) {
  script.hanging_orders = {"cloud-1"};
  submit();
  submit();
  pass(seconds(5));
  ASSERT_EQ(script.ordered.size(), 2u);
  ASSERT_EQ(script.held.size(), 1u);
  submit();
  pass(seconds(5));
  ASSERT_EQ(script.ordered.size(), 3u) << "the third machine waits for the first";
  script.listed = {sighting("i-2")};
  script.listed[0].name = "cloud-2";
  stop_all();
  pass(seconds(20));
  ASSERT_FALSE(script.released.empty()) << "its order was answered";
  EXPECT_EQ(script.released.front(), "i-2");
}

TEST_F(Pooled, ARefusalIsRecordedWhileAnotherOrderHangs) {
  script.hanging_orders = {"cloud-1"};
  script.want = [](const pool::Order& order) -> pool::Ordered {
    if (order.machine.name == "cloud-1")
      return {};
    return std::unexpected(pool::Refusal{RefusalKind::capacity, "sold out"});
  };
  submit();
  submit();
  pass(seconds(5));
  EXPECT_FALSE(has("cloud-2"));
  EXPECT_EQ(state().pools.begin()->second.refusals.size(), 1u) << "the other order hangs";
}

TEST_F(Pooled, AFewOrdersAtATimeAreUnderWay) {
  script.hold = true;
  for (int i = 0; i < 11; ++i)
    submit();
  pass(seconds(20));
  EXPECT_EQ(script.ordered.size(), 8u);
  script.held.front()();
  pass(seconds(5));
  EXPECT_EQ(script.ordered.size(), 9u) << "another takes its place";
}

TEST_F(Pooled, AnOrderWithoutAnAnswerSaysSoUntilItsMachineIsListed) {
  script.want = no_answer;
  submit();
  pass(seconds(20));
  ASSERT_TRUE(has("cloud-1"));
  EXPECT_EQ(state().machines.at("cloud-1").note,
            "the provider did not answer its order (no answer); the machine may exist");
  EXPECT_TRUE(state().pools.begin()->second.refusals.empty()) << "it is no refusal";
  script.listed = {sighting("i-1")};
  script.listed[0].note = "running";
  pass(seconds(10));
  EXPECT_EQ(state().machines.at("cloud-1").note, "running");
}

TEST_F(Pooled, AnOrderThatIsAnsweredAtLastSaysSo) {
  script.want = no_answer;
  submit();
  pass(seconds(20));
  ASSERT_NE(state().machines.at("cloud-1").note, "");
  script.want = [](const pool::Order&) {
    return pool::Ordered{};
  };
  pass(seconds(20));
  EXPECT_EQ(state().machines.at("cloud-1").note, "");
}

// A provider could not keep either of them, so the state has no id.
TEST_F(Pooled, TwoMachinesOfOneNameWithoutAnIdInTheStateAreEachEnded) {
  two_that_fail();
  ASSERT_EQ(script.released.front(), "i-1");
  ASSERT_EQ(script.released.back(), "i-2");
  ASSERT_EQ(state().machines.at("cloud-1").external, "");
  script.silent = true;
  script.refusal.clear();
  script.released.clear();
  pass(seconds(15));
  EXPECT_EQ(script.released, std::vector<std::string>{"i-2"}) << "only i-1 has been ended";
}

TEST_F(Pooled, AMachineIsNotGoneBecauseAnotherOfItsNameWasEnded) {
  two_that_fail();
  ASSERT_EQ(script.released.back(), "i-2");
  script.listed.clear();  // two wrong lists
  pass(seconds(10));
  EXPECT_TRUE(has("cloud-1")) << "its provider has not agreed to end it";
}

// Its provider knows it by its name only.
TEST_F(Pooled, AMachineThatNoListHasShownIsEndedByNameIfListsHang) {
  script.ends_by_name = true;
  submit();
  script.hold_lists = true;
  pass(seconds(5));
  stop_all();
  pass(seconds(20));
  ASSERT_EQ(state_of("cloud-1"), MachineState::releasing);
  EXPECT_TRUE(script.released.empty()) << "a list may yet say its id";
  pass(seconds(30));
  EXPECT_EQ(script.released, std::vector<std::string>{"cloud-1"});
}

TEST_F(Pooled, ADeletionThatFailsIsRepeatedAndShownAfterAMinute) {
  order(1);
  script.refusal = "no right to delete";
  stop_all();
  pass(seconds(45));
  ASSERT_EQ(state_of("cloud-1"), MachineState::releasing);
  EXPECT_GE(script.released.size(), 5u);
  EXPECT_EQ(state().machines.at("cloud-1").note, "");
  pass(seconds(45));
  EXPECT_EQ(state().machines.at("cloud-1").note, "cannot be ended: no right to delete");
  script.refusal.clear();
  pass(seconds(15));
  EXPECT_EQ(state().machines.at("cloud-1").note, "");
}

TEST_F(Pooled, ADeletionThatHangsIsShownAfterAMinute) {
  order(1);
  script.hanging = {"i-1"};
  stop_all();
  pass(seconds(90));
  ASSERT_EQ(state_of("cloud-1"), MachineState::releasing);
  EXPECT_TRUE(state().machines.at("cloud-1").note.starts_with("cannot be ended: no answer for"))
      << state().machines.at("cloud-1").note;
}

// Its delete command succeeds and does nothing.
TEST_F(Pooled, ADeletionWithoutEffectIsShownAfterTenMinutes) {
  order(1);
  stop_all();
  pass(minutes(9));
  EXPECT_EQ(state().machines.at("cloud-1").note, "");
  pass(minutes(2));
  EXPECT_NE(state().machines.at("cloud-1").note.find("accepted"), std::string::npos)
      << state().machines.at("cloud-1").note;
}

}  // namespace
}  // namespace billow::head::pools_tests
