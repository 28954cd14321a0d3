// Which replicas have seen the beginning of a prompt: their engines may still have the keys and
// values of those tokens, and need not compute them again. Pure and bounded.
//
// A prompt is cut into blocks; the hash of a block includes all blocks before it, so equal hashes
// mean equal beginnings. Blocks grow with their distance from the beginning, so that long prompts
// are known to their end by few hashes.
#pragma once

#include <cstdint>
#include <list>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace billow::gateway {

using ReplicaKey = std::uint64_t;  // the number of its job

inline constexpr std::size_t prefix_block_bytes = 256;  // the smallest, at the beginning
// Of one prompt: 64 blocks of 256 bytes, 112 of 1 KiB and 112 of 4 KiB, that is 576 KiB of text.
inline constexpr std::size_t prefix_blocks_max = 288;
// How many bytes of a prompt its first blocks have.
constexpr std::uint64_t prefix_bytes_of(std::size_t blocks) {
  const std::uint64_t small = blocks < 64 ? blocks : 64;
  const std::uint64_t medium = blocks < 64 ? 0 : blocks < 176 ? blocks - 64 : 112;
  const std::uint64_t large = blocks < 176 ? 0 : blocks - 176;
  return small * prefix_block_bytes + medium * 1024 + large * 4096;
}

// The hashes of the whole blocks of a prompt, the shortest beginning first.
std::vector<std::uint64_t> prefix_of(std::string_view prompt);
// The text of a request's prompt: "messages" or "prompt" of a JSON object, as it is written there.
// Empty: there is none.
std::string_view prompt_of(std::string_view body);

class PrefixIndex {
 public:
  explicit PrefixIndex(std::size_t entries_max = 200'000) : entries_max_(entries_max) {}
  PrefixIndex(PrefixIndex&&) = default;  // not copied: the map points into the list
  PrefixIndex& operator=(PrefixIndex&&) = default;

  // A replica to ask about. What it has seen at `oldest` or later counts.
  struct Asked {
    ReplicaKey replica = 0;
    std::uint64_t oldest = 0;
    std::size_t blocks = 0;      // answer: of the beginning, that it has seen
    std::uint64_t least_at = 0;  // answer: when it saw the one of these that it saw first
  };
  void ask(std::span<const std::uint64_t> prefix, std::span<Asked> replicas) const;
  // `at` is a number that rises with what the replica has read.
  void learn(std::span<const std::uint64_t> prefix, ReplicaKey by, std::uint64_t at);
  std::size_t size() const { return seen_.size(); }

 private:
  struct Holder {
    ReplicaKey replica = 0;
    std::uint64_t at = 0;
  };
  struct Seen {
    std::uint64_t hash = 0;
    std::vector<Holder> by;  // the most recent last
  };
  std::size_t entries_max_;
  std::list<Seen> order_;  // the most recently used first
  std::unordered_map<std::uint64_t, std::list<Seen>::iterator> seen_;
};

}  // namespace billow::gateway
