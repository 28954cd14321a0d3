// Serverless endpoints on the command line.
#include <fmt/format.h>
#include <unistd.h>

#include "base/text.h"
#include "client/endpoints/endpoints.h"
#include "client/frame/commands.h"
#include "client/frame/console.h"
#include "client/frame/progress.h"
#include "client/frame/table.h"
#include "client/request/environments.h"
#include "client/request/job_list.h"
#include "client/request/job_request.h"
#include "client/request/sync.h"
#include "core/model/endpoint.h"
#include "core/model/objective.h"
#include "core/wire/codec.h"

namespace billow::client {
namespace {

constexpr OptionSpec deploy_options[] = {
    {"min", 0, "N", "replicas always awake (0)"},
    {"max", 0, "N", "replicas at most (1)"},
    {"concurrency", 0, "N", "requests at once for one replica (8); 0: no limit"},
    {"timeout", 0, "TIME", "from a request to its answer's first byte, waking included (60s)"},
    {"idle", 0, "TIME", "until the last replica sleeps (2m)"},
    {"keep", 0, "suspended=TIME",
     "how long a sleeping replica stays in memory before it is stopped (suspended=1h); "
     "suspended=0: stop, never sleep"},
    {"slo", 0, "TIME",
     "how soon the first byte should come; two thirds of it is what a request may be held (750ms)"},
    {"health", 0, "PATH", "answers 2xx when a replica can serve; without it any answer will do"},
    {"start-timeout", 0, "TIME", "until a started replica must be healthy (10m)"},
    {"regions", 0, "A,B",
     "replicas in each of these regions, by the demand at its gateway; --min and --max hold in "
     "each"},
    {"base-on-demand", 0, "N", "with --spot: so many replicas always on, and not on spot"},
    {"queue", 0, "N", "requests held at most; more get 429 (1000)"},
    {"access", 0, "WHO",
     "local: this machine's clients, others with a key; key: with a key only; open: everybody",
     false, Completes::choice, "local,key,open"},
    {"cors", 0, "ORIGIN", "pages of this site may call it; * for all; may be given several times",
     true},
    {"webhook", 0, "URL", "told when an asynchronous call is over"},
    {"no-wait", 0, nullptr, "return at once, not when it serves"},
    {"quiet", 'q', nullptr, "say nothing while it waits"},
};
constexpr OptionSpec scale_options[] = {
    {"min", 0, "N", "replicas always awake"},
    {"max", 0, "N", "replicas at most"},
    {"concurrency", 0, "N", "requests at once for one replica"},
};
constexpr OptionSpec rollback_options[] = {
    {"to", 0, "REVISION", "which one (the last that served before)"},
    {"quiet", 'q', nullptr, "say nothing while it waits"}};
constexpr OptionSpec key_options[] = {{"name", 0, "NAME", "what to call it (default)"},
                                      {"remove", 0, nullptr, "remove the key of that name"}};

Status read_policy(const Parsed& parsed, EndpointPolicy& p) {
  const auto number = [&](const char* name, std::uint32_t& into) -> Status {
    if (!parsed.has(name))
      return {};
    const auto value = parse_int(parsed.get(name), 0, 1'000'000);
    if (!value)
      return pass(Error(value.error()).in(std::string("--") + name));
    into = static_cast<std::uint32_t>(*value);
    return {};
  };
  const auto time = [&](const char* name, Duration& into, std::string text) -> Status {
    if (text.empty())
      return {};
    const auto value = parse_duration(text);
    if (!value)
      return pass(Error(value.error()).in(std::string("--") + name));
    into = *value;
    return {};
  };
  BILLOW_TRY_VOID(number("min", p.min));
  p.max = std::max(p.min, p.max);
  BILLOW_TRY_VOID(number("max", p.max));
  BILLOW_TRY_VOID(number("concurrency", p.concurrency));
  BILLOW_TRY_VOID(number("base-on-demand", p.base_on_demand));
  BILLOW_TRY_VOID(number("queue", p.queue_max));
  BILLOW_TRY_VOID(time("timeout", p.timeout, parsed.get("timeout")));
  BILLOW_TRY_VOID(time("idle", p.idle, parsed.get("idle")));
  BILLOW_TRY_VOID(time("start-timeout", p.start_timeout, parsed.get("start-timeout")));
  if (parsed.has("keep")) {
    std::string keep = parsed.get("keep");
    if (!keep.starts_with("suspended="))
      return fail(Code::invalid, fmt::format("--keep {}: not understood", keep),
                  "write --keep suspended=1h");
    BILLOW_TRY_VOID(time("keep", p.keep_suspended, keep.substr(10)));
  }
  if (parsed.has("slo")) {
    Duration slo;
    BILLOW_TRY_VOID(time("slo", slo, parsed.get("slo")));
    p.wait_target = wait_target_of(slo);
  }
  if (parsed.has("health"))
    p.health = parsed.get("health");
  if (parsed.has("cors"))
    p.cors = parsed.all("cors");
  if (parsed.has("webhook"))
    p.webhook = parsed.get("webhook");
  if (parsed.has("access")) {
    const auto access = enum_value<EndpointAccess>(parsed.get("access"));
    if (!access)
      return fail(Code::invalid, "--access is local, key or open");
    p.access = *access;
  }
  return {};
}

// A new revision of an endpoint that exists keeps how it scales and whom it serves where that is
// not said again: an endpoint behind a key must not come to be open because somebody shipped a new
// version. What was kept is told.
std::string kept_options(const Parsed& parsed, const EndpointPolicy& p) {
  const EndpointPolicy fresh;
  std::vector<std::string> kept;
  const auto keep = [&](const char* option, bool differs, const std::string& value) {
    if (differs && !parsed.has(option))
      kept.push_back(fmt::format("--{} {}", option, value));
  };
  keep("access", p.access != fresh.access, std::string(enum_name(p.access)));
  keep("min", p.min != fresh.min, std::to_string(p.min));
  keep("max", p.max != fresh.max, std::to_string(p.max));
  keep("concurrency", p.concurrency != fresh.concurrency, std::to_string(p.concurrency));
  keep("timeout", p.timeout != fresh.timeout, format_duration(p.timeout));
  keep("idle", p.idle != fresh.idle, format_duration(p.idle));
  keep("keep", p.keep_suspended != fresh.keep_suspended,
       "suspended=" + format_duration(p.keep_suspended));
  keep("slo", p.wait_target != fresh.wait_target, format_duration(objective_of(p.wait_target)));
  keep("start-timeout", p.start_timeout != fresh.start_timeout, format_duration(p.start_timeout));
  keep("base-on-demand", p.base_on_demand != fresh.base_on_demand,
       std::to_string(p.base_on_demand));
  keep("health", p.health != fresh.health, p.health);
  keep("queue", p.queue_max != fresh.queue_max, std::to_string(p.queue_max));
  keep("cors", p.cors != fresh.cors, join(p.cors, ", --cors "));
  keep("webhook", p.webhook != fresh.webhook, p.webhook);
  return join(kept, ", ");
}

std::string url_of(const Json& e) {
  const auto& urls = e["urls"].items();
  return urls.empty() ? std::string() : std::string(urls.front().str_or(""));
}

// What a revision that does not serve yet is waiting for.
std::string awaited(const Json& e) {
  if (const auto why = e["waiting"].str_or(""); !why.empty())
    return fmt::format("a replica waits: {}", printable(why));
  if (url_of(e).empty())
    return "the gateway is starting";
  if (e["replicas"].items().empty())
    return "its replica is being started";
  return "its replica is not healthy yet";
}

// Until the revision serves, or has failed. Who waits is told for what: at a terminal in a line
// that changes, elsewhere once for each reason that lasts.
int await_revision(
    Client& client, const std::string& name, std::uint64_t revision, bool json, bool quiet) {
  std::optional<Progress> progress;
  if (!quiet && ::isatty(STDERR_FILENO))
    progress.emplace(name, ProgressUnit::things);
  constexpr Duration patience = seconds(2);
  const SteadyTime begun = system_clock().steady();
  std::string told;
  for (;;) {
    auto e = client.get("/v1/endpoints/" + net::percent_encode(name));
    if (!e && !is_away(e.error()))
      return report(e.error());
    if (e) {
      for (const Json& r : (*e)["revisions"].items()) {
        if (r["number"].uint_or(0) != revision)
          continue;
        const auto state = r["state"].str_or("");
        if (state == "failed" || state == "serving" || state == "retired")
          progress.reset();
        if (state == "failed") {
          // The log of the one that failed: the endpoint's name stands for a replica that serves.
          const std::uint64_t job = r["failed_job"].uint_or(0);
          const std::string look = job != 0 ? fmt::format("see `billow logs {}`", job)
                                            : fmt::format("see `billow describe {}`", name);
          return report({Code::conflict,
                         fmt::format("revision {} of {} did not become healthy: {}", revision, name,
                                     printable(r["reason"].str_or(""))),
                         (*e)["revision"].uint_or(0) != 0
                             ? fmt::format("revision {} goes on serving; {}",
                                           (*e)["revision"].uint_or(0), look)
                             : look});
        }
        if ((state == "serving" || state == "retired") && !url_of(*e).empty()) {
          if (json)
            print_json(*e);
          else
            print(fmt::format("{} serves: {} (revision {})\n", name, url_of(*e), revision));
          return 0;
        }
      }
      const std::string why = awaited(*e);
      if (progress)
        progress->update(0, 0, why);
      else if (!quiet && why != told && !(*e)["waiting"].str_or("").empty() &&
               system_clock().steady() - begun > patience) {
        told = why;
        say(fmt::format("{}: {}; see `billow explain {}`", name, why, name));
      }
    } else {
      (void)client.find_again();
    }
    ::usleep(20'000);
  }
}

int cmd_deploy(const Parsed& parsed) {
  JobRequest request;
  if (parsed.operands.size() < 2)
    return report_usage(
        {Code::invalid, "deploy what, and as what?",
         "billow deploy hello --gpus 0.5 -- python serve.py   (the command listens on $PORT)"});
  const std::string name = parsed.operands.front();
  request.spec.argv.assign(parsed.operands.begin() + 1, parsed.operands.end());
  if (request.spec.argv.front() == "--")
    request.spec.argv.erase(request.spec.argv.begin());
  if (request.spec.argv.empty())
    return report_usage(
        {Code::invalid, "no command to serve with", "billow deploy hello -- python serve.py"});
  if (auto set = set_options(request, parsed); !set)
    return report_usage(set.error());
  if (parsed.has("regions"))
    if (auto set = set_option(request, "region", parsed.get("regions")); !set)
      return report_usage(set.error());
  if (!request.reservation.empty())
    return report_usage(
        {Code::invalid,
         "an endpoint outlives a reservation, and its replicas would not start again after it",
         "leave --reservation out"});
  if (request.spec.time_limit.ns > 0)
    return report_usage(
        {Code::invalid, "an endpoint has no end, so --time means nothing to it",
         "leave it out; --timeout limits a request, --idle and --keep a replica without any"});
  if (!request.after.empty() || !request.cron.empty())
    return report_usage(
        {Code::invalid,
         "an endpoint waits for no job and has no schedule: it serves from when it is deployed",
         "leave --after and --cron out"});
  if (!request.outputs.empty() || !request.spec.surroundings.outputs.empty())
    return report_usage({Code::invalid, "an endpoint has no end at which outputs could be kept",
                         "let it write to a volume: --volume NAME:/mnt/NAME"});
  EndpointPolicy policy;
  if (auto read = read_policy(parsed, policy); !read)
    return report_usage(read.error());
  if (auto done = complete(request); !done)
    return report_usage(done.error());
  auto client = connect(parsed, true);
  if (!client)
    return report(client.error());
  if (const auto before = client->get("/v1/endpoints/" + net::percent_encode(name));
      before && (*before)["policy"].is_object()) {
    auto kept = wire::from_json_text<EndpointPolicy>((*before)["policy"].dump());
    if (!kept)
      return report(kept.error());
    policy = std::move(*kept);
    if (auto read = read_policy(parsed, policy); !read)
      return report_usage(read.error());
    if (const std::string text = kept_options(parsed, policy);
        !text.empty() && !parsed.has("quiet"))
      say(fmt::format("{} keeps {}", name, printable(text)));
  }
  policy.spot = request.spec.spot;
  request.spec.spot = false;
  if (auto ready = prepare_environment(*client, request); !ready)
    return report(ready.error());
  auto env = job_environment(own_environment(), request.env);
  if (!env)
    return report_usage(env.error());
  // The head keeps what an endpoint's revisions came with as long as there are any.
  if (request.sync == Sync::yes || !request.spec.surroundings.inputs.empty())
    if (const Status synced = sync_for_job(*client, request, parsed.has("quiet"), *env); !synced)
      return report(synced.error());
  std::string body = "{\"name\":";
  append_json_string(body, name);
  body += ",\"policy\":" + wire::to_json_text(policy) + "," + submit_body(request, *env).substr(1);
  auto made = client->post("/v1/endpoints", body);
  if (!made)
    return report(made.error());
  const std::uint64_t revision = (*made)["rolling"].uint_or(0);
  if (parsed.has("no-wait")) {
    if (parsed.has("json"))
      print_json(*made);
    else
      print(fmt::format("{}: revision {} is being brought up\n", name, revision));
    return 0;
  }
  return await_revision(*client, name, revision, parsed.has("json"), parsed.has("quiet"));
}

std::string micros(const Json& us) {
  const auto n = us.int_or(0);
  return n == 0          ? "-"
         : n < 1'000'000 ? fmt::format("{:.1f} ms", static_cast<double>(n) / 1000)
                         : fmt::format("{:.2f} s", static_cast<double>(n) / 1e6);
}

void show_endpoint(const Json& e) {
  const Json& f = e["figures"];
  std::string text =
      fmt::format("{}  {}\n", printable(e["name"].str_or("?")), e["status"].str_or("?"));
  text += fmt::format("   address  {}\n   command  {}\n  revision  {}{}\n",
                      url_of(e).empty() ? "(the gateway is starting)" : url_of(e),
                      printable(e["command"].str_or("-")), e["revision"].uint_or(0),
                      e["rolling"].uint_or(0)
                          ? fmt::format(", {} is being brought up", e["rolling"].uint_or(0))
                          : "");
  text += fmt::format("  replicas  {} ready, {} asleep, {} coming ({} to {})\n",
                      f["ready"].uint_or(0), f["sleeping"].uint_or(0), f["coming"].uint_or(0),
                      e["min"].uint_or(0), e["max"].uint_or(0));
  text += fmt::format("    access  {}\n", e["access"].str_or("?"));
  text += fmt::format("  requests  {} ({} failed, {} refused, {} held now, {} in flight)\n",
                      f["requests"].uint_or(0), f["failed"].uint_or(0), f["refused"].uint_or(0),
                      f["held"].uint_or(0), f["in_flight"].uint_or(0));
  text += fmt::format("first byte  p50 {}, p99 {}; waking takes {}; {} cold starts, {} wakes\n",
                      micros(f["first_byte_p50_us"]), micros(f["first_byte_p99_us"]),
                      micros(f["wake_us"]), f["cold_starts"].uint_or(0), f["wakes"].uint_or(0));
  text += fmt::format(
      "      cost  ${:.4f}{}{}\n", e["cost_usd"].double_or(0),
      e["usd_per_request"].is_number()
          ? fmt::format(", ${:.6f} a request", e["usd_per_request"].double_or(0))
          : "",
      e["usd_per_1000_tokens"].is_number()
          ? fmt::format(", ${:.6f} for 1,000 tokens", e["usd_per_1000_tokens"].double_or(0))
          : "");
  if (const auto why = e["last_failure"].str_or(""); !why.empty())
    text += fmt::format("   failure  {}\n", printable(why));
  for (const Json& r : e["replicas"].items())
    text += fmt::format(
        "   replica  job {}, revision {}, {}{}{}{}\n", r["job"].uint_or(0),
        r["revision"].uint_or(0), r["task_state"].str_or(r["state"].str_or("?")),
        r["spot"].bool_or(false) ? ", spot" : "",
        r["node"].str_or("").empty() ? "" : fmt::format(", on {}", printable(r["node"].str_or(""))),
        r["waits"].bool_or(false) && !r["reason"].str_or("").empty()
            ? fmt::format(": {}", printable(r["reason"].str_or("")))
            : "");
  for (const Json& r : e["revisions"].items())
    text += fmt::format(
        "  revision  {} {}  {}  {}{}\n", r["number"].uint_or(0), r["state"].str_or("?"),
        r["made_at"].str_or(""), printable(r["command"].str_or("")),
        r["reason"].str_or("").empty() ? ""
                                       : fmt::format("  ({})", printable(r["reason"].str_or(""))));
  for (const Json& k : e["keys"].items())
    text += fmt::format("       key  {}  {}\n", printable(k["name"].str_or("?")),
                        k["made_at"].str_or(""));
  print(text);
}

int cmd_endpoints(const Parsed& parsed) {
  if (parsed.operands.size() > 1)
    return report_usage(
        {Code::invalid, "endpoints takes one name at most", "billow endpoints hello"});
  if (!parsed.operands.empty())
    return describe_endpoint(parsed, parsed.operands[0]);
  auto client = connect(parsed);
  if (!client)
    return report(client.error());
  auto all = client->get("/v1/endpoints");
  if (!all)
    return report(all.error());
  if (parsed.has("json")) {
    print_json(*all);
    return 0;
  }
  using Align = Table::Align;
  Table table({{"ENDPOINT", Align::left, 10},
               {"STATUS"},
               {"REV", Align::right, 0, 2},
               {"READY", Align::right},
               {"ASLEEP", Align::right, 0, 4},
               {"MAX", Align::right, 0, 3},
               {"REQUESTS", Align::right},
               {"FIRST BYTE", Align::right, 0, 1},
               {"COST", Align::right, 0, 5},
               {"ADDRESS"}});
  for (const Json& e : (*all)["endpoints"].items()) {
    const Json& f = e["figures"];
    table.row({std::string(e["name"].str_or("?")), std::string(e["status"].str_or("?")),
               fmt::format("{}", e["revision"].uint_or(0)),
               fmt::format("{}", f["ready"].uint_or(0)),
               fmt::format("{}", f["sleeping"].uint_or(0)), fmt::format("{}", e["max"].uint_or(0)),
               fmt::format("{}", f["requests"].uint_or(0)), micros(f["first_byte_p50_us"]),
               fmt::format("${:.4f}", e["cost_usd"].double_or(0)), url_of(e)});
  }
  if (table.empty())
    say("no endpoint is deployed; begin with: billow deploy hello -- sh -c 'exec python3 -m "
        "http.server $PORT'");
  else
    print(table.text(look_at(STDOUT_FILENO)));
  return 0;
}

int change(const Parsed& parsed,
           const char* verb,
           const std::string& path,
           const Json& body,
           const std::function<std::string(const Json&)>& told) {
  const auto name = one_operand(parsed, verb, "endpoint");
  if (!name)
    return report_usage(name.error());
  if (const Status named = check_name("endpoint", *name); !named)
    return report_usage(named.error());
  auto client = connect(parsed);
  if (!client)
    return report(client.error());
  const std::string target = "/v1/endpoints/" + net::percent_encode(*name) + path;
  auto done =
      std::string_view(verb) == "delete" ? client->del(target) : client->post(target, body.dump());
  if (!done)
    return report(done.error());
  if (parsed.has("json"))
    print_json(*done);
  else
    print(told(*done));
  return 0;
}

int cmd_scale(const Parsed& parsed) {
  Json body = Json::object();
  for (const char* what : {"min", "max", "concurrency"}) {
    if (!parsed.has(what))
      continue;
    const auto value = parse_int(parsed.get(what), 0, 1'000'000);
    if (!value)
      return report_usage(Error(value.error()).in(std::string("--") + what));
    body.set(what, *value);
  }
  if (body.members().empty())
    return report_usage({Code::invalid, "scale to what?", "billow scale hello --min 1 --max 8"});
  return change(parsed, "scale", "/scale", body, [&](const Json& now) {
    const auto limit = now["concurrency"].uint_or(0);
    return fmt::format(
        "{}{}: {} to {} replicas, {}\n", parsed.operands[0],
        now["changed"].bool_or(true) ? "" : " is as it was", now["min"].uint_or(0),
        now["max"].uint_or(0),
        limit == 0 ? "any number of requests at once for each"
                   : fmt::format("{} request{} at once for each", limit, limit == 1 ? "" : "s"));
  });
}

int cmd_rollback(const Parsed& parsed) {
  Json body = Json::object();
  if (parsed.has("to")) {
    const auto to = parse_int(parsed.get("to"), 1, UINT32_MAX);
    if (!to)
      return report_usage(Error(to.error()).in("--to"));
    body.set("revision", *to);
  }
  const auto name = one_operand(parsed, "rollback", "endpoint");
  if (!name)
    return report_usage(name.error());
  auto client = connect(parsed);
  if (!client)
    return report(client.error());
  auto done =
      client->post("/v1/endpoints/" + net::percent_encode(*name) + "/rollback", body.dump());
  if (!done)
    return report(done.error());
  return await_revision(*client, *name, (*done)["revision"].uint_or(0), parsed.has("json"),
                        parsed.has("quiet"));
}

int cmd_delete(const Parsed& parsed) {
  return change(parsed, "delete", "", Json::object(), [&](const Json&) {
    return fmt::format("{} is deleted; its replicas end\n", parsed.operands[0]);
  });
}

int cmd_key(const Parsed& parsed) {
  const std::string key = parsed.get("name", "default");
  if (!parsed.has("remove"))
    return change(parsed, "endpoint-key", "/keys", Json::object({{"name", key}}),
                  [&](const Json& made) { return fmt::format("{}\n", made["key"].str_or("?")); });
  const auto name = one_operand(parsed, "endpoint-key", "endpoint");
  if (!name)
    return report_usage(name.error());
  auto client = connect(parsed);
  if (!client)
    return report(client.error());
  auto done = client->del("/v1/endpoints/" + net::percent_encode(*name) + "/keys/" +
                          net::percent_encode(key));
  if (!done)
    return report(done.error());
  print(fmt::format("the key {} of {} is removed\n", key, *name));
  return 0;
}

}  // namespace

bool is_endpoint(Client& client, const std::string& name) {
  return !check_job_label(name) && check_name("endpoint", name) &&
         client.get("/v1/endpoints/" + net::percent_encode(name)).has_value();
}

Status not_of_deleted_endpoint(Client& client, const std::string& word, const std::string& job) {
  if (check_job_label(word))
    return {};
  const auto replica = client.get(path_of_job(job));
  if (!replica || (*replica).at("labels", label_endpoint).str_or("") != word)
    return {};
  return fail(
      Code::not_found, fmt::format("there is no endpoint {} any more", word),
      fmt::format("it was deleted; its last replica was job {}: `billow describe {}`", job, job));
}

int describe_endpoint(const Parsed& parsed, const std::string& name) {
  auto client = connect(parsed);
  if (!client)
    return report(client.error());
  auto e = client->get("/v1/endpoints/" + net::percent_encode(name));
  if (!e)
    return report(e.error());
  if (parsed.has("json"))
    print_json(*e);
  else
    show_endpoint(*e);
  return 0;
}

int explain_endpoint(const Parsed& parsed, const std::string& name) {
  auto client = connect(parsed);
  if (!client)
    return report(client.error());
  auto why = client->get("/v1/endpoints/" + net::percent_encode(name) + "/explain");
  if (!why)
    return report(why.error());
  if (parsed.has("json")) {
    print_json(*why);
    return 0;
  }
  const Json& e = *why;
  std::string text =
      fmt::format("endpoint {} is {}: {} ready, {} asleep, {} coming, of at most {}\n", name,
                  e["status"].str_or("?"), e["ready"].uint_or(0), e["sleeping"].uint_or(0),
                  e["coming"].uint_or(0), e["max"].uint_or(0));
  text += explanation_text(e);
  for (const Json& r : e["replicas"].items())
    text += fmt::format("replica (job {}, revision {}) is {}\n{}", r["id"].uint_or(0),
                        r["revision"].uint_or(0), r["state"].str_or("?"), explanation_text(r));
  if (e["reasons"].items().empty() && e["replicas"].items().empty())
    text += "  nothing holds it back\n";
  print(text);
  return 0;
}

Result<std::string> replica_to_read(Client& client, const std::string& name) {
  const Json e = BILLOW_TRY(client.get("/v1/endpoints/" + net::percent_encode(name)));
  std::uint64_t job = 0;
  for (const Json& r : e["replicas"].items())
    job = std::max(job, r["job"].uint_or(0));
  if (job == 0)
    job = e["failed_job"].uint_or(0);  // of one that failed its last words matter most
  if (job == 0)
    return fail(Code::not_found, fmt::format("endpoint {} has no replica just now", name),
                "call it, and it will have one");
  return fmt::format("{}", job);
}

void add_endpoint_commands(CommandTable& table) {
  constexpr const char* group = "endpoints";
  table.push_back(
      {.name = "deploy",
       .summary = "serve a command as an HTTP endpoint that scales with its requests, and to zero",
       .example = "billow deploy hello -- sh -c 'exec python3 -m http.server $PORT'\nbillow deploy "
                  "llm --gpus 1 --max 4 --health /health --slo 2s -- sh -c 'exec vllm serve MODEL "
                  "--port $PORT'",
       .run = cmd_deploy,
       .usage = "NAME [--] COMMAND [ARG…]",
       .details = "The command listens on $PORT. Deploying again brings up a new revision beside "
                  "the old one; it takes over when it is healthy, and no\n"
                  "request fails. Without requests replicas are suspended: they keep their memory, "
                  "give back their GPUs, and are back within a second.",
       .options = {deploy_options, job_options()},
       .operands = Operands::some,
       .group = group});
  table.push_back({.name = "endpoints",
                   .summary = "what is served, at which address, and how it does",
                   .example = "billow endpoints\nbillow endpoints hello",
                   .run = cmd_endpoints,
                   .usage = "[NAME]",
                   .operands = Operands::some,
                   .group = group});
  table.push_back({.name = "scale",
                   .summary = "change how many replicas an endpoint may have",
                   .example = "billow scale hello --min 1 --max 8",
                   .run = cmd_scale,
                   .usage = "NAME",
                   .options = {scale_options},
                   .operands = Operands::some,
                   .group = group});
  table.push_back({.name = "rollback",
                   .summary = "serve an earlier revision again",
                   .example = "billow rollback hello\nbillow rollback hello --to 3",
                   .run = cmd_rollback,
                   .usage = "NAME",
                   .options = {rollback_options},
                   .operands = Operands::some,
                   .group = group});
  table.push_back({.name = "delete",
                   .summary = "end an endpoint and its replicas",
                   .example = "billow delete hello",
                   .run = cmd_delete,
                   .usage = "NAME",
                   .operands = Operands::some,
                   .group = group});
  table.push_back(
      {.name = "endpoint-key",
       .summary = "make a key for an endpoint's callers (shown once), or remove one",
       .example =
           "billow endpoint-key hello --name ci\nbillow endpoint-key hello --name ci --remove",
       .run = cmd_key,
       .usage = "NAME",
       .options = {key_options},
       .operands = Operands::some,
       .group = group});
}

}  // namespace billow::client
