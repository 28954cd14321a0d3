// A block of addresses as people write it: "10.1.0.0/16", "192.168.7.4", "fd12::/48". Jobs with the
// network `internet` reach private networks only in blocks that were allowed.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/limits.h"
#include "base/result.h"

namespace billow {

struct AddressBlock {
  bool v6 = false;
  std::array<unsigned char, 16> bytes = {};  // IPv4: the first four
  int bits = 0;                              // as many of them count

  static Result<AddressBlock> parse(std::string_view text);
  std::string text() const;
  // `address` has 4 or 16 bytes, as `is_v6` says.
  bool contains(bool is_v6, const unsigned char* address) const;
  bool within(const AddressBlock& other) const;
  bool operator==(const AddressBlock&) const = default;
};

// The networks that are nobody's on the Internet, of which parts can be allowed: RFC 1918, RFC 6598
// and RFC 4193.
const std::vector<AddressBlock>& private_blocks();
// Whether a job may be allowed to reach these blocks. Public addresses need no permission, and the
// node itself, link-local addresses and clouds' metadata services are never reached.
// Blocks of a job and of its project together are as many as two of them have.
Result<std::vector<AddressBlock>> parse_allowed(const std::vector<std::string>& texts,
                                                std::size_t most = limits::allowed_blocks_max);

}  // namespace billow
