#include "gpumem/shim_link.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

namespace billow::gpumem {
namespace {

// A process that has just exited is not an error of the job's others, even if the thread that reads
// its connection has not seen the end yet.
TEST(ShimLink, AProcessThatHasEndedIsClosedAtTheNextMessage) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
  ShimLink link{Fd(pair[0]), 1};
  EXPECT_TRUE(link.send(BILLOW_OPEN, 0).has_value());
  EXPECT_FALSE(link.closed());
  close(pair[1]);
  const auto sent = link.send(BILLOW_OPEN, 0);
  ASSERT_FALSE(sent.has_value());
  EXPECT_EQ(sent.error().code, Code::unavailable);
  EXPECT_TRUE(link.closed());
}

}  // namespace
}  // namespace billow::gpumem
