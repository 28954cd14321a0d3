#include "agent/content/kept_dir.h"

#include <sys/stat.h>
#include <unistd.h>

#include <unordered_set>

#include "base/log.h"
#include "process/file_rights_linux.h"

namespace billow::agent {
namespace {

// Threads that are started meanwhile have the same rights.
Result<std::vector<bool>> keep_only_as_owner(const std::string& directory,
                                             const files::Tree& tree,
                                             const EntryStates& states) {
  if (::geteuid() != 0)
    return keep_only(directory, tree, states);
  struct stat info {};
  if (::lstat(directory.c_str(), &info) != 0)
    return fail_errno(directory, errno);
  const process::FileRights rights(info.st_uid);
  if (!rights.taken())
    return fail(Code::forbidden, "the rights of the job's user could not be taken");
  return keep_only(directory, tree, states);
}

}  // namespace

std::optional<KeptDir> KeptDir::look(const std::string& directory,
                                     const files::Tree& tree,
                                     const EntryStates& states) {
  auto there = keep_only_as_owner(directory, tree, states);
  if (!there) {
    log_warn("{}", there.error().message);
    return std::nullopt;
  }
  KeptDir out;
  out.there_ = std::move(*there);
  out.states_ = states;
  std::unordered_set<std::string_view> above;
  for (std::size_t i = 0; i < tree.entries.size(); ++i) {
    if (out.there_[i])
      continue;
    out.states_[i] = {};
    std::string_view path = tree.entries[i].path;
    for (auto slash = path.rfind('/'); slash != path.npos; slash = path.rfind('/')) {
      path = path.substr(0, slash);
      if (!above.insert(path).second)
        break;
    }
  }
  for (std::size_t i = 0; i < tree.entries.size(); ++i)
    if (!out.there_[i] || above.contains(tree.entries[i].path)) {
      out.missing_.entries.push_back(tree.entries[i]);
      out.places_.push_back(i);
    }
  return out;
}

std::string KeptDir::wanted() const {
  std::string out(there_.size(), '0');
  for (std::size_t i = 0; i < there_.size(); ++i)
    if (!there_[i])
      out[i] = '1';
  return out;
}

EntryStates KeptDir::states_with(const EntryStates& written) const {
  EntryStates out = states_;
  for (std::size_t i = 0; i < places_.size(); ++i)
    if (!there_[places_[i]])
      out[places_[i]] = written[i];
  return out;
}

}  // namespace billow::agent
