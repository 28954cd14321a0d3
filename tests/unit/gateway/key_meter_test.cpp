#include "gateway/pure/key_meter.h"

#include <gtest/gtest.h>

namespace billow::gateway {
namespace {

constexpr WallTime noon{(20'000 * 24 + 12) * 3'600'000'000'000};
const EndpointPrices cent{
    .request = {10'000'000}, .million_tokens_in = {}, .million_tokens_out = {}};

struct Caller {
  std::vector<KeyLimit> limits;
  EndpointPrices prices;
  KeyUse elsewhere;
  KeyMeter meter;
  std::vector<KeyMeter::Reserved> open;
  bool begin(WallTime now) {
    KeyMeter::Reserved reserved;
    if (meter.begin(limits, prices, elsewhere, now, reserved))
      return false;
    open.push_back(reserved);
    return true;
  }
  void end(WallTime now, std::uint64_t in = 0, std::uint64_t out = 0, bool charged = true) {
    meter.end(open.back(), prices, {charged, in, out}, now);
    open.pop_back();
  }
};

TEST(KeyMeter, DollarsHoldToTheCentWithRequestsUnderWay) {
  Caller caller{.limits = {{LimitOf::usd, LimitPer::day, 50'000'000}}, .prices = cent};
  for (int i = 0; i < 5; ++i)
    EXPECT_TRUE(caller.begin(noon));
  EXPECT_FALSE(caller.begin(noon));  // none has ended yet
  while (!caller.open.empty())
    caller.end(noon);
  EXPECT_FALSE(caller.begin(noon));
  EXPECT_EQ(caller.meter.days().back().counts.charge.value, 50'000'000);
  EXPECT_EQ(caller.meter.days().back().counts.refused, 2);
}

TEST(KeyMeter, WhatWasNotServedCostsNothing) {
  Caller caller{.limits = {{LimitOf::usd, LimitPer::day, 10'000'000}}, .prices = cent};
  ASSERT_TRUE(caller.begin(noon));
  caller.end(noon, 0, 0, false);
  EXPECT_TRUE(caller.begin(noon));
}

TEST(KeyMeter, WindowsEndWithTheClock) {
  Caller caller{.limits = {{LimitOf::requests, LimitPer::minute, 2}}};
  EXPECT_TRUE(caller.begin(noon + seconds(50)));
  EXPECT_TRUE(caller.begin(noon + seconds(51)));
  KeyMeter::Reserved reserved;
  const auto no = caller.meter.begin(caller.limits, {}, {}, noon + seconds(52), reserved);
  ASSERT_TRUE(no);
  EXPECT_EQ(no->wait, seconds(8));
  EXPECT_EQ(limit_text(no->limit), "2 requests per minute");
  EXPECT_TRUE(caller.begin(noon + seconds(60)));
}

TEST(KeyMeter, LargeRequestsUnderWayReserveTheirTokens) {
  Caller caller{.limits = {{LimitOf::tokens, LimitPer::day, 2500}}};
  ASSERT_TRUE(caller.begin(noon));
  caller.end(noon, 300, 700);
  ASSERT_TRUE(caller.begin(noon));
  EXPECT_FALSE(caller.begin(noon));
  caller.end(noon, 10, 10);
  EXPECT_TRUE(caller.begin(noon));
}

TEST(KeyMeter, OtherGatewaysCountOnTheSameDayOnly) {
  Caller caller{.limits = {{LimitOf::requests, LimitPer::day, 3}},
                .elsewhere = {.day = 20'000, .requests = 2}};
  EXPECT_TRUE(caller.begin(noon));
  EXPECT_FALSE(caller.begin(noon));
  caller.elsewhere.day = 19'999;
  EXPECT_TRUE(caller.begin(noon));
}

TEST(KeyMeter, ARestartForgetsNothingAndADayIsReportedAfterItHasEnded) {
  Caller caller{.limits = {{LimitOf::requests, LimitPer::day, 1}}};
  ASSERT_TRUE(caller.begin(noon));
  Caller again{.limits = caller.limits};
  again.meter.restore(caller.meter.saved());
  EXPECT_FALSE(again.begin(noon + seconds(5)));
  EXPECT_TRUE(again.begin(noon + hours(13)));
  ASSERT_EQ(again.meter.days().size(), 2);
  EXPECT_EQ(again.meter.days()[0].number, 20'000);
  EXPECT_EQ(again.meter.days()[1].number, 20'001);
}

TEST(KeyMeter, PricesOfTokensAreExact) {
  const EndpointPrices prices{{}, {500'000'000}, {1'500'000'000}};
  EXPECT_EQ(price_of(prices, 1'000'000, 2'000'000).value, 3'500'000'000);
  EXPECT_EQ(price_of(prices, 3, 0).value, 1500);
}

}  // namespace
}  // namespace billow::gateway
