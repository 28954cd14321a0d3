// How a browser signs in. A session is a short-lived token made from another one and kept in a
// cookie that scripts cannot read, so it survives a restart of the head and can be revoked like any
// token. It expires with the token it came from at the latest, cannot create further sessions, and
// is no bearer token: a stolen cookie is useless outside a browser's rules for cookies. `billow
// dashboard` asks for a code that works once within two minutes, and passes it to the browser
// behind the #, where no server and no log sees it.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/ids.h"
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
