// The gateway's memory for bodies that it reads as a whole or copies, and who holds how much of it.
// Half is for clients that are known (by a valid key, or as a user of this machine), half for
// strangers, who reach open endpoints: they cannot block the others. In each half, nobody gets more
// than is left for everybody else, so one client alone never blocks others; a stranger gets an
// eighth of all memory at most. A service uses one key for all its users, so keys may have more.
#pragma once

#include <cstddef>
#include <map>
#include <string>

namespace billow::gateway {

struct BodyParty {
  std::string name;  // a key, a user, or the network of a client; empty: not asked for yet
  bool known = false;
};

class BodyMemory {
 public:
  static constexpr std::size_t bytes_max = 128 << 20;
  static constexpr std::size_t half_bytes_max = bytes_max / 2;
  static constexpr std::size_t stranger_bytes_max = bytes_max / 8;

  // False: there is none left for this party. What can do without gets none of the last part of a
  // half.
  bool take(const BodyParty& party, std::size_t bytes, bool can_do_without);
  void give_back(const BodyParty& party, std::size_t bytes);

 private:
  struct Half {
    std::size_t held = 0;
    std::map<std::string, std::size_t> parties;
  };
  Half known_, strangers_;
};

}  // namespace billow::gateway
