// Stores content by digest in packs on disk, up to a size limit. The head has one for uploads, and
// each node has one as a cache for its jobs.
//
// A pack is written to a temporary file and renamed, so a crash leaves only complete packs. The
// index of pieces is in memory and is rebuilt from the packs when the store is opened. Beyond the
// limit the least recently used packs are removed, except those that current work needs and those
// used within the last minutes, because a client may just have learned that they exist.
// Thread-safe.
//
// Nothing is synced to disk: that a process is killed loses nothing, and what a power failure
// damaged is found by its digest. Packs from before the last start of the machine are therefore
// read and checked once before they are used; damaged pieces count as absent.
//
// Content is stored once, but only owners who brought it can see it: see owners.h. The owner "" is
// the store itself and sees everything.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "files/large_pack.h"
#include "files/owners.h"
#include "files/pack.h"
#include "files/tree.h"

namespace billow::limits {
// Uploads on the head; the least recently used are removed first.
inline constexpr std::uint64_t head_files_bytes_max = 50ull << 30;
}  // namespace billow::limits

namespace billow::files {

// What one owner may bring, and the error beyond it.
struct OwnerLimit {
  std::uint64_t bytes_max = UINT64_MAX;
  std::function<Error(std::uint64_t wanted)> error;
};

class Store {
 public:
  // Content that is never removed, regardless of the limit.
  struct Needed {
    std::vector<Sha256> trees, pieces;
  };
  struct Options {
    std::string directory;
    std::uint64_t bytes_max = 0;
    // Beyond this size new content is rejected if everything is needed; 0: never rejected.
    std::uint64_t bytes_refused = 0;
    Duration kept_at_least = minutes(10);
    std::function<Needed()> needed;  // called when the limit is exceeded
    std::string boot = {};           // names the running system; empty: ask it
  };
  static Result<std::unique_ptr<Store>> open(Options options);

  bool has(const Sha256& digest) const;
  // The digests that are not stored or that the owner has not brought, each once. Stored ones are
  // marked as used.
  std::vector<Sha256> missing(const std::string& owner, const std::vector<Sha256>& digests);
  // Checks every piece and rejects the whole pack if one is wrong. Stores only new pieces. The
  // owner then owns all of them.
  Status add(const std::string& owner, std::string_view pack, const OwnerLimit& limit = {});
  // The same for a pack without digests. They are computed, filled in and returned.
  Result<std::vector<Sha256>> add_unnamed(const std::string& owner,
                                          std::span<char> pack,
                                          const OwnerLimit& limit = {});
  // The same for one large piece that becomes a pack of its own (large_pack.h): its content begins
  // at `large_pack_begin`, and what stands before it is written here.
  Result<Sha256> add_large(const std::string& owner,
                           std::span<char> pack,
                           const OwnerLimit& limit = {});
  // The same for pieces of full size that the store reads itself. They are hashed together and
  // written while they are hashed, which is faster if most are new. `known` says that they are
  // probably stored: then they are written only if it turns out to be wrong. Afterwards it says
  // whether all were stored.
  struct PieceToRead {
    int descriptor = -1;
    std::uint64_t offset = 0;
  };
  Result<std::vector<Sha256>> add_read(const std::string& owner,
                                       std::span<const PieceToRead> pieces,
                                       bool& known,
                                       const OwnerLimit& limit = {});
  std::uint64_t bytes_of(const std::string& owner);  // of what it has brought and is still kept
  Result<std::string> read(const Sha256& digest);
  // Where the content is, for a process that sees the same files. A process that opens the file
  // within the next minutes can keep using the content.
  Result<PieceFile> locate(const Sha256& digest);

  // Lists of trees by digest. Add a list after its pieces.
  Status add_tree(const std::string& owner, const Sha256& digest, std::string_view list);
  Result<std::string> read_tree(const Sha256& digest);
  // Whether this owner brought the tree (or piece) or was given it.
  bool owned(const std::string& owner, const Sha256& digest);
  Status give(const std::string& owner, const Sha256& digest);

  // Removes these trees and every piece that no other tree and no current work uses.
  Status forget(const std::vector<Sha256>& trees);

  std::uint64_t bytes() const;
  // Removes unneeded content beyond the limit. add() calls it.
  void trim();

 private:
  struct Pack {
    std::string name;
    std::uint64_t bytes = 0;
    SteadyTime used;
    std::vector<Sha256> pieces;
    bool checked = true;  // false: from before the last start of the machine
  };
  using Packs = std::list<Pack>;  // least recently used first
  struct Place {
    Packs::iterator pack;
    std::uint64_t offset = 0;
    std::uint32_t size = 0;
  };

  explicit Store(Options options)
      : options_(std::move(options)), owners_(options_.directory + "/owners") {}
  struct PieceAt {
    Sha256 digest;
    std::uint64_t offset = 0;
    std::uint32_t size = 0;
  };
  Status load();
  void note_boot();
  void load_pieces(Packs::iterator pack, int fd);
  void check_packs_of(const std::vector<Sha256>& digests);
  void take_out_damaged(const std::string& pack_name);
  Status add_checked(const std::string& owner,
                     std::string_view pack,
                     std::vector<PieceAt> pieces,
                     const OwnerLimit& limit);
  // What an owner brings, and what of it is not stored.
  struct Brought {
    std::vector<Sha256> all;
    std::vector<PieceAt> unknown;  // each once
  };
  Result<Brought> examine(const std::string& owner,
                          std::vector<PieceAt> pieces,
                          const OwnerLimit& limit);
  // Checks the limit again, for uploads that were written at the same time.
  Status own(const std::string& owner, const Brought& brought, const OwnerLimit& limit);
  Status make_space(std::uint64_t bytes);
  Status write_pack(std::string_view pack, const std::vector<PieceAt>& pieces);
  void enter_pack(const std::string& name, std::uint64_t bytes, const std::vector<PieceAt>& pieces);
  void touch(Packs::iterator pack) const;
  void trim_locked();
  void prune_owners();
  std::uint64_t bytes_of_locked(const std::string& owner);
  Status each_piece_of(const Sha256& tree, const std::function<void(const Sha256&)>& visit) const;
  Result<DigestSet> pieces_only_of(const std::vector<Sha256>& trees) const;
  Status remove_from_pack(Packs::iterator pack, const DigestSet& removed);
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
  std::unordered_map<std::string, std::uint64_t> owned_bytes_;  // counted when first asked for
  std::size_t unchecked_ = 0;                                   // packs
  DigestSet checked_trees_;
  SteadyTime trim_again_;  // after an attempt that could not free enough
};

}  // namespace billow::files
