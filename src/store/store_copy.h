// Operations on a whole store: move it from SQLite to PostgreSQL, back it up while its head runs,
// restore it from a backup, check its journal. Each succeeds completely or not at all, and nothing
// is ever overwritten.
//
// A backup of SQLite is a data directory. A backup of PostgreSQL is a file: every table in the
// server's text format, followed by a hash.
#pragma once

#include <string>

#include "base/ids.h"
#include "base/result.h"
#include "core/model/chain.h"

namespace billow {

struct CopyReport {
  Seq last_seq = 0;
  std::uint64_t events = 0, jobs = 0, leases = 0;
};

// From the store of a stopped head into a database without a store. The data directory is marked,
// so that no head continues with the old store.
Result<CopyReport> migrate_to_postgres(const std::string& data_dir, const std::string& url);

Result<CopyReport> backup_sqlite(const std::string& data_dir, const std::string& path);
Result<CopyReport> backup_postgres(const std::string& url, const std::string& path);

// Into a data directory without a store, and into a database without one.
Result<CopyReport> restore_sqlite(const std::string& path, const std::string& data_dir);
Result<CopyReport> restore_postgres(const std::string& path, const std::string& url);

// Follows the journal's chain of hashes from its first record to its last, also while a head runs.
Result<ChainCheck> check_sqlite(const std::string& data_dir);
Result<ChainCheck> check_postgres(const std::string& url);

// The path of the file that marks a data directory whose head keeps its state in a database.
std::string store_marker(const std::string& data_dir);

}  // namespace billow
