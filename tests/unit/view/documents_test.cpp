// The public documents: what a node, a waiting job and an event show, and what they must not show.
#include "tests/unit/control/pool_world.h"
#include "tests/unit/view/rig.h"
#include "view/event_document.h"
#include "view/fleet_documents.h"
#include "view/live_rows.h"
#include "view/waiting.h"

namespace billow::view {
namespace {

TEST(NodeDocument, SaysWhatJobsHoldOfEachCard) {
  Rig rig;
  const JobId whole = rig.submit(2);
  SubmitJob half = rig.job();
  half.spec.resources.share = {500, 0};
  const JobId slice = rig.submit(half);
  const Json document = node_document(rig.state(), rig.state().nodes.begin()->second, nullptr);
  std::int64_t used = 0;
  int of_whole = 0, of_slice = 0;
  for (const Json& gpu : document["gpus"].items()) {
    used += gpu["used_milli"].int_or(0);
    for (const Json& job : gpu["jobs"].items()) {
      of_whole += job.uint_or(0) == whole.value;
      of_slice += job.uint_or(0) == slice.value;
    }
    EXPECT_EQ(gpu.find("util_pct"), nullptr) << "no heartbeat, no figures";
  }
  EXPECT_EQ(used, 2500);
  EXPECT_EQ(of_whole, 2);
  EXPECT_EQ(of_slice, 1);
  EXPECT_EQ(document["state"].str_or(""), "ready");
}

TEST(NodeDocument, ShowsOnlyWhatANodeCanMeasure) {
  Rig rig;
  wire::agent_v1::Heartbeat beat;
  beat.gpus.push_back({.gpu = 1, .util_pct = 37, .mem_used_mib = 1024, .power_mw = 71'500});
  const Json document = node_document(rig.state(), rig.state().nodes.begin()->second, &beat);
  const auto& gpus = document["gpus"].items();
  EXPECT_EQ(gpus[0].find("util_pct"), nullptr);
  EXPECT_EQ(gpus[1]["util_pct"].int_or(0), 37);
  EXPECT_DOUBLE_EQ(gpus[1]["power_w"].double_or(0), 71.5);
  EXPECT_EQ(gpus[1].find("sm_active_pct"), nullptr) << "unknown is not zero";
}

TEST(Waiting, AQueuedJobSaysWhy) {
  Rig rig;
  rig.submit(4);
  const JobId second = rig.submit(2);
  ASSERT_EQ(rig.live(second).state, JobState::queued);
  EXPECT_TRUE(waits(rig.live(second)));
  EXPECT_FALSE(waiting_reason(rig.state(), rig.live(second), rig.wall).empty());
  const Json explained = explain_document(rig.state(), rig.live(second), rig.moment());
  EXPECT_GE(explained["reasons"].size(), 1u);
  EXPECT_EQ(explained["state"].str_or(""), "queued");
}

// A job that waits for a pool's first machine is told of the machine, not that no node has joined.
TEST(Waiting, WhatAPoolDoesComesFirstWhileNoNodeHasJoined) {
  for (const char* kind : {"kubernetes", "slurm", "command", "cloud"}) {
    control::PoolWorld world;
    world.must(AddPool{world.pool("fast", kind)});
    const JobId id = world.submit(1);
    const auto first_reason = [&] {
      const Json why =
          explain_document(world.state(), world.state().jobs.at(id), {world.now, world.now});
      EXPECT_TRUE(why["would_start_now"].is_null()) << why.dump();
      EXPECT_EQ(why["start_unknown"].str_or(""), "it needs a machine of a pool");
      return std::string(why["reasons"].items().at(0)["text"].str_or(""));
    };
    EXPECT_EQ(first_reason(), "A machine is about to be ordered for it.") << kind;
    world.must(PlanPools{});
    EXPECT_TRUE(first_reason().starts_with("Pool fast: fast-1 was ordered ")) << first_reason();
    world.must(OrderFailed{"fast-1", "quota exceeded", RefusalKind::quota});
    EXPECT_TRUE(first_reason().starts_with("Pool fast refused (quota exceeded)")) << first_reason();
  }
}

TEST(Waiting, WithoutAPoolThatCouldRunItNoNodeHasJoined) {
  control::PoolWorld world;
  const JobId id = world.submit(1);
  const Json why =
      explain_document(world.state(), world.state().jobs.at(id), {world.now, world.now});
  EXPECT_EQ(why["reasons"].items().at(0)["text"].str_or(""), "No node has joined yet.");
  EXPECT_FALSE(why["would_start_now"].is_null());
}

TEST(Waiting, AnUnreachableNodeIsNamedByTheClockOfBills) {
  Rig rig;
  const JobId id = rig.submit();
  rig.begin(id);
  rig.must(NodeSilent{rig.node_of(id)});
  EXPECT_EQ(away_note(rig.state(), rig.live(id), rig.billed + seconds(4)), "")
      << "it may be back in a moment";
  rig.wall = rig.wall + hours(3);
  rig.pass_time(seconds(61));
  const std::string note = away_note(rig.state(), rig.live(id), rig.billed);
  EXPECT_NE(note.find("n1 unreachable for 1m"), std::string::npos) << note;
  EXPECT_NE(note.find("charged only if it kept running"), std::string::npos) << note;
  const Json document = live_job_document(rig.state(), rig.live(id), rig.moment(), no_readings);
  EXPECT_EQ(document["reason"].str_or(""), note);
}

TEST(EventDocument, HidesWhatCouldBeUsedToGainAccess) {
  Event event;
  event.seq = 5;
  event.body = EnvironmentStored{.digest = "d", .env = {{"API_KEY", "s3cret"}}};
  const std::string text = event_document(event).dump();
  EXPECT_EQ(text.find("s3cret"), std::string::npos) << text;
  EXPECT_NE(text.find("API_KEY"), std::string::npos) << "that it exists may be known";
}

TEST(EventDocument, AnEndSaysHowAlsoInTheUsualCase) {
  Event event;
  event.body = JobEnded{.job = JobId(3), .state = JobState::succeeded};
  EXPECT_EQ(event_document(event).at("event", "state").str_or(""), "succeeded");
}

TEST(LiveRow, IsAnObjectWhateverItsReasonHolds) {
  Rig rig;
  SubmitJob submit = rig.job();
  submit.spec.name = "a-b";
  submit.spec.argv = {"echo", "\\", "\n"};
  const JobId id = rig.submit(submit);
  std::string row;
  const JobTimes none;
  put_job(row, rig.state(), rig.live(id), "because \"of\"\ttabs", &none, rig.moment());
  const auto json = parse_json(row);
  ASSERT_TRUE(json) << row;
  EXPECT_EQ((*json)["name"].str_or(""), "a-b");
  EXPECT_EQ((*json)["reason"].str_or(""), "because \"of\"\ttabs");
  EXPECT_EQ((*json)["where"].items().at(0).items().at(0).uint_or(0), rig.node_of(id).value);
}

TEST(LiveRow, ALeaseBeganByTheWallClockOfToday) {
  Rig rig;
  const JobId id = rig.submit();
  rig.begin(id);
  rig.pass_time(seconds(60));
  rig.wall = rig.wall + hours(3);
  std::string row;
  put_job(row, rig.state(), rig.live(id), "", nullptr, rig.moment());
  const auto json = parse_json(row);
  ASSERT_TRUE(json);
  EXPECT_EQ((*json)["at"].int_or(0) - (*json)["since"].int_or(0), 60'000)
      << "it has held its lease for a minute";
}

}  // namespace
}  // namespace billow::view
