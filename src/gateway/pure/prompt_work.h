// Which replica reads a prompt first: the one with the least to read before its first token, that
// is the prompts that wait there and the part of this one that its cache does not hold. So a cached
// beginning decides if it saves more than the request would wait for it. Pure and bounded.
//
// Engines do not say what their caches hold or what they are reading, so both are estimated:
// - Work is bytes of prompts. A prompt counts from when a replica gets it until its answer's first
//   byte; of the oldest one of a replica, what the replica should have read meanwhile is subtracted
//   (by its rate on earlier prompts whose answers were streamed: others begin with the last token).
// - A cache drops what was used least recently. The index knows how much a replica has read since
//   it saw a block. Answers that report cached tokens ("prompt_tokens_details") teach how far back
//   a cache reaches; until one reports less than expected, everything in the index counts.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "base/clock.h"
#include "gateway/pure/prefix_index.h"

namespace billow::gateway {

using RequestId = std::uint64_t;  // assigned in order of arrival

struct Prompt {
  std::vector<std::uint64_t> blocks;  // prefix_of
  std::uint64_t bytes = 0;            // 0: not known
};

class PromptWork {
 public:
  struct Candidate {
    ReplicaKey key = 0;
    std::uint32_t load = 0;  // requests
  };
  // Zero: there is no candidate.
  ReplicaKey choose(const Prompt& prompt, std::span<const Candidate> among, SteadyTime now) const;
  // The replica got the request. Only for prompts of known size.
  void given(RequestId request, const Prompt& prompt, ReplicaKey to, SteadyTime now);
  // Its answer's first byte. `streamed`: that is its first token.
  void read(RequestId request, bool streamed, SteadyTime now);
  // Its answer says how much of the prompt was cached.
  void reported(RequestId request, std::uint64_t prompt_tokens, std::uint64_t cached_tokens);
  void ended(RequestId request, SteadyTime now);
  void forget(ReplicaKey replica);

  double waiting_bytes(ReplicaKey replica, SteadyTime now) const;  // that it has still to read
  std::size_t requests() const { return given_.size(); }

 private:
  struct Reader {
    std::map<RequestId, std::uint64_t> unread;  // bytes, the oldest request first
    std::uint64_t unread_bytes = 0;
    SteadyTime since;                  // when the reading of the oldest began, as far as is known
    double bytes_s = 0;                // 0: not known
    std::uint64_t volume = 0;          // bytes that it has read so far
    std::uint64_t reach = UINT64_MAX;  // its cache holds what was used in the last so many bytes
  };
  struct Given {
    ReplicaKey to = 0;
    std::uint64_t bytes = 0, cached = 0;
    std::uint64_t age = 0;  // what the replica had read since it saw the cached part
    SteadyTime at;
  };
  PrefixIndex::Asked question(ReplicaKey replica) const;
  // The request no longer waits to be read.
  void done(RequestId request, const Given& given, bool measured, SteadyTime now);

  PrefixIndex index_;
  std::map<ReplicaKey, Reader> readers_;
  std::map<RequestId, Given> given_;
};

}  // namespace billow::gateway
