#include "s3/objects.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <thread>

#include "base/file.h"
#include "base/text.h"
#include "net/address.h"
#include "net/guard.h"
#include "net/http/blocking_client.h"
#include "s3/xml.h"

namespace billow::s3 {
namespace {

constexpr int tries = 5;
constexpr int redirects_max = 5;

// A name from elsewhere, as a path below a directory.
Status check_name_of_object(std::string_view name) {
  const auto bad = [&](std::string_view why) {
    return fail(Code::invalid, fmt::format("the object \"{}\" {}", name.substr(0, 200), why),
                "name other objects, or rename it in its bucket");
  };
  if (name.size() > 4096 || name.find('\0') != std::string_view::npos || !valid_utf8(name))
    return bad("has no name that a file can have");
  for (const std::string& part : split(name, '/')) {
    if (part == "..")
      return bad("has a name that leads upwards");
    if (part.empty() || part == "." || part.size() > 255)
      return bad("has no name that a file can have");
  }
  return {};
}

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
      return fail(Code::conflict, "the file became shorter while it was read");
    done += static_cast<std::size_t>(n);
  }
  return out;
}

// Looked up once: a name may say something else when it is asked again, so what was checked is what
// is connected to.
Result<std::vector<net::RawAddress>> checked_addresses(const net::Endpoint& endpoint,
                                                       const Objects::Resolve& resolve) {
  // A socket of the node is opened with the rights of whoever fetches, not with the job's.
  if (endpoint.address.is_unix())
    return fail(Code::forbidden, "objects do not come from a socket of the node",
                "name the object's real place");
  const auto addresses =
      BILLOW_TRY(resolve ? resolve(endpoint.address) : net::resolve(endpoint.address));
  for (const net::RawAddress& address : addresses)
    if (net::leads_to_the_machines_cloud(address))
      return fail(Code::forbidden,
                  fmt::format("{} is an address of the machine's own cloud", endpoint.address.host),
                  "name the object's real place");
  if (addresses.empty())
    return fail(Code::unavailable, fmt::format("{} has no address", endpoint.address.host));
  return addresses;
}

}  // namespace

struct Objects::Asked {
  net::Method method = net::Method::get;
  const Place& place;
  std::string key;  // of s3; empty: the bucket itself
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
    return bad("no URL");
  for (const char c : url)
    if (static_cast<unsigned char>(c) < 32 || c == 127)
      return bad("no URL");
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
      return bad("no bucket is called so");
    return out;
  }
  if (!url.starts_with("http://") && !url.starts_with("https://"))
    return bad("neither s3:// nor http");
  const auto host_end = std::min(url.find('/', url.find("://") + 3), url.size());
  if (url.substr(0, host_end).find('@') != std::string_view::npos)
    return bad("a password in a URL is seen by everybody");
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

// One request, asked again where the server or the way to it was in trouble.
Result<Objects::Answer> Objects::call(const Asked& asked) const {
  const Place& place = asked.place;
  std::string base = place.url, path;
  if (place.s3) {
    // A store of one's own is asked by path; Amazon's by the bucket's own name.
    base = access_.endpoint.empty()
               ? fmt::format("https://{}.s3.{}.amazonaws.com", place.bucket, access_.region)
               : access_.endpoint;
    path = encode_path(access_.endpoint.empty()
                           ? "/" + asked.key
                           : "/" + place.bucket + (asked.key.empty() ? "" : "/" + asked.key));
  }
  int redirects = 0;
  for (int attempt = 1;; ++attempt) {
    const net::Url url = BILLOW_TRY(net::parse_url(base));
    const std::string query = encode_query(asked.query);
    net::BlockingClient client(
        {.endpoint = url.endpoint,
         .tls = {},
         .addresses = BILLOW_TRY(checked_addresses(url.endpoint, resolve_))});
    net::BlockingClient::Call request{
        .method = asked.method,
        .target = place.s3 ? path + (query.empty() ? "" : "?" + query) : url.target,
        .headers = asked.headers,
        .body = asked.body,
        .timeout = seconds(120),
        .body_bytes_max = std::size_t{64} << 20};
    if (place.s3)
      sign(request.headers, {asked.method, path, query, url.endpoint.host_header(), asked.body},
           access_, system_clock().wall());
    auto response = client.request(request);
    if (response && response->status >= 300 && response->status < 400 && !place.s3 &&
        response->headers.has("Location") && ++redirects <= redirects_max) {
      std::string to(response->headers.get("Location"));
      if (to.starts_with("/"))
        to = url.endpoint.text() + to;
      if (!to.starts_with("http://") && !to.starts_with("https://"))
        return fail(Code::invalid, fmt::format("{} leads to what is no URL", place.url));
      if (base.starts_with("https://") && to.starts_with("http://"))
        return fail(Code::invalid,
                    fmt::format("{} leads to where nothing is encrypted", place.url));
      base = std::move(to);
      attempt = 0;
      continue;
    }
    const bool passing = !response || response->status >= 500 || response->status == 429;
    if (passing && attempt < tries) {
      ::usleep(static_cast<useconds_t>(150'000 * attempt * attempt));
      continue;
    }
    if (!response)
      return pass(response.error(), place.url);
    if (response->status < 300 || response->status == 404)
      return Answer{response->status, std::move(response->headers), std::move(response->body)};
    const std::string code = element(response->body, "Code"),
                      message = element(response->body, "Message");
    const std::string said = code.empty() ? fmt::format("the server answered {}", response->status)
                                          : fmt::format("{}{}{}", code, message.empty() ? "" : ": ",
                                                        message.substr(0, 300));
    return fail(response->status == 403 || response->status == 401
                    ? Code::forbidden
                    : net::code_of_status(response->status),
                fmt::format("{}: {}", place.url, said),
                response->status == 403 && place.s3
                    ? "the job needs AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and "
                      "AWS_ENDPOINT_URL where the store is not Amazon's)"
                    : "");
  }
}

Result<std::vector<Object>> Objects::list_http(const Place& place) const {
  const Answer head = BILLOW_TRY(call({.method = net::Method::head, .place = place, .key = {}}));
  const auto size = parse_int(head.headers.get("Content-Length"), 0, INT64_MAX);
  if (head.status == 404)
    return fail(Code::not_found, fmt::format("there is nothing at {}", place.url));
  if (!size)
    return fail(Code::unsupported, fmt::format("{} does not say how large it is", place.url));
  std::string tag(head.headers.get("ETag"));
  if (tag.empty())
    tag = std::string(head.headers.get("Last-Modified"));
  return std::vector<Object>{{"", static_cast<std::uint64_t>(*size), tag, ""}};
}

Result<std::vector<Object>> Objects::list(const Place& place) const {
  if (!place.s3)
    return list_http(place);
  if (!place.key.empty() && !place.key.ends_with('/')) {
    const Answer one =
        BILLOW_TRY(call({.method = net::Method::head, .place = place, .key = place.key}));
    if (one.status < 300) {
      const auto size = parse_int(one.headers.get("Content-Length"), 0, INT64_MAX);
      if (!size)
        return fail(Code::unavailable, fmt::format("{} does not say how large it is", place.url));
      return std::vector<Object>{
          {"", static_cast<std::uint64_t>(*size), std::string(one.headers.get("ETag")), place.key}};
    }
  }
  const std::string prefix =
      place.key.empty() || place.key.ends_with('/') ? place.key : place.key + "/";
  std::vector<Object> out;
  for (std::string more;;) {
    Query query{{"list-type", "2"}, {"prefix", prefix}, {"max-keys", "1000"}};
    if (!more.empty())
      query.emplace_back("continuation-token", more);
    const Answer page = BILLOW_TRY(call({.place = place, .key = {}, .query = query}));
    if (page.status == 404)
      return fail(Code::not_found, fmt::format("there is no bucket {}", place.bucket));
    for (const std::string_view item : elements(page.body, "Contents")) {
      Object object;
      object.key = element(item, "Key");
      object.tag = element(item, "ETag");
      const auto size = parse_int(element(item, "Size"), 0, INT64_MAX);
      if (!size || !object.key.starts_with(prefix))
        return fail(Code::unavailable,
                    fmt::format("{}: the server's list cannot be read", place.url));
      object.size = static_cast<std::uint64_t>(*size);
      object.name = object.key.substr(prefix.size());
      if (object.name.empty() || object.name.ends_with('/'))
        continue;  // a directory, as some tools make them
      BILLOW_TRY_VOID(check_name_of_object(object.name));
      out.push_back(std::move(object));
      if (out.size() > objects_per_place_max)
        return fail(Code::too_large,
                    fmt::format("{} holds more than {} objects", place.url, objects_per_place_max),
                    "name a smaller part of it");
    }
    more = element(page.body, "NextContinuationToken");
    if (element(page.body, "IsTruncated") != "true" || more.empty())
      break;
  }
  if (out.empty())
    return fail(Code::not_found, fmt::format("there is nothing at {}", place.url));
  std::sort(out.begin(), out.end(),
            [](const Object& a, const Object& b) { return a.name < b.name; });
  return out;
}

Status Objects::read(const Place& place, const Object& object, int fd) const {
  if (::ftruncate(fd, static_cast<off_t>(object.size)) != 0)
    return fail_errno("make room", errno);
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
      return fail(Code::not_found, fmt::format("{} is gone", place.url));
    if (!whole && got.status != 206)
      return fail(Code::conflict,
                  fmt::format("{} changed while it was read, or its server gives no parts of it",
                              place.url),
                  "try again");
    if (got.body.size() != size)
      return fail(Code::conflict, fmt::format("{} is not as large as it was", place.url),
                  "try again");
    return write_at(fd, got.body, from);
  });
}

Status Objects::write(const Place& place,
                      const std::string& key,
                      int fd,
                      std::uint64_t size) const {
  const auto expect = [&](const Answer& answer) -> Status {
    return answer.status == 404
               ? fail(Code::not_found, fmt::format("there is no bucket {}", place.bucket))
               : Status{};
  };
  // The last part is the largest, so that none is smaller than a store allows; ten thousand of them
  // are the most.
  const std::uint64_t part = std::max<std::uint64_t>(part_bytes, size / 9'000 + 1);
  if (size < 2 * part)
    return expect(
        BILLOW_TRY(call({.method = net::Method::put,
                         .place = place,
                         .key = key,
                         .body = BILLOW_TRY(read_at(fd, 0, static_cast<std::size_t>(size)))})));
  const Answer begun = BILLOW_TRY(
      call({.method = net::Method::post, .place = place, .key = key, .query = {{"uploads", ""}}}));
  BILLOW_TRY_VOID(expect(begun));
  const std::string upload = element(begun.body, "UploadId");
  if (upload.empty())
    return fail(Code::unavailable, fmt::format("{}: the server takes no parts", place.url));
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
    BILLOW_TRY_VOID(expect(kept));
    tags[i] = std::string(kept.headers.get("ETag"));
    return {};
  });
  if (!sent) {
    (void)call({.method = net::Method::del,
                .place = place,
                .key = key,
                .query = {{"uploadId", upload}}});  // or its parts would be paid for
    return sent;
  }
  std::string body = "<CompleteMultipartUpload>";
  for (std::size_t i = 0; i < parts; ++i)
    body += fmt::format("<Part><PartNumber>{}</PartNumber><ETag>{}</ETag></Part>", i + 1,
                        escape_xml(tags[i]));
  body += "</CompleteMultipartUpload>";
  const Answer done = BILLOW_TRY(call({.method = net::Method::post,
                                       .place = place,
                                       .key = key,
                                       .query = {{"uploadId", upload}},
                                       .body = body}));
  // The answer may be an error although its status was sent before that was known.
  if (!element(done.body, "Code").empty())
    return fail(Code::unavailable, fmt::format("{}: {}", place.url, element(done.body, "Message")));
  return expect(done);
}

}  // namespace billow::s3
