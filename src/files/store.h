// Content kept by its digest, in packs on disk, up to a size. The head has one for what people
// upload, every node one for what its jobs needed before.
//
// A pack is written beside its name and renamed, so a crash leaves whole ones. Which piece lies
// where is in memory, read from the packs when the store is opened. Beyond the limit the packs that
// were used longest ago go, but none that work still needs, and none used within the last minutes:
// somebody may just have been told that they are there. Thread-safe.
//
// Content is kept once, and known to those alone who brought it: see owners.h. The owner "" is the
// store itself, and knows everything.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "files/owners.h"
#include "files/tree.h"

namespace billow::limits {
inline constexpr std::uint64_t head_files_bytes_max =
    50ull << 30;  // of what people uploaded; the longest unused goes first
}

namespace billow::files {

class Store {
 public:
  // What must stay whatever the limit says.
  struct Needed {
    std::vector<Sha256> trees, pieces;
  };
  struct Options {
    std::string directory;
    std::uint64_t bytes_max = 0;
    std::uint64_t bytes_refused =
        0;  // more than this is not taken, where all of it is needed; 0: always taken
    Duration kept_at_least = minutes(10);
    std::function<Needed()> needed;  // asked when the limit is passed
  };
  static Result<std::unique_ptr<Store>> open(Options options);

  bool has(const Sha256& digest) const;
  // Those that are not here or that the owner has not shown to have, each once. What is here counts
  // as used.
  std::vector<Sha256> missing(const std::string& owner, const std::vector<Sha256>& digests);
  // Checks every piece; nothing is kept of a pack that holds a wrong one, nor what is here already.
  // They are the owner's from then on.
  Status add(const std::string& owner, std::string_view pack);
  Result<std::string> read(const Sha256& digest) const;

  // Lists of trees, by their own digest. One is only kept when all its pieces are here.
  Status add_tree(const std::string& owner, const Sha256& digest, std::string_view list);
  Result<std::string> read_tree(const Sha256& digest) const;
  // Whether a tree (or piece) was brought by, or given to, this owner.
  bool owned(const std::string& owner, const Sha256& digest);
  Status give(const std::string& owner, const Sha256& digest);

  // Takes these trees away, and every piece that no other tree here and nothing needed has.
  Status forget(const std::vector<Sha256>& trees);

  std::uint64_t bytes() const;
  // To the limit, as far as what is there is not needed. Happens by itself when something is added.
  void trim();

 private:
  struct Pack {
    std::string name;
    std::uint64_t bytes = 0;
    SteadyTime used;
    std::vector<Sha256> pieces;
  };
  using Packs = std::list<Pack>;  // the longest unused first
  struct Place {
    Packs::iterator pack;
    std::uint64_t offset = 0;
    std::uint32_t size = 0;
  };

  explicit Store(Options options)
      : options_(std::move(options)), owners_(options_.directory + "/owners") {}
  Status load();
  void touch(Packs::iterator pack) const;
  void trim_locked();
  std::string pack_path(const Pack& pack) const {
    return options_.directory + "/packs/" + pack.name;
  }
  std::string tree_path(const Sha256& digest) const {
    return options_.directory + "/trees/" + digest_hex(digest);
  }

  Options options_;
  mutable std::mutex mutex_;
  mutable Packs packs_;
  std::unordered_map<Sha256, Place, DigestHash> places_;
  std::uint64_t bytes_ = 0;
  Owners owners_;
  SteadyTime trim_again_;  // after one that could not free anything
};

}  // namespace billow::files
