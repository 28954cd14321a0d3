// AWS Signature Version 4, used by all S3-compatible stores and by Amazon's other services.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "net/http/http.h"

namespace billow::s3 {

struct Access {
  std::string access_key, secret_key, session_token;  // no key: unsigned, as for public buckets
  std::string region = "us-east-1";
  std::string service = "s3";
  std::string endpoint;  // "http://127.0.0.1:9000"; empty: Amazon S3
};

using Query = std::vector<std::pair<std::string, std::string>>;

// "/a b" → "/a%20b"; "/" is kept.
std::string encode_path(std::string_view path);
// Sorted and encoded: the form that is signed and sent.
std::string encode_query(Query query);

// Adds x-amz-date, x-amz-content-sha256, the session token and Authorization.
struct ToSign {
  net::Method method = net::Method::get;
  std::string path;   // encoded
  std::string query;  // encoded
  std::string host;
  std::string_view body;
};
void sign(net::Headers& headers, const ToSign& request, const Access& access, WallTime now);

}  // namespace billow::s3
