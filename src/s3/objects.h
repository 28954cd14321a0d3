// Objects by their URLs: "s3://bucket/key or prefix", "https://host/path". Blocking; several
// threads may use one.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "net/address.h"
#include "s3/sign.h"

namespace billow::s3 {

inline constexpr std::size_t objects_per_place_max = 100'000;
inline constexpr std::size_t part_bytes = 16 << 20;  // of a large object, read or written at once
inline constexpr std::size_t connections = 4;

struct Place {
  bool s3 = false;
  std::string bucket, key;  // of s3
  std::string url;          // as written
};
// Refuses what is neither, and URLs with a password in them.
Result<Place> parse_place(std::string_view url);

// The variables that every S3 tool reads.
Access access_of(const std::function<std::string(const char* variable)>& get);

struct Object {
  std::string name;  // relative to the place; empty: the place is this one object
  std::uint64_t size = 0;
  std::string tag;  // changes when the content does; empty: cannot be told
  std::string key;  // of s3
};

class Objects {
 public:
  using Resolve = std::function<Result<std::vector<net::RawAddress>>(
      const net::Address&)>;  // another one is for tests
  explicit Objects(Access access, Resolve resolve = {})
      : access_(std::move(access)), resolve_(std::move(resolve)) {}

  // The object at the place, or everything below it as of a directory. Nothing there: not_found. A
  // name that is no plain relative path is an error.
  Result<std::vector<Object>> list(const Place& place) const;
  // The whole of it into the file, several parts at once. An object that changed since it was
  // listed is an error.
  Status read(const Place& place, const Object& object, int fd) const;
  // The file as the object at `key` in the place's bucket. Parts where it is large.
  Status write(const Place& place, const std::string& key, int fd, std::uint64_t size) const;

 private:
  struct Asked;
  struct Answer;
  Result<Answer> call(const Asked& asked) const;
  Result<std::vector<Object>> list_http(const Place& place) const;

  Access access_;
  Resolve resolve_;
};

// Calls fn for 0..count-1 on a few threads; the first error ends it.
Status in_parallel(std::size_t count,
                   std::size_t threads,
                   const std::function<Status(std::size_t)>& fn);

}  // namespace billow::s3
