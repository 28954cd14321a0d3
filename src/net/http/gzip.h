// Compresses answers for clients that accept gzip (RFC 1952, RFC 1951). Prometheus and proxies read
// nothing else, and a scrape of a thousand GPUs shrinks to a tenth. One pass with fixed codes: text
// that repeats itself, such as metrics and JSON, loses little against a better compressor.
#pragma once

#include <string>
#include <string_view>

#include "net/http/http.h"

namespace billow::net {

std::string gzip(std::string_view text);
// Whether the client accepts an encoding: it is named, or "*" is, and not with q=0.
bool accepts_encoding(const Request& request, std::string_view encoding);
// Compresses the body if the client accepts that and it is worth the time.
void compress_for(const Request& request, Response& response);

}  // namespace billow::net
