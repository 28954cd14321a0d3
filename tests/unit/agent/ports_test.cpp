// Who has a replica's port, in a made-up network first and then with this process's own sockets.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/reach/port_watch.h"

namespace billow::agent {
namespace {

ListeningSocket socket_at(const char* address, std::uint16_t port, std::uint64_t inode) {
  ListeningSocket out;
  out.v4 = std::string_view(address).find(':') == std::string_view::npos;
  out.inode = inode;
  EXPECT_EQ(::inet_pton(out.v4 ? AF_INET : AF_INET6, address, out.address.sin6_addr.s6_addr), 1);
  out.address.sin6_port = htons(port);
  return out;
}

struct Net {
  std::vector<ListeningSocket> sockets;
  std::map<std::uint64_t, int> own;  // of the task's only process
  SteadyTime now{1'000'000'000'000};
  PortWatch watch{{[this] { return sockets; }, [](TaskId) { return std::vector<int>{4194303}; },
                   [this](int) { return own; },
                   [] {
                     return Reach::loopback;
                   }}};
  Net() { watch.add(TaskId(1), 20001, now); }
  PortHolder look() {
    now = now + milliseconds(1);
    return watch.look_at(TaskId(1), now);
  }
};

TEST(PortWatch, ItIsTheTasksOnlyWhereAllThatAnswersIsItsOwn) {
  Net net;
  EXPECT_EQ(net.look(), PortHolder::nobody);
  net.sockets = {socket_at("127.0.0.1", 20001, 7), socket_at("127.0.0.1", 20002, 8)};
  net.own = {{7, 3}};
  EXPECT_EQ(net.look(), PortHolder::task);
  // A second one on the same port, as sockets of one user can be.
  net.sockets.push_back(socket_at("127.0.0.1", 20001, 9));
  EXPECT_EQ(net.look(), PortHolder::nobody);
  net.now = net.now + milliseconds(40);
  EXPECT_EQ(net.look(), PortHolder::other);
  net.own = {{7, 3}, {9, 4}};
  EXPECT_EQ(net.look(), PortHolder::task) << "a server that has one for each of its workers";
}

TEST(PortWatch, AServerOnAnotherPortIsNamed) {
  Net net;
  const auto astray = [&] {
    net.now = net.now + seconds(2);
    const auto seen = net.watch.look(net.now);
    return seen.empty() ? std::optional<std::string>("not looked at") : seen.front().astray;
  };
  EXPECT_EQ(astray(), "") << "it listens nowhere yet";
  net.sockets = {socket_at("127.0.0.1", 20002, 7), socket_at("127.0.0.1", 20003, 8)};
  net.own = {{7, 3}};
  EXPECT_EQ(astray(),
            "it listens on port 20002, not on 20001; the port to use is in its variable PORT");
  net.sockets = {socket_at("::1", 20001, 7)};
  EXPECT_EQ(astray(),
            "it listens on port 20001 at an address that the gateway cannot reach; listen on "
            "127.0.0.1 or 0.0.0.0");
  net.sockets = {socket_at("127.0.0.1", 20001, 7), socket_at("127.0.0.1", 20002, 9)};
  EXPECT_EQ(astray(), "") << "it has its port, whatever else it listens on";
}

TEST(PortWatch, SomebodyElseIsNamedByASecondLookOnly) {
  Net net;
  net.sockets = {socket_at("0.0.0.0", 20001, 7)};
  EXPECT_EQ(net.look(), PortHolder::nobody);
  EXPECT_LE(net.watch.next()->ns, (net.now + milliseconds(30)).ns) << "which is not long in coming";
  net.own = {{7, 3}};  // its process had just been made
  EXPECT_EQ(net.look(), PortHolder::task);
  net.sockets = {socket_at("0.0.0.0", 20001, 8)};  // it closed its own, and another came
  net.own = {};
  EXPECT_EQ(net.look(), PortHolder::nobody);
  net.now = net.now + milliseconds(40);
  const auto seen = net.watch.look(net.now);
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0].holder, PortHolder::other);
}

// Killed for its memory, it lists no descriptors while the kernel frees what it had.
TEST(PortWatch, ADyingProcessIsNotSomebodyElse) {
  Net net;
  net.sockets = {socket_at("127.0.0.1", 20001, 7)};
  net.own = {{7, 3}};
  EXPECT_EQ(net.look(), PortHolder::task);
  net.own = {};
  EXPECT_EQ(net.look(), PortHolder::nobody);
  net.now = net.now + seconds(2);
  EXPECT_EQ(net.look(), PortHolder::nobody);
}

TEST(PortWatch, TheSocketsThatCountAreThoseAConnectionComesTo) {
  const std::vector<ListeningSocket> sockets = {socket_at("0.0.0.0", 20001, 1),
                                                socket_at("::", 20001, 2),
                                                socket_at("127.0.0.1", 20001, 3),
                                                socket_at("127.0.0.2", 20001, 4),
                                                socket_at("::1", 20001, 5),
                                                socket_at("10.0.0.9", 20001, 6),
                                                socket_at("::ffff:127.0.0.1", 20001, 7)};
  EXPECT_EQ(answering(sockets, 20001, Reach::loopback), (std::vector<std::uint64_t>{3, 7}));
  EXPECT_EQ(answering({sockets[0], sockets[1], sockets[5]}, 20001, Reach::loopback),
            std::vector<std::uint64_t>{1});
  EXPECT_EQ(answering({sockets[1], sockets[3], sockets[4]}, 20001, Reach::loopback),
            std::vector<std::uint64_t>{2});
  EXPECT_TRUE(answering({sockets[3], sockets[4], sockets[5]}, 20001, Reach::loopback).empty())
      << "a neighbour's own address is no trouble";
  // From another machine at an address that is not known here, every one may be meant.
  EXPECT_EQ(answering({sockets[0], sockets[2], sockets[5]}, 20001, Reach::unknown),
            (std::vector<std::uint64_t>{3, 6}));
  EXPECT_TRUE(answering(sockets, 20002, Reach::unknown).empty());
}

TEST(PortWatch, LooksEverMoreSeldomUntilTheFirstListenerAndSteadilyAfterwards) {
  Net net;
  int looks = 0;
  const SteadyTime end = net.now + seconds(10);
  for (; *net.watch.next() < end; ++looks)
    (void)net.watch.look(net.now = *net.watch.next());
  EXPECT_GT(looks, 100);
  EXPECT_LT(looks, 400);
  EXPECT_LE((*net.watch.next() - net.now).ms(), 100);
  net.sockets = {socket_at("127.0.0.1", 20001, 7)};
  net.own = {{7, 3}};
  (void)net.watch.look(net.now = *net.watch.next());
  EXPECT_EQ((*net.watch.next() - net.now).ms(), 25);
}

TEST(PortWatch, AnEndedTaskWasRobbedOnlyIfItNeverHadItsPort) {
  Net net;
  EXPECT_FALSE(net.watch.was_taken(TaskId(1)));
  net.sockets = {socket_at("127.0.0.1", 20001, 7)};
  EXPECT_TRUE(net.watch.was_taken(TaskId(1)));
  net.own = {{7, 3}};
  EXPECT_EQ(net.look(), PortHolder::task);
  net.own = {};
  EXPECT_FALSE(net.watch.was_taken(TaskId(1))) << "it ended for a reason of its own";
}

TEST(PortWatch, FindsRealListenersAndTheirEnd) {
  Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at), 0);
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  socklen_t length = sizeof at;
  ASSERT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&at), &length), 0);
  std::vector<int> mine = {::getpid()};
  int tables = 0;
  const auto listening = [&] {
    ++tables;
    return listening_here();
  };
  PortWatch watch({listening, [&](TaskId) { return mine; }, sockets_of, {}});
  SteadyTime now{1'000'000'000'000};
  watch.add(TaskId(1), ntohs(at.sin_port), now);
  watch.add(TaskId(2), ntohs(at.sin_port), now);
  EXPECT_EQ(watch.look_at(TaskId(1), now), PortHolder::task);
  mine.clear();
  EXPECT_EQ(watch.look_at(TaskId(1), now), PortHolder::task)
      << "that process has it still: nobody's list is needed";
  EXPECT_EQ(watch.look_at(TaskId(2), now), PortHolder::nobody);
  EXPECT_EQ(watch.look_at(TaskId(2), now + milliseconds(50)), PortHolder::other);
  // While the task has its socket it is not looked for among all others at every turn; when it is
  // gone that is seen at the next.
  watch.remove(TaskId(2));
  tables = 0;
  for (int turn = 0; turn < 20; ++turn) {
    now = *watch.next();
    ASSERT_EQ(watch.look(now).at(0).holder, PortHolder::task);
  }
  EXPECT_LE(tables, 6);
  EXPECT_GE(tables, 4);
  listener = Fd();
  now = *watch.next();
  EXPECT_EQ(watch.look(now).at(0).holder, PortHolder::nobody);
}

TEST(PortWatch, AnAgentIsReachedWhereItDialsFrom) {
  EXPECT_EQ(reach_of({.host = {}, .port = 0, .unix_path = "/run/head.sock"}), Reach::loopback);
  EXPECT_EQ(reach_of({.host = "127.0.0.1", .port = 7070, .unix_path = {}}), Reach::loopback);
  EXPECT_EQ(reach_of({.host = "head.example", .port = 7070, .unix_path = {}}), Reach::unknown);
}

}  // namespace
}  // namespace billow::agent
