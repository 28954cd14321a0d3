#include "net/ssh_key.h"

#include <openssl/evp.h>

#include <cstdint>
#include <memory>

#include "base/check.h"
#include "base/crypto.h"
#include "base/text.h"

namespace billow {
namespace {

std::string ssh_number(std::uint32_t value) {
  std::string out;
  for (int shift = 24; shift >= 0; shift -= 8)
    out += static_cast<char>(value >> shift & 255);
  return out;
}
std::string ssh_text(const std::string& value) {
  return ssh_number(static_cast<std::uint32_t>(value.size())) + value;
}

}  // namespace

// The format is described in OpenSSH's PROTOCOL.key.
SshKey make_ssh_key(const std::string& comment) {
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(
      EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"), EVP_PKEY_free);
  BILLOW_CHECK(key, "cannot create an Ed25519 key");
  std::string seed(32, '\0'), open(32, '\0');
  std::size_t size = seed.size();
  BILLOW_CHECK(EVP_PKEY_get_raw_private_key(
                   key.get(), reinterpret_cast<unsigned char*>(seed.data()), &size) == 1 &&
                   size == 32,
               "an Ed25519 key has 32 bytes");
  BILLOW_CHECK(EVP_PKEY_get_raw_public_key(key.get(), reinterpret_cast<unsigned char*>(open.data()),
                                           &size) == 1 &&
                   size == 32,
               "an Ed25519 key has 32 bytes");
  const std::string type = "ssh-ed25519", public_blob = ssh_text(type) + ssh_text(open),
                    check = random_bytes(4);
  std::string secret =
      check + check + ssh_text(type) + ssh_text(open) + ssh_text(seed + open) + ssh_text(comment);
  for (char pad = 1; secret.size() % 8 != 0; ++pad)
    secret += pad;
  const std::string whole = std::string("openssh-key-v1\0", 15) + ssh_text("none") +
                            ssh_text("none") + ssh_text("") + ssh_number(1) +
                            ssh_text(public_blob) + ssh_text(secret);
  SshKey out;
  out.private_file = "-----BEGIN OPENSSH PRIVATE KEY-----\n";
  const std::string encoded = base64(whole);
  for (std::size_t at = 0; at < encoded.size(); at += 70)
    out.private_file += encoded.substr(at, 70) + "\n";
  out.private_file += "-----END OPENSSH PRIVATE KEY-----\n";
  out.public_line = type + " " + base64(public_blob) + " " + comment;
  return out;
}

bool is_ssh_public_key(std::string_view line) {
  constexpr std::size_t bytes_max = 8 << 10;
  const auto words = split(line, ' ');
  const bool kind =
      !words.empty() && (words[0].starts_with("ssh-") || words[0].starts_with("ecdsa-sha2-") ||
                         words[0].starts_with("sk-"));
  std::string decoded;
  return line.size() <= bytes_max && line.find_first_of("\r\n") == std::string_view::npos &&
         line.find('\0') == std::string_view::npos && kind && words.size() >= 2 &&
         base64_decode(words[1], decoded);
}

}  // namespace billow
