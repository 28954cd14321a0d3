// Running a job again as it ran: the same command, working directory's tree, image and environment
// by their digests, resources and variables. What it was is in the state while it lives and in its
// row afterwards. Its variables, which may be nobody else's business, are in the journal alone,
// found there by their digest and shown to nobody; so whichever head leads has them.
#include <fmt/format.h>
#include <algorithm>

#include "api/call.h"
#include "api/files.h"
#include "api/rerun.h"
#include "base/file.h"
#include "base/text.h"
#include "core/model/image_name.h"
#include "core/wire/codec.h"
#include "view/spec_document.h"

namespace billow::api {
namespace {

// From the journal: for a worker.
Result<Environment> variables_of(const Queries& queries, JobId job, const std::string& digest) {
  const std::string payload = BILLOW_TRY(queries.stored_variables(digest));
  if (payload.empty())
    return fail(Code::not_found,
                fmt::format("the variables of job {} are no longer in the journal", job.value),
                "submit it again from your files");
  const Event event = BILLOW_TRY(control::decode_event(0, {}, EnvironmentStored::kind, payload));
  return get<EnvironmentStored>(event.body).env;
}

// The newest checkpoint of the job that is run again, unless the caller wants none of it; empty:
// there is none.
std::string checkpoint_to_start_from(const Json& body, const Json& document) {
  if (body["from_scratch"].bool_or(false))
    return {};
  const auto newest = document.at("checkpoint", "path").str_or("");
  return std::string(newest.empty() ? document["from_checkpoint"].str_or("") : newest);
}

void submit_again(const CallPtr& call, SubmitJob command, const std::string& checkpoint) {
  // As an attempt of the same job would find it. A job that never wrote one starts from the one
  // that it started from.
  if (checkpoint.empty())
    command.env.erase("BILLOW_CHECKPOINT");
  else
    command.env["BILLOW_CHECKPOINT"] = checkpoint;
  submit_for(call, std::move(command), [checkpoint](const std::vector<Event>& events) {
    for (const Event& event : events)
      if (const auto* submitted = get_if<JobsSubmitted>(&event.body))
        return Json::object(
            {{"id", submitted->first.value}, {"state", "queued"}, {"from_checkpoint", checkpoint}});
    return Json::object();
  });
}

// The variables of a role as they were, for those whose values the caller could not read.
void uncover_variables(RoleSpec& role, const JobSpec& old) {
  const auto before = std::ranges::find(old.roles, role.name, &RoleSpec::name);
  if (before == old.roles.end())
    return;
  for (auto& [name, value] : role.env)
    if (const auto was = before->env.find(name); value == view::covered && was != before->env.end())
      value = was->second;
}

// The specification of the new job: that of the old one, or the changed one that the caller sent.
// The old one's variables stay: nobody can read them, so nobody can send them again.
Result<JobSpec> changed_spec(const Json& body, JobSpec old) {
  if (!body["spec"].is_object())
    return old;
  JobSpec changed = BILLOW_TRY(wire::from_json_text<JobSpec>(body["spec"].dump(), true));
  changed.env_digest = old.env_digest;
  if (changed.surroundings.environment == old.surroundings.environment)
    changed.surroundings.environment_digest = old.surroundings.environment_digest;
  else
    changed.surroundings.environment_digest.clear();
  for (RoleSpec& role : changed.roles) {
    uncover_variables(role, old);
    const auto before = std::find_if(old.roles.begin(), old.roles.end(), [&](const RoleSpec& r) {
      return r.name == role.name && r.surroundings.environment == role.surroundings.environment;
    });
    role.surroundings.environment_digest =
        before == old.roles.end() ? "" : before->surroundings.environment_digest;
  }
  return changed;
}

// The elements of an array that run again, by their indices; at most as many at a time as before.
Result<ArraySpec> chosen_elements(std::string_view text, const JobSpec& old) {
  if (!old.array)
    return fail(Code::invalid, "only an array has elements to choose from");
  ArraySpec chosen = BILLOW_TRY(parse_array(text));
  for (const std::uint64_t index : chosen.indices())
    if (!old.array->position_of(index))
      return fail(Code::not_found, fmt::format("the array has no element {}", index),
                  fmt::format("its indices are {}", old.array->text()));
  if (chosen.running_max == 0)
    chosen.running_max = old.array->running_max;
  return chosen;
}

// Which indices the new job has: those that the caller names, an element its own, an array all.
Status choose_indices(const Json& body, const Json& document, const Job* live, JobSpec& spec) {
  if (body["spec"].is_object())
    return {};  // the caller has seen and sent the indices
  if (body["elements"].is_string()) {
    spec.array = BILLOW_TRY(chosen_elements(body["elements"].str_or(""), spec));
  } else if (live && live->array) {
    spec.array = ArraySpec{.first = live->array_index, .last = live->array_index};
  } else if (const Json& array = document["array"]; array.is_object()) {
    const std::uint64_t index = array["index"].uint_or(0);
    spec.array = ArraySpec{.first = index, .last = index};
  }
  return {};
}

}  // namespace

std::string image_digest_of(const Host& host, JobId job, const Json& document) {
  if (!document["image"].is_string())
    return {};
  if (document["image_digest"].is_string())
    return std::string(document["image_digest"].str_or(""));
  // Older heads kept it in a file.
  const auto text = read_file(fmt::format("{}/{}.image", host.outputs_dir(), job.value), 256);
  return text && is_image_digest(trim(*text)) ? std::string(trim(*text)) : std::string();
}

namespace jobs {

// From the node that runs the task: the digest of the image that its container was made from.
void set_image(CallPtr call) {
  const auto task = task_of_caller(*call);
  if (!task)
    return call->fail(task.error());
  call->execute(ImageFound{(*task)->id, std::string(trim(call->request().body))}, 200,
                [](const std::vector<Event>&) {
                  return Json::object({{"ok", true}});
                });
}

void rerun(CallPtr call) {
  const auto ref = parse_job_ref(*call, call->parts[0]);
  if (!ref)
    return call->fail(ref.error());
  const auto body = call->body();
  if (!body)
    return call->fail(body.error());
  with_job_document(call, ref->id, [call, id = ref->id, body = *body](Json document) {
    const auto& state = call->host.state();
    SubmitJob command;
    const Job* live = state.find_job(id);
    auto spec = live ? Result<JobSpec>(*live->spec)
                     : wire::from_json_text<JobSpec>(
                           document["spec"].is_object() ? document["spec"].dump() : "{}");
    if (!spec || spec->argv.empty())
      return call->fail({Code::not_found,
                         fmt::format("the specification of job {} is no longer stored", id.value),
                         "submit it again from your files"});
    const Project* project = state.project_by_name(document["project"].str_or(""));
    const User* user = state.user_by_name(document["user"].str_or(""));
    if (const Status ok = project ? may_act(*call, {project->id, user ? user->id : UserId{},
                                                    TokenId(document["agent_token"].uint_or(0))})
                                  : Status(fail(Code::not_found, "its project no longer exists"));
        !ok)
      return call->fail(ok.error());
    if (const Status ok = may_in(*call, Permission::jobs_run, project->id); !ok)
      return call->fail(ok.error());
    auto changed = changed_spec(body, std::move(*spec));
    if (!changed)
      return call->fail(changed.error());
    command.spec = std::move(*changed);
    command.spec.after.clear();
    if (const Status ok = choose_indices(body, document, live, command.spec); !ok)
      return call->fail(ok.error());
    Surroundings& around = command.spec.surroundings;
    if (const std::string digest = image_digest_of(call->host, id, document);
        !around.image.empty() && !digest.empty())
      if (const auto name = parse_image_name(around.image); name && name->registry != "localhost")
        around.image = name->pinned(digest);
    command.project = project->name;
    command.user = call->principal.user;
    const std::string variables = command.spec.env_digest,
                      checkpoint = checkpoint_to_start_from(body, document);
    if (variables.empty() || state.environments.contains(variables)) {
      if (!variables.empty())
        command.env = state.environment(variables);
      return submit_again(call, std::move(command), checkpoint);
    }
    const Status queued = call->host.workers().submit(
        [&queries = call->host.queries(), id, variables] {
          return variables_of(queries, id, variables);
        },
        [call, checkpoint, command = std::move(command)](Result<Environment> env) mutable {
          if (!env)
            return call->fail(env.error());
          command.env = std::move(*env);
          submit_again(call, std::move(command), checkpoint);
        });
    if (!queued)
      call->fail(queued.error());
  });
}

}  // namespace jobs
}  // namespace billow::api
