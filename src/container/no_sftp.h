// Answers file transfers when an image has no sftp-server. sshd does not pass on error output of a
// subsystem, so the reason travels in the protocol itself (draft-ietf-secsh-filexfer-02, as OpenSSH
// speaks it): every request is refused with that reason.
#pragma once

#include <string_view>

namespace billow::container {

// Runs until standard input ends; answers on standard output.
void refuse_file_transfers(std::string_view why);

}  // namespace billow::container
