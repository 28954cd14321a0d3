// The certificates that a gateway serves host names with. Each is a pair of files NAME.pem (or
// NAME.crt) and NAME.key in a directory; which host names it is for, it says itself. Files that
// change are read again, so a renewed certificate needs no restart. A pair that cannot be used is
// logged, and the one before stays in use.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "net/tls.h"

namespace billow::gateway {

class Certificates {
 public:
  struct Options {
    std::string cert, key;                 // for names that no other certificate is for
    std::vector<std::string> directories;  // those that do not exist yet are looked at later
  };
  static Result<std::unique_ptr<Certificates>> create(Options options);

  // For the name that a client asks for; null: the one of `Options::cert` as it was at the start.
  std::shared_ptr<net::TlsContext> find(std::string_view name) const;
  // When the certificate for exactly this name (perhaps a wildcard) begins and ends to be valid.
  struct Life {
    WallTime from, until;
  };
  std::optional<Life> life_of(std::string_view name) const;
  // Reads what has changed. True: the default certificate has.
  bool look();
  const std::string& default_path() const { return options_.cert; }

 private:
  struct Pair {
    std::string stamp;  // of both files: changes with them
    std::vector<std::string> names;
    Life life;
    std::shared_ptr<net::TlsContext> context;
  };
  explicit Certificates(Options options) : options_(std::move(options)) {}
  bool look_at(const std::string& cert, const std::string& key);
  void index();
  const Pair* best(std::string_view name) const;

  Options options_;
  mutable std::mutex mutex_;           // for what follows: handshakes of several loops ask
  std::map<std::string, Pair> pairs_;  // by the certificate's path
  // By host name or wildcard: the pair that lasts longest. Names of many certificates are asked for
  // again and again, on the loop that serves requests.
  std::map<std::string, const Pair*, std::less<>> by_name_;
  std::string default_stamp_;
  std::shared_ptr<net::TlsContext> default_;  // read again since the start
};

}  // namespace billow::gateway
