// Labels of jobs can be changed at any time: they are for people to find jobs by, and nothing that
// a job runs with depends on them. Labels that Billow sets itself cannot be changed.
#include <algorithm>

#include <fmt/format.h>

#include "base/limits.h"
#include "base/spoken_name.h"
#include "base/text.h"
#include "core/control/applier.h"
#include "core/control/decide/decider.h"
#include "core/control/decide/labels.h"
#include "core/control/quotas.h"

namespace billow::control {

Status check_labels(const std::map<std::string, std::string>& labels) {
  constexpr std::size_t value_bytes_max = 256;
  for (const auto& [key, value] : labels) {
    BILLOW_TRY_VOID(check_name("label", key));
    if (key.starts_with(label_prefix))
      return fail(Code::invalid, fmt::format("the label {} is reserved for Billow", key),
                  "choose a name that does not begin with \"billow.\"");
    if (value.size() > value_bytes_max || !valid_utf8(value))
      return fail(Code::invalid,
                  fmt::format("the value of label {} must be text of at most {} bytes", key,
                              value_bytes_max));
  }
  return {};
}

void change_labels(std::map<std::string, std::string>& labels, const JobsLabelled& change) {
  for (const std::string& key : change.remove)
    labels.erase(key);
  for (const auto& [key, value] : change.set)
    labels[key] = value;
}

Decision Decider::operator()(const LabelJobs& c) {
  if (c.set.empty() && c.remove.empty())
    return fail(Code::invalid, "no label is given", "write it as NAME=VALUE");
  JobsLabelled change{.jobs = c.jobs, .set = c.set, .remove = c.remove};
  BILLOW_TRY_VOID(check_labels(c.set));
  for (const std::string& key : c.remove)
    BILLOW_TRY_VOID(check_labels({{key, ""}}));
  for (const JobId id : c.jobs) {
    const Job* job = state.find_job(id);
    const auto array = state.arrays.find(id);
    if (!job && array == state.arrays.end())
      return fail(Code::not_found, fmt::format("there is no job {}", id.value));
    auto labels = job ? job->spec->labels : array->second.spec->labels;
    change_labels(labels, change);
    if (labels.size() > limits::labels_max)
      return fail(Code::invalid, fmt::format("job {} would have more than {} labels", id.value,
                                             limits::labels_max));
  }
  change.jobs.insert(change.jobs.end(), c.ended.begin(), c.ended.end());
  if (change.jobs.empty())
    return Events{};
  return Events{std::move(change)};
}

void Applier::operator()(const JobsLabelled& e) {
  // Elements of an array share their description, before and after.
  std::shared_ptr<const JobSpec> before, after;
  const auto relabel = [&](std::shared_ptr<const JobSpec>& spec) {
    if (spec != before) {
      before = spec;
      auto copy = std::make_shared<JobSpec>(*spec);
      change_labels(copy->labels, e);
      after = std::move(copy);
    }
    spec = after;
  };
  const auto relabel_held = [&](auto& owner, std::uint64_t jobs) {
    release(state, {owner.user, owner.project, jobs, owner.spec.get()});
    relabel(owner.spec);
    hold(state, {owner.user, owner.project, jobs, owner.spec.get()});
  };
  for (const JobId id : e.jobs) {
    if (const auto array = state.arrays.find(id); array != state.arrays.end()) {
      relabel_held(array->second, 0);
      before.reset();
      for (std::uint64_t i = 1; i <= array->second.count; ++i)
        if (const auto job = state.jobs.find(JobId(id.value + i)); job != state.jobs.end())
          relabel(job->second.spec);
    } else if (const auto job = state.jobs.find(id); job != state.jobs.end()) {
      if (job->second.array)
        relabel(job->second.spec);
      else
        relabel_held(job->second, 1);
    }
    before.reset();
  }
}

}  // namespace billow::control
