// The idle verdict on recorded shapes of work, on the hung and idle figures of a real card, and on
// what it must not believe. BILLOW_IDLE_TRACES names a further folder of traces (see
// tools/idle/make_traces.py) to be judged by the same rules.
#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdlib>

#include "core/agent/idle_ladder.h"
#include "idle_trace.h"

namespace billow::agent {
namespace {

struct Outcome {
  bool flagged = false, suspended = false;
  Duration found_after;  // from the onset
  IdleState state = IdleState::active;
  std::string reason;
};

Outcome play(const IdleTrace& trace) {
  IdleTracker tracker;
  LadderState ladder;
  Outcome out;
  const SteadyTime start = trace.samples.front().at;
  for (const IdleSample& sample : trace.samples) {
    LadderInput in;
    in.verdict = tracker.add(sample);
    in.now = sample.at;
    const LadderStep step = climb(ladder, in);
    ladder = step.state;
    if (in.verdict.state != IdleState::active && !out.flagged) {
      out.flagged = true;
      out.found_after = sample.at - start - trace.onset;
      out.state = in.verdict.state;
      out.reason = in.verdict.reason;
    }
    if (step.action == IdleAction::suspend)
      out.suspended = true;
  }
  return out;
}

std::vector<std::string> files_in(const std::string& folder, const std::string& extension) {
  std::vector<std::string> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    if (entry.path().extension() == extension)
      files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

struct Score {
  int active = 0, flagged = 0, suspended = 0, resting = 0, found = 0, rightly_named = 0;
};
void judge(const IdleTrace& trace, Score& score) {
  const Outcome out = play(trace);
  if (trace.expect == "active") {
    ++score.active;
    score.flagged += out.flagged;
    score.suspended += out.suspended;
    if (out.flagged)
      fmt::print("{}: flagged: {}\n", trace.file, out.reason);
    return;
  }
  ++score.resting;
  const bool found = out.flagged && out.found_after.ns >= 0 && out.found_after <= minutes(10);
  score.found += found;
  score.rightly_named += found && trace.expect == enum_name(out.state);
  if (!found)
    fmt::print("{}: not found in time ({})\n", trace.file,
               out.flagged ? format_duration(out.found_after) : "never");
  else if (trace.expect != enum_name(out.state))
    fmt::print("{}: {}\n", trace.file, out.reason);
}
Score judge(const std::string& folder) {
  Score score;
  for (const std::string& file : files_in(folder, ".trace")) {
    const auto trace = read_trace(file);
    if (trace)
      judge(*trace, score);
    else
      ADD_FAILURE() << trace.error().message;
  }
  for (const std::string& file : files_in(folder, ".signals")) {
    const auto traces = play_recording(file);
    if (!traces) {
      ADD_FAILURE() << traces.error().message;
      continue;
    }
    for (const IdleTrace& trace : *traces)
      judge(trace, score);
  }
  fmt::print(
      "{} active traces, {} flagged, {} suspended; {} idle or hung, {} found within 10 minutes, {} "
      "named rightly\n",
      score.active, score.flagged, score.suspended, score.resting, score.found,
      score.rightly_named);
  return score;
}

TEST(IdleTraces, NoActiveShapeIsFlaggedAndEveryOtherIsFound) {
  const Score score = judge(BILLOW_SOURCE_DIR "/data/idle_traces");
  EXPECT_EQ(score.active, 11);
  EXPECT_EQ(score.resting, 9);
  EXPECT_EQ(score.flagged, 0);
  EXPECT_EQ(score.suspended, 0);
  EXPECT_EQ(score.found, 9);
  EXPECT_EQ(score.rightly_named, 9);
}

TEST(IdleTraces, ShapesRecordedOnARealCardAreJudgedRightly) {
  const std::string folder = BILLOW_SOURCE_DIR "/data/idle_traces/recorded";
  if (files_in(folder, ".signals").empty())
    GTEST_SKIP() << "no recording in data/idle_traces/recorded (./dev gpu-test --part 9 makes one)";
  const Score score = judge(folder);
  EXPECT_GE(score.active, 11);
  EXPECT_GE(score.resting, 9);
  EXPECT_EQ(score.flagged, 0);
  EXPECT_EQ(score.suspended, 0);
  EXPECT_GE(score.found * 100, score.resting * 95);
}

// A recording in small: what is played is what the script says, with counters that go on across
// phases.
TEST(IdleTraces, ARecordingIsPlayedByItsScript) {
  const std::string file =
      ::testing::TempDir() + "/small." + std::to_string(::getpid()) + ".signals";
  const std::string columns = "columns sm util power cpu_ms io_kib procs\n";
  ASSERT_TRUE(write_file_atomic(
      file, "card H200\nidle_w 78\nlimit_w 700\nstep_ms 2000\n" + columns +
                "shape a\nexpect active\nscript work 4 rest 596\nphase work\n60.0 99 400 1000 8 "
                "1\nphase rest\n0.0 0 79 1 0 1\n0.0 0 80 3 0 1\n" +
                "shape b\nexpect idle\nbefore a/work 600\nscript rest 100\nphase rest\n0.0 0 79 1 "
                "0 1\n"));
  const auto traces = play_recording(file);
  ASSERT_TRUE(traces) << traces.error().message;
  ASSERT_EQ(traces->size(), 2u);
  const IdleTrace &a = traces->at(0), &b = traces->at(1);
  EXPECT_EQ(
      a.samples.size(),
      1500u);  // five times ten minutes: the first whole round beyond three quarters of an hour
  EXPECT_EQ(*a.samples[299].cpu_ns, (2 * 1000 + 149 * 4) * 1'000'000LL);
  EXPECT_EQ(a.samples[1].at - a.samples[0].at, seconds(2));
  EXPECT_EQ(b.onset, minutes(10));
  EXPECT_EQ(b.samples.size(), 900u);
  Score score;
  judge(a, score);
  judge(b, score);
  EXPECT_EQ(score.suspended, 0);
  EXPECT_EQ(score.found, 1);
  std::filesystem::remove(file);
}

TEST(IdleTraces, FurtherTracesHoldTheSamePromises) {
  const char* folder = std::getenv("BILLOW_IDLE_TRACES");
  if (!folder)
    GTEST_SKIP() << "BILLOW_IDLE_TRACES names no folder of further traces";
  const Score score = judge(folder);
  EXPECT_EQ(score.suspended, 0);
  EXPECT_GE(score.found * 100, score.resting * 95);
}

// ---- samples by hand
IdleSample quiet_sample(SteadyTime at) {
  IdleSample s;
  s.at = at;
  GpuSignal gpu;
  gpu.sm_active_pct = 0;
  gpu.dram_active_pct = 0;
  gpu.util_pct = 0;
  gpu.power_w = 71;
  gpu.power_idle_w = 68;
  gpu.power_limit_w = 700;
  gpu.pcie_bytes_s = 1e5;
  gpu.mem_used_mib = 500;
  s.gpus = {gpu};
  s.cpu_ns = at.ns / 1000;  // 0.1 %
  s.io_bytes = s.net_rx_bytes = s.net_tx_bytes = s.page_faults = 0;
  s.rss_mib = 100;
  s.processes = 1;
  return s;
}
// Feeds a sample every two seconds for a while, each changed by `change`.
template <class F>
IdleVerdict feed(IdleTracker& tracker, SteadyTime& at, Duration span, F change) {
  for (const SteadyTime end = at + span; at < end; at = at + seconds(2)) {
    IdleSample s = quiet_sample(at);
    change(s);
    tracker.add(s);
  }
  return tracker.verdict();
}
const auto unchanged = [](IdleSample&) {
};

TEST(Idle, SaysWhyInOneLine) {
  IdleTracker tracker;
  SteadyTime at{seconds(100).ns};
  const IdleVerdict v = feed(tracker, at, minutes(12) + seconds(30), unchanged);
  EXPECT_EQ(v.state, IdleState::idle);
  EXPECT_EQ(v.reason, "idle 12m: SM 0 %, 71 W (idle 71 W), CPU 0.1 %, no I/O");
}

TEST(Idle, OneSpinningThreadOnAnH200IsHungNotBusy) {
  IdleTracker tracker;
  SteadyTime at{seconds(100).ns};
  const auto h200 = [](IdleSample& s) {
    GpuSignal& g = s.gpus[0];
    g.util_pct = 100;
    g.sm_active_pct = 0.8;
    g.power_w = 122;
    g.power_idle_w = 78;
    g.power_limit_w = 700;
  };
  EXPECT_EQ(feed(tracker, at, minutes(10), h200).state, IdleState::hung);
  IdleTracker blind;  // the same without GPM
  const auto older = [&](IdleSample& s) {
    h200(s);
    s.gpus[0].sm_active_pct.reset();
    s.gpus[0].dram_active_pct.reset();
    s.gpus[0].mem_util_pct = 0;
  };
  EXPECT_EQ(feed(blind, at, minutes(10), older).state, IdleState::hung);
  IdleTracker busy;
  EXPECT_EQ(feed(busy, at, minutes(30),
                 [&](IdleSample& s) {
                   older(s);
                   s.gpus[0].power_w = 635;
                 })
                .state,
            IdleState::active);
}

TEST(Idle, UnknownIsNeverZero) {
  SteadyTime at{seconds(100).ns};
  IdleTracker no_gpu_signal, no_cpu_signal;
  EXPECT_EQ(feed(no_gpu_signal, at, minutes(30), [](IdleSample& s) { s.gpus[0] = {}; }).state,
            IdleState::active);
  EXPECT_EQ(feed(no_cpu_signal, at, minutes(30), [](IdleSample& s) { s.cpu_ns.reset(); }).state,
            IdleState::active);
  IdleTracker spin_without_fault_counter;
  EXPECT_EQ(feed(spin_without_fault_counter, at, minutes(30),
                 [](IdleSample& s) {
                   s.cpu_ns = s.at.ns;
                   s.page_faults.reset();
                 })
                .state,
            IdleState::active);
}

TEST(Idle, AHoleInTheSamplesStartsTheClockAgain) {
  IdleTracker tracker;
  SteadyTime at{seconds(100).ns};
  feed(tracker, at, minutes(9), unchanged);
  at = at + minutes(5);
  EXPECT_EQ(feed(tracker, at, minutes(9), unchanged).state, IdleState::active);
  EXPECT_EQ(feed(tracker, at, minutes(1), unchanged).state, IdleState::idle);
}

TEST(Idle, ASharedCardsWarmthBelongsToAllUnlessTheDriverTells) {
  SteadyTime at{seconds(100).ns};
  const auto neighbour = [](IdleSample& s) {
    s.gpus[0].shared = true;
    s.gpus[0].sm_active_pct = 60;
    s.gpus[0].util_pct = 90;
  };
  IdleTracker unknown, told;
  EXPECT_EQ(feed(unknown, at, minutes(20), neighbour).state, IdleState::active);
  EXPECT_EQ(feed(told, at, minutes(20),
                 [&](IdleSample& s) {
                   neighbour(s);
                   s.gpus[0].util_pct = 0;
                   s.gpus[0].util_is_ours = true;
                 })
                .state,
            IdleState::idle);
}

TEST(Idle, TypingKeepsATaskAwakeFromTheMomentOfTheKey) {
  IdleTracker tracker;
  SteadyTime at{seconds(100).ns};
  feed(tracker, at, minutes(8), unchanged);
  const SteadyTime key = at;
  const auto typed = [&](IdleSample& s) {
    s.last_input = key;
  };
  EXPECT_EQ(feed(tracker, at, minutes(9), typed).state, IdleState::active);
  EXPECT_EQ(feed(tracker, at, minutes(1), typed).since, key);
}

TEST(Idle, OutputAtARateIsWorkAndAHeartbeatIsNot) {
  SteadyTime at{seconds(100).ns};
  IdleTracker writes, beats;
  EXPECT_EQ(feed(writes, at, minutes(30),
                 [](IdleSample& s) { s.output_bytes = s.at.ns / 1'000'000'000 * 2048; })
                .state,
            IdleState::active);
  // "still waiting for rank 3 …", a line of a hundred bytes every ten seconds, as a watchdog of a
  // dead job writes all weekend.
  EXPECT_EQ(feed(beats, at, minutes(10),
                 [](IdleSample& s) { s.output_bytes = s.at.ns / 10'000'000'000 * 100; })
                .state,
            IdleState::idle);
  // Once the writing ends, so does the work, at the last page.
  EXPECT_EQ(feed(writes, at, minutes(10),
                 [&, last = at.ns / 1'000'000'000 * 2048](IdleSample& s) { s.output_bytes = last; })
                .state,
            IdleState::idle);
}

TEST(Idle, ATaskThatComesBackByItselfIsGivenItsOwnRhythm) {
  IdleTracker tracker;
  SteadyTime at{seconds(100).ns};
  const auto work = [](IdleSample& s) {
    s.gpus[0].sm_active_pct = 70;
  };
  feed(tracker, at, seconds(20), work);
  EXPECT_EQ(feed(tracker, at, minutes(10), unchanged).state,
            IdleState::idle);  // the first silence of this length is told
  feed(tracker, at, seconds(20), work);
  EXPECT_EQ(feed(tracker, at, minutes(10), unchanged).state, IdleState::active);
  EXPECT_EQ(feed(tracker, at, minutes(5), unchanged).state, IdleState::idle);
}

TEST(Idle, ActiveTimeNeverShrinksAndLeavesSilencesOut) {
  IdleTracker tracker;
  SteadyTime at{seconds(100).ns};
  const auto work = [](IdleSample& s) {
    s.gpus[0].sm_active_pct = 70;
  };
  feed(tracker, at, minutes(5), work);
  const Duration before = tracker.verdict().active;
  EXPECT_NEAR(before.seconds(), 300, 5);
  feed(tracker, at, minutes(20), unchanged);
  EXPECT_EQ(tracker.verdict().active, before);
  feed(tracker, at, minutes(1), work);
  EXPECT_NEAR(tracker.verdict().active.seconds(), 360, 8);
}

// ---- the ladder
LadderInput resting(Duration idle) {
  LadderInput in;
  in.now = SteadyTime{hours(100).ns};
  in.verdict.state = IdleState::idle;
  in.verdict.since = in.now - idle;
  in.verdict.quiet = idle;
  in.verdict.reason = "idle";
  return in;
}

TEST(IdleLadder, WarnsThenSuspendsThenStopsWhereTheNodeBills) {
  LadderState state;
  std::vector<std::pair<IdleAction, std::int64_t>> taken;
  const SteadyTime began{hours(100).ns};
  for (std::int64_t s = 0; s < 3600; s += 5) {
    LadderInput in = resting(seconds(s));
    in.now = began + seconds(s);
    in.verdict.since = began;
    in.node_bills = true;
    if (s < 570)
      in.verdict.state = IdleState::active;
    const LadderStep step = climb(state, in);
    state = step.state;
    if (step.action != IdleAction::none)
      taken.emplace_back(step.action, s);
  }
  const std::vector<std::pair<IdleAction, std::int64_t>> wanted{
      {IdleAction::warn, 570}, {IdleAction::suspend, 900}, {IdleAction::stop, 1320}};
  EXPECT_EQ(taken, wanted);
}

TEST(IdleLadder, TheWarningSaysWhatComesWhen) {
  LadderInput in = resting(minutes(12));
  in.verdict.reason = "idle 12m: SM 0 %, 71 W (idle 68 W), CPU 0.1 %, no I/O";
  EXPECT_EQ(climb({}, in).text,
            "idle 12m: SM 0 %, 71 W (idle 68 W), CPU 0.1 %, no I/O; suspending in 3m");
}

TEST(IdleLadder, AKeepAliveHoldsTheProjectsStepsBackButNotTheFloors) {
  LadderInput in = resting(minutes(30));
  in.keepalive_from = in.now - minutes(10);
  in.keepalive_for = hours(2);
  EXPECT_EQ(climb({}, in).action, IdleAction::none);
  in.keepalive_for = hours(1000);  // longer than any may last: four hours count
  in.keepalive_from = in.now - hours(5);
  EXPECT_EQ(climb({}, in).action, IdleAction::warn);
  in = resting(hours(13));  // renewed for ever, against the administrator's twelve hours
  in.keepalive_from = in.now - minutes(1);
  in.keepalive_for = hours(2);
  const LadderStep warned = climb({}, in);
  EXPECT_EQ(warned.action, IdleAction::warn);
  in.now = in.now + minutes(3);
  in.verdict.quiet = in.now - in.verdict.since;
  EXPECT_EQ(climb(warned.state, in).action, IdleAction::suspend);
}

TEST(IdleLadder, AProjectCannotSwitchTheFloorOff) {
  LadderInput in = resting(hours(2));
  in.policy.enabled = false;
  EXPECT_EQ(climb({}, in).action, IdleAction::none);
  in = resting(hours(12));
  in.policy.enabled = false;
  const LadderStep warned = climb({}, in);
  EXPECT_EQ(warned.action, IdleAction::warn);
  in.now = in.now + minutes(2);
  EXPECT_EQ(climb(warned.state, in).action, IdleAction::suspend);
  in.floor = {.suspend_by = {}, .stop_by = {}};
  EXPECT_EQ(climb({}, in).action, IdleAction::none);
}

TEST(IdleLadder, NothingIsTakenAwayWithoutNotice) {
  LadderInput in = resting(hours(3));  // the agent was away and finds it like this
  in.can_suspend = false;
  const LadderStep warned = climb({}, in);
  EXPECT_EQ(warned.action, IdleAction::warn);
  in.now = in.now + seconds(60);
  EXPECT_EQ(climb(warned.state, in).action, IdleAction::none);
  in.now = in.now + seconds(60);
  EXPECT_EQ(climb(warned.state, in).action, IdleAction::stop);
  in.verdict.state = IdleState::active;
  EXPECT_EQ(climb(warned.state, in).action, IdleAction::recovered);
}

}  // namespace
}  // namespace billow::agent
