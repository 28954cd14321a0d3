// The format of the data directory as a list of steps from nothing to the current one. Each step is
// one transaction, so a crash between steps leaves a directory with a definite format, from which
// the next start continues. A released step is never edited.
#pragma once

#include <span>

#include "store/sqlite/sqlite_db.h"

namespace billow {

struct Migration {
  std::int64_t format;  // the directory has this format afterwards
  const char* what;
  const char* sql;
  Status (*fill)(sql::Db& db) = nullptr;  // what SQL alone cannot do, in the same transaction
};
std::span<const Migration> migrations();
std::int64_t format_newest();

// Refuses a foreign database and one with a newer format; otherwise applies the missing steps.
Status migrate(sqlite::Db& db, const std::string& data_dir);

}  // namespace billow
