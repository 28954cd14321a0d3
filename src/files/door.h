// How a client hands files to a head on the same machine: over a Unix socket of its own, without
// HTTP, and without computing digests itself. The head reads large files from the client's
// descriptors, so their content passes through no socket at all.
//
// The client gets a ticket over HTTP, where its token is checked, and sends it first. Each request
// is a DoorRequest, with a descriptor or followed by content; each answer is a DoorAnswer followed
// by `size` octets. Both ends are on one machine: numbers are in its byte order.
#pragma once

#include <cstdint>
#include <string>

namespace billow::files {

struct DoorTicket {
  std::string socket;  // an abstract name
  std::string ticket;
  // The head's user. The client hands no descriptor to anybody else: after the head has ended,
  // any process may listen at the name.
  std::uint32_t uid = UINT32_MAX;
};
inline constexpr std::size_t door_ticket_bytes = 32;
// What one ticket is good for: beyond it the client asks for another, and its token is checked
// again.
inline constexpr std::uint64_t door_bytes_per_ticket = 256ull << 20;

struct DoorRequest {
  enum : std::uint32_t { pack = 1, piece = 2 };
  std::uint32_t kind = 0;
  std::uint32_t size = 0;    // of the pack that follows, which has no digests; or of the piece
  std::uint64_t offset = 0;  // of the piece, in the file whose descriptor is attached
};
struct DoorAnswer {
  enum : std::uint32_t {
    digests = 0,    // 32 octets for each piece
    error = 1,      // its code as a digit string, message and hint, a line each
    unwanted = 2,   // the head does not read from such a file: send its content
    exhausted = 3,  // the ticket is used up
  };
  std::uint32_t status = 0;
  std::uint32_t size = 0;
};

}  // namespace billow::files
