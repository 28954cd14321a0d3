// Where the pieces of a job's files are: in this node's store, or in that of a head on the same
// machine, from whose packs they are copied without being fetched.
//
// The packs of a head hold the content of many users. So their descriptors never leave the agent:
// a job passes descriptors of its own new files, and the agent fills them. Only what says so
// may be called by several threads.
#pragma once

#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "files/pack.h"
#include "files/store.h"

namespace billow::agent {

class PieceSource {
 public:
  // `fetch` brings pieces into the store.
  using Fetch = std::function<Status(const std::vector<Sha256>&)>;
  PieceSource(files::Store& store, Fetch fetch) : store_(store), fetch_(std::move(fetch)) {}

  bool knows(const Sha256& digest) const { return at_head_.contains(digest); }
  // The head has said where they are, in files of this user: a head must not make an agent read
  // what the head itself cannot. False: they cannot be read there.
  bool use_places(const std::vector<Sha256>& digests,
                  std::vector<files::PieceFile> places,
                  uid_t owner);
  Status append(const Sha256& digest, std::string& to);

  // One piece of a file that is being filled.
  struct Target {
    Sha256 digest;
    int descriptor = -1;
    std::uint64_t offset = 0;
    std::uint32_t size = 0;
  };
  // With several threads.
  Status copy(std::vector<Target> targets);

 private:
  struct Opened {
    std::string path;
    Fd fd;
  };
  Status copy(const Target& target, Opened& last, char* buffer) const;
  Result<files::PieceFile> find(const Sha256& digest) const;
  // Opens the pack if it is not the one that was used last, and makes sure that it holds the piece.
  Status open_at(const files::PieceFile& place, const Sha256& digest, Opened& last) const;

  files::Store& store_;
  Fetch fetch_;
  std::unordered_map<Sha256, files::PieceFile, files::DigestHash> at_head_;
  uid_t owner_ = 0;  // of the head's packs
  Opened last_;
};

}  // namespace billow::agent
