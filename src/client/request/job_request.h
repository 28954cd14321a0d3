// From options (typed, or read from a job file) to the request the head is sent. Both ways go
// through set_option, so a key in a job file means exactly what the option of that name means.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "client/frame/command.h"
#include "client/request/env_filter.h"
#include "core/model/job.h"

namespace billow::client {

// A dependency as typed; an array's element ("12.3") or a name is looked up at the head to get its
// number.
struct AfterText {
  AfterKind kind = AfterKind::ok;
  std::string job;
  bool operator==(const AfterText&) const = default;
};
// "12", "ok:12", "any:12.3", "failed:train"
Result<AfterText> parse_after(std::string_view text);
// "12" or "12.3": what a job is called on the command line.
Status check_job_label(std::string_view text);
// Whether it can be a job at all: such a label, or what may be a name. Asks nobody.
Status check_job_word(std::string_view word);

enum class Sync { automatic, yes, no };

struct JobRequest {
  JobSpec spec;
  std::vector<AfterText> after;
  EnvChoice env;
  std::string project;
  std::string cron;
  std::string idempotency_key;
  std::string reservation;  // as typed: its number or its name
  bool cwd_given = false;
  bool host_network = false;         // --network host was given
  bool wait = false;                 // of a script's #SBATCH --wait
  Sync sync = Sync::automatic;       // whether the working directory follows the job
  std::vector<std::string> outputs;  // paths in it that are kept when the job ends
  // The roles of a group. Each begins as a copy of the job, and only its command, resources,
  // surroundings, variables and retries count.
  std::vector<JobRequest> roles;
  std::uint32_t role_count = 1;  // of a role: its members
  bool role_service = false;     // of a role
};

// Options of run, submit, shell and schedule add; also the keys of a job file's [job] table.
std::span<const OptionSpec> job_options();
// Options only of those that do not wait on a terminal: --array, --cron.
std::span<const OptionSpec> batch_options();

// What a number may be.
struct Bounds {
  std::int64_t min = INT64_MIN;
  std::int64_t max = INT64_MAX;
};
// An option that sets a member of the spec, and which: "Resources.mem_mib".
struct OptionField {
  OptionSpec shown;
  std::string_view field;
  Bounds bounds;
};
std::vector<OptionField> option_fields();
// The schemas of a job's spec for the API's description, made from the structs' `fields` (names,
// types, defaults) and from the options (help, bounds): src/api/job_schemas.json.
Json job_schemas();

// `relative_to`: where a relative --cwd begins; empty: the current directory.
Status set_option(JobRequest& request,
                  std::string_view name,
                  std::string_view value,
                  const std::string& relative_to = {});
// Every job option of the command line, on top of what is there.
Status set_options(JobRequest& request, const Parsed& parsed);
// Checks that need the whole: a GPU type without a GPU, a default working directory.
Status complete(JobRequest& request);

// A job file: TOML with one table [job], whose keys are option names, plus `command` (a list of
// words, or one string for the shell), an optional [env] table, and [[role]] tables for a group.
Result<JobRequest> read_job_file(const std::string& path);
Result<JobRequest> parse_job_file(std::string_view text,
                                  const std::string& shown_as,
                                  const std::string& directory);

// Writes the roles into the spec: their variables are those that differ from the job's `env`.
Status write_roles(JobRequest& request,
                   const std::vector<std::string>& own_environment,
                   const Environment& env);
// Whether the job or one of its roles wants a GPU.
bool wants_gpus(const JobRequest& request);

// The body of POST /v1/jobs. `after` must be in spec.after by now.
std::string submit_body(const JobRequest& request, const Environment& env);

}  // namespace billow::client
