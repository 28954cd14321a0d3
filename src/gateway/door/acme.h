// Certificates from an ACME authority (RFC 8555), such as Let's Encrypt: one order at a time, over
// the gateway's loop. A name is proved by a file that the authority fetches over HTTP (HTTP-01), or
// by a DNS record that a program of the user sets (DNS-01; the only way to wildcards).
//
// Guarantees
// - A certificate is ordered if none is there, and again when a third of its life is left.
// - A failed order is tried again after a minute, then at doubled intervals up to 12 hours. These
//   times survive a restart, so a gateway that crashes does not use up the authority's limits.
// - The account's key and the certificates' keys are in the data directory with mode 0600. A
//   certificate replaces the one before only if it is complete.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/sync.h"
#include "net/http/http_client.h"
#include "net/jws.h"
#include "process/spawn.h"

namespace billow::gateway {

struct AcmeOptions {
  std::string directory;  // the authority's; empty: nothing is ordered
  std::string contact;    // a mail address for the authority; empty: none
  std::string dns_hook;   // run as: HOOK add|remove _acme-challenge.NAME VALUE; empty: HTTP-01
  std::string ca;  // authority of the ACME server's own certificate (PEM); empty: the system's
};

class Acme {
 public:
  struct Hooks {
    // Sets of names that need a certificate each; the first name also names the files.
    std::function<std::vector<std::vector<std::string>>()> wanted;
    // Whether the names' certificate has to be renewed, or does not exist.
    std::function<bool(const std::string& name)> due;
    std::function<void()> changed;  // a certificate was written
  };
  static Result<std::unique_ptr<Acme>> create(net::Loop& loop,
                                              AcmeOptions options,
                                              std::string directory,
                                              Hooks hooks);
  ~Acme();
  // The content of /.well-known/acme-challenge/TOKEN; empty: none. From any thread.
  std::string challenge(std::string_view token) const;

 private:
  struct Order;
  struct Troubles;
  struct Trouble {
    std::uint32_t failures = 0;
    WallTime next_at;
    std::string reason;
    template <class S, class V>
    static constexpr void fields(S& s, V& v) {
      v("failures", s.failures);
      v("next_at_ns", s.next_at);
      v("reason", s.reason);
    }
  };
  using Answer = std::function<void(const net::Response&, const Json&)>;
  Acme(net::Loop& loop, AcmeOptions options, std::string directory, Hooks hooks);
  void look();
  void begin(std::vector<std::string> names);
  void fetch(net::ClientRequest request, std::string url, Answer done);
  // A signed request. An empty payload asks for a document (POST-as-GET).
  void post(const std::string& url, std::string payload, Answer done, int tries = 0);
  void with_account(std::function<void()> done);
  void new_order();
  void next_authorization();
  void prove(const Json& authorization);
  void run_hook(const char* what, std::function<void(Status)> done);
  void poll(const std::string& url, std::function<void(const Json&)> done);
  void finalize();
  void download(const std::string& url);
  void finish(const Status& result);
  void failed(const std::string& why);
  void save_troubles();

  net::Loop& loop_;
  AcmeOptions options_;
  std::string directory_;  // account.key, certs/, troubles.json
  Hooks hooks_;
  std::unique_ptr<net::HttpClient> client_;
  std::optional<process::Child> hook_;  // the program for DNS records
  std::optional<net::JwsKey> key_;
  Json urls_;            // of the authority
  std::string account_;  // its URL
  std::deque<std::string> nonces_;
  std::map<std::string, Trouble> troubles_;  // by the first name
  std::unique_ptr<Order> order_;             // under way
  mutable Sync<std::map<std::string, std::string, std::less<>>> challenges_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  net::Timer look_timer_, wait_timer_, hook_timer_;
};

}  // namespace billow::gateway
