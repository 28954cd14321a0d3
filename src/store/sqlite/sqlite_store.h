// The journal and the query tables in a data directory, kept by SQLite: `billow.db` (WAL),
// `snapshots/`, `ballast`, `lock`. Durable means after the fsync of the WAL (synchronous=FULL). One
// head per data directory, by flock.
//
// Open it after the process has become a daemon: neither the lock nor SQLite's locks survive a fork
// into the child. Nothing else in the process may open and close `billow.db`: POSIX would drop
// SQLite's locks with that descriptor.
#pragma once

#include <memory>
#include <string>

#include "base/limits.h"
#include "store/store.h"

namespace billow {

struct SqliteStoreOptions {
  std::string data_dir;  // created if missing, 0700
  std::uint64_t ballast_bytes = limits::ballast_bytes;
  JournalHooks hooks;  // or set_hooks later, before the first append; on_health may be called
                       // before open returns
  // Concurrent queries and reads; more wait for their turn.
  std::size_t read_connections_max = limits::store_read_connections_max;
};

class SqliteStore : public Store {
 public:
  // Locks the directory, migrates an older format and raises the epoch. Fails with `conflict` if
  // another head runs (naming its pid), and with `unsupported` if a newer Billow wrote the
  // directory.
  static Result<std::unique_ptr<SqliteStore>> open(SqliteStoreOptions options);
};

}  // namespace billow
