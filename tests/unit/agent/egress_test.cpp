// Which bytes leave, and that the kernel's count holds all of them: short-lived sockets, other
// protocols, and an agent that died.
#include "agent/observe/egress.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <functional>

namespace billow::agent {
namespace {

bool leaves(const std::string& text) {
  unsigned char bytes[16];
  const int family = text.find(':') == std::string::npos ? AF_INET : AF_INET6;
  EXPECT_EQ(::inet_pton(family, text.c_str(), bytes), 1) << text;
  return is_public(family, bytes);
}

TEST(Egress, OnlyPublicAddressesAreOutside) {
  for (const char* inside : {"0.0.0.0",
                             "10.1.2.3",
                             "127.0.0.1",
                             "127.200.0.1",
                             "100.64.0.1",
                             "100.127.255.255",
                             "169.254.169.254",
                             "172.16.0.1",
                             "172.31.255.255",
                             "192.168.1.1",
                             "224.0.0.1",
                             "255.255.255.255",
                             "::",
                             "::1",
                             "fe80::1",
                             "febf::1",
                             "fc00::1",
                             "fd12::1",
                             "ff02::1",
                             "::ffff:10.0.0.1",
                             "::ffff:192.168.0.1"})
    EXPECT_FALSE(leaves(inside)) << inside;
  for (const char* outside :
       {"1.1.1.1", "9.255.255.255", "11.0.0.1", "100.63.255.255", "100.128.0.1", "172.15.255.255",
        "172.32.0.1", "192.167.1.1", "169.253.1.1", "203.0.113.7", "223.255.255.255", "2001:db8::7",
        "2606:4700::1111", "fe00::1", "fec0::1", "::ffff:8.8.8.8"})
    EXPECT_TRUE(leaves(outside)) << outside;
}

// In a child with a network and mounts of its own: an address on its loopback is as public as any,
// and nothing goes anywhere.
int in_own_network(const std::function<int(const std::string& cgroups)>& test) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWNET | CLONE_NEWNS) != 0 ||
        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
      ::_exit(77);
    char folder[] = "/tmp/billow-egress-XXXXXX";
    if (!::mkdtemp(folder) || ::mount("none", folder, "cgroup2", 0, nullptr) != 0)
      ::_exit(77);
    ifreq lo{};
    std::strcpy(lo.ifr_name, "lo");
    const int s = ::socket(AF_INET, SOCK_DGRAM, 0);
    ::ioctl(s, SIOCGIFFLAGS, &lo);
    lo.ifr_flags |= IFF_UP;
    if (::ioctl(s, SIOCSIFFLAGS, &lo) != 0)
      ::_exit(77);
    for (const char* address : {"203.0.113.7", "203.0.113.8", "10.9.9.9"}) {
      ifreq alias{};
      std::snprintf(alias.ifr_name, sizeof alias.ifr_name, "lo:%c",
                    address[std::strlen(address) - 1] + (address[0] == '1' ? 20 : 0));
      auto* in = reinterpret_cast<sockaddr_in*>(&alias.ifr_addr);
      in->sin_family = AF_INET;
      ::inet_pton(AF_INET, address, &in->sin_addr);
      if (::ioctl(s, SIOCSIFADDR, &alias) != 0)
        ::_exit(77);
    }
    ::close(s);
    ::_exit(test(folder));
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

sockaddr_in address_of(const char* text) {
  sockaddr_in out{};
  out.sin_family = AF_INET;
  ::inet_pton(AF_INET, text, &out.sin_addr);
  return out;
}

// A child of the group sends `times` × `bytes`, each over a connection of its own.
bool send_over_tcp(const std::string& group, const char* to, int times, std::size_t bytes) {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in at = address_of(to);
  socklen_t size = sizeof at;
  if (::bind(listener, reinterpret_cast<sockaddr*>(&at), size) != 0 || ::listen(listener, 16) != 0)
    return false;
  ::getsockname(listener, reinterpret_cast<sockaddr*>(&at), &size);
  const pid_t child = ::fork();
  if (child == 0) {
    const int procs = ::open((group + "/cgroup.procs").c_str(), O_WRONLY);
    if (::write(procs, "0", 1) != 1)
      ::_exit(1);
    const std::string data(bytes, 'x');
    for (int i = 0; i < times; ++i) {
      const int s = ::socket(AF_INET, SOCK_STREAM, 0);
      if (::connect(s, reinterpret_cast<sockaddr*>(&at), sizeof at) != 0)
        ::_exit(1);
      for (std::size_t sent = 0; sent < bytes;) {
        const ssize_t n = ::send(s, data.data() + sent, bytes - sent, MSG_NOSIGNAL);
        if (n <= 0)
          ::_exit(1);
        sent += static_cast<std::size_t>(n);
      }
      ::close(s);
    }
    ::_exit(0);
  }
  std::string buffer(1 << 16, 0);
  std::size_t got = 0;
  for (int i = 0; i < times; ++i) {
    const int s = ::accept(listener, nullptr, nullptr);
    for (ssize_t n; (n = ::recv(s, buffer.data(), buffer.size(), 0)) > 0;)
      got += static_cast<std::size_t>(n);
    ::close(s);
  }
  ::close(listener);
  int status = 0;
  ::waitpid(child, &status, 0);
  return status == 0 && got == bytes * static_cast<std::size_t>(times);
}

TEST(Egress, TheKernelCountsEverythingAGroupSendsOutAndNothingElse) {
  const int outcome = in_own_network([](const std::string& cgroups) {
    const std::string group = cgroups + "/billow-egress-test", inner = group + "/inner";
    ::mkdir(group.c_str(), 0755);
    ::mkdir(inner.c_str(), 0755);
    int wrong = 0;
    const auto check = [&wrong](bool ok, int number) {
      if (!ok && wrong == 0)
        wrong = number;
    };
    {
      auto counter = EgressCounter::attach(group);
      if (!counter)
        return 77;
      check(!counter->found() && counter->bytes() == 0, 1);
      check(send_over_tcp(inner, "203.0.113.7", 40, 100'000),
            2);  // each socket lives for milliseconds
      check(counter->bytes() >= 4'000'000 && counter->bytes() < 4'400'000, 3);
    }
    // The agent is gone, the count goes on; the next one finds it.
    check(send_over_tcp(inner, "203.0.113.7", 10, 100'000), 4);
    auto counter = EgressCounter::attach(group);
    if (!counter)
      return 5;
    check(counter->found(), 6);
    const std::int64_t before = counter->bytes();
    check(before >= 5'000'000 && before < 5'500'000, 7);
    check(send_over_tcp(inner, "10.9.9.9", 10, 100'000) &&
              send_over_tcp(inner, "127.0.0.1", 10, 100'000),
          8);
    check(counter->bytes() == before, 9);  // private addresses stay within
    const sockaddr_in rank = address_of("203.0.113.8");
    check(static_cast<bool>(
              counter->leave_out(AF_INET, reinterpret_cast<const unsigned char*>(&rank.sin_addr))),
          10);
    check(send_over_tcp(inner, "203.0.113.8", 10, 100'000) && counter->bytes() == before, 11);
    check(send_over_tcp(cgroups, "203.0.113.7", 10, 100'000) && counter->bytes() == before,
          12);  // somebody else's
    const pid_t child = ::fork();
    if (child == 0) {
      const int procs = ::open((inner + "/cgroup.procs").c_str(), O_WRONLY);
      if (::write(procs, "0", 1) != 1)
        ::_exit(1);
      const int s = ::socket(AF_INET, SOCK_DGRAM, 0);
      sockaddr_in to = address_of("203.0.113.7");
      to.sin_port = htons(9);
      const std::string data(10'000, 'x');
      for (int i = 0; i < 100; ++i)
        (void)::sendto(s, data.data(), data.size(), 0, reinterpret_cast<sockaddr*>(&to), sizeof to);
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    check(counter->bytes() - before >= 1'000'000 && counter->bytes() - before < 1'050'000,
          13);  // UDP, as QUIC sends
    std::error_code gone;
    std::filesystem::remove(inner, gone);
    std::filesystem::remove(group, gone);
    return wrong;
  });
  if (outcome == 77)
    GTEST_SKIP() << "needs root, a cgroup v2 hierarchy and a kernel that takes programs";
  EXPECT_EQ(outcome, 0) << "the number of the check that failed";
}

}  // namespace
}  // namespace billow::agent
