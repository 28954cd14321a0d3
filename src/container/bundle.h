// Turns a plan into the description of a job's container (config.json of the OCI runtime
// specification). Pure.
//
// The container has its own file system, process ids, IPC objects, host name and /dev/shm, and the
// node's network. The ranks of a task share process ids, IPC and /dev/shm. Inside, the job's user
// is root, or the user that the image names; outside it gains nothing. The limits are those of the
// job's control group.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "container/plan.h"

namespace billow::container {

struct BundleParts {
  std::string root;                  // where the root file system is mounted
  std::vector<std::string> command;  // the job's command; empty: the image's own
  std::vector<std::string> env;      // of the job, NAME=value
  std::string passwd, groups;        // of the image: its lists of users and groups
  std::string default_directory = "/";
  std::string hostname = {};  // empty: the node's
  bool own_processes = true;  // process ids and IPC objects of its own
  // Sources of mounts that must stay without programs ("noexec"), as they are on the node: in a
  // user namespace the kernel lets nobody remove that.
  std::vector<std::string> without_programs = {};
};
// invalid: neither the job nor the image names a command.
Result<Json> make_bundle(const Plan& plan, const BundleParts& parts);

// The home directory of a user ("", "1000", "app:staff") in the image's passwd file; empty:
// unknown.
std::string home_of(std::string_view user, std::string_view passwd);

// Resolves an image's user ("1000", "app", "app:staff", "1000:50") in the image's passwd and group
// files. Empty: root. invalid: the files do not have that user or group.
struct ImageUser {
  std::uint32_t uid = 0, gid = 0;
  bool root() const { return uid == 0; }
};
Result<ImageUser> user_of(std::string_view user, std::string_view passwd, std::string_view groups);

// Whether a directory of the node may be mounted at the same path without hiding the image's files.
bool may_show(std::string_view directory);

}  // namespace billow::container
