// `billow keepalive` inside a job: the request to the agent of its node, over a socket in the
// abstract namespace.
//
// One line in ("7200 waiting for an approval": seconds and a reason), one line out ("ok 7200" or
// "error …").
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <string>
#include <utility>

#include "base/clock.h"
#include "base/result.h"

namespace billow::net {

inline constexpr const char* keepalive_variable = "BILLOW_AGENT_SOCKET";

// An address without a file: a leading zero byte, then the name.
std::pair<sockaddr_un, socklen_t> abstract_address(const std::string& name);
Result<Duration> ask_keepalive(const std::string& name, Duration lasts, const std::string& reason);

}  // namespace billow::net
