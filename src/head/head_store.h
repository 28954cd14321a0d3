// Which store a head has: SQLite in its data directory, or PostgreSQL, where another head may lead
// and this one stands by. Heads of one database are one installation: what would otherwise lie in
// one data directory alone (the authority agents trust, the name machines of pools are known by,
// the key notices are signed with) is the same for all of them.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/file.h"
#include "head/options.h"
#include "head/tls.h"
#include "store/postgres/pg_store.h"
#include "store/store.h"

namespace billow::head {

class HeadStore {
 public:
  // Waits for the lease where the options say so; tells whoever waits at ready_fd, and closes it
  // then.
  static Result<HeadStore> open(HeadOptions& options);

  Store& operator*() const { return *store_; }
  Store* operator->() const { return store_.get(); }
  bool shared() const { return pg_ != nullptr; }

  // What a file in the data directory holds, made by `make` at first; with heads that share a store
  // the same for all.
  Result<std::string> secret(const std::string& path,
                             const std::string& name,
                             const std::function<std::string()>& make);
  // The head's own certificate, by an authority that all heads of a store have in common.
  Result<OwnTls> tls(const OwnTlsOptions& options);
  // Heads of one store each have a token file; none makes another's worthless. Empty for a store of
  // one's own.
  std::string token_suffix() const;

 private:
  Fd lock_;  // with a store elsewhere the data directory is this head's all the same
  std::unique_ptr<Store> store_;
  PgStore* pg_ = nullptr;
  std::string data_dir_;
};

}  // namespace billow::head
