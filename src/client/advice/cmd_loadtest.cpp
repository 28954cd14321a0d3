// loadtest: sends a load to an HTTP endpoint that streams tokens and compares the answers with the
// service level. Requests are sent on schedule from one loop; the arithmetic is in
// advise/load/loadtest. Results for a known model on a known GPU recalibrate `advise` for this
// installation.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <csignal>
#include <cstdlib>
#include <map>
#include <memory>

#include "advise/imported_prices.h"
#include "advise/load/loadtest.h"
#include "advise/measurements.h"
#include "advise/pricing.h"
#include "base/crypto.h"
#include "base/file.h"
#include "base/text.h"
#include "client/frame/commands.h"
#include "client/frame/console.h"
#include "client/frame/values.h"
#include "net/http/http_client.h"

namespace billow::client {
namespace {

constexpr std::size_t in_flight_max = 4096;

constexpr OptionSpec loadtest_options[] = {
    {"rps", 0, "N", "requests per second, at random times"},
    {"trace", 0, "CSV", "replay a trace of requests (timestamp, input tokens, output tokens)",
     false, Completes::file},
    {"speed", 0, "X", "with --trace: speed-up factor (default 1)"},
    {"for", 0, "T", "how long to send requests (default 60s)"},
    {"input", 0, "N", "with --rps: tokens per request (default 512)"},
    {"output", 0, "N", "with --rps: maximum tokens per answer (default 128)"},
    {"ttft", 0, "T", "service level: longest time to the first token for 95 % of requests"},
    {"tps", 0, "N", "service level: lowest tokens per second per user for 95 % of requests"},
    {"served-model", 0, "NAME", "the endpoint's name for its model (default: the first it lists)"},
    {"timeout", 0, "T", "silence after which a request counts as failed (default 60s)"},
    {"model", 'm', "MODEL",
     "served model: a config.json, a name in --models or a size; with --gpu the result "
     "recalibrates advise",
     false, Completes::file},
    {"models", 0, "DIR", "directory of config files (BILLOW_MODELS)", false, Completes::directory},
    {"gpu", 0, "TYPE", "GPU type of the endpoint"},
    {"tensor", 0, "N", "number of GPUs the model is split over (default 1)"},
    {"precision", 0, "P", "precision of the weights (default: that of the checkpoint)"},
    {"engine", 0, "NAME", "vllm (default), sglang or trtllm", false, Completes::choice,
     "vllm,sglang,trtllm"},
    {"engine-version", 0, "V", "version of the engine"},
    {"seed", 0, "N", "seed of the random times (default 1)"},
};

struct Target {
  std::string gpu;   // empty: not told
  std::string name;  // of an endpoint of this head; empty: an address was given
  std::string url;
  net::Url parsed;
  bool chat = false;
};

Result<Target> parse_operand(const std::string& text) {
  Target t{.gpu = {}, .url = text, .parsed = {}};
  const auto is_url = [](std::string_view s) {
    return s.starts_with("http://") || s.starts_with("https://") || s.starts_with("unix:");
  };
  if (const auto at = text.find('='); at != std::string::npos && !is_url(text)) {
    t.gpu = text.substr(0, at);
    t.url = text.substr(at + 1);
  }
  if (!is_url(t.url)) {
    t.name = t.url;
    const bool plain =
        !t.name.empty() && std::all_of(t.name.begin(), t.name.end(), [](unsigned char c) {
          return std::isalnum(c) || c == '-' || c == '_' || c == '.';
        });
    if (!plain)
      return fail(Code::invalid,
                  fmt::format("\"{}\" is neither the name nor the address of an endpoint", text),
                  "for example http://127.0.0.1:8000/v1/completions, or L4=http://… with its GPU; "
                  "see `billow endpoints`");
  }
  return t;
}

// The address of an endpoint of this head, and the GPU of its replicas where the user gave none.
Status find_endpoint(Client& client, Target& t) {
  auto found = client.get("/v1/endpoints/" + net::percent_encode(t.name));
  if (!found && found.error().code == Code::not_found)
    return fail(Code::not_found, fmt::format("this head has no endpoint \"{}\"", t.name),
                "see `billow endpoints`, or give an address: http://127.0.0.1:8000/v1/completions");
  if (!found)
    return pass(found.error());
  t.url = std::string((*found)["url"].str_or(""));
  if (t.url.empty())
    return fail(Code::unavailable, fmt::format("no gateway currently serves {}", t.name),
                "try again when `billow endpoints` shows an address");
  t.url += "v1/completions";
  for (const Json& replica : (*found)["replicas"].items()) {
    if (!t.gpu.empty())
      break;
    if (const auto job = client.get(path_of_job(std::to_string(replica["job"].int_or(0)))))
      for (const Json& task : (*job)["tasks"].items())
        t.gpu = std::string(task["gpu_type"].str_or(""));
  }
  return {};
}

Status parse_address(Target& t) {
  auto parsed = net::parse_url(t.url);
  if (!parsed)
    return pass(parsed.error(), t.url);
  t.parsed = std::move(*parsed);
  if (t.parsed.target.empty() || t.parsed.target == "/")
    t.parsed.target = "/v1/completions";
  t.chat = t.parsed.target.find("/chat/") != std::string::npos;
  return {};
}

// The load of one test and how it is judged.
struct Plan {
  std::vector<advise::Arrival> arrivals;
  advise::ServiceLevel level;
  Duration timeout = seconds(60);
  std::string served_model;
  std::uint64_t seed = 1;
};

double to_seconds(SteadyTime from, SteadyTime to) {
  return static_cast<double>((to - from).ns) / 1e9;
}

net::Headers headers_of() {
  net::Headers headers{{"Content-Type", "application/json"},
                       {"Accept", "text/event-stream, application/json"}};
  // The credential comes from the environment, never from the command line, where other users could
  // read it.
  if (const char* token = std::getenv("BILLOW_ENDPOINT_TOKEN"); token && *token)
    headers.add("Authorization", std::string("Bearer ") + token);
  return headers;
}

std::string body_of(const Target& target,
                    const Plan& plan,
                    const advise::Arrival& a,
                    std::uint64_t number) {
  const std::string prompt = advise::prompt_of(a.input, plan.seed * 1'000'003 + number);
  Json body = Json::object({{"model", plan.served_model},
                            {"max_tokens", a.output},
                            {"stream", true},
                            {"stream_options", Json::object({{"include_usage", true}})}});
  if (target.chat)
    body.set("messages", Json(Json::Array{Json::object({{"role", "user"}, {"content", prompt}})}));
  else
    body.set("prompt", prompt);
  return body.dump();
}

class Test {
 public:
  Test(net::Loop& loop, net::HttpClient& client, const Target& target, const Plan& plan)
      : loop_(loop), client_(client), target_(target), plan_(plan) {}

  ~Test() {
    for (const auto& call : calls_)
      call->cancel();  // what is still under way must not find us gone
  }
  Test(const Test&) = delete;

  // Until every request is answered, has failed, or Ctrl-C.
  std::vector<advise::Answered> run(const bool& interrupted) {
    answers_.resize(plan_.arrivals.size());
    streams_.resize(plan_.arrivals.size());
    begun_ = loop_.steady();
    send_due();
    const double last = plan_.arrivals.back().at_s;
    const double most = last + static_cast<double>(plan_.timeout.ns) / 1e9 * 4 + 600;
    loop_.run_until(
        [&] { return interrupted || (sent_ == plan_.arrivals.size() && in_flight_ == 0); },
        seconds(static_cast<std::int64_t>(most)));
    std::vector<advise::Answered> out;
    for (std::size_t i = 0; i < sent_; ++i)
      if (ended_[i])
        out.push_back(std::move(answers_[i]));
    return out;
  }

 private:
  double now_s() const { return to_seconds(begun_, loop_.steady()); }

  void send_due() {
    while (sent_ < plan_.arrivals.size() && plan_.arrivals[sent_].at_s <= now_s() + 1e-4)
      send(sent_++);
    if (sent_ >= plan_.arrivals.size())
      return;
    const double wait = std::max(0.0, plan_.arrivals[sent_].at_s - now_s());
    next_ = loop_.after(Duration{static_cast<std::int64_t>(wait * 1e9)}, [this] { send_due(); });
  }

  void send(std::size_t i) {
    ended_.resize(plan_.arrivals.size());
    const advise::Arrival& arrival = plan_.arrivals[i];
    advise::Answered& a = answers_[i];
    a.due_s = arrival.at_s;
    a.sent_s = now_s();
    a.input = arrival.input;
    if (in_flight_ >= in_flight_max)
      return end(i, fmt::format("not sent: {} requests were in flight", in_flight_max));
    ++in_flight_;
    net::ClientRequest request;
    request.endpoint = target_.parsed.endpoint;
    request.method = net::Method::post;
    request.target = target_.parsed.target;
    request.headers = headers_of();
    request.body = body_of(target_, plan_, arrival, i);
    request.timeout = plan_.timeout;
    request.on_head = [this, i](const net::Response& head) {
      status_[i] = head.status;
    };
    request.on_chunk = [this, i](std::string_view bytes) {
      streams_[i].feed(bytes, now_s());
    };
    calls_.push_back(client_.fetch(std::move(request), [this, i](Result<net::Response> response) {
      --in_flight_;
      streams_[i].finish(now_s());
      if (!response)
        return end(i, response.error().message);
      const int status =
          response->status >= 400 || !status_.contains(i) ? response->status : status_[i];
      if (status >= 400)
        return end(
            i, fmt::format(
                   "HTTP {}{}", status,
                   streams_[i].error().empty() ? "" : ": " + streams_[i].error().substr(0, 120)));
      if (!streams_[i].error().empty())
        return end(i, streams_[i].error().substr(0, 160));
      if (streams_[i].first_s() < 0)
        return end(i, "the answer contained no token");
      end(i, "");
    }));
  }

  void end(std::size_t i, std::string error) {
    advise::Answered& a = answers_[i];
    a.error = std::move(error);
    a.end_s = now_s();
    a.first_s = streams_[i].first_s();
    a.last_s = streams_[i].last_s();
    a.tokens = streams_[i].tokens();
    a.streamed = streams_[i].streamed();
    ended_[i] = true;
  }

  net::Loop& loop_;
  net::HttpClient& client_;
  const Target& target_;
  const Plan& plan_;
  SteadyTime begun_;
  std::size_t sent_ = 0, in_flight_ = 0;
  std::vector<advise::Answered> answers_;
  std::vector<advise::AnswerStream> streams_;
  std::map<std::size_t, int> status_;
  std::vector<bool> ended_;
  std::vector<std::shared_ptr<net::HttpClient::Call>> calls_;
  net::Timer next_;
};

// The endpoint's name for its model: the first of /v1/models; empty where it lists none.
std::string served_model(net::Loop& loop, net::HttpClient& client, const Target& target) {
  std::string path = target.parsed.target;
  const auto at = path.find("/v1/");
  path = (at == std::string::npos ? std::string{} : path.substr(0, at)) + "/v1/models";
  std::optional<std::string> name;
  net::ClientRequest request{.endpoint = target.parsed.endpoint,
                             .target = path,
                             .headers = headers_of(),
                             .body = {},
                             .timeout = seconds(10),
                             .on_head = {},
                             .on_chunk = {}};
  client.fetch(std::move(request), [&](Result<net::Response> response) {
    name = "";
    if (!response || response->status != 200)
      return;
    if (auto doc = parse_json(response->body))
      if (const auto& models = (*doc)["data"].items(); !models.empty())
        name = std::string(models[0]["id"].str_or(""));
  });
  loop.run_until([&] { return name.has_value(); }, seconds(12));
  return name.value_or("");
}

Result<double> seconds_option(const Parsed& parsed, const char* name, double fallback) {
  if (!parsed.has(name))
    return fallback;
  auto d = duration_with_unit(parsed.get(name));
  if (!d)
    return pass(d.error(), std::string("--") + name);
  if (d->ns <= 0)
    return fail(Code::invalid, fmt::format("--{} must be more than zero", name));
  return static_cast<double>(d->ns) / 1e9;
}

Result<Plan> plan_of(const Parsed& parsed) {
  Plan plan;
  if (parsed.has("rps") == parsed.has("trace"))
    return fail(
        Code::invalid,
        parsed.has("rps") ? "--rps and --trace exclude each other: give one" : "no load given",
        "add --rps 5, or --trace arrivals.csv");
  const double length = BILLOW_TRY(seconds_option(parsed, "for", 60));
  plan.seed = static_cast<std::uint64_t>(BILLOW_TRY(number_option(parsed, "seed", 1, 0, 1e15)));
  if (parsed.has("rps")) {
    const double rps = BILLOW_TRY(number_option(parsed, "rps", 1, 0.01, 10000));
    const double input = BILLOW_TRY(number_option(parsed, "input", 512, 1, 1e6)),
                 output = BILLOW_TRY(number_option(parsed, "output", 128, 1, 1e6));
    plan.arrivals = advise::random_arrivals(rps, length, static_cast<int>(input),
                                            static_cast<int>(output), plan.seed);
  } else {
    const double speed = BILLOW_TRY(number_option(parsed, "speed", 1, 0.001, 1000));
    auto text = read_file(parsed.get("trace"), 256 << 20);
    if (!text)
      return pass(text.error());
    plan.arrivals = BILLOW_TRY(advise::trace_arrivals(*text, length, speed));
  }
  if (parsed.has("ttft"))
    plan.level.ttft_ms_max = BILLOW_TRY(seconds_option(parsed, "ttft", 1)) * 1e3;
  if (parsed.has("tps"))
    plan.level.tokens_per_s_min = BILLOW_TRY(number_option(parsed, "tps", 1, 0.01, 1e5));
  plan.timeout =
      Duration{static_cast<std::int64_t>(BILLOW_TRY(seconds_option(parsed, "timeout", 60)) * 1e9)};
  plan.served_model = parsed.get("served-model");
  return plan;
}

// Saves the result for `advise` and compares it with the prediction. Does nothing where the model
// or the GPU is unknown.
Result<std::string> recalibrate(const Parsed& parsed,
                                const Target& target,
                                const advise::LoadReport& report) {
  const std::string gpu = target.gpu.empty() ? parsed.get("gpu") : target.gpu;
  if (!parsed.has("model") || gpu.empty())
    return std::string(
        "with --model and --gpu the result recalibrates `billow advise` for this installation\n");
  if (report.answered < 10 || !report.tpot_ms)
    return std::string("too few answers to recalibrate advise\n");
  const std::string data = data_directory(parsed.get("data")),
                    models = parsed.get(
                        "models", std::getenv("BILLOW_MODELS") ? std::getenv("BILLOW_MODELS") : "");
  auto catalogue = BILLOW_TRY(advise::catalogue_with_imports(data));
  advise::ServingMeasurement m{
      .model = parsed.get("model"),
      .gpu = BILLOW_TRY(catalogue.gpu(gpu))->name,
      .engine = parsed.get("engine", "vllm"),
      .version = parsed.get("engine-version"),
      .precision = parsed.get("precision"),
      .tensor = static_cast<int>(BILLOW_TRY(number_option(parsed, "tensor", 1, 1, 1024))),
      .concurrency = std::max(1.0, report.concurrency),
      .input = report.input_mean,
      .output = std::max(1.0, report.output_mean),
      .ttft_ms = report.ttft_ms.p50,
      .tpot_ms = report.tpot_ms->p50,
      .measured_at = format_utc(now())};
  if (char here[4096];
      file_exists(m.model) && !m.model.starts_with('/') && ::getcwd(here, sizeof here))
    m.model = std::string(here) + "/" + m.model;
  advise::ModelShelf shelf(models);
  advise::CsvRow row{{"model_path", m.model},
                     {"system", m.gpu},
                     {"backend", m.engine},
                     {"backend_version", m.version},
                     {"precision", m.precision},
                     {"isl", fmt::format("{:.0f}", std::max(1.0, m.input))},
                     {"osl", fmt::format("{:.0f}", m.output)},
                     {"batch_size", fmt::format("{:.2f}", m.concurrency)},
                     {"tp_size", fmt::format("{}", m.tensor)}};
  auto served = BILLOW_TRY(advise::read_serving_row(row, shelf, catalogue));
  auto calibration = advise::Calibration::embedded();
  auto before =
      calibration.with_local(BILLOW_TRY(advise::read_measurements(data, models, catalogue)).rows)
          .predict(served);
  BILLOW_TRY_VOID(advise::append_measurement(data, m));
  auto after =
      calibration.with_local(BILLOW_TRY(advise::read_measurements(data, models, catalogue)).rows)
          .predict(served);
  std::string text =
      fmt::format("saved in {}: advise is recalibrated for this model, GPU, engine and precision\n",
                  advise::measurements_path(data));
  if (before && after)
    text += fmt::format(
        "  time per token at {:.1f} sequences: predicted {:.2f} ms ({:.2f}–{:.2f}), measured "
        "{:.2f} ms, now predicts {:.2f} ms\n",
        m.concurrency, before->tpot_ms.value, before->tpot_ms.low, before->tpot_ms.high, m.tpot_ms,
        after->tpot_ms.value);
  return text;
}

// Smallest first: by what one such GPU rents for.
void sort_by_size(std::vector<Target>& targets, const Catalogue& catalogue) {
  const auto price = [&](const Target& t) {
    const auto gpu = catalogue.gpu(t.gpu);
    const auto hour = gpu ? advise::cheapest_rent(**gpu, {}, catalogue, now()) : std::nullopt;
    return hour ? hour->usd_h : 1e9;
  };
  std::stable_sort(targets.begin(), targets.end(),
                   [&](const Target& a, const Target& b) { return price(a) < price(b); });
}

// The endpoints of the operands, with their addresses; the GPU of a name where the head knows it.
Result<std::vector<Target>> targets_of(const Parsed& parsed) {
  std::vector<Target> targets;
  for (const std::string& operand : parsed.operands)
    targets.push_back(BILLOW_TRY(parse_operand(operand)));
  if (targets.empty())
    return fail(Code::invalid, "no endpoint given",
                "for example: billow loadtest NAME --rps 5, or billow loadtest "
                "http://127.0.0.1:8000/v1/completions --rps 5");
  return targets;
}

Status find_addresses(const Parsed& parsed, std::vector<Target>& targets) {
  const auto named = [](const Target& t) {
    return !t.name.empty();
  };
  if (std::any_of(targets.begin(), targets.end(), named)) {
    auto client = BILLOW_TRY(connect(parsed));
    for (Target& t : targets)
      if (named(t))
        BILLOW_TRY_VOID(find_endpoint(client, t));
  }
  for (Target& t : targets)
    BILLOW_TRY_VOID(parse_address(t));
  return {};
}

// A GPU that the user named must be in the catalogue; one that the head named is dropped instead.
Status check_gpus(std::vector<Target>& targets, const Catalogue& catalogue) {
  for (Target& t : targets) {
    if (t.gpu.empty())
      continue;
    const auto gpu = catalogue.gpu(t.gpu);
    if (gpu)
      continue;
    if (t.name.empty())
      return pass(gpu.error());
    t.gpu.clear();
  }
  return {};
}

bool needs_key(const advise::LoadReport& result) {
  return !result.errors.empty() && (result.errors.front().first.starts_with("HTTP 401") ||
                                    result.errors.front().first.starts_with("HTTP 403"));
}

// Tests the endpoints one after the other until one meets the service level.
class Tests {
 public:
  Tests(const Parsed& parsed, const Plan& plan, net::Loop& loop, net::HttpClient& client)
      : parsed_(parsed), plan_(plan), loop_(loop), client_(client) {}

  Status run(const std::vector<Target>& targets, bool& interrupted) {
    for (const Target& target : targets) {
      BILLOW_TRY_VOID(test(target, interrupted));
      if (!viable_.empty() || interrupted)
        break;  // smallest first: larger ones do it too
    }
    return {};
  }

  void show_outcome(std::size_t targets) const {
    if (parsed_.has("json"))
      print_json(Json::object(
          {{"tests", tests_}, {"smallest_viable", viable_.empty() ? Json() : Json(viable_)}}));
    else if (targets > 1)
      print(viable_.empty() ? std::string("none meets the service level\n")
                            : fmt::format("smallest that meets the service level: {}\n", viable_));
  }
  bool met() const { return !viable_.empty(); }

 private:
  Status test(const Target& target, bool& interrupted) {
    Plan mine = plan_;
    if (mine.served_model.empty())
      mine.served_model = served_model(loop_, client_, target);
    if (!parsed_.has("json"))
      say(fmt::format("{}{}: {} requests over {:.0f} s …",
                      target.gpu.empty() ? "" : target.gpu + " at ", target.url,
                      mine.arrivals.size(), mine.arrivals.back().at_s));
    const auto answers = Test(loop_, client_, target, mine).run(interrupted);
    const auto result = advise::summarise(answers, mine.level);
    if (result.requests == 0)
      return fail(Code::unavailable, "no request was sent");
    if (needs_key(result))
      say(fmt::format("{} requires a key: set BILLOW_ENDPOINT_TOKEN{}",
                      target.name.empty() ? target.url : target.name,
                      target.name.empty()
                          ? ""
                          : fmt::format(" to a key from `billow endpoint-key {}`", target.name)));
    show(target, result);
    if (result.meets() && result.answered > 0)
      viable_ = target.gpu.empty() ? target.url : target.gpu;
    return {};
  }

  void show(const Target& target, const advise::LoadReport& result) {
    const auto kept = result.answered
                          ? recalibrate(parsed_, target, result)
                          : Result<std::string>(std::string("no request was answered\n"));
    if (parsed_.has("json")) {
      Json test = advise::load_json(result);
      test.set("endpoint", target.url);
      test.set("gpu", target.gpu.empty() ? Json() : Json(target.gpu));
      test.set("recalibrated", kept && kept->starts_with("saved"));
      if (!kept)
        test.set("recalibration_error", kept.error().message);
      tests_.push(std::move(test));
      return;
    }
    print(advise::load_text(result));
    if (plan_.level.ttft_ms_max || plan_.level.tokens_per_s_min)
      print(result.meets() ? "service level met\n" : "service level not met\n");
    if (kept)
      print(*kept);
    else
      say(fmt::format("advise was not recalibrated: {}", kept.error().message));
  }

  const Parsed& parsed_;
  const Plan& plan_;
  net::Loop& loop_;
  net::HttpClient& client_;
  Json tests_ = Json::array();
  std::string viable_;
};

int cmd_loadtest(const Parsed& parsed) {
  auto targets = targets_of(parsed);
  if (!targets)
    return report_usage(targets.error());
  const auto plan = plan_of(parsed);
  if (!plan)
    return report_usage(plan.error());
  const auto failed = [](const Error& error) {
    return error.code == Code::invalid ? report_usage(error) : report(error);
  };
  if (const Status found = find_addresses(parsed, *targets); !found)
    return failed(found.error());
  const auto catalogue = advise::catalogue_with_imports(data_directory(parsed.get("data")));
  if (!catalogue)
    return report(catalogue.error());
  if (const Status known = check_gpus(*targets, *catalogue); !known)
    return report_usage(known.error());
  sort_by_size(*targets, *catalogue);
  net::Loop loop;
  net::HttpClient::Options client_options;
  client_options.connections_max = in_flight_max;
  auto client = net::HttpClient::create(loop, client_options);
  if (!client)
    return report(client.error());
  bool interrupted = false;
  const net::Watch signals = loop.on_signal({SIGINT, SIGTERM}, [&](int) { interrupted = true; });
  Tests tests(parsed, *plan, loop, **client);
  if (const Status ran = tests.run(*targets, interrupted); !ran)
    return report(ran.error());
  tests.show_outcome(targets->size());
  if (interrupted)
    return 130;
  return tests.met() ? 0 : exit_failed;
}

}  // namespace

void add_loadtest_commands(CommandTable& table) {
  table.push_back(
      {.name = "loadtest",
       .summary = "measure an endpoint's latency and throughput against a service level",
       .example =
           "billow loadtest chat --rps 5 --ttft 500ms --tps 20\n"
           "billow loadtest http://127.0.0.1:8000/v1/completions --rps 5 --ttft 500ms --tps 20\n"
           "billow loadtest L4=http://10.0.0.5:8000 A100=http://10.0.0.6:8000 --trace arrivals.csv "
           "--model config.json",
       .run = cmd_loadtest,
       .usage = "[GPU=]ENDPOINT…",
       .details =
           "ENDPOINT is the name of a deployed endpoint, or any address. Requests are streamed "
           "OpenAI completions (chat completions if the path says so) and are sent on schedule, "
           "however slow the answers are. Several endpoints are tested from the smallest GPU "
           "upwards until one meets the service level. BILLOW_ENDPOINT_TOKEN is sent as the "
           "credential. The exit code is 0 if the service level is met.",
       .options = {loadtest_options},
       .operands = Operands::some,
       .group = "money and advice"});
}

}  // namespace billow::client
