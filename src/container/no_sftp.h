// What answers file transfers where an image has no server for them. sshd passes on nothing that a
// subsystem complains of, so the complaint is an answer of the protocol itself
// (draft-ietf-secsh-filexfer-02, as OpenSSH speaks it): every request is refused, with the reason.
#pragma once

#include <string_view>

namespace billow::container {

// Until the other side has ended. Reads standard input, writes standard output.
void refuse_file_transfers(std::string_view why);

}  // namespace billow::container
