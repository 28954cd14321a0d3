#include "s3/objects.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <thread>

#include "base/backoff.h"
#include "base/crypto.h"
#include "base/file.h"
#include "base/text.h"
#include "net/address.h"
#include "net/guard.h"
#include "net/http/blocking_client.h"
#include "net/xml.h"
#include "s3/answers.h"

namespace billow::s3 {
namespace {

constexpr int tries = 5;
constexpr Duration first_pause = milliseconds(300);
constexpr Duration longest_pause = seconds(5);
constexpr int redirects_max = 5;

Status write_at(int fd, std::string_view data, std::uint64_t offset) {
  while (!data.empty()) {
    const ssize_t n = ::pwrite(fd, data.data(), data.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return fail_errno("write", errno);
    data.remove_prefix(static_cast<std::size_t>(n));
    offset += static_cast<std::size_t>(n);
  }
  return {};
}

Result<std::string> read_at(int fd, std::uint64_t offset, std::size_t size) {
  std::string out(size, '\0');
  for (std::size_t done = 0; done < size;) {
    const ssize_t n =
        ::pread(fd, out.data() + done, size - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      return fail_errno("read", errno);
    if (n == 0)
      return fail(Code::conflict, "the file was truncated while it was read");
    done += static_cast<std::size_t>(n);
  }
  return out;
}

// Resolved once: a second look-up could return something else, so the checked address is the one
// that is connected to.
Result<std::vector<net::RawAddress>> checked_addresses(const net::Endpoint& endpoint,
                                                       const Objects::Resolve& resolve,
                                                       const Caller& caller) {
  // A Unix socket would be opened with the rights of the agent, not with those of the job.
  if (endpoint.address.is_unix())
    return fail(Code::forbidden, "objects cannot be read from a Unix socket of the node",
                "use the URL of the object");
  auto addresses = BILLOW_TRY(resolve ? resolve(endpoint.address) : net::resolve(endpoint.address));
  for (const net::RawAddress& address : addresses)
    if (net::leads_to_the_machines_cloud(address))
      return fail(
          Code::forbidden,
          fmt::format("{} is an internal address of the cloud provider", endpoint.address.host),
          "use the URL of the object");
  if (addresses.empty())
    return fail(Code::unavailable,
                fmt::format("the host {} has no address", endpoint.address.host));
  if (caller.permits)
    std::erase_if(addresses, [&](const auto& address) { return !caller.permits(address); });
  if (addresses.empty())
    return fail(Code::forbidden, fmt::format("{} is not a public address", endpoint.address.host),
                "jobs without the node's network get inputs from the Internet only; a job with "
                "--network internet --allow BLOCK also gets them from this private network");
  return addresses;
}

Result<std::uint64_t> size_of(const net::Headers& headers, const Place& place) {
  const auto size = parse_int(headers.get("Content-Length"), 0, INT64_MAX);
  if (!size)
    return fail(Code::unsupported,
                fmt::format("{}: the server does not report its size", place.url));
  return static_cast<std::uint64_t>(*size);
}

std::unexpected<Error> no_bucket(const Place& place) {
  return fail(Code::not_found, fmt::format("the bucket {} does not exist", place.bucket));
}
std::unexpected<Error> nothing_at(const Place& place) {
  return fail(Code::not_found, fmt::format("{} does not exist", place.url));
}

}  // namespace

struct Objects::Asked {
  net::Method method = net::Method::get;
  const Place& place;
  std::string key;  // of s3; empty: the bucket
  Query query = {};
  net::Headers headers = {};
  std::string body = {};
};
struct Objects::Answer {
  int status = 0;
  net::Headers headers;
  std::string body;
};

Result<Place> parse_place(std::string_view url) {
  Place out;
  out.url = std::string(url);
  const auto bad = [&](std::string_view why) {
    return fail(Code::invalid, fmt::format("{}: {}", url, why),
                "write it like s3://bucket/data or https://host/file");
  };
  if (!valid_utf8(url) || url.size() > 4096)
    return bad("not a valid URL");
  for (const char c : url)
    if (static_cast<unsigned char>(c) < 32 || c == 127)
      return bad("not a valid URL");
  if (url.starts_with("s3://")) {
    out.s3 = true;
    const std::string_view rest = url.substr(5);
    const auto slash = std::min(rest.find('/'), rest.size());
    out.bucket = std::string(rest.substr(0, slash));
    out.key = std::string(rest.substr(std::min(slash + 1, rest.size())));
    if (out.bucket.empty() || out.bucket.size() > 255 ||
        !std::all_of(out.bucket.begin(), out.bucket.end(), [](char c) {
          return std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '.' || c == '_';
        }))
      return bad("the bucket name is not valid");
    return out;
  }
  if (!url.starts_with("http://") && !url.starts_with("https://"))
    return bad("the URL must start with s3://, http:// or https://");
  const auto host_end = std::min(url.find('/', url.find("://") + 3), url.size());
  if (url.substr(0, host_end).find('@') != std::string_view::npos)
    return bad("a URL must not contain a password, because other users could see it");
  BILLOW_TRY_VOID(net::parse_url(url));
  return out;
}

Access access_of(const std::function<std::string(const char*)>& get) {
  Access out;
  out.access_key = get("AWS_ACCESS_KEY_ID");
  out.secret_key = get("AWS_SECRET_ACCESS_KEY");
  out.session_token = get("AWS_SESSION_TOKEN");
  for (const char* name : {"AWS_DEFAULT_REGION", "AWS_REGION"})
    if (const std::string value = get(name); !value.empty())
      out.region = value;
  for (const char* name : {"AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"})
    if (const std::string value = get(name); !value.empty())
      out.endpoint = value;
  while (out.endpoint.ends_with('/'))
    out.endpoint.pop_back();
  return out;
}

Status in_parallel(std::size_t count,
                   std::size_t threads,
                   const std::function<Status(std::size_t)>& fn) {
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  Status trouble;
  const auto work = [&] {
    for (std::size_t i; (i = next++) < count;) {
      const Status done = fn(i);
      if (done)
        continue;
      std::lock_guard lock(mutex);
      if (trouble)
        trouble = done;
      next = count;
    }
  };
  std::vector<std::thread> others;
  for (std::size_t i = 1; i < std::min(threads, count); ++i)
    others.emplace_back(work);
  work();
  for (std::thread& thread : others)
    thread.join();
  return trouble;
}

// Where a request goes: the server with its scheme, and the path and query on it.
struct Objects::Route {
  std::string base;
  std::string path;   // encoded; of s3
  std::string query;  // encoded; of s3
};

Objects::Route Objects::route(const Asked& asked) const {
  const Place& place = asked.place;
  if (!place.s3)
    return {place.url, "", ""};
  // Amazon addresses buckets by host name, other stores by path.
  const bool amazon = access_.endpoint.empty();
  const std::string object = asked.key.empty() ? "" : "/" + asked.key;
  return {amazon ? fmt::format("https://{}.s3.{}.amazonaws.com", place.bucket, access_.region)
                 : access_.endpoint,
          encode_path(amazon ? "/" + asked.key : "/" + place.bucket + object),
          encode_query(asked.query)};
}

Result<net::Response> Objects::send_once(const Asked& asked,
                                         const Route& route,
                                         const net::Url& url,
                                         std::vector<net::RawAddress> addresses) const {
  net::BlockingClient client(
      {.endpoint = url.endpoint, .tls = {}, .addresses = std::move(addresses)});
  const std::string query = route.query.empty() ? "" : "?" + route.query;
  net::BlockingClient::Call request{.method = asked.method,
                                    .target = asked.place.s3 ? route.path + query : url.target,
                                    .headers = asked.headers,
                                    .body = asked.body,
                                    .timeout = seconds(120),
                                    .body_bytes_max = std::size_t{64} << 20};
  if (asked.place.s3)
    sign(request.headers,
         {asked.method, route.path, route.query, url.endpoint.host_header(), asked.body}, access_,
         system_clock().wall());
  if (!caller_.run)
    return client.request(request);
  Result<net::Response> response = fail(Code::internal, "the request was not sent");
  caller_.run([&] { response = client.request(request); });
  return response;
}

namespace {

// The URL that an HTTP redirect leads to.
Result<std::string> redirected(const Place& place, const std::string& from, std::string to) {
  if (to.starts_with("/"))
    to = BILLOW_TRY(net::parse_url(from)).endpoint.text() + to;
  if (!to.starts_with("http://") && !to.starts_with("https://"))
    return fail(Code::invalid,
                fmt::format("{} redirects to an address that is not an HTTP URL", place.url));
  if (from.starts_with("https://") && to.starts_with("http://"))
    return fail(Code::invalid,
                fmt::format("{} redirects from https to unencrypted http", place.url));
  return to;
}

std::unexpected<Error> refused(const Place& place, const net::Response& response) {
  const bool denied = response.status == 403 || response.status == 401;
  const std::string error = error_in(response.body);
  return fail(
      denied ? Code::forbidden : net::code_of_status(response.status),
      fmt::format("{}: {}", place.url,
                  error.empty() ? fmt::format("the server answered {}", response.status) : error),
      response.status == 403 && place.s3
          ? "the job needs AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and "
            "AWS_ENDPOINT_URL if the store is not Amazon S3)"
          : "");
}

}  // namespace

// One request, repeated while the server or the connection fails.
Result<Objects::Answer> Objects::call(const Asked& asked) const {
  const Place& place = asked.place;
  Route route = this->route(asked);
  Backoff backoff(first_pause, longest_pause);
  Rng rng(random_u64());
  int redirects = 0;
  for (int attempt = 1;; ++attempt) {
    const net::Url url = BILLOW_TRY(net::parse_url(route.base));
    auto addresses = BILLOW_TRY(checked_addresses(url.endpoint, resolve_, caller_));
    auto response = send_once(asked, route, url, std::move(addresses));
    const bool redirect = response && response->status >= 300 && response->status < 400 &&
                          response->headers.has("Location");
    if (redirect && !place.s3 && ++redirects <= redirects_max) {
      route.base =
          BILLOW_TRY(redirected(place, route.base, std::string(response->headers.get("Location"))));
      attempt = 0;
      continue;
    }
    const bool may_pass = !response || response->status >= 500 || response->status == 429;
    if (may_pass && attempt < tries) {
      ::usleep(static_cast<useconds_t>(backoff.next(rng).ns / 1000));
      continue;
    }
    if (!response)
      return pass(response.error(), place.url);
    if (response->status < 300 || response->status == 404)
      return Answer{response->status, std::move(response->headers), std::move(response->body)};
    return refused(place, *response);
  }
}

Result<std::vector<Object>> Objects::list_http(const Place& place) const {
  const Answer head = BILLOW_TRY(call({.method = net::Method::head, .place = place, .key = {}}));
  if (head.status == 404)
    return nothing_at(place);
  const std::uint64_t size = BILLOW_TRY(size_of(head.headers, place));
  std::string tag(head.headers.get("ETag"));
  if (tag.empty())
    tag = std::string(head.headers.get("Last-Modified"));
  return std::vector<Object>{{"", size, tag, ""}};
}

Result<std::vector<Object>> Objects::list(const Place& place) const {
  if (!place.s3)
    return list_http(place);
  if (!place.key.empty() && !place.key.ends_with('/')) {
    const Answer one =
        BILLOW_TRY(call({.method = net::Method::head, .place = place, .key = place.key}));
    if (one.status < 300)
      return std::vector<Object>{{"", BILLOW_TRY(size_of(one.headers, place)),
                                  std::string(one.headers.get("ETag")), place.key}};
  }
  const std::string prefix =
      place.key.empty() || place.key.ends_with('/') ? place.key : place.key + "/";
  Listing listing(place, prefix);
  do {
    Query query{{"list-type", "2"}, {"prefix", prefix}, {"max-keys", "1000"}};
    if (!listing.next().empty())
      query.emplace_back("continuation-token", listing.next());
    const Answer page = BILLOW_TRY(call({.place = place, .key = {}, .query = query}));
    if (page.status == 404)
      return no_bucket(place);
    BILLOW_TRY_VOID(listing.take(page.body));
  } while (!listing.next().empty());
  std::vector<Object> out = std::move(listing).objects();
  if (out.empty())
    return nothing_at(place);
  return out;
}

Status Objects::read(const Place& place, const Object& object, int fd) const {
  if (::ftruncate(fd, static_cast<off_t>(object.size)) != 0)
    return fail_errno("reserve space for the object", errno);
  const std::size_t parts = (object.size + part_bytes - 1) / part_bytes;
  return in_parallel(parts, connections, [&](std::size_t i) -> Status {
    const std::uint64_t from = std::uint64_t{i} * part_bytes;
    const std::uint64_t size = std::min<std::uint64_t>(part_bytes, object.size - from);
    Asked asked{.place = place, .key = object.key};
    const bool whole = parts == 1;
    if (!whole)
      asked.headers.set("Range", fmt::format("bytes={}-{}", from, from + size - 1));
    if (!object.tag.empty() && object.tag.find('"') != std::string::npos &&
        !object.tag.starts_with("W/"))
      asked.headers.set(place.s3 ? "If-Match" : "If-Range", object.tag);
    const Answer got = BILLOW_TRY(call(asked));
    if (got.status == 404)
      return fail(Code::not_found, fmt::format("{} was deleted while it was read", place.url));
    if (!whole && got.status != 206)
      return fail(Code::conflict,
                  fmt::format("{} changed while it was read, or its server does not support ranges",
                              place.url),
                  "try again");
    if (got.body.size() != size)
      return fail(Code::conflict, fmt::format("{} changed its size while it was read", place.url),
                  "try again");
    return write_at(fd, got.body, from);
  });
}

// The last part is the largest, so that no part is below the minimum size of a store. A store
// accepts at most 10,000 parts.
Status Objects::write(const Place& place,
                      const std::string& key,
                      int fd,
                      std::uint64_t size) const {
  const std::uint64_t part = std::max<std::uint64_t>(part_bytes, size / 9'000 + 1);
  if (size >= 2 * part)
    return write_parts(place, key, fd, size, part);
  const Answer answer =
      BILLOW_TRY(call({.method = net::Method::put,
                       .place = place,
                       .key = key,
                       .body = BILLOW_TRY(read_at(fd, 0, static_cast<std::size_t>(size)))}));
  return answer.status == 404 ? Status(no_bucket(place)) : Status();
}

Status Objects::write_parts(const Place& place,
                            const std::string& key,
                            int fd,
                            std::uint64_t size,
                            std::uint64_t part) const {
  const Answer begun = BILLOW_TRY(
      call({.method = net::Method::post, .place = place, .key = key, .query = {{"uploads", ""}}}));
  if (begun.status == 404)
    return no_bucket(place);
  const std::string upload = upload_in(begun.body);
  if (upload.empty())
    return fail(Code::unavailable,
                fmt::format("{}: the server does not accept uploads in parts", place.url));
  const std::size_t parts = static_cast<std::size_t>(size / part);
  std::vector<std::string> tags(parts);
  const Status sent = in_parallel(parts, connections, [&](std::size_t i) -> Status {
    const std::uint64_t from = i * part;
    const std::uint64_t bytes = i + 1 == parts ? size - from : part;
    const Answer kept =
        BILLOW_TRY(call({.method = net::Method::put,
                         .place = place,
                         .key = key,
                         .query = {{"partNumber", fmt::format("{}", i + 1)}, {"uploadId", upload}},
                         .body = BILLOW_TRY(read_at(fd, from, static_cast<std::size_t>(bytes)))}));
    if (kept.status == 404)
      return no_bucket(place);
    tags[i] = std::string(kept.headers.get("ETag"));
    return {};
  });
  if (!sent) {
    // Otherwise the store would keep the parts and charge for them.
    (void)call(
        {.method = net::Method::del, .place = place, .key = key, .query = {{"uploadId", upload}}});
    return sent;
  }
  return complete_upload(place, key, upload, tags);
}

Status Objects::complete_upload(const Place& place,
                                const std::string& key,
                                const std::string& upload,
                                const std::vector<std::string>& tags) const {
  std::string body = "<CompleteMultipartUpload>";
  for (std::size_t i = 0; i < tags.size(); ++i)
    body += fmt::format("<Part><PartNumber>{}</PartNumber><ETag>{}</ETag></Part>", i + 1,
                        net::escape_xml(tags[i]));
  body += "</CompleteMultipartUpload>";
  const Answer done = BILLOW_TRY(call({.method = net::Method::post,
                                       .place = place,
                                       .key = key,
                                       .query = {{"uploadId", upload}},
                                       .body = body}));
  if (done.status == 404)
    return no_bucket(place);
  // The store sends the status before it knows the result, so the body may still be an error.
  const std::string error = error_in(done.body);
  if (!error.empty())
    return fail(Code::unavailable, fmt::format("{}: {}", place.url, error));
  return {};
}

}  // namespace billow::s3
