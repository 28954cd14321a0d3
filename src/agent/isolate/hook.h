// Shell commands that the agent runs for a job's user.
//
// A hook is a command the user wrote: before a suspend, after a resume, to make a checkpoint. It
// runs where the job runs (job_place.h): in its control groups, mount namespace and image, as its
// user, without the right to gain privileges. If it cannot enter them it fails; it never runs
// outside. At its deadline, or when it ends, all its descendants are killed.
//
// A user script is a command Billow wrote, such as copying a checkpoint. It runs as the job's user
// on the node's file system, with no variables of the job's, so that nothing of the job's choosing
// runs outside its place.
#pragma once

#include <string>
#include <vector>

#include "agent/isolate/job_place.h"
#include "base/clock.h"
#include "base/result.h"

namespace billow::agent {

struct Hook {
  std::string command;
  JobPlace place;
  Duration patience = seconds(60);
};
// Blocks until it has ended. The error says how it failed, with the end of its output.
Status run_hook(const Hook& hook);

struct UserScript {
  std::string name;  // for errors: "copy the checkpoint"
  std::string script;
  std::vector<std::string> env;      // NAME=value, beside PATH
  std::optional<Identity> identity;  // none: the agent's own user
  Duration patience = seconds(60);
};
Status run_user_script(const UserScript& script);

}  // namespace billow::agent
