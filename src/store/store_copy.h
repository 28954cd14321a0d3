// A whole store as a thing: moved from SQLite to PostgreSQL, backed up while its head runs, made
// again from a backup. What arrives does so whole or not at all, and nothing is ever written over.
//
// A backup of SQLite is a data directory. One of PostgreSQL is a file: every table in the server's
// own text form, ended by a hash.
#pragma once

#include <string>

#include "base/ids.h"
#include "base/result.h"

namespace billow {

struct CopyReport {
  Seq last_seq = 0;
  std::uint64_t events = 0, jobs = 0, leases = 0;
};

// From the store of a head that is down into a database without one. The data directory is marked,
// so that no head goes on with the old.
Result<CopyReport> migrate_to_postgres(const std::string& data_dir, const std::string& url);

Result<CopyReport> backup_sqlite(const std::string& data_dir, const std::string& path);
Result<CopyReport> backup_postgres(const std::string& url, const std::string& path);

// Into a data directory without a store, and into a database without one.
Result<CopyReport> restore_sqlite(const std::string& path, const std::string& data_dir);
Result<CopyReport> restore_postgres(const std::string& path, const std::string& url);

// Where a data directory says that its head keeps the state in a database.
std::string store_marker(const std::string& data_dir);

}  // namespace billow
