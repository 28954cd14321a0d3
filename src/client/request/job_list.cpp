#include "client/request/job_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/formats/utc.h"
#include "base/limits.h"
#include "base/text.h"
#include "client/frame/when.h"
#include "client/request/option_words.h"

namespace billow::client {
namespace {

bool is_array(const Json& job) {
  return job.find("elements") || !job["array_spec"].str_or("").empty();
}

// "40 left of 100, 2 failed"
std::string progress_of(const Json& array) {
  const Json& e = array["elements"];
  const std::int64_t count = e["count"].int_or(0), left = e["left"].int_or(0),
                     succeeded = e["succeeded"].int_or(0), stopped = e["stopped"].int_or(0);
  const std::int64_t bad = count - left - succeeded - stopped;
  std::string text = fmt::format("{}/{} done", count - left, count);
  if (bad > 0)
    text += fmt::format(", {} not ok", bad);
  if (stopped > 0)
    text += fmt::format(", {} stopped", stopped);
  return text;
}

std::string state_text(const Json& job) {
  std::string text(job["state"].str_or("?"));
  // A job that ended while it was suspended keeps that in its document.
  if (const auto phase = job.at("suspension", "phase").str_or("");
      !phase.empty() && !job["final"].bool_or(false))
    text = phase;
  if (job["attempt"].int_or(1) > 1)
    text += fmt::format(" #{}", job["attempt"].int_or(1));
  return text;
}

// What a reader wants to know beside the state: progress of an array, why it waits, how it ended.
std::string remark_of(const Json& job) {
  if (is_array(job))
    return progress_of(job);
  const std::string_view state = job["state"].str_or("");
  if (job["final"].bool_or(false) && state != "succeeded") {
    const auto exit = job.at("exit", "text").str_or("");
    const auto reason = job["reason"].str_or("");
    return std::string(exit.empty() || (state == "stopped" && !reason.empty()) ? reason : exit);
  }
  if (state == "running") {
    // A warning that it is idle, that its node does not answer, that it does not serve: more urgent
    // than where it runs.
    if (const auto reason = job["reason"].str_or(""); !reason.empty())
      return std::string(reason);
    std::string nodes;
    for (const Json& task : job["tasks"].items()) {
      const std::string name(task["node"].str_or(""));
      if (!name.empty() && nodes.find(name) == std::string::npos)
        nodes += (nodes.empty() ? "" : ",") + name;
      for (const Json& mig : task["mig"].items())
        nodes += fmt::format(" GPU {} {}@{}", mig["gpu"].int_or(0), mig["profile"].str_or("?"),
                             mig["start"].int_or(0));
    }
    return nodes;
  }
  const std::string reason(job["reason"].str_or(""));
  // What somebody wants to know of a suspended job is when it goes on; why it was suspended stays
  // with `describe`.
  if (state == "suspended" && job.at("suspension", "phase").str_or("") == "suspended") {
    const bool by_itself = job.at("suspension", "resumes_by_itself").bool_or(false);
    const std::string next =
        by_itself ? "resumes when its GPUs are free"
                  : fmt::format("resume it with `billow resume {}`", job["label"].str_or("?"));
    return reason.empty() ? next : by_itself ? fmt::format("{}; {}", reason, next) : reason;
  }
  return reason;
}

}  // namespace

std::string name_of(const Json& job) {
  const std::string name(job["name"].str_or(""));
  const std::string command(job["command"].str_or(""));
  const bool element = job.at("array", "id").uint_or(0) > 0 && !is_array(job);
  if (!element)
    return name.empty() ? command : name;
  const std::uint64_t index = job.at("array", "index").uint_or(0);
  // As commands accept it.
  return name.empty() ? fmt::format("{}[{}]", command, index) : fmt::format("{}.{}", name, index);
}

std::string whole_seconds(std::int64_t s) {
  return s < 60 ? fmt::format("{}s", s) : format_duration(seconds(s));
}

std::string run_time(const Json& job, WallTime now) {
  // Documents of jobs that ended before this was counted have no such member.
  return job["ran_s"].is_number() ? whole_seconds(job["ran_s"].int_or(0))
                                  : span_between(job["started_at"], job["ended_at"], now);
}

Result<Json> fetch_jobs(Client& client, const JobFilter& filter) {
  Json all = Json::array();
  std::string cursor;
  do {
    const std::size_t want = std::min(filter.limit - all.size(), limits::page_items_max);
    std::vector<std::pair<std::string, std::string>> query = {
        {"state", filter.state},
        {"project", filter.project},
        {"user", filter.user},
        {"name", filter.name},
        {"array", filter.array},
        {"expand", filter.expand ? "1" : ""},
        {"reasons", filter.reasons ? "1" : ""},
        {"limit", fmt::format("{}", want)},
        {"cursor", cursor}};
    for (const std::string& label : filter.labels)
      query.emplace_back("label", label);
    const Json page = BILLOW_TRY(client.get(with_query("/v1/jobs", query)));
    for (const Json& job : page["jobs"].items())
      all.push(job);
    cursor = std::string(page["next"].str_or(""));
  } while (!cursor.empty() && all.size() < filter.limit);
  return Json::object({{"jobs", std::move(all)}, {"next", cursor}});
}

Status check_label_keys(Client& client, const std::vector<std::string>& labels) {
  const Json page = BILLOW_TRY(fetch_jobs(client, {.state = "all", .limit = 500}));
  std::set<std::string> known;
  for (const Json& job : page["jobs"].items())
    for (const auto& [key, value] : job["labels"].members())
      known.insert(key);
  for (const std::string& label : labels) {
    const std::string key = label.substr(0, label.find('='));
    if (page["jobs"].items().empty() || known.contains(key))
      continue;
    const std::string close = nearest(key, {known.begin(), known.end()});
    return fail(Code::invalid, fmt::format("no recent job has a label \"{}\"", key),
                close.empty()
                    ? (known.empty() ? "label jobs with --label K=V"
                                     : "labels in use: " + join({known.begin(), known.end()}, ", "))
                    : fmt::format("did you mean {}?", close));
  }
  return {};
}

Status sort_jobs(std::vector<Json>& jobs, const std::string& column, WallTime now) {
  const std::vector<std::string> columns = {"job",  "name", "user", "state",
                                            "gpus", "age",  "time", "cost"};
  if (std::ranges::find(columns, column) == columns.end()) {
    const std::string close = nearest(column, columns);
    return fail(Code::invalid, fmt::format("--sort {}: there is no such column", column),
                (close.empty() ? "" : fmt::format("did you mean {}? ", close)) +
                    "columns: " + join(columns, ", "));
  }
  const auto number = [&](const Json& job) -> double {
    if (column == "cost")
      return -job["cost_nano_usd"].double_or(0);
    if (column == "gpus")
      return -job["gpus"].double_or(0);
    if (column == "time")
      return -(
          job["ran_s"].is_number()
              ? job["ran_s"].double_or(0)
              : static_cast<double>(
                    (now - std::max(utc_or_zero(job["started_at"].str_or("")), WallTime{1})).ns));
    return -job["id"].double_or(0);
  };
  const bool by_text = column == "name" || column == "user" || column == "state";
  std::ranges::stable_sort(jobs, [&](const Json& a, const Json& b) {
    if (!by_text)
      return number(a) < number(b);
    if (column == "name")
      return name_of(a) < name_of(b);
    return a[column].str_or("") < b[column].str_or("");
  });
  return {};
}

std::vector<Json> collapse_arrays(const std::vector<Json>& jobs) {
  struct Seen {
    std::int64_t count = 0, left = 0, succeeded = 0, running = 0, queued = 0;
    std::size_t row = 0;
  };
  std::map<std::uint64_t, Seen> seen;
  std::vector<Json> rows;
  std::map<std::uint64_t, bool> own_document;
  for (const Json& job : jobs)
    if (is_array(job))
      own_document[job["id"].uint_or(0)] = true;
  for (const Json& job : jobs) {
    const std::uint64_t array = job.at("array", "id").uint_or(0);
    if (array == 0) {
      rows.push_back(job);
      continue;
    }
    if (own_document.contains(array))
      continue;
    auto [it, fresh] = seen.try_emplace(array);
    Seen& s = it->second;
    if (fresh) {
      s.row = rows.size();
      Json row = job;
      row.set("id", array);
      row.set("label", fmt::format("{}", array));
      row.set("tasks", Json::array());
      rows.push_back(std::move(row));
    }
    ++s.count;
    const std::string_view state = job["state"].str_or("");
    if (!job["final"].bool_or(false))
      ++s.left;
    if (state == "succeeded")
      ++s.succeeded;
    if (state == "running")
      ++s.running;
    if (state == "queued")
      ++s.queued;
  }
  for (const auto& [id, s] : seen) {
    Json& row = rows[s.row];
    row.set("elements",
            Json::object({{"count", s.count}, {"left", s.left}, {"succeeded", s.succeeded}}));
    row.set("state", s.running > 0  ? "running"
                     : s.queued > 0 ? "queued"
                                    : std::string(row["state"].str_or("?")));
  }
  return rows;
}

Table jobs_table(const std::vector<Json>& jobs, WallTime now) {
  using Align = Table::Align;
  Table table({{"JOB"},
               {"NAME", Align::left, 12},
               {"USER", Align::left, 6, 1},
               {"STATE"},
               {"GPUS"},
               {"AGE", Align::right, 0, 2},
               {"TIME", Align::right},
               {"COST", Align::right},
               {"REMARK", Align::left, 16}});
  for (const Json& job : jobs) {
    const std::string_view state = job["state"].str_or("?");
    const bool array = is_array(job);
    table.row({array ? fmt::format("{}[]", job["label"].str_or("?"))
                     : std::string(job["label"].str_or("?")),
               name_of(job),
               std::string(job["user"].str_or("")),
               {state_text(job), colour_of_state(state)},
               gpus_of_job(job),
               age(job["submitted_at"], now),
               run_time(job, now),
               std::string(job["cost"].str_or("-")),
               {remark_of(job), Colour::dim}});
  }
  return table;
}

namespace {

struct Facts {
  const Look& look;
  std::string text;
  void add(std::string_view name, std::string_view value, Colour colour = Colour::none) {
    if (value.empty() || value == "-")
      return;
    text += fmt::format("{}  {}\n", painted(fmt::format("{:>12}", name), Colour::dim, look),
                        painted(printable(value), colour, look));
  }
};

std::string pairs(const Json& object) {
  std::string out;
  for (const auto& [key, value] : object.members())
    out += fmt::format("{}{}={}", out.empty() ? "" : ", ", key, value.str_or(""));
  return out;
}

std::string asked(const Json& job) {
  std::string out;
  const auto add = [&](const std::string& part) {
    out += (out.empty() ? "" : ", ") + part;
  };
  const auto share = job["gpu_milli"].int_or(0);
  const bool slice = share > 0 && share < 1000;
  std::string types;
  for (const Json& type : job["gpu_types"].items())
    types += (types.empty() ? " of " : " or ") + std::string(type.str_or("?"));
  if (slice)
    add(fmt::format("{:g} GPU{}", static_cast<double>(share) / 1000, types));
  else if (const std::string gpus = gpus_of_job(job); gpus != "-")
    add(gpus + (gpus == "1" ? " GPU" : " GPUs"));
  if (const auto mib = job["gpu_mem_mib"].int_or(0); mib > 0)
    add(mebibytes(mib) + " of GPU memory");
  for (const Json& task : job["tasks"].items())
    if (const auto got = task["gpu_milli"].int_or(0); slice && got > share) {
      add(fmt::format("and is charged {:g} GPU, the part of the card that this memory takes",
                      static_cast<double>(got) / 1000));
      break;
    }
  if (const auto milli = job["cpu_milli"].int_or(0); milli > 0)
    add(fmt::format("{:g} CPUs", static_cast<double>(milli) / 1000));
  if (const auto mib = job["mem_mib"].int_or(0); mib > 0)
    add(mebibytes(mib) + " memory");
  if (const auto mib = job["disk_mib"].int_or(0); mib > 0)
    add(mebibytes(mib) + " disk");
  if (job["spot"].bool_or(false))
    add("spot");
  if (const auto profile = job["mig_profile"].str_or(""); !profile.empty())
    add("MIG " + std::string(profile));
  if (job["whole_node"].bool_or(false))
    add("a whole node without a sandbox");
  else if (job["exclusive"].bool_or(false))
    add("a whole node (exclusive)");
  if (job["strict"].bool_or(false))
    add("strict share");
  if (job["time_sliced"].bool_or(false))
    add("time-sliced (no limit is enforced)");
  return out;
}

}  // namespace

std::string member_text(const Json& job, const Json& task) {
  if (task["role"].is_string())
    return std::string(task["role"].str_or(""));
  const std::int64_t node = task["rank"].int_or(0);
  const std::int64_t procs = job.at("options", "procs").int_or(1);
  return procs > 1 ? fmt::format("ranks {} to {}", node * procs, node * procs + procs - 1)
                   : fmt::format("rank {}", node);
}

namespace {

void describe_tasks(Facts& facts, const Json& job) {
  for (const Json& task : job["tasks"].items()) {
    std::string gpus;
    for (const Json& gpu : task["gpus"].items())
      gpus += (gpus.empty() ? "GPU " : ",") +
              fmt::format("{}", gpu.is_object() ? gpu["gpu"].int_or(0) : gpu.int_or(0));
    std::string line = fmt::format("{} on {} {}", member_text(job, task), task["node"].str_or("?"),
                                   task["state"].str_or("?"));
    if (!gpus.empty())
      line += (task.find("ram_mib") ? ", came from " : ", ") + gpus;
    for (const Json& mig : task["mig"].items())
      line +=
          fmt::format(", MIG {} from slice {}", mig["profile"].str_or("?"), mig["start"].int_or(0));
    if (const auto mib = task["ram_mib"].int_or(0); mib > 0)
      line += fmt::format(", holds {} of memory", mebibytes(mib));
    const Json& usage = task["usage"];
    if (const auto ns = usage["cpu_user_ns"].int_or(0) + usage["cpu_system_ns"].int_or(0); ns > 0)
      line += fmt::format(", CPU {}", format_duration(nanoseconds(ns)));
    if (const auto kib = usage["rss_peak_kib"].int_or(0); kib > 0)
      line += fmt::format(", peak {}", format_bytes(static_cast<std::uint64_t>(kib) << 10));
    facts.add("task", line);
  }
}

// Where the job stands: suspension and checkpoints.
void describe_progress(Facts& facts, const Json& job, WallTime now) {
  if (const auto note = job["memory_note"].str_or(""); !note.empty())
    facts.add("memory limit", std::string(note));
  if (const auto from = job["from_checkpoint"].str_or(""); !from.empty())
    facts.add("starts from", fmt::format("checkpoint {}", from));
  if (const Json& c = job["checkpoint"]; c.is_object()) {
    std::string text = fmt::format("every {}", format_duration(seconds(c["every_s"].int_or(0))));
    if (const auto path = c["path"].str_or(""); path.empty())
      text += ", none yet";
    else
      text += fmt::format(", newest {} ago in {}, took {}", age(c["at"], now), path,
                          format_duration(milliseconds(c["cost_ms"].int_or(0))));
    if (const auto s = c["advised_every_s"].int_or(0); s > 0)
      text += fmt::format("; every {} would lose the least if a node is lost once a day",
                          format_duration(seconds(s)));
    facts.add("checkpoint", text);
  }
  if (const Json& s = job["suspension"]; s.is_object() && !job["final"].bool_or(false)) {
    std::string text = fmt::format("{} ({}, {}) {}", s["phase"].str_or("?"), s["cause"].str_or("?"),
                                   s["mode"].str_or("?"), time_text(s["since"], now, "?"));
    if (s["phase"].str_or("") != "resuming")
      text += s["resumes_by_itself"].bool_or(false)
                  ? "; resumes as soon as its GPUs are free"
                  : fmt::format("; resume it with `billow resume {}`", job["label"].str_or("?"));
    facts.add("suspension", text);
    facts.add("asleep", job["asleep"].str_or(""));
  }
}

// A script whose text was kept with the job is shown by its name.
std::string shown_command(const Json& job) {
  const std::vector<Json>& words = job.at("spec", "argv").items();
  if (words.size() < 4 || words[1].str_or("") != "-c" ||
      words[2].str_or("").find('\n') == std::string_view::npos)
    return std::string(job["command"].str_or(""));
  std::vector<std::string> shown{std::string(words[0].str_or(""))};
  for (std::size_t i = 3; i < words.size(); ++i)
    shown.emplace_back(words[i].str_or(""));
  return fmt::format("{} (the script as it was submitted; --json shows its text)",
                     shell_join(shown));
}

// The image and what else surrounds the command of a job or of a role.
void describe_surroundings(Facts& facts, const Json& job) {
  if (const auto image = job["image"].str_or(""); !image.empty())
    facts.add("image", fmt::format("{}{}{}", image, job["image_digest"].is_string() ? " " : "",
                                   job["image_digest"].str_or("")));
  if (const auto secret = job["registry_secret"].str_or(""); !secret.empty())
    facts.add("registry login", fmt::format("secret {}", secret));
  if (const auto name = job.at("environment", "name").str_or(""); !name.empty())
    facts.add("runs in", fmt::format("{} {}", name, job.at("environment", "digest").str_or("")));
  for (const Json& one : job["secrets"].items())
    facts.add("secret",
              one["file"].is_string()
                  ? fmt::format("{} as the file {}", one["name"].str_or(""), one["file"].str_or(""))
                  : fmt::format("{} as ${}", one["name"].str_or(""), one["variable"].str_or("")));
  if (job["network"].is_string())
    facts.add("network", std::string(job["network"].str_or("")));
  if (job["isolation"].is_string())
    facts.add("isolation", std::string(job["isolation"].str_or("")));
  if (job["seccomp"].is_string())
    facts.add("system calls", fmt::format("profile {}", job["seccomp"].str_or("")));
  if (const auto& names = job["refused_calls"].items(); !names.empty()) {
    std::string list;
    for (const Json& name : names)
      list += (list.empty() ? "" : ", ") + std::string(name.str_or(""));
    facts.add("refused calls", list);
  }
  if (job["processes_max"].int_or(0) > 0)
    facts.add("processes", fmt::format("at most {} on a node", job["processes_max"].int_or(0)));
  for (const Json& one : job["volumes"].items())
    facts.add("volume", fmt::format("{} at {}{}", one["name"].str_or(""), one["path"].str_or(""),
                                    one["read_only"].bool_or(false) ? ", read-only" : ""));
  for (const Json& one : job["inputs"].items())
    facts.add("input", fmt::format("{} at {}", one["url"].str_or(""), one["path"].str_or("")));
  for (const Json& one : job["outputs"].items())
    facts.add("output", fmt::format("{} to {}", one["path"].str_or(""), one["url"].str_or("")));
}

// What runs, in which surroundings.
void describe_program(Facts& facts, const Json& job) {
  facts.add("command", shown_command(job));
  std::string kept;
  for (const Json& path : job["kept"].items())
    kept += (kept.empty() ? "; kept: " : ", ") + std::string(path.str_or(""));
  facts.add("directory",
            job["copied"].bool_or(false)
                ? fmt::format("a copy of {}, deleted when the job ends{}", job["cwd"].str_or(""),
                              kept.empty() ? "; nothing is kept (no --output)" : kept)
                : std::string(job["cwd"].str_or("")));
  describe_surroundings(facts, job);
  facts.add("environment",
            "as it was at submission, without variables that look like credentials (see `billow "
            "run --help`)");
}

// What it asks for besides: every option that is not at its default.
void describe_options(Facts& facts, const Json& job) {
  if (job["pty"].bool_or(false))
    facts.add("terminal", "yes");
  for (const auto& [name, value] : option_words(job["options"])) {
    // These have lines of their own in a job's description.
    if ((name == "checkpoint every" && job["checkpoint"].is_object()) ||
        (name == "array" && is_array(job)))
      continue;
    facts.add(name, value);
  }
}

void describe_role(Facts& facts, const Json& role) {
  const auto count = role["count"].int_or(1);
  const std::string needs = asked(role);
  std::string line =
      fmt::format("{}{}{}", role["name"].str_or("?"), count > 1 ? fmt::format(" × {}", count) : "",
                  needs.empty() ? "" : ", each " + needs);
  if (count == 1 && !needs.empty())
    line = fmt::format("{}: {}", role["name"].str_or("?"), needs);
  if (role["service"].bool_or(false))
    line += ", a service";
  if (const auto retries = role["retries"].int_or(0); retries > 0)
    line += fmt::format(", {} {}", retries, retries == 1 ? "retry" : "retries");
  facts.add("role", fmt::format("{} · {} · {}", line, role["command"].str_or(""),
                                role["cost"].str_or("-")));
  describe_surroundings(facts, role);
  std::string variables;
  for (const Json& name : role["variables"].items())
    variables += (variables.empty() ? "" : ", ") + std::string(name.str_or(""));
  facts.add("variables", variables);
  describe_options(facts, role);
}

// Who submitted it and what it requested.
void describe_request(Facts& facts, const Json& job) {
  facts.add("user",
            fmt::format("{}, project {}", job["user"].str_or("?"), job["project"].str_or("?")));
  facts.add("asked for", asked(job));
  for (const Json& role : job["roles"].items())
    describe_role(facts, role);
  if (const auto nodes = job["nodes"].int_or(1); nodes > 1)
    facts.add("nodes", fmt::format("{}", nodes));
  if (const auto s = job["time_limit_s"].int_or(0); s > 0)
    facts.add("time limit", format_duration(seconds(s)));
  if (const auto priority = job["priority"].int_or(0); priority != 0)
    facts.add("priority", fmt::format("{}", priority));
  if (const auto retries = job["retries"].int_or(0); retries > 0)
    facts.add("attempt", fmt::format("{} of {}", job["attempt"].int_or(0), retries + 1));
  for (const Json& after : job["after"].items())
    facts.add("after", fmt::format("{}:{}", after["kind"].str_or("ok"), after["job"].uint_or(0)));
  facts.add("labels", pairs(job["labels"]));
  describe_options(facts, job);
}

void describe_times_and_cost(Facts& facts, const Json& job, WallTime now) {
  facts.add("submitted", time_text(job["submitted_at"], now, "?"));
  facts.add("started", time_text(job["started_at"], now, ""));
  facts.add("ended", time_text(job["ended_at"], now, ""));
  facts.add("ran for", run_time(job, now));
  if (const auto s = job["suspended_s"].int_or(0); s > 0)
    facts.add("suspended", fmt::format("for {} in total, not included above", whole_seconds(s)));
  if (const Json& can = job["suspendable"]; can.is_object()) {
    const bool yes = can["can"].bool_or(false);
    facts.add("suspendable",
              yes ? std::string("yes") : fmt::format("no: {}", can["why"].str_or("")));
  }
  facts.add("cost",
            fmt::format("{}{}{}", job["cost"].str_or("-"),
                        job["rate"].str_or("").empty() ? "" : " at ", job["rate"].str_or("")));
}

}  // namespace

std::string describe_text(const Json& job, WallTime now, const Look& look) {
  Facts facts{look, {}};
  const std::string_view state = job["state"].str_or("?");
  facts.add("job", job["label"].str_or("?"), Colour::bold);
  if (!job["name"].str_or("").empty())
    facts.add("name", name_of(job));
  facts.add("state", state, colour_of_state(state));
  describe_progress(facts, job, now);
  const auto reason = job["reason"].str_or(""), exit = job.at("exit", "text").str_or("");
  facts.add("reason", reason);
  if (exit != reason)
    facts.add("exit", exit == "done" ? "exit code 0" : exit);
  if (is_array(job))
    facts.add("elements", fmt::format("{} ({})", progress_of(job), job["array_spec"].str_or("")));
  if (const auto array = job.at("array", "id").uint_or(0); array > 0)
    facts.add("array", fmt::format("{}, index {}", array, job.at("array", "index").uint_or(0)));
  describe_program(facts, job);
  describe_request(facts, job);
  describe_times_and_cost(facts, job, now);
  describe_tasks(facts, job);
  return facts.text;
}

}  // namespace billow::client
