#include "net/blocking_io.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>
#include <thread>

#include "base/file.h"

namespace billow::net {
namespace {

struct Ends {
  Fd ours, theirs;
  Ends() {
    int fds[2] = {-1, -1};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    ours = Fd(fds[0]);
    theirs = Fd(fds[1]);
    for (const int fd : fds)
      set_timeouts(fd, 30);
  }
};

TEST(BlockingIo, AMessageLargerThanTheSocketsBufferArrivesWhole) {
  Ends ends;
  const std::string sent(8 << 20, 'x');
  std::thread writer([&] { EXPECT_TRUE(send_all(ends.ours.get(), sent)); });
  std::string got(sent.size(), '\0');
  EXPECT_TRUE(receive_all(ends.theirs.get(), got.data(), got.size()));
  writer.join();
  EXPECT_EQ(got, sent);
}

TEST(BlockingIo, APeerThatClosesInTheMiddleIsAnErrorForBothDirections) {
  Ends ends;
  ASSERT_TRUE(send_all(ends.theirs.get(), "half"));
  ends.theirs = Fd();
  char got[8];
  errno = 0;
  EXPECT_FALSE(receive_all(ends.ours.get(), got, sizeof got));
  EXPECT_EQ(errno, ECONNRESET);
  EXPECT_FALSE(send_all(ends.ours.get(), "more"));  // and no SIGPIPE
  EXPECT_EQ(errno, EPIPE);
}

TEST(BlockingIo, ASilentPeerIsGivenUpAfterTheTimeout) {
  Ends ends;
  set_timeouts(ends.ours.get(), 1);
  char got = 0;
  EXPECT_FALSE(receive_all(ends.ours.get(), &got, 1));
  EXPECT_EQ(errno, EAGAIN);
}

}  // namespace
}  // namespace billow::net
