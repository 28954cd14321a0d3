// Backs up data directories and restores them.
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "base/file.h"
#include "base/log.h"
#include "base/restored.h"
#include "store/data_dir.h"
#include "store/queued_journal.h"
#include "store/sqlite/migrations.h"
#include "store/sqlite/sqlite_db.h"
#include "store/store_copy.h"

namespace billow {
namespace {

// What a head on another machine needs to be the same installation: agents trust its certificate
// authority, rented machines know its name.
constexpr const char* kept_files[] = {"token",        "node-token", "notify-key",
                                      "installation", "tls/ca.pem", "tls/ca.key"};

Status copy_files(const std::string& from, const std::string& to) {
  for (const char* name : kept_files) {
    const std::string source = from + "/" + name, target = to + "/" + name;
    if (!file_exists(source) || file_exists(target))
      continue;
    BILLOW_TRY_VOID(make_directories(target.substr(0, target.rfind('/')), 0700));
    BILLOW_TRY_VOID(write_file_atomic(target, BILLOW_TRY(read_file(source, 1 << 20)), 0600, true));
  }
  return {};
}

constexpr int copies_max = 5;

// Whether the journal of a copied database has this record, or begins before it.
Result<bool> begins_by(const std::string& dir, Seq record) {
  const auto db = BILLOW_TRY(sqlite::Db::open(dir + "/billow.db", sqlite::Mode::read_only, 4096));
  return static_cast<Seq>(BILLOW_TRY(db->scalar("SELECT min(seq) FROM events", 1))) <= record;
}

Result<CopyReport> copy_into(const std::string& from, const std::string& to) {
  const auto db = BILLOW_TRY(sqlite::Db::open(from + "/billow.db", sqlite::Mode::read_only, 4096));
  // The snapshot first: the database copied after it is at least as recent. If so much happened
  // meanwhile that retention removed records after that snapshot, both are copied again.
  for (int attempt = 0;; ++attempt) {
    const auto last = static_cast<Seq>(BILLOW_TRY(db->scalar("SELECT max(seq) FROM events")));
    const auto snapshot = BILLOW_TRY(Snapshots(from).load(last));
    if (snapshot)
      BILLOW_TRY_VOID(Snapshots(to).save(snapshot->seq, snapshot->bytes));
    BILLOW_TRY_VOID(db->copy_to(to + "/billow.db"));
    if (BILLOW_TRY(begins_by(to, (snapshot ? snapshot->seq : 0) + 1)))
      break;
    if (attempt == copies_max)
      return fail(Code::unavailable, "the journal moved on faster than it could be copied",
                  "try again when the head has less to do");
    ::unlink((to + "/billow.db").c_str());
  }
  ::chmod((to + "/billow.db").c_str(), 0600);
  BILLOW_TRY_VOID(copy_files(from, to));
  auto copied = BILLOW_TRY(sqlite::Db::open(to + "/billow.db", sqlite::Mode::read_only, 4096));
  CopyReport report;
  report.last_seq = static_cast<Seq>(BILLOW_TRY(copied->scalar("SELECT max(seq) FROM events")));
  report.events =
      static_cast<std::uint64_t>(BILLOW_TRY(copied->scalar("SELECT count(*) FROM events")));
  report.jobs = static_cast<std::uint64_t>(BILLOW_TRY(copied->scalar("SELECT count(*) FROM jobs")));
  report.leases =
      static_cast<std::uint64_t>(BILLOW_TRY(copied->scalar("SELECT count(*) FROM leases")));
  return report;
}

}  // namespace

Result<ChainCheck> check_sqlite(const std::string& data_dir) {
  if (!file_exists(data_dir + "/billow.db"))
    return fail(Code::not_found, fmt::format("there is no store in {}", data_dir),
                "name the data directory of a head: --data DIR; or its database: --store URL");
  const auto db =
      BILLOW_TRY(sqlite::Db::open(data_dir + "/billow.db", sqlite::Mode::read_only, 4096));
  return check_chain(*db);
}

Result<CopyReport> backup_sqlite(const std::string& data_dir, const std::string& path) {
  if (!file_exists(data_dir + "/billow.db"))
    return fail(Code::not_found, fmt::format("there is no store in {}", data_dir),
                "name the data directory of a head: --data DIR; or its database: --store URL");
  if (file_exists(path))
    return fail(Code::conflict, fmt::format("{} exists already", path),
                "name a directory that does not exist yet");
  const std::string partial = path + ".partial";
  BILLOW_TRY_VOID(remove_tree(partial));
  BILLOW_TRY_VOID(make_directories(partial, 0700));
  auto done = copy_into(data_dir, partial);
  if (done) {
    if (auto synced = sync_directory(partial); !synced)
      done = pass(std::move(synced.error()));
    else if (::rename(partial.c_str(), path.c_str()) != 0)
      done = fail_errno(path, errno);
  }
  if (done)
    return done;
  if (auto removed = remove_tree(partial); !removed)
    log_warn("{}: {}", partial, removed.error().message);
  return pass(std::move(done.error()), "backup");
}

Result<CopyReport> restore_sqlite(const std::string& path, const std::string& data_dir) {
  if (!file_exists(path + "/billow.db")) {
    return fail(Code::not_found, fmt::format("{} is not a backup of a data directory", path),
                file_exists(path) ? "a backup of PostgreSQL goes back into a database: --store URL"
                                  : "name the directory `billow store backup` made");
  }
  if (file_exists(data_dir + "/billow.db") || file_exists(store_marker(data_dir)))
    return fail(Code::conflict, fmt::format("{} holds a store already", data_dir),
                "restore into another directory: --data DIR; nothing is written over");
  BILLOW_TRY_VOID(make_directories(data_dir, 0700));
  const Fd lock = BILLOW_TRY(lock_data_dir(data_dir));
  const std::string staged = data_dir + "/restoring";
  // Removed in any case: a failed restore leaves the directory unchanged.
  struct Staged {
    std::string path;
    ~Staged() { (void)remove_tree(path); }
  } const leftover{staged};
  BILLOW_TRY_VOID(remove_tree(staged));
  BILLOW_TRY_VOID(make_directories(staged, 0700));
  auto report = BILLOW_TRY(copy_into(path, staged));
  {
    auto db = BILLOW_TRY(sqlite::Db::open(staged + "/billow.db", sqlite::Mode::read_write, 4096));
    auto whole = BILLOW_TRY(db->query("PRAGMA integrity_check"));
    if (BILLOW_TRY(whole.step()) && whole.text(0) != "ok")
      return fail(Code::invalid, fmt::format("{} is damaged: {}", path, whole.text(0)),
                  "use another backup");
  }
  {
    auto db = BILLOW_TRY(sqlite::Db::open(staged + "/billow.db", sqlite::Mode::read_write, 4096));
    BILLOW_TRY_VOID(migrate(*db, path));
    BILLOW_TRY_VOID(
        db->run("UPDATE meta SET value = value + ? WHERE key = 'epoch'", restored_epoch_leap));
    BILLOW_TRY_VOID(db->checkpoint());
  }
  // The database last: it makes the directory a store.
  BILLOW_TRY_VOID(copy_files(staged, data_dir));
  BILLOW_TRY_VOID(remove_tree(data_dir + "/snapshots"));
  for (const char* name : {"/snapshots", "/billow.db"})
    if (file_exists(staged + name) &&
        ::rename((staged + name).c_str(), (data_dir + name).c_str()) != 0)
      return fail_errno(data_dir + name, errno);
  BILLOW_TRY_VOID(sync_directory(data_dir));
  return report;
}

}  // namespace billow
