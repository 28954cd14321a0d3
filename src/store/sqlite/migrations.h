// The data directory's format, as a list of steps from nothing to the present. Each step is one
// transaction, so a crash between steps leaves a directory of a definite format, which the next
// start brings further. A released step is never edited.
#pragma once

#include <span>

#include "store/sqlite/sqlite_db.h"

namespace billow {

struct Migration {
  std::int64_t format;  // the directory has this format afterwards
  const char* what;
  const char* sql;
};
std::span<const Migration> migrations();
std::int64_t format_newest();

// Refuses a foreign database and one of a newer format; else applies what is missing.
Status migrate(sqlite::Db& db, const std::string& data_dir);

}  // namespace billow
