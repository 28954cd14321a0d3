// What the head keeps its facts in: a journal and the query tables made from it, whoever carries
// them. SQLite in the data directory by default; PostgreSQL where a team wants a standby.
#pragma once

#include <string>

#include "store/journal.h"
#include "store/queries.h"

namespace billow {

class Store {
 public:
  virtual ~Store() = default;  // makes durable what is queued, if it can, and closes
  virtual Journal& journal() = 0;
  virtual const Queries& queries() const = 0;
  // Makes `path` a backup of all that is durable now, while the head runs on: of SQLite a data
  // directory, of PostgreSQL a file (see store_copy.h). For a worker thread.
  virtual Status backup_to(const std::string& path) const = 0;
};

}  // namespace billow
