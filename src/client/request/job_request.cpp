#include "client/request/job_request.h"

#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <climits>

#include "base/spoken_name.h"
#include "base/text.h"
#include "core/wire/codec.h"

namespace billow::client {

Status check_job_label(std::string_view text) {
  const auto dot = text.find('.');
  const bool ok =
      parse_int(text.substr(0, dot), 1, INT64_MAX) &&
      (dot == std::string_view::npos || parse_int(text.substr(dot + 1), 0, 1'000'000'000));
  if (!ok)
    return fail(Code::invalid, fmt::format("\"{}\" is not a job number", text),
                "examples: 12, or 12.3 for index 3 of array 12");
  return {};
}

Status check_job_word(std::string_view word) {
  if (check_job_label(word))
    return {};
  if (is_number_word(word) || !check_name("job", word))
    return check_job_label(word);
  return {};
}

Result<AfterText> parse_after(std::string_view text) {
  AfterText after;
  std::string_view job = text;
  if (const auto colon = text.find(':'); colon != std::string_view::npos) {
    const auto kind = enum_value<AfterKind>(text.substr(0, colon));
    if (!kind)
      return fail(
          Code::invalid,
          fmt::format("--after {}: \"{}\" is not ok, any or failed", text, text.substr(0, colon)),
          "examples: 12, any:12, failed:12");
    after.kind = *kind;
    job = text.substr(colon + 1);
  }
  if (auto ok = check_job_word(job); !ok)
    return pass(std::move(ok.error()), fmt::format("--after {}", text));
  after.job = std::string(job);
  return after;
}

Status set_options(JobRequest& request, const Parsed& parsed) {
  for (const auto options : {job_options(), batch_options()})
    for (const OptionSpec& option : options)
      for (const std::string& value : parsed.all(option.name))
        BILLOW_TRY_VOID(set_option(request, option.name, value));
  for (JobRequest& role : request.roles) {
    const std::string name = role.spec.name;
    const std::uint32_t retries = role.spec.retries;
    BILLOW_TRY_VOID(set_options(role, parsed));
    role.spec.name = name;  // --name and --retries are those of the group
    role.spec.retries = retries;
  }
  return {};
}

Status complete(JobRequest& q) {
  Resources& r = q.spec.resources;
  if (r.gpus == 0 && (r.share.mem_mib > 0 || !r.mig_profile.empty()))
    r.gpus = 1;  // --gpu-mem 20G: of one GPU, compute in proportion
  if (!r.mig_profile.empty()) {
    if (r.gpus > 0 && r.share.milli > 0 && r.share.milli < whole_gpu_milli)
      return fail(Code::invalid,
                  fmt::format("--mig {} already is part of a GPU and cannot be divided further",
                              r.mig_profile),
                  "omit --gpus, or use a whole number: --gpus 2 requests two instances");
    r.share.milli = whole_gpu_milli;  // of each instance
  }
  if (r.gpus == 0 && !r.gpu_types.empty() && !r.takes_node())
    return fail(Code::invalid, "--gpu-type needs --gpus", "add --gpus 1");
  if (q.host_network && q.spec.surroundings.isolation == Isolation::strict)
    return fail(Code::invalid, "--isolation strict and --network host exclude each other",
                "drop --network (the job then has only a loopback), or use --network internet");
  if (!q.cwd_given) {
    char here[PATH_MAX];
    if (!::getcwd(here, sizeof here))
      return fail_errno("the current directory", errno);
    q.spec.cwd = here;
  }
  for (const std::string& word : q.spec.argv)
    if (!valid_utf8(word))
      return fail(Code::invalid, "a word of the command is not UTF-8 text");
  for (const std::string* text :
       {&q.spec.name, &q.spec.cwd, &q.project, &q.cron, &q.idempotency_key})
    if (!valid_utf8(*text))
      return fail(Code::invalid, "the value of an option is not UTF-8 text");
  if (!q.spec.name.empty())
    if (const Status good = check_spoken_name("job", q.spec.name); !good) {
      Error error = good.error();
      if (is_number_word(q.spec.name))
        error.hint += "; -n is --name here, the number of processes is --procs";
      return pass(std::move(error));
    }
  if (!q.roles.empty() && q.spec.nodes > 1)
    return fail(Code::invalid, "--nodes and roles exclude each other",
                "give a role a count: count = 4");
  for (JobRequest& role : q.roles) {
    role.cwd_given = true;
    role.spec.cwd = q.spec.cwd;
    if (auto done = complete(role); !done)
      return pass(std::move(done.error()), "role " + role.spec.name);
  }
  return {};
}

bool wants_gpus(const JobRequest& request) {
  return request.spec.resources.gpus > 0 ||
         std::any_of(request.roles.begin(), request.roles.end(), wants_gpus);
}

Status write_roles(JobRequest& request,
                   const std::vector<std::string>& own_environment,
                   const Environment& env) {
  request.spec.roles.clear();
  std::uint32_t members = 0;
  for (JobRequest& role : request.roles) {
    role.env.always = request.env.always;
    const auto variables = job_environment(own_environment, role.env);
    if (!variables)
      return pass(Error(variables.error()), "role " + role.spec.name);
    RoleSpec spec;
    static_cast<TaskOptions&>(spec) = role.spec;
    spec.pty = spec.use_stdin = false;
    spec.name = role.spec.name;
    spec.count = role.role_count;
    spec.resources = role.spec.resources;
    spec.retries = role.spec.retries;
    spec.service = role.role_service;
    for (const auto& [name, value] : env)
      spec.own_env = spec.own_env || !variables->contains(name);
    for (const auto& [name, value] : *variables)
      if (const auto same = env.find(name);
          spec.own_env || same == env.end() || same->second != value)
        spec.env.emplace(name, value);
    // A shell that itself runs in a job has variables of that job.
    std::erase_if(spec.env, [](const auto& entry) { return entry.first.starts_with("BILLOW_"); });
    members += spec.count;
    request.spec.roles.push_back(std::move(spec));
  }
  if (members > 0)
    request.spec.nodes = members;
  return {};
}

std::string submit_body(const JobRequest& request, const Environment& env) {
  std::string body =
      "{\"spec\":" + wire::to_json_text(request.spec) + ",\"env\":" + wire::to_json_text(env);
  if (!request.project.empty()) {
    body += ",\"project\":";
    append_json_string(body, request.project);
  }
  return body + "}";
}

}  // namespace billow::client
