// Reads what S3-compatible stores answer with. The bytes are a stranger's: names are checked before
// they become paths, and a listing ends, whatever the store says.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "s3/objects.h"

namespace billow::s3 {

// A store that lists few objects per page still gets through; one that never ends does not.
inline constexpr std::size_t listing_pages_max = 10'000;

// The pages of one listing, in their order.
class Listing {
 public:
  Listing(const Place& place, std::string prefix) : place_(place), prefix_(std::move(prefix)) {}
  // After it `next` is the token of the next page; empty after the last one.
  Status take(std::string_view page);
  const std::string& next() const { return next_; }
  // All objects so far, sorted by name.
  std::vector<Object> objects() &&;

 private:
  const Place& place_;
  std::string prefix_, next_;
  std::vector<Object> objects_;
  std::size_t pages_ = 0;
};

// The code and message of an S3 error document; empty if the body is something else.
std::string error_in(std::string_view body);
// The name of an upload in parts that has begun; empty if the answer has none.
std::string upload_in(std::string_view body);

}  // namespace billow::s3
