// MCP over stdin and stdout: one message per line. Calls run on threads of their own, so that a
// client can ask for other things, or cancel one, while it waits.
#pragma once

#include <functional>

#include "client/frame/client.h"

namespace billow::client::mcp {

inline constexpr std::size_t calls_max = 8;  // at a time; further ones are refused

using Connect = std::function<Result<Client>()>;

// Until the input ends. Calls that still run are cancelled then.
void serve_stdio(const Connect& connect, int in, int out);

}  // namespace billow::client::mcp
