#include "head/certificates/certificates.h"

#include <sys/stat.h>

#include <algorithm>

#include <fmt/format.h>

#include "base/file.h"
#include "base/log.h"
#include "base/relative_time.h"
#include "base/text.h"
#include "head/tls.h"

namespace billow::head {
namespace {

constexpr std::string_view credential_uri = "billow:credential:";
constexpr Duration own_renewed_after = hours(24 * 30);
constexpr std::size_t request_bytes_max = 16 << 10;

// The credential that a certificate of our own authority was issued for; 0: none.
TokenId credential_of(const net::PeerCertificate& certificate) {
  for (const std::string& name : certificate.names) {
    if (!name.starts_with(credential_uri))
      continue;
    if (const auto number =
            parse_int(std::string_view(name).substr(credential_uri.size()), 1, INT64_MAX))
      return TokenId(static_cast<std::uint64_t>(*number));
  }
  return {};
}

std::string seen(const std::string& path) {
  struct stat info {};
  if (path.empty() || ::stat(path.c_str(), &info) != 0)
    return "";
  return fmt::format("{}.{}.{}.{} ", info.st_ino, info.st_mtim.tv_sec, info.st_mtim.tv_nsec,
                     info.st_size);
}

}  // namespace

Result<std::unique_ptr<Certificates>> Certificates::open(Options options) {
  std::unique_ptr<Certificates> out(new Certificates(std::move(options)));
  const Options& o = out->options_;
  if (o.server_cert.empty() != o.server_key.empty())
    return fail(Code::invalid, "--tls-cert and --tls-key must be given together",
                "add the missing one: --tls-cert FILE --tls-key FILE");
  if (!o.tls && (o.required || !o.client_ca.empty()))
    return fail(Code::invalid, "certificates of nodes need TLS, which this head does not use",
                "add --tls, or listen on an address that other machines reach");
  if (!o.tls)
    return out;
  out->own_server_ = o.server_cert.empty();
  out->authority_ = BILLOW_TRY(o.store->authority(o.dir));
  out->fingerprints_ = BILLOW_TRY(out->authority_.fingerprints());
  BILLOW_TRY_VOID(out->read_client_ca());
  if (out->own_server_)
    BILLOW_TRY_VOID(out->issue_own());
  out->apply();
  return out;
}

std::string Certificates::files_seen() const {
  return seen(options_.server_cert) + seen(options_.server_key) + seen(options_.client_ca);
}

Status Certificates::read_client_ca() {
  if (options_.client_ca.empty())
    return {};
  std::string pem = BILLOW_TRY(read_file(options_.client_ca, 1 << 20));
  if (const auto read = net::cert_fingerprint(pem); !read)
    return fail(Code::invalid,
                fmt::format("--client-ca {}: {}", options_.client_ca, read.error().message),
                "it must begin with -----BEGIN CERTIFICATE-----");
  client_ca_pem_ = std::move(pem);
  return {};
}

Status Certificates::issue_own() {
  const OwnTls own = BILLOW_TRY(own_tls({options_.dir, options_.names}, authority_.current));
  options_.server_cert = own.cert_path;
  options_.server_key = own.key_path;
  own_since_ = options_.clock->wall();
  return {};
}

void Certificates::apply() {
  files_seen_ = files_seen();
  server_ = {options_.server_cert, options_.server_key};
  clients_ = {client_ca_pem_.empty() ? authority_.certs() : client_ca_pem_,
              [this](const net::PeerCertificate& certificate) {
                return accepts(certificate);
              }};
  if (changed_)
    changed_();
}

// In the handshake, when the certificate's chain and dates are known to be right.
bool Certificates::accepts(const net::PeerCertificate& certificate) const {
  if (!client_ca_pem_.empty())
    return true;  // whose it is, each request shows
  const TokenId credential = credential_of(certificate);
  const bool valid =
      credential && control::principal_of(options_.state(), credential, options_.clock->wall());
  if (!valid)
    log_warn("a connection with the certificate of a revoked credential was refused");
  return valid;
}

Status Certificates::check(const control::Principal& who, const Shown& shown) const {
  if (who.scope != TokenScope::node && who.scope != TokenScope::gateway)
    return {};
  if (!shown.certificate) {
    if (!options_.required || shown.asks || !shown.tls)
      return {};
    // Not "unauthorized": an agent that hears that for long believes that its node was removed.
    return fail(Code::forbidden, "this head accepts nodes and gateways only with a certificate",
                client_ca_pem_.empty() ? "upgrade billow on this machine and restart it"
                                       : "start it with --client-cert FILE --client-key FILE");
  }
  const auto found = options_.state().tokens.find(who.token);
  if (found == options_.state().tokens.end())
    return fail(Code::unauthorized, "the credential is not valid any more");
  const Token& token = found->second;
  const std::vector<std::string>& names = shown.certificate->names;
  const auto named = [&](const std::string& name) {
    return !name.empty() && std::find(names.begin(), names.end(), name) != names.end();
  };
  const bool own = client_ca_pem_.empty() ? credential_of(*shown.certificate) == who.token
                                          : named(token.node) || named(token.name);
  if (!own)
    return fail(Code::forbidden,
                fmt::format("the certificate was not issued for {}",
                            token.node.empty() ? "token " + token.name : "node " + token.node),
                client_ca_pem_.empty() ? "let the machine join again"
                                       : "the certificate must contain this name");
  const auto renewed = renewed_until_.find(who.token);
  const WallTime until = std::max(shown.certificate->not_after,
                                  renewed == renewed_until_.end() ? WallTime{} : renewed->second);
  if (until > options_.clock->wall())
    return {};
  return fail(Code::unavailable, "the certificate of this connection has expired",
              "connect again with a new one");
}

Result<Json> Certificates::issue(const control::Principal& who, const std::string& request_pem) {
  if (!options_.tls || !client_ca_pem_.empty())
    return fail(Code::conflict,
                options_.tls ? "this head uses certificates of an external authority (--client-ca)"
                             : "this head does not use TLS");
  if (request_pem.size() > request_bytes_max)
    return fail(Code::invalid, "the certificate request is too large");
  const Token& token = options_.state().tokens.at(who.token);
  const std::string cert =
      BILLOW_TRY(net::certify_client(authority_.for_clients(), request_pem,
                                     {.name = token.node.empty() ? token.name : token.node,
                                      .uri = fmt::format("{}{}", credential_uri, who.token.value),
                                      .life = options_.life}));
  const WallTime until = BILLOW_TRY(net::cert_dates(cert)).not_after;
  std::erase_if(renewed_until_,
                [now = options_.clock->wall()](const auto& each) { return each.second < now; });
  renewed_until_[who.token] = until;
  return Json::object(
      {{"certificate", cert}, {"fingerprints", fingerprints()}, {"expires_at", format_utc(until)}});
}

Json Certificates::document() const {
  Json out = Json::object({{"tls", options_.tls},
                           {"fingerprints", fingerprints()},
                           {"certificates", client_ca_pem_.empty() ? "own" : "external"},
                           {"required", options_.required},
                           {"life_s", options_.life.ns / 1'000'000'000}});
  if (const auto since = authority_.next_since(); since && since->ns > 0)
    out.set("next_since", format_utc(*since));
  return out;
}

// The store first: it is what the heads that share it agree on.
Status Certificates::use(Authority authority) {
  BILLOW_TRY_VOID(options_.store->set_authority(options_.dir, authority));
  fingerprints_ = BILLOW_TRY(authority.fingerprints());
  authority_ = std::move(authority);
  return {};
}

Result<Json> Certificates::announce_next() {
  if (!options_.tls)
    return fail(Code::conflict, "this head does not use TLS and has no authority");
  if (!authority_.next) {
    Authority changed = authority_;
    changed.next = BILLOW_TRY(
        net::make_ca(fmt::format("Billow authority {}", format_utc(options_.clock->wall()))));
    BILLOW_TRY_VOID(use(std::move(changed)));
    apply();
    log_info("the head's next authority is announced: {}", fingerprints_);
  }
  return document();
}

Result<Json> Certificates::change_over(bool at_once) {
  if (!authority_.next)
    return fail(Code::conflict, "no new authority is announced",
                "announce one first: billow authority rotate");
  // By then every node that is connected has heard of it and has a certificate of it.
  const WallTime ready = BILLOW_TRY(authority_.next_since()) + options_.life;
  const WallTime now = options_.clock->wall();
  if (!at_once && ready > now)
    return fail(Code::conflict,
                fmt::format("nodes may still have certificates of the old authority; the last one "
                            "expires {}",
                            relative_time(ready, now, Zone::utc)),
                "wait until then, or use --at-once: machines that did not connect since it was "
                "announced must join again");
  Authority changed;
  changed.current = *authority_.next;
  BILLOW_TRY_VOID(use(std::move(changed)));
  if (own_server_)
    BILLOW_TRY_VOID(issue_own());
  apply();
  log_info("the head uses its new authority: {}", fingerprints_);
  return document();
}

void Certificates::look() {
  if (!options_.tls)
    return;
  if (own_server_ && options_.clock->wall() - own_since_ > own_renewed_after) {
    if (const Status issued = issue_own(); !issued)
      return log_warn("the head's certificate was not renewed: {}", issued.error().message);
    return apply();
  }
  if (files_seen() == files_seen_)
    return;
  if (const Status read = read_client_ca(); !read)
    return log_warn("{}", read.error().message);
  // Half of a replacement does not fit together: it is read again when the other half is there.
  if (const auto usable = net::TlsContext::server({options_.server_cert, options_.server_key});
      !usable)
    return log_warn("the changed certificate cannot be used: {}", usable.error().message);
  log_info("using the changed certificate in {}", options_.server_cert);
  apply();
}

}  // namespace billow::head
