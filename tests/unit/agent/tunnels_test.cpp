// Connections into jobs: bytes as they were sent, each end by itself, never more than was granted.
#include "agent/reach/tunnels.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "base/crypto.h"

namespace billow::agent {
namespace {

using namespace wire::agent_v1;

struct Rig {
  net::Loop loop;
  Fd job;                    // the job's end of the newest tunnel
  std::string from_job;      // what the head was sent
  std::uint64_t credit = 0;  // what the head was granted
  std::vector<TunnelOpened> opened;
  std::vector<TunnelEnd> ends;
  Tunnels tunnels{
      loop,
      {.open = [this](const TunnelOpen& request) -> Result<Tunnels::Target> {
         if (request.port == 1)
           return fail(Code::not_found, "nothing listens");
         int ends[2];
         if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0)
           return fail_errno("socketpair", errno);
         job = Fd(ends[0]);
         return Tunnels::Target{Fd(ends[1]), "key", "ana"};
       },
       .send =
           [this](const Tunnelled& message, std::string_view blob) {
             if (const auto* m = std::get_if<TunnelOpened>(&message))
               opened.push_back(*m);
             if (const auto* m = std::get_if<TunnelEnd>(&message))
               ends.push_back(*m);
             if (const auto* m = std::get_if<TunnelCredit>(&message))
               credit += m->bytes;
             if (std::holds_alternative<TunnelData>(message))
               from_job += blob;
           },
       .carried =
           [this](TaskId task, std::size_t bytes) {
             carried[task] += bytes;
           }}};
  std::map<TaskId, std::size_t> carried;  // of the job's own bytes
  void open(std::uint64_t id = 1) {
    tunnels.take(TunnelOpen{.tunnel = id, .task = TaskId(7), .port = 80}, {});
    ASSERT_TRUE(
        loop.run_until([&] { return !opened.empty() && opened.back().tunnel == id; }, seconds(10)));
  }
  std::string read_all(std::size_t bytes) {
    std::string got;
    EXPECT_TRUE(loop.run_until(
        [&] {
          char buffer[65536];
          const ssize_t n = ::recv(job.get(), buffer, sizeof buffer, MSG_DONTWAIT);
          if (n > 0)
            got.append(buffer, static_cast<std::size_t>(n));
          return got.size() >= bytes;
        },
        seconds(10)));
    return got;
  }
};

TEST(Tunnels, CarriesBytesAndEachEndByItself) {
  Rig rig;
  rig.open();
  EXPECT_EQ(rig.opened[0].host_key, "key");
  rig.tunnels.take(TunnelData{1}, "to the job");
  EXPECT_EQ(rig.read_all(10), "to the job");
  rig.tunnels.take(TunnelEnd{.tunnel = 1}, {});
  char c;
  ASSERT_TRUE(rig.loop.run_until([&] { return ::recv(rig.job.get(), &c, 1, MSG_DONTWAIT) == 0; },
                                 seconds(10)));
  EXPECT_EQ(rig.tunnels.count(), 1u);  // the other direction is open
  ASSERT_EQ(::send(rig.job.get(), "answer", 6, 0), 6);
  ASSERT_TRUE(rig.loop.run_until([&] { return rig.from_job == "answer"; }, seconds(10)));
  EXPECT_EQ(rig.carried, (std::map<TaskId, std::size_t>{
                             {TaskId(7), 6}}));  // what goes to the job is not what it sends
  rig.job.reset();
  ASSERT_TRUE(rig.loop.run_until([&] { return rig.tunnels.count() == 0; }, seconds(10)));
  ASSERT_EQ(rig.ends.size(), 1u);
  EXPECT_FALSE(rig.ends[0].cut);
}

TEST(Tunnels, SendsNoMoreThanWasGranted) {
  Rig rig;
  rig.open();
  const std::string data = random_bytes(3 * tunnel_window_bytes);
  std::size_t sent = 0;
  const auto pour = [&] {
    while (sent < data.size()) {
      const ssize_t n = ::send(rig.job.get(), data.data() + sent, data.size() - sent,
                               MSG_DONTWAIT | MSG_NOSIGNAL);
      if (n <= 0)
        break;
      sent += static_cast<std::size_t>(n);
    }
    return false;
  };
  rig.loop.run_until([&] { return pour() || rig.from_job.size() >= tunnel_window_bytes; },
                     seconds(10));
  rig.loop.run_until(pour, milliseconds(50));
  EXPECT_EQ(rig.from_job.size(), tunnel_window_bytes);
  rig.tunnels.take(TunnelCredit{1, 2 * tunnel_window_bytes}, {});
  ASSERT_TRUE(rig.loop.run_until([&] { return pour() || rig.from_job.size() == data.size(); },
                                 seconds(10)));
  EXPECT_EQ(rig.from_job, data);
}

TEST(Tunnels, GrantsWhatTheJobHasTakenAndCutsWhoeverSendsMore) {
  Rig rig;
  rig.open();
  rig.tunnels.take(TunnelData{1}, std::string(tunnel_window_bytes, 'x'));
  EXPECT_EQ(rig.read_all(tunnel_window_bytes).size(), tunnel_window_bytes);
  ASSERT_TRUE(rig.loop.run_until([&] { return rig.credit == tunnel_window_bytes; }, seconds(10)));
  for (int i = 0; i < 8 && rig.tunnels.count() > 0; ++i)
    rig.tunnels.take(TunnelData{1}, std::string(tunnel_window_bytes, 'x'));  // nobody reads
  EXPECT_EQ(rig.tunnels.count(), 0u);
  ASSERT_FALSE(rig.ends.empty());
  EXPECT_TRUE(rig.ends.back().cut);
}

TEST(Tunnels, ASlowJobGetsTheRestAfterBothEnds) {
  Rig rig;
  rig.open();
  // More than the socket takes at once: some of it waits here.
  std::string data;
  while (rig.credit == data.size()) {
    const std::string piece = random_bytes(tunnel_piece_bytes_max);
    rig.tunnels.take(TunnelData{1}, piece);
    data += piece;
  }
  ASSERT_EQ(::shutdown(rig.job.get(), SHUT_WR), 0);
  ASSERT_TRUE(rig.loop.run_until([&] { return !rig.ends.empty(); }, seconds(10)));
  rig.tunnels.take(TunnelEnd{.tunnel = 1}, {});
  rig.tunnels.take(TunnelEnd{.tunnel = 1, .cut = true}, {});
  EXPECT_EQ(rig.tunnels.count(), 1u);
  EXPECT_EQ(rig.read_all(data.size()), data);
  EXPECT_TRUE(rig.loop.run_until([&] { return rig.tunnels.count() == 0; }, seconds(10)));
}

TEST(Tunnels, EndWithTheirTaskAndAreLimited) {
  Rig rig;
  rig.tunnels.take(TunnelOpen{.tunnel = 9, .task = TaskId(7), .port = 1}, {});
  ASSERT_EQ(rig.opened.size(), 1u);
  EXPECT_EQ(rig.opened[0].error, "nothing listens");
  rig.open(10);
  ASSERT_EQ(::send(rig.job.get(), "last words", 10, 0), 10);
  rig.tunnels.close_of(TaskId(8), "not this one");
  EXPECT_EQ(rig.tunnels.count(), 1u);
  rig.tunnels.close_of(TaskId(7), "the job has ended");
  EXPECT_EQ(rig.from_job, "last words");
  ASSERT_EQ(rig.ends.size(), 1u);
  EXPECT_EQ(rig.ends[0].error, "the job has ended");
  std::vector<Fd> kept;
  std::uint64_t id = 100;
  const auto open_many = [&](TaskId task, std::size_t count) {
    for (const std::uint64_t end = id + count; id < end; ++id) {
      rig.tunnels.take(TunnelOpen{.tunnel = id, .task = task, .port = 80}, {});
      kept.push_back(std::move(rig.job));
    }
  };
  // One job cannot take them all: the next one has its own.
  open_many(TaskId(7), tunnels_per_node_max);
  EXPECT_EQ(rig.tunnels.count(), tunnels_per_task_max);
  EXPECT_NE(rig.opened.back().error.find("into this job"), std::string::npos)
      << rig.opened.back().error;
  for (std::uint64_t task = 8; rig.tunnels.count() < tunnels_per_node_max && task < 100; ++task)
    open_many(TaskId(task), tunnels_per_task_max);
  EXPECT_EQ(rig.tunnels.count(), tunnels_per_node_max);
  open_many(TaskId(100), 1);
  EXPECT_EQ(rig.tunnels.count(), tunnels_per_node_max);
  EXPECT_NE(rig.opened.back().error.find("the node already has"), std::string::npos)
      << rig.opened.back().error;
}

TEST(Tunnels, FramesAreApartFromTheProtocols) {
  const std::string frame = encode_tunnel(TunnelData{5}, "bytes");
  EXPECT_TRUE(is_tunnel_frame(frame));
  const auto back = decode_tunnel(frame);
  ASSERT_TRUE(back);
  EXPECT_EQ(std::get<TunnelData>(back->message).tunnel, 5u);
  EXPECT_EQ(back->blob, "bytes");
  EXPECT_FALSE(decode_tunnel(frame.substr(0, 9)));
}

}  // namespace
}  // namespace billow::agent
