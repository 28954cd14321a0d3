// How a browser signs in. A session is a token of limited life that came from another one, kept in
// a cookie that scripts cannot read, so it survives a restart of the head and can be revoked like
// any other. It ends with the token it came from at the latest, makes no further session, and is no
// bearer token: a cookie that got into the wrong hands opens nothing without the rules that hold
// for cookies. `billow dashboard` asks for a code that works once and within two minutes, and hands
// it to the browser behind the #, where no server and no log sees it.
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
               SteadyTime now);  // whose session it begins; zero: not valid, or used before

 private:
  struct Code {
    TokenId from;
    SteadyTime until;
  };
  std::map<std::string, Code> codes_;
};

// A token as people hold it, without the fingerprint of this head's authority behind a dot, which
// is for its holder to check.
std::string_view secret_of(std::string_view token);
// Which token a session's value says that it came from.
std::optional<TokenId> session_from(std::string_view value);
// The session's value out of the Cookie header; empty where there is none.
std::string session_token(const net::Request& request);
// A browser sends its cookie along with whatever any page asks of it. What changes something must
// show that our own page asked: by a header other pages cannot send, or, for a WebSocket, by its
// origin.
bool asked_by_our_page(const net::Request& request);

}  // namespace billow::api
