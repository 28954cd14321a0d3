#include "gpumem/shim_link.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <optional>
#include <thread>

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

// The process at the other end of a link, as hostile as it likes.
struct Pair {
  Pair() {
    int both[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, both), 0);
    link.emplace(Fd(both[0]), 1);
    process = Fd(both[1]);
  }
  // What the reader thread does with a packet of the process.
  void answers(std::uint16_t type, std::uint32_t sequence, std::uint64_t arg0 = 0) {
    Answer answer;
    answer.head.version = BILLOW_ABI_VERSION;
    answer.head.type = type;
    answer.head.sequence = sequence;
    answer.head.arg0 = arg0;
    answer.descriptors.emplace_back(dup(process.get()));
    link->deliver(std::move(answer));
  }
  std::optional<ShimLink> link;
  Fd process;
};

// A process could fill the memory and the descriptors of the service that all jobs of a node share.
TEST(ShimLink, KeepsOnlyAnswersToWhatItHasAsked) {
  Pair p;
  for (std::uint32_t sequence = 1; sequence < 10000; ++sequence)
    p.answers(BILLOW_EXPORT, sequence);
  const auto asked = p.link->send(BILLOW_OPEN, 0);
  ASSERT_TRUE(asked.has_value());
  Answer answer;
  EXPECT_FALSE(p.link->poll(*asked, answer)) << "an answer from before the question";
  p.answers(BILLOW_EXPORT, *asked);
  EXPECT_FALSE(p.link->poll(*asked, answer)) << "an answer to another question";
  p.answers(BILLOW_OPEN, *asked);
  ASSERT_TRUE(p.link->poll(*asked, answer));
  EXPECT_TRUE(answer.descriptors.empty()) << "OPEN brings none";
  p.answers(BILLOW_OPEN, *asked);
  EXPECT_FALSE(p.link->poll(*asked, answer)) << "a second answer";
}

// The thread that arbitrates the GPUs of all jobs sends messages too: it must not wait.
TEST(ShimLink, DisconnectsAProcessThatDoesNotReadItsMessages) {
  Pair p;
  std::size_t sent = 0;
  while (sent < 100000 && p.link->send(BILLOW_DRAIN, 0))
    ++sent;
  EXPECT_LT(sent, 100000u);
  EXPECT_TRUE(p.link->closed());
}

// A suspend waits for these lists, and others wait for the suspend.
TEST(ShimLink, RefusesAListWithoutAnEnd) {
  for (const std::uint64_t after : {std::uint64_t{0}, list_items_max + 1, UINT64_MAX - 1}) {
    Pair p;
    std::thread process([&] {
      for (std::uint32_t sequence = 1; sequence < 4; ++sequence) {
        if (!receive_packet(p.process.get()))
          return;
        p.answers(BILLOW_LIST, sequence, sequence == 1 ? 5 : after);
      }
    });
    const auto listed = p.link->list<billow_chunk>(BILLOW_LIST);
    p.link->close();
    process.join();
    ASSERT_FALSE(listed.has_value()) << after;
    EXPECT_EQ(listed.error().code, Code::invalid);
  }
}

TEST(ShimLink, ReadsAllPagesOfAList) {
  Pair p;
  std::thread process([&] {
    for (std::uint32_t sequence = 1; receive_packet(p.process.get()); ++sequence) {
      const billow_chunk chunk{sequence, 2 << 20, 0, 0};
      Answer answer;
      answer.head.type = BILLOW_LIST;
      answer.head.sequence = sequence;
      answer.head.count = 1;
      answer.head.arg0 = sequence < 3 ? sequence : UINT64_MAX;
      answer.items.resize(sizeof chunk);
      std::memcpy(answer.items.data(), &chunk, sizeof chunk);
      p.link->deliver(std::move(answer));
    }
  });
  const auto listed = p.link->list<billow_chunk>(BILLOW_LIST);
  p.link->close();
  process.join();
  ASSERT_TRUE(listed.has_value());
  ASSERT_EQ(listed->size(), 3u);
  EXPECT_EQ(listed->back().id, 3u);
}

}  // namespace
}  // namespace billow::gpumem
