// AWS Signature Version 4, as every S3-compatible store checks it.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "net/http/http.h"

namespace billow::s3 {

struct Access {
  std::string access_key, secret_key,
      session_token;  // no key: asked without a signature, as for public buckets
  std::string region = "us-east-1";
  std::string endpoint;  // "http://127.0.0.1:9000"; empty: Amazon's
};

using Query = std::vector<std::pair<std::string, std::string>>;

// "/a b" → "/a%20b", "/" stays.
std::string encode_path(std::string_view path);
// Sorted and encoded, as it is signed and sent.
std::string encode_query(Query query);

// Adds Host's companions (x-amz-date, x-amz-content-sha256, the token) and Authorization.
struct ToSign {
  net::Method method = net::Method::get;
  std::string path;   // encoded
  std::string query;  // encoded
  std::string host;
  std::string_view body;
};
void sign(net::Headers& headers, const ToSign& request, const Access& access, WallTime now);

}  // namespace billow::s3
