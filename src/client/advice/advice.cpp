#include "client/advice/advice.h"

#include <cstdlib>

#include "base/formats/utc.h"
#include "client/frame/ask.h"

namespace billow::client {
namespace {

constexpr int usage_pages_max = 200;
constexpr double usage_days_max = 366;

void print_error(const Parsed& parsed, const Error& error) {
  if (!parsed.has("json"))
    return;
  print_json(Json::object({{"error", Json::object({{"code", code_name(error.code)},
                                                   {"message", error.message},
                                                   {"hint", error.hint}})}}));
}

double seconds_of(WallTime time) {
  return static_cast<double>(time.ns) / 1e9;
}

// The GPUs one job held, or nothing where it held none or never started.
std::optional<advise::UsedSpan> span_of(const Json& job, double now_s) {
  const WallTime from = utc_or_zero(job["started_at"].str_or(""));
  const WallTime to = utc_or_zero(job["ended_at"].str_or(""));
  if (!from)
    return std::nullopt;
  double milli = 0;
  std::string type;
  for (const Json& task : job["tasks"].items()) {
    milli += task["gpu_milli"].double_or(0);
    type = std::string(task["gpu_type"].str_or(type));
  }
  if (milli <= 0 || type.empty())
    return std::nullopt;
  return advise::UsedSpan{type, seconds_of(from), to ? seconds_of(to) : now_s, milli / 1000,
                          job["cost_nano_usd"].double_or(0) / 1e9};
}

}  // namespace

std::string models_directory(const Parsed& parsed) {
  const char* models = std::getenv("BILLOW_MODELS");
  return parsed.get("models", models ? models : "");
}

std::string model_named(const Parsed& parsed) {
  if (parsed.has("model"))
    return parsed.get("model");
  return parsed.operands.size() == 1 ? parsed.operands.front() : std::string{};
}

int report_advice(const Parsed& parsed, const Error& error) {
  print_error(parsed, error);
  return error.code == Code::invalid ? report_usage(error) : report(error);
}

int report_advice_failed(const Parsed& parsed, const Error& error) {
  print_error(parsed, error);
  return report(error);
}

Result<std::vector<advise::UsedSpan>> usage_of_head(Client& client) {
  std::vector<advise::UsedSpan> used;
  std::string cursor;
  const double now_s = seconds_of(now()), since_s = now_s - usage_days_max * 86400;
  for (int page = 0; page < usage_pages_max; ++page) {
    const Json jobs = BILLOW_TRY(client.get(with_query(
        "/v1/jobs", {{"state", "all"}, {"expand", "1"}, {"limit", "500"}, {"cursor", cursor}})));
    bool too_old = false;
    for (const Json& job : jobs["jobs"].items()) {
      auto span = span_of(job, now_s);
      if (!span)
        continue;
      if (span->end_s < since_s)
        too_old = true;
      else if (span->end_s > span->start_s)
        used.push_back(std::move(*span));
    }
    cursor = std::string(jobs["next"].str_or(""));
    if (cursor.empty() || too_old)
      break;
  }
  return used;
}

}  // namespace billow::client
