// The journal and the query tables in a PostgreSQL database (schema `billow`). One head leads by a
// lease of a few seconds, renewed with every commit; a standby waits for it to run out and takes
// over with a higher epoch, which the old leader's commits and its agents notice.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/limits.h"
#include "store/store.h"

namespace billow {

inline constexpr const char* leader_place_name = "leader-place";

struct PgStoreOptions {
  std::string url;       // "postgres://user@host/database"
  std::string holder;    // the name of this head, for messages
  std::string identity;  // set if this head can have no twin: it need not wait for its own
                         // lease to expire; empty: none
  bool standby = false;  // wait for the lease instead of failing with `conflict`
  // Called several times a second; false ends the wait (Code::unavailable).
  std::function<bool()> keep_waiting;
  std::function<void(const std::string& holder)> on_waiting;  // once, when another head leads
  // Several times a second while another head leads, with what it has stored as leader_place_name.
  std::function<void(const std::string& text)> on_leader_place;
  JournalHooks hooks;
  std::size_t read_connections_max = limits::store_read_connections_max;
};

class PgStore : public Store {
 public:
  // Waits, or fails with `conflict` naming the leader; then migrates an older format.
  static Result<std::unique_ptr<PgStore>> open(PgStoreOptions options);
  // A secret that all heads of this database share: the existing one, else `candidate` is stored.
  virtual Result<std::string> shared_secret(const std::string& name,
                                            const std::string& candidate) = 0;
  // Replaces it for all heads that start from now on.
  virtual Status set_shared_secret(const std::string& name, const std::string& value) = 0;
};

std::string shown_store(const std::string& url);  // without its password
inline bool is_postgres_url(std::string_view text) {
  return text.starts_with("postgres://") || text.starts_with("postgresql://");
}

}  // namespace billow
