#include "gateway/pure/prompt_work.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace billow::gateway {
namespace {

constexpr std::uint64_t measured_bytes_min = 8'192;  // shorter prompts say little about the rate
constexpr double rate_weight = 0.1;                  // of the newest prompt
// Of the oldest prompt that is being read, at least this part counts as unread: it is not known
// how far the engine is.
constexpr double unread_part_min = 0.1;
constexpr std::uint64_t reach_bytes_min = 64 << 10;
constexpr double reach_growth = 1.02;
constexpr std::uint64_t reach_unlimited = std::uint64_t{1} << 60;

}  // namespace

PrefixIndex::Asked PromptWork::question(ReplicaKey replica) const {
  const auto found = readers_.find(replica);
  if (found == readers_.end())
    return {.replica = replica};
  const Reader& r = found->second;
  return {.replica = replica, .oldest = r.volume > r.reach ? r.volume - r.reach : 0};
}

double PromptWork::waiting_bytes(ReplicaKey replica, SteadyTime now) const {
  const auto found = readers_.find(replica);
  if (found == readers_.end() || found->second.unread.empty())
    return 0;
  const Reader& r = found->second;
  const double oldest = static_cast<double>(r.unread.begin()->second);
  const double so_far = std::max((now - r.since).seconds(), 0.0) * r.bytes_s;
  return static_cast<double>(r.unread_bytes) - std::min(so_far, oldest * (1 - unread_part_min));
}

ReplicaKey PromptWork::choose(const Prompt& prompt,
                              std::span<const Candidate> among,
                              SteadyTime now) const {
  std::vector<PrefixIndex::Asked> asked;
  asked.reserve(among.size());
  for (const Candidate& c : among)
    asked.push_back(question(c.key));
  index_.ask(prompt.blocks, asked);
  const Candidate* best = nullptr;
  std::tuple<double, std::uint32_t> least;
  for (std::size_t i = 0; i < among.size(); ++i) {
    const double cached = static_cast<double>(prefix_bytes_of(asked[i].blocks));
    const std::tuple cost{waiting_bytes(among[i].key, now) - cached, among[i].load};
    if (best && least <= cost)
      continue;
    best = &among[i];
    least = cost;
  }
  return best ? best->key : 0;
}

void PromptWork::given(RequestId request, const Prompt& prompt, ReplicaKey to, SteadyTime now) {
  ended(request, now);  // an earlier try
  PrefixIndex::Asked asked[] = {question(to)};
  index_.ask(prompt.blocks, asked);
  Reader& reader = readers_[to];
  const Given given{.to = to,
                    .bytes = prompt.bytes,
                    .cached = std::min(prefix_bytes_of(asked[0].blocks), prompt.bytes),
                    .age = asked[0].blocks == 0 ? 0 : reader.volume - asked[0].least_at,
                    .at = now};
  const std::uint64_t unread = given.bytes - given.cached;
  if (reader.unread.empty())
    reader.since = now;
  reader.unread.emplace(request, unread);
  reader.unread_bytes += unread;
  reader.volume += unread;
  index_.learn(prompt.blocks, to, reader.volume);
  given_.emplace(request, given);
}

void PromptWork::done(RequestId request, const Given& given, bool measured, SteadyTime now) {
  Reader& reader = readers_[given.to];
  const auto found = reader.unread.find(request);
  if (found == reader.unread.end())
    return;
  const std::uint64_t bytes = found->second;
  reader.unread_bytes -= bytes;
  reader.unread.erase(found);
  const double took_s = (now - std::max(reader.since, given.at)).seconds();
  if (measured && bytes >= measured_bytes_min && took_s > 0) {
    const double rate = static_cast<double>(bytes) / took_s;
    reader.bytes_s =
        reader.bytes_s == 0 ? rate : reader.bytes_s * std::pow(rate / reader.bytes_s, rate_weight);
  }
  reader.since = now;
}

void PromptWork::read(RequestId request, bool streamed, SteadyTime now) {
  if (const auto found = given_.find(request); found != given_.end())
    done(request, found->second, streamed, now);
}

void PromptWork::reported(RequestId request, std::uint64_t tokens, std::uint64_t cached_tokens) {
  const auto found = given_.find(request);
  if (found == given_.end() || tokens == 0 || found->second.cached == 0)
    return;
  const Given& given = found->second;
  Reader& reader = readers_[given.to];
  const double part = static_cast<double>(cached_tokens) / static_cast<double>(tokens);
  const double expected = static_cast<double>(given.cached) / static_cast<double>(given.bytes);
  if (part < expected / 2)
    reader.reach = std::max(std::min(reader.reach, given.age - given.age / 20), reach_bytes_min);
  else if (std::max(reader.reach, given.age) >= reach_unlimited)
    reader.reach = UINT64_MAX;
  else
    reader.reach = static_cast<std::uint64_t>(
        static_cast<double>(std::max(reader.reach, given.age)) * reach_growth);
}

void PromptWork::ended(RequestId request, SteadyTime now) {
  const auto found = given_.find(request);
  if (found == given_.end())
    return;
  done(request, found->second, false, now);
  given_.erase(found);
}

void PromptWork::forget(ReplicaKey replica) {
  readers_.erase(replica);
  std::erase_if(given_, [&](const auto& each) { return each.second.to == replica; });
}

}  // namespace billow::gateway
