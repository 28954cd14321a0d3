#include "gateway/pure/body_memory.h"

#include <algorithm>

namespace billow::gateway {

bool BodyMemory::take(const BodyParty& party, std::size_t bytes, bool can_do_without) {
  Half& half = party.known ? known_ : strangers_;
  const std::size_t usable = can_do_without ? half_bytes_max / 2 : half_bytes_max;
  if (bytes > usable || half.held > usable - bytes)
    return false;
  const auto found = half.parties.find(party.name);
  const std::size_t own = (found == half.parties.end() ? 0 : found->second) + bytes;
  const std::size_t left = half_bytes_max - half.held - bytes;
  if (own > left || (!party.known && own > stranger_bytes_max))
    return false;
  half.parties[party.name] = own;
  half.held += bytes;
  return true;
}

void BodyMemory::give_back(const BodyParty& party, std::size_t bytes) {
  Half& half = party.known ? known_ : strangers_;
  const auto found = half.parties.find(party.name);
  if (found == half.parties.end())
    return;
  bytes = std::min(bytes, found->second);
  half.held -= bytes;
  found->second -= bytes;
  if (found->second == 0)
    half.parties.erase(found);
}

}  // namespace billow::gateway
