// Which tokens each kind of route takes.
#include <gtest/gtest.h>

#include <set>

#include "api/api.h"
#include "api/rights.h"

namespace billow::api {
namespace {

control::Principal principal(TokenScope scope) {
  control::Principal who;
  who.scope = scope;
  return who;
}

// "read submit full node join gateway", as far as they may.
std::string scopes_that_may(Need need) {
  std::string out;
  for (const TokenScope scope : {TokenScope::read, TokenScope::submit, TokenScope::full,
                                 TokenScope::node, TokenScope::join, TokenScope::gateway})
    if (allowed(principal(scope), need))
      out += std::string(out.empty() ? "" : " ") + enum_name(scope);
  return out;
}

TEST(Rights, ATokenMayDoWhatItsScopeSays) {
  EXPECT_EQ(scopes_that_may(Need::nothing), "read submit full node join gateway");
  EXPECT_EQ(scopes_that_may(Need::look), "read submit full");
  EXPECT_EQ(scopes_that_may(Need::work), "submit full");
  EXPECT_EQ(scopes_that_may(Need::full), "full");
  EXPECT_EQ(scopes_that_may(Need::files), "submit full node");
  EXPECT_EQ(scopes_that_may(Need::node), "node");
  EXPECT_EQ(scopes_that_may(Need::join), "join");
  EXPECT_EQ(scopes_that_may(Need::gateway), "full gateway");
  EXPECT_EQ(scopes_that_may(Need::machine), "node gateway");
}

TEST(Rights, ARefusalSaysWhichTokenIsNeeded) {
  const Status submit = allowed(principal(TokenScope::submit), Need::full);
  ASSERT_FALSE(submit);
  EXPECT_EQ(submit.error().code, Code::forbidden);
  EXPECT_NE(submit.error().message.find("full token"), std::string::npos);
  const Status read = allowed(principal(TokenScope::read), Need::work);
  ASSERT_FALSE(read);
  EXPECT_NE(read.error().message.find("read-only"), std::string::npos);
}

TEST(Routes, EveryRouteIsListedOnce) {
  std::set<std::string> seen;
  for (const RouteInfo& route : Api::routes())
    EXPECT_TRUE(
        seen.insert(std::string(net::method_name(route.method)) + " " + route.pattern).second)
        << route.pattern;
  EXPECT_GT(seen.size(), 100u);
}

TEST(Routes, OnlyThePublicOnesNeedNoToken) {
  std::set<std::string> open;
  for (const RouteInfo& route : Api::routes())
    if (route.need == Need::nothing)
      open.insert(route.pattern);
  EXPECT_EQ(open, (std::set<std::string>{"/",
                                         "/assets/{name}",
                                         "/docs",
                                         "/docs/",
                                         "/docs/images/{name}",
                                         "/docs/{name}",
                                         "/healthz",
                                         "/sdk/",
                                         "/sdk/billow/",
                                         "/sdk/{name}",
                                         "/v1/auth",
                                         "/v1/auth/callback",
                                         "/v1/auth/device",
                                         "/v1/auth/device/poll",
                                         "/v1/auth/exchange",
                                         "/v1/auth/finish",
                                         "/v1/auth/login",
                                         "/v1/auth/start",
                                         "/v1/openapi.json",
                                         "/v1/routes",
                                         "/v1/session",
                                         "/v1/session/account"}));
}

// What changes something for others needs a permission that read-only tokens do not have. Without
// one is what callers do for themselves.
TEST(Routes, WhatChangesSomethingNeedsAPermission) {
  control::PermissionSet reads;
  for (const control::PermissionInfo& each : control::permission_table())
    if (each.reads)
      reads = reads | each.permission;
  const std::set<std::string> own = {"/v1/session",
                                     "/v1/session/codes",
                                     "/v1/advise",
                                     "/v1/live/{stream}/subscriptions",
                                     "/v1/default-project",
                                     "/v1/approvals/{id}",
                                     "/v1/tokens",
                                     "/v1/tokens/{id}",
                                     "/v1/tokens/{id}/rotate",
                                     "/v1/notify",
                                     "/v1/notify/{id}",
                                     "/v1/notify/{id}/confirm",
                                     "/v1/notify/{id}/test"};
  for (const RouteInfo& route : Api::routes()) {
    const bool person =
        route.need == Need::look || route.need == Need::work || route.need == Need::full;
    if (!person || route.method == net::Method::get || own.contains(route.pattern))
      continue;
    EXPECT_FALSE(route.permissions.empty()) << route.pattern;
    EXPECT_FALSE(!(route.permissions & reads).empty()) << route.pattern;
  }
}

TEST(Routes, WhatChangesSomethingNeedsMoreThanARead) {
  for (const RouteInfo& route : Api::routes())
    if (route.method != net::Method::get && route.need == Need::look) {
      // Ending one's own session, advice, which is computed, and what an own stream follows.
      const bool changes_nothing = route.pattern == "/v1/session" ||
                                   route.pattern == "/v1/advise" ||
                                   route.pattern == "/v1/live/{stream}/subscriptions";
      EXPECT_TRUE(changes_nothing) << route.pattern;
    }
}

}  // namespace
}  // namespace billow::api
