// The runtime's description of a job's room (config.json of the OCI runtime specification), from a
// plan. Pure.
//
// The room is for a program of the job's user, as if it had been started beside the others: the
// machine's network, process numbers, host name and shared memory are the machine's own, and only
// the file system is another one. The user is root inside, which outside it is not, or whom the
// image names; the machine's limits are those of the job's control group.
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
  std::vector<std::string> command;  // what the job asked for; empty: as the image says
  std::vector<std::string> env;      // of the job, NAME=value
  std::string passwd, groups;        // of the image: its lists of users and groups
  std::string default_directory = "/";
};
// invalid where there is nothing to run.
Result<Json> make_bundle(const Plan& plan, const BundleParts& parts);

// The home of a user ("", "1000", "app:staff") by an image's list of users; empty: not known.
std::string home_of(std::string_view user, std::string_view passwd);

// Whom an image's program is to be: "1000", "app", "app:staff", "1000:50" by its own lists. Root
// where it names nobody. invalid where it names somebody whom they do not.
struct ImageUser {
  std::uint32_t uid = 0, gid = 0;
  bool root() const { return uid == 0; }
};
Result<ImageUser> user_of(std::string_view user, std::string_view passwd, std::string_view groups);

// Whether a directory of the machine may be shown inside at its own path without hiding what makes
// the image one.
bool may_show(std::string_view directory);

}  // namespace billow::container
