// Where a volume of this node lies. A volume is mounted long after its order was checked, perhaps
// after an image was fetched, and users may own directories above it. So its path is followed once,
// here, and what mounts the volume follows no link of the result (process/open_without_links_linux,
// container::Mount::exact): a directory that was exchanged for a link in between is not mounted.
//
// Symbolic links in the path are followed if they belong to the system, to the agent's user or to
// the job's user. A link of anybody else would let that person choose which of the job's own files
// the job uses as the volume.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace billow::agent {

// The kernel's own file systems, and the sockets of the node's services. Several slashes are one.
bool is_the_systems(const std::string& path);

// The path of the volume without links. An error if it is not there, or leads through a link that
// is not followed, or to files of the system.
Result<std::string> volume_source(const std::string& source, std::uint32_t user);

}  // namespace billow::agent
