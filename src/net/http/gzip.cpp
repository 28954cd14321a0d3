#include "net/http/gzip.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/text.h"

namespace billow::net {
namespace {

constexpr std::size_t window = 32 << 10;
constexpr std::size_t match_min = 4, match_max = 258;
constexpr std::size_t worth_bytes = 1 << 10;
constexpr unsigned hash_bits = 15;

struct HuffmanCode {
  std::uint16_t base;
  std::uint8_t extra_bits;
};
// RFC 1951, 3.2.5: the first length of each code from 257 on, and the first distance of each code.
constexpr std::array<HuffmanCode, 29> lengths = {
    {{3, 0},  {4, 0},  {5, 0},  {6, 0},   {7, 0},   {8, 0},   {9, 0},   {10, 0},  {11, 1}, {13, 1},
     {15, 1}, {17, 1}, {19, 2}, {23, 2},  {27, 2},  {31, 2},  {35, 3},  {43, 3},  {51, 3}, {59, 3},
     {67, 4}, {83, 4}, {99, 4}, {115, 4}, {131, 5}, {163, 5}, {195, 5}, {227, 5}, {258, 0}}};
constexpr std::array<HuffmanCode, 30> distances = {
    {{1, 0},     {2, 0},     {3, 0},     {4, 0},      {5, 1},      {7, 1},
     {9, 2},     {13, 2},    {17, 3},    {25, 3},     {33, 4},     {49, 4},
     {65, 5},    {97, 5},    {129, 6},   {193, 6},    {257, 7},    {385, 7},
     {513, 8},   {769, 8},   {1025, 9},  {1537, 9},   {2049, 10},  {3073, 10},
     {4097, 11}, {6145, 11}, {8193, 12}, {12289, 12}, {16385, 13}, {24577, 13}}};

template <std::size_t N>
std::size_t code_of(const std::array<HuffmanCode, N>& table, std::size_t value) {
  const auto above =
      std::upper_bound(table.begin(), table.end(), value,
                       [](std::size_t v, const HuffmanCode& c) { return v < c.base; });
  return static_cast<std::size_t>(above - table.begin()) - 1;
}

class BitWriter {
 public:
  explicit BitWriter(std::string& out) : out_(out) {}
  void put(std::uint32_t value, unsigned bits) {
    held_ |= static_cast<std::uint64_t>(value) << count_;
    for (count_ += bits; count_ >= 8; count_ -= 8) {
      out_ += static_cast<char>(held_ & 0xff);
      held_ >>= 8;
    }
  }
  // Codes stand with their first bit first.
  void put_code(std::uint32_t code, unsigned bits) {
    std::uint32_t turned = 0;
    for (unsigned i = 0; i < bits; ++i)
      turned |= ((code >> i) & 1u) << (bits - 1 - i);
    put(turned, bits);
  }
  void flush() {
    if (count_ > 0)
      out_ += static_cast<char>(held_ & 0xff);
    held_ = count_ = 0;
  }

 private:
  std::string& out_;
  std::uint64_t held_ = 0;
  unsigned count_ = 0;
};

// A literal or a length by the fixed code (RFC 1951, 3.2.6).
void put_symbol(BitWriter& out, std::size_t symbol) {
  const auto s = static_cast<std::uint32_t>(symbol);
  if (s < 144)
    out.put_code(0x30 + s, 8);
  else if (s < 256)
    out.put_code(0x190 + s - 144, 9);
  else if (s < 280)
    out.put_code(s - 256, 7);
  else
    out.put_code(0xc0 + s - 280, 8);
}

void put_match(BitWriter& out, std::size_t length, std::size_t distance) {
  const std::size_t l = code_of(lengths, length), d = code_of(distances, distance);
  put_symbol(out, 257 + l);
  out.put(static_cast<std::uint32_t>(length - lengths[l].base), lengths[l].extra_bits);
  out.put_code(static_cast<std::uint32_t>(d), 5);
  out.put(static_cast<std::uint32_t>(distance - distances[d].base), distances[d].extra_bits);
}

std::uint32_t word_at(std::string_view text, std::size_t at) {
  std::uint32_t word;
  std::memcpy(&word, text.data() + at, sizeof(word));
  return word;
}

void deflate(std::string_view text, std::string& to) {
  BitWriter out(to);
  out.put(1, 1);  // the last block
  out.put(1, 2);  // with fixed codes
  // Where each hash of four bytes stood last, plus one.
  std::vector<std::uint32_t> seen(std::size_t{1} << hash_bits);
  const auto slot = [&](std::size_t at) -> std::uint32_t& {
    return seen[(word_at(text, at) * 2654435761u) >> (32 - hash_bits)];
  };
  for (std::size_t at = 0; at < text.size();) {
    std::size_t length = 0, from = 0;
    if (text.size() - at >= match_min) {
      std::uint32_t& last = slot(at);
      from = last ? last - 1 : at;
      last = static_cast<std::uint32_t>(at) + 1;
      const std::size_t most = std::min(match_max, text.size() - at);
      if (from < at && at - from <= window && word_at(text, from) == word_at(text, at))
        for (length = match_min; length < most && text[from + length] == text[at + length];)
          ++length;
    }
    if (length == 0) {
      put_symbol(out, static_cast<unsigned char>(text[at++]));
      continue;
    }
    put_match(out, length, at - from);
    const std::size_t end = at + length;
    for (++at; at < end; ++at)
      if (text.size() - at >= match_min)
        slot(at) = static_cast<std::uint32_t>(at) + 1;
  }
  put_symbol(out, 256);
  out.flush();
}

std::uint32_t crc32(std::string_view text) {
  static const auto table = [] {
    std::array<std::uint32_t, 256> t{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      t[i] = i;
      for (int bit = 0; bit < 8; ++bit)
        t[i] = (t[i] & 1u) ? 0xedb88320u ^ (t[i] >> 1) : t[i] >> 1;
    }
    return t;
  }();
  std::uint32_t crc = 0xffffffffu;
  for (const char c : text)
    crc = table[(crc ^ static_cast<unsigned char>(c)) & 0xff] ^ (crc >> 8);
  return ~crc;
}

void put_u32(std::string& out, std::uint32_t value) {
  for (int shift = 0; shift < 32; shift += 8)
    out += static_cast<char>((value >> shift) & 0xff);
}

}  // namespace

std::string gzip(std::string_view text) {
  std::string out("\x1f\x8b\x08\0\0\0\0\0\0\xff", 10);
  out.reserve(text.size() / 4 + 64);
  deflate(text, out);
  put_u32(out, crc32(text));
  put_u32(out, static_cast<std::uint32_t>(text.size()));
  return out;
}

bool accepts_encoding(const Request& request, std::string_view encoding) {
  for (const std::string& item : split(request.headers.get("Accept-Encoding"), ',')) {
    const auto parts = split(item, ';');
    const std::string name(trim(parts.front()));
    if (!equal_nocase(name, encoding) && name != "*")
      continue;
    const bool refused =
        parts.size() > 1 && (trim(parts[1]) == "q=0" || trim(parts[1]).starts_with("q=0.000"));
    return !refused;
  }
  return false;
}

void compress_for(const Request& request, Response& response) {
  response.headers.add("Vary", "Accept-Encoding");
  if (response.body.size() < worth_bytes || !accepts_encoding(request, "gzip"))
    return;
  response.body = gzip(response.body);
  response.headers.add("Content-Encoding", "gzip");
}

}  // namespace billow::net
