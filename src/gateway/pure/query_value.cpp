#include "gateway/pure/query_value.h"

#include <fmt/format.h>

#include <cmath>

#include "base/json.h"
#include "base/text.h"

namespace billow::gateway {
namespace {

// [time, "value"]
Result<double> sample_value(const Json& sample) {
  const auto& parts = sample.items();
  const Result<double> value = parse_double(parts.size() == 2 ? parts[1].str_or("") : "");
  if (!value || !std::isfinite(*value))
    return fail(Code::invalid, "the query returned a value that is not a number");
  return *value;
}

}  // namespace

Result<double> query_value(int status, std::string_view body) {
  const auto json = parse_json(body);
  if (!json || !json->is_object())
    return fail(Code::invalid,
                fmt::format("the answer (HTTP {}) is not a Prometheus answer", status));
  if ((*json)["status"].str_or("") != "success")
    return fail(Code::invalid,
                fmt::format("HTTP {}: {}", status, (*json)["error"].str_or("no success")));
  const Json& data = (*json)["data"];
  const Json& result = data["result"];
  if (data["resultType"].str_or("") == "scalar")
    return sample_value(result);
  if (data["resultType"].str_or("") != "vector")
    return fail(Code::invalid, "the query must return a number or a vector");
  if (result.items().empty())
    return fail(Code::not_found, "the query returned no series");
  double sum = 0;
  for (const Json& series : result.items())
    sum += BILLOW_TRY(sample_value(series["value"]));
  return sum;
}

}  // namespace billow::gateway
