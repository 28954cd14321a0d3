#include "core/control/durations.h"

#include <algorithm>
#include <string_view>

#include "base/limits.h"

namespace billow::control {
namespace {

// Stable across versions and machines: the keys are in snapshots.
class Hash {
 public:
  Hash& add(std::string_view text) {
    for (const char c : text)
      byte(static_cast<unsigned char>(c));
    byte(0xff);  // never part of UTF-8: "ab","c" is not "a","bc"
    return *this;
  }
  Hash& add(std::uint64_t number) {
    for (int i = 0; i < 8; ++i)
      byte(static_cast<unsigned char>(number >> (8 * i)));
    return *this;
  }
  std::uint64_t value() const { return hash_; }

 private:
  void byte(unsigned char b) { hash_ = (hash_ ^ b) * 0x100000001b3ull; }
  std::uint64_t hash_ = 0xcbf29ce484222325ull;
};

std::uint64_t command_key(ProjectId project, const JobSpec& spec) {
  Hash h;
  h.add("command").add(project.value);
  for (const std::string& word : spec.argv)
    h.add(word);
  h.add(static_cast<std::uint64_t>(spec.resources.gpus))
      .add(static_cast<std::uint64_t>(spec.resources.share.milli))
      .add(spec.nodes);
  return h.value();
}
// The program and its first argument that is not an option: `python` and `train.py` in `python
// train.py --lr 3`.
std::uint64_t program_key(ProjectId project, const JobSpec& spec) {
  Hash h;
  h.add("program").add(project.value).add(spec.argv.front());
  for (std::size_t i = 1; i < spec.argv.size(); ++i) {
    if (spec.argv[i].starts_with('-'))
      continue;
    h.add(spec.argv[i]);
    break;
  }
  return h.value();
}
std::uint64_t name_key(ProjectId project, const JobSpec& spec) {
  return Hash().add("name").add(project.value).add(spec.name).value();
}
std::uint64_t array_key(JobId array) {
  return Hash().add("array").add(array.value).value();
}

Expectation summary(const std::vector<std::int64_t>& ms) {
  std::vector<std::int64_t> sorted = ms;
  std::ranges::sort(sorted);
  const std::size_t n = sorted.size();
  // For few runs, the longest plus a quarter: four runs give no 90th percentile.
  const std::int64_t most =
      n >= 10 ? sorted[(n * 9 + 9) / 10 - 1] : sorted.back() + sorted.back() / 4;
  return {.likely = milliseconds(sorted[n / 2]),
          .at_most = milliseconds(most),
          .runs = static_cast<std::uint32_t>(n)};
}

}  // namespace

void Durations::add(std::uint64_t key, Duration ran) {
  Runs& runs = runs_[key];
  if (runs.key != 0)
    by_use_.erase(runs.used);
  runs.key = key;
  runs.used = ++learned_;
  by_use_[runs.used] = key;
  runs.ms.push_back(std::max<std::int64_t>(1, ran.ms()));
  if (runs.ms.size() > limits::durations_per_key_max)
    runs.ms.erase(runs.ms.begin());
  while (runs_.size() > limits::durations_keys_max) {
    runs_.erase(by_use_.begin()->second);
    by_use_.erase(by_use_.begin());
  }
}

void Durations::learn(ProjectId project, const JobSpec& spec, Duration ran) {
  if (ran.ns <= 0 || spec.argv.empty())
    return;
  add(command_key(project, spec), ran);
  add(program_key(project, spec), ran);
  if (!spec.name.empty())
    add(name_key(project, spec), ran);
}

Expectation Durations::expect(ProjectId project, const JobSpec& spec) const {
  if (runs_.empty() || spec.argv.empty())
    return {};
  const auto look = [&](std::uint64_t key, std::size_t least) -> Expectation {
    const auto found = runs_.find(key);
    return found == runs_.end() || found->second.ms.size() < least ? Expectation{}
                                                                   : summary(found->second.ms);
  };
  if (const Expectation e = look(command_key(project, spec), 2); e.runs)
    return e;
  if (!spec.name.empty())
    if (const Expectation e = look(name_key(project, spec), 3); e.runs)
      return e;
  if (const Expectation e = look(program_key(project, spec), 3); e.runs)
    return e;
  return look(command_key(project, spec), 1);
}

void Durations::learn_array(JobId array, Duration ran) {
  if (ran.ns > 0)
    add(array_key(array), ran);
}
Expectation Durations::expect_array(JobId array) const {
  const auto found = runs_.find(array_key(array));
  return found == runs_.end() ? Expectation{} : summary(found->second.ms);
}
void Durations::forget_array(JobId array) {
  const auto found = runs_.find(array_key(array));
  if (found == runs_.end())
    return;
  by_use_.erase(found->second.used);
  runs_.erase(found);
}

std::vector<Durations::Runs> Durations::contents() const {
  std::vector<Runs> out;
  out.reserve(runs_.size());
  for (const auto& [key, runs] : runs_)
    out.push_back(runs);
  return out;
}
void Durations::restore(std::vector<Runs> contents, std::uint64_t learned) {
  runs_.clear();
  by_use_.clear();
  learned_ = learned;
  for (Runs& runs : contents) {
    by_use_[runs.used] = runs.key;
    runs_[runs.key] = std::move(runs);
  }
}

const char* confidence(const Expectation& e) {
  const double spread =
      e.likely.ns > 0 ? static_cast<double>(e.at_most.ns) / static_cast<double>(e.likely.ns) : 1e9;
  if (e.runs >= 5 && spread <= 1.5)
    return "high";
  if (e.runs >= 3 && spread <= 3)
    return "medium";
  return "low";
}

}  // namespace billow::control
