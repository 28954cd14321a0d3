#include "gateway/pure/prefix_index.h"

#include <algorithm>

#include "gateway/pure/json_cursor.h"

namespace billow::gateway {
namespace {

// A replica may have this much more to do than the mean, and one request more in any case.
constexpr double load_factor = 1.25;

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
  const std::size_t blocks = std::min(prompt.size() / prefix_block_bytes, prefix_blocks_max);
  out.reserve(blocks);
  std::uint64_t hash = 0;
  for (std::size_t i = 0; i < blocks; ++i)
    out.push_back(hash = hash_of(prompt.substr(i * prefix_block_bytes, prefix_block_bytes), hash));
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

bool bearable_load(std::uint32_t load,
                   std::uint32_t least,
                   std::uint64_t sum,
                   std::size_t replicas) {
  const double limit = load_factor * static_cast<double>(sum + 1) / static_cast<double>(replicas);
  return load <= limit || load <= least + 1;
}

ReplicaKey PrefixIndex::choose(std::span<const std::uint64_t> prefix,
                               std::span<const Candidate> among) {
  const Candidate* least = nullptr;
  std::uint64_t sum = 0;
  for (const Candidate& c : among) {
    sum += c.load;
    if (c.free && (!least || c.load < least->load))
      least = &c;
  }
  if (!least)
    return 0;
  const Candidate* to = least;
  for (std::size_t i = prefix.size(); i-- > 0;) {
    const auto found = seen_.find(prefix[i]);
    if (found == seen_.end())
      continue;
    const auto known = std::find_if(among.begin(), among.end(),
                                    [&](const Candidate& c) { return c.key == found->second->by; });
    if (known == among.end())
      continue;  // it has gone, but another may know a shorter beginning
    if (known->free && bearable_load(known->load, least->load, sum, among.size()))
      to = &*known;
    break;
  }
  learn(prefix, to->key);
  return to->key;
}

void PrefixIndex::learn(std::span<const std::uint64_t> prefix, ReplicaKey by) {
  for (const std::uint64_t hash : prefix) {
    const auto [at, fresh] = seen_.try_emplace(hash);
    if (fresh)
      at->second = order_.insert(order_.begin(), {hash, by});
    else
      order_.splice(order_.begin(), order_, at->second);
    at->second->by = by;
  }
  while (seen_.size() > entries_max_) {
    seen_.erase(order_.back().hash);
    order_.pop_back();
  }
}

}  // namespace billow::gateway
