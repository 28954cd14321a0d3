#include "pool/oauth/web.h"

#include <fmt/format.h>

namespace billow::pool {
namespace {

constexpr std::size_t idle_max = 8;  // connections kept to one server

}  // namespace

Result<net::Response> Web::send(const WebCall& call) {
  net::Url url = BILLOW_TRY(net::parse_url(call.url));
  const std::string server = url.endpoint.text();
  std::optional<net::BlockingClient> client;
  {
    auto idle = idle_.lock();
    auto& kept = (*idle)[server];
    if (!kept.empty()) {
      client = std::move(kept.back());
      kept.pop_back();
    }
  }
  if (!client)
    client.emplace(net::BlockingClient::Options{
        .endpoint = url.endpoint, .tls = {}, .connect_timeout = call.connect_timeout});
  auto response = client->request({.method = call.method,
                                   .target = url.target,
                                   .headers = call.headers,
                                   .body = call.body,
                                   .body_source = {},
                                   .timeout = call.timeout,
                                   .on_chunk = {},
                                   .on_watch = {}});
  if (!response) {
    // The client's advice is about heads.
    return fail(response.error().code == Code::timed_out ? Code::timed_out : Code::unavailable,
                response.error().message);
  }
  auto idle = idle_.lock();
  auto& kept = (*idle)[server];
  if (kept.size() < idle_max)
    kept.push_back(std::move(*client));
  return response;
}

std::string form(const std::vector<std::pair<std::string, std::string>>& fields) {
  std::string text;
  for (const auto& [name, value] : fields) {
    if (!text.empty())
      text += '&';
    text += net::percent_encode(name) + "=" + net::percent_encode(value);
  }
  return text;
}

Status check_protected(std::string_view what, const std::string& url) {
  const auto parsed = net::parse_url(url);
  if (!parsed)
    return fail(Code::invalid, fmt::format("{} \"{}\" is not a URL", what, url));
  if (!parsed->endpoint.tls && !parsed->endpoint.address.is_loopback())
    return fail(Code::invalid, fmt::format("{} {} is not encrypted", what, url), "use https");
  return {};
}

}  // namespace billow::pool
