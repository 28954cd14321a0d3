// A pack is a sequence of pieces as they are sent and stored. Each piece is its SHA-256, its size
// (8 bytes, little endian) and its content.
#pragma once

#include <functional>
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

// A list of digests, as a body: 32 bytes each.
std::string encode_digests(const std::vector<Sha256>& digests);
Result<std::vector<Sha256>> decode_digests(std::string_view bytes);

}  // namespace billow::files
