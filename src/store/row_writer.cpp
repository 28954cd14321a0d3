#include "store/row_writer.h"

#include "base/json.h"
#include "base/text.h"

namespace billow {
namespace {

std::string labels_json(const std::vector<Label>& labels) {
  std::string out = "{";
  for (const auto& [key, value] : labels) {
    if (out.size() > 1)
      out += ',';
    append_json_string(out, key);
    out += ':';
    append_json_string(out, value);
  }
  return out += '}';
}

std::string nodes_json(const std::vector<std::string>& nodes) {
  std::string out = "[";
  for (const auto& node : nodes) {
    if (out.size() > 1)
      out += ',';
    append_json_string(out, node);
  }
  return out += ']';
}

void bind_code(sql::Query& q, const std::optional<std::int32_t>& code) {
  if (code)
    q.bind(std::int64_t{*code});
  else
    q.bind_null();
}

constexpr std::int64_t day_ns = 86'400'000'000'000;

// The whole row replaces the one with its id.
std::string upsert_by_id(std::string_view table, std::string_view columns) {
  std::string marks, replaced;
  for (const auto& part : split(columns, ',')) {
    const auto column = trim(part);
    marks += marks.empty() ? "?" : ",?";
    if (column != "id")
      replaced += fmt::format("{}{} = excluded.{}", replaced.empty() ? "" : ", ", column, column);
  }
  return fmt::format("INSERT INTO {} ({}) VALUES ({}) ON CONFLICT (id) DO UPDATE SET {}", table,
                     columns, marks, replaced);
}

}  // namespace

std::vector<Label> labels_of_json(std::string_view json) {
  std::vector<Label> labels;
  if (json == "{}")
    return labels;
  if (auto parsed = parse_json(json)) {
    for (const auto& [key, value] : parsed->members())
      labels.emplace_back(key, value.str_or(""));
  }
  return labels;
}

JobRow read_job(const sql::Query& q) {
  JobRow job;
  int c = 0;
  job.id = JobId(q.number(c++));
  job.name = q.text(c++);
  job.user = UserId(q.number(c++));
  job.project = ProjectId(q.number(c++));
  job.state = q.text(c++);
  job.submitted_at = {q.integer(c++)};
  job.started_at = {q.integer(c++)};
  job.ended_at = {q.integer(c++)};
  if (!q.is_null(c))
    job.exit_code = static_cast<std::int32_t>(q.integer(c));
  ++c;
  job.array = JobId(q.number(c++));
  job.array_index = q.number(c++);
  if (const auto nodes = q.text(c++); nodes != "[]") {
    if (auto parsed = parse_json(nodes)) {
      for (const Json& node : parsed->items())
        job.nodes.emplace_back(node.str_or(""));
    }
  }
  job.gpu_type = q.text(c++);
  job.gpu_count = static_cast<std::uint32_t>(q.integer(c++));
  job.gpu_milli = q.integer(c++);
  job.charge = {q.integer(c++)};
  job.labels = labels_of_json(q.text(c++));
  job.doc = q.text(c++);
  job.words = q.text(c++);
  return job;
}

Status RowWriter::write(std::span<const Batch> batches) {
  for (const Batch& batch : batches) {
    for (const Record& record : batch.records)
      BILLOW_TRY_VOID(write_record(record));
    for (const LeaseRow& lease : batch.leases)
      BILLOW_TRY_VOID(write_lease(lease));
    for (const EntryRow& entry : batch.entries)
      BILLOW_TRY_VOID(write_entry(entry));
    for (const NodeDayRow& row : batch.node_days)
      BILLOW_TRY_VOID(write_node_day(row));
  }
  Counts counts;
  for (const JobRow* job : last_rows<JobRow, &Batch::jobs>(batches))
    BILLOW_TRY_VOID(write_job(*job, counts));
  BILLOW_TRY_VOID(write_counts(counts));
  for (const TaskRow* task : last_rows<TaskRow, &Batch::tasks>(batches))
    BILLOW_TRY_VOID(write_task(*task));
  return {};
}

Status RowWriter::write_record(const Record& r) {
  return db_.run("INSERT INTO events (seq, epoch, at, kind, payload, link) VALUES (?,?,?,?,?,?)",
                 static_cast<std::int64_t>(r.seq), static_cast<std::int64_t>(r.epoch), r.at, r.kind,
                 r.payload, r.link);
}

Status RowWriter::write_counts(const Counts& changes) {
  for (const auto& [key, change] : changes) {
    if (change == 0)
      continue;
    BILLOW_TRY_VOID(
        db_.run("INSERT INTO job_counts VALUES (?,?,?) ON CONFLICT (state, project_id) DO UPDATE "
                "SET jobs = job_counts.jobs + excluded.jobs",
                key.first, key.second, change));
  }
  return {};
}
Status RowWriter::add_labels(const JobRow& job) {
  for (const auto& [key, value] : job.labels) {
    BILLOW_TRY_VOID(db_.run("INSERT INTO job_labels VALUES (?,?,?,?) ON CONFLICT DO NOTHING", key,
                            value, job.state, job.id));
  }
  return {};
}
Status RowWriter::remove_labels(JobId job, std::string_view state, std::string_view json) {
  for (const auto& [key, value] : labels_of_json(json)) {
    BILLOW_TRY_VOID(
        db_.run("DELETE FROM job_labels WHERE key = ? AND value = ? AND state = ? AND job_id = ?",
                key, value, state, job));
  }
  return {};
}

// Words of a job never change once it has ended; those of a row that is written again stay.
Status RowWriter::add_words_of(const JobRow& job) {
  for (const std::string& word : split(job.words, ' '))
    if (!word.empty())
      BILLOW_TRY_VOID(
          db_.run("INSERT INTO job_words VALUES (?,?) ON CONFLICT DO NOTHING", word, job.id));
  return {};
}

// Replaces the job's row. `counts` moves from the state and project of the old row to those of the
// new one. If no indexed column changes, only the others are written.
Status RowWriter::write_job(const JobRow& job, Counts& counts) {
  const std::string labels = labels_json(job.labels);
  const std::string nodes = nodes_json(job.nodes);
  bool is_new = true, same_keys = false;
  {
    auto old = BILLOW_TRY(db_.query(
        "SELECT state, project_id, labels, user_id, array_id, ended_at FROM jobs WHERE id = ?"));
    old.bind(job.id);
    if (BILLOW_TRY(old.step())) {
      is_new = false;
      const bool same_state = old.text(0) == job.state;
      const bool same_project = old.number(1) == job.project.value;
      same_keys = same_state && same_project && old.text(2) == labels &&
                  old.number(3) == job.user.value && old.number(4) == job.array.value &&
                  old.integer(5) == job.ended_at.ns;
      --counts[{std::string(old.text(0)), ProjectId(old.number(1))}];
      if (!same_keys)
        BILLOW_TRY_VOID(remove_labels(job.id, old.text(0), old.text(2)));
    }
  }
  ++counts[{job.state, job.project}];
  if (same_keys) {  // no index changes: the narrow update skips them
    auto q =
        BILLOW_TRY(db_.query("UPDATE jobs SET name=?, submitted_at=?, started_at=?, exit_code=?, "
                             "array_index=?, nodes=?, gpu_type=?, "
                             "gpu_count=?, gpu_milli=?, charge=?, doc=? WHERE id=?"));
    q.bind_all(job.name, job.submitted_at, job.started_at);
    bind_code(q, job.exit_code);
    q.bind_all(static_cast<std::int64_t>(job.array_index), nodes, job.gpu_type,
               std::int64_t{job.gpu_count}, job.gpu_milli, job.charge, job.doc, job.id);
    return q.run();
  }
  BILLOW_TRY_VOID(add_labels(job));
  BILLOW_TRY_VOID(add_words_of(job));
  // Not INSERT OR REPLACE: that keeps a statement journal of every page it touches.
  auto q = BILLOW_TRY(db_.query(is_new ? "INSERT INTO jobs (name, user_id, project_id, state, "
                                         "submitted_at, started_at, ended_at, exit_code, "
                                         "array_id, array_index, nodes, gpu_type, gpu_count, "
                                         "gpu_milli, charge, labels, doc, words, id) "
                                         "VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
                                       : "UPDATE jobs SET name=?, user_id=?, project_id=?, "
                                         "state=?, submitted_at=?, started_at=?, ended_at=?, "
                                         "exit_code=?, array_id=?, array_index=?, nodes=?, "
                                         "gpu_type=?, gpu_count=?, gpu_milli=?, charge=?, "
                                         "labels=?, doc=?, words=? WHERE id=?"));
  q.bind_all(job.name, job.user, job.project, job.state, job.submitted_at, job.started_at,
             job.ended_at);
  bind_code(q, job.exit_code);
  q.bind_all(job.array, static_cast<std::int64_t>(job.array_index), nodes, job.gpu_type,
             std::int64_t{job.gpu_count}, job.gpu_milli, job.charge, labels, job.doc, job.words,
             job.id);
  return q.run();
}

Status RowWriter::write_task(const TaskRow& task) {
  static const std::string sql = upsert_by_id(
      "tasks", "id, job_id, node_id, node_name, state, started_at, ended_at, exit_code, doc");
  auto q = BILLOW_TRY(db_.query(sql));
  q.bind_all(task.id, task.job, task.node, task.node_name, task.state, task.started_at,
             task.ended_at);
  bind_code(q, task.exit_code);
  q.bind(task.doc);
  return q.run();
}

Status RowWriter::write_lease(const LeaseRow& lease) {
  const std::int64_t held = lease.milli * ((lease.to - lease.from).ns / 1'000'000);
  std::int64_t charge_before = 0, cost_before = 0, held_before = 0, idle_before = 0,
               energy_before = 0, egress_before = 0, sent_before = 0;
  {
    auto old =
        BILLOW_TRY(db_.query("SELECT charge, cost, milli * ((to_at - from_at) / 1000000), idle, "
                             "energy_mj, egress, egress_bytes FROM leases WHERE id = ?"));
    old.bind(lease.id);
    if (BILLOW_TRY(old.step())) {
      charge_before = old.integer(0);
      cost_before = old.integer(1);
      held_before = old.integer(2);
      idle_before = old.integer(3);
      energy_before = old.integer(4);
      egress_before = old.integer(5);
      sent_before = old.integer(6);
    }
  }
  static const std::string sql = upsert_by_id(
      "leases",
      "id, job_id, task_id, project_id, user_id, node_name, gpu_type, milli, price_class, "
      "from_at, to_at, open, charge, cost, idle, energy_mj, gpus, card_mem_mib, mem_peak_mib, "
      "sm_peak_pct, engine_p95_pct, measured, egress, egress_bytes, cards");
  auto q = BILLOW_TRY(db_.query(sql));
  q.bind_all(lease.id, lease.job, lease.task, lease.project, lease.user, lease.node_name,
             lease.gpu_type, lease.milli, lease.price_class, lease.from, lease.to,
             std::int64_t{lease.open}, lease.charge, lease.cost, lease.idle, lease.energy_mj,
             std::int64_t{lease.gpus}, lease.card_mem_mib, lease.mem_peak_mib,
             std::int64_t{lease.sm_peak_pct}, std::int64_t{lease.engine_p95_pct},
             std::int64_t{lease.measured}, lease.egress, lease.egress_bytes, lease.cards);
  BILLOW_TRY_VOID(q.run());
  // A lease metered up to midnight belongs to the day that ended then.
  return db_.run(
      "INSERT INTO usage_daily (day, project_id, user_id, gpu_type, price_class, charge, cost, "
      "gpu_milli_ms, idle, energy_mj, egress, egress_bytes) "
      "VALUES (?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT (day, project_id, user_id, gpu_type, "
      "price_class) DO UPDATE SET "
      "charge = usage_daily.charge + excluded.charge, cost = usage_daily.cost + excluded.cost, "
      "gpu_milli_ms = usage_daily.gpu_milli_ms + excluded.gpu_milli_ms, idle = usage_daily.idle + "
      "excluded.idle, "
      "energy_mj = usage_daily.energy_mj + excluded.energy_mj, egress = usage_daily.egress + "
      "excluded.egress, "
      "egress_bytes = usage_daily.egress_bytes + excluded.egress_bytes",
      std::max<std::int64_t>(0, lease.to.ns - 1) / day_ns, lease.project, lease.user,
      lease.gpu_type, lease.price_class, lease.charge.value - charge_before,
      lease.cost.value - cost_before, held - held_before, lease.idle.value - idle_before,
      lease.energy_mj - energy_before, lease.egress.value - egress_before,
      lease.egress_bytes - sent_before);
}

Status RowWriter::write_entry(const EntryRow& entry) {
  return db_.run(
      "INSERT INTO entries (number, kind, node_id, lease_id, job_id, project_id, user_id, from_at, "
      "to_at, amount, correction) "
      "VALUES (?,?,?,?,?,?,?,?,?,?,?)",
      static_cast<std::int64_t>(entry.number), entry.kind, entry.node, entry.lease, entry.job,
      entry.project, entry.user, entry.from, entry.to, entry.amount,
      std::int64_t{entry.correction});
}

Status RowWriter::write_node_day(const NodeDayRow& row) {
  return db_.run(
      "INSERT INTO node_days (day, node_name, pool, cost, provider_id) VALUES (?,?,?,?,?) ON "
      "CONFLICT (day, node_name) DO UPDATE SET "
      "cost = node_days.cost + excluded.cost, provider_id = excluded.provider_id",
      row.day, row.node_name, row.pool, row.cost, row.provider_id);
}

}  // namespace billow
