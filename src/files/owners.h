// Records which owner has which content. The store keeps equal content once, but must not reveal
// its existence to others: an owner sees only content that it uploaded or was given.
//
// One file of digests per owner, appended to, and read when the owner is first used. If it is lost,
// the owner uploads again.
#pragma once

#include <functional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/result.h"
#include "files/tree.h"

namespace billow::files {

struct DigestHash {
  std::size_t operator()(const Sha256& digest) const;
};
using DigestSet = std::unordered_set<Sha256, DigestHash>;

class Owners {
 public:
  explicit Owners(std::string directory) : directory_(std::move(directory)) {}
  bool has(const std::string& owner, const Sha256& digest) { return of(owner).contains(digest); }
  const DigestSet& all_of(const std::string& owner) { return of(owner); }
  Status add(const std::string& owner, const std::vector<Sha256>& digests);
  // Drops digests for which `kept` returns false, for all owners in memory.
  void prune(const std::function<bool(const Sha256&)>& kept);

 private:
  DigestSet& of(const std::string& owner);
  std::string path_of(const std::string& owner) const;

  std::string directory_;
  std::unordered_map<std::string, DigestSet> known_;
};

}  // namespace billow::files
