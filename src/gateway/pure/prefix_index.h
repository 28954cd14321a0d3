// Which replica has seen the beginning of a prompt: its engine still has the keys and values of
// those tokens, and needs not compute them again. Pure and bounded.
//
// A prompt is cut into blocks; the hash of a block includes all blocks before it, so equal hashes
// mean equal beginnings. A request goes to the replica that saw its longest known beginning last,
// unless that one is much busier than the others: then to the least busy, which knows the prompt
// from then on.
#pragma once

#include <cstdint>
#include <list>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace billow::gateway {

using ReplicaKey = std::uint64_t;  // the number of its job

inline constexpr std::size_t prefix_block_bytes = 256;
inline constexpr std::size_t prefix_blocks_max = 256;  // of one prompt: 64 KiB of text

// The hashes of the whole blocks of a prompt, the shortest beginning first.
std::vector<std::uint64_t> prefix_of(std::string_view prompt);
// The text of a request's prompt: "messages" or "prompt" of a JSON object, as it is written there.
// Empty: there is none.
std::string_view prompt_of(std::string_view body);

// Whether a replica may get a request because of what it knows, although others have less to do.
bool bearable_load(std::uint32_t load,
                   std::uint32_t least,
                   std::uint64_t sum,
                   std::size_t replicas);

class PrefixIndex {
 public:
  struct Candidate {
    ReplicaKey key = 0;
    std::uint32_t load = 0;
    bool free = true;  // has a free slot
  };
  explicit PrefixIndex(std::size_t entries_max = 200'000) : entries_max_(entries_max) {}
  PrefixIndex(PrefixIndex&&) = default;  // not copied: the map points into the list
  PrefixIndex& operator=(PrefixIndex&&) = default;

  // The replica for a request with this prompt, which it is then known to have seen. Zero: none of
  // the candidates is free.
  ReplicaKey choose(std::span<const std::uint64_t> prefix, std::span<const Candidate> among);
  std::size_t size() const { return seen_.size(); }

 private:
  struct Seen {
    std::uint64_t hash = 0;
    ReplicaKey by = 0;
  };
  void learn(std::span<const std::uint64_t> prefix, ReplicaKey by);

  std::size_t entries_max_;
  std::list<Seen> order_;  // the most recently used first
  std::unordered_map<std::uint64_t, std::list<Seen>::iterator> seen_;
};

}  // namespace billow::gateway
