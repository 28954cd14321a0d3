// Who has shown that content is theirs. The store keeps the same content once, whoever brought it;
// but that it is there is nobody's business who does not have it: only what somebody uploaded (or
// was given) counts as known to them, whatever others have.
//
// One file per owner, of digests one after the other, appended to and read when the owner first
// asks. A loss of it costs an upload.
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
  Status add(const std::string& owner, const std::vector<Sha256>& digests);
  // Forgets of all that was read so far what `kept` does not know any more.
  void prune(const std::function<bool(const Sha256&)>& kept);

 private:
  DigestSet& of(const std::string& owner);
  std::string path_of(const std::string& owner) const;

  std::string directory_;
  std::unordered_map<std::string, DigestSet> known_;
};

}  // namespace billow::files
