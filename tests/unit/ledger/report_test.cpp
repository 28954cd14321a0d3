#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include <fmt/format.h>

#include "base/crypto.h"
#include "base/file.h"
#include "base/formats/csv.h"
#include "base/formats/utc.h"
#include "base/rng.h"
#include "core/ledger/decimal.h"
#include "core/ledger/focus.h"
#include "core/ledger/notify.h"
#include "core/ledger/report.h"

namespace billow::ledger {
namespace {

NanoUsd dollars(double n) {
  return {static_cast<std::int64_t>(n * 1e9)};
}
constexpr std::int64_t november_15 = 20'772;
std::vector<CostLine> lines() {
  CostLine a{.day = november_15,
             .project = "vision",
             .user = "ana",
             .gpu = "H100",
             .price_class = "on-demand",
             .charge = dollars(12.5),
             .cost = dollars(9),
             .idle = dollars(1),
             .gpu_milli_ms = 18'000'000'000,
             .energy_mj = 3'600'000'000};
  CostLine b = a, c = a;
  b.project = "speech, \"new\"";
  b.charge = dollars(20);
  c.day = november_15 + 1;
  return {a, b, c};
}

TEST(Decimal, AmountsAsBillsWriteThem) {
  EXPECT_EQ(parse_decimal_usd("1.2E-7")->value, 120);
  EXPECT_EQ(parse_decimal_usd("0.00000000049")->value, 0);
  EXPECT_EQ(parse_decimal_usd("0.0000000005")->value, 1);
  EXPECT_EQ(parse_decimal_usd("-98.32")->value, -98'320'000'000);
  EXPECT_EQ(parse_decimal_usd("55.039999999999999999999999999999999999")->value, 55'040'000'000);
  for (const char* wrong : {"", "-", "1e", "1e999", "12,5", "99999999999999999999"})
    EXPECT_FALSE(parse_decimal_usd(wrong)) << wrong;
  for (const std::int64_t v : {0ll, 1ll, -1ll, 1'500'000'000ll, 9'223'372'036'854'775'807ll})
    EXPECT_EQ(parse_decimal_usd(decimal_usd({v}))->value, v);
}

TEST(Report, NumbersAreInTheOrderOfNumbers) {
  std::vector<CostLine> some;
  for (const char* job : {"10", "9", "100", "2"}) {
    CostLine line;
    line.job = job;
    line.project = "p";
    some.push_back(line);
  }
  std::vector<std::string> order;
  for (const CostLine& line : group(some, *parse_dimensions("project,job")))
    order.push_back(line.job);
  EXPECT_EQ(order, (std::vector<std::string>{"2", "9", "10", "100"}));
  order.clear();
  for (const CostLine& line : group(some, *parse_dimensions("job")))
    order.push_back(line.job);
  EXPECT_EQ(order, (std::vector<std::string>{"2", "9", "10", "100"}))
      << "those that cost the same, too";
}

TEST(Report, SumsByAnyDimensions) {
  const auto by_project = group(lines(), *parse_dimensions("project"));
  ASSERT_EQ(by_project.size(), 2u);
  EXPECT_EQ(by_project[0].project, "vision");
  EXPECT_EQ(by_project[0].charge, dollars(25));
  EXPECT_EQ(by_project[0].day, 0);
  EXPECT_EQ(cost_csv(by_project, *parse_dimensions("project")),
            "project,charge_usd,cost_usd,idle_usd,gpu_hours,energy_kwh,egress_usd,egress_"
            "gib\nvision,25,18,2,10.000000,2.000000,0,0.000000\n"
            "\"speech, \"\"new\"\"\",20,9,1,5.000000,1.000000,0,0.000000\n");
  const auto by_both = group(lines(), *parse_dimensions("project,day"));
  EXPECT_EQ(by_both.size(), 3u);
  EXPECT_EQ(cost_json(by_both, *parse_dimensions("project,day")).items()[1]["day"].str_or(""),
            "2026-11-15");
  EXPECT_FALSE(parse_dimensions("colour"));
}

TEST(RightSizing, FindsTheSmallestSufficientShare) {
  std::vector<RunPeaks> runs;
  for (int i = 0; i < 14; ++i)
    runs.push_back({"train-small", 1000, 1, 81559, 9318, 22, 22, true, dollars(163.0 / 14)});
  const auto advice = right_size(runs);
  ASSERT_EQ(advice.size(), 1u);
  EXPECT_EQ(
      advice[0].text,
      "peak 9.1 GB and 22 % SM over 14 runs: `--gpus 0.25` would have cost $41 instead of $163");
  runs.back().mem_peak_mib = 60'000;  // one run needed the memory
  EXPECT_TRUE(right_size(runs).empty());
  runs.back().mem_peak_mib = 9000;
  runs.back().engine_p95_pct = 45;
  EXPECT_TRUE(right_size(runs).empty());
  runs.back().engine_p95_pct = 10;
  runs.back().measured = false;
  EXPECT_TRUE(right_size(runs).empty());
}

TEST(RightSizing, NeverGoesBelowMeasuredActivity) {
  const auto milli = [](double p95, double peak) {
    const auto advice = right_size({{"x", 1000, 1, 80'000, 2'000, p95, peak, true, dollars(100)}});
    return advice.empty() ? 0 : advice[0].milli;
  };
  EXPECT_EQ(milli(5, 8), 100);
  EXPECT_EQ(milli(15, 20), 200) << "the memory would fit a tenth";
  EXPECT_EQ(milli(25, 30), 250);
  EXPECT_EQ(milli(35, 40), 500);
  EXPECT_EQ(milli(5, 60), 500) << "rare bursts of more than half a card";
  for (double p95 = 5; p95 <= 100; p95 += 5) {
    const auto got = milli(p95, p95);
    EXPECT_TRUE(got == 0 || static_cast<double>(got) >= p95 * 10) << p95;
  }
}

TEST(WasteReport, ListsTheLargestWasteFirstAndAddsUp) {
  const auto line = [](const char* job, const char* user, double cost, double idle) {
    CostLine out;
    out.day = november_15;
    out.job = job;
    out.user = user;
    out.project = "vision";
    out.charge = out.cost = dollars(cost);
    out.idle = dollars(idle);
    return out;
  };
  const std::vector<CostLine> lines = {line("1", "ana", 100, 1), line("2", "ben", 10, 9),
                                       line("3", "ana", 50, 0), line("3", "ana", 50, 2),
                                       line("4", "ben", 5, 0)};
  const std::vector<RunPeaks> runs = {
      {"train", 1000, 1, 80'000, 9'000, 20, 22, true, dollars(100), "3", dollars(98)},
      {"eval", 1000, 1, 80'000, 70'000, 90, 95, true, dollars(10), "2", dollars(1)}};
  const auto advice = right_size(runs);
  ASSERT_EQ(advice.size(), 1u);
  EXPECT_EQ(advice[0].milli, 200);
  const auto over = oversized(runs, advice);
  const auto by_job = waste_by(lines, {Dimension::job}, over, {{"3", "train"}, {"2", "eval"}});
  ASSERT_EQ(by_job.size(), 3u) << "job 4 wasted nothing";
  EXPECT_EQ(by_job[0].line.job, "3");
  EXPECT_EQ(by_job[0].what, "train");
  EXPECT_EQ(by_job[0].oversized, dollars(98 * 0.8));
  EXPECT_EQ(by_job[0].wasted(), dollars(98 * 0.8 + 2));
  EXPECT_EQ(by_job[1].line.job, "2");
  EXPECT_EQ(by_job[2].line.job, "1");
  NanoUsd jobs, users;
  for (const auto& w : by_job)
    jobs += w.wasted();
  const auto by_user = waste_by(lines, {Dimension::user}, over, {});
  for (const auto& w : by_user)
    users += w.wasted();
  EXPECT_EQ(jobs, users);
  EXPECT_EQ(by_user[0].line.user, "ana");
  EXPECT_TRUE(by_user[0].what.empty());
}

TEST(WasteReport, KeepsTheThreeKindsApart) {
  const Waste w{dollars(100), dollars(30), dollars(20), dollars(15)};
  EXPECT_NE(w.text().find("30.0 %"), std::string::npos);
  EXPECT_NE(w.text().find("15.0 %"), std::string::npos);
}

TEST(Anomalies, ReportsTheUnusualDay) {
  std::vector<std::pair<std::int64_t, NanoUsd>> days;
  for (int d = 0; d < 20; ++d)
    days.emplace_back(november_15 + d, dollars(100 + d % 5 * 8));
  EXPECT_TRUE(anomalies(days).empty());
  days[15].second = dollars(470);
  const auto found = anomalies(days);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].day, november_15 + 15);
}

TEST(Commitments, UtilisationCoverageAndExpiry) {
  const Commitment c{"h100-1y", "H100", 4, {1'000'000}, 0, 100};
  const std::int64_t gpu_day = 86'400'000'000;
  const CommitmentUse use = commitment_use(c, {{0, 2 * gpu_day}, {1, 6 * gpu_day}}, 2);
  EXPECT_DOUBLE_EQ(use.utilisation_pct, 75);
  EXPECT_DOUBLE_EQ(use.coverage_pct, 75);
  EXPECT_EQ(use.unused.value, 2 * 86'400 * 1'000'000ll);
  EXPECT_EQ(use.days_left, 98);
}

std::string data_dir() {
  if (const char* dir = std::getenv("BILLOW_DATA_DIR"))
    return dir;
  return BILLOW_SOURCE_DIR "/../shared/data";
}

TEST(Focus, ExportHasEveryMandatoryColumnAndNoNullWhereNoneIsAllowed) {
  const auto spec_text = read_file(data_dir() + "/prices/focus_1.2_mandatory.csv");
  if (!spec_text)
    GTEST_SKIP() << "no FOCUS column list: " << spec_text.error().message;
  const auto spec = parse_csv(*spec_text);
  std::vector<CostLine> with = lines();
  with[0].egress = dollars(2.5);
  with[0].egress_bytes = 30ll << 30;
  const auto exported = parse_csv(focus_csv(with, {}));
  ASSERT_TRUE(spec && exported);
  EXPECT_EQ(exported->rows.size(), 4u);
  for (const auto& row : spec->rows) {
    const std::size_t column = exported->column(row[0]);
    ASSERT_NE(column, std::string::npos) << row[0];
    for (const auto& line : exported->rows) {
      EXPECT_FALSE(row[2] == "N" && line[column].empty()) << row[0];
      if (line[column].empty())
        continue;
      EXPECT_TRUE(row[1] != "Decimal" || parse_decimal_usd(line[column])) << row[0];
      EXPECT_TRUE(row[1] != "DateTime" || parse_utc(line[column])) << row[0];
    }
  }
  for (const std::string& name : exported->header)
    EXPECT_TRUE(name.starts_with("x_") ||
                std::any_of(spec->rows.begin(), spec->rows.end(),
                            [&](const auto& row) { return row[0] == name; }))
        << name;
}

TEST(Focus, TrafficIsASeparateLine) {
  std::vector<CostLine> with = lines();
  with[0].egress = dollars(2.5);
  with[0].egress_bytes = 30ll << 30;
  const auto plain = parse_csv(focus_csv(lines(), {})), exported = parse_csv(focus_csv(with, {}));
  ASSERT_TRUE(plain && exported);
  ASSERT_EQ(exported->rows.size(), plain->rows.size() + 1);
  const auto cell = [&](std::size_t row, const char* name) {
    return exported->rows[row][exported->column(name)];
  };
  EXPECT_EQ(cell(0, "ServiceCategory"), "Compute");
  EXPECT_EQ(cell(0, "BilledCost"), "10");
  EXPECT_EQ(cell(1, "ServiceCategory"), "Networking");
  EXPECT_EQ(cell(1, "ChargeCategory"), "Usage");
  EXPECT_EQ(cell(1, "BilledCost"), "2.5");
  EXPECT_EQ(cell(1, "PricingQuantity"), "30.000000000");
  EXPECT_EQ(cell(1, "PricingUnit"), "GiB");
  EXPECT_EQ(cell(1, "x_EgressBytes"), std::to_string(30ll << 30));
  const auto bill = parse_focus(focus_csv(with, {}));
  ASSERT_TRUE(bill);
  NanoUsd sum;
  for (const BilledLine& line : bill->lines)
    sum += line.billed;
  EXPECT_EQ(sum, dollars(45)) << "the same sum, on one more line";
}

TEST(Focus, OurOwnExportComesBackToTheNanoDollar) {
  const auto bill = parse_focus(focus_csv(lines(), {}));
  ASSERT_TRUE(bill);
  NanoUsd sum;
  for (const BilledLine& line : bill->lines)
    sum += line.billed;
  EXPECT_EQ(sum, dollars(45));
  EXPECT_EQ(bill->lines[0].to - bill->lines[0].from, hours(24));
}

TEST(Focus, TheProvidersBillIsComparedByMachineAndDay) {
  const std::string csv =
      "BilledCost,EffectiveCost,BillingCurrency,ChargePeriodStart,ChargePeriodEnd,ChargeCategory,"
      "ResourceId,ResourceName,ProviderName\n"
      "10.00,10.00,USD,2026-11-15T00:00:00Z,2026-11-15T01:00:00Z,Usage,arn:aws:ec2:us-east-1:1:"
      "instance/i-0abc,,AWS\n"
      "14.00,14.00,USD,2026-11-15T01:00:00Z,2026-11-15T02:00:00Z,Usage,arn:aws:ec2:us-east-1:1:"
      "instance/i-0abc,,AWS\n"
      "7.00,7.00,USD,2026-11-15T00:00:00Z,2026-11-15T02:00:00Z,Usage,i-forgotten,,AWS\n"
      "1.00,1.00,USD,2026-11-15T00:00:00Z,2026-11-16T00:00:00Z,Tax,,,AWS\n"
      "x,1.00,USD,2026-11-15T00:00:00Z,2026-11-16T00:00:00Z,Tax,,,AWS\n";
  const auto bill = parse_focus(csv);
  ASSERT_TRUE(bill);
  EXPECT_EQ(bill->refused, std::vector<std::string>{"line 6: not an amount: \"x\""});
  const WallTime day = *parse_utc("2026-11-15");
  const auto found = compare(*bill, {{"gpu-1", "i-0abc", day, day + hours(2), dollars(20)},
                                     {"gpu-2", "", day, day + hours(2), dollars(5)}});
  ASSERT_EQ(found.size(), 4u);
  EXPECT_EQ(found[0].resource, "i-forgotten");
  EXPECT_EQ(found[0].kind, VarianceKind::only_billed);
  EXPECT_EQ(found[1].resource, "gpu-2");
  EXPECT_EQ(found[1].kind, VarianceKind::only_ours);
  EXPECT_EQ(found[2].resource, "gpu-1");
  EXPECT_EQ(found[2].kind, VarianceKind::differs);
  EXPECT_EQ(found[2].difference(), dollars(4));
  EXPECT_EQ(found[2].lines, (std::vector<std::size_t>{2, 3}));
  EXPECT_EQ(found[3].resource, "Tax without a resource");
}

TEST(Focus, RefusesFilesThatAreNotBills) {
  EXPECT_FALSE(parse_focus("a,b\n1,2\n"));
  EXPECT_FALSE(
      parse_focus("BilledCost,BillingCurrency,ChargePeriodStart,ChargePeriodEnd\n1,EUR,2026-11-15,"
                  "2026-11-16\n"));
  for (const char* wrong :
       {"", "2026", "2026-13-01", "2026-02-30", "2026-11-15T25:00:00Z", "15.11.2026"})
    EXPECT_FALSE(parse_utc(wrong)) << wrong;
}

// What a receiver does: the signature must be right and the time close to now.
struct Received {
  std::string id, timestamp, signature, body;
};
bool verify(const Received& received, std::string_view secret, WallTime now) {
  const std::string signature =
      "v1=" + hmac_sha256_hex(
                  secret, fmt::format("{}.{}.{}", received.id, received.timestamp, received.body));
  const Duration age = now - WallTime{std::stoll(received.timestamp) * 1'000'000'000};
  return signature == received.signature && age <= minutes(5) && age >= Duration{} - minutes(5);
}

TEST(Webhooks, AreSignedIdempotentAndCannotBeReplayed) {
  const WallTime now{1'800'000'000'000'000'000};
  const Notice notice{.seq = 42,
                      .kind = "budget.warned",
                      .at = now,
                      .project = "vision",
                      .text = "80 % of this month's $500.00 is spent"};
  const WebhookMessage message = sign(notice, "inst", {"s3cret"}, now),
                       again = sign(notice, "inst", {"s3cret"}, now + minutes(3));
  EXPECT_EQ(message.id, again.id);
  EXPECT_NE(message.id, sign(notice, "other", {"s3cret"}, now).id);
  Received received{message.id, message.headers[2].second, message.headers[3].second, message.body};
  EXPECT_TRUE(verify(received, "s3cret", now + minutes(1)));
  EXPECT_FALSE(verify(received, "wrong", now));
  EXPECT_FALSE(verify(received, "s3cret", now + minutes(6)));
  received.body += " ";
  EXPECT_FALSE(verify(received, "s3cret", now));
  EXPECT_EQ(*retry_after(1), seconds(1));
  EXPECT_EQ(*retry_after(16), hours(1));
  EXPECT_FALSE(retry_after(17));
  EXPECT_TRUE(delivered_or_refused(204));
  EXPECT_FALSE(delivered_or_refused(503));
  EXPECT_FALSE(delivered_or_refused(429));
}

TEST(Webhooks, HaveASignatureOfEachKeyUntilTheOldOneHasEnded) {
  const WallTime now{1'800'000'000'000'000'000};
  const WebhookKeys keys{.key = "new", .old = "old", .old_until = now + hours(1)};
  const auto kept = webhook_keys_of(text_of(keys));
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->in_force(now), (std::vector<std::string>{"new", "old"}));
  EXPECT_EQ(kept->in_force(now + hours(1)), std::vector<std::string>{"new"});
  const Notice notice{.seq = 1, .kind = "test", .at = now, .project = "", .text = "x"};
  const auto header = [&](const std::vector<std::string>& with) {
    return sign(notice, "inst", with, now).headers[3].second;
  };
  EXPECT_EQ(header(kept->in_force(now)), header({"new"}) + "," + header({"old"}));
  EXPECT_FALSE(webhook_keys_of("{}"));
  EXPECT_FALSE(webhook_keys_of("x"));
}

}  // namespace
}  // namespace billow::ledger
