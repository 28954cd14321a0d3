// Reads and writes objects by URL: "s3://bucket/key or prefix", "https://host/path". Blocking; may
// be used by several threads.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "net/address.h"
#include "net/http/http.h"
#include "s3/sign.h"

namespace billow::s3 {

inline constexpr std::size_t objects_per_place_max = 100'000;
inline constexpr std::size_t part_bytes = 16 << 20;  // part size of large objects
inline constexpr std::size_t connections = 4;

struct Place {
  bool s3 = false;
  std::string bucket, key;  // of s3
  std::string url;          // as written
};
// Rejects other URLs, and URLs that contain a password.
Result<Place> parse_place(std::string_view url);

// Reads the environment variables that all S3 tools use.
Access access_of(const std::function<std::string(const char* variable)>& get);

struct Object {
  std::string name;  // relative to the place; empty if the place is one object
  std::uint64_t size = 0;
  std::string tag;  // changes with the content; empty: unknown
  std::string key;  // of s3
};

// On whose behalf objects are fetched. Addresses that are not permitted are not connected to; `run`
// calls what it is given, in this thread, in a way that sockets made meanwhile belong to the
// caller.
struct Caller {
  std::function<bool(const net::RawAddress&)> permits;    // empty: all
  std::function<void(const std::function<void()>&)> run;  // empty: as this process
};

class Objects {
 public:
  // Replaced by tests only.
  using Resolve = std::function<Result<std::vector<net::RawAddress>>(const net::Address&)>;
  explicit Objects(Access access, Resolve resolve = {}, Caller caller = {})
      : access_(std::move(access)), resolve_(std::move(resolve)), caller_(std::move(caller)) {}

  // The object at the place, or all objects below it as in a directory. not_found if there is none.
  // A name that is not a plain relative path is an error.
  Result<std::vector<Object>> list(const Place& place) const;
  // Reads the object into the file, several parts at once. It is an error if the object has changed
  // since it was listed.
  Status read(const Place& place, const Object& object, int fd) const;
  // Writes the file to the object `key` in the bucket of the place; a large one in parts.
  Status write(const Place& place, const std::string& key, int fd, std::uint64_t size) const;

 private:
  struct Asked;
  struct Answer;
  struct Route;
  Route route(const Asked& asked) const;
  Result<net::Response> send_once(const Asked& asked,
                                  const Route& route,
                                  const net::Url& url,
                                  std::vector<net::RawAddress> addresses) const;
  Result<Answer> call(const Asked& asked) const;
  Status write_parts(const Place& place,
                     const std::string& key,
                     int fd,
                     std::uint64_t size,
                     std::uint64_t part) const;
  Status complete_upload(const Place& place,
                         const std::string& key,
                         const std::string& upload,
                         const std::vector<std::string>& tags) const;
  Result<std::vector<Object>> list_http(const Place& place) const;

  Access access_;
  Resolve resolve_;
  Caller caller_;
};

// Calls fn for 0..count-1 on a few threads and stops at the first error.
Status in_parallel(std::size_t count,
                   std::size_t threads,
                   const std::function<Status(std::size_t)>& fn);

}  // namespace billow::s3
