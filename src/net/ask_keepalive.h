// `billow keepalive` inside a job: the request to the agent of its node, over a Unix socket.
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

// The address of a Unix socket: a path, or (for jobs that older agents started) a name in the
// abstract namespace, which has no file. A path that is too long gets an address of size 0.
std::pair<sockaddr_un, socklen_t> socket_address(const std::string& name);
Result<Duration> ask_keepalive(const std::string& name, Duration lasts, const std::string& reason);

}  // namespace billow::net
