// endpoints, scale, rollback, delete, endpoint-key: endpoints after they were deployed.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/text.h"
#include "client/endpoints/endpoints.h"
#include "client/endpoints/operation.h"
#include "client/endpoints/settings.h"
#include "client/frame/commands.h"
#include "client/frame/console.h"
#include "client/frame/explanation.h"
#include "client/frame/table.h"
#include "client/frame/values.h"
#include "client/frame/when.h"
#include "client/request/job_list.h"
#include "client/request/job_request.h"
#include "core/model/endpoint_program.h"
#include "core/wire/codec.h"

namespace billow::client {
namespace {

constexpr OptionSpec rollback_options[] = {
    {"to", 0, "REVISION", "revision to serve (default: the previous one)"},
    {"quiet", 'q', nullptr, "print nothing while waiting"}};
constexpr OptionSpec key_options[] = {
    {"name", 0, "NAME", "name of the key (default: default)"},
    {"remove", 0, nullptr, "remove the key with this name"},
    {"project", 'p', "NAME",
     "project that the usage of the key is reported for "
     "(default: the endpoint's)"},
    {"expires", 0, "TIME", "time until the key expires, e.g. 30d"},
    {"limit", 0, "LIMIT",
     "limit of the key per minute, hour or day (UTC): "
     "100/min, 50000tokens/day, usd=5/day (repeatable)",
     true}};

std::string micros(const Json& us) {
  const auto n = us.int_or(0);
  return n == 0          ? "-"
         : n < 1'000'000 ? fmt::format("{:.1f} ms", static_cast<double>(n) / 1000)
                         : fmt::format("{:.2f} s", static_cast<double>(n) / 1e6);
}

const Json* canary_of(const Json& e) {
  for (const Json& r : e["revisions"].items())
    if (r["number"].uint_or(0) == e["canary"].uint_or(0) && r.find("release"))
      return &r;
  return nullptr;
}

// "1 sick, "; empty: all are well.
std::string sick_text(const Json& figures) {
  const auto sick = figures["sick"].uint_or(0);
  return sick == 0 ? std::string() : fmt::format("{} sick, ", sick);
}

// The last canary that ended by itself is shown until another revision is deployed.
std::string status_text(const Json& e) {
  const std::string status(e["status"].str_or("?"));
  if (const Json* canary = canary_of(e); canary && status == "canary")
    return fmt::format("canary {:g}%", (*canary)["release"]["traffic_pct"].double_or(0));
  const auto& revisions = e["revisions"].items();
  return status == "serving" && !revisions.empty() &&
                 revisions.back()["state"].str_or("") == "rolled_back"
             ? "rolled back"
             : status;
}

std::string key_text(const Json& k) {
  std::string text = fmt::format("       key  {}  {}", printable(k["name"].str_or("?")),
                                 time_text(k["made_at"], now(), "?"));
  if (const auto project = k["project"].str_or(""); !project.empty())
    text += fmt::format(", project {}", printable(project));
  if (k["expired"].bool_or(false))
    text += ", expired";
  else if (k.find("expires_at"))
    text += fmt::format(", expires {}", time_text(k["expires_at"], now(), "?"));
  for (const Json& limit : k["limits"].items())
    text += fmt::format(", at most {}", limit.str_or("?"));
  const Json& used = k["today"];
  if (used["requests"].uint_or(0) + used["refused"].uint_or(0) > 0)
    text += fmt::format("; today {} requests, {} refused, {} tokens, {}",
                        used["requests"].uint_or(0), used["refused"].uint_or(0),
                        used["tokens_in"].uint_or(0) + used["tokens_out"].uint_or(0),
                        used["charge"].str_or("?"));
  return text + "\n";
}

Result<Json> key_body(const Parsed& parsed, const std::string& name) {
  Json body = Json::object({{"name", name}});
  if (parsed.has("project"))
    body.set("project", parsed.get("project"));
  if (parsed.has("expires")) {
    const auto lasts = duration_with_unit(parsed.get("expires"));
    if (!lasts)
      return pass(Error(lasts.error()).in("--expires"));
    if (lasts->ns < seconds(1).ns)
      return fail(Code::invalid, "--expires must be at least 1s");
    body.set("lasts_s", lasts->ns / seconds(1).ns);
  }
  if (parsed.has("limit"))
    body.set("limits", BILLOW_TRY(read_limits(parsed.all("limit"))));
  return body;
}

std::string canary_text(const Json& e) {
  const Json* canary = canary_of(e);
  if (!canary)
    return {};
  std::string text = fmt::format("    canary  revision {}: {}\n", (*canary)["number"].uint_or(0),
                                 release_text((*canary)["release"]));
  const Json& f = e["figures"];
  for (const Json& r : f["revisions"].items())
    text += fmt::format("            revision {}: {} requests, {} failed, first byte p95 {}\n",
                        r["revision"].uint_or(0), r["requests"].uint_or(0), r["errors"].uint_or(0),
                        micros(r["first_byte_p95_us"]));
  if (const auto copies = f["mirrored"].uint_or(0), skipped = f["not_mirrored"].uint_or(0);
      copies + skipped > 0)
    text += fmt::format(
        "            {} requests copied, {} not (too large, or the canary was "
        "busy)\n",
        copies, skipped);
  return text;
}

}  // namespace

std::string endpoint_text(const Json& e) {
  const Json& f = e["figures"];
  std::string text =
      fmt::format("{}  {}\n", printable(e["name"].str_or("?")), e["status"].str_or("?"));
  text += fmt::format(
      "   address  {}\n   command  {}\n  revision  {}{}\n",
      url_of(e).empty() ? "(the gateway is starting)" : url_of(e),
      printable(e["command"].str_or("-")), e["revision"].uint_or(0),
      e["rolling"].uint_or(0) ? fmt::format(", starting {}", e["rolling"].uint_or(0)) : "");
  text += fmt::format("  replicas  {} ready, {}{} asleep, {} starting ({} to {})\n",
                      f["ready"].uint_or(0), sick_text(f), f["sleeping"].uint_or(0),
                      f["coming"].uint_or(0), e["min"].uint_or(0), e["max"].uint_or(0));
  text += fmt::format("    access  {}\n", e["access"].str_or("?"));
  if (e["gateways"].items().size() > 1)
    for (const Json& g : e["gateways"].items())
      text += gateway_share_text(g);
  const auto policy =
      wire::from_json_text<EndpointPolicy>(e["policy"].is_object() ? e["policy"].dump() : "{}");
  constexpr std::string_view own_lines[] = {"access", "min", "max"};
  if (const std::string options = policy ? settings_text(*policy, own_lines) : ""; !options.empty())
    text += fmt::format("  settings  {}\n", printable(options));
  text += fmt::format("  requests  {} ({} failed, {} refused, {} held, {} in flight)\n",
                      f["requests"].uint_or(0), f["failed"].uint_or(0), f["refused"].uint_or(0),
                      f["held"].uint_or(0), f["in_flight"].uint_or(0));
  text += fmt::format("first byte  p50 {}, p99 {}; waking takes {}; {} cold starts, {} wakes\n",
                      micros(f["first_byte_p50_us"]), micros(f["first_byte_p99_us"]),
                      micros(f["wake_us"]), f["cold_starts"].uint_or(0), f["wakes"].uint_or(0));
  text += fmt::format(
      "      cost  ${:.4f}{}{}\n", e["cost_usd"].double_or(0),
      e["usd_per_request"].is_number()
          ? fmt::format(", ${:.6f} per request", e["usd_per_request"].double_or(0))
          : "",
      e["usd_per_1000_tokens"].is_number()
          ? fmt::format(", ${:.6f} per 1,000 tokens", e["usd_per_1000_tokens"].double_or(0))
          : "");
  if (const auto why = e["last_failure"].str_or(""); !why.empty())
    text += fmt::format("   failure  {}\n", printable(why));
  for (const Json& note : e["notes"].items())
    text += fmt::format("      note  {}\n", printable(note.str_or("")));
  for (const Json& r : e["replicas"].items())
    text += fmt::format(
        "   replica  job {}, revision {}, {}{}{}{}\n", r["job"].uint_or(0),
        r["revision"].uint_or(0), r["task_state"].str_or(r["state"].str_or("?")),
        r["spot"].bool_or(false) ? ", spot" : "",
        r["node"].str_or("").empty() ? "" : fmt::format(", on {}", printable(r["node"].str_or(""))),
        r.find("trouble") ? fmt::format(": {}", printable(r["trouble"].str_or("")))
        : r["waits"].bool_or(false) && !r["reason"].str_or("").empty()
            ? fmt::format(": {}", printable(r["reason"].str_or("")))
            : "");
  for (const Json& r : e["revisions"].items())
    text += fmt::format(
        "  revision  {} {}  {}  {}{}\n", r["number"].uint_or(0),
        r["state"].str_or("?") == "rolled_back" ? "rolled back" : r["state"].str_or("?"),
        time_text(r["made_at"], now(), "?"), printable(r["command"].str_or("")),
        r["reason"].str_or("").empty() ? ""
                                       : fmt::format("  ({})", printable(r["reason"].str_or(""))));
  text += canary_text(e);
  for (const Json& k : e["keys"].items())
    text += key_text(k);
  return text;
}

namespace {

int cmd_endpoints(const Parsed& parsed) {
  if (parsed.operands.size() > 1)
    return report_usage({Code::invalid, "endpoints accepts one name at most",
                         "for example: billow endpoints hello"});
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
    table.row(
        {std::string(e["name"].str_or("?")), status_text(e),
         fmt::format("{}", e["revision"].uint_or(0)),
         fmt::format("{}", f["ready"].uint_or(0)) +
             (f["sick"].uint_or(0) == 0 ? "" : fmt::format(" ({} sick)", f["sick"].uint_or(0))),
         fmt::format("{}", f["sleeping"].uint_or(0)), fmt::format("{}", e["max"].uint_or(0)),
         fmt::format("{}", f["requests"].uint_or(0)), micros(f["first_byte_p50_us"]),
         fmt::format("${:.4f}", e["cost_usd"].double_or(0)), url_of(e)});
  }
  if (table.empty())
    say("there are no endpoints; deploy one: billow deploy hello -- sh -c 'exec python3 -m "
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

// What is in force now: the number of replicas, and the settings that were given.
std::string scaled_text(const Parsed& parsed, const Json& now) {
  const auto limit = now["concurrency"].uint_or(0);
  std::string text = fmt::format(
      "{}{}: {} to {} replicas, {}", parsed.operands[0],
      now["changed"].bool_or(true) ? "" : " is unchanged", now["min"].uint_or(0),
      now["max"].uint_or(0),
      limit == 0 ? "unlimited concurrent requests each"
                 : fmt::format("{} concurrent request{} each", limit, limit == 1 ? "" : "s"));
  if (const auto policy = wire::from_json_text<EndpointPolicy>(
          now["policy"].is_object() ? now["policy"].dump() : "{}"))
    for (const Setting& setting : settings_of(*policy))
      if (parsed.has(setting.option) && setting.option != "min" && setting.option != "max" &&
          setting.option != "concurrency")
        text += ", " + printable(setting.options());
  return text + "\n";
}

int cmd_scale(const Parsed& parsed) {
  EndpointPolicy policy;  // mistakes in the options are reported before a head is asked
  if (const Status read = read_scaling(parsed, policy); !read)
    return report_usage(read.error());
  const bool any = std::ranges::any_of(
      scaling_options(), [&](const OptionSpec& option) { return parsed.has(option.name); });
  if (!any)
    return report_usage(
        {Code::invalid, "nothing to change", "for example: billow scale hello --min 1 --max 8"});
  const auto name = one_operand(parsed, "scale", "endpoint");
  if (!name)
    return report_usage(name.error());
  // --query, --prometheus and --query-target are one setting: what is not given stays.
  if (parsed.has("query") || parsed.has("prometheus") || parsed.has("query-target")) {
    auto client = connect(parsed);
    if (!client)
      return report(client.error());
    const auto e = client->get("/v1/endpoints/" + net::percent_encode(*name));
    if (!e)
      return report(e.error());
    auto before = wire::from_json_text<EndpointPolicy>((*e)["policy"].dump());
    if (!before)
      return report(before.error());
    policy = std::move(*before);
    (void)read_scaling(parsed, policy);
  }
  const auto body = parse_json(wire::to_json_text(given_scaling(parsed, policy)));
  if (!body)
    return report(body.error());
  return change(parsed, "scale", "/scale", *body,
                [&](const Json& now) { return scaled_text(parsed, now); });
}

// What a rollback restores, and what it leaves as it is.
std::string rollback_text(const std::string& name, const Json& done) {
  const auto policy = wire::from_json_text<EndpointPolicy>(done["policy"].dump());
  if (!policy)
    return {};
  EndpointPolicy kept = *policy, restored;
  take_program_settings(kept, {});
  restored.access = EndpointAccess::key;
  restored.max = policy->max;
  take_program_settings(restored, *policy);
  restored.max = EndpointPolicy{}.max;
  const std::string probes = settings_text(restored), others = settings_text(kept);
  return fmt::format(
      "{}: revision {} has the command, image, resources and environment {}{}{}; access {} and the "
      "other settings stay as they are{}{}",
      name, done["revision"].uint_or(0), done["reason"].str_or("as before"),
      probes.empty() ? "" : ", and its ", printable(probes), enum_name(policy->access),
      others.empty() ? "" : ": ", printable(others));
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
  if (const auto ended = (*done)["ended"].uint_or(0)) {
    if (parsed.has("json"))
      print_json(*done);
    else
      print(fmt::format("{}: canary (revision {}) ended; the old revision gets all requests\n",
                        *name, ended));
    return 0;
  }
  if (const std::string text = rollback_text(*name, *done); !text.empty() && !parsed.has("quiet"))
    say(text);
  return await_revision(*client, *name, (*done)["revision"].uint_or(0),
                        {.json = parsed.has("json"), .quiet = parsed.has("quiet")});
}

int cmd_delete(const Parsed& parsed) {
  return change(parsed, "delete", "", Json::object(), [&](const Json&) {
    return fmt::format("deleted {}; its replicas are stopping\n", parsed.operands[0]);
  });
}

int cmd_key(const Parsed& parsed) {
  const std::string key = parsed.get("name", "default");
  const auto name = one_operand(parsed, "endpoint-key", "endpoint");
  if (!name)
    return report_usage(name.error());
  auto client = connect(parsed);
  if (!client)
    return report(client.error());
  if (!parsed.has("remove")) {
    const std::string path = "/v1/endpoints/" + net::percent_encode(*name);
    const auto body = key_body(parsed, key);
    if (!body)
      return report_usage(body.error());
    auto made = client->post(path + "/keys", body->dump());
    if (!made)
      return report(made.error());
    if (parsed.has("json")) {
      print_json(*made);
      return 0;
    }
    const std::string secret((*made)["key"].str_or("?"));
    print(secret + "\n");
    // A script that keeps the key must not find it again on stderr, which goes to logs.
    const std::string shown = look_at(STDOUT_FILENO).terminal ? secret : "KEY";
    if (const auto endpoint = client->get(path); endpoint && !url_of(*endpoint).empty())
      say(fmt::format("call it: curl -H 'Authorization: Bearer {}' {}", shown, url_of(*endpoint)));
    return 0;
  }
  auto done = client->del("/v1/endpoints/" + net::percent_encode(*name) + "/keys/" +
                          net::percent_encode(key));
  if (!done)
    return report(done.error());
  print(fmt::format("removed key {} of {}\n", key, *name));
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
      Code::not_found, fmt::format("endpoint {} no longer exists", word),
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
    print(endpoint_text(*e));
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
      fmt::format("endpoint {} is {}: {} ready, {}{} asleep, {} starting, of at most {}\n", name,
                  e["status"].str_or("?"), e["ready"].uint_or(0), sick_text(e),
                  e["sleeping"].uint_or(0), e["coming"].uint_or(0), e["max"].uint_or(0));
  text += explanation_text(e, now());
  for (const Json& r : e["replicas"].items())
    text +=
        fmt::format("replica (job {}, revision {}) is {}\n{}", r["id"].uint_or(0),
                    r["revision"].uint_or(0), r["state"].str_or("?"), explanation_text(r, now()));
  if (e["reasons"].items().empty() && e["replicas"].items().empty())
    text += e["coming"].uint_or(0) == 0
                ? "  nothing blocks it\n"
                : fmt::format(
                      "  {} started and did not answer the health check yet: the program "
                      "must listen on port $PORT (`billow logs {}`, `billow deploy --help` "
                      "on --health)\n",
                      e["coming"].uint_or(0) == 1 ? "a replica" : "replicas", name);
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
  for (const Json& r : e["revisions"].items())
    if (job == 0 || (e["status"].str_or("") == "failed" && r["failed_job"].uint_or(0) > job))
      job = r["failed_job"].uint_or(0);
  if (job == 0) {  // one that was stopped, because it did not become healthy
    const Json page = BILLOW_TRY(client.get(with_query(
        "/v1/jobs", {{"label", "billow.endpoint=" + name}, {"state", "all"}, {"limit", "1"}})));
    for (const Json& one : page["jobs"].items())
      job = one["id"].uint_or(0);
  }
  if (job == 0)
    return fail(Code::not_found, fmt::format("endpoint {} has no replica at the moment", name),
                "a request to it starts one");
  return fmt::format("{}", job);
}

void add_endpoint_commands(CommandTable& table) {
  constexpr const char* group = "endpoints";
  add_deploy_commands(table);
  add_release_commands(table);
  add_front_door_commands(table);
  table.push_back({.name = "endpoints",
                   .summary = "list endpoints with their addresses and traffic",
                   .example = "billow endpoints\nbillow endpoints hello",
                   .run = cmd_endpoints,
                   .usage = "[NAME]",
                   .operands = Operands::some,
                   .group = group});
  add_gateway_list_commands(table);
  table.push_back({.name = "scale",
                   .summary = "change how an endpoint scales, without a new revision",
                   .example = "billow scale hello --min 1 --max 8\nbillow scale hello "
                              "--max-spend 5/h --min-at \"Mon-Fri 08:00-18:00=2\"",
                   .run = cmd_scale,
                   .usage = "NAME",
                   .options = {scaling_options()},
                   .operands = Operands::some,
                   .group = group});
  table.push_back({.name = "rollback",
                   .summary = "end a canary, or serve an earlier revision again",
                   .example = "billow rollback hello\nbillow rollback hello --to 3",
                   .run = cmd_rollback,
                   .usage = "NAME",
                   .options = {rollback_options},
                   .operands = Operands::some,
                   .group = group});
  table.push_back({.name = "delete",
                   .summary = "delete an endpoint and its replicas",
                   .example = "billow delete hello",
                   .run = cmd_delete,
                   .usage = "NAME",
                   .operands = Operands::some,
                   .group = group});
  table.push_back(
      {.name = "endpoint-key",
       .summary = "create (shown once) or remove a key for an endpoint's callers",
       .example =
           "billow endpoint-key hello --name ci\nbillow endpoint-key hello --name ci --remove",
       .run = cmd_key,
       .usage = "NAME",
       .options = {key_options},
       .operands = Operands::some,
       .group = group});
}

}  // namespace billow::client
