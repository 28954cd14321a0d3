// Running a job again as it ran: the same command, working directory's tree, image and environment by their digests, resources and
// variables. What it was is in the state while it lives and in its row afterwards; its variables, which may be nobody else's business,
// are kept by the head beside the outputs and are shown to nobody.
#include <fmt/format.h>

#include "api/call.h"
#include "api/files.h"
#include "api/rerun.h"
#include "base/file.h"
#include "base/text.h"
#include "model/image_name.h"
#include "wire/codec.h"

namespace billow::api {
namespace {

std::string variables_path(const FilesHost& host, const std::string& digest) { return fmt::format("{}/variables-{}", host.outputs_dir(), digest); }
std::string image_path(const FilesHost& host, JobId job) { return fmt::format("{}/{}.image", host.outputs_dir(), job.value); }

}  // namespace

void keep_variables(Host& host, const std::string& digest) {
  const auto* files = dynamic_cast<const FilesHost*>(&host);
  if (!files || digest.empty() || file_exists(variables_path(*files, digest))) return;
  (void)host.workers().submit([path = variables_path(*files, digest), kept = VariablesFile{host.state().environment(digest)}] { return write_file_atomic(path, wire::to_json_text(kept), 0600); },
                              [](const Status&) {});
}

Status keep_image_digest(const Host& host, JobId job, const std::string& digest) {
  const auto* files = dynamic_cast<const FilesHost*>(&host);
  if (!files) return fail(Code::unsupported, "this head keeps no files");
  return write_file_atomic(image_path(*files, job), digest + "\n", 0600);
}

std::string image_digest_of(const Host& host, JobId job) {
  const auto* files = dynamic_cast<const FilesHost*>(&host);
  const auto text = files ? read_file(image_path(*files, job), 256) : Result<std::string>(fail(Code::not_found, ""));
  return text ? std::string(trim(*text)) : std::string();
}

namespace jobs {

// From the node that runs it: which image the task's room was made of.
void set_image(CallPtr call) {
  const auto task = task_of_caller(*call);
  const std::string digest(trim(call->request().body));
  if (!task) return call->fail(task.error());
  if (!digest.starts_with("sha256:") || digest.size() != 71) return call->fail({Code::invalid, "not the digest of an image", ""});
  if (const Status kept = keep_image_digest(call->host, (*task)->job, digest); !kept) return call->fail(kept.error());
  call->reply(200, Json::object({{"ok", true}}));
}

void rerun(CallPtr call) {
  const auto ref = parse_job_ref(call->host, call->parts[0]);
  if (!ref) return call->fail(ref.error());
  with_job_document(call, ref->id, [call, id = ref->id](Json document) {
    const auto& state = call->host.state();
    SubmitJob command;
    const Job* live = state.find_job(id);
    auto spec = live ? Result<JobSpec>(*live->spec) : wire::from_json_text<JobSpec>(document["spec"].is_object() ? document["spec"].dump() : "{}");
    if (!spec || spec->argv.empty()) return call->fail({Code::not_found, fmt::format("what job {} was is no longer kept", id.value), "submit it anew"});
    const Project* project = state.project_by_name(document["project"].str_or(""));
    const User* user = state.user_by_name(document["user"].str_or(""));
    if (const Status ok = project ? may_act(*call, project->id, user ? user->id : UserId{}) : Status(fail(Code::not_found, "its project is gone")); !ok) return call->fail(ok.error());
    command.spec = std::move(*spec);
    command.spec.after.clear();
    if (live && live->array) {  // an element: itself, under its own index
      command.spec.array = ArraySpec{.first = live->array_index, .last = live->array_index};
    } else if (const Json& array = document["array"]; array.is_object()) {
      command.spec.array = ArraySpec{.first = array["index"].uint_or(0), .last = array["index"].uint_or(0)};
    }
    if (state.environments.contains(command.spec.env_digest)) {
      command.env = state.environment(command.spec.env_digest);
    } else if (!command.spec.env_digest.empty()) {
      const auto* files = dynamic_cast<const FilesHost*>(&call->host);
      const auto text = files ? read_file(variables_path(*files, command.spec.env_digest)) : Result<std::string>(fail(Code::not_found, ""));
      auto kept = text ? wire::from_json_text<VariablesFile>(*text) : Result<VariablesFile>(fail(Code::not_found, ""));
      if (!kept) return call->fail({Code::not_found, fmt::format("the variables of job {} are no longer kept on this head", id.value), "submit it anew"});
      command.env = std::move(kept->env);
    }
    Surroundings& around = command.spec.surroundings;
    if (const std::string digest = image_digest_of(call->host, id); !around.image.empty() && !digest.empty())
      if (const auto name = parse_image_name(around.image); name && name->registry != "localhost") around.image = name->pinned(digest);
    command.project = project->name;
    command.user = call->principal.user;
    call->execute(std::move(command), 201, [call](const std::vector<Event>& events) {
      for (const Event& event : events)
        if (const auto* submitted = std::get_if<JobsSubmitted>(&event.body)) return Json::object({{"id", submitted->first.value}, {"state", "queued"}});
      return Json::object();
    });
  });
}

}  // namespace jobs
}  // namespace billow::api
