// Who reaches the port of a replica on its own machine: its gateways, itself and the agent.
#include "agent/isolate/replica_guard.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>

#include "base/file.h"
#include "process/gateway_group.h"

namespace billow::agent {
namespace {

constexpr int silence_ms = 300;  // a packet that is dropped is not answered

void enter(const std::string& group) {
  std::ofstream(group + "/cgroup.procs") << "0";
}

sockaddr_in6 address_of(const std::string& text, std::uint16_t port) {
  sockaddr_in6 out{};
  out.sin6_family = AF_INET6;
  out.sin6_port = htons(port);
  const std::string mapped = text.find(':') == std::string::npos ? "::ffff:" + text : text;
  EXPECT_EQ(::inet_pton(AF_INET6, mapped.c_str(), &out.sin6_addr), 1) << text;
  return out;
}

struct Call {
  std::string to = "127.0.0.1";
  int protocol = 0;
  bool fast_open = false;  // its first packet has data
  bool as_agent = false;
};

bool reaches(std::uint16_t port, const Call& call = {}) {
  const Fd fd(::socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK, call.protocol));
  if (!fd)
    return false;
  if (call.as_agent)
    pass_replica_guard(fd.get());
  const sockaddr_in6 to = address_of(call.to, port);
  const auto* raw = reinterpret_cast<const sockaddr*>(&to);
  if (call.fast_open)
    (void)!::sendto(fd.get(), "x", 1, MSG_FASTOPEN, raw, sizeof to);
  else
    (void)!::connect(fd.get(), raw, sizeof to);
  pollfd ready{fd.get(), POLLOUT, 0};
  if (::poll(&ready, 1, silence_ms) != 1)
    return false;
  int error = 0;
  socklen_t length = sizeof error;
  return ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0;
}

class ReplicaGuard : public testing::Test {
 protected:
  void SetUp() override {
    const std::string mount = process::cgroup_v2_mount();
    if (::geteuid() != 0 || mount.empty())
      GTEST_SKIP() << "needs root and cgroup v2";
    top_ = mount + "/billow-replica-test-" + std::to_string(::getpid());
    for (const std::string& group : {top_, replica(), gateway(), stranger()})
      if (::mkdir(group.c_str(), 0755) != 0)
        GTEST_SKIP() << "cannot make control groups here";
    if (describe_replica_guard(true).find("not available") != std::string::npos)
      GTEST_SKIP() << describe_replica_guard(true);
  }
  void TearDown() override {
    for (const pid_t pid : started_) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
    for (const std::string& group : {replica(), gateway(), stranger(), top_})
      (void)::rmdir(group.c_str());
  }
  std::string replica() const { return top_ + "/replica"; }
  std::string gateway() const { return top_ + "/gateway"; }
  std::string stranger() const { return top_ + "/stranger"; }
  static std::uint64_t number_of(const std::string& group) {
    struct stat info {};
    EXPECT_EQ(::stat(group.c_str(), &info), 0) << group;
    return info.st_ino;
  }

  // A process of the replica that listens at every address, and its port.
  std::uint16_t listen_there() {
    int ports[2];
    EXPECT_EQ(::pipe(ports), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      enter(replica());
      const int listener = ::socket(AF_INET6, SOCK_STREAM, 0);
      sockaddr_in6 any = address_of("::", 0);
      socklen_t length = sizeof any;
      ::bind(listener, reinterpret_cast<sockaddr*>(&any), length);
      ::listen(listener, 64);
      ::getsockname(listener, reinterpret_cast<sockaddr*>(&any), &length);
      const std::uint16_t port = ntohs(any.sin6_port);
      (void)!::write(ports[1], &port, sizeof port);
      for (;;)
        ::pause();
    }
    started_.push_back(child);
    std::uint16_t port = 0;
    EXPECT_EQ(::read(ports[0], &port, sizeof port), static_cast<ssize_t>(sizeof port));
    ::close(ports[0]);
    ::close(ports[1]);
    return port;
  }

  static bool from(const std::string& group, const std::function<bool()>& work) {
    const pid_t child = ::fork();
    if (child == 0) {
      enter(group);
      ::_exit(work() ? 0 : 1);
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }

  std::string top_;
  std::vector<pid_t> started_;
};

const Call ways[] = {{.to = "127.0.0.1"},
                     {.to = "::1"},
                     {.to = "127.8.9.10"},
                     {.to = "127.0.0.1", .protocol = IPPROTO_MPTCP},
                     {.to = "127.0.0.1", .fast_open = true},
                     {.to = "::1", .fast_open = true}};

TEST_F(ReplicaGuard, StrangersOnTheMachineDoNotReachIt) {
  const std::uint16_t port = listen_there();
  ASSERT_TRUE(reaches(port));  // open, as it was
  ASSERT_TRUE(close_replica(replica(), port, {number_of(gateway())}).has_value());
  EXPECT_TRUE(replica_closed(replica()));
  EXPECT_FALSE(replica_closed(stranger()));
  for (const Call& way : ways) {
    EXPECT_FALSE(reaches(port, way)) << way.to << " " << way.protocol << way.fast_open;
    EXPECT_FALSE(from(stranger(), [&] { return reaches(port, way); })) << way.to;
  }
}

TEST_F(ReplicaGuard, GatewaysTheReplicaAndTheAgentReachIt) {
  const std::uint16_t port = listen_there();
  ASSERT_TRUE(close_replica(replica(), port, {number_of(gateway())}).has_value());
  for (const char* to : {"127.0.0.1", "::1", "127.8.9.10"}) {
    EXPECT_TRUE(from(gateway(), [&] { return reaches(port, {.to = to}); })) << to;
    EXPECT_TRUE(from(replica(), [&] { return reaches(port, {.to = to}); })) << to;
    EXPECT_TRUE(reaches(port, {.to = to, .as_agent = true})) << to;
  }
}

TEST_F(ReplicaGuard, OtherPortsStayAsTheyWere) {
  const std::uint16_t port = listen_there(), other = listen_there();
  ASSERT_TRUE(close_replica(replica(), port, {}).has_value());
  EXPECT_FALSE(reaches(port));
  EXPECT_TRUE(reaches(other));
}

TEST_F(ReplicaGuard, NewGatewaysTakeThePlaceOfOldOnes) {
  const std::uint16_t port = listen_there();
  ASSERT_TRUE(close_replica(replica(), port, {number_of(stranger())}).has_value());
  ASSERT_TRUE(close_replica(replica(), port, {number_of(gateway())}).has_value());
  EXPECT_TRUE(from(gateway(), [&] { return reaches(port); }));
  EXPECT_FALSE(from(stranger(), [&] { return reaches(port); }));
}

// What is not root cannot say that it is the agent.
TEST_F(ReplicaGuard, OtherAccountsCannotPassAsTheAgent) {
  const std::uint16_t port = listen_there();
  ASSERT_TRUE(close_replica(replica(), port, {}).has_value());
  EXPECT_FALSE(from(stranger(), [&] {
    return ::setgid(65534) == 0 && ::setuid(65534) == 0 && reaches(port, {.as_agent = true});
  }));
}

}  // namespace
}  // namespace billow::agent
