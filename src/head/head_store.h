// The head's store: SQLite in its data directory, or PostgreSQL, where another head may lead while
// this one stands by. Heads of one database are one installation: they share the authority that
// agents trust, the installation's name, and the key that signs notices.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/file.h"
#include "head/certificates/authority.h"
#include "head/options.h"
#include "store/postgres/pg_store.h"
#include "store/store.h"

namespace billow::head {

class HeadStore {
 public:
  // As a standby, waits for the leader's lease; writes to ready_fd that it does, and closes it.
  static Result<HeadStore> open(HeadOptions& options);

  Store& operator*() const { return *store_; }
  Store* operator->() const { return store_.get(); }
  bool shared() const { return pg_ != nullptr; }

  // The content of a file in the data directory, created by `make` if missing. The same for all
  // heads that share a store.
  Result<std::string> secret(const std::string& path,
                             const std::string& name,
                             const std::function<std::string()>& make);
  // Its name distinguishes our machines and logs from those of another Billow at the same provider.
  Result<std::string> installation();
  // The authority that this head and those that share its store use.
  Result<Authority> authority(const std::string& dir);
  Status set_authority(const std::string& dir, const Authority& authority);
  // Says where this head, which leads, can be reached: the others pass their connections on to it.
  void announce(const std::vector<std::string>& urls, const std::vector<std::string>& gateways);
  // Each head of a shared store has its own token; the suffix keeps them apart. Empty if not
  // shared.
  std::string token_suffix() const;

 private:
  Fd lock_;  // of the data directory, also if the store is elsewhere
  std::unique_ptr<Store> store_;
  PgStore* pg_ = nullptr;
  std::string identity_;  // of this head among those of the store
  std::string data_dir_;
};

}  // namespace billow::head
