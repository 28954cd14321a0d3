// What `billow explain` says about the start of a job is a promise: it is kept, or it was revised
// before it passed, with a reason. Jobs end earlier than they said, others submit more, and nodes
// are drained meanwhile; the question is asked again whenever something has happened.
#include <cstdlib>
#include <map>
#include <string>

#include <fmt/format.h>

#include "core/sched/outlook.h"
#include "fleet.h"

namespace billow::sched {
using namespace test;
namespace {

enum class Happened { nothing, early_end, submitted, drained };

struct Count {
  int worlds = 0;                  // in which a start could be told
  int kept = 0;                    // started at the time first expected, or before
  int promised = 0;                // also told a latest time…
  int promise_kept = 0;            // …and started by then
  int undisturbed = 0;             // …of those, no node was drained meanwhile…
  int undisturbed_kept = 0;        // …and started by then
  std::vector<double> slack_min;   // between the expected and the latest time
  std::vector<double> wait_min;    // until the latest time
  int earlier = 0;                 // of these
  int revised = 0;                 // told later, before the first promise had passed
  int never = 0;                   // cannot be told any more: its nodes are drained
  std::map<Happened, int> causes;  // what came before a later promise
};

// One fleet that goes on until one of its waiting jobs starts.
class World {
 public:
  World(std::uint64_t seed, std::uint64_t size) : fleet_(seed, size) {
    for (std::uint64_t i = 0; i < 8 * size; ++i)
      add_job();
    move(fleet_.now + minutes(fleet_.rng.between(0, 4)));
  }

  void follow_one(Count& count) {
    plan_all();
    const auto queued = fleet_.index.contents().queued;
    if (queued.empty())
      return;
    job_ = queued[fleet_.rng.below(queued.size())].id;
    const WallTime first = forecast(fleet_.index, job_, fleet_.now);
    if (!first)
      return;
    const WallTime latest = latest_start(fleet_.index, job_, fleet_.now);
    ASSERT_TRUE(!latest || latest >= first);
    const WallTime asked_at = fleet_.now;
    if (latest) {
      ++count.promised;
      count.slack_min.push_back(static_cast<double>((latest - first).ns) / 60e9);
      count.wait_min.push_back(static_cast<double>((latest - asked_at).ns) / 60e9);
    }
    ++count.worlds;
    WallTime promise = first;
    while (!started_) {
      const Happened what = next_event(promise);
      if (started_)
        break;
      ASSERT_TRUE(what != Happened::nothing)
          << "job " << job_.value << " was promised " << (promise - t0).ns / 1'000'000'000
          << " s; it is " << (fleet_.now - t0).ns / 1'000'000'000 << " s, and it waits";
      const WallTime again = forecast(fleet_.index, job_, fleet_.now);
      const Explanation why = explain(fleet_.index, job_, fleet_.now, Advice::none);
      ASSERT_FALSE(why.reasons.empty());
      ASSERT_FALSE(why.reasons.front().text.empty());
      if (!again || again > promise)
        ++count.causes[what];
      drained_ = drained_ || what == Happened::drained;
      if (!again) {
        ++count.never;
        return;
      }
      promise = again;
    }
    const bool kept = fleet_.now <= first;
    (kept ? count.kept : count.revised) += 1;
    count.promise_kept += latest && fleet_.now <= latest;
    if (latest && !drained_) {
      ++count.undisturbed;
      count.undisturbed_kept += fleet_.now <= latest;
    }
    count.earlier += fleet_.now < first;
    ASSERT_LE(fleet_.now, promise) << "started after the last promise";
  }

 private:
  void add_job() {
    JobRequest j = fleet_.random_job();
    j.time_limit = minutes(fleet_.rng.between(5, 200));
    if (!feasible(fleet_.index, j))
      return;
    fleet_.index.enqueue(j);
    plan_all();
  }

  // The head plans whenever something happens.
  void plan_all() {
    for (int round = 0; round < 20; ++round) {
      const Plan p = plan(fleet_.index, fleet_.now);
      started_ = started_ || started_by(p, job_);
      for (const Start& s : p.starts) {
        const Duration limit = fleet_.index.queued(s.job)->time_limit;
        const bool whole = fleet_.rng.chance(0.6);
        const Duration runs =
            whole ? limit : seconds(fleet_.rng.between(60, limit.ns / 1'000'000'000));
        ends_.emplace(fleet_.now + runs, std::pair(s.job, runs < limit));
      }
      for (const Preempt& v : p.preempts)
        std::erase_if(ends_, [&](const auto& e) { return e.second.first == v.victim; });
      carry_out(fleet_.index, p, fleet_.now);
      if (p.empty())
        break;
    }
  }

  void move(WallTime to) {
    fleet_.now = to;
    for (; !ends_.empty() && ends_.begin()->first <= to; ends_.erase(ends_.begin()))
      fleet_.index.ended(ends_.begin()->second.first, to);
    plan_all();
  }

  // The next thing that nobody could foresee, at the latest when the promise is due. What was
  // foreseen (jobs that end at their limit, levels that rise) happens on the way.
  Happened next_event(WallTime due) {
    const bool more = fleet_.rng.chance(0.15), drains = !more && fleet_.rng.chance(0.03);
    const WallTime outside =
        more || drains ? fleet_.now + minutes(fleet_.rng.between(1, 60)) : WallTime{};
    for (;;) {
      WallTime next = due;
      bool early = false;
      if (!ends_.empty() && ends_.begin()->first < next) {
        next = ends_.begin()->first;
        early = ends_.begin()->second.second;
      }
      for (const JobRequest& q : fleet_.index.contents().queued)
        for (int n = 1; n <= 8; ++n)
          if (const WallTime t = q.submitted + hours(6) * n; t > fleet_.now && t < next) {
            next = t;
            early = false;
          }
      if (outside && outside < next && outside > fleet_.now) {
        move(outside);
        if (started_)
          return Happened::nothing;
        return more ? submit_more() : drain();
      }
      const bool at_due = next >= due;
      move(next);
      if (started_ || early)
        return Happened::early_end;
      if (at_due)
        return Happened::nothing;
    }
  }

  Happened submit_more() {
    add_job();
    return Happened::submitted;
  }

  Happened drain() {
    const auto nodes = fleet_.index.contents().nodes;
    NodeShape shape = nodes[fleet_.rng.below(nodes.size())];
    shape.use = NodeUse::draining;
    fleet_.index.upsert_node(shape);
    plan_all();
    return Happened::drained;
  }

  Fleet fleet_;
  JobId job_;
  bool started_ = false;
  bool drained_ = false;
  std::multimap<WallTime, std::pair<JobId, bool>> ends_;  // and whether earlier than declared
};

double percent(int part, int all) {
  return 100.0 * part / std::max(1, all);
}

// The worlds of one size, and what became of their promises.
Count worlds_of(std::uint64_t size, std::uint64_t worlds) {
  Count count;
  for (std::uint64_t seed = 1; seed <= worlds && !testing::Test::HasFatalFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed) + ", size " + std::to_string(size));
    World(seed, size).follow_one(count);
  }
  std::ranges::sort(count.slack_min);
  std::ranges::sort(count.wait_min);
  const auto at = [](const std::vector<double>& sorted, std::size_t tenths) {
    return sorted.empty() ? 0.0 : sorted[sorted.size() * tenths / 10];
  };
  fmt::print(
      "{} to {} nodes: {} latest times, kept in {:.2f} % ({:.2f} % of the {} worlds without "
      "drained "
      "nodes); median {:.0f} min from now and {:.0f} min after the expected time, 90 % within "
      "{:.0f} "
      "min\n",
      size, 3 * size, count.promised, percent(count.promise_kept, count.promised),
      percent(count.undisturbed_kept, count.undisturbed), count.undisturbed, at(count.wait_min, 5),
      at(count.slack_min, 5), at(count.slack_min, 9));
  fmt::print(
      "  {} expected times: {} kept ({:.1f} %), {} of them by an earlier start; {} revised before "
      "they had passed; {} no longer known. Later ones came after: submissions {}, drained nodes "
      "{}, jobs that ended early {}\n",
      count.worlds, count.kept, percent(count.kept, count.worlds), count.earlier, count.revised,
      count.never, count.causes[Happened::submitted], count.causes[Happened::drained],
      count.causes[Happened::early_end]);
  return count;
}

// Ten times as slow without optimisation.
#ifdef __OPTIMIZE__
constexpr std::uint64_t usual = 5'000;
#else
constexpr std::uint64_t usual = 500;
#endif

TEST(PromiseProperty, AStartIsKeptOrRevisedWithAReason) {
  const char* asked = std::getenv("BILLOW_WORLDS");
  const std::uint64_t worlds = asked ? std::stoull(asked) : usual;
  Count count = worlds_of(1, worlds);
  RecordProperty("kept", count.undisturbed_kept);
  EXPECT_GT(count.worlds, static_cast<int>(worlds) / 3);
  EXPECT_GT(count.kept, count.worlds * 8 / 10);
  EXPECT_GE(count.promised, count.worlds * 99 / 100);
  EXPECT_GE(count.undisturbed_kept * 100, count.undisturbed * 99);
  EXPECT_EQ(count.causes[Happened::nothing], 0);
}

// More jobs come and go while one waits in a larger fleet.
TEST(PromiseProperty, ALatestStartIsKeptInALargerFleet) {
  Count count = worlds_of(5, usual / 20);
  EXPECT_GT(count.promised, static_cast<int>(usual) / 40);
  EXPECT_GE(count.undisturbed_kept * 1000, count.undisturbed * 985);
  EXPECT_EQ(count.causes[Happened::nothing], 0);
}

}  // namespace
}  // namespace billow::sched
