// Asks identity providers over the network. Descriptions and keys are cached; a token signed with a
// key that is not in the cache makes them be fetched again, at most once in a while, so that keys
// can be replaced at any time, and forged tokens cannot make this head ask again and again.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "base/result.h"
#include "identity/discovery.h"
#include "identity/key_set.h"
#include "net/http/http_client.h"
#include "net/loop.h"

namespace billow::identity {

class Providers {
 public:
  struct Options {
    // Hosts inside the networks of this machine that providers of admins other than the founder may
    // be at.
    std::vector<std::string> hosts_allowed;
  };
  // Who the head trusts, and whether it may be anywhere: the user who started the head can reach
  // any address from its machine, others' providers lead only outwards.
  struct Trusted {
    std::string issuer;
    bool anywhere = false;
  };
  static Result<std::unique_ptr<Providers>> create(net::Loop& loop, Options options);
  ~Providers();

  using OnDiscovery = std::function<void(Result<Discovery>)>;
  void discover(const Trusted& who, OnDiscovery done);

  // The claims of a token that this issuer signed. The caller checks what they say.
  using OnClaims = std::function<void(Result<Json>)>;
  void check_signature(const Trusted& who, const std::string& token, OnClaims done);

  // An OAuth request in a form. An answer with "error" is a failure: unauthorized for
  // invalid_grant and access_denied, conflict while a device code waits for its person.
  struct Form {
    std::string url;
    std::vector<std::pair<std::string, std::string>> fields;
    std::string client_id, client_secret;  // no secret: a public client
  };
  void post(const Trusted& who, Form form, OnClaims done);

 private:
  struct Known {
    std::optional<Discovery> discovery;
    SteadyTime discovered_at;
    std::shared_ptr<const KeySet> keys;
    SteadyTime keys_at;
    std::vector<std::function<void(Status)>> waiting;  // for keys that are being fetched
  };
  Providers(net::Loop& loop) : loop_(loop) {}
  void get(const Trusted& who,
           const std::string& url,
           std::function<void(Result<std::string>)> done);
  void fetch_keys(const Trusted& who, std::function<void(Status)> done);
  void keys_came(const Trusted& who, Result<std::string> text);
  Known& known(const Trusted& who) { return known_[{who.issuer, who.anywhere}]; }
  net::HttpClient& client(const Trusted& who) { return who.anywhere ? *anywhere_ : *outwards_; }

  net::Loop& loop_;
  std::unique_ptr<net::HttpClient> anywhere_, outwards_;
  // Only issuers that admins have named. Apart by where they may be: what one admin may reach is
  // not served to another from the cache.
  std::map<std::pair<std::string, bool>, Known> known_;
  std::shared_ptr<bool> here_ = std::make_shared<bool>(true);
};

}  // namespace billow::identity
