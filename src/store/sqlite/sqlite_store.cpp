#include "store/sqlite/sqlite_store.h"

#include <unistd.h>

#include "base/log.h"
#include "store/data_dir.h"
#include "store/sql_queries.h"
#include "store/sqlite/migrations.h"
#include "store/sqlite/sqlite_journal.h"
#include "store/store_copy.h"

namespace billow {
namespace {

constexpr int reader_cache_kib = 1 << 10;
constexpr int writer_cache_kib = 16 << 10;  // a limit for bursts; quiet moments free it

class SqliteStoreImpl final : public SqliteStore {
 public:
  SqliteStoreImpl(SqliteStoreOptions options, Fd lock)
      : data_dir_(options.data_dir),
        lock_(std::move(lock)),
        readers_(
            [path = data_dir_ + "/billow.db"]() -> Result<std::unique_ptr<sql::Db>> {
              return sqlite::Db::open(path, sqlite::Mode::read_only, reader_cache_kib);
            },
            options.read_connections_max),
        queries_(readers_) {}

  Journal& journal() override { return *journal_; }
  const Queries& queries() const override { return queries_; }
  Status backup_to(const std::string& path) const override;

  const std::string data_dir_;
  Fd lock_;  // held until everything else is closed
  mutable ReadPool readers_;
  SqlQueries queries_;
  std::unique_ptr<SqliteJournal> journal_;
};

// Opens the database, migrates it and raises the epoch. Each of these writes; on a full disk the
// ballast of the last run provides the space.
Result<std::unique_ptr<sqlite::Db>> open_database(const std::string& data_dir, Ballast& ballast) {
  const auto attempt = [&]() -> Result<std::unique_ptr<sqlite::Db>> {
    auto db = BILLOW_TRY(
        sqlite::Db::open(data_dir + "/billow.db", sqlite::Mode::read_write, writer_cache_kib));
    BILLOW_TRY_VOID(migrate(*db, data_dir));
    BILLOW_TRY_VOID(db->run("UPDATE meta SET value = value + 1 WHERE key = 'epoch'"));
    return db;
  };
  auto db = attempt();
  if (!db && db.error().code == Code::storage_full) {
    ballast.release();
    db = attempt();
  }
  return db;
}

Status SqliteStoreImpl::backup_to(const std::string& path) const {
  auto done = backup_sqlite(data_dir_, path);
  if (!done)
    return pass(std::move(done.error()));
  return {};
}

}  // namespace

Result<std::unique_ptr<SqliteStore>> SqliteStore::open(SqliteStoreOptions options) {
  const std::string dir = options.data_dir;
  BILLOW_TRY_VOID(make_directories(dir, 0700));
  Fd lock = BILLOW_TRY(lock_data_dir(dir));
  Ballast ballast(dir + "/ballast", options.ballast_bytes);
  auto db = BILLOW_TRY(open_database(dir, ballast));
  if (auto made = ballast.make(); !made) {
    if (made.error().code != Code::storage_full)
      return pass(std::move(made.error()));
    log_warn("{}", made.error().message);
  }
  const auto epoch =
      static_cast<Epoch>(BILLOW_TRY(db->scalar("SELECT value FROM meta WHERE key = 'epoch'")));
  auto last = BILLOW_TRY(journal_end(*db));
  JournalHooks hooks = std::move(options.hooks);
  auto store = std::make_unique<SqliteStoreImpl>(std::move(options), std::move(lock));
  store->journal_ = std::make_unique<SqliteJournal>(
      SqliteJournal::Parts{std::move(db), &store->readers_, std::move(ballast), Snapshots(dir),
                           epoch, std::move(last), std::move(hooks)});
  return store;
}

}  // namespace billow
