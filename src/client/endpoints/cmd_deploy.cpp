// deploy: a new revision of an endpoint, and waiting until it serves.
#include <fmt/format.h>
#include <unistd.h>

#include <optional>

#include "base/text.h"
#include "client/endpoints/endpoints.h"
#include "client/endpoints/operation.h"
#include "client/endpoints/settings.h"
#include "client/frame/commands.h"
#include "client/frame/console.h"
#include "client/frame/progress.h"
#include "client/frame/table.h"
#include "client/frame/terminal.h"
#include "client/frame/values.h"
#include "client/request/environments.h"
#include "client/request/job_request.h"
#include "client/request/sync.h"
#include "core/model/endpoint.h"
#include "core/wire/codec.h"

namespace billow::client {
namespace {

constexpr OptionSpec deploy_options[] = {
    {"timeout", 0, "TIME",
     "time limit from a request to the first byte of its answer, waking included (default 60s)"},
    {"regions", 0, "A,B",
     "run replicas in each of these regions, by the demand at its gateway; --min and --max apply "
     "per region"},
    {"base-on-demand", 0, "N", "with --spot: this many replicas always run on-demand"},
    {"access", 0, "WHO",
     "who may call: key (default): callers with a key; local: also the owner's programs on the "
     "gateway's machine, without a key; open: anyone",
     false, Completes::choice, "key,local,open"},
    {"cors", 0, "ORIGIN",
     "let pages of this site call the endpoint; * for all (repeatable; none: no site)", true},
    {"webhook", 0, "URL",
     "URL to notify when an asynchronous call is finished (none: do not notify)"},
    {"protocol", 0, "NAME",
     "what the command speaks: http1 (default), h2 (HTTP/2 without TLS) or grpc", false,
     Completes::choice, "http1,h2,grpc"},
    {"price", 0, "USD/UNIT",
     "price of a call, for limits and reports: 0.01/request, in=0.50/Mtoken, "
     "out=1.50/Mtoken (repeatable; none: nothing)",
     true},
    {"traffic", 0, "PERCENT",
     "start the new revision as a canary beside the old one, with this share of the requests"},
    {"mirror", 0, "PERCENT",
     "start the new revision as a canary that gets copies of this share of the requests; its "
     "answers "
     "are dropped"},
    {"mirror-post", 0, nullptr, "with --mirror: copy POST requests too"},
    {"auto-rollback", 0, "WHEN",
     "end the canary automatically: on (default): if it has more errors or is slower than the old "
     "revision; errors: only for errors; off",
     false, Completes::choice, "on,errors,off"},
    {"sticky", 0, "BY",
     "requests with the same client, header:NAME or cookie:NAME get the same replica and revision "
     "if it can serve; cookie: the gateway sets a cookie for this (default none: each request is "
     "balanced separately)"},
    {"sample", 0, "PERCENT",
     "keep this share of the requests and answers in the bucket of the gateway's --sample-to "
     "(default none)"},
    {"no-wait", 0, nullptr, "return at once instead of waiting until it serves"},
    {"quiet", 'q', nullptr, "print nothing while waiting"},
};

// Who may call, and how requests are treated.
Status read_service(const Parsed& parsed, EndpointPolicy& p) {
  if (parsed.has("access")) {
    const auto access = enum_value<EndpointAccess>(parsed.get("access"));
    if (!access)
      return fail(Code::invalid, "--access must be key, local or open");
    p.access = *access;
  }
  if (parsed.has("protocol")) {
    const auto protocol = enum_value<EndpointProtocol>(parsed.get("protocol"));
    if (!protocol)
      return fail(Code::invalid, "--protocol must be http1, h2 or grpc");
    p.protocol = *protocol;
  }
  if (parsed.has("cors"))
    p.cors = list_or_none(parsed, "cors");
  if (parsed.has("webhook"))
    p.webhook = text_or_none(parsed, "webhook");
  if (parsed.has("sticky"))
    p.sticky = text_or_none(parsed, "sticky");
  if (parsed.has("sample"))
    p.sample = parsed.get("sample") == "none"
                   ? 0
                   : BILLOW_TRY(read_part("--sample", parsed.get("sample")));
  if (parsed.has("price"))
    p.prices = BILLOW_TRY(read_prices(list_or_none(parsed, "price")));
  return {};
}

Status read_policy(const Parsed& parsed, EndpointPolicy& p) {
  BILLOW_TRY_VOID(read_scaling(parsed, p));
  if (!parsed.has("max"))
    p.max = std::max(p.min, p.max);
  p.base_on_demand = static_cast<std::uint32_t>(
      BILLOW_TRY(int_option(parsed, "base-on-demand", p.base_on_demand, 0, 1'000'000)));
  if (parsed.has("timeout")) {
    const auto timeout = duration_with_unit(parsed.get("timeout"));
    if (!timeout)
      return pass(Error(timeout.error()).in("--timeout"));
    p.timeout = *timeout;
  }
  BILLOW_TRY_VOID(read_operation(parsed, p));
  return read_service(parsed, p);
}

Result<ReleasePlan> read_release(const Parsed& parsed) {
  ReleasePlan plan;
  if (parsed.has("traffic"))
    plan.traffic = BILLOW_TRY(read_part("--traffic", parsed.get("traffic")));
  if (parsed.has("mirror"))
    plan.mirror = BILLOW_TRY(read_part("--mirror", parsed.get("mirror")));
  plan.mirror_post = parsed.has("mirror-post");
  if (parsed.has("auto-rollback")) {
    const auto guard = enum_value<ReleaseGuard>(parsed.get("auto-rollback"));
    if (!guard)
      return fail(Code::invalid, "--auto-rollback must be on, errors or off");
    plan.guard = *guard;
  }
  if (!plan.any() && (plan.mirror_post || parsed.has("auto-rollback")))
    return fail(Code::invalid, "--mirror-post and --auto-rollback need a canary",
                "add --traffic 10% or --mirror 10%");
  return plan;
}

// A new revision keeps the scaling and the access of the endpoint unless they are given again: an
// endpoint behind a key must not become open because a new version was deployed. The kept options
// are printed.
std::string kept_options(const Parsed& parsed, const EndpointPolicy& p) {
  std::vector<std::string> kept;
  for (const Setting& setting : settings_of(p))
    if (!setting.usual && !parsed.has(setting.option) && !setting.flag)
      kept.push_back(setting.options());
  return join(kept, ", ");
}

// What a revision that does not serve yet is waiting for.
std::string awaited(const Json& e) {
  if (const auto& notes = e["notes"].items(); !notes.empty())
    return printable(notes.front().str_or(""));
  if (const auto trouble = e["trouble"].str_or(""); !trouble.empty())
    return printable(trouble);
  if (const auto why = e["waiting"].str_or(""); !why.empty())
    return fmt::format("a replica is waiting: {}", printable(why));
  if (url_of(e).empty())
    return "the gateway is starting";
  if (e["replicas"].items().empty())
    return "its replica is being started";
  return "its replica does not answer its health check on $PORT yet";
}

bool needs_a_key(const Json& endpoint) {
  return endpoint["access"].str_or("") == "key" && endpoint["keys"].items().empty();
}

// Whether a gateway does not yet use a revision that serves, or is a canary, as the head sees it:
// gateways learn of it a moment later.
bool unknown_somewhere(const Json& endpoint, std::uint64_t revision, bool promoted) {
  const Json& figures = endpoint["figures"];
  if (endpoint["revision"].uint_or(0) == revision)
    return figures["serving"].uint_or(0) < revision;
  return !promoted && endpoint["canary"].uint_or(0) == revision &&
         figures["canary"].uint_or(0) != revision;
}

void print_endpoint(Json endpoint, const Await& how) {
  if (!how.changes.is_null())
    endpoint.set("changes", how.changes);
  print_json(endpoint);
}

// The end of a revision's rollout: printed; nothing while it is still under way.
std::optional<int> rollout_end(const Json& endpoint,
                               const std::string& name,
                               std::uint64_t revision,
                               const Await& how) {
  for (const Json& r : endpoint["revisions"].items()) {
    if (r["number"].uint_or(0) != revision)
      continue;
    const auto state = r["state"].str_or("");
    if (state == "failed") {
      // The log of the replica that failed: the endpoint's name stands for one that serves.
      const std::uint64_t job = r["failed_job"].uint_or(0),
                          serving = endpoint["revision"].uint_or(0);
      const std::string look = job != 0 ? fmt::format("see `billow logs {}`", job)
                                        : fmt::format("see `billow describe {}`", name);
      return report(
          {Code::conflict,
           fmt::format("revision {} of {} did not become healthy: {}", revision, name,
                       printable(r["reason"].str_or(""))),
           serving != 0 ? fmt::format("revision {} keeps serving; {}", serving, look) : look});
    }
    if (state == "rolled_back")
      return report({Code::conflict,
                     fmt::format("revision {} of {} was rolled back: {}", revision, name,
                                 printable(r["reason"].str_or(""))),
                     fmt::format("see `billow describe {}`", name)});
    if (state == "canary" && !how.promoted) {
      if (how.json)
        print_endpoint(endpoint, how);
      else
        print(fmt::format("{}: revision {} is a canary beside revision {}: {}\n", name, revision,
                          endpoint["revision"].uint_or(0), release_text(r["release"])));
      return 0;
    }
    if ((state == "serving" || state == "retired") && !url_of(endpoint).empty()) {
      if (how.json)
        print_endpoint(endpoint, how);
      else
        print(
            fmt::format("{} is serving at {} (revision {})\n{}", name, url_of(endpoint), revision,
                        needs_a_key(endpoint)
                            ? fmt::format("create a key to call it: billow endpoint-key {}\n", name)
                            : ""));
      return 0;
    }
  }
  return std::nullopt;
}

}  // namespace

std::string url_of(const Json& endpoint) {
  const auto& urls = endpoint["urls"].items();
  return urls.empty() ? std::string() : std::string(urls.front().str_or(""));
}

int await_revision(Client& client,
                   const std::string& name,
                   std::uint64_t revision,
                   const Await& how) {
  const bool quiet = how.quiet;
  const OnInterrupt left(fmt::format(
      "no longer waiting; {0} is still starting (`billow delete {0}` would remove it)", name));
  std::optional<Progress> progress;
  if (!quiet && ::isatty(STDERR_FILENO))
    progress.emplace(name, ProgressUnit::things);
  constexpr Duration patience = seconds(2);
  const SteadyTime begun = system_clock().steady();
  std::string reported;
  std::optional<SteadyTime> served;  // since when, as the head sees it
  for (;; ::usleep(20'000)) {
    const auto e = client.get("/v1/endpoints/" + net::percent_encode(name));
    if (!e && !is_away(e.error()))
      return report(e.error());
    if (!e) {
      (void)client.find_again();
      continue;
    }
    const SteadyTime now = system_clock().steady();
    if (unknown_somewhere(*e, revision, how.promoted)) {
      if (!served)
        served = now;
      if (now - *served < patience)
        continue;
    }
    if (const auto end = rollout_end(*e, name, revision, how)) {
      for (const Json& note : (*e)["notes"].items())
        if (const std::string text = printable(note.str_or("")); !quiet && text != reported)
          say(fmt::format("{}: {}", name, text));
      return *end;
    }
    const std::string why = awaited(*e);
    if (progress) {
      progress->update(0, 0, why);
    } else if (!quiet && why != reported &&
               (!(*e)["trouble"].str_or("").empty() || !(*e)["notes"].items().empty() ||
                (!(*e)["waiting"].str_or("").empty() &&
                 system_clock().steady() - begun > patience))) {
      reported = why;
      say(fmt::format("{}: {}; see `billow explain {}`", name, why, name));
    }
  }
}

namespace {

// Options of jobs that make no sense for an endpoint.
Status check_job_options(const JobRequest& request) {
  if (!request.reservation.empty())
    return fail(Code::invalid,
                "an endpoint cannot use a reservation: its replicas could not restart after the "
                "reservation ends",
                "omit --reservation");
  if (request.spec.time_limit.ns > 0)
    return fail(
        Code::invalid, "an endpoint runs without end, so it cannot have --time",
        "omit it; --timeout limits a request, --idle and --keep limit replicas without requests");
  if (!request.after.empty() || !request.cron.empty())
    return fail(
        Code::invalid,
        "an endpoint serves as soon as it is deployed: it cannot wait for jobs or a schedule",
        "omit --after and --cron");
  if (!request.outputs.empty() || !request.spec.surroundings.outputs.empty())
    return fail(Code::invalid, "an endpoint never ends, so it has no outputs to keep",
                "write to a volume instead: --volume NAME:/mnt/NAME");
  return {};
}

Result<JobRequest> replica_request(const Parsed& parsed) {
  if (parsed.operands.size() < 2)
    return fail(Code::invalid, "no name or no command given",
                "for example: billow deploy hello --gpus 0.5 -- python serve.py   (the command "
                "listens on $PORT)");
  JobRequest request;
  request.spec.argv.assign(parsed.operands.begin() + 1, parsed.operands.end());
  if (request.spec.argv.front() == "--")
    request.spec.argv.erase(request.spec.argv.begin());
  if (request.spec.argv.empty())
    return fail(Code::invalid, "no command given",
                "for example: billow deploy hello -- python serve.py");
  BILLOW_TRY_VOID(set_options(request, parsed));
  if (parsed.has("regions"))
    BILLOW_TRY_VOID(set_option(request, "region", parsed.get("regions")));
  BILLOW_TRY_VOID(check_job_options(request));
  BILLOW_TRY_VOID(complete(request));
  return request;
}

// The endpoint as the head knows it, and the policy of the new revision: that of the options, over
// the one that it has.
struct Plan {
  Json before;  // null: there is no such endpoint yet
  EndpointPolicy policy_before, policy;
};

Result<Plan> plan_of(const Parsed& parsed, Client& client, const std::string& name) {
  Plan plan;
  const auto before = client.get("/v1/endpoints/" + net::percent_encode(name));
  if (before && (*before)["policy"].is_object()) {
    plan.before = *before;
    plan.policy = BILLOW_TRY(wire::from_json_text<EndpointPolicy>((*before)["policy"].dump()));
  } else {
    plan.policy.access = EndpointAccess::key;
  }
  plan.policy_before = plan.policy;
  BILLOW_TRY_VOID(read_policy(parsed, plan.policy));
  return plan;
}

// What the new revision has otherwise than the endpoint. A deployment states the whole program, as
// a job file does, so what is not given again is gone: that must not happen without a word.
std::vector<SettingChange> changes_of(const Parsed& parsed,
                                      const Plan& plan,
                                      const JobSpec& spec,
                                      const Environment& env) {
  std::vector<SettingChange> out;
  if (!plan.before.is_object())
    return out;
  const auto given = [&](const std::string& option) {
    return parsed.has(option) || (option == "regions" && parsed.has("region")) ||
           (option == "max" && parsed.has("min"));
  };
  const Json spec_after = parse_json(wire::to_json_text(spec)).value_or(Json());
  if (plan.before["spec"].is_object()) {  // an older head does not say it
    out =
        changes_between(program_settings(plan.before["spec"]), program_settings(spec_after), given);
    std::vector<std::string> names;
    for (const Json& name : plan.before["variables"].items())
      names.emplace_back(name.str_or(""));
    if (auto lost = lost_variables(names, env))
      out.push_back(std::move(*lost));
  }
  for (SettingChange& change :
       changes_between(settings_of(plan.policy_before), settings_of(plan.policy), given))
    out.push_back(std::move(change));
  return out;
}

struct Deployed {
  Json endpoint;
  std::vector<SettingChange> changes;
};

Result<Deployed> create_revision(const Parsed& parsed,
                                 Client& client,
                                 const std::string& name,
                                 JobRequest request,
                                 Plan plan,
                                 const ReleasePlan& release) {
  EndpointPolicy& policy = plan.policy;
  policy.spot = request.spec.spot;
  request.spec.spot = false;
  BILLOW_TRY_VOID(prepare_environment(client, request));
  Environment env = BILLOW_TRY(job_environment(own_environment(), request.env));
  // The head keeps the files of a revision as long as the revision exists.
  if (request.sync == Sync::yes || !request.spec.surroundings.inputs.empty())
    BILLOW_TRY_VOID(sync_for_job(client, request, parsed.has("quiet"), env));
  std::string body = "{\"name\":";
  append_json_string(body, name);
  // Who may call is always said: what a head assumes otherwise is not what every version means.
  Json said = BILLOW_TRY(parse_json(wire::to_json_text(policy)));
  said.set("access", enum_name(policy.access));
  body += ",\"policy\":" + said.dump();
  if (release.any())
    body += ",\"release\":" + wire::to_json_text(release);
  body += "," + submit_body(request, env).substr(1);
  Deployed out;
  out.endpoint = BILLOW_TRY(client.post("/v1/endpoints", body));
  out.changes = changes_of(parsed, plan, request.spec, env);
  return out;
}

// Said once the head has accepted the revision, and before it starts to serve.
void say_settings(const Parsed& parsed,
                  const std::string& name,
                  std::uint64_t revision,
                  const EndpointPolicy& policy,
                  const std::vector<SettingChange>& changes) {
  if (parsed.has("quiet"))
    return;
  if (const std::string kept = kept_options(parsed, policy); !kept.empty())
    say(fmt::format("{} keeps its settings: {}", name, printable(kept)));
  for (const SettingChange& change : changes)
    say(fmt::format("{}: revision {} changes {}", name, revision, printable(change.text())));
}

int cmd_deploy(const Parsed& parsed) {
  const auto failed = [](const Error& error) {
    return error.code == Code::invalid ? report_usage(error) : report(error);
  };
  auto request = replica_request(parsed);
  if (!request)
    return report_usage(request.error());
  EndpointPolicy checked;  // mistakes in the options are reported before a head is asked
  if (const Status read = read_policy(parsed, checked); !read)
    return report_usage(read.error());
  const auto release = read_release(parsed);
  if (!release)
    return report_usage(release.error());
  const std::string name = parsed.operands.front();
  auto client = connect_for_job(parsed, request->spec.resources.gpus > 0);
  if (!client)
    return report(client.error());
  const auto plan = plan_of(parsed, *client, name);
  if (!plan)
    return failed(plan.error());
  auto made = create_revision(parsed, *client, name, std::move(*request), *plan, *release);
  if (!made)
    return report(made.error());
  const std::uint64_t revision = made->endpoint["rolling"].uint_or(0);
  if (plan->before.is_object())
    say_settings(parsed, name, revision, plan->policy, made->changes);
  Json changes = changes_document(made->changes);
  if (!parsed.has("no-wait"))
    return await_revision(
        *client, name, revision,
        {.json = parsed.has("json"), .quiet = parsed.has("quiet"), .changes = std::move(changes)});
  made->endpoint.set("changes", std::move(changes));
  if (parsed.has("json"))
    print_json(made->endpoint);
  else
    print(fmt::format("{}: starting revision {}\n", name, revision));
  return 0;
}

}  // namespace

void add_deploy_commands(CommandTable& table) {
  constexpr const char* group = "endpoints";
  table.push_back(
      {.name = "deploy",
       .summary = "serve a command as an HTTP endpoint that scales with demand, down to zero",
       .example = "billow deploy hello -- sh -c 'exec python3 -m http.server $PORT'\nbillow deploy "
                  "llm --gpus 1 --max 4 --health /health --slo 2s -- sh -c 'exec vllm serve MODEL "
                  "--port $PORT'",
       .run = cmd_deploy,
       .usage = "NAME [--] COMMAND [ARG…]",
       .details = "The command listens on $PORT. Deploying again starts a new revision beside the "
                  "old one; the new one takes over when it is healthy,\nand no request fails. "
                  "Replicas without requests are suspended: they release their GPUs, keep their "
                  "memory, and resume within a second.",
       .options = {scaling_options(), deploy_options, operation_options(), job_options()},
       .operands = Operands::some,
       .group = group});
}

}  // namespace billow::client
