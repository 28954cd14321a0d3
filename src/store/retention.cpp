#include "store/retention.h"

#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "core/model/event.h"

namespace billow {
namespace {

// What happens to jobs, calls and machines in normal operation, much of it once per job or more.
struct RoutineKinds : Kinds<EnvironmentStored,
                            JobsSubmitted,
                            JobReady,
                            DependencyMet,
                            JobPlaced,
                            TaskStarted,
                            TaskEnded,
                            JobStopping,
                            JobRequeued,
                            JobEnded,
                            NodeOfferChanged,
                            NodeReachable,
                            NodeUnreachable,
                            ScheduleFired,
                            JobSuspending,
                            TaskSuspended,
                            SuspendFailed,
                            SuspensionChanged,
                            JobResuming,
                            TaskResumed,
                            TaskDeclared,
                            PoolDenied,
                            MachineWanted,
                            MachineSeen,
                            MachineReleased,
                            MachineGone,
                            JobCheckpointed,
                            BudgetWarned,
                            JobHeld,
                            MeterMarked,
                            IdleWarned,
                            IdleActed,
                            KeptAlive,
                            NodeReleased,
                            WebhookDelivered,
                            MemberReplaced,
                            RevisionJudged,
                            EndpointScaled,
                            CallAccepted,
                            CallEnded,
                            CallsForgotten,
                            ReservationMoved,
                            ReservationLeft,
                            JobImageFound,
                            TaskRerated,
                            OfferRefused,
                            PoolRetried,
                            MembersRestarting,
                            KeysUsed,
                            EndpointsCounted,
                            NoticeQueued,
                            NoticesSent> {};

template <class First, class... Others>
std::vector<std::string_view> names_of(const Kinds<First, Others...>&) {
  return {First::kind, Others::kind...};
}

const std::string& routine_list() {
  static const std::string list = [] {
    std::string text;
    for (const std::string_view kind : names_of(RoutineKinds{}))
      text += fmt::format("{}'{}'", text.empty() ? "" : ", ", kind);
    return text;
  }();
  return list;
}

constexpr std::int64_t audit_records_per_step = 1'000;

// The newest record of a digest wins, as it does among complete records.
Status keep_variables(sql::Db& db, std::int64_t first, std::int64_t end) {
  std::vector<std::pair<std::string, std::string>> found;
  {
    auto q = BILLOW_TRY(db.query(
        "SELECT json_extract(payload, '$.event.digest'), payload FROM events WHERE seq >= ? AND "
        "seq < ? AND kind = 'environment_stored' ORDER BY seq"));
    q.bind_all(first, end);
    while (BILLOW_TRY(q.step()))
      if (!q.is_null(0))
        found.emplace_back(q.text(0), q.text(1));
  }
  for (const auto& [digest, payload] : found)
    BILLOW_TRY_VOID(
        db.run("INSERT INTO kept_variables (digest, payload) VALUES (?,?) ON CONFLICT (digest) DO "
               "UPDATE SET payload = excluded.payload",
               digest, payload));
  return {};
}

Status keep_and_remove(sql::Db& db, std::int64_t first, std::int64_t end) {
  static const std::string keep_audit = fmt::format(
      "INSERT INTO kept_events (seq, epoch, at, kind, payload, link, link_before) "
      "SELECT e.seq, e.epoch, e.at, e.kind, e.payload, e.link, COALESCE("
      "(SELECT b.link FROM events b WHERE b.seq = e.seq - 1), "
      "(SELECT p.link FROM pruned p WHERE p.seq = e.seq - 1), '') "
      "FROM events e WHERE e.seq >= ? AND e.seq < ? AND e.kind NOT IN ({})",
      routine_list());
  BILLOW_TRY_VOID(db.run(keep_audit, first, end));
  BILLOW_TRY_VOID(keep_variables(db, first, end));
  BILLOW_TRY_VOID(db.run("DELETE FROM pruned"));
  BILLOW_TRY_VOID(
      db.run("INSERT INTO pruned (seq, link) SELECT seq, link FROM events WHERE seq = ?", end - 1));
  return db.run("DELETE FROM events WHERE seq >= ? AND seq < ?", first, end);
}

Result<std::int64_t> at_of(sql::Db& db, std::int64_t seq) {
  auto q = BILLOW_TRY(db.query("SELECT at FROM events WHERE seq = ?"));
  q.bind(seq);
  return BILLOW_TRY(q.step()) ? q.integer(0) : 0;
}

}  // namespace

namespace prune {

namespace {

struct Setting {
  const char* key;
  std::int64_t value;  // -1: no limit
};

}  // namespace

Result<Retention> settle(sql::Db& db, const Retention& retention) {
  const auto ns = [](const std::optional<Duration>& time) {
    return time ? time->ns : -1;
  };
  Setting settings[] = {
      {"keep_events_ns", ns(retention.events)},
      {"keep_events_max",
       retention.events_max ? static_cast<std::int64_t>(*retention.events_max) : -1},
      {"keep_audit_ns", ns(retention.audit)}};
  constexpr std::int64_t not_stored = -2;
  bool stored = true;
  for (Setting& setting : settings) {
    const std::int64_t before = BILLOW_TRY(
        db.scalar(fmt::format("SELECT value FROM meta WHERE key = '{}'", setting.key), not_stored));
    stored = stored && before != not_stored;
    if (retention.chosen && before != setting.value)
      BILLOW_TRY_VOID(
          db.run("INSERT INTO meta (key, value) VALUES (?,?) ON CONFLICT (key) DO "
                 "UPDATE SET value = excluded.value",
                 std::string(setting.key), setting.value));
    if (!retention.chosen)
      setting.value = before;
  }
  if (retention.chosen || !stored)
    return retention;
  const auto time = [](std::int64_t value) {
    return value < 0 ? std::nullopt : std::optional(Duration{value});
  };
  Retention out;
  out.events = time(settings[0].value);
  out.events_max = settings[1].value < 0
                       ? std::nullopt
                       : std::optional(static_cast<std::uint64_t>(settings[1].value));
  out.audit = time(settings[2].value);
  return out;
}

// Not min(seq): PostgreSQL would read over everything that was removed and not yet vacuumed.
Result<Seq> first_record(sql::Db& db) {
  const auto removed = BILLOW_TRY(db.scalar("SELECT seq FROM pruned", -1));
  if (removed >= 0)
    return static_cast<Seq>(removed + 1);
  return static_cast<Seq>(BILLOW_TRY(db.scalar("SELECT min(seq) FROM events")));
}

// By halves: there is no index by time, and records are in the order of time.
Result<Seq> first_since(sql::Db& db, WallTime time) {
  auto low = static_cast<std::int64_t>(BILLOW_TRY(first_record(db)));
  auto high = BILLOW_TRY(db.scalar("SELECT max(seq) FROM events")) + 1;
  while (low < high) {
    const std::int64_t middle = low + (high - low) / 2;
    if (BILLOW_TRY(at_of(db, middle)) < time.ns)
      low = middle + 1;
    else
      high = middle;
  }
  return static_cast<Seq>(low);
}

Status remove_range(sql::Db& db, Seq first, Seq end) {
  BILLOW_TRY_VOID(db.exec(db.engine() == sql::Engine::sqlite ? "BEGIN IMMEDIATE" : "BEGIN"));
  auto done = keep_and_remove(db, static_cast<std::int64_t>(first), static_cast<std::int64_t>(end));
  if (done)
    done = db.exec("COMMIT");
  if (!done)
    db.rollback();
  return done;
}

Result<bool> remove_audit_before(sql::Db& db, WallTime time) {
  std::int64_t last = 0, count = 0;
  {
    auto q = BILLOW_TRY(
        db.query("SELECT max(seq), count(*) FROM (SELECT seq, at FROM kept_events ORDER BY seq "
                 "LIMIT ?) AS oldest WHERE at < ?"));
    q.bind_all(audit_records_per_step, time);
    if (!BILLOW_TRY(q.step()) || q.is_null(0))
      return false;
    last = q.integer(0);
    count = q.integer(1);
  }
  BILLOW_TRY_VOID(db.run("DELETE FROM kept_events WHERE seq <= ?", last));
  return count == audit_records_per_step;
}

}  // namespace prune
}  // namespace billow
