#include "store/postgres/pg_store.h"

#include <unistd.h>

#include "base/log.h"
#include "store/postgres/pg_journal.h"
#include "store/postgres/pg_schema.h"
#include "store/sql_queries.h"
#include "store/store_copy.h"

namespace billow {
namespace {

constexpr useconds_t standby_look_us = 250'000;

// Empty: nobody has stored one.
Result<std::string> shared_value(pg::Db& db, const std::string& name) {
  auto q = BILLOW_TRY(db.query("SELECT value FROM shared WHERE name = ?"));
  q.bind(name);
  if (!BILLOW_TRY(q.step()))
    return std::string();
  return std::string(q.text(0));
}

class PgStoreImpl final : public PgStore {
 public:
  explicit PgStoreImpl(const PgStoreOptions& options)
      : url_(options.url),
        readers_(
            [url = options.url]() -> Result<std::unique_ptr<sql::Db>> {
              return pg::Db::connect(url, pg::Mode::read_only);
            },
            options.read_connections_max),
        queries_(readers_) {}
  Journal& journal() override { return *journal_; }
  const Queries& queries() const override { return queries_; }
  Status backup_to(const std::string& path) const override {
    auto done = backup_postgres(url_, path);
    if (!done)
      return pass(std::move(done.error()));
    return {};
  }
  Result<std::string> shared_secret(const std::string& name,
                                    const std::string& candidate) override {
    auto db = BILLOW_TRY(pg::Db::connect(url_));
    BILLOW_TRY_VOID(db->run("INSERT INTO shared (name, value) VALUES (?,?) ON CONFLICT DO NOTHING",
                            name, candidate));
    std::string value = BILLOW_TRY(shared_value(*db, name));
    if (value.empty())
      return fail(Code::internal, fmt::format("{} could not be kept in {}", name, pg::shown(url_)));
    return value;
  }
  Status set_shared_secret(const std::string& name, const std::string& value) override {
    auto db = BILLOW_TRY(pg::Db::connect(url_));
    return db->run("UPDATE shared SET value = ? WHERE name = ?", value, name);
  }

  const std::string url_;
  mutable ReadPool readers_;
  SqlQueries queries_;
  std::unique_ptr<PgJournal> journal_;
};

// Waits until this head has the lease. A standby survives restarts of its database.
Result<Epoch> wait_for_lease(pg::Db& db, const PgStoreOptions& options) {
  for (bool said = false;;) {
    auto epoch = pg::take_lease(db, options.holder, options.identity);
    if (epoch && *epoch)
      return **epoch;
    if (!epoch && (epoch.error().code != Code::unavailable || !options.standby))
      return pass(std::move(epoch.error()));
    if (epoch && !said) {
      const auto leader = pg::leader(db);
      const std::string who = leader ? leader->holder : "another head";
      if (!options.standby)
        return fail(Code::conflict, fmt::format("{} leads on {}", who, pg::shown(options.url)),
                    "end it first, or start this one as its standby: --standby");
      if (options.on_waiting)
        options.on_waiting(who);
      said = true;
    }
    if (epoch && options.on_leader_place)
      if (const auto place = shared_value(db, leader_place_name); place && !place->empty())
        options.on_leader_place(*place);
    if (options.keep_waiting && !options.keep_waiting())
      return fail(Code::unavailable, "no longer waiting to lead");
    ::usleep(standby_look_us);
  }
}

}  // namespace

std::string shown_store(const std::string& url) {
  return pg::shown(url);
}

Result<std::unique_ptr<PgStore>> PgStore::open(PgStoreOptions options) {
  auto db = BILLOW_TRY(pg::Db::connect(options.url));
  BILLOW_TRY_VOID(pg::prepare_lease(*db));
  // Before the wait, so that a standby that could never lead fails at once.
  BILLOW_TRY(pg::checked_format(*db));
  // A leader in the middle of a commit holds the row.
  BILLOW_TRY_VOID(db->exec("SET lock_timeout = '1s'"));
  const Epoch epoch = BILLOW_TRY(wait_for_lease(*db, options));
  BILLOW_TRY_VOID(db->exec("SET lock_timeout = 0"));
  BILLOW_TRY_VOID(pg::migrate(*db));
  auto last = BILLOW_TRY(journal_end(*db));
  log_info("leading with epoch {} on {}", epoch, pg::shown(options.url));
  auto store = std::make_unique<PgStoreImpl>(options);
  store->journal_ = BILLOW_TRY(PgJournal::create(
      {std::move(db), &store->readers_, epoch, std::move(last), std::move(options.hooks)}));
  return store;
}

}  // namespace billow
