// How a browser signs in. A session is an ordinary token of limited life, kept in a cookie that scripts cannot read, so it survives
// a restart of the head and can be revoked like any other. `billow dashboard` asks for a code that works once and within two
// minutes, and hands it to the browser behind the #, where no server and no log sees it.
#pragma once

#include <map>
#include <string>

#include "base/clock.h"
#include "base/ids.h"
#include "net/http.h"

namespace billow::api {

inline constexpr char session_cookie[] = "billow_session";

class SignInCodes {
 public:
  std::string make(UserId user, SteadyTime now);
  UserId take(const std::string& code, SteadyTime now);  // zero: not valid, or used before

 private:
  struct Code {
    UserId user;
    SteadyTime until;
  };
  std::map<std::string, Code> codes_;
};

// The session's token out of the Cookie header; empty where there is none.
std::string session_token(const net::Request& request);
// A browser sends its cookie along with whatever any page asks of it. What changes something must show that our own page asked: by
// a header other pages cannot send, or, for a WebSocket, by its origin.
bool asked_by_our_page(const net::Request& request);

}  // namespace billow::api
