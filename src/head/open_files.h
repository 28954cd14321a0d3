// How many descriptors a head may have: one per agent, follower and watcher, so a thousand machines
// are more than the customary 1024. Raised to what the system allows. What starts jobs gets the
// limit back that was there before: programs that use select() break with more, and it is not for a
// head to change what jobs find.
#pragma once

#include <cstdint>

namespace billow::head {

// Returns the limit as it was; 0 where it cannot be told.
std::uint64_t raise_open_files();
// How many connections the server may take: half of the files that this process may open.
std::size_t connections_within_open_files();
}  // namespace billow::head
