// The sockets on which jobs reach their node's agent: Unix sockets in a directory of the agent's
// own that cannot be listed and whose name only jobs get. So no other user can bind a socket in its
// place while the agent restarts, and none without a job can connect to it.
#pragma once

#include <string>

#include "agent/isolate/own_place.h"
#include "base/file.h"
#include "base/result.h"

namespace billow::agent {

struct Door {
  std::string directory;  // relative to the place
  std::string name;
  std::string path(const OwnPlace& place) const { return place.below(directory + "/" + name); }
};
// Replaces the socket that an earlier agent left.
Result<Fd> listen_at(const OwnPlace& place, const Door& door);
// The kind of socket that jobs of older agents know: a name in the abstract namespace.
Result<Fd> listen_abstract(const std::string& name);

}  // namespace billow::agent
