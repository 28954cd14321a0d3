// Before a head starts: does another one run on this machine already, whose is it, and would both
// give out the same GPUs?
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "client/frame/command.h"
#include "head/options.h"

namespace billow::client {

// A second head of this user on this machine. Without --data it was hardly meant: one is running.
// With it, it is somebody's wish; but two that give out the same GPUs must not come about
// unnoticed. Returns the exit code where this is the end of it.
std::optional<int> beside_another_head(const Parsed& parsed, const head::HeadOptions& options);

// Two heads of different users must not give out the same GPUs: an error names the other user.
Status check_gpus_are_free(const head::HeadOptions& options);

// `up --background` where a head runs already: says so, and which of the options given now it did
// not take, because it keeps those that it was started with.
void tell_it_runs(const Parsed& parsed, const std::string& place, const std::string& data_dir);

// --system: the head serves every account of this machine. An error where this user may not.
Status set_system(const Parsed& parsed, head::HeadOptions& options);

// Somebody else's head has the port that is tried first. They may be many people's GPUs.
void tell_of_head_on_usual_port(const std::string& where);

}  // namespace billow::client
