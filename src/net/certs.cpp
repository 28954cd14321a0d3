#include "net/certs.h"

#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <time.h>

#include "base/crypto.h"
#include "base/text.h"
#include "net/address.h"

namespace billow::net {
namespace {

template <auto Free>
struct Freer {
  template <class T>
  void operator()(T* p) const {
    Free(p);
  }
};
using Cert = std::unique_ptr<X509, Freer<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Freer<EVP_PKEY_free>>;
using Bio = std::unique_ptr<BIO, Freer<BIO_free_all>>;
using CertRequestText = std::unique_ptr<X509_REQ, Freer<X509_REQ_free>>;
using Extension = std::unique_ptr<X509_EXTENSION, Freer<X509_EXTENSION_free>>;

constexpr int key_bits_min = 112;  // RSA with 2048 bits

std::unexpected<Error> broken(std::string_view what) {
  return fail(Code::internal, fmt::format("OpenSSL could not {}", what));
}

Result<std::string> bio_text(BIO* bio) {
  char* data = nullptr;
  const long length = BIO_get_mem_data(bio, &data);
  if (length <= 0)
    return broken("write a PEM text");
  return std::string(data, static_cast<std::size_t>(length));
}

Result<CertAndKey> to_pem(X509* cert, EVP_PKEY* key) {
  Bio cert_bio(::BIO_new(::BIO_s_mem())), key_bio(::BIO_new(::BIO_s_mem()));
  if (::PEM_write_bio_X509(cert_bio.get(), cert) != 1 ||
      ::PEM_write_bio_PrivateKey(key_bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr) != 1)
    return broken("write a certificate");
  return CertAndKey{BILLOW_TRY(bio_text(cert_bio.get())), BILLOW_TRY(bio_text(key_bio.get()))};
}

Result<Cert> read_cert(const std::string& pem) {
  Bio bio(::BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  Cert cert(::PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
  if (!cert)
    return fail(Code::invalid, "not a PEM certificate");
  return cert;
}

Result<Key> read_key(const std::string& pem) {
  Bio bio(::BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  Key key(::PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, nullptr));
  if (!key)
    return fail(Code::invalid, "not a PEM private key");
  return key;
}

// Common to all certificates: version 3, a random serial, validity, a subject and its public key.
Result<Cert> blank_cert(const std::string& subject, Duration life, EVP_PKEY* key) {
  Cert cert(::X509_new());
  ::X509_set_version(cert.get(), X509_VERSION_3);
  std::string serial = random_bytes(16);
  serial[0] = static_cast<char>((serial[0] & 0x7f) | 0x40);  // positive and of full length
  std::unique_ptr<BIGNUM, Freer<BN_free>> number(
      ::BN_bin2bn(reinterpret_cast<const unsigned char*>(serial.data()),
                  static_cast<int>(serial.size()), nullptr));
  ::BN_to_ASN1_INTEGER(number.get(), ::X509_get_serialNumber(cert.get()));
  ::X509_gmtime_adj(::X509_getm_notBefore(cert.get()),
                    -static_cast<long>(cert_backdated.ns / 1'000'000'000));
  ::X509_gmtime_adj(::X509_getm_notAfter(cert.get()), static_cast<long>(life.ns / 1'000'000'000));
  auto* name = ::X509_get_subject_name(cert.get());
  const std::string common = subject.substr(0, 64);  // the limit of a common name
  if (::X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8,
                                   reinterpret_cast<const unsigned char*>(common.data()),
                                   static_cast<int>(common.size()), -1, 0) != 1 ||
      ::X509_set_pubkey(cert.get(), key) != 1)
    return broken("fill in a certificate");
  return cert;
}

Status add_extension(X509* cert, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  ::X509V3_set_ctx(&context, issuer, cert, nullptr, nullptr, 0);
  Extension extension(::X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str()));
  if (!extension || ::X509_add_ext(cert, extension.get(), -1) != 1)
    return broken("add an extension to a certificate");
  return {};
}

// "DNS:head,IP:10.0.0.1". OpenSSL parses this text, so characters that could end a name are
// rejected.
Result<std::string> alternative_names(const std::vector<std::string>& names) {
  std::string out;
  for (const auto& name : names) {
    const bool ip = is_ip(name);
    const auto plain = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
             c == '-' || c == '.' || c == '_' || c == '*';
    };
    if (!ip && (name.empty() || name.size() > 253 || !std::all_of(name.begin(), name.end(), plain)))
      return fail(Code::invalid, fmt::format("\"{}\" is not a host name or IP address", name));
    if (!out.empty())
      out += ',';
    out += (ip ? "IP:" : "DNS:") + name;
  }
  if (out.empty())
    return fail(Code::invalid, "a certificate needs at least one name");
  return out;
}

}  // namespace

Result<CertAndKey> make_ca(const std::string& name, Duration life) {
  Key key(::EVP_EC_gen("P-256"));
  if (!key)
    return broken("create a key");
  Cert cert = BILLOW_TRY(blank_cert(name, life, key.get()));
  ::X509_set_issuer_name(cert.get(), ::X509_get_subject_name(cert.get()));
  BILLOW_TRY_VOID(
      add_extension(cert.get(), cert.get(), NID_basic_constraints, "critical,CA:TRUE,pathlen:0"));
  BILLOW_TRY_VOID(
      add_extension(cert.get(), cert.get(), NID_key_usage, "critical,keyCertSign,cRLSign"));
  BILLOW_TRY_VOID(add_extension(cert.get(), cert.get(), NID_subject_key_identifier, "hash"));
  if (::X509_sign(cert.get(), key.get(), ::EVP_sha256()) == 0)
    return broken("sign a certificate");
  return to_pem(cert.get(), key.get());
}

Result<CertAndKey> issue_cert(const CertAndKey& authority, const CertRequest& request) {
  const Cert issuer = BILLOW_TRY(read_cert(authority.cert_pem));
  const Key issuer_key = BILLOW_TRY(read_key(authority.key_pem));
  const std::string names = BILLOW_TRY(alternative_names(request.names));
  Key key(::EVP_EC_gen("P-256"));
  if (!key)
    return broken("create a key");
  Cert cert = BILLOW_TRY(blank_cert(request.names.front(), request.life, key.get()));
  ::X509_set_issuer_name(cert.get(), ::X509_get_subject_name(issuer.get()));
  BILLOW_TRY_VOID(
      add_extension(cert.get(), issuer.get(), NID_basic_constraints, "critical,CA:FALSE"));
  BILLOW_TRY_VOID(
      add_extension(cert.get(), issuer.get(), NID_key_usage, "critical,digitalSignature"));
  BILLOW_TRY_VOID(add_extension(cert.get(), issuer.get(), NID_ext_key_usage, "serverAuth"));
  BILLOW_TRY_VOID(add_extension(cert.get(), issuer.get(), NID_subject_alt_name, names));
  BILLOW_TRY_VOID(add_extension(cert.get(), issuer.get(), NID_subject_key_identifier, "hash"));
  BILLOW_TRY_VOID(add_extension(cert.get(), issuer.get(), NID_authority_key_identifier, "keyid"));
  if (::X509_sign(cert.get(), issuer_key.get(), ::EVP_sha256()) == 0)
    return broken("sign a certificate");
  auto out = BILLOW_TRY(to_pem(cert.get(), key.get()));
  out.cert_pem += authority.cert_pem;
  return out;
}

Result<KeyAndRequest> request_cert(const std::string& name) {
  const Key key(::EVP_EC_gen("P-256"));
  const CertRequestText request(::X509_REQ_new());
  if (!key || !request)
    return broken("create a key");
  const std::string common = name.substr(0, 64);
  if (::X509_NAME_add_entry_by_txt(::X509_REQ_get_subject_name(request.get()), "CN", MBSTRING_UTF8,
                                   reinterpret_cast<const unsigned char*>(common.data()),
                                   static_cast<int>(common.size()), -1, 0) != 1 ||
      ::X509_REQ_set_pubkey(request.get(), key.get()) != 1 ||
      ::X509_REQ_sign(request.get(), key.get(), ::EVP_sha256()) == 0)
    return broken("make a certificate request");
  Bio key_bio(::BIO_new(::BIO_s_mem())), request_bio(::BIO_new(::BIO_s_mem()));
  if (::PEM_write_bio_PrivateKey(key_bio.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) !=
          1 ||
      ::PEM_write_bio_X509_REQ(request_bio.get(), request.get()) != 1)
    return broken("write a certificate request");
  return KeyAndRequest{BILLOW_TRY(bio_text(key_bio.get())),
                       BILLOW_TRY(bio_text(request_bio.get()))};
}

Result<KeyAndRequest> request_server_cert(const std::vector<std::string>& names) {
  const Key key(::EVP_EC_gen("P-256"));
  const CertRequestText request(::X509_REQ_new());
  if (!key || !request || names.empty())
    return broken("create a key");
  std::string all;
  for (const std::string& name : names)
    all += (all.empty() ? "DNS:" : ",DNS:") + name;
  const Extension extension(
      ::X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, all.c_str()));
  STACK_OF(X509_EXTENSION)* extensions = sk_X509_EXTENSION_new_null();
  const bool made = extension && extensions &&
                    sk_X509_EXTENSION_push(extensions, extension.get()) > 0 &&
                    ::X509_REQ_add_extensions(request.get(), extensions) == 1 &&
                    ::X509_REQ_set_pubkey(request.get(), key.get()) == 1 &&
                    ::X509_REQ_sign(request.get(), key.get(), ::EVP_sha256()) > 0;
  sk_X509_EXTENSION_free(extensions);
  Bio key_bio(::BIO_new(::BIO_s_mem())), request_bio(::BIO_new(::BIO_s_mem()));
  if (!made ||
      ::PEM_write_bio_PrivateKey(key_bio.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) !=
          1 ||
      ::PEM_write_bio_X509_REQ(request_bio.get(), request.get()) != 1)
    return broken("make a certificate request");
  return KeyAndRequest{BILLOW_TRY(bio_text(key_bio.get())),
                       BILLOW_TRY(bio_text(request_bio.get()))};
}

Result<std::vector<std::string>> cert_names(const std::string& cert_pem) {
  const Cert cert = BILLOW_TRY(read_cert(cert_pem));
  std::vector<std::string> out;
  auto* names = static_cast<GENERAL_NAMES*>(
      ::X509_get_ext_d2i(cert.get(), NID_subject_alt_name, nullptr, nullptr));
  for (int i = 0; i < sk_GENERAL_NAME_num(names); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names, i);
    if (name->type != GEN_DNS)
      continue;
    const std::string text(reinterpret_cast<const char*>(::ASN1_STRING_get0_data(name->d.dNSName)),
                           static_cast<std::size_t>(::ASN1_STRING_length(name->d.dNSName)));
    // A name with a zero byte in it could pass for another one.
    if (!text.empty() && text.find('\0') == std::string::npos)
      out.push_back(lower(text));
  }
  ::GENERAL_NAMES_free(names);
  return out;
}

Result<std::string> certify_client(const CertAndKey& authority,
                                   const std::string& request_pem,
                                   const ClientCert& client) {
  const Cert issuer = BILLOW_TRY(read_cert(authority.cert_pem));
  const Key issuer_key = BILLOW_TRY(read_key(authority.key_pem));
  Bio bio(::BIO_new_mem_buf(request_pem.data(), static_cast<int>(request_pem.size())));
  const CertRequestText request(::PEM_read_bio_X509_REQ(bio.get(), nullptr, nullptr, nullptr));
  EVP_PKEY* key = request ? ::X509_REQ_get0_pubkey(request.get()) : nullptr;
  if (!key || ::X509_REQ_verify(request.get(), key) != 1) {
    ::ERR_clear_error();
    return fail(Code::invalid, "this is not a signed certificate request",
                "send a PKCS #10 request in PEM form");
  }
  if (::EVP_PKEY_get_security_bits(key) < key_bits_min)
    return fail(Code::invalid, "the key of the certificate request is too weak",
                "use an elliptic curve key, or RSA with 2048 bits or more");
  Cert cert = BILLOW_TRY(blank_cert(client.name, client.life, key));
  ::X509_set_issuer_name(cert.get(), ::X509_get_subject_name(issuer.get()));
  BILLOW_TRY_VOID(
      add_extension(cert.get(), issuer.get(), NID_basic_constraints, "critical,CA:FALSE"));
  BILLOW_TRY_VOID(
      add_extension(cert.get(), issuer.get(), NID_key_usage, "critical,digitalSignature"));
  BILLOW_TRY_VOID(add_extension(cert.get(), issuer.get(), NID_ext_key_usage, "clientAuth"));
  BILLOW_TRY_VOID(
      add_extension(cert.get(), issuer.get(), NID_subject_alt_name, "URI:" + client.uri));
  BILLOW_TRY_VOID(add_extension(cert.get(), issuer.get(), NID_subject_key_identifier, "hash"));
  BILLOW_TRY_VOID(add_extension(cert.get(), issuer.get(), NID_authority_key_identifier, "keyid"));
  if (::X509_sign(cert.get(), issuer_key.get(), ::EVP_sha256()) == 0)
    return broken("sign a certificate");
  Bio out(::BIO_new(::BIO_s_mem()));
  if (::PEM_write_bio_X509(out.get(), cert.get()) != 1)
    return broken("write a certificate");
  return bio_text(out.get());
}

Result<CertDates> cert_dates(const std::string& cert_pem) {
  const Cert cert = BILLOW_TRY(read_cert(cert_pem));
  const auto time_of = [](const ASN1_TIME* time) {
    std::tm utc{};
    ::ASN1_TIME_to_tm(time, &utc);
    return WallTime{} + seconds(::timegm(&utc));
  };
  return CertDates{time_of(::X509_get0_notBefore(cert.get())),
                   time_of(::X509_get0_notAfter(cert.get()))};
}

Result<std::string> cert_fingerprint(const std::string& cert_pem) {
  const Cert cert = BILLOW_TRY(read_cert(cert_pem));
  unsigned char digest[32];
  unsigned length = 0;
  if (::X509_digest(cert.get(), ::EVP_sha256(), digest, &length) != 1)
    return broken("hash a certificate");
  return hex(std::string_view(reinterpret_cast<const char*>(digest), length));
}

}  // namespace billow::net
