// Whether two processes see the same files. A head that is reached at a loopback address may be at
// the other end of a tunnel (ssh, kubectl port-forward), and one in a container has another root.
#pragma once

#include <string>

namespace billow::files {

// Names the root directory of this process and the running system that it belongs to; the same for
// all processes that share it. Empty: not known.
std::string root_id();

}  // namespace billow::files
