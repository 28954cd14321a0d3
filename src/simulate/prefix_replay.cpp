#include "simulate/prefix_replay.h"

#include <algorithm>
#include <list>
#include <map>
#include <numeric>
#include <queue>
#include <random>
#include <set>
#include <unordered_map>

#include "gateway/pure/router.h"

namespace billow::gateway {
namespace {

constexpr std::uint32_t block_tokens = 64;  // about one block of text of the gateway's index

// Blocks of one conversation never change, so its number and the block's position name them.
std::uint64_t block_hash(std::uint64_t conversation, std::uint64_t position) {
  std::uint64_t h = conversation * 0x9e3779b97f4a7c15u + position + 1;
  h ^= h >> 31;
  h *= 0xff51afd7ed558ccdu;
  return h ^ (h >> 33);
}

// The blocks of the prompt, and of the answer where a later prompt would contain it.
std::vector<std::uint64_t> blocks_of(const ConversationCall& one, std::uint64_t tokens) {
  std::vector<std::uint64_t> out;
  for (std::uint64_t i = 0; i < tokens / block_tokens; ++i) {
    const std::uint64_t large = i * block_tokens / trace_block_tokens;
    if (one.conversation != 0)
      out.push_back(block_hash(one.conversation, i));
    else if (large < one.call.blocks.size())
      out.push_back(block_hash(one.call.blocks[large] + 1, i));
  }
  return out;
}

class Cache {
 public:
  explicit Cache(std::size_t blocks_max) : blocks_max_(blocks_max) {}
  // How many blocks at the beginning are held.
  std::uint64_t held(const std::vector<std::uint64_t>& blocks) const {
    std::uint64_t n = 0;
    while (n < blocks.size() && at_.contains(blocks[n]))
      ++n;
    return n;
  }
  // The end of a prompt is dropped before its beginning, without which it is useless.
  void keep(const std::vector<std::uint64_t>& blocks) {
    for (std::size_t i = blocks.size(); i-- > 0;) {
      const std::uint64_t hash = blocks[i];
      const auto [found, fresh] = at_.try_emplace(hash);
      if (fresh)
        found->second = order_.insert(order_.begin(), hash);
      else
        order_.splice(order_.begin(), order_, found->second);
    }
    while (at_.size() > blocks_max_) {
      at_.erase(order_.back());
      order_.pop_back();
    }
  }

 private:
  std::size_t blocks_max_;
  std::list<std::uint64_t> order_;
  std::unordered_map<std::uint64_t, std::list<std::uint64_t>::iterator> at_;
};

struct Engine {
  Cache cache;
  double prefill_free_s = 0;
  std::uint64_t requests = 0;
};

struct Ending {
  double at_s = 0;
  ReplicaKey replica = 0;
  bool operator>(const Ending& o) const { return at_s > o.at_s; }
};

SteadyTime steady(double s) {
  return {static_cast<std::int64_t>((s + 1) * 1e9)};
}

}  // namespace

std::vector<ConversationCall> infer_conversations(const std::vector<TraceCall>& trace,
                                                  const PrefixOptions& options) {
  struct Open {
    double at_s = 0;
    std::uint64_t conversation = 0;
  };
  std::multimap<std::uint64_t, Open> open;  // by the length of prompt and answer so far
  std::vector<ConversationCall> out;
  std::uint64_t next = 1;
  std::set<std::uint64_t> begun;  // first blocks of the traces that have any
  for (const TraceCall& call : trace) {
    ConversationCall one{.call = call, .conversation = 0};
    if (!call.blocks.empty()) {
      one.continues = !begun.insert(call.blocks.front()).second;
      out.push_back(std::move(one));
      continue;
    }
    const double answer_s = call.generated_tokens * options.step_ms / 1000;
    // The longest first: the least of the prompt is new.
    auto at = open.upper_bound(call.context_tokens);
    while (at != open.begin()) {
      --at;
      if (at->first + options.message_tokens_max < call.context_tokens)
        break;
      if (call.at_s - at->second.at_s > options.pause_s) {
        at = open.erase(at);
        continue;
      }
      if (at->second.at_s > call.at_s)
        continue;  // its answer is not complete yet
      one.conversation = at->second.conversation;
      one.continues = true;
      open.erase(at);
      break;
    }
    if (!one.continues)
      one.conversation = next++;
    open.emplace(call.context_tokens + call.generated_tokens,
                 Open{call.at_s + answer_s, one.conversation});
    out.push_back(one);
  }
  return out;
}

PrefixResult replay_prefixes(const std::vector<ConversationCall>& calls,
                             PrefixPolicy policy,
                             const PrefixOptions& options) {
  Router router({.concurrency = 0,
                 .balance = policy == PrefixPolicy::prefix ? EndpointBalance::prefix
                                                           : EndpointBalance::automatic});
  std::vector<Engine> engines;
  for (std::uint32_t i = 0; i < options.replicas; ++i) {
    engines.push_back({Cache(options.cache_tokens / block_tokens)});
    router.set_phase(i + 1, Phase::ready, steady(0));
  }
  std::mt19937_64 random(options.seed);
  std::priority_queue<Ending, std::vector<Ending>, std::greater<>> endings;
  std::vector<double> first_tokens;
  std::uint64_t tokens = 0, hits = 0, continued = 0, number = 0;
  for (const ConversationCall& one : calls) {
    const TraceCall& call = one.call;
    for (; !endings.empty() && endings.top().at_s <= call.at_s; endings.pop())
      router.finished(endings.top().replica, steady(endings.top().at_s));
    const std::vector<std::uint64_t> blocks = blocks_of(one, call.context_tokens);
    Wish wish;
    if (policy == PrefixPolicy::prefix)
      wish.prefix.assign(blocks.begin(),
                         blocks.begin() + std::min(blocks.size(), prefix_blocks_max));
    ReplicaKey to = 0;
    if (policy == PrefixPolicy::random)
      to = 1 + random() % options.replicas;
    else
      to = router.arrive(++number, steady(call.at_s), steady(call.at_s + 1e6), 0, std::move(wish))
               .replica;
    Engine& engine = engines[to - 1];
    const std::uint64_t held = engine.cache.held(blocks) * block_tokens;
    const double begins_s = std::max(call.at_s, engine.prefill_free_s);
    engine.prefill_free_s =
        begins_s + static_cast<double>(call.context_tokens - held) / options.prefill_tokens_s;
    const double first_s = engine.prefill_free_s + options.step_ms / 1000;
    first_tokens.push_back(first_s - call.at_s);
    engine.cache.keep(blocks_of(one, call.context_tokens + call.generated_tokens));
    ++engine.requests;
    tokens += call.context_tokens;
    hits += held;
    continued += one.continues ? 1 : 0;
    if (policy != PrefixPolicy::random)
      endings.push({first_s + call.generated_tokens * options.step_ms / 1000, to});
  }
  PrefixResult out{.requests = calls.size(), .continued = continued};
  if (calls.empty())
    return out;
  const double n = static_cast<double>(calls.size());
  out.hit_pct = tokens == 0 ? 0 : 100 * static_cast<double>(hits) / static_cast<double>(tokens);
  out.first_token_mean_s = std::accumulate(first_tokens.begin(), first_tokens.end(), 0.0) / n;
  std::sort(first_tokens.begin(), first_tokens.end());
  out.first_token_p95_s = first_tokens[static_cast<std::size_t>(0.95 * (n - 1))];
  std::uint64_t most = 0;
  for (const Engine& engine : engines)
    most = std::max(most, engine.requests);
  out.load_max_over_mean = static_cast<double>(most) * options.replicas / n;
  return out;
}

}  // namespace billow::gateway
