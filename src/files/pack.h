// A pack is a sequence of pieces as they are sent and stored. Each piece is its SHA-256, its size
// (8 bytes, little endian) and its content.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "files/tree.h"

namespace billow::files {

inline constexpr std::size_t pack_header_bytes = 40;
inline constexpr std::size_t pack_bytes_max = 7 << 20;  // one body of the API
inline constexpr std::size_t pack_bytes_wanted = 5 << 20;

void add_piece(std::string& pack, const Sha256& digest, std::string_view bytes);
// Calls `fn` with each piece after checking its digest. Stops at the first error; earlier pieces
// have been passed on.
Status each_piece(std::string_view pack,
                  const std::function<Status(const Sha256& digest, std::string_view bytes)>& fn);

// Fills in the digests of a pack that was made without them, and returns them.
Result<std::vector<Sha256>> name_pieces(std::span<char> pack);

// A list of digests, as a body: 32 bytes each.
std::string encode_digests(const std::vector<Sha256>& digests);
Result<std::vector<Sha256>> decode_digests(std::string_view bytes);

// Where pieces are in the head's store, for an agent that sees the same files: as long a list as
// the digests asked for, or an empty one if it does not see them.
struct PieceFile {
  std::string path;
  std::uint64_t offset = 0;
  std::uint32_t size = 0;
};
std::string encode_places(const std::vector<PieceFile>& places);
Result<std::vector<PieceFile>> decode_places(std::string_view text);

}  // namespace billow::files
