// Content kept by its digest, in packs on disk, up to a size. The head has one for what people upload, every node one for what its jobs
// needed before.
//
// A pack is written beside its name and renamed, so a crash leaves whole ones. Which piece lies where is in memory, read from the packs
// when the store is opened. Beyond the limit the packs that were used longest ago go, but none used within the last minutes: somebody
// may just have been told that they are there. Thread-safe.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "files/tree.h"

namespace billow::limits {
inline constexpr std::uint64_t head_files_bytes_max = 50ull << 30;  // of what people uploaded; the longest unused goes first
}

namespace billow::files {

struct DigestHash {
  std::size_t operator()(const Sha256& digest) const;
};

class Store {
 public:
  static Result<std::unique_ptr<Store>> open(std::string directory, std::uint64_t bytes_max);

  bool has(const Sha256& digest) const;
  // Those that are not here, each once. What is here counts as used.
  std::vector<Sha256> missing(const std::vector<Sha256>& digests);
  // Checks every piece; nothing is kept of a pack that holds a wrong one.
  Status add(std::string_view pack);
  Result<std::string> read(const Sha256& digest) const;

  // Lists of trees, by their own digest. One is only kept when all its pieces are here.
  Status add_tree(const Sha256& digest, std::string_view list);
  Result<std::string> read_tree(const Sha256& digest) const;

  std::uint64_t bytes() const;

 private:
  struct Pack {
    std::string name;
    std::uint64_t bytes = 0;
    SteadyTime used;
    std::vector<Sha256> pieces;
  };
  using Packs = std::list<Pack>;   // the longest unused first
  struct Place {
    Packs::iterator pack;
    std::uint64_t offset = 0;
    std::uint32_t size = 0;
  };

  Store(std::string directory, std::uint64_t bytes_max) : directory_(std::move(directory)), bytes_max_(bytes_max) {}
  Status load();
  void touch(Packs::iterator pack) const;
  void trim();

  std::string directory_;
  std::uint64_t bytes_max_;
  mutable std::mutex mutex_;
  mutable Packs packs_;
  std::unordered_map<Sha256, Place, DigestHash> places_;
  std::uint64_t bytes_ = 0;
};

}  // namespace billow::files
