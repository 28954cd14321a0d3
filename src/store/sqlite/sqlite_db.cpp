#include "store/sqlite/sqlite_db.h"

#include <fcntl.h>
#include <sqlite3.h>

#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "base/check.h"
#include "base/file.h"

namespace billow::sqlite {
namespace {

// ENOSPC arrives as SQLITE_FULL from a write, but as an I/O error from fsync, from growing the
// shared-memory file, and for quotas and file size limits; the system's error number distinguishes
// them.
bool means_full(int rc, int system_error) {
  if ((rc & 0xff) == SQLITE_FULL)
    return true;
  const bool io = (rc & 0xff) == SQLITE_IOERR || (rc & 0xff) == SQLITE_CANTOPEN;
  return io && (system_error == ENOSPC || system_error == EDQUOT || system_error == EFBIG);
}

std::unexpected<Error> sqlite_fail(sqlite3* db, int rc, std::string_view path) {
  const int system_error = db ? sqlite3_system_errno(db) : 0;
  const char* text = db ? sqlite3_errmsg(db) : sqlite3_errstr(rc);
  if (means_full(rc, system_error)) {
    return fail(Code::storage_full, fmt::format("no space left on the disk of {}", path),
                "free some space there");
  }
  const int basic = rc & 0xff;
  if (basic == SQLITE_CORRUPT || basic == SQLITE_NOTADB) {
    return fail(Code::internal, fmt::format("{} is damaged or not a database ({})", path, text),
                "restore the data directory from a backup, or use --data with another directory");
  }
  if (basic == SQLITE_BUSY || basic == SQLITE_LOCKED)
    return fail(Code::unavailable, fmt::format("{} is in use by another program ({})", path, text));
  std::string cause =
      system_error ? fmt::format("{}: {}", text, std::strerror(system_error)) : std::string(text);
  return fail(Code::internal, fmt::format("{}: {} (SQLite {})", path, cause, rc));
}

const char* path_of(sqlite3* db) {
  const char* name = sqlite3_db_filename(db, "main");
  return name && *name ? name : "database";
}

class Statement final : public sql::Cursor {
 public:
  Statement(sqlite3* db, sqlite3_stmt* stmt) : db_(db), stmt_(stmt) {}
  ~Statement() override { sqlite3_finalize(stmt_); }
  void bind(int parameter, std::int64_t value) override {
    BILLOW_CHECK(sqlite3_bind_int64(stmt_, parameter, value) == SQLITE_OK,
                 "a statement has fewer parameters than were bound");
  }
  void bind(int parameter, std::string_view value) override {
    const char* data = value.data() ? value.data() : "";
    BILLOW_CHECK(sqlite3_bind_text64(stmt_, parameter, data, value.size(), SQLITE_STATIC,
                                     SQLITE_UTF8) == SQLITE_OK,
                 "a statement has fewer parameters than were bound");
  }
  void bind_null(int parameter) override {
    BILLOW_CHECK(sqlite3_bind_null(stmt_, parameter) == SQLITE_OK,
                 "a statement has fewer parameters than were bound");
  }
  Result<bool> step() override {
    const int rc = sqlite3_step(stmt_);
    if (rc == SQLITE_ROW)
      return true;
    if (rc == SQLITE_DONE)
      return false;
    return sqlite_fail(db_, rc, path_of(db_));
  }
  Status run() override {
    while (true) {
      if (!BILLOW_TRY(step()))
        return {};
    }
  }
  std::int64_t integer(int column) const override { return sqlite3_column_int64(stmt_, column); }
  std::string_view text(int column) const override {
    const auto* data = reinterpret_cast<const char*>(sqlite3_column_text(stmt_, column));
    return data ? std::string_view(data,
                                   static_cast<std::size_t>(sqlite3_column_bytes(stmt_, column)))
                : std::string_view();
  }
  bool is_null(int column) const override {
    return sqlite3_column_type(stmt_, column) == SQLITE_NULL;
  }
  void reset() override {
    sqlite3_reset(stmt_);
    sqlite3_clear_bindings(stmt_);
  }

 private:
  sqlite3* db_;
  sqlite3_stmt* stmt_;
};

}  // namespace

Result<std::unique_ptr<Db>> Db::open(const std::string& path, Mode mode, int cache_kib) {
  // Without memory statistics SQLite takes no global lock at each allocation. The setting works
  // only before the first use.
  static const int configured = sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
  (void)configured;
  std::unique_ptr<Db> db(new Db(path));
  // Read-only connections also open the file for writing, because WAL readers share its index;
  // query_only keeps them from writing.
  const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX |
                    (mode == Mode::read_write ? SQLITE_OPEN_CREATE : 0);
  // SQLite would make it world-readable; its WAL and index copy the mode of the file.
  if (mode == Mode::read_write)
    Fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  const int rc = sqlite3_open_v2(path.c_str(), &db->db_, flags, nullptr);
  if (rc != SQLITE_OK)
    return sqlite_fail(db->db_, rc, path);
  sqlite3_extended_result_codes(db->db_, 1);
  sqlite3_busy_timeout(db->db_, 10'000);
  // No mmap and a small cache: SQLite's memory counts against the head. The kernel's page cache
  // serves reads.
  BILLOW_TRY_VOID(db->exec(fmt::format(
      "PRAGMA cache_size=-{}; PRAGMA mmap_size=0; PRAGMA temp_store=MEMORY;", cache_kib)));
  if (mode == Mode::read_only) {
    BILLOW_TRY_VOID(db->exec("PRAGMA query_only=1;"));
    return db;
  }
  BILLOW_TRY_VOID(db->exec(
      "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA journal_size_limit=33554432;"));
  // This hook replaces SQLite's checkpoint at commit: the journal's writer chooses a quiet moment.
  sqlite3_wal_hook(
      db->db_,
      [](void* self, sqlite3*, const char*, int pages) {
        static_cast<Db*>(self)->wal_pages_ = pages;
        return SQLITE_OK;
      },
      db.get());
  return db;
}
Db::~Db() {
  statements_.clear();
  sqlite3_close(db_);
}
Status Db::exec(const std::string& sql) {
  const int rc = sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, nullptr);
  if (rc != SQLITE_OK)
    return sqlite_fail(db_, rc, path_);
  return {};
}
Result<Query> Db::query(std::string_view sql, int slot) {
  const std::string slotted = slot == 0 ? std::string() : fmt::format("{} --{}", sql, slot);
  const std::string_view key = slot == 0 ? sql : std::string_view(slotted);
  auto found = statements_.find(key);
  if (found == statements_.end()) {
    sqlite3_stmt* stmt = nullptr;
    const int rc = sqlite3_prepare_v3(db_, sql.data(), static_cast<int>(sql.size()),
                                      SQLITE_PREPARE_PERSISTENT, &stmt, nullptr);
    if (rc != SQLITE_OK)
      return sqlite_fail(db_, rc, path_);
    found = statements_.emplace(std::string(key), std::make_unique<Statement>(db_, stmt)).first;
  }
  return Query(found->second.get());
}
void Db::rollback() {
  if (!sqlite3_get_autocommit(db_))
    sqlite3_exec(db_, "ROLLBACK", nullptr, nullptr, nullptr);
}
void Db::release_memory() {
  sqlite3_db_release_memory(db_);
}
Status Db::checkpoint() {
  int pages = 0, copied = 0;
  const int rc = sqlite3_wal_checkpoint_v2(db_, "main", SQLITE_CHECKPOINT_PASSIVE, &pages, &copied);
  if (rc == SQLITE_OK)
    wal_pages_ = pages == copied ? 0 : pages;
  if (rc == SQLITE_OK || (rc & 0xff) == SQLITE_BUSY)
    return {};
  return sqlite_fail(db_, rc, path_);
}
Status Db::copy_to(const std::string& path) const {
  sqlite3* target = nullptr;
  int rc =
      sqlite3_open_v2(path.c_str(), &target,
                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
  Status status;
  if (rc != SQLITE_OK) {
    status = sqlite_fail(target, rc, path);
  } else if (sqlite3_backup* backup = sqlite3_backup_init(target, "main", db_, "main"); !backup) {
    status = sqlite_fail(target, sqlite3_errcode(target), path);
  } else {
    // All in one step: a step reads one snapshot of the source, so writers neither wait for it nor
    // force a restart.
    sqlite3_backup_step(backup, -1);
    rc = sqlite3_backup_finish(backup);
    if (rc != SQLITE_OK)
      status = sqlite_fail(target, rc, path);
  }
  sqlite3_close(target);
  return status;
}

}  // namespace billow::sqlite
