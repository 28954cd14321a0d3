// How a pod gets the program: from its image, or else from the head.
#pragma once

#include <string>

namespace billow::pool {

inline constexpr const char* program_url_variable = "BILLOW_PROGRAM_URL";
inline constexpr const char* program_hash_variable = "BILLOW_PROGRAM_SHA256";

// A shell script that becomes `billow` with the arguments it was given. If the image does not have
// it, the script fetches it from the head with the pod's join token, trusting only the head's own
// authority, and compares its hash. `home` is writable; `secrets` has the files token and
// authority.
std::string program_script(const std::string& home, const std::string& secrets);

}  // namespace billow::pool
