#include "server/front_door_options.h"

#include <filesystem>

#include <fmt/format.h>

#include "base/text.h"
#include "net/address.h"

namespace billow::client {
namespace {

std::string whole_path(const std::string& path) {
  std::error_code none;
  const auto whole = std::filesystem::absolute(path, none);
  return none ? path : whole.string();
}

}  // namespace

Result<std::size_t> read_threads(const Parsed& parsed, const char* option) {
  if (!parsed.has(option))
    return 1;
  const auto number = parse_int(parsed.get(option), 1, gateway::threads_max);
  if (!number)
    return pass(Error(number.error()).in(fmt::format("--{}", option)));
  return static_cast<std::size_t>(*number);
}

Status read_front_door(const Parsed& parsed, gateway::GatewayOptions& options) {
  options.domains = parsed.all("domain");
  for (const std::string& domain : options.domains)
    if (domain.find('.') == std::string::npos || domain.find('/') != std::string::npos ||
        domain.find(':') != std::string::npos)
      return fail(Code::invalid, fmt::format("--domain {} is not a domain", domain),
                  "write for example --domain example.org");
  options.certs_dir = parsed.get("certs");
  options.trusted_proxies = parsed.all("trusted-proxy");
  if (const auto networks = gateway::Networks::parse(options.trusted_proxies); !networks)
    return pass(Error(networks.error()).in("--trusted-proxy"));
  options.insecure_http = parsed.has("insecure-http");
  options.acme = {.directory = parsed.get("acme"),
                  .contact = parsed.get("acme-contact"),
                  .dns_hook = parsed.get("acme-dns-hook"),
                  .ca = parsed.get("acme-ca")};
  if (!options.acme.directory.empty()) {
    const auto url = net::parse_url(options.acme.directory);
    if (!url)
      return pass(Error(url.error()).in("--acme"));
    if (!url->endpoint.tls && !url->endpoint.address.is_loopback())
      return fail(Code::invalid, "--acme must be an https:// address");
  }
  for (const char* name : {"acme-contact", "acme-dns-hook", "acme-ca"})
    if (parsed.has(name) && options.acme.directory.empty())
      return fail(Code::invalid, fmt::format("--{} needs --acme URL", name));
  return {};
}

Result<std::vector<std::string>> front_door_arguments(const Parsed& parsed) {
  gateway::GatewayOptions checked;
  BILLOW_TRY_VOID(read_front_door(parsed, checked));
  std::vector<std::string> out;
  for (const char* name : {"domain", "trusted-proxy"})
    for (const std::string& value : parsed.all(name))
      out.insert(out.end(), {fmt::format("--{}", name), value});
  for (const char* name : {"certs", "acme-dns-hook", "acme-ca"})
    if (parsed.has(name))
      out.insert(out.end(), {fmt::format("--{}", name), whole_path(parsed.get(name))});
  for (const char* name : {"acme", "acme-contact"})
    if (parsed.has(name))
      out.insert(out.end(), {fmt::format("--{}", name), parsed.get(name)});
  if (parsed.has("insecure-http"))
    out.emplace_back("--insecure-http");
  if (parsed.has("gateway-cert") != parsed.has("gateway-key"))
    return fail(Code::invalid, "--gateway-cert and --gateway-key are needed together");
  if (parsed.has("gateway-cert"))
    out.insert(out.end(), {"--cert", whole_path(parsed.get("gateway-cert")), "--key",
                           whole_path(parsed.get("gateway-key"))});
  if (const auto threads = BILLOW_TRY(read_threads(parsed, "gateway-threads")); threads > 1)
    out.insert(out.end(), {"--threads", std::to_string(threads)});
  return out;
}

}  // namespace billow::client
