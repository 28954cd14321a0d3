// Files that are built into the program: the dashboard's and the Python package.
//
// web/build.mjs packs the dashboard's files into one: a line of JSON that lists their names, types
// and sizes, then their contents, each as it is, gzipped and as brotli. A name contains a hash of
// the content, so browsers may cache it indefinitely; only the page itself is asked for again, and
// answered with 304.
#include <fmt/format.h>

#include "api/call.h"
#include "base/crypto.h"
#include "docs/pages.h"
#include "net/http/gzip.h"

std::string_view billow_embedded_page();
std::string_view billow_embedded_assets();
std::string_view billow_embedded_sdk_wheel();

namespace billow::api {

void Call::reply_validated(net::Response response) const {
  const std::string tag = "\"" + sha256_hex(response.body).substr(0, 20) + "\"";
  response.headers.set("ETag", tag);
  response.headers.set("Cache-Control", "no-cache");
  if (request().headers.get("If-None-Match").find(tag) != std::string_view::npos) {
    response.status = 304;
    response.body.clear();
    response.headers.remove("Content-Type");
    return exchange->respond(std::move(response));
  }
  net::compress_for(request(), response);
  exchange->respond(std::move(response));
}

namespace dashboard {
namespace {

struct Asset {
  std::string type;
  std::string_view content, gzip, brotli;
};

std::map<std::string, Asset, std::less<>> unpack(std::string_view pack) {
  std::map<std::string, Asset, std::less<>> out;
  const std::size_t end = std::min(pack.find('\n'), pack.size());
  const auto list = parse_json(pack.substr(0, end));
  if (!list)
    return out;
  pack.remove_prefix(std::min(end + 1, pack.size()));
  const auto take = [&](const Json& bytes) {
    const std::string_view part = pack.substr(0, bytes.uint_or(0));
    pack.remove_prefix(part.size());
    return part;
  };
  for (const Json& item : list->items()) {
    Asset asset{std::string(item["type"].str_or("")), take(item["bytes"]), {}, {}};
    asset.gzip = take(item["gzip"]);
    asset.brotli = take(item["br"]);
    out.emplace(item["name"].str_or(""), std::move(asset));
  }
  return out;
}

}  // namespace

// The page may load nothing but our own script and style.
void page(CallPtr call) {
  net::Response file;
  file.headers = {{"Content-Type", "text/html; charset=utf-8"},
                  {"X-Content-Type-Options", "nosniff"},
                  {"Referrer-Policy", "no-referrer"},
                  {"Content-Security-Policy",
                   "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
                   "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"}};
  file.body = std::string(billow_embedded_page());
  call->reply_validated(std::move(file));
}

void asset(CallPtr call) {
  static const auto assets = unpack(billow_embedded_assets());
  const auto found = assets.find(call->parts.at(0));
  if (found == assets.end())
    return call->fail({Code::not_found,
                       fmt::format("the dashboard has no file \"{}\"", call->parts.at(0)),
                       "reload the page: the head may have been upgraded"});
  const Asset& asset = found->second;
  net::Response file;
  file.headers = {{"Content-Type", asset.type},
                  {"X-Content-Type-Options", "nosniff"},
                  {"Vary", "Accept-Encoding"},
                  {"Cache-Control", "public, max-age=31536000, immutable"}};
  const bool brotli = !asset.brotli.empty() && net::accepts_encoding(call->request(), "br");
  const bool gzip = !asset.gzip.empty() && net::accepts_encoding(call->request(), "gzip");
  if (brotli || gzip)
    file.headers.add("Content-Encoding", brotli ? "br" : "gzip");
  file.body = std::string(brotli ? asset.brotli : gzip ? asset.gzip : asset.content);
  call->exchange->respond(std::move(file));
}

namespace {
void reply_with_docs(const CallPtr& call, const std::string& name) {
  const billow::docs::File* found = billow::docs::find_file(name);
  if (!found)
    return call->fail({Code::not_found, fmt::format("the documentation has no page \"{}\"", name),
                       "begin at /docs"});
  net::Response file;
  file.headers = {{"Content-Type", found->type},
                  {"X-Content-Type-Options", "nosniff"},
                  {"Cache-Control", "no-cache"},
                  {"Referrer-Policy", "no-referrer"},
                  {"Content-Security-Policy",
                   "default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; "
                   "frame-ancestors 'none'"}};
  file.body = std::string(found->content);
  call->exchange->respond(std::move(file));
}
}  // namespace

// The links of the pages are relative to /docs/.
void docs(CallPtr call) {
  net::Response moved;
  moved.status = 302;
  moved.headers = {{"Location", "/docs/"}};
  call->exchange->respond(std::move(moved));
}
void docs_file(CallPtr call) {
  reply_with_docs(call, call->parts.empty() ? "index.html" : call->parts.front());
}
void docs_image(CallPtr call) {
  reply_with_docs(call, "images/" + call->parts.front());
}

// The wheel of the Python package that fits this head, for pip: it is public like the dashboard's
// files, because pip sends no tokens.
namespace {

constexpr std::string_view wheel_name = "billow-" BILLOW_VERSION "-py3-none-any.whl";

bool has_wheel(const CallPtr& call) {
  if (!billow_embedded_sdk_wheel().empty())
    return true;
  call->fail({Code::not_found, "this head was built without the Python package",
              "build it from the sources: ./dev sdk"});
  return false;
}

void send(const CallPtr& call, const char* type, std::string body) {
  net::Response file;
  file.headers = {
      {"Content-Type", type}, {"X-Content-Type-Options", "nosniff"}, {"Cache-Control", "no-cache"}};
  file.body = std::move(body);
  call->exchange->respond(std::move(file));
}

}  // namespace

// The page that pip reads for --index-url and --find-links (PEP 503): one link, with the digest.
void sdk_page(CallPtr call) {
  if (!has_wheel(call))
    return;
  static const std::string page = fmt::format(
      "<!DOCTYPE html><html><head><meta charset=\"utf-8\"><title>billow</title></head><body>"
      "<a href=\"/sdk/{0}#sha256={1}\" data-requires-python=\"&gt;=3.9\">{0}</a></body></html>\n",
      wheel_name, sha256_hex(billow_embedded_sdk_wheel()));
  send(call, "text/html; charset=utf-8", page);
}

void sdk_file(CallPtr call) {
  if (!has_wheel(call))
    return;
  if (call->parts.at(0) != wheel_name)
    return call->fail({Code::not_found, fmt::format("/sdk/ has no file \"{}\"", call->parts.at(0)),
                       fmt::format("this head serves {}", wheel_name)});
  send(call, "application/octet-stream", std::string(billow_embedded_sdk_wheel()));
}

}  // namespace dashboard
}  // namespace billow::api
