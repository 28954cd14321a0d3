// The certificates and keys of the gateway: its own, and those that its host names need.
#include <algorithm>

#include "base/crypto.h"
#include "base/log.h"
#include "base/text.h"
#include "gateway/gateway.h"
#include "net/certs.h"

namespace billow::gateway {
namespace {

// A certificate for gateways of other regions, and for clients without a better one. The one of an
// earlier run is used again while it lasts, so that clients can remember its fingerprint.
Status make_own_certificate(const net::TlsServerOptions& files,
                            const std::vector<std::string>& domains) {
  constexpr Duration margin = hours(24 * 30);
  if (const auto before = read_file(files.cert_path, 1 << 20);
      before && file_exists(files.key_path))
    if (const auto dates = net::cert_dates(*before);
        dates && dates->not_after - system_clock().wall() > margin)
      return {};
  std::vector<std::string> names = {std::string(gateway_name)};
  for (const std::string& domain : domains)
    names.insert(names.end(), {domain, "*." + domain});
  const auto made = BILLOW_TRY(
      net::issue_cert(BILLOW_TRY(net::make_ca("Billow gateway")), {.names = std::move(names)}));
  BILLOW_TRY_VOID(write_file_atomic(files.key_path, made.key_pem, 0600));
  return write_file_atomic(files.cert_path, made.cert_pem, 0600);
}

// What an endpoint is called in a host name; empty: its name cannot be one.
std::string label_of(const std::string& endpoint) {
  const std::string name = lower(endpoint);
  const bool ok =
      !name.starts_with('-') && !name.ends_with('-') && std::ranges::all_of(name, [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
      });
  return ok ? name : "";
}

}  // namespace

// What signs webhooks; receivers may remember its public key, so it is kept.
Result<std::string> Gateway::webhook_key() const {
  const std::string path = options_.data_dir + "/webhook.key";
  if (options_.data_dir.empty())
    return make_signing_key();
  if (file_exists(path))
    return read_file(path, 64 << 10);
  std::string key = make_signing_key();
  BILLOW_TRY_VOID(write_file_atomic(path, key, 0600));
  return key;
}

// Other gateways identify this one by this certificate: the head announces its fingerprint, so no
// certificate authority is needed. It is used again until it is about to expire; a certificate from
// the user takes precedence.
Status Gateway::prepare_certificate() {
  net::TlsServerOptions& tls = options_.proxy.tls;
  if (tls.cert_path.empty() && !options_.data_dir.empty()) {
    tls.cert_path = options_.data_dir + "/peer.pem";
    tls.key_path = options_.data_dir + "/peer.key";
    BILLOW_TRY_VOID(make_own_certificate(tls, options_.domains));
  } else if (!tls.cert_path.empty()) {
    own_certificate_ = false;
  }
  if (tls.cert_path.empty())
    return {};
  peer_pin_ = BILLOW_TRY(net::cert_fingerprint(BILLOW_TRY(read_file(tls.cert_path, 1 << 20))));
  Certificates::Options files{.cert = tls.cert_path, .key = tls.key_path, .directories = {}};
  if (!options_.certs_dir.empty())
    files.directories.push_back(options_.certs_dir);
  if (!options_.acme.directory.empty())
    files.directories.push_back(options_.data_dir + "/acme/certs");
  certificates_ = BILLOW_TRY(Certificates::create(files));
  tls.by_name = [at = certificates_.get()](std::string_view name) {
    return at->find(name);
  };
  return {};
}

// A gateway that other machines reach serves them with TLS, or says that it does not.
Status Gateway::check_listeners() {
  const auto& all = proxy_->bound_addresses();
  const bool only_here = std::ranges::all_of(all, [](const std::string& text) {
    const auto address = net::parse_address(text);
    return address && address->is_loopback();
  });
  plain_everywhere_ = (only_here && own_certificate_) || options_.insecure_http;
  if (only_here)
    return {};
  if (options_.insecure_http) {
    log_warn("--insecure-http: keys, requests and answers cross the network without encryption");
    return {};
  }
  if (options_.proxy.tls.cert_path.empty())
    return fail(Code::invalid, "the gateway has no certificate to serve other machines with",
                "give it --cert and --key, or --data DIR for a self-signed one");
  return {};
}

// Added domains, one certificate each. For own domains a wildcard, if DNS records can be set;
// without them, one for each endpoint's name.
std::vector<std::vector<std::string>> Gateway::wanted_certificates() const {
  const Decision decision(*this);
  std::vector<std::vector<std::string>> out;
  for (const std::string& name : hosts_.domains())
    out.push_back({name});
  for (const std::string& own : hosts_.own()) {
    if (!options_.acme.dns_hook.empty()) {
      out.push_back({own, "*." + own});
      continue;
    }
    out.push_back({own});
    for (const auto& [name, endpoint] : endpoints_)
      if (const std::string label = label_of(name); !label.empty())
        out.push_back({label + "." + own});
  }
  return out;
}

Status Gateway::begin_acme() {
  constexpr Duration look_period = seconds(5);
  if (!certificates_)
    return {};
  const auto look = [this] {
    if (!certificates_->look())
      return;
    // Other gateways know this one by its certificate.
    if (const auto pem = read_file(certificates_->default_path(), 1 << 20))
      if (const auto pin = net::cert_fingerprint(*pem))
        peer_pin_ = *pin;
  };
  certificates_timer_ = loop_.every(look_period, look);
  if (options_.acme.directory.empty())
    return {};
  if (options_.data_dir.empty())
    return fail(Code::invalid, "--acme needs a directory for keys and certificates",
                "give it --data DIR");
  acme_ = BILLOW_TRY(Acme::create(loop_, options_.acme, options_.data_dir + "/acme",
                                  {.wanted = [this] { return wanted_certificates(); },
                                   .due =
                                       [this](const std::string& name) {
                                         const auto life = certificates_->life_of(name);
                                         const WallTime now = system_clock().wall();
                                         return !life ||
                                                (life->until - now) * 3 < life->until - life->from;
                                       },
                                   .changed = look}));
  return {};
}

}  // namespace billow::gateway
