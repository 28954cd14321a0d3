#include "core/sched/tally.h"

#include <algorithm>

#include "core/sched/preempt.h"

namespace billow::sched {
namespace {

// Running jobs count as if they ran on for this long: fairness reacts to a start at once, not when
// usage has grown.
constexpr double foresight_s = 3600;

}  // namespace

Tally::Tally(const SchedIndex::Impl& index, WallTime now)
    : index_(index),
      now_(now),
      guaranteed_(index.guaranteed_milli),
      firm_borrowed_(index.firm_borrowed_milli) {}

const Tally::Started& Tally::of(ProjectId id) const {
  static const Started none;
  auto it = started_.find(id);
  return it == started_.end() ? none : it->second;
}

double Tally::had(Usage usage, std::int64_t rate_milli, std::int64_t more_milli) const {
  index_.accrue(usage, rate_milli, now_);
  return usage.milli_seconds + static_cast<double>(rate_milli + more_milli) * foresight_s;
}

double Tally::share_of(const ProjectState& p) const {
  return had(p.usage, p.rate_milli, of(p.settings.id).dominant) /
         static_cast<double>(std::max<std::int64_t>(1, p.settings.weight));
}

UserId Tally::part_of(const ProjectState& p, const Kind& kind) {
  return p.settings.policy == OrderPolicy::fair ? kind.proto.user : UserId{};
}

double Tally::share_of(const ProjectState& p, UserId user) const {
  if (!user)
    return 0;
  const auto it = p.had.find(user);
  const auto more = started_dominant_.find({p.settings.id, user});
  const std::int64_t more_milli = more == started_dominant_.end() ? 0 : more->second;
  return it == p.had.end() ? had({}, 0, more_milli)
                           : had(it->second.usage, it->second.rate_milli, more_milli);
}

int Tally::tier_down(const ProjectState& p, const Kind& kind) const {
  if (p.settings.guaranteed_milli <= 0)
    return -static_cast<int>(kind.proto.spot ? Tier::spot : Tier::borrowed);
  return -static_cast<int>(
      tier_of_queued(index_, kind.proto, p.covered_milli() + of(p.settings.id).covered));
}

bool Tally::within_limits(const Kind& kind) const {
  const ProjectState& p = index_.projects.at(kind.proto.project);
  const ProjectSettings& s = p.settings;
  if (s.budget_exhausted)
    return false;
  const std::int64_t milli = asked_milli(index_, kind.proto);
  const Started& extra = of(s.id);
  const std::int64_t used = p.running_milli + extra.gpu;
  if (s.limit_milli >= 0 && used + milli > s.limit_milli)
    return false;
  if (!s.may_borrow && used + milli > s.guaranteed_milli)
    return false;
  // Jobs that cannot be preempted borrow only what is not guaranteed to any project, because it
  // could not be taken back.
  if (guaranteed_ > 0 && !gives_way(kind.proto)) {
    const std::int64_t firm = p.firm_milli + extra.firm;
    const std::int64_t more = std::max<std::int64_t>(0, firm + milli - s.guaranteed_milli) -
                              std::max<std::int64_t>(0, firm - s.guaranteed_milli);
    if (more > 0 &&
        firm_borrowed_ + more > std::max<std::int64_t>(0, index_.total_milli - guaranteed_))
      return false;
  }
  UserRunning user;
  if (auto it = p.users.find(kind.proto.user); it != p.users.end())
    user = it->second;
  if (auto it = started_user_.find({s.id, kind.proto.user}); it != started_user_.end()) {
    user.milli += it->second.milli;
    user.jobs += it->second.jobs;
  }
  if (s.user_limit_milli >= 0 && user.milli + milli > s.user_limit_milli)
    return false;
  if (s.user_running_max >= 0 && user.jobs + 1 > s.user_running_max)
    return false;
  if (kind.proto.array && kind.proto.array_running_max > 0) {
    std::int32_t running = 0;
    if (auto it = index_.array_running.find(kind.proto.array); it != index_.array_running.end())
      running += it->second;
    if (auto it = started_array_.find(kind.proto.array); it != started_array_.end())
      running += it->second;
    if (running >= kind.proto.array_running_max)
      return false;
  }
  return true;
}

void Tally::started(const JobRequest& proto, const std::vector<Placement>& placements) {
  Started& s = started_[proto.project];
  const std::int64_t milli = gpu_milli_of(proto, placements);
  const std::int64_t dominant = index_.dominant_milli(proto);
  s.dominant += dominant;
  started_dominant_[{proto.project, proto.user}] += dominant;
  s.gpu += milli;
  if (!proto.spot)
    s.covered += milli;
  if (!gives_way(proto)) {
    const ProjectState& p = index_.projects.at(proto.project);
    const std::int64_t before = p.firm_milli + s.firm - p.settings.guaranteed_milli;
    s.firm += milli;
    firm_borrowed_ += std::max<std::int64_t>(0, before + milli) - std::max<std::int64_t>(0, before);
  }
  UserRunning& user = started_user_[{proto.project, proto.user}];
  user.milli += milli;
  ++user.jobs;
  if (proto.array)
    ++started_array_[proto.array];
}

namespace {

// Of all projects' jobs together, `project` has this one besides: what it asks for beyond its own
// guarantee.
std::int64_t borrows(const SchedIndex::Impl& index, const JobRequest& job, const Growth& growth) {
  // Whole nodes ask for as many as the largest node has (within_limits).
  const std::int64_t asked = std::max(growth.asked_milli, asked_milli(index, job));
  const auto own = index.projects.find(job.project);
  const std::int64_t mine = own == index.projects.end() ? 0 : own->second.settings.guaranteed_milli;
  const std::int64_t firm =
      (own == index.projects.end() ? 0 : own->second.firm_milli) + growth.firm_milli;
  return std::max<std::int64_t>(0, firm + asked - mine) - std::max<std::int64_t>(0, firm - mine);
}

bool is_free_to_start(const SchedIndex::Impl& index, const JobRequest& job) {
  return index.guaranteed_milli == 0 || gives_way(job) || job.reservation;
}

}  // namespace

std::int64_t borrowed_milli(const SchedIndex& wrapped,
                            const JobRequest& job,
                            const Growth& growth) {
  const SchedIndex::Impl& index = wrapped.impl();
  return is_free_to_start(index, job) ? 0 : borrows(index, job, growth);
}

bool beside_guarantees(const SchedIndex& wrapped, const JobRequest& job, const Growth& growth) {
  const SchedIndex::Impl& index = wrapped.impl();
  if (is_free_to_start(index, job))
    return true;
  const std::int64_t more = borrows(index, job, growth);
  const std::int64_t open =
      std::max<std::int64_t>(0, index.total_milli + growth.more_milli - index.guaranteed_milli);
  return more == 0 || index.firm_borrowed_milli + more <= open;
}

}  // namespace billow::sched
