#include "net/transport.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/provider.h>
#include <openssl/ssl.h>
#include <openssl/store.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>

#include <cstring>
#include <map>
#include <mutex>

#include "base/crypto.h"
#include "base/text.h"
#include "net/address.h"

namespace billow::net {
namespace {

std::string openssl_error() {
  std::string out;
  while (const auto code = ::ERR_get_error()) {
    const char* reason = ::ERR_reason_error_string(code);
    if (out.empty())
      out = reason ? reason : "unknown TLS error";
  }
  return out.empty() ? "unknown TLS error" : out;
}

// OpenSSL's socket BIO uses write(2), which raises SIGPIPE if the peer has disconnected. This BIO
// sends with MSG_NOSIGNAL instead.
int bio_write(BIO* bio, const char* data, int length) {
  const auto fd = static_cast<int>(reinterpret_cast<std::intptr_t>(::BIO_get_data(bio)));
  const auto sent = ::send(fd, data, static_cast<std::size_t>(length), MSG_NOSIGNAL);
  ::BIO_clear_retry_flags(bio);
  if (sent < 0 && (errno == EAGAIN || errno == EINTR))
    ::BIO_set_retry_write(bio);
  return static_cast<int>(sent);
}
int bio_read(BIO* bio, char* into, int length) {
  const auto fd = static_cast<int>(reinterpret_cast<std::intptr_t>(::BIO_get_data(bio)));
  const auto got = ::recv(fd, into, static_cast<std::size_t>(length), 0);
  ::BIO_clear_retry_flags(bio);
  if (got < 0 && (errno == EAGAIN || errno == EINTR))
    ::BIO_set_retry_read(bio);
  return static_cast<int>(got);
}
long bio_control(BIO*, int command, long, void*) {
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

BIO* make_bio(int fd) {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* m = ::BIO_meth_new(::BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "billow socket");
    ::BIO_meth_set_write(m, bio_write);
    ::BIO_meth_set_read(m, bio_read);
    ::BIO_meth_set_ctrl(m, bio_control);
    return m;
  }();
  BIO* bio = ::BIO_new(method);
  ::BIO_set_data(bio, reinterpret_cast<void*>(static_cast<std::intptr_t>(fd)));
  ::BIO_set_init(bio, 1);
  return bio;
}

void set_common(SSL_CTX* context) {
  ::SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  // Idle streams release their 34 KB of record buffers; there may be thousands of streams.
  ::SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                  SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  // What was read stays in no record buffer: requests and orders hold secrets.
  ::SSL_CTX_set_options(context,
                        SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CLEANSE_PLAINTEXT);
}

std::string fingerprint_of(X509* cert) {
  unsigned char digest[32];
  unsigned length = 0;
  ::X509_digest(cert, ::EVP_sha256(), digest, &length);
  return hex(std::string_view(reinterpret_cast<const char*>(digest), length));
}

struct FreeBio {
  void operator()(BIO* bio) const { ::BIO_free(bio); }
};
using PemReader = std::unique_ptr<BIO, FreeBio>;
PemReader pem_reader(const std::string& pem) {
  return PemReader(
      ::BIO_new_mem_buf(pem.data(), static_cast<int>(std::min<std::size_t>(pem.size(), 1 << 20))));
}
struct FreeCert {
  void operator()(X509* cert) const { ::X509_free(cert); }
};
using OwnedCert = std::unique_ptr<X509, FreeCert>;
OwnedCert next_cert(BIO* pem) {
  return OwnedCert(::PEM_read_bio_X509(pem, nullptr, nullptr, nullptr));
}

Status trust_only(SSL_CTX* context, const std::string& ca_pem) {
  const auto pem = pem_reader(ca_pem);
  int trusted = 0;
  while (const auto cert = next_cert(pem.get()))
    trusted += ::X509_STORE_add_cert(::SSL_CTX_get_cert_store(context), cert.get()) == 1;
  ::ERR_clear_error();  // the end of the text is an error to OpenSSL
  if (trusted == 0)
    return fail(Code::invalid, "the certificate authority has no certificate in PEM form",
                "it must begin with -----BEGIN CERTIFICATE-----");
  return {};
}

// Any passphrase that OpenSSL would ask for on the terminal is refused.
int no_passphrase(char*, int, int, void*) {
  return 0;
}

// A key that stays in a TPM, by its handle there: OpenSSL's provider tpm2 signs with it.
bool is_in_tpm(const std::string& key) {
  return key.starts_with("handle:");
}

// For the context of such a key. OpenSSL's own provider has the public half only, so the other one
// must be preferred for signatures; but not for digests, of which a TPM computes few at a time.
constexpr char tpm_signs[] = "?tpm2.signature=yes,tpm2.digest!=yes,tpm2.cipher!=yes";

// Only one thread at a time may use that provider: its releases before 1.3 have no lock.
std::unique_lock<std::mutex> turn_at_tpm(bool has_key_there) {
  static std::mutex turn;
  return has_key_there ? std::unique_lock(turn) : std::unique_lock<std::mutex>();
}

struct FreeKey {
  void operator()(EVP_PKEY* key) const { ::EVP_PKEY_free(key); }
};
using OwnedKey = std::unique_ptr<EVP_PKEY, FreeKey>;

// A key stays loaded: tpm2-tss 3.2 counts no references to a handle, so the free of a second key
// with the same one would make the first useless.
Result<OwnedKey> key_in_tpm(const std::string& uri) {
  static std::map<std::string, OwnedKey> loaded;
  OwnedKey& key = loaded[uri];
  if (key) {
    ::EVP_PKEY_up_ref(key.get());
    return OwnedKey(key.get());
  }
  // Once for the life of the process. Naming one provider ends the automatic use of the default.
  if (::OSSL_PROVIDER_available(nullptr, "tpm2") != 1 &&
      (!::OSSL_PROVIDER_load(nullptr, "default") || !::OSSL_PROVIDER_load(nullptr, "tpm2")))
    return fail(
        Code::unsupported,
        fmt::format("cannot load OpenSSL's provider tpm2 for the key {}: {}", uri, openssl_error()),
        "install tpm2-openssl, check that this account may use the TPM, or use a key file");
  if (OSSL_STORE_CTX* store = ::OSSL_STORE_open(uri.c_str(), nullptr, nullptr, nullptr, nullptr)) {
    while (!key && !::OSSL_STORE_eof(store)) {
      OSSL_STORE_INFO* found = ::OSSL_STORE_load(store);
      if (found && ::OSSL_STORE_INFO_get_type(found) == OSSL_STORE_INFO_PKEY)
        key.reset(::OSSL_STORE_INFO_get1_PKEY(found));
      ::OSSL_STORE_INFO_free(found);
    }
    ::OSSL_STORE_close(store);
  }
  if (!key)
    return fail(Code::invalid, fmt::format("no key at {}: {}", uri, openssl_error()),
                "list the persistent handles with: tpm2_getcap handles-persistent");
  ::EVP_PKEY_up_ref(key.get());
  return OwnedKey(key.get());
}

Result<OwnedKey> own_key(const std::string& text) {
  if (is_in_tpm(text))
    return key_in_tpm(std::string(trim(text)));
  const auto pem = pem_reader(text);
  return OwnedKey(::PEM_read_bio_PrivateKey(pem.get(), nullptr, no_passphrase, nullptr));
}

Status use_own_certificate(SSL_CTX* context, const TlsClientOptions& options) {
  if (options.cert_pem.empty())
    return {};
  const auto certs = pem_reader(options.cert_pem);
  const auto leaf = next_cert(certs.get());
  if (!leaf || ::SSL_CTX_use_certificate(context, leaf.get()) != 1)
    return fail(Code::invalid, "cannot use the client certificate: " + openssl_error(),
                "it must be in PEM form");
  while (const auto link = next_cert(certs.get()))
    ::SSL_CTX_add1_chain_cert(context, link.get());
  ::ERR_clear_error();
  const auto turn = turn_at_tpm(is_in_tpm(options.key_pem));
  const OwnedKey key = BILLOW_TRY(own_key(options.key_pem));
  if (!key || ::SSL_CTX_use_PrivateKey(context, key.get()) != 1 ||
      ::SSL_CTX_check_private_key(context) != 1)
    return fail(Code::invalid, "cannot use the key of the client certificate: " + openssl_error(),
                is_in_tpm(options.key_pem)
                    ? "it must match the certificate"
                    : "it must be in PEM form, without a passphrase, and match the certificate");
  return {};
}

// Several are separated by commas. As lower-case hex.
Result<std::string> pins_of(const std::string& fingerprints) {
  std::string out;
  if (fingerprints.empty())
    return out;
  for (const std::string& one : split(fingerprints, ',')) {
    std::string pin;
    for (const char c : lower(trim(one)))
      if (c != ':')
        pin += c;
    if (pin.size() != 64)
      return fail(Code::invalid, "a certificate fingerprint is 64 hexadecimal digits (SHA-256)",
                  "copy it from the head's output");
    out += (out.empty() ? "" : ",") + pin;
  }
  return out;
}

void add_name(std::vector<std::string>& names, const ASN1_STRING* text) {
  const int length = ::ASN1_STRING_length(text);
  const auto* data = reinterpret_cast<const char*>(::ASN1_STRING_get0_data(text));
  // A name with a zero byte in it could pass for another one.
  if (length > 0 && std::memchr(data, 0, static_cast<std::size_t>(length)) == nullptr)
    names.emplace_back(data, static_cast<std::size_t>(length));
}

std::vector<std::string> names_of(X509* cert) {
  std::vector<std::string> names;
  X509_NAME* subject = ::X509_get_subject_name(cert);
  if (const int at = ::X509_NAME_get_index_by_NID(subject, NID_commonName, -1); at >= 0)
    add_name(names, ::X509_NAME_ENTRY_get_data(::X509_NAME_get_entry(subject, at)));
  auto* others =
      static_cast<GENERAL_NAMES*>(::X509_get_ext_d2i(cert, NID_subject_alt_name, nullptr, nullptr));
  for (int i = 0; i < sk_GENERAL_NAME_num(others); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(others, i);
    if (name->type == GEN_DNS || name->type == GEN_URI)
      add_name(names, name->type == GEN_DNS ? name->d.dNSName : name->d.uniformResourceIdentifier);
  }
  ::GENERAL_NAMES_free(others);
  return names;
}

PeerCertificate certificate_of(X509* cert) {
  PeerCertificate out;
  out.names = names_of(cert);
  std::tm utc{};
  if (::ASN1_TIME_to_tm(::X509_get0_notAfter(cert), &utc) == 1)
    out.not_after = WallTime{} + seconds(::timegm(&utc));
  return out;
}

// A client that offers protocols, none of which is spoken here, is refused (RFC 7301).
int choose_protocol(SSL*,
                    const unsigned char** chosen,
                    unsigned char* length,
                    const unsigned char* offered,
                    unsigned offered_bytes,
                    void*) {
  static constexpr unsigned char spoken[] = "\x02h2\x08http/1.1";
  unsigned char* found = nullptr;
  if (::SSL_select_next_proto(&found, length, spoken, sizeof spoken - 1, offered, offered_bytes) !=
      OPENSSL_NPN_NEGOTIATED)
    return SSL_TLSEXT_ERR_ALERT_FATAL;
  *chosen = found;
  return SSL_TLSEXT_ERR_OK;
}

}  // namespace

// Verification against pins: either the leaf or an authority in the chain is pinned. In the second
// case the chain, including the host name, is verified with that authority as the only trusted one.
struct TlsVerify {
  // The connection holds what it needs of the chosen context, which may be replaced meanwhile.
  static int choose_by_name(SSL* ssl, int*, void* argument) {
    const auto* context = static_cast<const TlsContext*>(argument);
    const char* name = ::SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
    if (const auto chosen = context->by_name_(lower(name ? name : "")))
      ::SSL_set_SSL_CTX(ssl, chosen->context_);
    return SSL_TLSEXT_ERR_OK;
  }

  // By now the server has proved who it is, with OpenSSL's own provider: a TPM knows few kinds of
  // signatures and takes long for each. It is needed for the next one only, our own.
  static int show_key_in_tpm(SSL* ssl, void* argument) {
    return ::SSL_set_SSL_CTX(ssl, static_cast<TlsContext*>(argument)->context_) ? 1 : 0;
  }

  static bool is_pinned(const std::string& pins, X509* cert) {
    const std::string fingerprint = fingerprint_of(cert);
    for (const std::string& pin : split(pins, ','))
      if (equal_constant_time(fingerprint, pin))
        return true;
    return false;
  }

  static int pinned(X509_STORE_CTX* store, void* argument) {
    const auto& pins = static_cast<TlsContext*>(argument)->pin_;
    X509* leaf = ::X509_STORE_CTX_get0_cert(store);
    if (leaf && is_pinned(pins, leaf))
      return 1;
    STACK_OF(X509)* chain = ::X509_STORE_CTX_get0_untrusted(store);
    for (int i = 0; i < sk_X509_num(chain); ++i) {
      X509* cert = sk_X509_value(chain, i);
      if (!is_pinned(pins, cert))
        continue;
      STACK_OF(X509)* trusted = sk_X509_new_null();
      sk_X509_push(trusted, cert);
      ::X509_STORE_CTX_set0_trusted_stack(store, trusted);
      const int verified = ::X509_verify_cert(store);
      ::X509_STORE_CTX_set0_trusted_stack(store, nullptr);
      sk_X509_free(trusted);
      return verified;
    }
    ::X509_STORE_CTX_set_error(store, X509_V_ERR_CERT_UNTRUSTED);
    return 0;
  }

  using Accept = std::function<bool(const PeerCertificate&)>;
  static void free_accept(void*, void* accept, CRYPTO_EX_DATA*, int, long, void*) {
    delete static_cast<Accept*>(accept);
  }
  static int accept_index() {
    static const int index = SSL_CTX_get_ex_new_index(0, nullptr, nullptr, nullptr, free_accept);
    return index;
  }

  // Called for each certificate of a client's chain, the client's own last.
  static int client(int verified, X509_STORE_CTX* store) {
    if (verified != 1 || ::X509_STORE_CTX_get_error_depth(store) != 0)
      return verified;
    const auto* ssl = static_cast<SSL*>(
        ::X509_STORE_CTX_get_ex_data(store, ::SSL_get_ex_data_X509_STORE_CTX_idx()));
    const auto* accept =
        static_cast<Accept*>(::SSL_CTX_get_ex_data(::SSL_get_SSL_CTX(ssl), accept_index()));
    if (!*accept || (*accept)(certificate_of(::X509_STORE_CTX_get_current_cert(store))))
      return 1;
    ::X509_STORE_CTX_set_error(store, X509_V_ERR_CERT_REVOKED);
    return 0;
  }

  static Status ask_clients(TlsContext& context, const ClientAuthorities& clients) {
    BILLOW_TRY_VOID(trust_only(context.context_, clients.ca_pem));
    // Browsers offer their users only certificates of these authorities.
    const auto pem = pem_reader(clients.ca_pem);
    while (const auto cert = next_cert(pem.get()))
      ::SSL_CTX_add_client_CA(context.context_, cert.get());
    ::ERR_clear_error();
    ::SSL_CTX_set_ex_data(context.context_, accept_index(), new Accept(clients.accept));
    ::SSL_CTX_set_verify(context.context_, SSL_VERIFY_PEER, client);
    // A resumed session would skip the check for revocation.
    ::SSL_CTX_set_options(context.context_, SSL_OP_NO_TICKET);
    ::SSL_CTX_set_num_tickets(context.context_, 0);
    ::SSL_CTX_set_session_cache_mode(context.context_, SSL_SESS_CACHE_OFF);
    return {};
  }
};

Status ask_client_certificates(TlsContext& server, const ClientAuthorities& clients) {
  return clients.ca_pem.empty() ? Status{} : TlsVerify::ask_clients(server, clients);
}

TlsContext::~TlsContext() {
  ::SSL_CTX_free(context_);
}

Result<std::shared_ptr<TlsContext>> TlsContext::server(const TlsServerOptions& options) {
  std::shared_ptr<TlsContext> out(new TlsContext(::SSL_CTX_new(::TLS_server_method()), true));
  set_common(out->context_);
  ::SSL_CTX_set_options(out->context_, SSL_OP_CIPHER_SERVER_PREFERENCE);
  if (::SSL_CTX_use_certificate_chain_file(out->context_, options.cert_path.c_str()) != 1)
    return fail(
        Code::invalid,
        fmt::format("cannot use the certificate {}: {}", options.cert_path, openssl_error()),
        "it must be a readable PEM file");
  if (::SSL_CTX_use_PrivateKey_file(out->context_, options.key_path.c_str(), SSL_FILETYPE_PEM) !=
          1 ||
      ::SSL_CTX_check_private_key(out->context_) != 1)
    return fail(Code::invalid,
                fmt::format("cannot use the key {}: {}", options.key_path, openssl_error()),
                "it must be a readable PEM file and match the certificate");
  if (options.http2)
    ::SSL_CTX_set_alpn_select_cb(out->context_, choose_protocol, nullptr);
  if (options.by_name) {
    out->by_name_ = options.by_name;
    ::SSL_CTX_set_tlsext_servername_callback(out->context_, TlsVerify::choose_by_name);
    ::SSL_CTX_set_tlsext_servername_arg(out->context_, out.get());
  }
  return out;
}

Result<std::shared_ptr<TlsContext>> TlsContext::client(const TlsClientOptions& options) {
  std::shared_ptr<TlsContext> out(new TlsContext(::SSL_CTX_new(::TLS_client_method()), false));
  set_common(out->context_);
  ::SSL_CTX_set_verify(out->context_, options.accept_any_cert ? SSL_VERIFY_NONE : SSL_VERIFY_PEER,
                       nullptr);
  out->server_name_ = options.server_name;
  if (is_in_tpm(options.key_pem)) {
    out->key_in_tpm_.reset(
        new TlsContext(::SSL_CTX_new_ex(nullptr, tpm_signs, ::TLS_client_method()), false));
    ::SSL_CTX_set_cert_cb(out->context_, TlsVerify::show_key_in_tpm, out->key_in_tpm_.get());
  }
  BILLOW_TRY_VOID(
      use_own_certificate((out->key_in_tpm_ ? *out->key_in_tpm_ : *out).context_, options));
  out->pin_ = BILLOW_TRY(pins_of(options.pinned_fingerprint));
  if (!out->pin_.empty()) {
    ::SSL_CTX_set_cert_verify_callback(out->context_, TlsVerify::pinned, out.get());
  } else if (!options.ca_pem.empty()) {
    BILLOW_TRY_VOID(trust_only(out->context_, options.ca_pem));
  } else if (!options.ca_path.empty()) {
    if (::SSL_CTX_load_verify_locations(out->context_, options.ca_path.c_str(), nullptr) != 1)
      return fail(Code::invalid,
                  fmt::format("cannot read the certificate authority {}: {}", options.ca_path,
                              openssl_error()),
                  "it must be a PEM file");
  } else {
    ::SSL_CTX_set_default_verify_paths(out->context_);
  }
  return out;
}

Result<Transport> Transport::with_tls(Fd fd,
                                      const std::shared_ptr<TlsContext>& context,
                                      const std::string& dialled,
                                      bool http2) {
  Transport out(std::move(fd));
  out.context_ = context;
  out.ssl_ = ::SSL_new(context->context_);
  if (!out.ssl_)
    return fail(Code::internal, "cannot create a TLS session: " + openssl_error());
  BIO* bio = make_bio(out.fd_.get());
  ::SSL_set_bio(out.ssl_, bio, bio);
  if (context->is_server_) {
    ::SSL_set_accept_state(out.ssl_);
    return out;
  }
  ::SSL_set_connect_state(out.ssl_);
  if (http2)
    ::SSL_set_alpn_protos(out.ssl_, reinterpret_cast<const unsigned char*>("\x02h2"), 3);
  const std::string& host = context->server_name_.empty() ? dialled : context->server_name_;
  if (is_ip(host)) {
    ::X509_VERIFY_PARAM_set1_ip_asc(::SSL_get0_param(out.ssl_), host.c_str());
  } else if (!host.empty()) {
    ::SSL_set1_host(out.ssl_, host.c_str());
    ::SSL_set_tlsext_host_name(out.ssl_, host.c_str());
  }
  return out;
}

Transport::Transport(Transport&& o) noexcept
    : fd_(std::move(o.fd_)),
      ssl_(std::exchange(o.ssl_, nullptr)),
      context_(std::move(o.context_)),
      error_(std::move(o.error_)),
      cut_(o.cut_) {}

Transport::~Transport() {
  close();
}

bool Transport::http2() const {
  const unsigned char* chosen = nullptr;
  unsigned length = 0;
  if (ssl_)
    ::SSL_get0_alpn_selected(ssl_, &chosen, &length);
  return length == 2 && chosen[0] == 'h' && chosen[1] == '2';
}

PeerCertificatePtr Transport::peer_certificate() const {
  X509* cert = ssl_ && context_->is_server_ ? ::SSL_get0_peer_certificate(ssl_) : nullptr;
  if (!cert)
    return nullptr;
  return std::make_shared<PeerCertificate>(certificate_of(cert));
}

void Transport::close() {
  if (auto* ssl = std::exchange(ssl_, nullptr))
    ::SSL_free(ssl);
  fd_.reset();
}

IoResult Transport::tls_result(int rc) {
  const int error_number = errno;
  switch (::SSL_get_error(ssl_, rc)) {
    case SSL_ERROR_WANT_READ:
      return {Io::want_read};
    case SSL_ERROR_WANT_WRITE:
      return {Io::want_write};
    case SSL_ERROR_ZERO_RETURN:
      return {Io::closed};
    case SSL_ERROR_SYSCALL:
      ::ERR_clear_error();
      cut_ = true;
      error_ = error_number ? ::strerror(error_number) : "the connection was closed unexpectedly";
      return {Io::failed};
    default:
      break;
  }
  const long verdict = ::SSL_get_verify_result(ssl_);
  error_ = openssl_error();
  if (verdict != X509_V_OK)
    error_ = fmt::format("the {}'s certificate is not trusted ({})",
                         context_->is_server_ ? "client" : "server",
                         ::X509_verify_cert_error_string(verdict));
  return {Io::failed};
}

IoResult Transport::handshake() {
  if (!ssl_ || ::SSL_is_init_finished(ssl_))
    return {Io::done};
  const auto turn = turn_at_tpm(context_->key_in_tpm_ != nullptr);
  ::ERR_clear_error();
  const int rc = ::SSL_do_handshake(ssl_);
  return rc == 1 ? IoResult{Io::done} : tls_result(rc);
}

IoResult Transport::read(char* into, std::size_t bytes_max) {
  if (ssl_) {
    ::ERR_clear_error();
    std::size_t got = 0;
    const int rc = ::SSL_read_ex(ssl_, into, bytes_max, &got);
    return rc == 1 ? IoResult{Io::done, got} : tls_result(rc);
  }
  for (;;) {
    const auto got = ::recv(fd_.get(), into, bytes_max, 0);
    if (got > 0)
      return {Io::done, static_cast<std::size_t>(got)};
    if (got == 0)
      return {Io::closed};
    if (errno == EINTR)
      continue;
    if (errno == EAGAIN)
      return {Io::want_read};
    error_ = ::strerror(errno);
    return {Io::failed};
  }
}

IoResult Transport::write(const iovec* pieces, int count) {
  if (!ssl_) {
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(pieces);
    message.msg_iovlen = static_cast<std::size_t>(count);
    for (;;) {
      const auto sent = ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL);
      if (sent >= 0)
        return {Io::done, static_cast<std::size_t>(sent)};
      if (errno == EINTR)
        continue;
      if (errno == EAGAIN)
        return {Io::want_write};
      error_ = ::strerror(errno);
      return {Io::failed};
    }
  }
  // Small pieces (a head and its body) go into one record; a large one is written without a copy.
  char together[16 << 10];
  const void* data = pieces[0].iov_base;
  std::size_t length = pieces[0].iov_len;
  if (count > 1 && length < sizeof together) {
    length = 0;
    for (int i = 0; i < count && length < sizeof together; ++i) {
      const auto take = std::min(pieces[i].iov_len, sizeof together - length);
      std::memcpy(together + length, pieces[i].iov_base, take);
      length += take;
    }
    data = together;
  }
  if (length == 0)
    return {Io::done, 0};
  ::ERR_clear_error();
  std::size_t sent = 0;
  const int rc = ::SSL_write_ex(ssl_, data, length, &sent);
  return rc == 1 ? IoResult{Io::done, sent} : tls_result(rc);
}

void Transport::end_writing() {
  if (ssl_ && ::SSL_is_init_finished(ssl_)) {
    ::ERR_clear_error();
    ::SSL_shutdown(ssl_);
  }
  ::shutdown(fd_.get(), SHUT_WR);
}

}  // namespace billow::net
