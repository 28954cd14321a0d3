#include "client/mcp/tools.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/text.h"
#include "client/mcp/output_place.h"
#include "client/request/environments.h"
#include "client/request/job_request.h"
#include "client/request/sync.h"
#include "core/model/endpoint.h"
#include "core/wire/codec.h"
#include "net/http/http.h"

namespace billow::client::mcp {
namespace {

using Arguments = Json;

// ---- schemas

Json property(const char* type, std::string_view text) {
  return Json::object({{"type", type}, {"description", text}});
}

Json schema(std::initializer_list<Json::Member> properties,
            std::initializer_list<const char*> required = {}) {
  Json names = Json::array();
  for (const char* name : required)
    names.push(name);
  return Json::object({{"type", "object"},
                       {"properties", Json::object(properties)},
                       {"required", std::move(names)},
                       {"additionalProperties", false}});
}

// A job option as JSON: a switch is a boolean, the rest is written as on the command line.
Json option_schema(const OptionSpec& option) {
  Json one = option.value ? property("string", option.help) : property("boolean", option.help);
  if (option.choices) {
    Json choices = Json::array();
    for (const auto& choice : split(option.choices, ','))
      choices.push(choice);
    one.set("enum", std::move(choices));
  }
  if (!option.repeats)
    return one;
  return Json::object({{"type", "array"},
                       {"items", Json::object({{"type", "string"}})},
                       {"description", option.help}});
}

// Not options that need a person at a terminal or have a way of their own here, nor those that
// name a place on this machine: an agent would read and write what its token says nothing about.
// Files come from the directory in which the server was started.
bool is_for_agents(const OptionSpec& option) {
  const std::string_view name = option.name;
  return name != "cron" && name != "cwd" && name != "env-file" && name != "pass-env";
}

Json job_schema(std::initializer_list<Json::Member> more,
                std::initializer_list<const char*> required) {
  Json options = Json::object();
  for (const auto& table : {job_options(), batch_options()})
    for (const OptionSpec& option : table)
      if (is_for_agents(option))
        options.set(option.name, option_schema(option));
  Json all = schema(more, required);
  Json properties = all["properties"];
  properties.set("options",
                 Json::object({{"type", "object"},
                               {"description", "Job options, named as on the command line."},
                               {"properties", std::move(options)},
                               {"additionalProperties", false}}));
  all.set("properties", std::move(properties));
  return all;
}

Json command_property() {
  return Json::object({{"type", "array"},
                       {"items", Json::object({{"type", "string"}})},
                       {"minItems", 1},
                       {"description", "The command and its arguments, one word each."}});
}

// ---- documents

// Those of these members that are there and say something.
Json reduced(const Json& from, std::initializer_list<const char*> names) {
  Json out = Json::object();
  for (const char* name : names)
    if (const Json* value = from.find(name); value && !value->is_null() && *value != Json(""))
      out.set(name, *value);
  return out;
}

Json job_answer(const Json& job) {
  Json out = reduced(job, {"id", "label", "name", "state", "final", "reason", "waits_for",
                           "project", "agent_token", "array", "elements", "attempt", "submitted_at",
                           "started_at", "ended_at", "ran_s", "cost", "exit"});
  return out;
}

Result<std::string> job_path(const Arguments& arguments, std::string_view rest = {}) {
  const Json& job = arguments["job"];
  const std::string label =
      job.is_integer() ? fmt::format("{}", job.int_or(0)) : std::string(job.str_or(""));
  BILLOW_TRY_VOID(check_job_label(label));
  return path_of_job(label, rest);
}

std::int64_t seconds_of(const Arguments& arguments, std::int64_t fallback) {
  return std::clamp<std::int64_t>(arguments["wait_s"].int_or(fallback), 0, wait_s_max);
}

// ---- jobs

Status set_one(JobRequest& request, const std::string& name, const Json& value) {
  if (value.is_array()) {
    for (const Json& item : value.items())
      BILLOW_TRY_VOID(set_one(request, name, item));
    return {};
  }
  if (value.is_bool()) {
    if (value.bool_or(false))
      return set_option(request, name, "");
    return {};
  }
  if (value.is_integer())
    return set_option(request, name, fmt::format("{}", value.int_or(0)));
  if (value.is_number())
    return set_option(request, name, fmt::format("{}", value.double_or(0)));
  if (value.is_string())
    return set_option(request, name, value.as_string());
  return fail(Code::invalid,
              fmt::format("the option {} must be a string, number or boolean", name));
}

Result<JobRequest> job_request(const Arguments& arguments) {
  JobRequest request;
  for (const Json& word : arguments["command"].items()) {
    if (!word.is_string())
      return fail(Code::invalid, "command must be a list of strings");
    request.spec.argv.push_back(word.as_string());
  }
  if (request.spec.argv.empty())
    return fail(Code::invalid, "command is empty", "give the words of the command as a list");
  for (const auto& [name, value] : arguments["options"].members()) {
    const auto known = [&](std::span<const OptionSpec> table) {
      return std::ranges::any_of(
          table, [&](const OptionSpec& o) { return name == o.name && is_for_agents(o); });
    };
    if (!known(job_options()) && !known(batch_options()))
      return fail(Code::invalid, fmt::format("there is no job option \"{}\"", name),
                  "see the input schema of the tool");
    BILLOW_TRY_VOID(set_one(request, name, value));
  }
  for (const AfterText& after : request.after) {
    const auto number = parse_int(after.job, 1, INT64_MAX);
    if (!number)
      return fail(Code::invalid, fmt::format("after: \"{}\" is not a job number", after.job));
    request.spec.after.push_back({JobId(static_cast<std::uint64_t>(*number)), after.kind});
  }
  BILLOW_TRY_VOID(complete(request));
  return request;
}

// The variables and files that the job gets, as for the command line.
Result<Environment> surroundings(Client& client, JobRequest& request) {
  BILLOW_TRY_VOID(prepare_environment(client, request));
  // Of the server's own variables only those that a program needs to run at all.
  std::vector<std::string> base;
  for (const std::string& each : own_environment())
    if (std::ranges::any_of(std::array{"PATH=", "HOME=", "USER=", "LANG="},
                            [&](const char* name) { return each.starts_with(name); }))
      base.push_back(each);
  Environment env = BILLOW_TRY(job_environment(base, request.env));
  BILLOW_TRY_VOID(sync_for_job(client, request, true, env));
  return env;
}

Result<Json> submit_job(ToolRun& run, const Arguments& arguments) {
  JobRequest request = BILLOW_TRY(job_request(arguments));
  const Environment env = BILLOW_TRY(surroundings(run.client, request));
  net::Headers headers;
  if (!request.idempotency_key.empty())
    headers.add("Idempotency-Key", request.idempotency_key);
  return run.client.post("/v1/jobs", submit_body(request, env), std::move(headers));
}

Result<Json> submit_tool(ToolRun& run, const Arguments& arguments) {
  const Json made = BILLOW_TRY(submit_job(run, arguments));
  return reduced(made, {"id", "count", "array", "state", "reason", "warnings"});
}

struct LogPart {
  std::string text;
  bool cut = false;
};
// The first bytes of what the path gives, or the last: a tail begins with a whole record.
Result<LogPart> read_log(ToolRun& run, const std::string& path, std::size_t bytes_max, bool last) {
  LogPart out;
  const Status read = run.client.stream(
      path,
      [&](std::string_view data) {
        if (last) {
          out.text += data;
          out.cut = out.cut || out.text.size() > bytes_max;
          out.text.erase(0, out.text.size() - std::min(out.text.size(), bytes_max));
          return !run.cancelled;
        }
        out.text += data.substr(0, bytes_max - std::min(bytes_max, out.text.size()));
        out.cut = out.text.size() >= bytes_max;
        return !out.cut && !run.cancelled;
      },
      {}, seconds(30));
  if (!read && !out.cut)
    return pass(read.error());
  const bool text = valid_utf8(out.text);
  std::string clean;  // bytes of a job may be anything; an answer is UTF-8 text
  for (const char c : out.text)
    clean += text || static_cast<unsigned char>(c) < 128 ? c : '?';
  out.text = std::move(clean);
  return out;
}

Result<Json> wait_for(ToolRun& run, const std::string& job, std::int64_t wait_s) {
  Json document;
  for (std::int64_t left = wait_s;; left -= 5) {
    document = BILLOW_TRY(run.client.get(
        with_query(path_of_job(job, "wait"),
                   {{"timeout_s", fmt::format("{}", std::clamp<std::int64_t>(left, 0, 5))}})));
    if (document["final"].bool_or(false) || left <= 5 || run.cancelled)
      return document;
  }
}

Result<Json> run_job(ToolRun& run, const Arguments& arguments) {
  const Json made = BILLOW_TRY(submit_job(run, arguments));
  const std::string job = fmt::format("{}", made["id"].uint_or(0));
  Json out = job_answer(BILLOW_TRY(wait_for(run, job, seconds_of(arguments, 20))));
  if (made["array"].bool_or(false))
    return out;
  const auto log = read_log(
      run, with_query(path_of_job(job, "logs"), {{"tail", fmt::format("{}", log_bytes_default)}}),
      log_bytes_default, true);
  if (log)
    out.set("output", log->text);
  return out;
}

Result<Json> status(ToolRun& run, const Arguments& arguments) {
  const std::string path = BILLOW_TRY(job_path(arguments));
  const std::int64_t wait_s = seconds_of(arguments, 0);
  if (wait_s == 0)
    return job_answer(BILLOW_TRY(run.client.get(path)));
  const std::string label = path.substr(path.rfind('/') + 1);
  return job_answer(BILLOW_TRY(wait_for(run, label, wait_s)));
}

Result<Json> explain(ToolRun& run, const Arguments& arguments) {
  const Json answer = BILLOW_TRY(run.client.get(BILLOW_TRY(job_path(arguments, "explain"))));
  return reduced(answer, {"id", "state", "reasons", "earliest_start", "latest_start",
                          "would_start_now", "expected"});
}

Result<Json> logs(ToolRun& run, const Arguments& arguments) {
  const auto most = static_cast<std::size_t>(
      std::clamp<std::int64_t>(arguments["max_bytes"].int_or(log_bytes_default), 1, log_bytes_max));
  const bool range = arguments["offset"].is_integer();
  const std::int64_t offset = std::max<std::int64_t>(0, arguments["offset"].int_or(0));
  const std::string path = with_query(
      BILLOW_TRY(job_path(arguments, "logs")),
      {{"rank",
        arguments["rank"].is_integer() ? fmt::format("{}", arguments["rank"].int_or(0)) : ""},
       {"tail", range ? "" : fmt::format("{}", most)},
       {"offset", range ? fmt::format("{}", offset) : ""}});
  const LogPart part = BILLOW_TRY(read_log(run, path, most, !range));
  Json out = Json::object({{"text", part.text}, {"cut", part.cut}});
  if (range && part.cut)
    out.set("next_offset", offset + static_cast<std::int64_t>(most));
  return out;
}

Result<Json> outputs(ToolRun& run, const Arguments& arguments) {
  const Json answer = BILLOW_TRY(run.client.get(BILLOW_TRY(job_path(arguments, "outputs"))));
  Json out = Json::object({{"outputs", answer["outputs"]}});
  if (arguments["directory"].str_or("").empty())
    return out;
  const std::string directory =
      BILLOW_TRY(place_for_outputs(std::string(arguments["directory"].str_or(""))));
  for (const Json& one : answer["outputs"].items()) {
    const std::string into = answer["outputs"].size() > 1
                                 ? fmt::format("{}/{}", directory, one["rank"].int_or(0))
                                 : directory;
    BILLOW_TRY_VOID(download_tree(run.client, {std::string(one["tree"].str_or("")), into, "", ""}));
  }
  out.set("written_to", directory);
  return out;
}

Result<Json> stop(ToolRun& run, const Arguments& arguments) {
  Json body = Json::object();
  if (arguments["reason"].is_string())
    body.set("reason", arguments["reason"]);
  return job_answer(
      BILLOW_TRY(run.client.post(BILLOW_TRY(job_path(arguments, "stop")), body.dump())));
}

Result<Json> list(ToolRun& run, const Arguments& arguments) {
  const Json answer = BILLOW_TRY(run.client.get(with_query(
      "/v1/jobs", {{"state", arguments["all"].bool_or(false) ? "all" : ""},
                   {"limit", fmt::format("{}", std::clamp<std::int64_t>(
                                                   arguments["limit"].int_or(20), 1, 100))}})));
  Json jobs = Json::array();
  for (const Json& job : answer["jobs"].items())
    jobs.push(reduced(job, {"id", "label", "name", "state", "reason", "agent_token", "cost"}));
  Json out = Json::object({{"jobs", std::move(jobs)}});
  const Json endpoints = BILLOW_TRY(run.client.get("/v1/endpoints"));
  Json names = Json::array();
  for (const Json& e : endpoints["endpoints"].items())
    names.push(reduced(e, {"name", "url", "state"}));
  out.set("endpoints", std::move(names));
  return out;
}

// ---- endpoints and money

Result<Json> deploy(ToolRun& run, const Arguments& arguments) {
  JobRequest request = BILLOW_TRY(job_request(arguments));
  EndpointPolicy policy;
  policy.min =
      static_cast<std::uint32_t>(std::clamp<std::int64_t>(arguments["min"].int_or(0), 0, 1000));
  policy.max = static_cast<std::uint32_t>(std::clamp<std::int64_t>(
      arguments["max"].int_or(std::max<std::int64_t>(1, policy.min)), 1, 1000));
  policy.health = std::string(arguments["health"].str_or(""));
  const auto access = enum_value<EndpointAccess>(arguments["access"].str_or("local"));
  if (!access)
    return fail(Code::invalid, "access must be local, key or open");
  policy.access = *access;
  const Environment env = BILLOW_TRY(surroundings(run.client, request));
  const std::string job = submit_body(request, env);
  std::string body = "{\"name\":";
  append_json_string(body, arguments["name"].str_or(""));
  Json settings = BILLOW_TRY(parse_json(wire::to_json_text(policy)));
  settings.set("access", enum_name(policy.access));  // also the default: the head has another one
  body += ",\"policy\":" + settings.dump() + "," + job.substr(1);
  const Json made = BILLOW_TRY(run.client.post("/v1/endpoints", body));
  return reduced(made, {"name", "url", "urls", "state", "project", "access", "serving", "rolling"});
}

Result<Json> costs(ToolRun& run, const Arguments& arguments) {
  if (!arguments["job"].is_null()) {
    const Json cost = BILLOW_TRY(run.client.get(BILLOW_TRY(job_path(arguments, "cost"))));
    return Json::object({{"job", cost}});
  }
  const Json tokens = BILLOW_TRY(run.client.get("/v1/tokens"));
  for (const Json& token : tokens["tokens"].items())
    if (token["agent"].is_object()) {
      Json out = token["agent"];
      out.set("token", token["name"]);
      out.set("project", token["project"]);
      out.set("expires_at", token["expires_at"]);
      return out;
    }
  return fail(Code::forbidden, "this token has no limits to show",
              "start billow mcp with an agent token: billow token create --agent");
}

Result<Json> price(ToolRun& run, const Arguments& arguments) {
  const Json answer = BILLOW_TRY(run.client.get("/v1/prices/rates"));
  const auto type = arguments["gpu_type"].str_or("");
  const double gpus = std::clamp(arguments["gpus"].double_or(1), 0.0, 1e6);
  const double hours = std::clamp(arguments["hours"].double_or(1), 0.0, 1e6);
  Json rates = Json::array();
  for (const Json& rate : answer["rates"].items()) {
    if (!type.empty() && rate["gpu_type"].str_or("") != type)
      continue;
    const double hourly = static_cast<double>(rate["nano_usd_per_s"].int_or(0)) * 3600 / 1e9;
    rates.push(Json::object({{"gpu_type", rate["gpu_type"]},
                             {"class", rate["class"]},
                             {"usd_per_gpu_hour", hourly},
                             {"usd", hourly * gpus * hours}}));
  }
  return Json::object({{"gpus", gpus}, {"hours", hours}, {"rates", std::move(rates)}});
}

Result<Json> advise(ToolRun& run, const Arguments& arguments) {
  const Json answer = BILLOW_TRY(run.client.post("/v1/advise", arguments["question"].dump()));
  std::string text = answer.dump();
  if (text.size() <= log_bytes_default)
    return answer;
  // The first options are the best ones.
  Json out = Json::object();
  for (const auto& [name, value] : answer.members()) {
    Json part = value;
    if (part.is_array() && part.size() > 3)
      part.as_array().resize(3);
    if (part.dump().size() <= log_bytes_default)
      out.set(name, std::move(part));
  }
  return out;
}

// ---- the table

struct Tool {
  const char* name;
  const char* text;
  Json (*input)();
  Result<Json> (*run)(ToolRun&, const Arguments&);
  bool reads_only;
};

const Json& wait_property() {
  static const Json one = property("integer", "Seconds to wait for the end of the job (0 to 55).");
  return one;
}
const Json& job_property() {
  static const Json one =
      Json::object({{"type", Json(Json::Array{"integer", "string"})},
                    {"description", "Number of the job; 12.3 is element 3 of array 12."}});
  return one;
}

const Tool tools[] = {
    {"advise", "Which GPU a model needs, with prices: for serving or training.",
     [] {
       return schema({{"question", property("object",
                                            "As POST /v1/advise: model, and tokens or "
                                            "latency targets, e.g. {\"model\": "
                                            "\"llama-3-8b\"}.")}},
                     {"question"});
     },
     advise, true},
    {"price", "What GPUs cost here, for a number of GPUs and hours.",
     [] {
       return schema({{"gpu_type", property("string", "Such as H100; default: every type.")},
                      {"gpus", property("number", "Number of GPUs (default 1).")},
                      {"hours", property("number", "Hours (default 1).")}});
     },
     price, true},
    {"run", "Submit a job, wait a short time, and return its state and the end of its output.",
     [] {
       return job_schema({{"command", command_property()}, {"wait_s", wait_property()}},
                         {"command"});
     },
     run_job, false},
    {"submit", "Submit a job, an array or a gang and return its number at once.",
     [] {
       return job_schema({{"command", command_property()}}, {"command"});
     },
     submit_tool, false},
    {"status", "The state of a job; with wait_s, when it has ended or the time is over.",
     [] {
       return schema({{"job", job_property()}, {"wait_s", wait_property()}}, {"job"});
     },
     status, true},
    {"explain", "Why a job waits, and when it will start.",
     [] {
       return schema({{"job", job_property()}}, {"job"});
     },
     explain, true},
    {"logs", "The end of a job's output, or a part of it from an offset on.",
     [] {
       return schema({{"job", job_property()},
                      {"max_bytes", property("integer",
                                             "At most this many bytes (default 8192, "
                                             "limit 65536).")},
                      {"offset", property("integer", "Start here instead of near the end.")},
                      {"rank", property("integer", "Task of a gang (default 0).")}},
                     {"job"});
     },
     logs, true},
    {"outputs", "The files that a job kept (--output); with a directory, fetch them there.",
     [] {
       return schema({{"job", job_property()},
                      {"directory", property("string", "Where to write them, on this machine.")}},
                     {"job"});
     },
     outputs, false},
    {"deploy",
     "Deploy an HTTP endpoint that scales with demand; other access than local needs a "
     "person's approval.",
     [] {
       return job_schema(
           {{"name", property("string", "Name of the endpoint.")},
            {"command", command_property()},
            {"min", property("integer", "Replicas that are always awake (default 0).")},
            {"max", property("integer", "Maximum number of replicas (default 1).")},
            {"access", property("string", "local (default), key or open.")},
            {"health", property("string", "Path that answers 2xx when a replica is ready.")}},
           {"name", "command"});
     },
     deploy, false},
    {"stop", "Stop a job; one that this token did not submit needs a person's approval.",
     [] {
       return schema({{"job", job_property()}, {"reason", property("string", "Shown to people.")}},
                     {"job"});
     },
     stop, false},
    {"costs", "What this token has spent, committed and left; with job, what that job costs.",
     [] {
       return schema({{"job", job_property()}});
     },
     costs, true},
    {"list", "Jobs and endpoints of the project, newest first.",
     [] {
       return schema({{"all", property("boolean", "Also jobs that have ended.")},
                      {"limit", property("integer", "At most this many (default 20).")}});
     },
     list, true},
};

}  // namespace

Json tool_list() {
  Json out = Json::array();
  for (const Tool& tool : tools)
    out.push(Json::object({{"name", tool.name},
                           {"description", tool.text},
                           {"inputSchema", tool.input()},
                           {"annotations", Json::object({{"readOnlyHint", tool.reads_only}})}}));
  return out;
}

Result<Json> run_tool(ToolRun& run, std::string_view name, const Json& arguments) {
  for (const Tool& tool : tools)
    if (name == tool.name) {
      const Json input = tool.input();
      for (const auto& [given, value] : arguments.members())
        if (!input["properties"].find(given))
          return fail(Code::invalid, fmt::format("the tool {} has no argument \"{}\"", name, given),
                      "see its input schema");
      for (const Json& needed : input["required"].items())
        if (!arguments.find(needed.as_string()))
          return fail(Code::invalid,
                      fmt::format("the tool {} needs \"{}\"", name, needed.as_string()));
      return tool.run(run, arguments);
    }
  return fail(Code::not_found, fmt::format("there is no tool \"{}\"", name));
}

Json tool_result(const Json& document) {
  Json content = Json::array();
  content.push(Json::object({{"type", "text"}, {"text", document.dump()}}));
  return Json::object(
      {{"content", std::move(content)}, {"structuredContent", document}, {"isError", false}});
}

Json tool_failure(const Error& error, const Json& approval) {
  Json document = Json::object({{"code", code_name(error.code)}, {"message", error.message}});
  if (!error.hint.empty())
    document.set("remedy", error.hint);
  std::string text = error.message + (error.hint.empty() ? "" : ". " + error.hint);
  if (approval.is_object()) {
    document.set("approval", approval);
    text +=
        ". A person was asked; repeat this call with the same arguments once they have approved "
        "it";
  }
  Json content = Json::array();
  content.push(Json::object({{"type", "text"}, {"text", text}}));
  return Json::object({{"content", std::move(content)},
                       {"structuredContent", Json::object({{"error", std::move(document)}})},
                       {"isError", true}});
}

Json approval_of(Client& client, const Error& error) {
  if (error.code != Code::forbidden)
    return {};
  const auto answer = client.get("/v1/approvals");
  if (!answer)
    return {};
  for (const Json& one : (*answer)["approvals"].items())
    if (error.message.find(fmt::format("; approval {} waits", one["id"].uint_or(0))) !=
        std::string::npos)
      return reduced(one, {"id", "action", "text", "state", "expires_at"});
  return {};
}

}  // namespace billow::client::mcp
