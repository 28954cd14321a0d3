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

constexpr std::uint32_t block_tokens = 64;  // a block of an engine's cache
constexpr std::uint32_t token_bytes = 4;    // of text, about
static_assert(block_tokens * token_bytes == prefix_block_bytes);

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

// An answer's first token, or its end.
struct Moment {
  double at_s = 0;
  RequestId request = 0;
  ReplicaKey replica = 0;
  bool end = false;
  std::uint64_t tokens = 0, cached = 0;  // of the prompt
  bool operator>(const Moment& o) const { return at_s > o.at_s; }
};

SteadyTime steady(double s) {
  return {static_cast<std::int64_t>((s + 1) * 1e9)};
}

// As the gateway would cut its text.
Prompt prompt_of(const std::vector<std::uint64_t>& blocks, std::uint64_t tokens) {
  Prompt prompt{.bytes = tokens * token_bytes};
  for (std::size_t i = 1; i <= prefix_blocks_max; ++i) {
    const std::uint64_t end = prefix_bytes_of(i) / prefix_block_bytes;
    if (end > blocks.size())
      break;
    prompt.blocks.push_back(blocks[end - 1]);
  }
  return prompt;
}

void tell(Router& router, const Moment& moment, bool cached_reported) {
  if (!moment.end)
    return router.prompts().read(moment.request, true, steady(moment.at_s));
  if (cached_reported)
    router.prompts().reported(moment.request, moment.tokens, moment.cached);
  router.finished(moment.replica, steady(moment.at_s), moment.request);
}

double quantile(const std::vector<double>& sorted, double q) {
  return sorted[static_cast<std::size_t>(q * static_cast<double>(sorted.size() - 1))];
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
  std::priority_queue<Moment, std::vector<Moment>, std::greater<>> moments;
  std::vector<double> first_tokens;
  std::uint64_t tokens = 0, hits = 0, continued = 0, number = 0;
  for (const ConversationCall& one : calls) {
    const TraceCall& call = one.call;
    const double at_s = call.at_s / options.speed;
    for (; !moments.empty() && moments.top().at_s <= at_s; moments.pop())
      tell(router, moments.top(), options.cached_reported);
    const std::vector<std::uint64_t> blocks = blocks_of(one, call.context_tokens);
    Wish wish;
    if (policy == PrefixPolicy::prefix)
      wish.prompt = prompt_of(blocks, call.context_tokens);
    ReplicaKey to = 0;
    if (policy == PrefixPolicy::random)
      to = 1 + random() % options.replicas;
    else
      to = router.arrive(++number, steady(at_s), steady(at_s + 1e6), 0, std::move(wish)).replica;
    Engine& engine = engines[to - 1];
    const std::uint64_t held = engine.cache.held(blocks) * block_tokens;
    const double begins_s = std::max(at_s, engine.prefill_free_s);
    engine.prefill_free_s =
        begins_s + static_cast<double>(call.context_tokens - held) / options.prefill_tokens_s;
    const double first_s = engine.prefill_free_s + options.step_ms / 1000;
    first_tokens.push_back(first_s - at_s);
    engine.cache.keep(blocks_of(one, call.context_tokens + call.generated_tokens));
    ++engine.requests;
    tokens += call.context_tokens;
    hits += held;
    continued += one.continues ? 1 : 0;
    if (policy == PrefixPolicy::random)
      continue;
    moments.push({.at_s = first_s, .request = number});
    moments.push({.at_s = first_s + call.generated_tokens * options.step_ms / 1000,
                  .request = number,
                  .replica = to,
                  .end = true,
                  .tokens = call.context_tokens,
                  .cached = held});
  }
  PrefixResult out{.requests = calls.size(), .continued = continued};
  if (calls.empty())
    return out;
  const double n = static_cast<double>(calls.size());
  out.hit_pct = tokens == 0 ? 0 : 100 * static_cast<double>(hits) / static_cast<double>(tokens);
  out.first_token_mean_s = std::accumulate(first_tokens.begin(), first_tokens.end(), 0.0) / n;
  std::sort(first_tokens.begin(), first_tokens.end());
  out.first_token_p50_s = quantile(first_tokens, 0.5);
  out.first_token_p95_s = quantile(first_tokens, 0.95);
  out.first_token_p99_s = quantile(first_tokens, 0.99);
  std::uint64_t most = 0;
  for (const Engine& engine : engines)
    most = std::max(most, engine.requests);
  out.load_max_over_mean = static_cast<double>(most) * options.replicas / n;
  return out;
}

}  // namespace billow::gateway
