#include "net/http/certificate_keeper.h"

#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/crypto.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "net/certs.h"

namespace billow::net {
namespace {

constexpr char certificate_target[] = "/v1/certificate";
constexpr std::size_t file_bytes_max = 256 << 10;
constexpr Duration own_files_every = seconds(10);
constexpr Duration retry_min = seconds(1), retry_max = minutes(5);
constexpr std::string_view first_line = "# first trusted: ", pins_line = "# trusted: ";

// The rest of the line that begins with `mark`.
std::string line_of(std::string_view text, std::string_view mark) {
  const auto at = text.find(mark);
  if (at == std::string_view::npos)
    return "";
  text.remove_prefix(at + mark.size());
  return std::string(trim(text.substr(0, text.find('\n'))));
}

bool is_in_tpm(const std::string& key) {
  return key.starts_with("handle:");
}

// Changes with the files, whichever way they are replaced.
std::string seen(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0)
    return "";
  return fmt::format("{}.{}.{}.{}", info.st_ino, info.st_mtim.tv_sec, info.st_mtim.tv_nsec,
                     info.st_size);
}

}  // namespace

Result<TlsClientOptions> stored_tls(const CertificatePlace& place) {
  TlsClientOptions out = place.trust;
  auto text = place.file.empty() ? Result<std::string>("") : read_file(place.file, file_bytes_max);
  const bool ours = text && line_of(*text, first_line) == place.trust.pinned_fingerprint;
  if (const std::string pins = ours ? line_of(*text, pins_line) : ""; !pins.empty())
    out.pinned_fingerprint = pins;
  if (!place.own_cert.empty()) {
    out.cert_pem = BILLOW_TRY(read_file(place.own_cert, file_bytes_max));
    out.key_pem = is_in_tpm(place.own_key) ? place.own_key
                                           : BILLOW_TRY(read_file(place.own_key, file_bytes_max));
  } else if (ours) {
    // Not an expired one: the head would refuse it.
    if (const auto dates = cert_dates(*text); dates && dates->not_after > system_clock().wall())
      out.cert_pem = out.key_pem = *text;
  }
  if (text)
    wipe(*text);
  if (!out.cert_pem.empty())
    if (const auto usable = TlsContext::client(out); !usable)
      return pass(usable.error(), place.own_cert.empty() ? place.file : place.own_cert);
  return out;
}

Result<std::unique_ptr<CertificateKeeper>> CertificateKeeper::create(Loop& loop, Options options) {
  std::unique_ptr<CertificateKeeper> out(new CertificateKeeper(loop, std::move(options)));
  const CertificatePlace& place = out->options_.place;
  auto tls = stored_tls(place);
  if (!tls && out->operators())
    return pass(tls.error());
  *out->tls_.lock() = tls ? std::move(*tls) : place.trust;
  if (out->operators()) {
    out->own_seen_ = seen(place.own_cert) + seen(place.own_key);
    out->own_files_ = loop.every(own_files_every, [at = out.get()] { at->look_at_own_files(); });
  } else if (const std::string cert = out->tls().cert_pem; !cert.empty()) {
    out->note_dates(cert);
    out->next_renewal((out->until_ - system_clock().wall()) - out->life_ / 3);
  }
  return out;
}

CertificateKeeper::~CertificateKeeper() = default;

void CertificateKeeper::set(TlsClientOptions tls) {
  *tls_.lock() = std::move(tls);
  if (options_.changed)
    options_.changed();
}

void CertificateKeeper::forget() {
  TlsClientOptions tls = this->tls();
  if (tls.cert_pem.empty())
    return;
  tls.cert_pem.clear();
  wipe(tls.key_pem);
  until_ = {};
  set(std::move(tls));
}

void CertificateKeeper::note_dates(const std::string& cert_pem) {
  const auto dates = cert_dates(cert_pem);
  if (!dates)
    return;
  until_ = dates->not_after;
  life_ = dates->not_after - dates->not_before - cert_backdated;
}

void CertificateKeeper::look_at_own_files() {
  const CertificatePlace& place = options_.place;
  std::string now = seen(place.own_cert) + seen(place.own_key);
  if (now == own_seen_)
    return;
  // Half of a replacement does not fit together: it is read again when the other half is there.
  auto tls = stored_tls(place);
  if (!tls)
    return log_warn("the new client certificate is not used yet: {}", tls.error().message);
  own_seen_ = std::move(now);
  set(std::move(*tls));
  log_info("using the new client certificate in {}", place.own_cert);
}

void CertificateKeeper::before_dialling(std::function<void(Status)> ready) {
  if (until_ > system_clock().wall() || issued_none_ || operators() || !options_.head().tls)
    return ready({});
  forget();
  ready_ = std::move(ready);
  ask();
}

// The head may have refused the certificate, and its reason does not always arrive: another one is
// asked for before the next try. A head that was upgraded or got TLS may issue one now.
void CertificateKeeper::connection_failed() {
  issued_none_ = false;
  until_ = {};
}

void CertificateKeeper::ask() {
  if (asking_)
    return;
  asking_ = true;
  auto made = request_cert(options_.name);
  auto proof = options_.credential->authorization(Method::post, certificate_target);
  auto client = HttpClient::create(loop_, {.tls = tls()});
  if (!made || !proof || !client) {
    const Error why = !made ? made.error() : !proof ? proof.error() : client.error();
    return loop_.post([this, why] { answered(pass(why), ""); });
  }
  client_ = std::move(*client);
  ClientRequest request;
  request.endpoint = options_.head();
  request.method = Method::post;
  request.target = certificate_target;
  request.headers.set("Authorization", *proof);
  request.headers.set("Content-Type", "application/json");
  request.body = Json::object({{"request", made->request_pem}}).dump();
  request.timeout = options_.patience;
  client_->fetch(std::move(request),
                 [this, key = std::move(made->key_pem)](Result<Response> answer) {
                   answered(std::move(answer), key);
                 });
}

void CertificateKeeper::answered(Result<Response> answer, const std::string& key_pem) {
  asking_ = false;
  // The client is calling us: destroyed later.
  loop_.post([old = std::shared_ptr<HttpClient>(std::move(client_))] {});
  const Status reached =
      answer || answer.error().code != Code::timed_out ? Status() : Status(pass(answer.error()));
  Status taken;
  if (!answer)
    taken = pass(answer.error());
  else if (answer->status == 404 || answer->status == 405 || answer->status == 409)
    issued_none_ = true;
  else if (answer->status != 200)
    taken =
        fail(code_of_status(answer->status), fmt::format("the head answered {}", answer->status));
  else
    taken = take(*answer, key_pem);
  if (!taken) {
    if (!tls().cert_pem.empty())  // without one, the connection itself reports what is wrong
      log_warn("the certificate for the head was not renewed: {}", taken.error().message);
    // One that the head does not accept any more must not stand in the way of the next one.
    if (until_ <= system_clock().wall())
      forget();
    next_renewal(std::clamp(life_ / 30, retry_min, retry_max));
  }
  if (const auto ready = std::exchange(ready_, nullptr))
    ready(reached);
}

Status CertificateKeeper::take(const Response& response, const std::string& key_pem) {
  const Json json = BILLOW_TRY(parse_json(response.body));
  TlsClientOptions tls = this->tls();
  tls.cert_pem = std::string(json["certificate"].str_or(""));
  tls.key_pem = key_pem;
  if (const std::string pins(json["fingerprints"].str_or(""));
      !pins.empty() && !tls.pinned_fingerprint.empty())
    tls.pinned_fingerprint = pins;
  BILLOW_TRY_VOID(TlsContext::client(tls));
  note_dates(tls.cert_pem);
  next_renewal(life_ * 2 / 3);
  if (!options_.place.file.empty()) {
    std::string text =
        fmt::format("{}{}\n{}{}\n{}{}", first_line, options_.place.trust.pinned_fingerprint,
                    pins_line, tls.pinned_fingerprint, tls.cert_pem, tls.key_pem);
    if (const Status written = write_file_atomic(options_.place.file, text, 0600, true); !written)
      log_warn("the certificate for the head is not kept: {}", written.error().message);
    wipe(text);
  }
  set(std::move(tls));
  return {};
}

void CertificateKeeper::next_renewal(Duration in) {
  renewal_ = loop_.after(std::max(in, retry_min), [this] { ask(); });
}

}  // namespace billow::net
