// The agent's own look at a directory that it kept for a job: what of a tree is still there, and
// what must be written. So a job with an unchanged tree is sent nothing.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "agent/content/staged_tree.h"
#include "files/tree.h"

namespace billow::agent {

class KeptDir {
 public:
  // Removes what is not an unchanged part of the tree (staged_tree.h), with the rights of the
  // directory's owner: the job's processes may change the directory meanwhile, and must not lead
  // the agent to files that their user could not remove. Nothing: it could not be looked at.
  static std::optional<KeptDir> look(const std::string& directory,
                                     const files::Tree& tree,
                                     const EntryStates& states);

  bool is_complete() const { return missing_.entries.empty(); }
  // What must be written, with the directories that lead there.
  const files::Tree& missing() const { return missing_; }
  std::string wanted() const;  // "1" for each entry of the tree that must be written, else "0"
  const EntryStates& states() const { return states_; }  // all zero for these entries
  // The same with the states of what was missing.
  EntryStates states_with(const EntryStates& written) const;

 private:
  std::vector<bool> there_;
  EntryStates states_;
  files::Tree missing_;
  std::vector<std::size_t> places_;  // of the entries of `missing_` in the tree
};

}  // namespace billow::agent
