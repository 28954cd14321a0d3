// A fresh Ed25519 key in OpenSSH's own forms, made here so that nobody has to wait for a program that makes one.
#pragma once

#include <string>

namespace billow {

struct SshKey {
  std::string private_file;  // "-----BEGIN OPENSSH PRIVATE KEY-----…", without a passphrase
  std::string public_line;   // "ssh-ed25519 AAAA… comment"
};
SshKey make_ssh_key(const std::string& comment);

}  // namespace billow
