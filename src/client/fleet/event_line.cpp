#include "client/fleet/event_line.h"

#include <fmt/format.h>

#include "base/money.h"
#include "base/relative_time.h"
#include "base/text.h"
#include "client/frame/table.h"

namespace billow::client {
namespace {

constexpr std::size_t text_columns_max = 160;

struct Reader {
  const Json& body;
  EventNames& names;

  static std::string named(const std::map<std::uint64_t, std::string>& known,
                           const Json& id,
                           const char* what) {
    const auto found = known.find(id.uint_or(0));
    return found == known.end() ? fmt::format("{} {}", what, id.uint_or(0)) : found->second;
  }
  std::string job() const { return fmt::format("job {}", body["job"].uint_or(0)); }
  std::string node() const { return named(names.nodes, body["node"], "node"); }
  std::string project(const Json& id) const { return named(names.projects, id, "project"); }
  std::string user(const Json& id) const { return named(names.users, id, "user"); }
  std::string task() const {
    const std::uint64_t id = body["task"].uint_or(0);
    const auto found = names.jobs.find(id);
    return found == names.jobs.end() ? fmt::format("task {}", id)
                                     : fmt::format("job {}", found->second);
  }
  std::string because(const char* member = "reason") const {
    const auto text = body[member].str_or("");
    return text.empty() ? std::string() : fmt::format(": {}", text);
  }
  std::string to_whom() const {
    const std::uint64_t other = body["for_job"].uint_or(0);
    return other ? fmt::format(", for job {}", other) : std::string();
  }
};

std::string rate_text(const Json& nano_per_s) {
  return format_rate_per_hour({nano_per_s.int_or(0)});
}
std::string exit_text(const Json& exit) {
  if (const auto signal = exit["signal"].int_or(0); signal > 0)
    return fmt::format(", by signal {}", signal);
  const auto code = exit["code"].int_or(0);
  return code ? fmt::format(", exit code {}", code) : std::string();
}

std::string submitted(Reader& r) {
  const Json& spec = r.body["spec"];
  const std::uint64_t first = r.body["first"].uint_or(0), count = r.body["count"].uint_or(1);
  std::vector<std::string> words;
  for (const Json& word : spec["argv"].items())
    words.emplace_back(word.str_or(""));
  std::string text = count > 1 ? fmt::format("job {} submitted, {} elements", first, count - 1)
                               : fmt::format("job {} submitted", first);
  if (const auto name = spec["name"].str_or(""); !name.empty())
    text += fmt::format(" ({})", name);
  return text + ": " + shell_join(words);
}

std::string placed(Reader& r) {
  std::map<std::uint64_t, std::size_t> gpus;
  std::int64_t rate = 0;
  for (const Json& task : r.body["tasks"].items()) {
    r.names.jobs[task["id"].uint_or(0)] = r.body["job"].uint_or(0);
    gpus[task["node"].uint_or(0)] += task["gpus"].items().size();
    rate = task["rate"].int_or(rate);
  }
  std::string where;
  std::size_t all = 0;
  for (const auto& [node, count] : gpus) {
    where += (where.empty() ? "" : ", ") + Reader::named(r.names.nodes, Json(node), "node");
    all += count;
  }
  std::string text = fmt::format("{} placed on {}", r.job(), where.empty() ? "a node" : where);
  if (all)
    text += fmt::format(", {} GPU{}", all, all == 1 ? "" : "s");
  if (rate)
    text += fmt::format(", {} each", format_rate_per_hour({rate}));
  return text;
}

std::string joined(Reader& r) {
  const Json& node = r.body["node"];
  const std::string name(node.at("offer", "name").str_or("?"));
  r.names.nodes[node["id"].uint_or(0)] = name;
  const std::size_t gpus = node.at("offer", "gpus").items().size();
  return fmt::format("{} joined with {} GPU{}", name, gpus, gpus == 1 ? "" : "s");
}

std::string head_started(Reader& r) {
  return fmt::format("the head started, version {}", r.body["version"].str_or("?"));
}

std::string user_added(Reader& r) {
  r.names.users[r.body.at("user", "id").uint_or(0)] =
      std::string(r.body.at("user", "name").str_or("?"));
  return fmt::format("user {} added, {}", r.body.at("user", "name").str_or("?"),
                     r.body.at("user", "role").str_or("member"));
}

std::string project_added(Reader& r) {
  r.names.projects[r.body.at("project", "id").uint_or(0)] =
      std::string(r.body.at("project", "name").str_or("?"));
  return fmt::format("project {} added", r.body.at("project", "name").str_or("?"));
}

std::string member_set(Reader& r) {
  const auto role = r.body["role"].str_or("");
  return role.empty() ? fmt::format("{} left project {}", r.body["user"].str_or("?"),
                                    r.project(r.body["project"]))
                      : fmt::format("{} is {} of project {}", r.body["user"].str_or("?"), role,
                                    r.project(r.body["project"]));
}

std::string token_created(Reader& r) {
  std::string text = fmt::format("token \"{}\" created, {}", r.body.at("token", "name").str_or("?"),
                                 r.body.at("token", "scope").str_or("full"));
  if (!r.body.at("token", "made_by").str_or("").empty())
    text += fmt::format(", for {}", r.user(r.body.at("token", "user")));
  return text;
}

std::string user_changed(Reader& r) {
  return fmt::format("user {} is {}, {}", r.user(r.body["user"]), r.body["role"].str_or("member"),
                     r.body["state"].str_or("active"));
}

std::string default_project_set(Reader& r) {
  return fmt::format("jobs of {} go to project {} by default", r.user(r.body["user"]),
                     r.project(r.body["project"]));
}

std::string token_bound(Reader& r) {
  return fmt::format("token {} speaks for node {}", r.body["token"].uint_or(0),
                     r.body["node"].str_or("none"));
}

std::string token_used(Reader& r) {
  return fmt::format("{} joined with token {}", r.body["node"].str_or("?"),
                     r.body["token"].uint_or(0));
}

std::string job_entered(Reader& r) {
  return fmt::format("{} entered {} by {} from {}", r.user(r.body["user"]), r.job(),
                     r.body["how"].str_or("?"), r.body["peer"].str_or("?"));
}

std::string access_denied(Reader& r) {
  const auto user = r.body["user"].str_or("");
  const std::uint64_t count = r.body["count"].uint_or(1);
  return fmt::format("refused: {} from {}{}{}: {}", r.body["what"].str_or("?"),
                     r.body["peer"].str_or("?"), user.empty() ? "" : fmt::format(" as {}", user),
                     count > 1 ? fmt::format(" ({} calls)", count) : "",
                     r.body["reason"].str_or("?"));
}

std::string token_revoked(Reader& r) {
  return fmt::format("token {} revoked", r.body["token"].uint_or(0));
}

std::string environment_stored(Reader& r) {
  return fmt::format("{} variables stored for the next job", r.body["env"].size());
}

std::string job_ready(Reader& r) {
  return r.job() + " can start now";
}

std::string dependency_met(Reader& r) {
  return fmt::format("{} no longer waits for job {}", r.job(), r.body["on"].uint_or(0));
}

std::string task_started(Reader& r) {
  return r.task() + " started";
}

std::string task_ended(Reader& r) {
  return fmt::format("{} ended{}, {}", r.task(), exit_text(r.body["exit"]),
                     usd_text(r.body["cost"]));
}

std::string job_stopping(Reader& r) {
  return fmt::format("{} is being stopped{}{}", r.job(), r.to_whom(), r.because());
}

std::string job_requeued(Reader& r) {
  return fmt::format("{} is back in the queue{}", r.job(), r.because());
}

std::string job_ended(Reader& r) {
  return fmt::format("{} {}{}{}", r.job(), r.body["state"].str_or("succeeded"),
                     exit_text(r.body["exit"]), r.because());
}

std::string job_held(Reader& r) {
  return fmt::format("{} is held{}", r.job(), r.because());
}

std::string job_suspending(Reader& r) {
  return fmt::format("{} is being suspended{}{}", r.job(), r.to_whom(), r.because());
}

std::string suspension_changed(Reader& r) {
  return fmt::format("{} {}{}", r.job(),
                     r.body["resume_wanted"].bool_or(false) ? "resumes as soon as its GPUs are free"
                                                            : "stays suspended",
                     r.because());
}

std::string task_suspended(Reader& r) {
  return fmt::format("{} suspended, {} kept", r.task(), mebibytes(r.body["ram_mib"].int_or(0)));
}

std::string suspend_failed(Reader& r) {
  return fmt::format("{} could not be suspended{}", r.body["job"].uint_or(0) ? r.job() : r.task(),
                     r.because());
}

std::string job_resuming(Reader& r) {
  return r.job() + " resumes";
}

std::string task_resumed(Reader& r) {
  return r.task() + " continues";
}

std::string job_checkpointed(Reader& r) {
  return fmt::format("{} has a checkpoint in {}", r.job(),
                     r.body.at("checkpoint", "path").str_or("?"));
}

std::string member_replaced(Reader& r) {
  return r.job() + " gets a new member for a lost one";
}

// Presets of a project are kept among the head's own secrets: "preset.PROJECT.NAME".
std::string secret_sentence(Reader& r, const Json& project, std::string_view name, bool set) {
  constexpr std::string_view preset = "preset.";
  const auto dot = name.find('.', preset.size());
  if (project.uint_or(0) != 0 || !name.starts_with(preset) || dot == std::string_view::npos)
    return fmt::format("secret {}{} was {}", name,
                       project.uint_or(0) ? " of project " + r.project(project) : std::string(),
                       set ? "set" : "removed");
  const auto owner = parse_int(name.substr(preset.size(), dot - preset.size()), 1, INT64_MAX);
  return fmt::format("preset {} of project {} was {}", name.substr(dot + 1),
                     owner ? r.project(Json(*owner)) : "?", set ? "saved" : "removed");
}
std::string secret_set(Reader& r) {
  const Json& secret = r.body["secret"];
  return secret_sentence(r, secret["project"], secret["name"].str_or("?"), true);
}
std::string secret_removed(Reader& r) {
  return secret_sentence(r, r.body["project"], r.body["name"].str_or("?"), false);
}

std::string members_restarting(Reader& r) {
  const std::size_t n = r.body["tasks"].items().size();
  return fmt::format("{} member{} of {} restart{}{}", n, n == 1 ? "" : "s", r.job(),
                     n == 1 ? "s" : "", r.because());
}

std::string node_offer_changed(Reader& r) {
  return r.node() + " changed what it offers";
}

std::string node_reachable(Reader& r) {
  return r.node() + " answers again";
}

std::string node_unreachable(Reader& r) {
  return r.node() + " does not answer";
}

std::string node_drained(Reader& r) {
  return r.body["reason"].str_or("").empty()
             ? r.node() + " takes jobs again"
             : fmt::format("{} takes no new jobs{}", r.node(), r.because());
}

std::string gpu_drained(Reader& r) {
  return fmt::format("GPU {} of {} {}{}", r.body["gpu"].int_or(0), r.node(),
                     r.body["reason"].str_or("").empty() ? "takes jobs again" : "takes no new jobs",
                     r.because());
}

std::string node_removed(Reader& r) {
  return r.node() + " was removed";
}

std::string node_released(Reader& r) {
  return fmt::format("{} was released{}", r.node(), r.because());
}

std::string node_price_set(Reader& r) {
  return fmt::format("{} costs {}", r.node(), rate_text(r.body["rate"]));
}

std::string meter_marked(Reader& r) {
  const std::size_t n = r.body["marks"].items().size();
  return fmt::format("{} reported the usage of {} task{}", r.node(), n, n == 1 ? "" : "s");
}

std::string idle_warned(Reader& r) {
  return fmt::format("{}: {}", r.job(), r.body["text"].str_or("idle"));
}

std::string idle_acted(Reader& r) {
  return fmt::format("{} ({}): {}", r.job(), r.body["action"].str_or("?"),
                     r.body["text"].str_or("idle"));
}

std::string kept_alive(Reader& r) {
  return fmt::format("{} is exempt from the idle rules for {}{}", r.job(),
                     format_duration(Duration{r.body["lasts_ns"].int_or(0)}), r.because());
}

std::string budget_warned(Reader& r) {
  return std::string(r.body["text"].str_or("a budget is nearly spent"));
}

std::string day_closed(Reader& r) {
  return fmt::format("closed the day: {} charged, the nodes cost {}", usd_text(r.body["charge"]),
                     usd_text(r.body["fleet"]));
}

std::string month_closed(Reader& r) {
  return fmt::format("closed {}: {} charged", r.body["month"].str_or("?"),
                     usd_text(r.body["charge"]));
}

std::string machine_wanted(Reader& r) {
  return fmt::format("requested machine {}{}",
                     r.body["machine"].is_object() ? r.body.at("machine", "name").str_or("?")
                                                   : r.body["machine"].str_or("?"),
                     r.because("why"));
}

std::string machine_gone(Reader& r) {
  return fmt::format("machine {} is gone{}",
                     r.body["machine"].is_string()
                         ? std::string(r.body["machine"].str_or(""))
                         : fmt::format("{}", r.body["machine"].uint_or(0)),
                     r.because());
}

using Sentence = std::string (*)(Reader&);

// The sentence for each kind of event.
const std::map<std::string_view, Sentence>& sentences() {
  static const std::map<std::string_view, Sentence> all = {
      {"head_started", head_started},
      {"user_added", user_added},
      {"project_added", project_added},
      {"member_set", member_set},
      {"token_created", token_created},
      {"token_revoked", token_revoked},
      {"user_changed", user_changed},
      {"token_bound", token_bound},
      {"token_used", token_used},
      {"default_project_set", default_project_set},
      {"job_entered", job_entered},
      {"access_denied", access_denied},
      {"environment_stored", environment_stored},
      {"jobs_submitted", submitted},
      {"job_ready", job_ready},
      {"dependency_met", dependency_met},
      {"job_placed", placed},
      {"task_started", task_started},
      {"task_ended", task_ended},
      {"job_stopping", job_stopping},
      {"job_requeued", job_requeued},
      {"job_ended", job_ended},
      {"job_held", job_held},
      {"job_suspending", job_suspending},
      {"suspension_changed", suspension_changed},
      {"task_suspended", task_suspended},
      {"suspend_failed", suspend_failed},
      {"job_resuming", job_resuming},
      {"task_resumed", task_resumed},
      {"job_checkpointed", job_checkpointed},
      {"member_replaced", member_replaced},
      {"secret_set", secret_set},
      {"secret_removed", secret_removed},
      {"members_restarting", members_restarting},
      {"node_joined", joined},
      {"node_offer_changed", node_offer_changed},
      {"node_reachable", node_reachable},
      {"node_unreachable", node_unreachable},
      {"node_drained", node_drained},
      {"gpu_drained", gpu_drained},
      {"node_removed", node_removed},
      {"node_released", node_released},
      {"node_price_set", node_price_set},
      {"meter_marked", meter_marked},
      {"idle_warned", idle_warned},
      {"idle_acted", idle_acted},
      {"kept_alive", kept_alive},
      {"budget_warned", budget_warned},
      {"day_closed", day_closed},
      {"month_closed", month_closed},
      {"machine_wanted", machine_wanted},
      {"machine_gone", machine_gone},
  };
  return all;
}

// An event without its own sentence: the words of its kind, then its fields, with names in place of
// numbers where they are known.
std::string plain(Reader& r, std::string_view kind) {
  std::string text(kind);
  for (char& c : text)
    if (c == '_')
      c = ' ';
  std::string more;
  for (const auto& [name, value] : r.body.members()) {
    std::string shown;
    if (name.ends_with("_ns") || name == "idempotency_key" || name == "digest")
      continue;
    if (name == "node" && value.is_integer())
      shown = r.node();
    else if (name == "project" && value.is_integer())
      shown = r.project(value);
    else if (name == "user" && value.is_integer())
      shown = Reader::named(r.names.users, value, "user");
    else if (value.is_string())
      shown = std::string(value.str_or(""));
    else if (value.is_object() && !value["name"].str_or("").empty())
      shown = std::string(value["name"].str_or(""));
    else if (value.is_array())
      shown = fmt::format("{} {}", value.items().size(), name);
    else if (value.is_number() || value.is_bool())
      shown = fmt::format("{} {}", name, value.dump());
    if (!shown.empty())
      more += (more.empty() ? ": " : ", ") + shown;
  }
  return text + more;
}

}  // namespace

EventNames names_for_events(Client& client) {
  EventNames out;
  const auto learn = [&](const char* path, const char* list,
                         std::map<std::uint64_t, std::string>& into) {
    const auto answer = client.get(path);
    if (!answer)
      return;  // numbers will do
    for (const Json& one : answer->is_array() ? answer->items() : (*answer)[list].items())
      into[one["id"].uint_or(0)] = std::string(one["name"].str_or("?"));
  };
  learn("/v1/nodes", "nodes", out.nodes);
  learn("/v1/users", "users", out.users);
  learn("/v1/projects", "projects", out.projects);
  return out;
}

std::string event_text(const Json& event, EventNames& names) {
  const auto kind = event["kind"].str_or("?");
  Reader reader{event["event"], names};
  const auto found = sentences().find(kind);
  return printable(found == sentences().end() ? plain(reader, kind) : found->second(reader));
}

std::string event_line(const Json& event, EventNames& names, WallTime now) {
  const WallTime at = event["at"].is_string() ? parse_utc(event["at"].as_string())
                                              : WallTime{event["at"].int_or(0)};
  const std::string when =
      at ? fmt::format("{} ago, {}", rough_duration(now - at), clock_or_date(at, now)) : "-";
  std::string who(event["actor"].str_or("-"));
  for (const std::string_view kind : {"user:", "node:"})
    if (who.starts_with(kind))
      who.erase(0, kind.size());
  return fmt::format("{:>6}  {:>25}  {:<10}  {}", event["seq"].uint_or(0), when, printable(who),
                     clipped(event_text(event, names), text_columns_max));
}

}  // namespace billow::client
