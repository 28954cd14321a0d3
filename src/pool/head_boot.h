// What the machine of `billow cloud head` runs at its first start: it mounts the disk that keeps
// the head's state, receives the program and the state at the head's own port, and starts the head
// as a service without root.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace billow::pool {

struct HeadBoot {
  std::string installation;
  std::string public_url;  // "https://203.0.113.7:7070"
  std::uint16_t port = 7070;
  std::string disk;            // names of the state's device, with wildcards
  std::string program_sha256;  // of the archive (program.h) that will be sent
  bool state = true;           // the state is sent, too; false: it is on the disk already
  // Of the first minutes, until everything has been sent. The certificate is for nothing else, and
  // TLS keeps what was sent secret even if its key becomes known later.
  std::string cert_pem, key_pem;
  std::string word_sha256;  // of the secret word with which things are sent
};

// A shell script, as in boot.h.
std::string head_script(const HeadBoot& boot);

// Where the machine waits for each part: "/program", "/state".
inline constexpr const char* head_program_path = "/program";
inline constexpr const char* head_state_path = "/state";

}  // namespace billow::pool
