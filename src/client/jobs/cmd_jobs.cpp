// Looking at jobs and suspending them: ps, describe, explain, wait, suspend, resume.
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <map>

#include "base/formats/utc.h"
#include "base/limits.h"
#include "base/text.h"
#include "client/endpoints/endpoints.h"
#include "client/frame/commands.h"
#include "client/frame/console.h"
#include "client/frame/explanation.h"
#include "client/frame/progress.h"
#include "client/frame/slurm.h"
#include "client/frame/table.h"
#include "client/frame/terminal.h"
#include "client/frame/values.h"
#include "client/jobs/attachment.h"
#include "client/jobs/ending.h"
#include "client/request/job_list.h"
#include "client/request/job_names.h"
#include "client/request/job_request.h"

namespace billow::client {
namespace {

constexpr OptionSpec ps_options[] = {
    {"all", 'a', nullptr, "also show ended jobs"},
    {"expand", 'x', nullptr, "one row per array element"},
    {"state", 's', "A,B",
     "only jobs in these states: held, queued, running, suspended, succeeded, failed, stopped, "
     "lost"},
    {"project", 'p', "NAME", "only jobs of this project"},
    {"user", 'u', "NAME", "only jobs of this user"},
    {"me", 0, nullptr, "only your own jobs"},
    {"name", 'n', "NAME", "only jobs with this name"},
    {"label", 'l', "K=V", "only jobs with this label; several must all match", true},
    {"since", 0, "T", "only jobs submitted in this time, e.g. 1d"},
    {"sort", 0, "COLUMN", "sort by job, name, user, state, gpus, age, time or cost", false,
     Completes::choice, "job,name,user,state,gpus,age,time,cost"},
    {"array", 0, "JOB", "only elements of this array", false, Completes::job},
    {"limit", 0, "N", "show at most this many (default 100)"},
    {"quiet", 'q', nullptr, "print job numbers only"},
};
constexpr OptionSpec suspend_options[] = {
    {"cold", 0, nullptr,
     "release the GPU completely, even its context; resuming takes slightly longer"},
    {"reason", 0, "TEXT", "reason to record"},
    {"wait", 'w', nullptr, "wait until the GPUs are free"},
    {"quiet", 'q', nullptr, "print nothing"},
};
constexpr OptionSpec resume_options[] = {
    {"on-demand", 0, nullptr,
     "start jobs that wait in a reservation (usually one that has ended) outside it, at the "
     "on-demand price"},
    {"wait", 'w', nullptr, "wait until the job runs again"},
    {"quiet", 'q', nullptr, "print nothing"},
};
constexpr OptionSpec wait_options[] = {
    {"timeout", 0, "T", "give up after this time with exit code 124"},
    {"quiet", 'q', nullptr, "print nothing"},
};

constexpr std::int64_t limit_max = 1'000'000;
constexpr std::size_t sorted_max = 10'000;  // jobs read to show the first of them

// The jobs that were submitted within --since.
Status keep_since(const Parsed& parsed, std::vector<Json>& jobs) {
  if (!parsed.has("since"))
    return {};
  const auto span = duration_with_unit(parsed.get("since"));
  if (!span)
    return pass(span.error(), "--since");
  std::erase_if(jobs, [&](const Json& job) {
    return utc_or_zero(job["submitted_at"].str_or("")) < now() - *span;
  });
  return {};
}

// Why a listing is empty: nothing exists, or the filters leave nothing.
std::string nothing_listed(const Parsed& parsed) {
  std::vector<std::string> filters;
  for (const char* name : {"state", "project", "user", "name", "label", "array", "since"})
    if (parsed.has(name))
      filters.push_back(fmt::format("--{} {}", name, printable(parsed.get(name))));
  const std::string ended =
      parsed.has("all") || parsed.has("state") ? "" : "; `billow ps -a` also shows ended jobs";
  if (filters.empty())
    return parsed.has("all") ? "there are no jobs yet" : "no job is queued or running" + ended;
  std::string text = fmt::format("no {} matches {}{}", parsed.has("all") ? "job" : "live job",
                                 join(filters, " "), ended);
  if (parse_int(parsed.get("name"), 0, INT64_MAX))
    text += fmt::format(" (-n is the job's name; --limit {} limits the lines)", parsed.get("name"));
  return text;
}

// Nothing was found: a misspelt label key is an error, everything else a note.
int no_jobs(const Parsed& parsed, Client& client) {
  if (parsed.has("label"))
    if (const Status known = check_label_keys(client, parsed.all("label")); !known)
      return report(known.error());
  if (!parsed.has("quiet"))
    say(nothing_listed(parsed));
  return 0;
}

// What ps lists, at most `read_max` of it.
Result<Json> fetch_listed(const Parsed& parsed, Client& client, std::size_t read_max) {
  std::string array = parsed.get("array");
  if (!array.empty())
    array = BILLOW_TRY(job_of(client, array, NameUse::look));
  std::string user = parsed.get("user");
  if (parsed.has("me"))
    user = std::string(BILLOW_TRY(client.get("/v1/status")).at("you", "user").str_or(""));
  return fetch_jobs(client, {.state = parsed.has("state") ? parsed.get("state")
                                      : parsed.has("all") ? "all"
                                                          : "",
                             .project = parsed.get("project"),
                             .user = user,
                             .name = parsed.get("name"),
                             .array = array,
                             .labels = parsed.all("label"),
                             .expand = parsed.has("expand") || parsed.has("array"),
                             .reasons = true,
                             .limit = read_max});
}

int list_json(const Parsed& parsed, Client& client, Json page, std::vector<Json> rows) {
  if (rows.empty() && parsed.has("label"))
    if (const Status known = check_label_keys(client, parsed.all("label")); !known)
      return report(known.error());
  Json list = Json::array();
  for (Json& row : rows)
    list.push(std::move(row));
  page.set("jobs", std::move(list));
  print_json(page);
  return 0;
}

int cmd_ps(const Parsed& parsed) {
  if (const std::string hint = slurm_states(parsed.get("state")); !hint.empty())
    return report_usage(
        {Code::invalid, fmt::format("--state {}: unknown state", parsed.get("state")), hint});
  const auto limit = parse_int(parsed.get("limit", "100"), 1, limit_max);
  if (!limit)
    return report_usage(Error(limit.error()).in("--limit"));
  auto client = connect(parsed);
  if (!client)
    return report(client.error());
  const auto shown_max = static_cast<std::size_t>(*limit);
  const auto read_max = parsed.has("sort") ? std::max(shown_max, sorted_max) : shown_max;
  auto page = fetch_listed(parsed, *client, read_max);
  if (!page)
    return report(page.error());
  std::vector<Json> jobs = (*page)["jobs"].items();
  if (parsed.has("expand"))  // the elements, not a row for the array beside them
    std::erase_if(jobs, [](const Json& job) { return job["elements"].is_object(); });
  if (const Status kept = keep_since(parsed, jobs); !kept)
    return report_usage(kept.error());
  const bool json = parsed.has("json"), elements = parsed.has("expand") || parsed.has("array");
  std::vector<Json> rows = elements || json ? std::move(jobs) : collapse_arrays(jobs);
  if (parsed.has("sort"))
    if (const Status sorted = sort_jobs(rows, parsed.get("sort"), now()); !sorted)
      return report_usage(sorted.error());
  const bool cut = rows.size() > shown_max;
  if (cut)
    rows.resize(shown_max);
  if (json)
    return list_json(parsed, *client, std::move(*page), std::move(rows));
  if (rows.empty())
    return no_jobs(parsed, *client);
  if (parsed.has("quiet")) {
    for (const Json& job : rows)
      print(fmt::format("{}\n", job["label"].str_or("?")));
    return 0;
  }
  print(jobs_table(rows, now()).text(look_at(STDOUT_FILENO)));
  if (cut)
    say(fmt::format("these are the first {} by {}; use --limit to see more", shown_max,
                    parsed.get("sort")));
  else if (!(*page)["next"].str_or("").empty())
    say(fmt::format("there are more than {} jobs; use --limit or --state", read_max));
  return 0;
}

int cmd_describe(const Parsed& parsed) {
  const auto words = job_operands(parsed, "describe");
  if (!words)
    return report_usage(words.error());
  auto client = connect(parsed);
  if (!client)
    return report(client.error());
  // An endpoint's name goes before a job's.
  if (words->size() == 1 && is_endpoint(*client, words->front()))
    return describe_endpoint(parsed, words->front());
  const auto jobs = jobs_of(*client, *words, NameUse::look);
  if (!jobs)
    return report(jobs.error());
  for (std::size_t i = 0; i < jobs->size(); ++i)
    if (const Status there = not_of_deleted_endpoint(*client, (*words)[i], (*jobs)[i]); !there)
      return report(there.error());
  bool first = true;
  for (const std::string& label : *jobs) {
    auto job = client->get(path_of_job(label));
    if (!job)
      return report(job.error());
    if (parsed.has("json"))
      print_json(*job);
    else
      print((first ? "" : "\n") + describe_text(*job, now(), look_at(STDOUT_FILENO)));
    first = false;
  }
  return 0;
}

int cmd_explain(const Parsed& parsed) {
  const auto words = job_operands(parsed, "explain");
  if (!words)
    return report_usage(words.error());
  auto client = connect(parsed);
  if (!client)
    return report(client.error());
  if (words->size() == 1 && is_endpoint(*client, words->front()))
    return explain_endpoint(parsed, words->front());
  const auto jobs = jobs_of(*client, *words, NameUse::look);
  if (!jobs && jobs.error().code == Code::not_found)
    return report({Code::not_found,
                   "there is no endpoint with this name, and " + jobs.error().message,
                   jobs.error().hint});
  if (!jobs)
    return report(jobs.error());
  for (std::size_t i = 0; i < jobs->size(); ++i)
    if (const Status there = not_of_deleted_endpoint(*client, (*words)[i], (*jobs)[i]); !there)
      return report(there.error());
  for (const std::string& label : *jobs) {
    auto why = client->get(path_of_job(label, "explain"));
    if (!why)
      return report(why.error());
    if (parsed.has("json")) {
      print_json(*why);
      continue;
    }
    print(fmt::format("{}\n{}", explanation_sentence(label, *why, now()),
                      explanation_text(*why, now())));
  }
  return 0;
}

// When a job that waits is expected to start, asked for now and then: the answer costs the head a
// plan.
struct StartForecast {
  std::optional<SteadyTime> asked_at;
  WallTime at, latest;  // zero: not known
};
std::string waiting_note(Client& client,
                         const std::string& label,
                         const Json& job,
                         StartForecast& starts) {
  const std::string state(job["state"].str_or("?"));
  std::string note = job["reason"].str_or("").empty()
                         ? state
                         : fmt::format("{}: {}", state, printable(job["reason"].str_or("")));
  if (state != "queued")
    return note;
  constexpr Duration ask_every = seconds(10);
  const SteadyTime now_steady = system_clock().steady();
  if (!starts.asked_at || now_steady - *starts.asked_at > ask_every) {
    starts.asked_at = now_steady;
    const auto why = client.get(path_of_job(label, "explain"));
    starts.at = why ? utc_or_zero((*why)["earliest_start"].str_or("")) : WallTime{};
    starts.latest = why ? utc_or_zero((*why)["latest_start"].str_or("")) : WallTime{};
  }
  const WallTime moment = now();
  if (!starts.at || moment >= starts.at)
    return note;
  const std::string expected = format_duration(starts.at - moment);
  note += starts.latest > starts.at ? fmt::format(", starts within {}, probably in {}",
                                                  format_duration(starts.latest - moment), expected)
                                    : fmt::format(", expected to start in {}", expected);
  return note;
}

}  // namespace

std::string goes_on(std::string_view what, const std::vector<std::string>& jobs) {
  const std::string named = join(jobs, " ");
  return fmt::format("{}; {} (`billow stop {}` would end {})", what,
                     jobs.size() == 1 ? fmt::format("job {} continues", named)
                                      : fmt::format("the {} jobs continue", jobs.size()),
                     named, jobs.size() == 1 ? "it" : "them");
}

Result<Json> wait_for_end(Client& client,
                          const std::string& label,
                          std::optional<SteadyTime> deadline,
                          bool answered,
                          bool quiet) {
  std::optional<Progress> progress;
  if (!quiet && ::isatty(STDERR_FILENO))
    progress.emplace(fmt::format("job {}", label), ProgressUnit::things);
  StartForecast starts;
  constexpr Duration away_max = minutes(10);
  std::optional<SteadyTime> away_since;
  for (;;) {
    const SteadyTime begun = system_clock().steady();
    std::int64_t ask_s = progress ? 1 : 30;
    if (deadline)
      ask_s = std::clamp<std::int64_t>((*deadline - begun).ns / 1'000'000'000 + 1, 0, ask_s);
    auto job = client.get(path_of_job(label, fmt::format("wait?timeout_s={}", ask_s)));
    const bool over = deadline && system_clock().steady() >= *deadline;
    if (job) {
      if ((*job)["final"].bool_or(false) || over)
        return job;
      away_since.reset();
      answered = true;
      if (progress) {
        const Json& elements = (*job)["elements"];
        const std::uint64_t count = elements["count"].uint_or(0);
        if (count)
          progress->update(count - elements["left"].uint_or(0), count,
                           fmt::format("{} running", elements["running"].uint_or(0)));
        else
          progress->update(0, 0, waiting_note(client, label, *job, starts));
      }
      continue;
    }
    if (!is_away(job.error()))
      return job;
    const bool nobody = job.error().message.starts_with("no head");
    if (!away_since)
      away_since = begun;
    answered = answered || !nobody;  // a connection that broke had somebody at its other end
    if (over || begun - *away_since > away_max || (nobody && !answered))
      return job;
    ::poll(nullptr, 0, 100);
    (void)client.find_again();
  }
}

int wait_for_jobs(const Parsed& parsed,
                  Client& client,
                  const std::vector<std::string>& jobs,
                  std::optional<SteadyTime> deadline) {
  const OnInterrupt left(parsed.has("quiet") ? "" : goes_on("no longer waiting", jobs));
  int code = 0;
  for (const std::string& label : jobs) {
    auto job = wait_for_end(client, label, deadline, label != jobs.front(),
                            parsed.has("quiet") || parsed.has("json"));
    if (!job)
      return report(job.error());
    if (!(*job)["final"].bool_or(false)) {
      if (!parsed.has("quiet"))
        say(fmt::format("job {} is still {}", label, (*job)["state"].str_or("?")));
      return 124;
    }
    if (parsed.has("json"))
      print_json(*job);
    else if (!parsed.has("quiet"))
      print(summary_of(*job, now()) + "\n");
    if (code == 0)
      code = exit_code_of(*job);
  }
  return code;
}

namespace {

int cmd_wait(const Parsed& parsed) {
  const auto words = job_operands(parsed, "wait");
  if (!words)
    return report_usage(words.error());
  std::optional<SteadyTime> deadline;
  if (parsed.has("timeout")) {
    const auto timeout = duration_with_unit(parsed.get("timeout"));
    if (!timeout)
      return report_usage(Error(timeout.error()).in("--timeout"));
    deadline = system_clock().steady() + *timeout;
  }
  auto client = connect(parsed);
  if (!client)
    return report(client.error());
  std::vector<std::string> jobs;
  for (const std::string& word : *words) {
    const auto named = all_jobs_of(*client, word);
    if (!named)
      return report(named.error());
    if (named->size() > 1 && !parsed.has("quiet"))
      say(fmt::format("waiting for {} jobs named {}", named->size(), word));
    jobs.insert(jobs.end(), named->begin(), named->end());
  }
  return wait_for_jobs(parsed, *client, jobs, deadline);
}

// "suspending", "suspended", "resuming", or nothing.
std::string phase_of(const Json& job) {
  return std::string(job.at("suspension", "phase").str_or(""));
}

// Only a job that runs can be suspended. One that waits, or is just starting, is waited for.
void wait_until_it_runs(Client& client, const std::string& label) {
  for (;;) {
    const auto job = client.get(path_of_job(label, ""));
    if (!job || (*job)["final"].bool_or(false) || (*job)["elements"].is_object())
      return;
    bool starts = false;
    for (const Json& task : (*job)["tasks"].items())
      starts = starts || task["state"].str_or("") == "starting";
    const std::string_view state = (*job)["state"].str_or("");
    if (state != "queued" && state != "held" && !starts)
      return;
    ::poll(nullptr, 0, 50);
  }
}

int order(const Parsed& parsed,
          const char* what,
          const std::string& body,
          const std::function<bool(const Json&)>& under_way) {
  const auto words = job_operands(parsed, what);
  if (!words)
    return report_usage(words.error());
  auto client = connect(parsed);
  if (!client)
    return report(client.error());
  const auto jobs = jobs_of(*client, *words, NameUse::change);
  if (!jobs)
    return report(jobs.error());
  std::optional<OnInterrupt> left;
  if (parsed.has("wait") && !parsed.has("quiet"))
    left.emplace(fmt::format("no longer waiting; see `billow describe {}`", jobs->front()));
  int code = 0;
  for (const std::string& label : *jobs) {
    if (std::string_view(what) == "suspend" && parsed.has("wait"))
      wait_until_it_runs(*client, label);
    auto job = client->post(path_of_job(label, what), body);
    while (job && parsed.has("wait") && under_way(*job)) {
      ::poll(nullptr, 0, 50);
      job = client->get(path_of_job(label, ""));
    }
    if (!job) {
      code = report(job.error());  // the others are still asked
      continue;
    }
    if (parsed.has("json")) {
      print_json(*job);
      continue;
    }
    if (parsed.has("quiet"))
      continue;
    const std::string phase = phase_of(*job), reason((*job)["reason"].str_or(""));
    if (phase == "suspended" && job->at("suspension", "resumes_by_itself").bool_or(false))
      print(fmt::format("job {} resumes as soon as its GPUs are free\n", label));
    else if (!phase.empty())
      print(fmt::format("job {} is {}\n", label, phase));
    else
      print(fmt::format("job {} is {}{}\n", label, (*job)["state"].str_or("?"),
                        reason.empty() ? "" : ": " + printable(reason)));
    // It was to be suspended, its node could not, and it runs on.
    if (std::string_view(what) == "suspend" && parsed.has("wait") && phase.empty() &&
        !(*job)["final"].bool_or(false))
      code = 1;
    if (std::string_view(what) == "resume" && parsed.has("wait") && phase == "suspended")
      code = 1;
  }
  return code;
}

int cmd_suspend(const Parsed& parsed) {
  const Json body = Json::object(
      {{"reason", parsed.get("reason")}, {"mode", parsed.has("cold") ? "cold" : "warm"}});
  return order(parsed, "suspend", body.dump(),
               [](const Json& job) { return phase_of(job) == "suspending"; });
}

int cmd_resume(const Parsed& parsed) {
  return order(parsed, "resume", parsed.has("on-demand") ? R"({"on_demand":true})" : "{}",
               [](const Json& job) {
                 // Suspended still, and not to come back by itself: its node could not.
                 return phase_of(job) == "resuming" ||
                        (phase_of(job) == "suspended" &&
                         job.at("suspension", "resumes_by_itself").bool_or(false));
               });
}

void add_query_commands(CommandTable& table) {
  table.push_back(
      {.name = "ps",
       .summary = "list waiting and running jobs",
       .example = "billow ps\nbillow ps -a --label team=vision\nbillow ps --state "
                  "failed --json | jq '.jobs[].id'",
       .run = cmd_ps,
       .details = "An array is shown as one row with counts; --expand shows its elements.",
       .options = {ps_options},
       .group = "jobs"});
  add_log_commands(table);
  table.push_back({.name = "describe",
                   .summary = "show all details of a job or endpoint",
                   .example = "billow describe 12",
                   .run = cmd_describe,
                   .usage = "JOB… | ENDPOINT",
                   .operands = Operands::some,
                   .completes = Completes::job,
                   .group = "jobs"});
  table.push_back(
      {.name = "explain",
       .summary = "explain why a job or endpoint waits, and when it is expected to start",
       .example = "billow explain 12\nbillow explain hello",
       .run = cmd_explain,
       .usage = "JOB… | ENDPOINT",
       .operands = Operands::some,
       .completes = Completes::job,
       .group = "jobs"});
  table.push_back(
      {.name = "wait",
       .summary = "wait until jobs have ended and return their exit code",
       .example = "billow wait 12 && echo done\nbillow wait \"$(billow submit --json -- make | jq "
                  ".id)\"\nbillow submit --name sweep --lines commands.txt && billow wait sweep",
       .run = cmd_wait,
       .usage = "JOB…",
       .details = "With several jobs, the exit code is the first that is not zero. A name means "
                  "all your unfinished jobs with that name,\nor all jobs of a `submit "
                  "--lines`, finished or not.",
       .options = {wait_options},
       .operands = Operands::some,
       .completes = Completes::job,
       .group = "jobs"});
}

void add_control_commands(CommandTable& table) {
  table.push_back(
      {.name = "suspend",
       .summary = "release a job's GPUs and keep its memory",
       .example = "billow suspend 12\nbillow suspend --cold --wait 12",
       .run = cmd_suspend,
       .usage = "JOB…",
       .details =
           "A suspended job uses only memory; `billow resume` continues it where it stopped. A job "
           "that cannot be suspended keeps\nrunning; `billow describe` shows in advance whether it "
           "can. The kept state is in the memory of the job's node and is lost\nwith that node.",
       .options = {suspend_options},
       .operands = Operands::some,
       .completes = Completes::job,
       .group = "jobs"});
  table.push_back({.name = "resume",
                   .summary = "resume suspended jobs as soon as their GPUs are free",
                   .example = "billow resume 12\nbillow resume 14 --on-demand",
                   .run = cmd_resume,
                   .usage = "JOB…",
                   .details = "A job that waits in a reservation that has ended does not start, "
                              "because it was submitted at another price. --on-demand starts it.",
                   .options = {resume_options},
                   .operands = Operands::some,
                   .completes = Completes::job,
                   .group = "jobs"});
  add_stop_commands(table);
}

}  // namespace

void add_job_commands(CommandTable& table) {
  add_query_commands(table);
  add_control_commands(table);
}

}  // namespace billow::client
