#include "view/waiting.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "base/text.h"
#include "core/control/core.h"
#include "core/control/decide/decider.h"
#include "core/control/fabric.h"
#include "core/control/money.h"
#include "core/control/renting/paid_starts.h"
#include "core/sched/outlook.h"
#include "core/sched/words.h"
#include "view/holders.h"
#include "view/job_document.h"
#include "view/json_parts.h"

namespace billow::view {
namespace {

constexpr Duration away_shown_after = seconds(5);
constexpr const char* about_to_order = "A machine is about to be ordered for it.";

// Whether the job waits, or is suspended, inside a reservation that has ended.
bool reservation_ended(const control::State& state, const Job& job) {
  return job.spec->reservation && !job.left_reservation && !control::reservation_of(state, job) &&
         job.state != JobState::running && job.stopping == StopCause::none;
}

sched::Explanation explain_ended_reservation(const control::State& state,
                                             const Job& job,
                                             bool for_array) {
  if (!for_array)
    return sched::reservation_over(job.id, job.spec->reservation);
  std::size_t elements = 0;
  for (auto at = state.jobs.lower_bound(JobId(job.array.value + 1));
       at != state.jobs.end() && at->second.array == job.array; ++at)
    elements += reservation_ended(state, at->second);
  return sched::reservation_over(job.array, job.spec->reservation, elements);
}

// The answer as it is put together.
struct Answer {
  Json reasons = Json::array();
  Json earliest;
  Json latest;  // by when it starts even if a more urgent job comes
  Json would_start_now;
  Json start_unknown;

  void because(const char* kind, std::string text) {
    reasons.push(Json::object({{"kind", kind}, {"text", std::move(text)}}));
  }
  void because(const sched::Explanation& explanation) {
    for (const auto& r : explanation.reasons) {
      Json reason = Json::object({{"kind", sched::reason_name(r.kind)}, {"text", r.text}});
      if (r.behind)
        reason.set("behind", r.behind.value);
      reasons.push(std::move(reason));
    }
  }
};

// A start that the budgets will not pay for is not promised: the reason says so instead.
void expect_start(Answer& answer,
                  const control::State& state,
                  const Job& job,
                  const Moment& at,
                  WallTime by_plan,
                  bool waits_for_pool) {
  static const ledger::PriceBook market = ledger::PriceBook::market();
  std::optional<control::PaidStarts> paid;
  if (!state.money.budgets.empty() || job.agent)
    paid.emplace(state, control::Context{at.now, at.billed, &market});
  const sched::Admission* admission = paid ? &*paid : nullptr;
  const sched::Outlook expected = sched::outlook(state.index, job.id, at.now, admission);
  if (expected.refused) {
    const Duration until = expected.refused_at - at.now;
    answer.because("budget", fmt::format("When GPUs are free for it{}, it cannot start: {}.",
                                         until >= minutes(1)
                                             ? fmt::format(" (in about {})", format_duration(until))
                                             : std::string(),
                                         expected.refused->message));
    answer.would_start_now = expected.refused->hint.empty() ? Json() : Json(expected.refused->hint);
  }
  if (expected.start) {
    answer.earliest = time_or_null(expected.start);
    answer.latest = time_or_null(sched::latest_start(state.index, job.id, at.now, admission));
  } else if (expected.refused) {
    answer.start_unknown = "a budget does not pay for it";
  } else if (!paid && by_plan) {
    answer.earliest = time_or_null(by_plan);
  } else if (waits_for_pool) {
    answer.start_unknown = "it needs a machine of a pool";
  } else if (std::string cause = sched::start_unknown(state.index, job.id, at.now);
             !cause.empty()) {
    answer.start_unknown = std::move(cause);
  }
}

// Whether the reason is only that no node of now can run the job.
bool lacks_node(const control::State& state, const sched::Reason& reason) {
  return reason.kind == sched::ReasonKind::infeasible ||
         (state.nodes.empty() && reason.kind == sched::ReasonKind::no_capacity);
}

void explain_queue(Answer& answer, const control::State& state, const Job& job, const Moment& at) {
  if (job.state == JobState::suspended && !job.reason.empty())
    answer.because("held", job.reason);
  auto explanation = sched::explain(state.index, job.id, at.now);
  // That no present node can run it is no reason where a pool brings one that can.
  const bool waits_for_pool =
      control::some_pool_could_run(state, job) &&
      std::erase_if(explanation.reasons, [&](const auto& r) { return lacks_node(state, r); }) > 0;
  if (waits_for_pool)
    explanation.would_start_now.clear();
  answer.because(explanation);
  if (!explanation.would_start_now.empty())
    answer.would_start_now = explanation.would_start_now;
  expect_start(answer, state, job, at, explanation.earliest_start, waits_for_pool);
  const auto notes = control::pool_notes(state, job, at.now);
  for (const std::string& note : notes)
    answer.because("pool", note);
  // "Wait for a pool" is no advice where the pools say why they rent nothing.
  if (state.nodes.empty() && !notes.empty())
    answer.would_start_now = Json();
  if (answer.reasons.items().empty())
    answer.because("pool", about_to_order);
}

// Why a job waits that only nodes of a pool can run. Empty: no pool has anything to do with it.
std::string pool_reason(const control::State& state, const Job& job, WallTime now) {
  const auto notes = control::pool_notes(state, job, now);
  if (!notes.empty())
    return notes.front();
  return control::some_pool_could_run(state, job) ? about_to_order : "";
}

// Whether the reason is that others have the GPUs.
bool waits_for_others(const Json& reason) {
  const auto kind = reason["kind"].str_or("");
  return kind == "no_room" || kind == "fragmentation" || kind == "topology" ||
         kind == "waiting_behind" || kind == "preempting";
}

Json expectation_document(const Expectation& x) {
  if (x.runs == 0)
    return {};
  return Json::object(
      {{"likely_s", x.likely.seconds()},
       {"at_most_s", x.at_most.seconds()},
       {"runs", x.runs},
       {"confidence", control::confidence(x)},
       {"text", fmt::format("expected to run for about {}, at most {} ({} confidence, from {} "
                            "earlier run{})",
                            format_duration(x.likely), format_duration(x.at_most),
                            control::confidence(x), x.runs, x.runs == 1 ? "" : "s")}});
}

}  // namespace

bool waits(const Job& job) {
  return job.state == JobState::queued ||
         (job.state == JobState::suspended && job.suspension.resume_wanted);
}

std::string waiting_reason(const control::State& state, const Job& job, WallTime now) {
  if (std::string named = dependencies_text(state, job); !named.empty())
    return named;
  if (!waits(job) || !job.reason.empty())
    return job.reason;
  if (state.nodes.empty()) {
    const std::string ordered = pool_reason(state, job, now);
    return ordered.empty() ? "no node has joined yet" : ordered;
  }
  const auto explanation = sched::explain(state.index, job.id, now, sched::Advice::none);
  if (explanation.reasons.empty())
    return {};
  const sched::Reason& first = explanation.reasons.front();
  if (first.kind == sched::ReasonKind::infeasible || first.by_guarantee)
    if (std::string ordered = pool_reason(state, job, now); !ordered.empty())
      return ordered;
  std::string reason = explanation.reasons.front().text;
  // A job behind someone else's reservation can usually start at once if it has a time limit.
  // Finding that out makes a plan for each proposal: too expensive behind a long queue.
  constexpr std::size_t advice_queue_max = 200;
  if (explanation.reasons.front().kind == sched::ReasonKind::reserved &&
      state.index.queued_count() <= advice_queue_max)
    if (const std::string cure = sched::explain(state.index, job.id, now).would_start_now;
        !cure.empty())
      reason += " " + cure + ".";
  return reason;
}

void add_waiting_reason(Json& document, const control::State& state, const Job& job, WallTime now) {
  if (std::string reason = waiting_reason(state, job, now); !reason.empty())
    document.set("reason", std::move(reason));
}

Duration away_for(const Node& node, WallTime billed) {
  const Duration away = billed - node.unreachable_since;
  return node.reachable || away < away_shown_after ? Duration{} : away;
}

std::string away_note(const control::State& state, const Job& job, WallTime billed) {
  if (job.state != JobState::running && job.state != JobState::suspended)
    return {};
  std::string text;
  std::set<std::string> remedies;
  std::set<NodeId> named;
  for (const TaskId id : job.tasks) {
    const Task* task = state.find_task(id);
    const auto node =
        task && task->state != TaskState::ended ? state.nodes.find(task->node) : state.nodes.end();
    if (node == state.nodes.end() || !named.insert(node->first).second)
      continue;
    const Duration away = away_for(node->second, billed);
    if (away.ns == 0)
      continue;
    text += fmt::format("{}{} unreachable for {}", text.empty() ? "" : ", ",
                        node->second.offer.name, format_duration(seconds(away.ns / 1'000'000'000)));
    if (!control::silent_note(state, node->second).empty())
      remedies.insert(control::machine_of(state, node->second.offer.name)->name);
  }
  if (text.empty())
    return text;
  text += "; charged only if it kept running";
  for (const std::string& machine : remedies)
    text += fmt::format("; an admin can end its machine: billow machine release {}", machine);
  return text;
}

std::string larger_slice(const control::State& state, const Job& job) {
  const Resources& r = job.spec->resources;
  if (r.gpus == 0 || r.share.milli == 0 || r.share.milli >= whole_gpu_milli || r.share.mem_mib == 0)
    return {};
  std::string type;
  std::int64_t card_mib = 0;
  for (const auto& [id, node] : state.nodes)
    for (const NodeGpu& gpu : node.offer.gpus)
      if ((r.gpu_types.empty() || std::ranges::find(r.gpu_types, gpu.type) != r.gpu_types.end()) &&
          gpu.mem_mib > card_mib) {
        card_mib = gpu.mem_mib;
        type = gpu.type;
      }
  const std::int64_t milli = card_mib > 0 ? (r.share.mem_mib * 1000 + card_mib - 1) / card_mib : 0;
  if (milli <= r.share.milli)
    return {};
  return fmt::format(
      "{} GiB of memory is {:.3g} of a {}, so the job gets and is charged {:.3g} "
      "GPU, not {:.3g}",
      r.share.mem_mib / 1024, static_cast<double>(milli) / 1000, type,
      static_cast<double>(milli) / 1000, r.share.milli / 1000.0);
}

Json explain_document(const control::State& state,
                      const Job& job,
                      const Moment& at,
                      bool for_array) {
  Answer answer;
  if (std::string named = dependencies_text(state, job); !named.empty()) {
    answer.because("held", sched::sentence("it " + named));
    answer.earliest = time_or_null(job.not_before);
  } else if (reservation_ended(state, job)) {
    if (!job.reason.empty())
      answer.because("held", job.reason);
    const sched::Explanation over = explain_ended_reservation(state, job, for_array);
    answer.because(over);
    answer.would_start_now = over.would_start_now;
  } else if (waits(job)) {
    explain_queue(answer, state, job, at);
  } else if (!job.reason.empty()) {
    answer.because(job.state == JobState::running ? "running" : "held", job.reason);
    answer.earliest = time_or_null(job.not_before);
    if (const std::string cure = control::budget_cure(state, job, at.billed); !cure.empty())
      answer.would_start_now = cure;
  }
  for (const std::string& note : control::order_notes(state, job, at.now))
    answer.because("order", note);
  if (std::string away = away_note(state, job, at.billed); !away.empty())
    answer.because("node", std::move(away));
  for (const std::string& note : control::fabric_notes(state, job))
    answer.because("fabric", note);
  if (std::string note = control::fabric_unmeasured(state, job); !note.empty())
    answer.because("fabric", std::move(note));
  const bool queued = waits(job);
  const bool for_gpus = queued && std::ranges::any_of(answer.reasons.items(), waits_for_others);
  return Json::object({{"id", job.id.value},
                       {"state", enum_name(job.state)},
                       {"ahead", queued ? Json(jobs_ahead(state, job)) : Json()},
                       {"holders", for_gpus ? holders_document(state, job, at.now) : Json::array()},
                       {"reasons", std::move(answer.reasons)},
                       {"earliest_start", std::move(answer.earliest)},
                       {"latest_start", std::move(answer.latest)},
                       {"start_unknown", std::move(answer.start_unknown)},
                       {"would_start_now", std::move(answer.would_start_now)},
                       {"expected", expectation_document(job.expected)}});
}

}  // namespace billow::view
