#include "client/jobs/submission.h"

#include <fmt/format.h>
#include <unistd.h>

#include "base/crypto.h"
#include "base/limits.h"
#include "base/text.h"
#include "client/frame/console.h"
#include "client/frame/settings.h"
#include "client/frame/table.h"
#include "client/frame/terminal.h"
#include "client/jobs/renting.h"
#include "client/request/environments.h"
#include "client/request/job_names.h"
#include "client/request/job_script.h"
#include "client/request/sync.h"
#include "core/wire/log_record.h"

namespace billow::client {
namespace {

Status resolve_reservation(Client& client, JobRequest& request) {
  if (request.reservation.empty())
    return {};
  if (const auto number = parse_int(request.reservation, 1, INT64_MAX)) {
    request.spec.reservation = ReservationId(static_cast<std::uint64_t>(*number));
    return {};
  }
  const Json answer = BILLOW_TRY(client.get("/v1/reservations"));
  for (const Json& r : answer["reservations"].items())
    if (r["name"].str_or("") == request.reservation &&
        (request.project.empty() || r["project"].str_or("") == request.project)) {
      if (request.spec.reservation)
        return fail(Code::conflict,
                    fmt::format("several projects have a reservation \"{}\"", request.reservation),
                    "use its number (see `billow reserve list`), or add --project");
      request.spec.reservation = ReservationId(r["id"].uint_or(0));
    }
  if (!request.spec.reservation)
    return fail(Code::not_found, fmt::format("there is no reservation \"{}\"", request.reservation),
                "see `billow reserve list`");
  return {};
}

// The request went out and no answer came; where nobody was there to take it, waiting does not
// help.
bool answer_was_lost(const Error& error) {
  return error.code == Code::unavailable && !error.message.starts_with("no head") &&
         !error.message.starts_with("cannot connect");
}

}  // namespace

Status resolve_after(Client& client, JobRequest& request) {
  for (const AfterText& after : request.after) {
    const auto jobs = all_jobs_of(client, after.job);
    if (!jobs)
      return pass(Error(jobs.error()), "--after " + after.job);
    if (jobs->size() > 1)
      say(fmt::format("the job waits for {} jobs named {}", jobs->size(), after.job));
    for (const std::string& label : *jobs) {
      std::uint64_t number = static_cast<std::uint64_t>(parse_int(label, 1, INT64_MAX).value_or(0));
      if (number == 0) {
        auto job = client.get(path_of_job(label));
        if (!job)
          return pass(std::move(job.error()), "--after " + label);
        number = (*job)["id"].uint_or(0);
      }
      request.spec.after.push_back({JobId(number), after.kind});
    }
  }
  if (request.spec.after.size() > limits::dependencies_max)
    return fail(Code::invalid,
                fmt::format("--after names {} jobs; the limit is {}", request.spec.after.size(),
                            limits::dependencies_max),
                "submit them as one array (--array) and wait for that");
  return {};
}

Result<Environment> variables_for(const Parsed& parsed, JobRequest& request) {
  request.env.always = BILLOW_TRY(read_settings()).pass_env;
  const std::vector<std::string> own = own_environment();
  Environment env = BILLOW_TRY(job_environment(own, request.env));
  BILLOW_TRY_VOID(write_roles(request, own, env));
  const std::vector<std::string> missing = held_back(own, env, request.env);
  constexpr std::size_t named_max = 6;
  if (missing.empty() || parsed.has("quiet") || parsed.has("json"))
    return env;
  std::vector<std::string> named(
      missing.begin(),
      missing.begin() + static_cast<std::ptrdiff_t>(std::min(missing.size(), named_max)));
  if (missing.size() > named_max)
    named.push_back(fmt::format("{} more", missing.size() - named_max));
  say(
      fmt::format("not passed to the job, because they look like credentials: {} (pass one with "
                  "--env-var {}, or always with `billow config set pass-env {}`)",
                  join(named, ", "), missing.front(), missing.front()));
  return env;
}

Result<Environment> prepare(const Parsed& parsed, Client& client, JobRequest& request) {
  BILLOW_TRY_VOID(resolve_after(client, request));
  BILLOW_TRY_VOID(resolve_reservation(client, request));
  BILLOW_TRY_VOID(prepare_environment(client, request));
  Environment env = BILLOW_TRY(variables_for(parsed, request));
  BILLOW_TRY_VOID(sync_for_job(client, request, parsed.has("quiet"), env));
  return env;
}

Result<Json> ask_for_job(const Parsed& parsed,
                         Client& client,
                         const JobRequest& request,
                         const Environment& env) {
  // A key of our own makes asking again safe when the answer was lost on the way.
  const std::string key =
      request.idempotency_key.empty() ? "cli-" + random_token(12) : request.idempotency_key;
  const std::string body = submit_body(request, env);
  auto job = client.post("/v1/jobs", body, {{"Idempotency-Key", key}});
  for (int again = 0; !job && answer_was_lost(job.error()) && again < 3; ++again) {
    ::usleep(200'000);
    (void)client.find_again();
    job = client.post("/v1/jobs", body, {{"Idempotency-Key", key}});
  }
  if (job && !parsed.has("quiet"))
    if (const Json& rents = (*job)["rents"]; !rents.is_null())
      say(rent_line(rents));
  // What will slow it down, said before it runs.
  if (job && !parsed.has("quiet"))
    for (const Json& warning : (*job)["warnings"].items())
      say("warning: " + printable(warning.str_or("")));
  return job;
}

Result<Json> submit(const Parsed& parsed, Client& client, JobRequest& request, bool one_stream) {
  OnInterrupt left("nothing was submitted");
  Environment env = BILLOW_TRY(prepare(parsed, client, request));
  if (one_stream)
    env[wire::output_variable] = wire::output_merged;
  else
    env.erase(wire::output_variable);  // of a job that submits another
  BILLOW_TRY_VOID(may_rent(parsed, client, submit_body(request, env)));
  left.say("the job may have been submitted; see `billow ps`");
  return ask_for_job(parsed, client, request, env);
}

Result<JobRequest> request_of(const Parsed& parsed) {
  JobRequest request;
  request.spec.argv = parsed.operands;
  const bool one = !parsed.after_dashes && parsed.operands.size() == 1;
  const bool file = one && parsed.operands[0].ends_with(".toml");
  if (one && (parsed.operands[0].ends_with(".yaml") || parsed.operands[0].ends_with(".yml")))
    return fail(Code::invalid, fmt::format("{} is YAML; job files are TOML", parsed.operands[0]),
                "write [job] and command = [\"python\", \"train.py\"] into a file job.toml");
  if (file)
    request = BILLOW_TRY(read_job_file(parsed.operands[0]));
  else if (auto script = BILLOW_TRY(
               read_job_script(parsed.operands, parsed.has("quiet"), parsed.after_dashes)))
    request = std::move(*script);
  BILLOW_TRY_VOID(set_options(request, parsed));
  if (request.spec.argv.empty())
    return fail(Code::invalid,
                file ? parsed.operands[0] + " contains no command" : "no command or job file given",
                file ? "add a line such as command = [\"python\", \"train.py\"] under [job]"
                     : "write the command after --, for example: billow run --gpus 1 -- python "
                       "train.py");
  if (request.spec.argv == parsed.operands)
    BILLOW_TRY_VOID(check_program(request, parsed.has("quiet"), parsed.after_dashes));
  return request;
}

}  // namespace billow::client
