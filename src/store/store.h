// Where the head keeps its facts: a journal and the query tables derived from it. SQLite in the
// data directory by default; PostgreSQL for teams that want a standby.
#pragma once

#include <string>

#include "store/journal.h"
#include "store/queries.h"

namespace billow {

class Store {
 public:
  virtual ~Store() = default;  // flushes the queue if possible, and closes
  virtual Journal& journal() = 0;
  virtual const Queries& queries() const = 0;
  // Writes a backup of everything durable now to `path`, while the head continues: a data directory
  // for SQLite, a file for PostgreSQL (see store_copy.h). For a worker thread.
  virtual Status backup_to(const std::string& path) const = 0;
};

}  // namespace billow
