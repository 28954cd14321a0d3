// Generates Ed25519 keys in OpenSSH's formats without running ssh-keygen.
#pragma once

#include <string>
#include <string_view>

namespace billow {

struct SshKey {
  std::string private_file;  // "-----BEGIN OPENSSH PRIVATE KEY-----…", without a passphrase
  std::string public_line;   // "ssh-ed25519 AAAA… comment"
};
SshKey make_ssh_key(const std::string& comment);

// Whether the line starts with a public key of a type OpenSSH knows. Options (`command="…"`) and
// markers (`@cert-authority`) in front of the key are rejected.
bool is_ssh_public_key(std::string_view line);

}  // namespace billow
