#include "head/needed_files.h"

#include "core/model/surroundings.h"

namespace billow::head {

files::Store::Needed needed_files(const control::State& state) {
  files::Store::Needed needed;
  const auto keep = [&](const std::string& digest) {
    if (const auto tree = files::parse_digest(digest))
      needed.trees.push_back(*tree);
  };
  // Variables of jobs, schedules and endpoints live as long as these and may name a tree.
  for (const auto& [digest, stored] : state.environments) {
    if (!stored.env)
      continue;
    if (const auto named = stored.env->find(surroundings::files); named != stored.env->end())
      keep(named->second);
  }
  for (const auto& [key, environment] : state.saved_environments)
    keep(environment.digest);
  for (const auto& [id, job] : state.jobs)
    each_options(*job.spec, [&](const TaskOptions& options) {
      keep(options.surroundings.environment_digest);
    });
  // An endpoint scaled to zero has no job; its next replica needs the tree its revision was
  // deployed with, even if the environment's name has changed its meaning since.
  for (const auto& [name, endpoint] : state.endpoints)
    for (const Revision& revision : endpoint.revisions)
      keep(revision.spec->surroundings.environment_digest);
  return needed;
}

}  // namespace billow::head
