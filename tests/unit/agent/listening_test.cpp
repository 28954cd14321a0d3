// Connections into a job's ports: to the job's own sockets, as the job's user, and never to another
// machine, another namespace or another process, whatever the job does to its own.
#include "agent/reach/listening.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

#include "process/spawn.h"

namespace billow::agent {
namespace {

constexpr std::uint32_t somebody = 54321;

struct Server {
  Fd fd;
  std::uint16_t port = 0;
};
// With IP_FREEBIND, which everybody may set, a socket listens on any address.
Server listen_at(const char* address, std::uint16_t port = 0, bool any_address = false) {
  Server out{Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), 0};
  const int one = 1;
  if (any_address)
    ::setsockopt(out.fd.get(), IPPROTO_IP, IP_FREEBIND, &one, sizeof one);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(port);
  ::inet_pton(AF_INET, address, &at.sin_addr);
  socklen_t length = sizeof at;
  if (::bind(out.fd.get(), reinterpret_cast<sockaddr*>(&at), sizeof at) == 0 &&
      ::listen(out.fd.get(), 8) == 0 &&
      ::getsockname(out.fd.get(), reinterpret_cast<sockaddr*>(&at), &length) == 0)
    out.port = ntohs(at.sin_port);
  return out;
}

// Whether a connection that was begun arrives at the server.
bool arrives(const Result<Fd>& connection, const Server& server) {
  pollfd waiting{server.fd.get(), POLLIN, 0};
  return connection && ::poll(&waiting, 1, 2000) == 1 &&
         Fd(::accept(server.fd.get(), nullptr, nullptr));
}

FindListener mine(std::uint16_t port) {
  return {.processes = [] { return std::vector<int>{::getpid()}; }, .port = port};
}

TEST(Listening, ConnectsToASocketOfTheJob) {
  for (const char* address : {"127.0.0.1", "0.0.0.0", "127.0.0.9"}) {
    const Server server = listen_at(address);
    auto found = find_listener(mine(server.port));
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_FALSE(found->network) << "it is the agent's own";
    EXPECT_TRUE(still_listens(*found));
    EXPECT_TRUE(arrives(begin_connect(*found, {::geteuid(), ::getegid()}), server)) << address;
  }
}

TEST(Listening, ConnectsOverIpv6) {
  const Server server{Fd(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0)), 0};
  sockaddr_in6 at{};
  at.sin6_family = AF_INET6;
  socklen_t length = sizeof at;
  if (::bind(server.fd.get(), reinterpret_cast<sockaddr*>(&at), sizeof at) != 0 ||
      ::listen(server.fd.get(), 8) != 0)
    GTEST_SKIP() << "this machine has no IPv6";
  ::getsockname(server.fd.get(), reinterpret_cast<sockaddr*>(&at), &length);
  const auto found = find_listener(mine(ntohs(at.sin6_port)));
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_TRUE(arrives(begin_connect(*found, {::geteuid(), ::getegid()}), server));
}

TEST(Listening, DoesNotConnectToAddressesOfOtherMachines) {
  // Nor, for an address that only begins like "any", to another socket on loopback.
  for (const char* address : {"192.0.2.1", "0.1.2.3"}) {
    const Server server = listen_at(address, 0, true);
    ASSERT_NE(server.port, 0);
    const auto found = find_listener(mine(server.port));
    ASSERT_TRUE(found) << found.error().message;
    const auto begun = begin_connect(*found, {::geteuid(), ::getegid()});
    ASSERT_FALSE(begun) << address;
    EXPECT_EQ(begun.error().code, Code::forbidden) << address;
    EXPECT_NE(begun.error().message.find("this machine does not have"), std::string::npos);
  }
}

TEST(Listening, DoesNotConnectToTheCloudsServices) {
  for (const char* address : {"169.254.169.254", "168.63.129.16"}) {
    const Server server = listen_at(address, 0, true);
    const auto found = find_listener(mine(server.port));
    ASSERT_TRUE(found) << found.error().message;
    const auto begun = begin_connect(*found, {::geteuid(), ::getegid()});
    ASSERT_FALSE(begun);
    EXPECT_EQ(begun.error().code, Code::forbidden);
    EXPECT_NE(begun.error().message.find("clouds"), std::string::npos);
  }
}

TEST(Listening, AProcessThatIsNoLongerTheJobsIsNotUsed) {
  const Server server = listen_at("127.0.0.1");
  int calls = 0;
  const auto found = find_listener({.processes = [&]() -> std::vector<int> {
                                      if (calls++ == 0)
                                        return {::getpid()};
                                      return {};
                                    },
                                    .port = server.port});
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, Code::not_found);
}

TEST(Listening, AnotherProcessOfTheSamePidIsNotTheListener) {
  const Server server = listen_at("127.0.0.1");
  auto found = find_listener(mine(server.port));
  ASSERT_TRUE(found);
  auto child = process::spawn({.body = [] {
    return 0;
  }});
  ASSERT_TRUE(child);
  Fd ended(static_cast<int>(::syscall(SYS_pidfd_open, child->pid(), 0)));
  child->wait();
  found->process = std::move(ended);  // as if this pid had been another process's at that time
  EXPECT_FALSE(still_listens(*found));
}

TEST(Listening, TheConnectionBelongsToTheJobsUser) {
  if (::geteuid() != 0)
    GTEST_SKIP() << "needs root, to be another user";
  const Server server = listen_at("127.0.0.1");
  const auto found = find_listener(mine(server.port));
  ASSERT_TRUE(found);
  const int dumpable = ::prctl(PR_GET_DUMPABLE);
  const auto begun = begin_connect(*found, {somebody, somebody});
  ASSERT_TRUE(begun) << begun.error().message;
  struct stat info {};
  ASSERT_EQ(::fstat(begun->get(), &info), 0);
  EXPECT_EQ(info.st_uid, somebody);
  EXPECT_EQ(::prctl(PR_GET_DUMPABLE), dumpable);
  EXPECT_TRUE(arrives(begun, server));
}

// Listens in a network of its own, says so, and then returns to the network it came from: as a
// thread that calls execve() does for its process.
int swap_networks(std::uint16_t port, int talk) {
  const Fd before(::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
  if (::unshare(CLONE_NEWNET) != 0)
    return 2;
  const Fd any(::socket(AF_INET, SOCK_DGRAM, 0));
  ifreq loopback{};
  std::strcpy(loopback.ifr_name, "lo");
  loopback.ifr_flags = IFF_UP | IFF_RUNNING;
  ::ioctl(any.get(), SIOCSIFFLAGS, &loopback);
  const Server server = listen_at("127.0.0.1", port);
  char word = 'l';
  (void)!::write(talk, &word, 1);
  (void)!::read(talk, &word, 1);
  if (server.port == 0 || ::setns(before.get(), CLONE_NEWNET) != 0)
    return 3;
  (void)!::write(talk, &word, 1);
  pollfd waiting{server.fd.get(), POLLIN, 0};
  return ::poll(&waiting, 1, 5000) == 1 ? 0 : 4;
}

TEST(Listening, AProcessThatChangesItsNetworkTakesNoConnectionAlong) {
  if (::geteuid() != 0)
    GTEST_SKIP() << "needs root, to enter other networks";
  const Server outside = listen_at("127.0.0.1");
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const Fd ours(ends[0]), theirs(ends[1]);
  auto child = process::spawn({.body = [&] {
    return swap_networks(outside.port, theirs.get());
  }});
  ASSERT_TRUE(child);
  char word = 0;
  ASSERT_EQ(::read(ours.get(), &word, 1), 1);
  const auto found = find_listener(
      {.processes = [&] { return std::vector<int>{child->pid()}; }, .port = outside.port});
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_TRUE(found->network);
  ASSERT_EQ(::write(ours.get(), &word, 1), 1);
  ASSERT_EQ(::read(ours.get(), &word, 1), 1);
  EXPECT_TRUE(still_listens(*found)) << "the same process has the same socket";
  const auto begun = begin_connect(*found, {0, 0});
  EXPECT_TRUE(begun);
  EXPECT_EQ(child->wait().code(), 0) << "the connection did not arrive where it was found";
  pollfd waiting{outside.fd.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&waiting, 1, 0), 0) << "a socket of another process was reached";
}

}  // namespace
}  // namespace billow::agent
