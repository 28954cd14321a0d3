#include "gateway/record/otlp.h"

#include <cmath>
#include <cstdlib>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "base/append_format.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"

namespace billow::gateway {
namespace {

constexpr Duration send_every = seconds(1);
constexpr std::size_t request_bytes_max = 4 << 20;
constexpr std::size_t points_per_item_max = 1000;
constexpr int cumulative = 2;  // AggregationTemporality of OTLP

std::string_view word_for(OtlpKind kind) {
  return kind == OtlpKind::spans ? "spans" : "metrics";
}

struct OtlpSample {
  std::string name;
  std::vector<std::pair<std::string, std::string>> labels;
  double value = 0;
};

// A line as Exposition writes it: NAME{label="value",…} VALUE.
OtlpSample sample_of(std::string_view line) {
  OtlpSample out;
  std::size_t at = line.find_first_of("{ ");
  out.name = std::string(line.substr(0, at));
  if (at < line.size() && line[at] == '{') {
    ++at;
    while (at < line.size() && line[at] != '}') {
      const std::size_t equals = line.find('=', at);
      std::string name(line.substr(at, equals - at)), value;
      for (at = equals + 2; at < line.size() && line[at] != '"'; ++at) {
        if (line[at] == '\\' && ++at < line.size())
          value += line[at] == 'n' ? '\n' : line[at];
        else
          value += line[at];
      }
      out.labels.emplace_back(std::move(name), std::move(value));
      at += at + 1 < line.size() && line[at + 1] == ',' ? 2 : 1;
    }
    ++at;
  }
  out.value = std::strtod(std::string(line.substr(std::min(at, line.size()))).c_str(), nullptr);
  return out;
}

void append_decimal(std::string& out, double value) {
  if (std::isfinite(value))
    append_format(out, "{}", value);
  else
    out += std::isnan(value) ? "\"NaN\"" : value > 0 ? "\"Infinity\"" : "\"-Infinity\"";
}

void append_attributes(std::string& out, const OtlpSample& sample) {
  out += "\"attributes\":[";
  bool first = true;
  for (const auto& [name, value] : sample.labels) {
    if (name == "le")
      continue;
    out += std::exchange(first, false) ? "{\"key\":" : ",{\"key\":";
    append_json_string(out, name);
    out += ",\"value\":{\"stringValue\":";
    append_json_string(out, value);
    out += "}}";
  }
  out += ']';
}

struct Times {
  std::string began, now;
};

struct Family {
  std::string name, help, type;
  std::vector<OtlpSample> samples;

  std::string head() const {
    std::string out = "{\"name\":";
    append_json_string(out, name);
    out += ",\"description\":";
    append_json_string(out, help);
    return out;
  }

  void add_numbers(const Times& times, std::vector<std::string>& items) const {
    const bool sum = type == "counter";
    for (std::size_t from = 0; from < samples.size(); from += points_per_item_max) {
      std::string item = head();
      if (sum)
        append_format(item,
                      ",\"sum\":{{\"aggregationTemporality\":{},\"isMonotonic\":true,"
                      "\"dataPoints\":[",
                      cumulative);
      else
        item += ",\"gauge\":{\"dataPoints\":[";
      for (std::size_t i = from; i < std::min(samples.size(), from + points_per_item_max); ++i) {
        item += i == from ? "{" : ",{";
        append_attributes(item, samples[i]);
        if (sum)
          append_format(item, ",\"startTimeUnixNano\":\"{}\"", times.began);
        append_format(item, ",\"timeUnixNano\":\"{}\",\"asDouble\":", times.now);
        append_decimal(item, samples[i].value);
        item += '}';
      }
      item += "]}}";
      items.push_back(std::move(item));
    }
  }

  // Of histograms the exposition has counts up to each bound; OTLP wants those between bounds. Each
  // series ends with its _count.
  void add_histograms(const Times& times, std::vector<std::string>& items) const {
    std::string bounds, counts;
    std::uint64_t before = 0;
    double sum = 0;
    for (const OtlpSample& sample : samples) {
      const auto count = static_cast<std::uint64_t>(sample.value);
      if (sample.name.ends_with("_bucket")) {
        const std::string& bound = sample.labels.back().second;
        append_format(counts, "{}\"{}\"", counts.empty() ? "" : ",", count - before);
        if (bound != "+Inf")
          append_format(bounds, "{}{}", bounds.empty() ? "" : ",", bound);
        before = count;
      } else if (sample.name.ends_with("_sum")) {
        sum = sample.value;
      } else {
        std::string item = head();
        append_format(item, ",\"histogram\":{{\"aggregationTemporality\":{},\"dataPoints\":[{{",
                      cumulative);
        append_attributes(item, sample);
        append_format(item,
                      ",\"startTimeUnixNano\":\"{}\",\"timeUnixNano\":\"{}\","
                      "\"count\":\"{}\",\"sum\":",
                      times.began, times.now, count);
        append_decimal(item, sum);
        append_format(item, ",\"bucketCounts\":[{}],\"explicitBounds\":[{}]}}]}}}}", counts,
                      bounds);
        items.push_back(std::move(item));
        bounds.clear();
        counts.clear();
        before = 0;
      }
    }
  }
};

}  // namespace

Result<std::unique_ptr<OtlpSender>> OtlpSender::create(net::Loop& loop, Options options) {
  auto parsed = net::parse_url(options.url);
  if (!parsed)
    return pass(Error(parsed.error()).in(options.option));
  auto out = std::unique_ptr<OtlpSender>(new OtlpSender(std::move(options), std::move(*parsed)));
  out->client_ = BILLOW_TRY(net::HttpClient::create(loop, {}));
  out->timer_ = loop.every(send_every, [at = out.get()] { at->send(); });
  return out;
}

void OtlpSender::push(std::string item) {
  if (queue_.size() >= options_.queue_max) {
    ++dropped_;
    return;
  }
  queue_.push_back(std::move(item));
  if (queue_.size() >= options_.batch_max && !sending_)
    send();
}

void OtlpSender::send() {
  if (sending_ || queue_.empty())
    return;
  const bool spans = options_.kind == OtlpKind::spans;
  std::string body = fmt::format(
      R"({{"resource{0}":[{{"resource":{{"attributes":[{{"key":"service.name","value":)"
      R"({{"stringValue":"{1}"}}}}]}},"scope{0}":[{{"scope":{{"name":"billow"}},"{2}":[)",
      spans ? "Spans" : "Metrics", options_.service, word_for(options_.kind));
  std::size_t items = 0;
  for (; items < options_.batch_max && !queue_.empty() && body.size() < request_bytes_max;
       ++items) {
    if (items > 0)
      body += ',';
    body += queue_.front();
    queue_.pop_front();
  }
  body += "]}]}]}";
  net::ClientRequest request;
  request.endpoint = url_.endpoint;
  request.target = url_.target;
  request.method = net::Method::post;
  request.timeout = seconds(10);
  request.headers = {{"Content-Type", "application/json"}};
  request.body = std::move(body);
  sending_ = true;
  client_->fetch(std::move(request),
                 [this, items](const Result<net::Response>& answer) { sent(items, answer); });
}

void OtlpSender::sent(std::size_t items, const Result<net::Response>& answer) {
  sending_ = false;
  const bool good = answer && answer->status < 300;
  (good ? exported_ : dropped_) += items;
  if (!good && !std::exchange(complained_, true))
    log_warn("the collector of {} refused {} of them: {}", word_for(options_.kind), items,
             answer ? fmt::format("status {}", answer->status) : answer.error().message);
  if (good)
    complained_ = false;
  if (!queue_.empty() && (good || queue_.size() >= options_.batch_max))
    send();
}

std::vector<std::string> otlp_metrics(std::string_view exposition, WallTime began, WallTime now) {
  const Times times{std::to_string(began.ns), std::to_string(now.ns)};
  std::vector<std::string> items;
  Family family;
  const auto finish = [&] {
    if (family.samples.empty())
      return;
    if (family.type == "histogram")
      family.add_histograms(times, items);
    else
      family.add_numbers(times, items);
    family.samples.clear();
  };
  while (!exposition.empty()) {
    const std::size_t end = exposition.find('\n');
    const std::string_view line = exposition.substr(0, end);
    exposition.remove_prefix(end == std::string_view::npos ? exposition.size() : end + 1);
    if (line.starts_with("# HELP ")) {
      finish();
      const std::string_view rest = line.substr(7);
      family.name = std::string(rest.substr(0, rest.find(' ')));
      family.help = std::string(rest.substr(std::min(rest.size(), family.name.size() + 1)));
    } else if (line.starts_with("# TYPE ")) {
      family.type = std::string(line.substr(line.rfind(' ') + 1));
    } else if (!line.empty()) {
      family.samples.push_back(sample_of(line));
    }
  }
  finish();
  return items;
}

}  // namespace billow::gateway
