// Signing in at identity providers: sign-ins that have begun, the exchange of what a provider gave
// for a Billow token, and the check, from time to time, whether the provider still knows a person.
//
// A sign-in that has begun is known by a random `state`, works once within ten minutes, and belongs
// to one provider. What makes it worth something is never in an address: the program that began it
// has a verifier (PKCE), a browser a cookie.
//
// Providers, users' identities at them, and the tokens that renew a sign-in are secrets of the
// installation: in the journal, sealed with its key.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/host.h"
#include "base/clock.h"
#include "identity/claims.h"
#include "identity/provider.h"
#include "identity/providers.h"

namespace billow::api {

using identity::IdentityProvider;

class SignIns {
 public:
  explicit SignIns(Host& host) : host_(host) {}

  // ---- sign-ins that have begun
  struct Begun {
    std::string provider;
    std::string nonce;
    std::string redirect;
    std::string verifier;     // of a browser's; a program keeps its own
    std::string cookie_hash;  // of the browser that began it; empty: a program did
    std::string peer;
    SteadyTime until = {};
    bool names_itself = false;  // the provider's answer must carry its name
  };
  // The state. An error if this caller has begun too many.
  Result<std::string> begin(Begun begun);
  std::optional<Begun> take(const std::string& state);
  struct Device {
    std::string provider;
    std::string code;
    Duration interval;
    SteadyTime next_at = {}, until = {};
    std::string peer;
    bool busy = false;
  };
  Result<std::string> begin_device(Device device);
  Device* device(const std::string& handle);
  void end_device(const std::string& handle) { devices_.erase(handle); }

  // ---- providers
  std::vector<IdentityProvider> providers() const;
  // not_found: there is none of this kind.
  Result<IdentityProvider> provider(const std::string& name, ProviderKind kind) const;
  identity::Providers::Trusted trusted(const IdentityProvider& provider) const;
  Result<identity::Providers*> asker();
  using Stored = std::function<void(Status)>;
  void store(const IdentityProvider& provider, Stored done);
  // With the number of tokens that ended.
  void remove(const std::string& name, std::function<void(Result<std::size_t>)> done);
  // Who a user is at a provider, said by an admin.
  void link(const IdentityProvider& provider, const std::string& subject, UserId user, Stored done);

  // ---- proving an identity
  struct Proof {
    identity::Person person;
    std::string refresh;  // to ask again with; empty: the provider gave none
    bool has_claims = true;
  };
  using Fields = std::vector<std::pair<std::string, std::string>>;
  // Asks the provider for tokens and checks the ID token among them.
  void prove(const IdentityProvider& provider,
             Fields grant,
             std::string nonce,
             std::function<void(Result<Proof>)> done);

  // ---- a token for it
  struct Given {
    TokenId id;
    std::string secret, user;
    WallTime expires_at;
  };
  struct Caller {
    std::string request_id, peer;
  };
  using OnGiven = std::function<void(Result<Given>)>;
  // Makes the user, if need be, gives exactly the rights of the person's groups, and a token.
  void sign_in(const IdentityProvider& provider, const Proof& proof, Caller caller, OnGiven done);
  // For the token of a CI job.
  void exchange(const std::string& token, Caller caller, OnGiven done);

  // ---- later
  // A token was used, so it may be renewed.
  void used(TokenId token, WallTime now) {
    used_[token] = now;
    uses_changed_ = true;
  }
  std::optional<WallTime> last_use(TokenId token) const;
  // From now on checks, by a timer, whether providers still know people.
  void begin_checks();
  // When tokens were last used outlives the head, in a file that is written once a minute: what
  // was used in the minute before a crash is forgotten.
  void load_uses();
  void save_uses();
  // Ends what it has on the loop.
  void leave_loop();

 private:
  struct Login {  // of a token
    std::string provider, subject, refresh;
    template <class S, class V>
    static constexpr void fields(S& s, V& v) {
      v("provider", s.provider);
      v("subject", s.subject);
      v("refresh", s.refresh);
    }
  };
  struct Link {  // of a subject
    UserId user;
    template <class S, class V>
    static constexpr void fields(S& s, V& v) {
      v("user", s.user);
    }
  };
  // Records of the installation.
  template <class T>
  std::optional<T> read(const std::string& name) const;
  template <class T>
  Result<Command> record(const std::string& name, const T& value);
  Command forget(const std::string& name) const;

  Result<const User*> user_of(const IdentityProvider& provider, const std::string& subject) const;
  Status check_new(const IdentityProvider& provider, const identity::Person& person) const;
  std::vector<Command> rights_commands(const IdentityProvider& provider,
                                       const identity::Rights& rights,
                                       const std::string& user) const;
  void run(std::vector<Command> commands,
           control::Cause cause,
           std::function<void(Result<std::vector<Event>>)> done);
  struct NewToken {
    std::string name, user, project, refresh, subject;
    TokenScope scope = TokenScope::full;
  };
  void give(const IdentityProvider& provider, NewToken wish, control::Cause cause, OnGiven done);
  void check_logins();
  void check(TokenId id, const IdentityProvider& provider, const Login& login);
  void renewed(TokenId id, const Login& login, bool extends, Result<Proof> proof);
  void end(TokenId id, const std::string& provider, const std::string& why);

  Host& host_;
  std::unique_ptr<identity::Providers> asker_;
  std::map<std::string, Begun> begun_;     // by state
  std::map<std::string, Device> devices_;  // by handle
  std::map<TokenId, WallTime> used_;
  bool uses_changed_ = false;  // since they were saved
  std::map<TokenId, SteadyTime> checked_;
  std::size_t checking_ = 0;
  net::Timer again_, saved_;
};

namespace sign_in {
// The scopes to ask a provider for.
std::string scopes_of(const identity::Discovery& discovery);
}  // namespace sign_in

// Whether the account belongs to the system and not to a person, by this machine's list.
bool is_system_account(const std::string& unix_name);

}  // namespace billow::api
