#include "view/stored.h"

#include <fmt/format.h>

#include "base/text.h"
#include "core/wire/codec.h"
#include "view/job_document.h"
#include "view/names.h"

namespace billow::view {

StoredJob stored_job(const control::State& state, const Job& job, const std::vector<Task>& tasks) {
  StoredJob out;
  out.form = stored_form;
  out.command = shell_join(job.spec->argv);
  out.job = job;
  out.user = user_name(state, job.user);
  if (const auto user = state.users.find(job.user);
      user != state.users.end() && user->second.unix_name != user->second.name)
    out.unix_user = user->second.unix_name;
  out.project = project_name(state, job.project);
  for (const Task& task : tasks)
    out.tasks.push_back({task, node_name(state, task.node), gpu_type(state, task)});
  return out;
}

StoredArray stored_array(const control::State& state,
                         const control::ArrayState& array,
                         WallTime ended_at) {
  return {stored_form,
          shell_join(array.spec->argv),
          array,
          user_name(state, array.user),
          project_name(state, array.project),
          ended_at};
}

Result<Json> stored_document(std::string_view doc) {
  Json json = BILLOW_TRY(parse_json(doc));
  const std::uint64_t form = json["form"].uint_or(0);
  if (form == 0)
    return json;  // the document that 0.1 stored
  if (form > stored_form)
    return fail(Code::unsupported,
                fmt::format("the store holds a job in form {}; this version reads up to form {}",
                            form, stored_form),
                "upgrade billow");
  if (json["array"].is_object())
    return array_document(BILLOW_TRY(wire::from_json<StoredArray>(json)));
  StoredJob stored = BILLOW_TRY(wire::from_json<StoredJob>(json));
  if (!stored.job.spec)
    return fail(Code::internal, "a stored job has no spec: its row in the store is damaged");
  return finished_job_document(stored);
}

}  // namespace billow::view
