// The agent's own directory in a place where everyone may write (/var/tmp, /tmp, /dev/shm). Files
// that jobs must reach cannot be in the agent's data directory, and another user could create a
// directory with a predictable name first.
//
// The name is random, and stored in the data directory, so that a restarted agent finds it again.
// The directory is opened once and its owner and mode are checked on the descriptor; everything
// below it is created through descriptors and without following links. Others cannot create files
// in it, but can pass through it to files that are given to them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "agent/isolate/task_spec.h"
#include "base/file.h"
#include "base/result.h"

namespace billow::agent {

class OwnPlace {
 public:
  struct Wanted {
    std::string data_dir;
    std::string under;
    // The predictable name that older agents used. It is kept if it is this agent's own, because
    // running jobs know it; otherwise it is never touched.
    std::string earlier;
  };
  // Finds the stored directory or creates one. A stored name that another user has taken meanwhile
  // is not used again. An error if `under` lets other users replace the directories in it.
  static Result<OwnPlace> open(const Wanted& wanted);
  // An existing directory. An error unless it belongs to this agent and nobody else can write it.
  static Result<OwnPlace> at(const std::string& path);

  // When the agent ends: an empty directory is removed, and the next agent creates another.
  void leave() const;

  const std::string& path() const { return path_; }
  std::string below(std::string_view relative) const { return path_ + "/" + std::string(relative); }

  enum class If { exists_use, exists_fail };
  struct Directory {
    std::string relative;  // "caches/ab12"; missing directories above it are created
    unsigned mode = 0700;
    std::optional<Identity> owner = {};  // none: the agent
    If existing = If::exists_use;
  };
  // Opens a directory below this one, and creates it with this mode and owner if it is missing. A
  // link in its path, or a directory above it that others can write, is an error.
  Result<Fd> directory(const Directory& wanted) const;

 private:
  OwnPlace(std::string path, Fd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  std::string path_;
  Fd fd_;  // locked, which cleaners of old temporary files respect
};

// Opens a directory that belongs to this agent and that nobody else can write; an error otherwise.
// A user who can write to an agent's data directory decides what the agent does.
Result<Fd> open_own_directory(const std::string& path);

}  // namespace billow::agent
