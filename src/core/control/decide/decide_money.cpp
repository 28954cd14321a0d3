// Decisions about prices, idleness, metering, and records that people keep beside the books.
#include "core/control/decide/decider.h"

#include <fmt/format.h>

#include "base/limits.h"
#include "base/text.h"
#include "core/control/decide/notices.h"
#include "core/control/money.h"

namespace billow::control {

Decision Decider::operator()(const SetPrice& c) {
  const auto colon = c.rule.of.find(':');
  const std::string kind = c.rule.of.substr(0, colon);
  if (colon == std::string::npos || colon + 1 == c.rule.of.size() ||
      (kind != "gpu" && kind != "pool" && kind != "node"))
    return fail(Code::invalid, fmt::format("\"{}\" cannot have a price", c.rule.of),
                "use gpu:TYPE, pool:NAME or node:NAME");
  if (!c.rule.cost && !c.rule.charge && c.rule.storage_gib_month.value == 0 &&
      c.rule.egress_gib.value == 0)
    return fail(Code::invalid, "no price was given",
                "for example: billow price set H100 --cost 2.10 --charge 2.50");
  for (const auto& rate : {c.rule.cost, c.rule.charge, c.rule.charge_spot})
    if (rate && rate->nano_usd_per_s <= 0)
      return fail(Code::invalid, "a price must be above zero",
                  "remove a price with `billow price rm`");
  if (c.rule.storage_gib_month.value < 0 || c.rule.egress_gib.value < 0)
    return fail(Code::invalid, "a price must not be negative");
  const std::optional<Rate> base = c.rule.charge ? c.rule.charge : c.rule.cost;
  if (c.rule.charge_spot && base && *c.rule.charge_spot >= *base)
    return fail(Code::invalid, fmt::format("the spot price {} is not below {}",
                                           format_rate_per_hour(*c.rule.charge_spot),
                                           format_rate_per_hour(*base)));
  return Events{PriceSet{c.rule}};
}
Decision Decider::operator()(const RemovePrice& c) {
  if (!state.money.prices.contains(c.of))
    return fail(Code::not_found, fmt::format("{} has no price", c.of), "see `billow price list`");
  return Events{PriceRemoved{c.of}};
}

Decision Decider::operator()(const MeterMarks& c) {
  MeterMarked marked{c.node, {}};
  for (const TaskMark& mark : c.marks) {
    const Task* task = state.find_task(mark.task);
    if (task && task->node == c.node && task->state != TaskState::ended &&
        mark.meter.active.ns >= 0 && mark.meter.energy_mj >= 0) {
      marked.marks.push_back(mark);
      settle_meter(state, *task, marked.marks.back().meter, context.billed);
    }
  }
  if (marked.marks.empty())
    return Events{};
  return Events{std::move(marked)};
}

Decision Decider::operator()(const IdleReported& c) {
  const Task* task = state.find_task(c.task);
  if (!task || task->node != c.node || task->state == TaskState::ended ||
      state.jobs.at(task->job).stopping == StopCause::request)
    return Events{};
  const auto said = state.money.idling.find(c.task);
  if (c.action == IdleAction::recovered || c.action == IdleAction::none) {
    if (said == state.money.idling.end())
      return Events{};
  } else if (said != state.money.idling.end() && said->second.action == c.action &&
             said->second.state == c.state) {
    return Events{};  // already known; only the duration in the text has grown
  }
  return Events{IdleWarned{c.task, task->job, c.state, c.action,
                           std::string(utf8_prefix(c.text, limits::words_bytes_max))}};
}

Decision Decider::operator()(const KeepAlive& c) {
  JobId id = c.job;
  if (c.task) {
    const Task* task = state.find_task(c.task);
    if (!task || task->node != c.node)
      return Events{};
    id = task->job;
  }
  const Job* job = state.find_job(id);
  if (!job)
    return fail(Code::not_found, fmt::format("job {} has ended, or does not exist", id.value),
                "see `billow ps -a`");
  if (c.lasts.ns <= 0 || c.lasts > hours(24 * 30))
    return fail(Code::invalid, "a job can be kept alive for 1 s to 30 d");
  const Duration most = state.money.policy_of(job->project).keepalive_max;
  return Events{KeptAlive{id, std::min(c.lasts, most),
                          std::string(utf8_prefix(c.reason, limits::reason_bytes_max)),
                          static_cast<bool>(c.task)}};
}

Decision Decider::operator()(const SetIdlePolicy& c) {
  ProjectId project;
  if (!c.project.empty()) {
    const Project* found = state.project_by_name(c.project);
    if (!found)
      return fail(Code::not_found, fmt::format("there is no project \"{}\"", c.project),
                  "see `billow project list`");
    project = found->id;
  }
  if (c.policy) {
    const IdlePolicy& p = *c.policy;
    for (const Duration d :
         {p.warn_after, p.suspend_after, p.stop_after, p.spin_leash, p.keepalive_max})
      if (d.ns < 0 || d > hours(24 * 365))
        return fail(Code::invalid, "an idle time must be between 0 and one year");
    if (p.suspend_after < p.warn_after || p.stop_after < p.suspend_after)
      return fail(Code::invalid, "the idle times must be in this order: warn, suspend, stop");
    if (p.suspend_after < minutes(2))
      return fail(Code::invalid, "an idle time must be at least two minutes");
  }
  return Events{IdlePolicySet{project, c.policy}};
}
Decision Decider::operator()(const SetIdleFloor& c) {
  for (const Duration d : {c.floor.suspend_by, c.floor.stop_by})
    if (d.ns < 0 || (d.ns > 0 && d < minutes(10)))
      return fail(
          Code::invalid,
          "the floor must be 0 (none) or at least ten minutes: idleness is not known sooner");
  return Events{IdleFloorSet{c.floor}};
}

Decision Decider::operator()(const AddWebhook& c) {
  if (!c.url.starts_with("https://") && !c.url.starts_with("http://"))
    return fail(Code::invalid, fmt::format("\"{}\" is not a URL", c.url),
                "write https://… or http://…");
  if (c.url.find('@') != std::string::npos)
    return fail(Code::invalid, "a webhook URL must not contain a password",
                "receivers check the signature instead");
  for (const std::string& kind : c.kinds)
    if (kind != "budget" && kind != "idle" && kind != "job" && kind != "node" && kind != "review")
      return fail(Code::invalid, fmt::format("unknown kind of notice \"{}\"", kind),
                  "use budget, idle, job, node or review");
  if (state.money.webhooks.size() >= limits::webhooks_max)
    return fail(Code::exhausted, fmt::format("{} webhooks exist already, which is the limit",
                                             state.money.webhooks.size()));
  return Events{WebhookAdded{{state.money.next_webhook, c.url, c.kinds, state.seq, c.by}}};
}
Decision Decider::operator()(const RemoveWebhook& c) {
  if (!state.money.webhooks.contains(c.webhook))
    return fail(Code::not_found, fmt::format("no webhook has the number {}", c.webhook),
                "see `billow webhook list`");
  Events events;
  remove_webhook(state, c.webhook, events);
  return events;
}
Decision Decider::operator()(const DeliveredWebhook& c) {
  const auto found = state.money.webhooks.find(c.webhook);
  if (found == state.money.webhooks.end() || found->second.delivered >= c.through)
    return Events{};
  return Events{WebhookDelivered{c.webhook, c.through}};
}

Decision Decider::operator()(const SetCommitment& c) {
  BILLOW_TRY_VOID(check_name("commitment", c.commitment.name));
  if (c.commitment.gpus <= 0 || c.commitment.gpu.empty())
    return fail(Code::invalid, "a commitment needs a GPU type and at least one GPU");
  if (c.commitment.rate.nano_usd_per_s <= 0)
    return fail(Code::invalid, "a commitment's price must be above zero");
  if (c.commitment.to_day <= c.commitment.from_day)
    return fail(Code::invalid, "a commitment must end after it begins");
  return Events{CommitmentSet{c.commitment}};
}
Decision Decider::operator()(const RemoveCommitment& c) {
  if (!state.money.commitments.contains(c.name))
    return fail(Code::not_found, fmt::format("there is no commitment \"{}\"", c.name),
                "see `billow commitment list`");
  return Events{CommitmentRemoved{c.name}};
}
Decision Decider::operator()(const TagProject& c) {
  const Project* project = state.project_by_name(c.project);
  if (!project)
    return fail(Code::not_found, fmt::format("there is no project \"{}\"", c.project),
                "see `billow project list`");
  BILLOW_TRY_VOID(check_name("tag", c.key));
  if (c.value.size() > 256 || !valid_utf8(c.value))
    return fail(Code::invalid, "a tag's value must be text of at most 256 bytes");
  return Events{ProjectTagged{project->id, c.key, c.value}};
}
Decision Decider::operator()(const CloseMonth& c) {
  if (state.money.months_closed.contains(c.month))
    return fail(Code::conflict, fmt::format("{} is already closed", c.month));
  return Events{MonthClosed{c.month, c.cost, c.charge}};
}
Decision Decider::operator()(const RecordBill& c) {
  return Events{c.bill};
}

}  // namespace billow::control
