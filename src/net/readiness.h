// A kernel set of watched descriptors: epoll on Linux, kqueue on macOS. The set is a descriptor
// itself and is readable while it has events.
#pragma once

#include <cstdint>
#include <span>

namespace billow::net {

class Readiness {
 public:
  struct Wish {
    bool read = false, write = false;
    bool operator==(const Wish&) const = default;
    bool any() const { return read || write; }
  };
  // Not initialised: every turn of the loop creates a batch of these, and most stay unused.
  struct News {
    std::uint64_t mark;  // as given to set()
    bool read, write;
    bool over;  // hung up or broken: the next read or write reports how
  };

  // A new set; the owner closes it.
  static int create();
  // Changes which events of a descriptor are watched; without any it leaves the set. False if it
  // cannot be watched.
  static bool set(int set, int fd, Wish before, Wish wanted, std::uint64_t mark);
  // Takes the pending events. If there are none, waits for some for at most so long. Returns how
  // many entries of `out` were filled.
  static int take(int set, std::span<News> out, int wait_ms);
};

}  // namespace billow::net
