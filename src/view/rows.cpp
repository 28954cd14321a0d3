#include "view/rows.h"

#include <fmt/format.h>

#include "core/control/decide/labels.h"
#include "core/ledger/meter.h"
#include "core/wire/codec.h"
#include "store/job_words.h"
#include "view/names.h"
#include "view/stored.h"

namespace billow::view {
namespace {

std::string words_of_spec(const control::State& state,
                          const JobSpec& spec,
                          UserId user,
                          ProjectId project) {
  std::string words;
  add_words(words, spec.name);
  add_words(words, user_name(state, user));
  add_words(words, project_name(state, project));
  for (const auto& [key, value] : spec.labels) {
    add_words(words, key);
    add_words(words, value);
  }
  return words;
}

void add_command(std::string& words, const JobSpec& spec) {
  for (const std::string& word : spec.argv)
    add_words(words, word);
}

}  // namespace

std::string words_of(const control::State& state, const Job& job, const std::vector<Task>& tasks) {
  std::string words = words_of_spec(state, *job.spec, job.user, job.project);
  if (job.array)
    add_words(words, job_label(job));
  for (const Task& task : tasks) {
    add_words(words, node_name(state, task.node));
    add_words(words, gpu_type(state, task));
  }
  if (tasks.empty())
    for (const std::string& type : job.spec->resources.gpu_types)
      add_words(words, type);
  add_command(words, *job.spec);
  return words;
}

std::string words_of(const control::State& state, const control::ArrayState& array) {
  std::string words = words_of_spec(state, *array.spec, array.user, array.project);
  for (const std::string& type : array.spec->resources.gpu_types)
    add_words(words, type);
  add_command(words, *array.spec);
  return words;
}

JobRow job_row(const control::State& state, const control::FinishedJob& finished) {
  const Job& job = finished.job;
  JobRow row;
  row.id = job.id;
  row.name = job.spec->name;
  row.user = job.user;
  row.project = job.project;
  row.state = enum_name(job.state);
  row.submitted_at = job.submitted_at;
  row.started_at = job.started_at;
  row.ended_at = job.ended_at;
  row.exit_code = job.exit.shell_code();
  row.array = job.array;
  row.array_index = job.array_index;
  for (const Task& task : finished.tasks) {
    row.nodes.push_back(node_name(state, task.node));
    row.gpu_count += static_cast<std::uint32_t>(task.gpus.size());
    row.gpu_milli += ledger::gpu_milli(task);
    row.gpu_type = gpu_type(state, task);
  }
  row.charge = job.cost;
  row.labels.assign(job.spec->labels.begin(), job.spec->labels.end());
  row.doc = wire::to_json_text(stored_job(state, job, finished.tasks));
  row.words = words_of(state, job, finished.tasks);
  return row;
}

JobRow array_row(const control::State& state, const control::FinishedArray& finished) {
  const auto& array = finished.array;
  JobRow row;
  row.id = array.id;
  row.name = array.spec->name;
  row.user = array.user;
  row.project = array.project;
  row.state = enum_name(array.ended_as());
  row.submitted_at = array.submitted_at;
  row.ended_at = finished.ended_at;
  row.exit_code = array.worst_code;
  row.charge = array.cost;
  row.labels.assign(array.spec->labels.begin(), array.spec->labels.end());
  row.doc = wire::to_json_text(stored_array(state, array, finished.ended_at));
  row.words = words_of(state, array);
  return row;
}

namespace {

// Sets `labels` in the member `of`, if it is an object.
void set_labels_in(Json& document, const std::string& of, const Json& labels) {
  if (!document[of].is_object())
    return;
  Json inner = document[of];
  inner.set("labels", labels);
  document.set(of, std::move(inner));
}

}  // namespace

Status relabel(JobRow& row, const JobsLabelled& change) {
  std::map<std::string, std::string> labels(row.labels.begin(), row.labels.end());
  control::change_labels(labels, change);
  Json document = BILLOW_TRY(parse_json(row.doc));
  Json as_json = Json::object();
  for (const auto& [key, value] : labels) {
    as_json.set(key, value);
    add_words(row.words, key);
    add_words(row.words, value);
  }
  for (const char* owner : {"job", "array"}) {
    if (!document[owner].is_object())
      continue;
    Json inner = document[owner];
    set_labels_in(inner, "spec", as_json);
    document.set(owner, std::move(inner));
  }
  // Version 0.1 stored the public document.
  set_labels_in(document, "spec", as_json);
  if (document["labels"].is_object())
    document.set("labels", as_json);
  row.labels.assign(labels.begin(), labels.end());
  row.doc = document.dump();
  return {};
}

LeaseRow lease_row(const control::ClosedLease& lease) {
  const Task& task = lease.task;
  LeaseRow row;
  row.id = ledger::lease_id(task);
  row.job = task.job;
  row.task = task.id;
  row.project = lease.project;
  row.user = lease.user;
  row.node_name =
      lease.node_name.empty() ? fmt::format("node {}", task.node.value) : lease.node_name;
  row.gpu_type = lease.gpu_type;
  row.milli = lease.milli.value_or(ledger::gpu_milli(task));
  row.price_class = enum_name(task.price_class);
  row.from = task.lease_from;
  row.to = lease.to;
  row.open = lease.open;
  row.charge = lease.charge;
  row.cost = lease.cost;
  row.idle = lease.idle;
  row.energy_mj = lease.energy_mj;
  row.egress = lease.egress;
  row.egress_bytes = lease.egress_bytes;
  row.gpus = static_cast<std::int32_t>(task.gpus.size());
  for (const GpuGrant& grant : task.gpus)
    row.cards += fmt::format("{}{}:{}", row.cards.empty() ? "" : ",", grant.gpu, grant.share.milli);
  row.card_mem_mib = lease.card_mem_mib;
  const TaskMeter& meter = task.usage.meter;
  row.mem_peak_mib = meter.gpu_mem_peak_mib;
  row.sm_peak_pct = meter.sm_peak_pct;
  row.engine_p95_pct = meter.engine_p95_pct;
  row.measured = meter.measured;
  return row;
}

EntryRow entry_row(const ledger::Entry& entry) {
  return {entry.number, enum_name(entry.kind), entry.node,      entry.lease,
          entry.job,    entry.project,         entry.user,      entry.from,
          entry.to,     entry.amount,          entry.correction};
}

NodeDayRow node_day_row(const control::NodeDay& day) {
  return {day.day, day.name, day.pool, day.cost, day.provider_id};
}

}  // namespace billow::view
