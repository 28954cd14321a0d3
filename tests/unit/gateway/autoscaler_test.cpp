// The autoscaler and the router in virtual time: what each must never do, and what it must do in
// time.
#include <gtest/gtest.h>

#include <map>
#include "base/rng.h"

#include "gateway/pure/autoscaler.h"
#include "gateway/pure/daily_pattern.h"

namespace billow::gateway {
namespace {

SteadyTime at(double s) {
  return {static_cast<std::int64_t>(s * 1e9) + 1};
}

struct Fixture {
  ScalePolicy policy{.min = 0,
                     .max = 8,
                     .concurrency = 4,
                     .wait_target = seconds(1),
                     .idle = seconds(120),
                     .keep_suspended = hours(1)};
  Router router{{.concurrency = 4, .queue_max = 100}};
  Autoscaler scaler{policy};
  RequestId last = 0;

  void add(ReplicaKey key, Phase phase, double s) { router.set_phase(key, phase, at(s)); }
  Router::Answer arrive(double s) {
    scaler.arrived(at(s));
    return router.arrive(++last, at(s), at(s + 60));
  }
  std::vector<ScaleAction> decide(double s, ScaleCaps caps = {}) {
    return scaler.decide(router, caps, at(s));
  }
  static std::size_t count(const std::vector<ScaleAction>& actions, ScaleAction::Kind kind) {
    return static_cast<std::size_t>(std::count_if(
        actions.begin(), actions.end(), [&](const ScaleAction& a) { return a.kind == kind; }));
  }
};
using Kind = ScaleAction::Kind;

TEST(Router, FillsOneReplicaBeforeTheNextSoThatOthersCanSleep) {
  Fixture f;
  f.add(1, Phase::ready, 0);
  f.add(2, Phase::ready, 0);
  const ReplicaKey first = f.arrive(0).replica;
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(f.arrive(0).replica, first);
  EXPECT_NE(f.arrive(0).replica, first);
}

TEST(Router, PacksSpreadsOrTakesTheFastestAsItsOwnerWishes) {
  for (const auto balance :
       {EndpointBalance::pack, EndpointBalance::spread, EndpointBalance::least_latency}) {
    Router router({.concurrency = 4, .queue_max = 10, .balance = balance});
    router.spread_over(1);
    for (ReplicaKey key : {1, 2, 3})
      router.set_phase(key, Phase::ready, at(0));
    std::map<ReplicaKey, int> got;
    for (RequestId id = 1; id <= 3; ++id)
      ++got[router.arrive(id, at(0), at(60)).replica];
    EXPECT_EQ(got.size(), balance == EndpointBalance::pack ? 1u : 3u) << enum_name(balance);
  }
}

TEST(Router, ASlowReplicaGetsFewerRequestsAndIsTriedAgain) {
  Router router({.concurrency = 0, .queue_max = 10, .balance = EndpointBalance::least_latency});
  router.set_phase(1, Phase::ready, at(0));
  router.set_phase(2, Phase::ready, at(0));
  router.took(1, seconds(2), at(1));
  router.took(2, milliseconds(100), at(1));
  for (RequestId id = 1; id <= 10; ++id) {
    const ReplicaKey to = router.arrive(id, at(1), at(60)).replica;
    EXPECT_EQ(to, 2u);
    router.finished(to, at(1));
  }
  for (RequestId id = 11; id <= 12; ++id)
    EXPECT_EQ(router.arrive(id, at(1), at(60)).replica, 2u) << "twenty times as fast";
  EXPECT_EQ(router.arrive(13, at(200), at(260)).replica, 1u) << "what it was is forgotten";
}

TEST(Router, WaitingRequestsAreServedInOrder) {
  Fixture f;
  EXPECT_EQ(f.arrive(0).verdict, Router::Verdict::held);
  EXPECT_EQ(f.arrive(1).verdict, Router::Verdict::held);
  f.add(1, Phase::ready, 2);
  EXPECT_EQ(f.arrive(2).verdict, Router::Verdict::held) << "two others came before";
  const auto given = f.router.dispatch(at(2));
  ASSERT_EQ(given.size(), 3u);
  EXPECT_EQ(given[0].request, 1u);
  EXPECT_EQ(given[2].request, 3u);
}

TEST(Router, AFullQueueRefusesAndSaysWhenToComeBack) {
  Router router({.concurrency = 1, .queue_max = 2});
  EXPECT_EQ(router.arrive(1, at(0), at(60)).verdict, Router::Verdict::held);
  EXPECT_EQ(router.arrive(2, at(0), at(60)).verdict, Router::Verdict::held);
  EXPECT_EQ(router.arrive(3, at(0), at(60)).verdict, Router::Verdict::full);
  EXPECT_EQ(router.arrive(4, at(0), at(60), 9).verdict, Router::Verdict::held)
      << "who failed elsewhere had a place already";
  EXPECT_GE(router.retry_after_s(seconds(10)), 10);
  EXPECT_LE(router.retry_after_s(hours(1)), 60);
}

TEST(Router, RequestsPastTheirDeadlineAreRemoved) {
  Router router({.concurrency = 1, .queue_max = 10});
  (void)router.arrive(1, at(0), at(5));
  (void)router.arrive(2, at(1), at(6));
  EXPECT_TRUE(router.expire(at(4.9)).empty());
  EXPECT_EQ(router.expire(at(5.5)), std::vector<RequestId>{1});
  EXPECT_TRUE(router.cancel(2));
  EXPECT_FALSE(router.cancel(2));
  EXPECT_EQ(router.held(), 0u);
}

TEST(Router, ARetryAvoidsTheFailedReplicaIfPossible) {
  Router router({.concurrency = 4, .queue_max = 10});
  router.set_phase(1, Phase::ready, at(0));
  EXPECT_EQ(router.arrive(1, at(0), at(60), 1).replica, 1u);
  router.set_phase(2, Phase::ready, at(0));
  EXPECT_EQ(router.arrive(2, at(0), at(60), 1).replica, 2u);
}

TEST(Retry, OnlyUnsentOrRepeatableRequests) {
  EXPECT_TRUE(may_retry({.sent_anything = false}));
  EXPECT_FALSE(may_retry({.sent_anything = true}));
  EXPECT_TRUE(may_retry({.sent_anything = true, .repeatable_method = true}));
  EXPECT_TRUE(may_retry({.sent_anything = true, .has_idempotency_key = true}));
  EXPECT_FALSE(may_retry({.answer_began = true, .repeatable_method = true}));
  EXPECT_TRUE(may_retry({.sent_anything = true, .repeatable_method = true, .lost = 1}));
  EXPECT_FALSE(may_retry({.sent_anything = true, .repeatable_method = true, .lost = 2}));
  EXPECT_FALSE(may_retry({.sent_anything = true, .has_idempotency_key = true, .lost = 2}));
  EXPECT_TRUE(may_retry({.sent_anything = false, .tries = 2, .lost = 2}));
  EXPECT_FALSE(may_retry({.sent_anything = false, .body_kept = false}));
  EXPECT_FALSE(may_retry({.sent_anything = false, .tries = limits::gateway_tries_max}));
}

TEST(Autoscaler, TheFirstRequestWakesASleeperAtOnce) {
  Fixture f;
  f.add(7, Phase::suspended, 0);
  EXPECT_TRUE(f.decide(10).empty());
  (void)f.arrive(10);
  const auto actions = f.decide(10);
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_EQ(actions[0].kind, Kind::resume);
  EXPECT_EQ(actions[0].replica, 7u);
  f.add(7, Phase::resuming, 10);
  EXPECT_TRUE(f.decide(10.1).empty()) << "asked for once";
}

// A request that comes while the only replica is on its way to sleep calls it back; a cold one
// beside it would be paid for nothing.
TEST(Autoscaler, OneThatFallsAsleepIsCalledBackAndNoneIsStarted) {
  Fixture f;
  f.add(7, Phase::falling, 0);
  (void)f.arrive(0.1);
  const auto actions = f.decide(0.1);
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_EQ(actions[0].kind, Kind::resume);
  EXPECT_EQ(actions[0].replica, 7u);
}

TEST(Autoscaler, NoReplicaSleepsInFavourOfAStartingOne) {
  Fixture f;
  f.policy.idle = {};
  f.scaler.configure(f.policy);
  f.add(1, Phase::starting, 0);
  f.add(2, Phase::resuming, 0);
  (void)f.arrive(0);
  f.add(2, Phase::ready, 0.01);
  EXPECT_EQ(Fixture::count(f.decide(0.01), Kind::suspend), 0u) << "somebody waits for it";
  ASSERT_EQ(f.router.dispatch(at(0.01)).size(), 1u);
  f.router.finished(2, at(0.1));
  EXPECT_EQ(Fixture::count(f.decide(0.2), Kind::suspend), 1u);
}

// A rate that fades slowly promised work long after the last request: the last replica stayed awake
// for minutes beyond its idle time.
TEST(Autoscaler, TheLastOneSleepsAfterTheIdleTimeHoweverBusyItWas) {
  for (const double service_s : {0.1, 8.0, 30.0}) {
    SCOPED_TRACE(service_s);
    Fixture f;
    f.policy.idle = seconds(10);
    f.scaler.configure(f.policy);
    f.scaler.woke(
        seconds(3));  // slower than a request may wait, so that capacity is kept for what may come
    f.scaler.came_up(seconds(40));
    for (ReplicaKey k : {1, 2, 3})
      f.add(k, Phase::ready, 0);
    std::multimap<double, ReplicaKey> done;
    double last = 0;
    for (double t = 0; t < 400; t += 0.05) {
      while (!done.empty() && done.begin()->first <= t) {
        f.router.finished(done.begin()->second, at(t));
        f.scaler.served(nanoseconds(static_cast<std::int64_t>(service_s * 1e9)), at(t));
        last = t;
        done.erase(done.begin());
      }
      if (t < 60)
        if (const auto a = f.arrive(t); a.verdict == Router::Verdict::go)
          done.emplace(t + service_s, a.replica);
      for (const auto& a : f.router.dispatch(at(t)))
        done.emplace(t + service_s, a.replica);
      for (const auto& action : f.decide(t))
        if (action.kind == Kind::suspend)
          f.add(action.replica, Phase::suspended, t);
        else if (action.kind == Kind::resume)
          f.add(action.replica, Phase::ready, t);
      std::size_t awake = 0;
      for (const auto& [key, r] : f.router.replicas())
        awake += r.phase == Phase::ready;
      if (t > 61 && done.empty() && f.router.held() == 0 && t > last + 17) {
        ASSERT_EQ(awake, 0u) << "at " << t << ", the last request ended at " << last;
      }
    }
    EXPECT_TRUE(done.empty());
  }
}

// A stream that has only begun may be many times as large when a replica that is started now is
// there; one call is no stream, and what has been watched for long needs no such margin.
TEST(Autoscaler, AYoungStreamHasMoreReplicasMadeThanItNeedsYet) {
  Fixture f;
  f.add(1, Phase::ready, 0);
  (void)f.arrive(0);
  EXPECT_TRUE(f.decide(0).empty()) << "a single call";
  for (int i = 1; i < 4; ++i)
    (void)f.arrive(i);
  EXPECT_GE(Fixture::count(f.decide(3), Kind::start), 4u);
  Fixture old;
  for (ReplicaKey k : {1, 2})
    old.add(k, Phase::ready, 0);
  for (double t = 0; t < 2000; t += 2) {
    const auto a = old.arrive(t);
    old.router.finished(a.replica, at(t + 1));
    old.scaler.served(seconds(1), at(t + 1));
  }
  EXPECT_EQ(Fixture::count(old.decide(2000), Kind::start), 0u);
}

TEST(Autoscaler, RequestsServedElsewhereCountAsOwnDemand) {
  Fixture f;
  f.add(7, Phase::suspended, 0);
  EXPECT_TRUE(f.decide(1).empty());
  f.router.lent(true);
  EXPECT_EQ(Fixture::count(f.decide(1), Kind::resume), 1u);
  f.router.lent(false);
  f.router.lent(false);
  EXPECT_EQ(f.router.lent(), 0u);
}

TEST(Autoscaler, WithoutASleeperOneIsStarted) {
  Fixture f;
  (void)f.arrive(1);
  EXPECT_GE(Fixture::count(f.decide(1), Kind::start), 1u);
}

TEST(Autoscaler, ABusyReplicaIsNeverChosen) {
  Fixture f;
  f.add(1, Phase::ready, 0);
  (void)f.arrive(0);
  for (double t = 0; t < 100'000; t += 500)
    EXPECT_TRUE(f.decide(t).empty()) << t;
  f.router.finished(1, at(100'000));
  EXPECT_TRUE(f.decide(100'119).empty()) << "the last one rests for the endpoint's idle time";
  const auto actions = f.decide(100'121);
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_EQ(actions[0].kind, Kind::suspend);
}

TEST(Autoscaler, SpareOnesSleepSoonAndTheMinimumStays) {
  Fixture f;
  f.policy.min = 1;
  f.scaler.configure(f.policy);
  for (ReplicaKey k : {1, 2, 3})
    f.add(k, Phase::ready, 0);
  EXPECT_EQ(Fixture::count(f.decide(10), Kind::suspend), 2u);
  f.add(1, Phase::suspended, 10);
  f.add(2, Phase::suspended, 10);
  EXPECT_TRUE(f.decide(3000).empty()) << "the minimum stays awake";
}

TEST(Autoscaler, ASleeperIsStoppedAfterItsKeepTime) {
  Fixture f;
  f.add(1, Phase::suspended, 0);
  EXPECT_TRUE(f.decide(3599).empty());
  EXPECT_EQ(Fixture::count(f.decide(3601), Kind::stop), 1u);
}

TEST(Autoscaler, WithoutKeepingIdleOnesAreStoppedNotSuspended) {
  Fixture f;
  f.policy.keep_suspended = {};
  f.scaler.configure(f.policy);
  f.add(1, Phase::ready, 0);
  EXPECT_EQ(Fixture::count(f.decide(500), Kind::stop), 1u);
}

TEST(Autoscaler, NeverAboveMaximumQuotaOrBudget) {
  Fixture f;
  for (int i = 0; i < 90; ++i)
    (void)f.arrive(1);
  EXPECT_EQ(f.decide(1, {.replicas_max = 3}).size(), 3u);
  EXPECT_EQ(f.decide(1, {.replicas_max = 0}).size(), 0u);
  EXPECT_EQ(f.decide(1).size(), 8u);
}

TEST(Autoscaler, TheBaseIsOnDemandAndTheBurstOnSpot) {
  Fixture f;
  f.policy.base_on_demand = 2;
  f.policy.spot_burst = true;
  f.scaler.configure(f.policy);
  for (int i = 0; i < 20; ++i)
    (void)f.arrive(1);
  std::size_t spot = 0, firm = 0;
  for (const auto& a : f.decide(1))
    ++(a.spot ? spot : firm);
  EXPECT_EQ(firm, 2u);
  EXPECT_GE(spot, 3u);
}

TEST(Autoscaler, HoldsWhileFreedSlotsServeInTimeAndWakesWhenTheyWillNot) {
  Fixture f;
  for (int i = 0; i < 200; ++i)
    f.scaler.served(milliseconds(200), at(0));
  f.scaler.woke(milliseconds(100));
  f.add(1, Phase::ready, 0);
  f.add(2, Phase::suspended, 0);
  for (int i = 0; i < 6; ++i)
    (void)f.arrive(1);
  EXPECT_EQ(Fixture::count(f.decide(1), Kind::resume), 0u)
      << "two wait, and 4 slots of 0.2 s serve 18 within the second allowed";
  for (int i = 0; i < 40; ++i)
    (void)f.arrive(1);
  EXPECT_EQ(Fixture::count(f.decide(1), Kind::resume), 1u);
}

// Whatever happens: never beyond the limit, never a busy replica, no request lost.
TEST(Autoscaler, KeepsItsRulesUnderRandomTraffic) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    Fixture f;
    std::multimap<double, ReplicaKey> done, ready;
    std::size_t served = 0, wanted = 0;
    ReplicaKey next = 0;
    for (double t = 0; t < 300; t += 0.05) {
      if (rng.below(1000) < (static_cast<std::uint64_t>(t) % 60 < 15 ? 900u : 30u)) {
        ++wanted;
        if (const auto a = f.arrive(t); a.verdict == Router::Verdict::go)
          done.emplace(t + 0.1 + rng.below(2000) / 1000.0, a.replica);
      }
      while (!done.empty() && done.begin()->first <= t) {
        f.router.finished(done.begin()->second, at(t));
        ++served;
        done.erase(done.begin());
      }
      while (!ready.empty() && ready.begin()->first <= t) {
        f.add(ready.begin()->second, Phase::ready, t);
        ready.erase(ready.begin());
      }
      for (const auto& a : f.router.dispatch(at(t)))
        done.emplace(t + 0.1 + rng.below(2000) / 1000.0, a.replica);
      for (const auto& action : f.decide(t)) {
        const Replica* r = f.router.find(action.replica);
        switch (action.kind) {
          case Kind::start:
            f.add(++next, Phase::starting, t);
            ready.emplace(t + 5, next);
            break;
          case Kind::resume:
            ASSERT_EQ(r->phase, Phase::suspended);
            f.add(action.replica, Phase::resuming, t);
            ready.emplace(t + 0.5, action.replica);
            break;
          case Kind::suspend:
            ASSERT_EQ(r->in_flight, 0u);
            f.add(action.replica, Phase::suspended, t);
            break;
          case Kind::stop:
            ASSERT_EQ(r->in_flight, 0u);
            f.router.remove(action.replica);
            break;
        }
      }
      ASSERT_LE(f.router.replicas().size(), f.policy.max);
      ASSERT_TRUE(f.router.expire(at(t)).empty())
          << "a request waited a minute with eight replicas allowed";
    }
    EXPECT_EQ(wanted, served + done.size() + f.router.held());
    EXPECT_GT(wanted, 500u);
  }
}

TEST(Autoscaler, TokensDecideHowManyRequestsAReplicaServes) {
  Fixture f;
  f.policy.concurrency = 16;
  f.policy.target_tokens = 4000;
  f.scaler.configure(f.policy);
  EXPECT_EQ(f.scaler.replicas_for(16), 1u) << "nothing is known of their tokens";
  f.scaler.used_tokens(1000);
  EXPECT_EQ(f.scaler.replicas_for(16), 4u);
  for (int i = 0; i < 100; ++i)
    f.scaler.used_tokens(100'000);
  EXPECT_EQ(f.scaler.replicas_for(16), 16u) << "at least one request each";
}

TEST(Autoscaler, TheLeastAndTheMostAwakeComeFromOutside) {
  Fixture f;
  EXPECT_EQ(f.count(f.decide(0, {.awake_min = 3}), Kind::start), 3u);
  EXPECT_FALSE(f.scaler.limited());
  EXPECT_EQ(f.count(f.decide(0, {.awake_max = 1, .awake_min = 3}), Kind::start), 1u);
  EXPECT_TRUE(f.scaler.limited());
  EXPECT_EQ(f.count(f.decide(0, {.awake_min = 30}), Kind::start), 8u) << "--max counts";
  for (ReplicaKey key : {1, 2, 3})
    f.add(key, Phase::ready, 0);
  EXPECT_EQ(f.count(f.decide(500, {.awake_min = 3}), Kind::suspend), 0u);
  EXPECT_EQ(f.count(f.decide(500, {.awake_max = 1, .awake_min = 3}), Kind::suspend), 2u);
}

TEST(DailyPattern, ALoadIsExpectedAtItsTimeAndForgottenInDays) {
  DailyPattern pattern;
  const auto day = [](int n, double hour) {
    return WallTime{static_cast<std::int64_t>((n * 24 + hour) * 3600e9)};
  };
  EXPECT_EQ(pattern.expected(day(0, 9), hours(1)), 0);
  pattern.observe(2, day(0, 9));
  pattern.observe(8, day(0, 9.01));
  pattern.observe(0, day(0, 10));
  EXPECT_EQ(pattern.expected(day(1, 8.9), minutes(1)), 0);
  EXPECT_EQ(pattern.expected(day(1, 8.9), minutes(10)), 8);
  EXPECT_EQ(pattern.expected(day(1, 9), Duration{}), 8);
  DailyPattern restored;
  restored.restore(pattern.peaks_by_slot());
  EXPECT_EQ(restored.expected(day(5, 9), Duration{}), 8);
  for (int n = 1; n <= 9; ++n)
    pattern.observe(0, day(n, 12));
  EXPECT_EQ(pattern.expected(day(10, 9), Duration{}), 0);
}

}  // namespace
}  // namespace billow::gateway
