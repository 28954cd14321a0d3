// How the head uses its certificates.
#include <algorithm>

#include "base/log.h"
#include "head/head.h"
#include "head/tls.h"

namespace billow::head {

Status Head::prepare_tls() {
  const bool beyond = std::any_of(options_.listen.begin(), options_.listen.end(),
                                  [](const std::string& a) { return !is_loopback(a); });
  certificates_ = BILLOW_TRY(
      Certificates::open({.dir = path("tls"),
                          .names = options_.tls_names,
                          .tls = !options_.tls_cert.empty() || !options_.tls_key.empty() ||
                                 options_.tls || (beyond && !options_.plain_http),
                          .server_cert = options_.tls_cert,
                          .server_key = options_.tls_key,
                          .client_ca = options_.client_ca,
                          .required = options_.require_client_certificates,
                          .life = options_.certificate_life,
                          .store = &*store_,
                          .clock = &clock_,
                          .state = [this]() -> const control::State& {
                            return state();
                          }}));
  server_tls_ = certificates_->server();
  certificates_->on_change([this] {
    if (const Status changed = server_->set_tls(certificates_->server(), certificates_->clients());
        !changed)
      log_warn("the head keeps its certificate: {}", changed.error().message);
    write_head_file();
  });
  agents_->set_tls(!server_tls_.cert_path.empty());
  return {};
}

}  // namespace billow::head
