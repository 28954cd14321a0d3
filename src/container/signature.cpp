#include "container/signature.h"

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include <algorithm>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include "base/crypto.h"
#include "container/registry.h"

namespace billow::container {
namespace {

constexpr const char* statement_kind = "application/vnd.dev.cosign.simplesigning.v1+json";
constexpr const char* signature_name = "dev.cosignproject.cosign/signature";
constexpr const char* statement_type = "cosign container image signature";
constexpr std::size_t signatures_max = 64;

struct Free {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};
using PublicKey = std::unique_ptr<EVP_PKEY, Free>;

std::vector<PublicKey> read_keys(std::string_view pem) {
  std::vector<PublicKey> keys;
  const std::unique_ptr<BIO, Free> bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  while (bio) {
    PublicKey key(PEM_read_bio_PUBKEY(bio.get(), nullptr, nullptr, nullptr));
    if (!key)
      break;
    keys.push_back(std::move(key));
  }
  ERR_clear_error();  // that no further key was found
  return keys;
}

const unsigned char* bytes(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

}  // namespace

Status check_public_key(std::string_view pem) {
  if (read_keys(pem).empty())
    return fail(Code::invalid, "not a public key in PEM", "cosign public-key writes one");
  return {};
}

bool is_signed(std::string_view pem,
               std::string_view statement,
               std::string_view signature,
               std::string_view digest) {
  std::string raw;
  if (!base64_decode(signature, raw))
    return false;
  const auto signed_by = [&](const PublicKey& key) {
    const std::unique_ptr<EVP_MD_CTX, Free> context(EVP_MD_CTX_new());
    const bool ed25519 = EVP_PKEY_get_base_id(key.get()) == EVP_PKEY_ED25519;
    const bool good = context &&
                      EVP_DigestVerifyInit(context.get(), nullptr, ed25519 ? nullptr : EVP_sha256(),
                                           nullptr, key.get()) == 1 &&
                      EVP_DigestVerify(context.get(), bytes(raw), raw.size(), bytes(statement),
                                       statement.size()) == 1;
    ERR_clear_error();
    return good;
  };
  if (!std::ranges::any_of(read_keys(pem), signed_by))
    return false;
  const auto said = parse_json(statement);
  return said && said->at("critical", "type").str_or("") == statement_type &&
         said->at("critical", "image", "docker-manifest-digest").str_or("") == digest;
}

Result<std::string> signed_digest(const ImageName& image,
                                  const std::string& pem,
                                  const std::string& logins) {
  const auto refused = [&](std::string why) {
    return fail(Code::forbidden,
                fmt::format("this node's policy: image {} {}", image.text(), std::move(why)),
                "sign it: cosign sign --key cosign.key IMAGE@DIGEST");
  };
  if (image.registry == "localhost")
    return refused("is in no registry, so it has no signature");
  Registry registry = BILLOW_TRY(Registry::of(image, logins));
  std::string digest = BILLOW_TRY(registry.manifest(!image.digest.empty() ? image.digest
                                                    : image.tag.empty()   ? "latest"
                                                                          : image.tag))
                           .digest;
  const auto found = registry.manifest("sha256-" + digest.substr(digest.find(':') + 1) + ".sig");
  if (!found && found.error().code == Code::not_found)
    return refused("has no signature");
  if (!found)
    return pass(found.error());
  std::size_t looked_at = 0;
  for (const Json& layer : found->content["layers"].items()) {
    if (layer["mediaType"].str_or("") != statement_kind || ++looked_at > signatures_max)
      continue;
    const auto statement = registry.blob(std::string(layer["digest"].str_or("")));
    if (statement &&
        is_signed(pem, *statement, layer["annotations"][signature_name].str_or(""), digest))
      return digest;
  }
  return refused("has no signature of a key that this node accepts");
}

}  // namespace billow::container
