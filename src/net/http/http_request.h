// Formats requests for both clients. Internal to net.
#pragma once

#include "net/address.h"
#include "net/http/http.h"

namespace billow::net {

// The head of a request, including its empty line. Fails on header fields or targets that would
// break the framing.
Result<std::string> request_head(const Endpoint& endpoint,
                                 Method method,
                                 std::string_view target,
                                 const Headers& headers,
                                 std::optional<std::uint64_t> body_bytes);
bool repeatable(Method method);

}  // namespace billow::net
