// What is recorded of refused calls, and whose page a browser's request comes from.
#include <gtest/gtest.h>

#include "api/session.h"

namespace billow::api {
namespace {

net::Request request_from(const std::string& peer) {
  net::Request request;
  request.peer = peer;
  request.path = "/v1/jobs";
  request.headers.add("Authorization", "Bearer x");
  return request;
}

const Error unknown{Code::unauthorized, "the token is not valid", ""};
const Error forbidden{Code::forbidden, "only an admin may do this", ""};

struct Denied : testing::Test {
  DeniedCalls denied;
  SteadyTime now{1'000'000'000'000};
  std::vector<AccessDenied> all;

  void call(const std::string& peer, const std::string& user, const Error& error) {
    for (AccessDenied& event : denied.note(request_from(peer), user, error, now))
      all.push_back(std::move(event));
  }
  std::uint64_t counted() const {
    std::uint64_t n = 0;
    for (const AccessDenied& event : all)
      n += event.count;
    return n;
  }
};

// Many addresses are cheap. What a user was refused must be seen all the same.
TEST_F(Denied, AFloodOfStrangersHidesNoUser) {
  for (int i = 0; i < 5000; ++i)
    call(fmt::format("10.{}.{}.7:999", i / 250, i % 250), "", unknown);
  EXPECT_LE(all.size(), 50u);
  all.clear();
  call("10.0.0.7:999", "mal", forbidden);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].user, "mal");
}

TEST_F(Denied, WhatExceedsTheLimitIsCountedInTheNextMinute) {
  for (int i = 0; i < 5000; ++i)
    call(fmt::format("10.{}.{}.7:999", i / 250, i % 250), "", unknown);
  now = now + minutes(1);
  call("10.0.0.7:999", "mal", forbidden);
  EXPECT_EQ(counted(), 5001u);
  EXPECT_LE(all.size(), 110u);
}

TEST_F(Denied, OneAddressHasOneRecordAMinuteAndUsersTheirOwn) {
  for (int i = 0; i < 100; ++i)
    call("10.0.0.7:" + std::to_string(1000 + i), "", unknown);
  EXPECT_EQ(all.size(), 1u);
  for (int i = 0; i < 100; ++i)
    call("10.0.0.7:999", i % 2 ? "mal" : "bo", forbidden);
  EXPECT_EQ(all.size(), 3u);
  now = now + minutes(1);
  call("10.0.0.7:999", "mal", forbidden);
  EXPECT_EQ(counted(), 201u);
}

// A provider gives everybody 2^64 addresses of IPv6.
TEST_F(Denied, ANetworkOfIpv6IsOneAddress) {
  for (int i = 1; i < 500; ++i)
    call(fmt::format("[2001:db8::{:x}]:999", i), "", unknown);
  EXPECT_EQ(all.size(), 1u);
}

TEST(AskedByOurPage, NeedsTheHostThatTheOriginNames) {
  net::Request request;
  request.method = net::Method::get;
  request.headers.add("Connection", "upgrade");
  request.headers.add("Origin", "http://");
  EXPECT_FALSE(asked_by_our_page(request)) << "no Host, and an origin without one";
  request.headers.set("Host", "");
  EXPECT_FALSE(asked_by_our_page(request));
  request.headers.set("Host", "head:7070");
  EXPECT_FALSE(asked_by_our_page(request));
  request.headers.set("Origin", "http://head:7070");
  EXPECT_TRUE(asked_by_our_page(request));
}

}  // namespace
}  // namespace billow::api
