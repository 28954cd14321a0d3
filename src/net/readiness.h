// The kernel's set of descriptors to hear of: epoll on Linux, kqueue on macOS. One descriptor
// itself, readable while the set has news.
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
  // Without initial values: a batch of these is made for every turn of the loop, and most of it
  // stays unused.
  struct News {
    std::uint64_t mark;  // as given to set()
    bool read, write;
    bool over;  // hung up or broken: whoever reads or writes finds out
  };

  // A new set; the owner closes it.
  static int create();
  // Changes what is wanted of a descriptor in the set. Without any wish it leaves it. False where
  // it cannot be watched.
  static bool set(int set, int fd, Wish before, Wish wanted, std::uint64_t mark);
  // What there is to say now, without waiting: how many of `out` were filled.
  static int take(int set, std::span<News> out);
};

}  // namespace billow::net
