// Both ends of the socket over which jobs and their node's agent exchange files: plain blocking
// reads and writes with a timeout.
#pragma once

#include <sys/socket.h>

#include <string>
#include <string_view>

#include "base/result.h"

namespace billow::agent::file_socket {

inline constexpr std::size_t line_bytes_max = 4096;

// Sets the timeout of every read and write.
void be_patient(int fd, int seconds);
Status send_all(int fd, std::string_view data);
Status receive(int fd, char* into, std::size_t size);
Result<std::string> receive_line(int fd);

}  // namespace billow::agent::file_socket
