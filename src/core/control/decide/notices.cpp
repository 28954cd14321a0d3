#include "core/control/decide/notices.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "base/relative_time.h"
#include "base/text.h"
#include "core/control/applier.h"
#include "core/control/decide/decider.h"
#include "core/control/decide/installation_secrets.h"
#include "core/control/decide/permissions.h"
#include "core/control/money.h"

namespace billow::control {
namespace {

constexpr std::size_t named_jobs_max = 5;  // in one notice

std::string named(const std::string& name, std::string_view kind, const std::string& number) {
  return name.empty() ? fmt::format("{} {}", kind, number)
                      : fmt::format("{} ({} {})", name, kind, number);
}

std::string label_of(const Job& job) {
  return job.array ? fmt::format("{}.{}", job.array.value, job.array_index)
                   : fmt::format("{}", job.id.value);
}

// Finds who is to be told of an event.
struct Notifying {
  const State& state;
  std::vector<EventBody>& events;

  void tell(const NoticeTarget& target,
            NoticeOn on,
            std::string title,
            std::string text,
            JobId job) const {
    events.push_back(NoticeQueued{.notice = {.target = target.id,
                                             .on = on,
                                             .title = std::move(title),
                                             .text = std::move(text),
                                             .job = job},
                                  .waiting = {}});
  }

  // `fails` is a part of `ends`: a target with both gets one notice.
  void tell_end(UserId user,
                bool failed,
                const std::string& title,
                const std::string& text,
                JobId job) const {
    for (const auto& [id, target] : state.notices.targets)
      if (target.user == user &&
          (target.wants(NoticeOn::ends) || (failed && target.wants(NoticeOn::fails))))
        tell(target, target.wants(NoticeOn::ends) ? NoticeOn::ends : NoticeOn::fails, title, text,
             job);
  }

  void operator()(const JobEnded& e) const {
    if (state.finished_jobs.empty() || state.finished_jobs.back().job.id != e.job)
      return;
    const Job& job = state.finished_jobs.back().job;
    if (job.spec->labels.contains(label_endpoint))
      return;
    if (!job.array) {
      const bool failed = e.state == JobState::failed || e.state == JobState::lost;
      std::string text = e.reason.empty() ? e.exit.text() : e.reason;
      if (job.started_at)
        text += fmt::format("; it ran for {} and cost {}",
                            rough_duration(job.ended_at - job.started_at), format_usd(job.cost));
      return tell_end(
          job.user, failed,
          fmt::format("{} {}", named(job.spec->name, "job", label_of(job)), enum_name(e.state)),
          text, job.id);
    }
    if (state.finished_arrays.empty() || state.finished_arrays.back().array.id != job.array)
      return;  // others of its elements are still here
    const ArrayState& array = state.finished_arrays.back().array;
    const JobState as = array.ended_as();
    tell_end(
        array.user, as == JobState::failed,
        fmt::format("{} {}", named(array.spec->name, "array", fmt::format("{}", array.id.value)),
                    enum_name(as)),
        fmt::format("{} of {} jobs succeeded; it cost {}", array.succeeded, array.count,
                    format_usd(array.cost)),
        array.id);
  }

  void tell_idle(JobId id, const std::string& what, const std::string& text) const {
    const Job* job = state.find_job(id);
    if (!job)
      return;
    for (const auto& [number, target] : state.notices.targets)
      if (target.user == job->user && target.wants(NoticeOn::idle))
        tell(target, NoticeOn::idle,
             fmt::format("{} {}", named(job->spec->name, "job", label_of(*job)), what), text, id);
  }
  void operator()(const IdleWarned& e) const {
    if (e.action == IdleAction::warn)
      tell_idle(e.job, e.state == IdleState::hung ? "looks hung" : "is idle", e.text);
  }
  void operator()(const IdleActed& e) const {
    tell_idle(e.job, e.action == IdleAction::suspend ? "was suspended: idle" : "was stopped: idle",
              e.text);
  }

  void operator()(const BudgetWarned& e) const {
    if (e.text.empty() || e.action == BudgetAction::none)
      return;
    const bool used_up = e.action == BudgetAction::suspend || e.action == BudgetAction::stop;
    for (const auto& [id, target] : state.notices.targets)
      if (target.wants(NoticeOn::budget) && (used_up || e.pct >= target.budget_pct) &&
          may_see_budget(state, target.user, e.budget))
        tell(target, NoticeOn::budget,
             used_up ? fmt::format("Budget of {} is used up", budget_name(state, e.budget))
                     : fmt::format("Budget of {} passed {} %", budget_name(state, e.budget), e.pct),
             e.text, {});
  }

  template <class Other>
  void operator()(const Other&) const {}
};

std::vector<NoticeOn> without_doubles(std::vector<NoticeOn> on) {
  std::sort(on.begin(), on.end());
  on.erase(std::unique(on.begin(), on.end()), on.end());
  return on;
}

Status check_choice(const NoticeTarget& target) {
  if (target.on.empty())
    return fail(Code::invalid, "choose at least one kind of notice",
                "use ends, fails, waits, idle or budget");
  if (target.wait < minutes(1) || target.wait > hours(24 * 30))
    return fail(Code::invalid, "the waiting time must be between one minute and 30 days");
  if (target.budget_pct != 50 && target.budget_pct != 80 && target.budget_pct != 100)
    return fail(Code::invalid, "a budget notice can be sent at 50, 80 or 100 percent");
  return {};
}

}  // namespace

void add_personal_notices(const State& state,
                          const EventBody& event,
                          std::vector<EventBody>& events) {
  if (!state.notices.targets.empty())
    visit(Notifying{state, events}, event);
}

void remove_target(const State& state, std::uint64_t target, std::vector<EventBody>& events) {
  events.push_back(NoticeTargetRemoved{target});
  if (state.secrets.contains({ProjectId{}, notice_secret(target)}))
    events.push_back(SecretRemoved{{}, notice_secret(target)});
}

void remove_webhook(const State& state, std::uint64_t webhook, std::vector<EventBody>& events) {
  events.push_back(WebhookRemoved{webhook});
  const std::string record = webhook_keys_record(webhook);
  if (state.secrets.contains({ProjectId{}, record}))
    events.push_back(SecretRemoved{{}, record});
}

bool may_see_budget(const State& state, UserId id, const BudgetKey& key) {
  const auto found = state.users.find(id);
  if (found == state.users.end())
    return false;
  const User& user = found->second;
  if (permissions_of(state, user).has(Permission::money_read))
    return true;
  const auto in_project = [&](ProjectId project) {
    return permissions_in(state, user, project).has(Permission::money_read);
  };
  switch (key.scope) {
    case BudgetScope::project:
      return in_project(ProjectId(key.of));
    case BudgetScope::user:
      return UserId(key.of) == id;
    case BudgetScope::token: {
      const auto token = state.tokens.find(TokenId(key.of));
      return token != state.tokens.end() && token->second.user == id;
    }
    case BudgetScope::job: {
      const Job* job = state.find_job(JobId(key.of));
      const auto array = state.arrays.find(JobId(key.of));
      return (job && in_project(job->project)) ||
             (array != state.arrays.end() && in_project(array->second.project));
    }
  }
  return false;
}

// ---- decisions

Decision Decider::operator()(const AddNoticeTarget& c) {
  NoticeTarget target = c.target;
  target.on = without_doubles(std::move(target.on));
  BILLOW_TRY_VOID(check_choice(target));
  if (!state.users.contains(target.user))
    return fail(Code::not_found, "no such user");
  if (target.id != state.notices.next_target)
    return fail(Code::conflict, "another target was added at the same time", "try again");
  const auto own = std::count_if(state.notices.targets.begin(), state.notices.targets.end(),
                                 [&](const auto& each) { return each.second.user == target.user; });
  if (static_cast<std::size_t>(own) >= limits::notice_targets_per_user_max)
    return fail(Code::exhausted,
                fmt::format("you have {} targets already, which is the limit", own),
                "remove one: billow notify rm ID");
  if (state.notices.targets.size() >= limits::notice_targets_max)
    return fail(Code::exhausted, fmt::format("{} targets exist already, which is the limit",
                                             state.notices.targets.size()));
  Events events{NoticeTargetSet{target}};
  if (!c.sealed.empty())
    events.push_back(SecretSet{{.project = {},
                                .name = notice_secret(target.id),
                                .sealed = c.sealed,
                                .by = state.users.at(target.user).name,
                                .at = context.now}});
  return events;
}

// A target of somebody else answers like one that does not exist.
Result<NoticeTarget> Decider::own_target(UserId by, std::uint64_t id) const {
  const auto found = state.notices.targets.find(id);
  if (found == state.notices.targets.end() || found->second.user != by)
    return fail(Code::not_found, fmt::format("you have no target {}", id),
                "see `billow notify list`");
  return found->second;
}
Decision Decider::operator()(const ChangeNoticeTarget& c) {
  NoticeTarget target = BILLOW_TRY(own_target(c.by, c.target));
  target.on = without_doubles(c.on);
  target.wait = c.wait;
  target.budget_pct = c.budget_pct;
  BILLOW_TRY_VOID(check_choice(target));
  return Events{NoticeTargetSet{std::move(target)}};
}
Decision Decider::operator()(const ConfirmNoticeTarget& c) {
  NoticeTarget target = BILLOW_TRY(own_target(c.by, c.target));
  if (target.confirmed)
    return Events{};
  target.confirmed = true;
  return Events{NoticeTargetSet{std::move(target)}};
}
Decision Decider::operator()(const RemoveNoticeTarget& c) {
  BILLOW_TRY(own_target(c.by, c.target));
  Events events;
  remove_target(state, c.target, events);
  return events;
}

// One notice for all jobs that have waited too long since the last look.
Decision Decider::operator()(const NoticeTick&) {
  Events events;
  for (const auto& [id, target] : state.notices.targets) {
    if (!target.wants(NoticeOn::waits))
      continue;
    const auto told = state.notices.told.find(id);
    NoticeQueued queued{.notice = {.target = id, .on = NoticeOn::waits}, .waiting = {}};
    std::vector<std::string> names;
    for (const auto& [number, job] : state.jobs) {
      if (job.user != target.user || job.state != JobState::queued ||
          context.now - std::max(job.submitted_at, job.not_before) < target.wait ||
          job.spec->labels.contains(label_endpoint) ||
          (told != state.notices.told.end() && told->second.contains(number)))
        continue;
      queued.waiting.push_back(number);
      if (names.size() < named_jobs_max)
        names.push_back(named(job.spec->name, "job", label_of(job)));
    }
    if (queued.waiting.empty())
      continue;
    const std::size_t count = queued.waiting.size();
    queued.notice.job = queued.waiting.front();
    queued.notice.title = count == 1 ? fmt::format("{} still waits", names.front())
                                     : fmt::format("{} of your jobs are still waiting", count);
    queued.notice.text = fmt::format(
        "queued for more than {}{}{}; billow explain {} says why", rough_duration(target.wait),
        count == 1 ? "" : ": " + join(names, ", "), count > names.size() ? ", …" : "",
        label_of(state.jobs.at(queued.waiting.front())));
    events.push_back(std::move(queued));
  }
  return events;
}

Decision Decider::operator()(const RecordNoticesSent& c) {
  if (!state.notices.targets.contains(c.sent.target))
    return Events{};
  return Events{c.sent};
}

// ---- events

void Applier::operator()(const NoticeTargetSet& e) {
  state.notices.targets[e.target.id] = e.target;
  state.notices.next_target = std::max(state.notices.next_target, e.target.id + 1);
}
void Applier::operator()(const NoticeTargetRemoved& e) {
  state.notices.targets.erase(e.target);
  state.notices.waiting.erase(e.target);
  state.notices.told.erase(e.target);
}
void Applier::operator()(const NoticeQueued& e) {
  const auto target = state.notices.targets.find(e.notice.target);
  if (target == state.notices.targets.end())
    return;
  if (!e.waiting.empty()) {
    std::set<JobId>& told = state.notices.told[e.notice.target];
    // A job that no longer waits gets another notice if it waits again.
    std::erase_if(told, [&](JobId id) {
      const Job* job = state.find_job(id);
      return !job || job->state != JobState::queued;
    });
    told.insert(e.waiting.begin(), e.waiting.end());
  }
  // Browsers hear of it by the live stream; nothing is sent to them.
  if (target->second.via == NoticeVia::browser || !target->second.confirmed)
    return;
  std::deque<PersonalNotice>& waiting = state.notices.waiting[e.notice.target];
  waiting.push_back(e.notice);
  waiting.back().seq = event.seq;
  waiting.back().at = event.at;
  if (waiting.size() > limits::notices_waiting_max)
    waiting.pop_front();
}
void Applier::operator()(const NoticesSent& e) {
  const auto target = state.notices.targets.find(e.target);
  if (target == state.notices.targets.end())
    return;
  target->second.tried_at = event.at;
  target->second.trouble = e.trouble;
  const auto waiting = state.notices.waiting.find(e.target);
  if (waiting == state.notices.waiting.end())
    return;
  while (!waiting->second.empty() && waiting->second.front().seq <= e.through)
    waiting->second.pop_front();
  if (waiting->second.empty())
    state.notices.waiting.erase(waiting);
}

// ---- the image of the state

NoticeImage image_of(const NoticeBook& book) {
  NoticeImage out{.next_target = book.next_target, .targets = {}, .waiting = {}, .told = {}};
  for (const auto& [id, target] : book.targets)
    out.targets.push_back(target);
  for (const auto& [id, waiting] : book.waiting)
    out.waiting.insert(out.waiting.end(), waiting.begin(), waiting.end());
  for (const auto& [id, jobs] : book.told)
    for (const JobId job : jobs)
      out.told.push_back({id, job});
  return out;
}

NoticeBook restore_notices(NoticeImage image) {
  NoticeBook out;
  out.next_target = image.next_target;
  for (NoticeTarget& target : image.targets)
    out.targets[target.id] = std::move(target);
  for (PersonalNotice& notice : image.waiting)
    out.waiting[notice.target].push_back(std::move(notice));
  for (const ToldJob& told : image.told)
    out.told[told.target].insert(told.job);
  return out;
}

}  // namespace billow::control
