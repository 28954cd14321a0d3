#include "gateway/pure/prefix_index.h"

#include <algorithm>

#include "gateway/pure/json_cursor.h"

namespace billow::gateway {
namespace {

constexpr std::size_t holders_max = 16;  // replicas that are remembered for one block

std::uint64_t hash_of(std::string_view text, std::uint64_t before) {
  std::uint64_t hash = before ^ 1469598103934665603u;
  for (const char c : text)
    hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  hash ^= hash >> 32;
  return hash * 0x9e3779b97f4a7c15u;
}

}  // namespace

std::vector<std::uint64_t> prefix_of(std::string_view prompt) {
  std::vector<std::uint64_t> out;
  std::uint64_t hash = 0;
  for (std::size_t i = 0; i < prefix_blocks_max; ++i) {
    const std::uint64_t from = prefix_bytes_of(i), to = prefix_bytes_of(i + 1);
    if (to > prompt.size())
      break;
    out.push_back(hash = hash_of(prompt.substr(from, to - from), hash));
  }
  return out;
}

std::string_view prompt_of(std::string_view body) {
  std::string_view prompt;
  each_member(body, [&](std::string_view key, std::string_view value) {
    if (key == "\"messages\"" || key == "\"prompt\"")
      prompt = value;
  });
  return prompt;
}

void PrefixIndex::ask(std::span<const std::uint64_t> prefix, std::span<Asked> replicas) const {
  for (std::size_t i = 0; i < prefix.size(); ++i) {
    const auto found = seen_.find(prefix[i]);
    if (found == seen_.end())
      return;
    bool known = false;
    for (const Holder& holder : found->second->by) {
      const auto asked = std::ranges::find_if(
          replicas, [&](const Asked& a) { return a.replica == holder.replica; });
      // A block is of use only with all those before it.
      if (asked == replicas.end() || asked->blocks != i || holder.at < asked->oldest)
        continue;
      ++asked->blocks;
      asked->least_at = i == 0 ? holder.at : std::min(asked->least_at, holder.at);
      known = true;
    }
    if (!known)
      return;
  }
}

void PrefixIndex::learn(std::span<const std::uint64_t> prefix, ReplicaKey by, std::uint64_t at) {
  for (const std::uint64_t hash : prefix) {
    const auto [found, fresh] = seen_.try_emplace(hash);
    if (fresh)
      found->second = order_.insert(order_.begin(), {hash, {}});
    else
      order_.splice(order_.begin(), order_, found->second);
    auto& holders = found->second->by;
    std::erase_if(holders, [&](const Holder& h) { return h.replica == by; });
    if (holders.size() >= holders_max)
      holders.erase(holders.begin());
    holders.push_back({by, at});
  }
  while (seen_.size() > entries_max_) {
    seen_.erase(order_.back().hash);
    order_.pop_back();
  }
}

}  // namespace billow::gateway
