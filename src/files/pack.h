// Pieces of content as they travel and lie in a store: each is its SHA-256, its size (8 bytes,
// little endian) and its bytes, one after the other, nothing around them.
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
// Every piece in turn, checked against its digest. An error names what is wrong; pieces before it
// have been given.
Status each_piece(std::string_view pack,
                  const std::function<Status(const Sha256& digest, std::string_view bytes)>& fn);

// A list of digests, as a body: 32 bytes each.
std::string encode_digests(const std::vector<Sha256>& digests);
Result<std::vector<Sha256>> decode_digests(std::string_view bytes);

}  // namespace billow::files
