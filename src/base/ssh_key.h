// A fresh Ed25519 key in OpenSSH's own forms, made here so that nobody has to wait for a program
// that makes one.
#pragma once

#include <string>
#include <string_view>

namespace billow {

struct SshKey {
  std::string private_file;  // "-----BEGIN OPENSSH PRIVATE KEY-----…", without a passphrase
  std::string public_line;   // "ssh-ed25519 AAAA… comment"
};
SshKey make_ssh_key(const std::string& comment);

// One line with a public key of a kind OpenSSH knows, and nothing before it: neither options
// (`command="…"`) nor marks (`@cert-authority`).
bool is_ssh_public_key(std::string_view line);

}  // namespace billow
