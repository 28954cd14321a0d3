// The books against random histories: price changes, suspensions, crashes, late and repeated facts,
// clocks that are set. A second book, kept second by second in exact fractions, says what every
// amount must be.
#include <gtest/gtest.h>

#include <numeric>

#include "base/rng.h"
#include "core/ledger/books.h"

namespace billow::ledger {

struct BooksProbe {
  // What is posted differently from the facts: zero right after a close.
  static NanoUsd unposted(const Books& books) {
    NanoUsd sum;
    for (const auto& [id, lease] : books.leases_) {
      const auto now = books.amounts_until(lease, books.watermark_, nullptr);
      for (const NanoUsd d : {now.active - lease.posted.active, now.idle - lease.posted.idle,
                              now.charge - lease.posted.charge, now.egress - lease.posted.egress})
        sum += {std::abs(d.value)};
    }
    for (const auto& [id, node] : books.nodes_)
      sum += {std::abs(
          (books.fleet_until(node, books.watermark_) - node.posted_leases - node.posted_unallocated)
              .value)};
    return sum;
  }
  static std::size_t leases_held(const Books& books) { return books.leases_.size(); }
};

namespace {

WallTime at_s(std::int64_t s) {
  return WallTime{} + seconds(1'800'000'000 + s);
}

constexpr std::int64_t span_s = 3000, capacity = 4000;
struct History {
  std::vector<Fact> facts;  // in the order things happened
  std::vector<LeaseId> leases;
  int pieces = 0;  // of constant price and share, over all leases: the bound of rounding
};

// Per node four slots of one GPU each, so that no more is leased than there is.
History random_history(Rng& rng) {
  History h;
  std::vector<std::pair<std::int64_t, Fact>> timed;
  const auto put = [&](std::int64_t s, Fact fact) {
    timed.emplace_back(s, std::move(fact));
  };
  const int node_count = static_cast<int>(rng.between(1, 3));
  std::uint64_t next_lease = 1;
  int rate_changes = 0;
  for (int n = 1; n <= node_count; ++n) {
    const NodeId node(static_cast<std::uint64_t>(n));
    put(0, NodePriced{node, at_s(0), {rng.between(1, 9'000'000'007)}, capacity});
    for (auto changes = rng.between(0, 4); changes > 0; --changes, ++rate_changes) {
      const std::int64_t s = rng.between(1, span_s - 1);
      put(s, NodePriced{node, at_s(s), {rng.between(1, 9'000'000'007)}, capacity});
    }
    for (int slot = 0; slot < 4; ++slot) {
      for (std::int64_t s = rng.between(0, 200); s < span_s;) {
        const LeaseId lease(next_lease++);
        const std::int64_t end = std::min(span_s, s + rng.between(0, 900)),
                           milli = rng.chance(0.5) ? 1000 : rng.between(1, 999);
        const Rate rate{rng.between(0, 1'500'000'001)};
        put(s, LeaseOpened{lease, JobId(lease.value), TaskId(lease.value),
                           ProjectId(1 + lease.value % 3), UserId(1), node, "H100",
                           PriceClass::on_demand, milli, rate, at_s(s)});
        h.leases.push_back(lease);
        ++h.pieces;
        std::int64_t active = 0, marked = s;
        for (std::int64_t t = s + rng.between(1, 200); t < end; t += rng.between(1, 200)) {
          if (rng.chance(0.3)) {
            const bool suspend = rng.chance(0.5);
            put(t, LeaseChanged{lease, at_s(t), node,
                                suspend ? PriceClass::suspended : PriceClass::on_demand,
                                suspend ? 0 : milli, milli,
                                suspend ? Rate{rng.between(0, 1000)} : rate});
            ++h.pieces;
          } else if (rng.chance(0.3)) {
            put(t, LeaseExtra{lease,
                              node,
                              at_s(t),
                              {rng.between(0, 5'000'000'000)},
                              rng.between(0, 1ll << 40)});
          } else {
            active += rng.between(0, t - marked);
            marked = t;
            put(t, LeaseMarked{lease, at_s(t), seconds(active), t * 1000});
          }
        }
        if (end < span_s || rng.chance(0.5))
          put(end, LeaseClosed{lease, at_s(end)});
        s = end + rng.between(0, 300);
      }
    }
  }
  h.pieces *= 1 + rate_changes;
  std::stable_sort(timed.begin(), timed.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (auto& [s, fact] : timed)
    h.facts.push_back(std::move(fact));
  return h;
}

// Second by second, in fractions of 1/capacity and 1/1000 nano-dollars.
struct Oracle {
  __int128 fleet = 0, leased = 0, charge = 0, egress = 0;  // leased × capacity, charge × 1000
};
Oracle second_by_second(const History& h, std::int64_t from, std::int64_t to) {
  struct Lease {
    std::int64_t milli = 0, charged = 0, rate = 0;
    NodeId node;
  };
  std::map<NodeId, std::int64_t> node_rate;
  std::map<LeaseId, Lease> leases;
  Oracle sum;
  std::size_t next = 0;
  const auto time_of = [](const Fact& fact) {
    return std::visit([](const auto& f) { return f.at; }, fact);
  };
  for (std::int64_t s = 0; s < to; ++s) {
    for (; next < h.facts.size() && time_of(h.facts[next]) <= at_s(s); ++next) {
      const Fact& fact = h.facts[next];
      if (const auto* f = std::get_if<NodePriced>(&fact))
        node_rate[f->node] = f->rate.nano_usd_per_s;
      if (const auto* f = std::get_if<LeaseOpened>(&fact))
        leases[f->lease] = {f->milli, f->milli, f->rate.nano_usd_per_s, f->node};
      if (const auto* f = std::get_if<LeaseChanged>(&fact))
        leases[f->lease] = {f->milli, f->charged_milli, f->rate.nano_usd_per_s, f->node};
      if (const auto* f = std::get_if<LeaseClosed>(&fact))
        leases.erase(f->lease);
      if (const auto* f = std::get_if<LeaseExtra>(&fact); f && s >= from) {
        sum.fleet += f->amount.value;
        sum.egress += f->amount.value;
        sum.leased += static_cast<__int128>(f->amount.value) * capacity;
        sum.charge += static_cast<__int128>(f->amount.value) * 1000;
      }
    }
    if (s < from)
      continue;
    for (const auto& [node, rate] : node_rate)
      sum.fleet += rate;
    for (const auto& [id, lease] : leases) {
      sum.leased += static_cast<__int128>(node_rate[lease.node]) * lease.milli;
      sum.charge += static_cast<__int128>(lease.rate) * lease.charged;
    }
  }
  return sum;
}

// As the journal would bring them: a lease's opening and its node's price before all else, the rest
// late by any amount.
std::vector<Fact> delayed(const History& h, Rng& rng) {
  std::vector<std::pair<double, const Fact*>> order;
  double position = 0;
  for (const Fact& fact : h.facts) {
    position += 1;
    const bool opening =
        std::holds_alternative<LeaseOpened>(fact) || std::holds_alternative<NodePriced>(fact);
    order.emplace_back(opening || rng.chance(0.6) ? position : position + rng.unit() * 60, &fact);
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Fact> out;
  for (const auto& [p, fact] : order)
    out.push_back(*fact);
  return out;
}

// Feeds facts and closes now and then; every fact comes twice, as after a crash.
std::vector<Entry> keep(Books& books, const std::vector<Fact>& facts, Rng& rng) {
  std::vector<Entry> entries;
  Seq seq = 0;
  std::int64_t closed = 0;
  for (const Fact& fact : facts) {
    EXPECT_TRUE(books.apply(++seq, fact));
    EXPECT_TRUE(books.apply(seq, fact));
    if (rng.chance(0.1)) {
      closed = std::min(span_s, closed + rng.between(0, 120));
      for (Entry& entry : books.close(at_s(closed)))
        entries.push_back(std::move(entry));
      EXPECT_EQ(BooksProbe::unposted(books).value, 0);
    }
  }
  for (Entry& entry : books.close(at_s(span_s)))
    entries.push_back(std::move(entry));
  return entries;
}

TEST(Books, ReconcileToZeroForRandomHistories) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    const History history = random_history(rng);
    const std::vector<Fact> facts = delayed(history, rng);
    Books books;
    const std::vector<Entry> entries = keep(books, facts, rng);
    EXPECT_EQ(BooksProbe::unposted(books).value, 0);

    // Every window: the parts make the whole, and the whole is what the seconds say.
    for (int i = 0; i < 6; ++i) {
      std::int64_t a = rng.between(0, span_s), c = rng.between(0, span_s);
      if (a > c)
        std::swap(a, c);
      const std::int64_t b = rng.between(a, c);
      const Totals whole = books.totals(at_s(a), at_s(c)), first = books.totals(at_s(a), at_s(b)),
                   rest = books.totals(at_s(b), at_s(c));
      EXPECT_EQ(whole.active + whole.idle + whole.unallocated, whole.fleet);
      EXPECT_EQ(first.fleet + rest.fleet, whole.fleet);
      EXPECT_EQ(first.active + rest.active, whole.active);
      EXPECT_EQ(first.charge + rest.charge, whole.charge);
      EXPECT_EQ(first.egress + rest.egress, whole.egress);
      const Oracle oracle = second_by_second(history, a, c);
      EXPECT_EQ(whole.fleet.value, static_cast<std::int64_t>(oracle.fleet));
      EXPECT_EQ(whole.egress.value, static_cast<std::int64_t>(oracle.egress));
      EXPECT_LE(std::abs((whole.active + whole.idle).value -
                         static_cast<std::int64_t>(oracle.leased / capacity)),
                2 * history.pieces);
      EXPECT_LE(std::abs(whole.charge.value - static_cast<std::int64_t>(oracle.charge / 1000)),
                2 * history.pieces);
      EXPECT_GE(whole.active.value, 0);
      EXPECT_GE(whole.unallocated.value, -2 * history.pieces);
    }
    // The entries are the books: their sum is what the facts say.
    Totals posted;
    for (const Entry& entry : entries) {
      switch (entry.kind) {
        case EntryKind::active:
          posted.active += entry.amount;
          break;
        case EntryKind::idle:
          posted.idle += entry.amount;
          break;
        case EntryKind::unallocated:
          posted.unallocated += entry.amount;
          break;
        case EntryKind::charge:
          posted.charge += entry.amount;
          break;
        case EntryKind::egress:
          posted.charge += entry.amount;
          posted.egress += entry.amount;
          break;
      }
    }
    posted.fleet = posted.active + posted.idle + posted.unallocated;
    EXPECT_EQ(posted, books.totals(at_s(0), at_s(span_s)));
  }
}

TEST(Books, ReplayGivesTheSameEntriesAndAnyOrderTheSameTotals) {
  for (std::uint64_t seed = 100; seed < 120; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed);
    const History history = random_history(rng);
    const std::vector<Fact> facts = delayed(history, rng);
    Rng first_run(seed), second_run(seed);
    Books one, again, in_order;
    EXPECT_EQ(keep(one, facts, first_run), keep(again, facts, second_run));
    Rng other(seed + 1);
    keep(in_order, history.facts, other);
    EXPECT_EQ(one.totals(at_s(0), at_s(span_s)), in_order.totals(at_s(0), at_s(span_s)));
  }
}

TEST(Books, ALateEndIsACorrectionNotAnEdit) {
  Books books;
  ASSERT_TRUE(books.apply(1, NodePriced{NodeId(1), at_s(0), {1000}, 1000}));
  ASSERT_TRUE(books.apply(2, LeaseOpened{LeaseId(1),
                                         JobId(1),
                                         TaskId(1),
                                         ProjectId(1),
                                         UserId(1),
                                         NodeId(1),
                                         "H100",
                                         PriceClass::on_demand,
                                         1000,
                                         {2000},
                                         at_s(0)}));
  EXPECT_EQ(books.close(at_s(100)).size(), 2u);  // active and charge
  ASSERT_TRUE(books.apply(
      3, LeaseClosed{LeaseId(1), at_s(60)}));  // the node was out of reach; it had ended long ago
  const std::vector<Entry> entries = books.close(at_s(200));
  ASSERT_EQ(entries.size(), 4u);
  EXPECT_TRUE(entries[0].correction);
  EXPECT_EQ(entries[0].amount.value, -40 * 1000);
  EXPECT_EQ(entries[1].kind, EntryKind::charge);
  EXPECT_EQ(entries[1].amount.value, -40 * 2000);
  EXPECT_EQ(entries[2].kind, EntryKind::unallocated);
  EXPECT_EQ(entries[2].amount.value, 40 * 1000);
  EXPECT_FALSE(entries[3].correction);
  EXPECT_EQ(entries[3].amount.value, 100 * 1000);
}

TEST(Books, ForgettingEndedLeasesChangesNothingThatCanStillBeAsked) {
  Rng rng(7);
  const History history = random_history(rng);
  Books books, thrifty;
  Rng a(7), b(7);
  keep(books, history.facts, a);
  keep(thrifty, history.facts, b);
  thrifty.forget(at_s(1500));
  EXPECT_LT(BooksProbe::leases_held(thrifty), BooksProbe::leases_held(books));
  EXPECT_EQ(thrifty.totals(at_s(1500), at_s(span_s)), books.totals(at_s(1500), at_s(span_s)));
  EXPECT_EQ(BooksProbe::unposted(thrifty).value, 0);
}

TEST(Books, ExtrasAreChargedOnceToTheirLease) {
  Books books;
  Seq seq = 0;
  ASSERT_TRUE(books.apply(++seq, NodePriced{NodeId(1), at_s(0), {1000}, capacity}));
  ASSERT_TRUE(books.apply(++seq, LeaseOpened{LeaseId(1),
                                             JobId(1),
                                             TaskId(1),
                                             ProjectId(1),
                                             UserId(1),
                                             NodeId(1),
                                             "H100",
                                             PriceClass::on_demand,
                                             1000,
                                             {5},
                                             at_s(10)}));
  const Totals without = books.totals(at_s(0), at_s(100));
  ASSERT_TRUE(books.apply(++seq, LeaseExtra{LeaseId(1), NodeId(1), at_s(50), {7'000}, 70}));
  ASSERT_TRUE(books.apply(++seq, LeaseExtra{LeaseId(1), NodeId(1), at_s(90), {3'000}, 30}));
  ASSERT_TRUE(books.apply(
      ++seq, LeaseClosed{LeaseId(1), at_s(80)}));  // it had ended before the second was heard of
  const Totals with = books.totals(at_s(0), at_s(100));
  EXPECT_EQ((with.fleet - without.fleet).value, 10'000);
  EXPECT_EQ(with.unallocated + with.active + with.idle, with.fleet);
  EXPECT_EQ(with.charge.value, 70 * 5 + 10'000);
  EXPECT_EQ(with.egress.value, 10'000);
  EXPECT_EQ(books.charge_between(LeaseId(1), at_s(0), at_s(60)).value, 50 * 5 + 7'000);
  const auto lease = books.lease_totals(LeaseId(1), at_s(10), at_s(80));
  EXPECT_EQ(lease.charge.value, 70 * 5 + 10'000);
  EXPECT_EQ(lease.egress.value, 10'000);
  EXPECT_EQ(lease.egress_bytes, 100);
  EXPECT_EQ(books.totals(at_s(80), at_s(100)).charge.value, 0);
  const Books back = Books::restore(books.image());
  EXPECT_EQ(back.totals(at_s(0), at_s(100)), with);
  EXPECT_FALSE(books.apply(++seq, LeaseExtra{LeaseId(9), NodeId(1), at_s(50), {1}, 1}));
  EXPECT_FALSE(books.apply(++seq, LeaseExtra{LeaseId(1), NodeId(1), at_s(50), {-1}, 0}));

  // Posted with a day that is over, as entries of their own; traffic that comes late is a
  // correction.
  NanoUsd egress;
  for (const Entry& entry : books.close(at_s(100))) {
    EXPECT_FALSE(entry.correction);
    if (entry.kind == EntryKind::egress)
      egress += entry.amount;
  }
  EXPECT_EQ(egress.value, 10'000);
  ASSERT_TRUE(books.apply(seq += 10, LeaseExtra{LeaseId(1), NodeId(1), at_s(120), {500}, 5}));
  const std::vector<Entry> late = books.close(at_s(100));
  ASSERT_EQ(late.size(), 2u);
  EXPECT_EQ(late[0].kind, EntryKind::active);
  EXPECT_EQ(late[1].kind, EntryKind::egress);
  for (const Entry& entry : late)
    EXPECT_TRUE(entry.correction && entry.amount.value == 500);
  EXPECT_EQ(BooksProbe::unposted(books).value, 0);
}

TEST(Books, ALeaseWithExtrasHasAtLeastOneMoment) {
  Books books;
  ASSERT_TRUE(books.apply(1, NodePriced{NodeId(1), at_s(0), {1000}, 1000}));
  ASSERT_TRUE(books.apply(2, LeaseOpened{LeaseId(1),
                                         JobId(1),
                                         TaskId(1),
                                         ProjectId(1),
                                         UserId(1),
                                         NodeId(1),
                                         "H100",
                                         PriceClass::on_demand,
                                         1000,
                                         {2000},
                                         at_s(10)}));
  ASSERT_TRUE(books.apply(3, LeaseExtra{LeaseId(1), NodeId(1), at_s(20), {77}, 7}));
  ASSERT_TRUE(books.apply(
      4, LeaseClosed{LeaseId(1), at_s(10)}));  // by a clock that was wrong, it never ran
  const Totals all = books.totals(at_s(0), at_s(30));
  EXPECT_EQ(all.charge.value, 77);
  EXPECT_EQ(all.active + all.idle + all.unallocated, all.fleet);
  EXPECT_EQ(
      books.totals(at_s(0), at_s(10)).fleet.value + books.totals(at_s(10), at_s(30)).fleet.value,
      all.fleet.value);
  (void)books.close(at_s(30));
  EXPECT_EQ(BooksProbe::unposted(books).value, 0);
}

TEST(Books, AChangeToTheSameTermsTakesNothingOffTheCharge) {
  Books books;
  const Rate rate{1'000'000};
  const WallTime from = at_s(0), silent{from.ns + 1'500'000'700}, to{from.ns + 3'000'001'400};
  Seq seq = 0;
  const auto put = [&](const Fact& fact) {
    ASSERT_TRUE(books.apply(++seq, fact));
  };
  put(NodePriced{NodeId(1), from, rate, 1000});
  LeaseOpened opened;
  opened.lease = LeaseId(1);
  opened.node = NodeId(1);
  opened.milli = 1000;
  opened.rate = rate;
  opened.at = from;
  put(opened);
  // The node did not answer from `silent` on, and then said that it had run all the time.
  put(LeaseChanged{LeaseId(1), silent, NodeId(1), PriceClass::on_demand, 1000, 0, rate});
  put(LeaseChanged{LeaseId(1), silent, NodeId(1), PriceClass::on_demand, 1000, 1000, rate});
  put(NodePriced{NodeId(1), silent, rate, 1000});
  put(LeaseClosed{LeaseId(1), to});
  const NanoUsd whole = amount(rate, to - from, 1000);
  ASSERT_GT(whole.value,
            (amount(rate, silent - from, 1000) + amount(rate, to - silent, 1000)).value)
      << "two roundings would lose one nano-dollar here";
  const Totals sums = books.totals(from, to);
  EXPECT_EQ(sums.charge.value, whole.value);
  EXPECT_EQ(sums.active.value + sums.idle.value, whole.value);
  EXPECT_EQ(books.charge_between(LeaseId(1), from, to).value, whole.value);
}

TEST(Books, RefuseContradictoryFacts) {
  Books books;
  EXPECT_FALSE(books.apply(1, LeaseClosed{LeaseId(9), at_s(0)}));
  EXPECT_FALSE(books.apply(1, NodePriced{NodeId(1), at_s(0), {-1}, 1000}));
  EXPECT_FALSE(books.apply(1, NodeGone{NodeId(1), at_s(0)}));
}

TEST(BillingClock, ChangesOfTheWallClockDoNotAffectBills) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    Rng rng(seed);
    BillingClock clock;
    WallTime wall = at_s(0);
    SteadyTime steady{1};
    const WallTime start = clock.at(wall, steady, "boot");
    Duration passed;
    WallTime last = start;
    for (int i = 0; i < 200; ++i) {
      const Duration d = milliseconds(rng.between(0, 5000));
      steady = steady + d;
      wall = wall + d;
      passed = passed + d;
      if (rng.chance(0.1))
        wall = wall + seconds(rng.between(-7200, 7200));
      const WallTime now = clock.at(wall, steady, "boot");
      ASSERT_GE(now, last);
      last = now;
      ASSERT_EQ(now - start, passed);
    }
    // A reboot into a clock that went back: time stands until it has caught up, never runs back.
    BillingClock after;
    after.resume_from(last);
    EXPECT_EQ(after.at(last - seconds(5000), SteadyTime{1}, "next"), last);
    EXPECT_EQ(after.at(last - seconds(4000), SteadyTime{1} + seconds(10), "next"),
              last + seconds(10));
  }
}

TEST(OwnedRate, PurchasePowerAndYearsMakeAPricePerSecond) {
  OwnedHardware dgx;
  dgx.purchase = *parse_usd("315576");
  dgx.years_milli = 5000;
  dgx.power_w = 10'000;
  dgx.pue_milli = 1200;
  dgx.per_kwh = *parse_usd("0.15");
  const auto rate = owned_rate(dgx);
  ASSERT_TRUE(rate);
  EXPECT_EQ(rate->nano_usd_per_s, 2'000'000 + 500'000);  // $7.20/h of capital, 12 kW at $0.15
  EXPECT_EQ(format_rate_per_hour(*rate), "$9.00/h");
  dgx.purchase = {};
  EXPECT_FALSE(owned_rate(dgx));
}

TEST(EnergyUse, MillijoulesToKilowattHoursAndCarbon) {
  const Energy used = energy(7'200'000'000, 400);  // 2 kWh
  EXPECT_DOUBLE_EQ(used.kwh, 2.0);
  EXPECT_DOUBLE_EQ(used.co2e_kg, 0.8);
}

}  // namespace
}  // namespace billow::ledger
