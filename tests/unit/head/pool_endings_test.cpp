// Machines whose end their provider has accepted, and those that do not answer: until when they are
// billed, and what is said of them.
#include "tests/unit/head/pooled.h"

namespace billow::head::pools_tests {
namespace {

class Ending : public Pooled {
 protected:
  // A machine is ended while lists fail, for an hour.
  void end_without_lists() {
    order(1);
    script.silent = true;
    pass(seconds(15));
    began = state().machines.at("cloud-1").billed_from;
    stop_all();
    while (script.released.empty())
      pass(seconds(5));
    accepted = clock.wall_now;
    pass(hours(1));
    ASSERT_TRUE(has("cloud-1")) << "no list has shown its end";
  }
  const Machine& machine() const { return state().machines.at("cloud-1"); }
  // The machine joins, and its job begins.
  void run_its_job() {
    const Machine m = machine();
    run(OrderToken{.machine = m.name,
                   .hash = sha256_hex("join"),
                   .user = state().users.begin()->first,
                   .pool = m.pool,
                   .life = hours(1)});
    const std::string key = *public_key_of(make_signing_key());
    run(JoinNode{state().token_by_hash.at(sha256_hex("join")), m.name, key});
    run(AgentHello{
        control::node_offer(m.name, 8), {}, state().token_by_hash.at(control::node_key_hash(key))});
    ASSERT_EQ(state_of("cloud-1"), MachineState::here);
    const TaskId task = state().jobs.begin()->second.tasks.at(0);
    run(AgentReport{state().nodes.begin()->first,
                    {.task = task, .state = TaskState::running, .started_at = clock.wall_now}});
  }
  WallTime began, accepted;
};

TEST_F(Ending, IsBilledUntilItWasAcceptedIfLaterListsTellNoTime) {
  end_without_lists();
  EXPECT_EQ(pools->ending(machine()),
            "its provider accepted the deletion 1h ago; billed until a list shows its end");
  EXPECT_GE(state().money.books.totals({}, {clock.wall_now.ns + 1}).fleet.value,
            (clock.wall_now - began).ns / 1'000'000'000 * 1000)
      << "until a list shows the end, nobody knows of it";
  script.silent = false;
  script.listed.clear();
  pass(minutes(1));
  ASSERT_FALSE(has("cloud-1"));
  ASSERT_EQ(state().machine_bills.size(), 1u);
  const MachineBill& bill = state().machine_bills[0];
  EXPECT_EQ(bill.to.ns, accepted.ns);
  EXPECT_EQ(bill.amount.value, (accepted - began).ns / 1'000'000'000 * 1000);
  EXPECT_EQ(state().money.books.totals({}, {clock.wall_now.ns + 1}).fleet.value, bill.amount.value);
}

TEST_F(Ending, IsBilledUntilTheTimeThatLaterListsTell) {
  end_without_lists();
  script.silent = false;
  script.listed[0].ended = true;
  script.listed[0].billed_to = accepted + minutes(7);
  pass(minutes(1));
  ASSERT_EQ(state().machine_bills.size(), 1u);
  EXPECT_EQ(state().machine_bills[0].to.ns, (accepted + minutes(7)).ns);
}

TEST_F(Ending, IsBilledAsLongAsListsShowIt) {
  end_without_lists();
  script.silent = false;
  pass(minutes(2));
  ASSERT_TRUE(has("cloud-1"));
  EXPECT_EQ(pools->ending(machine()), "") << "lists show it";
  const WallTime shown = clock.wall_now;
  script.listed.clear();
  pass(minutes(1));
  ASSERT_EQ(state().machine_bills.size(), 1u);
  EXPECT_LE((state().machine_bills[0].to - shown).ns, seconds(5).ns);
  EXPECT_GE((state().machine_bills[0].to - shown).ns, seconds(-15).ns);
}

// Its jobs are asked to end first. One that hangs in a driver cannot be killed.
TEST_F(Ending, AMachineIsEndedWithTasksThatDoNotEnd) {
  order(1);
  run_its_job();
  const JobId job = state().jobs.begin()->first;
  const Duration grace = state().jobs.begin()->second.spec->stop_grace;
  run(ReleaseMachine{"cloud-1", "released by ana"});
  pass(minutes(1));
  EXPECT_TRUE(script.released.empty()) << "its job has a grace period";
  EXPECT_TRUE(pools->ending(machine()).starts_with("it waits for its jobs to end, until it is"))
      << pools->ending(machine());
  pass(grace * 2 + minutes(3));
  EXPECT_TRUE(script.released.empty());
  pass(minutes(2));
  ASSERT_FALSE(script.released.empty());
  EXPECT_EQ(script.released.front(), "i-1");
  script.listed.clear();
  run(NodeSilent{state().nodes.begin()->first, seconds(20)});
  pass(minutes(1));
  EXPECT_FALSE(has("cloud-1"));
  ASSERT_TRUE(state().find_job(job));
  EXPECT_EQ(state().find_job(job)->state, JobState::queued) << "it was asked to leave";
}

// A job may still run on it, so it is kept until somebody gives it back.
TEST_F(Ending, ASilentMachineIsEndedAtOnceOnceItIsReleased) {
  order(1);
  run_its_job();
  const JobId job = state().jobs.begin()->first;
  const NodeId node = state().nodes.begin()->first;
  EXPECT_EQ(control::silent_note(state(), machine()), "");
  run(NodeSilent{node, seconds(20)});
  const std::string note = control::silent_note(state(), machine());
  EXPECT_NE(note.find(fmt::format("kept and billed because job {} may still run", job.value)),
            std::string::npos)
      << note;
  EXPECT_NE(note.find("billow machine release cloud-1"), std::string::npos) << note;
  EXPECT_EQ(control::silent_note(state(), state().nodes.begin()->second), note);
  pass(hours(2));
  ASSERT_EQ(state_of("cloud-1"), MachineState::here) << "its job may not run twice";
  ASSERT_TRUE(script.released.empty());
  run(ReleaseMachine{"cloud-1", "released by ana"});
  pass(seconds(5));
  EXPECT_EQ(script.released, std::vector<std::string>{"i-1"});
  script.listed.clear();
  pass(minutes(1));
  EXPECT_FALSE(has("cloud-1"));
  EXPECT_FALSE(state().find_job(job)) << "it is lost";
}

}  // namespace
}  // namespace billow::head::pools_tests
