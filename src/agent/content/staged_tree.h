// A directory that already holds files of a tree: which of them are still as they were written, so
// that only the rest is written again.
//
// A file counts as unchanged if inode, times, size and mode are as they were after it was written.
// The time of the last change of an inode cannot be set by its user, so this holds even if the user
// tried to hide a change.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "files/tree.h"

namespace billow::agent {

// Of a file or directory on disk; all zero: not known, or a link.
struct EntryState {
  std::uint64_t inode = 0, size = 0, mode = 0;
  std::int64_t mtime_ns = 0, ctime_ns = 0;
  bool operator==(const EntryState&) const = default;
};
using EntryStates = std::vector<EntryState>;  // one for each entry of a tree

// The states of a tree that was just written to the directory. Returns when every later change of a
// file will show in its times.
// `known`, if not empty: states that have just been compared with the directory; the others are all
// zero.
Result<EntryStates> settled_states(const std::string& directory,
                                   const files::Tree& tree,
                                   EntryStates known = {});

// Removes everything from the directory that is not an unchanged part of the tree. Returns, for
// each entry of the tree, whether it is there. Follows no links.
Result<std::vector<bool>> keep_only(const std::string& directory,
                                    const files::Tree& tree,
                                    const EntryStates& states);

// The states that hold for another tree: those of entries that are the same in both.
EntryStates states_for(const files::Tree& tree,
                       const files::Tree& known,
                       const EntryStates& states);

// Moves everything that is in one directory into another, which is empty. The states stay those of
// the tree: a file directly in the directory gets a new time by being moved, so its state is taken
// anew if it was unchanged, and becomes all zero if not. An error: some may have been moved.
Status move_content(const std::string& from,
                    const std::string& to,
                    const files::Tree& tree,
                    EntryStates& states);

std::string encode_states(const EntryStates& states);
// An error unless there is one for each of `count` entries.
Result<EntryStates> decode_states(std::string_view bytes, std::size_t count);

}  // namespace billow::agent
