// How a browser signs in. A session is a short-lived token made from another one and kept in a
// cookie that scripts cannot read, so it survives a restart of the head and can be revoked like any
// token. It expires with the token it came from at the latest, cannot create further sessions, and
// is no bearer token: a stolen cookie is useless outside a browser's rules for cookies. `billow
// dashboard` asks for a code that works once within two minutes, and passes it to the browser
// behind the #, where no server and no log sees it.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "core/control/decide/decide.h"
#include "net/http/http.h"

namespace billow::api {

inline constexpr char session_cookie[] = "billow_session";

class SignInCodes {
 public:
  std::string make(TokenId from, SteadyTime now);
  TokenId take(const std::string& code,
               SteadyTime now);  // the token to make a session from; zero: invalid or used

 private:
  struct Code {
    TokenId from;
    SteadyTime until;
  };
  std::map<std::string, Code> codes_;
};

// The tokens of people who signed in by their account on the head's machine. One token serves a
// user for a day, so that commands do not fill the journal; the secrets are in memory only.
class AccountTokens {
 public:
  struct Given {
    TokenId id;
    std::string secret;
    WallTime until;
  };
  void keep(UserId user, Given given) { given_[user] = std::move(given); }
  // One that still works and lasts for half of its life at least; null: a new one is needed.
  const Given* usable(const control::State& state, UserId user, WallTime now) const;
  static constexpr Duration life = hours(24);

 private:
  std::map<UserId, Given> given_;
};

// Calls that were refused, gathered by network and user: the first of a minute is recorded at once,
// those that follow are counted in the next record. The number of records is limited, so that
// nobody can fill the journal; users and strangers have limits of their own, so that a flood
// without a token hides no refusal of a user. What exceeds a limit is counted in one record for
// all.
class DeniedCalls {
 public:
  // What is to be recorded now. Refusals of callers that showed no credential are not counted:
  // that is what a browser does before it signs in.
  std::vector<AccessDenied> note(const net::Request& request,
                                 const std::string& user,
                                 const Error& error,
                                 SteadyTime now);

 private:
  struct Peer {
    AccessDenied last;
    SteadyTime recorded_at;
  };
  static AccessDenied nothing() {
    AccessDenied none;
    none.count = 0;
    return none;
  }
  struct Table {
    int records_max = 0;  // a minute
    std::map<std::string, Peer> peers;
    SteadyTime minute = {};
    int this_minute = 0;
    // Of peers that were not recorded any more; its count is 0 if there were none.
    AccessDenied others = nothing();
  };
  static void record(Table& table,
                     AccessDenied event,
                     std::vector<AccessDenied>& due,
                     bool own = true);
  static void flush(Table& table, SteadyTime now, std::vector<AccessDenied>& due);
  Table users_{200}, strangers_{50};
};

// Checks the signatures of nodes: fresh by the head's clock, of a known key, and used once. Which
// ones were used is forgotten when a head ends, so the next one accepts only those that were made
// after its own start.
class NodeSignatures {
 public:
  void begin(WallTime now) { since_s_ = now.ns / 1'000'000'000; }
  enum class Use { look, spend };
  Result<control::Principal> authenticate(const control::State& state,
                                          const net::Request& request,
                                          WallTime now,
                                          Use use);

 private:
  std::set<std::pair<std::int64_t, std::string>> used_;  // time in seconds, key and nonce
  std::int64_t since_s_ = 0;
};

// "10.0.0.7" of "10.0.0.7:51234"; the peer of a Unix socket stays as it is.
std::string peer_host(const std::string& peer);

// A token without the fingerprint of the head's authority behind a dot, which is for its holder.
std::string_view secret_of(std::string_view token);
// The token that a session's value names as its origin.
std::optional<TokenId> session_from(std::string_view value);
// The session's value in the Cookie header; empty: none.
std::string session_token(const net::Request& request);
// A browser sends its cookie with every request, whichever page makes it (CSRF). Requests that
// change something must prove that our own page made them: by a header that other pages cannot
// send, or, for a WebSocket, by its origin.
bool asked_by_our_page(const net::Request& request);

}  // namespace billow::api
