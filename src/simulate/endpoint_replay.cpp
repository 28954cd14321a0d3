// The replay itself: a queue of timed events over a Router, with one of three ways to scale.
#include "simulate/endpoint_replay.h"

#include <algorithm>
#include <cmath>
#include <queue>

#include <fmt/format.h>

#include "base/file.h"
#include "base/formats/csv.h"
#include "base/formats/utc.h"
#include "base/json.h"
#include "base/text.h"
#include "core/model/objective.h"
#include "gateway/pure/daily_pattern.h"
#include "simulate/knative.h"

namespace billow::gateway {
namespace {

SteadyTime at_time(double s) {
  return {static_cast<std::int64_t>(std::llround(s * 1e9)) + 1};
}

// "2023-11-16 18:17:03.9799600" as seconds; the day counts, because a trace may cross midnight.
Result<double> seconds_of(std::string_view text, std::size_t line) {
  const auto at = parse_utc(text);
  if (!at)
    return pass(at.error(), fmt::format("line {}", line));
  return static_cast<double>(at->ns) / 1e9;
}

enum class What { arrive, done, ready, asleep, ended, tick, sample };
struct Timed {
  double at = 0;
  std::uint64_t order = 0;
  What what = What::tick;
  std::uint64_t id = 0;  // of the request or the replica
  bool operator>(const Timed& o) const { return at != o.at ? at > o.at : order > o.order; }
};

class World {
 public:
  World(const std::vector<TraceCall>& trace, const ReplayOptions& options)
      : trace_(trace),
        options_(options),
        router_({.concurrency = options.model.concurrency, .queue_max = SIZE_MAX}),
        scaler_(policy()),
        knative_(options.knative_utilization * options.model.concurrency) {}

  ReplayResult run() {
    // Existing replicas were started at some time: that cost is counted, except for the one that
    // every variant begins with.
    const std::uint32_t most =
        options_.scaling == Scaling::fixed ? options_.fixed_replicas : UINT32_MAX;
    const std::uint32_t existing = std::clamp(options_.existing, 1u, std::max(most, 1u));
    if (options_.count_from_s <= 0)
      result_.gpu_s += (existing - 1) * options_.model.start_s;
    for (std::uint32_t i = 0; i < existing; ++i) {
      const ReplicaKey key = ++last_key_;
      const bool sleeps = options_.scaling == Scaling::billow && i > 0;
      router_.set_phase(key, sleeps ? Phase::suspended : Phase::ready, at_time(0));
      if (!sleeps)
        hold(key);
    }
    if (options_.scaling == Scaling::fixed)
      for (std::uint32_t i = existing; i < options_.fixed_replicas; ++i)
        start(options_.model.start_s, at_time(0));
    for (std::size_t i = 0; i < trace_.size(); ++i)
      push(trace_[i].at_s, What::arrive, i + 1);
    left_ = trace_.size();
    calls_.resize(trace_.size() + 1);
    push(0, What::tick, 0);
    if (options_.scaling == Scaling::knative)
      push(0.5, What::sample, 0);
    while (!events_.empty() && left_ > 0) {
      const Timed e = events_.top();
      events_.pop();
      now_ = e.at;
      handle(e);
    }
    for (const auto& [key, since] : holds_)
      count_gpu(since);
    std::sort(first_token_.begin(), first_token_.end());
    const auto at = [&](double q) {
      return first_token_.empty() ? 0
                                  : first_token_[static_cast<std::size_t>(
                                        q * static_cast<double>(first_token_.size() - 1))];
    };
    result_.requests = first_token_.size();
    result_.first_token_p50_s = at(0.5);
    result_.first_token_p99_s = at(0.99);
    result_.replicas_peak = peak_;
    return result_;
  }

 private:
  ScalePolicy policy() const {
    ScalePolicy p;
    p.max = options_.replicas_max;
    p.concurrency = options_.model.concurrency;
    p.wait_target = wait_target_of(
        milliseconds(static_cast<std::int64_t>(options_.model.slo_first_token_s * 1000)));
    p.keep_suspended = options_.keep_suspended;
    return p;
  }
  void push(double at, What what, std::uint64_t id) { events_.push({at, ++order_, what, id}); }

  void handle(const Timed& e) {
    const SteadyTime now = at_time(now_);
    switch (e.what) {
      case What::arrive: {
        scaler_.arrived(now);
        const auto answer = router_.arrive(e.id, now, at_time(now_ + 3600));
        if (answer.verdict == Router::Verdict::go)
          begin(e.id, answer.replica);
        break;
      }
      case What::done: {
        const auto& call = calls_[e.id];
        router_.finished(call.replica, now);
        scaler_.served(nanoseconds(static_cast<std::int64_t>((now_ - call.began) * 1e9)), now);
        --left_;
        break;
      }
      case What::ready: {
        if (const auto since = holds_.find(e.id); since != holds_.end()) {
          const Replica* r = router_.find(e.id);
          const Duration took =
              nanoseconds(static_cast<std::int64_t>((now_ - since->second) * 1e9));
          if (r && r->phase == Phase::resuming)
            scaler_.woke(took);
          else
            scaler_.came_up(took);
        }
        router_.set_phase(e.id, Phase::ready, now);
        break;
      }
      case What::asleep:
        // A replica called back while falling asleep finishes that first and wakes again.
        if (const Replica* r = router_.find(e.id); r && r->phase == Phase::resuming) {
          release(e.id);
          hold(e.id);
          push(now_ + options_.model.wake_s, What::ready, e.id);
          break;
        }
        release(e.id);
        router_.set_phase(e.id, Phase::suspended, now);
        break;
      case What::ended:
        release(e.id);
        router_.remove(e.id);
        break;
      case What::sample:
        knative_.sample(
            now_, static_cast<double>(router_.in_flight()) + static_cast<double>(router_.held()));
        push(now_ + 1, What::sample, 0);
        return;
      case What::tick:
        push(now_ + (options_.scaling == Scaling::knative ? 2.0 : 0.1), What::tick, 0);
        if (options_.scaling == Scaling::knative)
          knative_tick(now);
        break;
    }
    for (const auto& each : router_.dispatch(now))
      begin(each.request, each.replica);
    if (options_.scaling == Scaling::billow)
      billow_tick(now);
    if (options_.scaling == Scaling::knative)
      end_drained(now);
  }

  void begin(RequestId id, ReplicaKey replica) {
    const TraceCall& call = trace_[id - 1];
    const ServiceModel& m = options_.model;
    const double neighbours = router_.find(replica)->in_flight - 1;
    const double prefill = call.context_tokens / m.prefill_tokens_s;
    const double step = (m.step_ms + m.step_ms_per_neighbour * neighbours) / 1000;
    calls_[id] = {replica, now_};
    const double first = now_ + prefill + step - call.at_s;
    if (call.at_s >= options_.count_from_s) {
      first_token_.push_back(first);
      if (first <= m.slo_first_token_s)
        ++result_.in_time;
    }
    push(now_ + prefill + step * std::max<std::uint32_t>(call.generated_tokens, 1), What::done, id);
  }

  void hold(ReplicaKey key) {
    holds_[key] = now_;
    peak_ = std::max<std::uint32_t>(peak_, static_cast<std::uint32_t>(holds_.size()));
  }
  void release(ReplicaKey key) {
    const auto found = holds_.find(key);
    if (found == holds_.end())
      return;
    count_gpu(found->second);
    holds_.erase(found);
  }
  void count_gpu(double since) {
    result_.gpu_s += std::max(now_, options_.count_from_s) - std::max(since, options_.count_from_s);
  }

  void billow_tick(SteadyTime now) {
    ScaleCaps caps;
    if (options_.predict)
      caps.awake_min = awake_by_pattern(pattern_, router_, scaler_, {at_time(now_).ns});
    for (const ScaleAction& action : scaler_.decide(router_, caps, now)) {
      switch (action.kind) {
        case ScaleAction::Kind::start:
          start(options_.model.start_s, now);
          break;
        case ScaleAction::Kind::resume:
          ++result_.wakes;
          if (router_.find(action.replica)->phase == Phase::falling) {
            router_.set_phase(action.replica, Phase::resuming, now);
            break;
          }
          router_.set_phase(action.replica, Phase::resuming, now);
          hold(action.replica);
          push(now_ + options_.model.wake_s, What::ready, action.replica);
          break;
        case ScaleAction::Kind::suspend:
          router_.set_phase(action.replica, Phase::falling, now);
          push(now_ + options_.model.sleep_s, What::asleep, action.replica);
          break;
        case ScaleAction::Kind::stop:
          router_.set_phase(action.replica, Phase::leaving, now);
          push(now_, What::ended, action.replica);
          break;
      }
    }
  }
  void start(double takes_s, SteadyTime now) {
    const ReplicaKey key = ++last_key_;
    router_.set_phase(key, Phase::starting, now);
    hold(key);
    ++result_.cold_starts;
    push(now_ + takes_s, What::ready, key);
  }

  void knative_tick(SteadyTime now) {
    std::uint32_t ready = 0, all = 0;
    std::vector<const Replica*> idle_first;
    for (const auto& [key, r] : router_.replicas()) {
      if (r.phase == Phase::leaving)
        continue;
      ++all;
      if (r.phase == Phase::ready) {
        ++ready;
        idle_first.push_back(&r);
      }
    }
    const std::uint32_t want = std::min(knative_.decide(now_, ready), options_.replicas_max);
    for (; all < want; ++all)
      start(options_.knative_start_s, now);
    // Kubernetes would choose among them by age and chance; the least busy is the most favourable
    // choice for it.
    std::sort(idle_first.begin(), idle_first.end(),
              [](const Replica* a, const Replica* b) { return a->in_flight < b->in_flight; });
    for (const Replica* r : idle_first) {
      if (all <= want)
        break;
      router_.set_phase(r->key, Phase::leaving, now);
      --all;
    }
  }
  void end_drained(SteadyTime) {
    std::vector<ReplicaKey> done;
    for (const auto& [key, r] : router_.replicas())
      if (r.phase == Phase::leaving && Router::releasable(r))
        done.push_back(key);
    for (ReplicaKey key : done) {
      release(key);
      router_.remove(key);
    }
  }

  struct Running {
    ReplicaKey replica = 0;
    double began = 0;
  };
  const std::vector<TraceCall>& trace_;
  const ReplayOptions& options_;
  Router router_;
  Autoscaler scaler_;
  DailyPattern pattern_;
  KnativeScaler knative_;
  std::priority_queue<Timed, std::vector<Timed>, std::greater<>> events_;
  std::uint64_t order_ = 0;
  double now_ = 0;
  ReplicaKey last_key_ = 0;
  std::map<ReplicaKey, double> holds_;  // replicas that hold a GPU, since when
  std::vector<Running> calls_;
  std::vector<double> first_token_;
  std::size_t left_ = 0;
  std::uint32_t peak_ = 0;
  ReplayResult result_;
};

constexpr std::int64_t trace_tokens_max = 10'000'000;

Result<std::uint32_t> tokens_of(const std::string& cell, std::size_t line) {
  const auto tokens = parse_int(cell, 0, trace_tokens_max);
  if (!tokens)
    return pass(tokens.error(), fmt::format("line {}", line));
  return static_cast<std::uint32_t>(*tokens);
}

Result<TraceCall> call_of_row(const std::vector<std::string>& cells, std::size_t line) {
  if (cells.size() != 3)
    return fail(Code::invalid, fmt::format("line {} has {} columns, not 3", line, cells.size()),
                "expected TIMESTAMP,ContextTokens,GeneratedTokens");
  return TraceCall{.at_s = BILLOW_TRY(seconds_of(cells[0], line)),
                   .context_tokens = BILLOW_TRY(tokens_of(cells[1], line)),
                   .generated_tokens = BILLOW_TRY(tokens_of(cells[2], line))};
}

Result<TraceCall> call_of_object(std::string_view row, std::size_t line) {
  const auto object = parse_json(row);
  const std::int64_t at_ms = object ? (*object)["timestamp"].int_or(-1) : -1;
  const std::int64_t input = object ? (*object)["input_length"].int_or(-1) : -1;
  const std::int64_t output = object ? (*object)["output_length"].int_or(-1) : -1;
  if (at_ms < 0 || input < 0 || output < 0 || input > trace_tokens_max || output > trace_tokens_max)
    return fail(Code::invalid, fmt::format("line {} is not a request", line),
                "expected {\"timestamp\": MS, \"input_length\": N, \"output_length\": N, "
                "\"hash_ids\": […]}");
  TraceCall call{.at_s = static_cast<double>(at_ms) / 1000,
                 .context_tokens = static_cast<std::uint32_t>(input),
                 .generated_tokens = static_cast<std::uint32_t>(output)};
  for (const Json& id : (*object)["hash_ids"].items())
    call.blocks.push_back(static_cast<std::uint64_t>(id.int_or(0)));
  return call;
}

// The requests of a trace, in the order of their lines; times count from the first.
class TraceCalls {
 public:
  Status add(TraceCall call, std::size_t line) {
    if (calls_.empty())
      first_ = call.at_s;
    call.at_s -= first_;
    if (!calls_.empty() && call.at_s < calls_.back().at_s)
      return fail(Code::invalid, fmt::format("line {} is earlier than the line before", line),
                  "sort the trace by time");
    calls_.push_back(std::move(call));
    return {};
  }
  Result<std::vector<TraceCall>> take() {
    if (calls_.empty())
      return fail(Code::invalid, "the trace has no requests");
    return std::move(calls_);
  }

 private:
  std::vector<TraceCall> calls_;
  double first_ = 0;
};

// One JSON object per line.
Result<std::vector<TraceCall>> calls_of_objects(std::string_view rest) {
  TraceCalls calls;
  for (std::size_t line = 1; !rest.empty(); ++line) {
    const auto end = std::min(rest.find('\n'), rest.size());
    if (const std::string_view row = trim(rest.substr(0, end)); !row.empty())
      BILLOW_TRY_VOID(calls.add(BILLOW_TRY(call_of_object(row, line)), line));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return calls.take();
}

Result<std::vector<TraceCall>> calls_of_csv(std::string_view text) {
  TraceCalls calls;
  CsvReader reader(text, {.trimmed = true});
  std::vector<std::string> row;
  while (BILLOW_TRY(reader.next(row)))
    if (reader.line() > 1 || row[0] != "TIMESTAMP")
      BILLOW_TRY_VOID(calls.add(BILLOW_TRY(call_of_row(row, reader.line())), reader.line()));
  return calls.take();
}

}  // namespace

Result<std::vector<TraceCall>> read_llm_trace(const std::string& path) {
  const std::string text = BILLOW_TRY(read_file(path, std::size_t{1} << 30));
  auto calls = trim(text).starts_with('{') ? calls_of_objects(text) : calls_of_csv(text);
  if (!calls)
    return pass(calls.error(), path);
  return calls;
}

std::vector<TraceCall> repeated(const std::vector<TraceCall>& trace, std::uint32_t days) {
  std::vector<TraceCall> out;
  for (std::uint32_t day = 0; day < days; ++day)
    for (TraceCall call : trace) {
      call.at_s += day * 86'400.0;
      out.push_back(call);
    }
  return out;
}

ReplayResult replay(const std::vector<TraceCall>& trace, const ReplayOptions& options) {
  return World(trace, options).run();
}

}  // namespace billow::gateway
