// The dashboard's cookie and the gateway's own: out of what a replica gets, and only them; and what
// a replica may not set.
#include <gtest/gtest.h>

#include "gateway/proxy.h"

namespace billow::gateway {
namespace {

TEST(SessionCookie, IsTakenOutAndOthersStay) {
  EXPECT_EQ(without_own_cookies("billow_session=x"), "");
  EXPECT_EQ(without_own_cookies(" billow_session = x ;"), "");
  EXPECT_EQ(without_own_cookies("a=1; billow_session=x; b=2"), "a=1; b=2");
  EXPECT_EQ(without_own_cookies("billow_session=x; billow_session=y;a=billow_session"),
            "a=billow_session");
  EXPECT_EQ(without_own_cookies("billow_session"), "");
  EXPECT_EQ(without_own_cookies("my_billow_session=1; billow_session2=2"),
            "my_billow_session=1; billow_session2=2");
  EXPECT_EQ(without_own_cookies("a=\"1=2\";billow_session=\"x\"; flag"), "a=\"1=2\"; flag");
  EXPECT_EQ(without_own_cookies(""), "");
  EXPECT_EQ(without_own_cookies("billow_replica=x; a=1; billow_session=y"), "a=1");
}

TEST(SessionCookie, NoReplicaSetsIt) {
  for (const char* text :
       {"billow_session=x", "billow_session=x; Path=/; HttpOnly", "  billow_session =x",
        "=billow_session=x", " = = billow_session=x", "billow_replica=x; Path=/f/other/",
        "billow_session", "Billow_Session=x", "billow_session=; Max-Age=0"})
    EXPECT_TRUE(sets_own_cookie(text)) << text;
  for (const char* text :
       {"theme=billow_session=x", "billow_session2=x", "a=b; billow_session=x", "", "=", "x"})
    EXPECT_FALSE(sets_own_cookie(text)) << text;
}

}  // namespace
}  // namespace billow::gateway
