// Queries about money: leases, daily sums, postings, costs of nodes.
#include "store/sql_queries.h"

#include <fmt/format.h>

#include "base/limits.h"
#include "store/read_pool.h"

namespace billow {
namespace {

constexpr const char* lease_columns =
    "leases.id, leases.job_id, leases.task_id, leases.project_id, leases.user_id, "
    "leases.node_name, leases.gpu_type, leases.milli, "
    "leases.price_class, leases.from_at, leases.to_at, leases.open, leases.charge, leases.cost, "
    "leases.idle, leases.energy_mj, "
    "leases.gpus, leases.card_mem_mib, leases.mem_peak_mib, leases.sm_peak_pct, "
    "leases.engine_p95_pct, leases.measured, leases.egress, leases.egress_bytes, leases.cards";

LeaseRow read_lease(const sql::Query& q) {
  LeaseRow l;
  l.id = LeaseId(q.number(0));
  l.job = JobId(q.number(1));
  l.task = TaskId(q.number(2));
  l.project = ProjectId(q.number(3));
  l.user = UserId(q.number(4));
  l.node_name = q.text(5);
  l.gpu_type = q.text(6);
  l.milli = q.integer(7);
  l.price_class = q.text(8);
  l.from = {q.integer(9)};
  l.to = {q.integer(10)};
  l.open = q.integer(11) != 0;
  l.charge = {q.integer(12)};
  l.cost = {q.integer(13)};
  l.idle = {q.integer(14)};
  l.energy_mj = q.integer(15);
  l.gpus = static_cast<std::int32_t>(q.integer(16));
  l.card_mem_mib = q.integer(17);
  l.mem_peak_mib = q.integer(18);
  l.sm_peak_pct = static_cast<std::int32_t>(q.integer(19));
  l.engine_p95_pct = static_cast<std::int32_t>(q.integer(20));
  l.measured = q.integer(21) != 0;
  l.egress = {q.integer(22)};
  l.egress_bytes = q.integer(23);
  l.cards = q.text(24);
  return l;
}

}  // namespace

Result<std::vector<LeaseRow>> SqlQueries::leases(const LeaseQuery& query) const {
  auto db = BILLOW_TRY(pool_.take());
  const std::string_view key = query.job       ? "job_id = ?"
                               : query.project ? "project_id = ?"
                                               : "? = 0";
  auto q =
      BILLOW_TRY(db->query(fmt::format("SELECT {} FROM leases WHERE {} AND id > ? AND (to_at > ? "
                                       "OR open <> 0) AND from_at < ? ORDER BY id",
                                       lease_columns, key)));
  q.bind_all(static_cast<std::int64_t>(query.job ? query.job.value : query.project.value),
             query.after, query.from, query.before ? query.before.ns : INT64_MAX);
  std::vector<LeaseRow> leases;
  while (leases.size() < query.limit && BILLOW_TRY(q.step())) {
    LeaseRow l = read_lease(q);
    if (query.project && l.project != query.project)
      continue;
    leases.push_back(std::move(l));
  }
  return leases;
}

Result<std::vector<LeaseRow>> SqlQueries::leases_between(WallTime from,
                                                         WallTime before,
                                                         std::size_t limit) const {
  auto db = BILLOW_TRY(pool_.take());
  auto q = BILLOW_TRY(db->query(
      fmt::format("SELECT {} FROM leases WHERE to_at > ? AND gpus > 0 ORDER BY to_at, id LIMIT ?",
                  lease_columns)));
  q.bind_all(from, static_cast<std::int64_t>(limits::query_rows_scanned_max));
  std::vector<LeaseRow> leases;
  while (leases.size() < limit && BILLOW_TRY(q.step()))
    if (q.integer(9) < before.ns)
      leases.push_back(read_lease(q));
  return leases;
}

Result<std::vector<RunRow>> SqlQueries::runs(ProjectId project,
                                             WallTime from,
                                             WallTime before,
                                             std::size_t limit) const {
  auto db = BILLOW_TRY(pool_.take());
  auto q = BILLOW_TRY(db->query(
      fmt::format("SELECT {}, CASE WHEN jobs.name <> '' THEN jobs.name ELSE "
                  "coalesce(json_extract(jobs.doc, '$.command'), '') END FROM leases "
                  "JOIN jobs ON jobs.id = leases.job_id WHERE (?1 = 0 OR leases.project_id = ?1) "
                  "AND leases.gpus > 0 AND leases.open = 0 "
                  "AND leases.to_at >= ?2 AND leases.to_at < ?3 ORDER BY leases.id DESC LIMIT ?4",
                  lease_columns)));
  q.bind_all(project, from, before ? before.ns : INT64_MAX, static_cast<std::int64_t>(limit));
  std::vector<RunRow> rows;
  while (BILLOW_TRY(q.step())) {
    LeaseRow lease = read_lease(q);
    rows.push_back({std::string(q.text(25)), std::move(lease)});
  }
  return rows;
}

Result<std::vector<EntryRow>> SqlQueries::entries(const EntryQuery& query) const {
  auto db = BILLOW_TRY(pool_.take());
  auto q = BILLOW_TRY(db->query(
      fmt::format("SELECT number, kind, node_id, lease_id, job_id, project_id, user_id, from_at, "
                  "to_at, amount, correction FROM entries "
                  "WHERE {} number > ?2 AND to_at >= ?3 AND to_at < ?4 ORDER BY number LIMIT ?5",
                  query.lease ? "lease_id <> 0 AND lease_id = ?1 AND" : "?1 = 0 AND")));
  q.bind_all(query.lease, static_cast<std::int64_t>(query.after), query.from,
             query.before ? query.before.ns : INT64_MAX, static_cast<std::int64_t>(query.limit));
  std::vector<EntryRow> rows;
  while (BILLOW_TRY(q.step())) {
    rows.push_back({q.number(0),
                    std::string(q.text(1)),
                    NodeId(q.number(2)),
                    LeaseId(q.number(3)),
                    JobId(q.number(4)),
                    ProjectId(q.number(5)),
                    UserId(q.number(6)),
                    {q.integer(7)},
                    {q.integer(8)},
                    {q.integer(9)},
                    q.integer(10) != 0});
  }
  return rows;
}

Result<std::vector<NodeDayRow>> SqlQueries::node_days(std::int64_t day_from,
                                                      std::int64_t day_to) const {
  auto db = BILLOW_TRY(pool_.take());
  auto q =
      BILLOW_TRY(db->query("SELECT day, node_name, pool, cost, provider_id FROM node_days WHERE "
                           "day BETWEEN ? AND ? ORDER BY day, node_name"));
  q.bind_all(day_from, day_to);
  std::vector<NodeDayRow> rows;
  while (BILLOW_TRY(q.step()))
    rows.push_back({q.integer(0),
                    std::string(q.text(1)),
                    std::string(q.text(2)),
                    {q.integer(3)},
                    std::string(q.text(4))});
  return rows;
}

Result<std::vector<UsageRow>> SqlQueries::usage(const UsageQuery& query) const {
  const auto dimension = [](bool asked, std::string_view column, std::string_view none) {
    return asked ? column : none;
  };
  // Group only by the requested dimensions: in the order of the table's key (day, project, …) the
  // sums need no sorting.
  std::string by;
  for (const auto& [asked, column] :
       {std::pair(query.by_day, "day"), std::pair(query.by_project, "project_id"),
        std::pair(query.by_user, "user_id"), std::pair(query.by_gpu_type, "gpu_type"),
        std::pair(query.by_class, "price_class")})
    if (asked)
      by += (by.empty() ? "" : ", ") + std::string(column);
  const std::string grouped =
      by.empty() ? "HAVING count(*) > 0" : fmt::format("GROUP BY {} ORDER BY {}", by, by);
  auto db = BILLOW_TRY(pool_.take());
  auto q = BILLOW_TRY(db->query(fmt::format(
      "SELECT {}, {}, {}, {}, {}, sum(charge), sum(cost), sum(gpu_milli_ms), sum(idle), "
      "sum(energy_mj), sum(egress), sum(egress_bytes) FROM usage_daily "
      "WHERE day BETWEEN ? AND ? AND (?3 = 0 OR project_id = ?3) AND (?4 = 0 OR user_id = ?4) {}",
      dimension(query.by_day, "day", "0 AS a"), dimension(query.by_project, "project_id", "0 AS b"),
      dimension(query.by_user, "user_id", "0 AS c"),
      dimension(query.by_gpu_type, "gpu_type", "'' AS d"),
      dimension(query.by_class, "price_class", "'' AS e"), grouped)));
  q.bind_all(query.day_from, query.day_to, query.project, query.user);
  std::vector<UsageRow> rows;
  while (BILLOW_TRY(q.step())) {
    rows.push_back({q.integer(0),
                    ProjectId(q.number(1)),
                    UserId(q.number(2)),
                    std::string(q.text(3)),
                    std::string(q.text(4)),
                    {q.integer(5)},
                    {q.integer(6)},
                    q.integer(7),
                    {q.integer(8)},
                    q.integer(9),
                    {q.integer(10)},
                    q.integer(11)});
  }
  return rows;
}

}  // namespace billow
