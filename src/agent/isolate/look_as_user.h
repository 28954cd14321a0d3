// What a path holds, as a job's user sees it: the agent can look anywhere, and must not reveal to a
// user what that user cannot see.
//
// The file system may never answer: its server is gone, or a program of the user's serves it. The
// agent's loop waits some seconds for it, and does not ask again for a minute.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/isolate/task_spec.h"
#include "process/spawn.h"

namespace billow::agent {

enum class Sight {
  nothing,  // no such path
  empty,    // an empty directory
  used,     // anything else
  closed,   // the user may not look there
  silent,   // the file system does not answer, or another one that this user looked at a moment ago
};

class UserLooks {
 public:
  UserLooks() = default;
  UserLooks(const UserLooks&) = delete;
  UserLooks& operator=(const UserLooks&) = delete;
  ~UserLooks();

  // No user: as the agent itself. In a separate process, because a single thread of a program
  // cannot become another user.
  Sight look(const std::optional<Identity>& user, const std::string& path);
  // Whether the file system of a path answers the agent, whatever it says.
  bool answers(const std::string& path);

 private:
  std::optional<int> ask(const std::string& whom,
                         const std::optional<Identity>& user,
                         const std::function<int()>& body);

  std::map<std::string, SteadyTime> silent_;  // who is not asked again: until when
  std::vector<process::Child> stuck_;         // a file system may keep them from being killed
};

}  // namespace billow::agent
