// Both ends of the socket over which jobs and their node's agent exchange files: plain blocking
// reads and writes with a timeout.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <string>
#include <string_view>

#include "base/file.h"
#include "base/result.h"

namespace billow::agent::file_socket {

inline constexpr std::size_t line_bytes_max = 4096;

Status send_all(int fd, std::string_view data);
Status receive(int fd, char* into, std::size_t size);
Result<std::string> receive_line(int fd);

// Passes a descriptor. A received one is always that of a plain file that can be written.
Status send_descriptor(int fd, int sent);
Result<Fd> receive_descriptor(int fd);
// Whether the agent may fill such a file for a job: it lies on the device of the jobs' directories
// (a write to another, such as one that the job itself serves, might never end), belongs to the
// job's user, has no second name, and no rights that a write of root's would leave as they are.
struct FillTerms {
  dev_t device = 0;
  uid_t user = 0;
};
bool may_fill(int descriptor, const FillTerms& terms);

// Words after the digest of `get`, each after those before it: the agent fills large files, and
// looks at a kept directory itself. Then it answers with "part" and the list of what is missing.
inline constexpr std::string_view fds_word = " fds";
inline constexpr std::string_view part_word = " part";
inline constexpr const char* not_its_files = "these are not this job's files";
// A job's new files of at least this size are filled by the agent, some at a time (`get … fds`).
inline constexpr std::uint64_t filled_bytes_min = 1 << 20;
inline constexpr std::size_t filled_at_once = 32;

}  // namespace billow::agent::file_socket
