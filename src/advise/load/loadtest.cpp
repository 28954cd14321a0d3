#include "advise/load/loadtest.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "advise/load/draws.h"
#include "advise/serving_row.h"
#include "base/formats/utc.h"
#include "base/text.h"

namespace billow::advise {
namespace {

constexpr std::size_t arrivals_max = 1'000'000, answer_bytes_kept_max = 4 << 20;

// The first column that has one of these names, in any case; npos if there is none.
std::size_t column_named(const CsvTable& table, std::initializer_list<const char*> names) {
  for (const char* name : names)
    for (std::size_t i = 0; i < table.header.size(); ++i)
      if (lower(table.header[i]) == name)
        return i;
  return std::string::npos;
}

double at(std::vector<double>& sorted, double q) {
  if (sorted.empty())
    return 0;
  auto i = static_cast<std::size_t>(std::ceil(q * static_cast<double>(sorted.size())));
  return sorted[std::clamp<std::size_t>(i, 1, sorted.size()) - 1];
}
Json percentiles_json(const Percentiles& p) {
  return Json::object({{"p50", p.p50}, {"p95", p.p95}, {"p99", p.p99}, {"mean", p.mean}});
}

// A count of tokens; 0 where the cell is empty.
Result<double> tokens_in(const std::string& cell, std::size_t line) {
  if (cell.empty())
    return 0.0;
  const auto value = parse_double(cell);
  if (!value)
    return fail(Code::invalid,
                fmt::format("line {} of the trace: \"{}\" is not a number of tokens", line,
                            cell.substr(0, 40)),
                "columns: timestamp, input_tokens, output_tokens");
  return *value;
}

}  // namespace

Percentiles percentiles(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  Percentiles p{at(values, 0.5), at(values, 0.95), at(values, 0.99), 0};
  for (double v : values)
    p.mean += v / static_cast<double>(values.size());
  return p;
}

std::optional<double> trace_time_s(const std::string& text) {
  if (const auto seconds = parse_double(trim(text)))
    return *seconds;
  if (const auto date = parse_utc(text))
    return static_cast<double>(date->ns) / 1e9;
  return std::nullopt;
}

TraceLoad load_of(const std::vector<Arrival>& arrivals) {
  std::map<std::int64_t, double> minutes;
  TraceLoad load;
  double busiest = 0;
  for (const Arrival& a : arrivals) {
    busiest = std::max(busiest, ++minutes[static_cast<std::int64_t>(std::min(a.at_s, 1e15) / 60)]);
    load.input += a.input;
    load.output += a.output;
  }
  const double n = static_cast<double>(arrivals.size());
  load.rps = busiest / std::clamp(arrivals.back().at_s, 1.0, 60.0);
  load.input = std::max(1.0, std::round(load.input / n));
  load.output = std::max(1.0, std::round(load.output / n));
  return load;
}

std::vector<Arrival> random_arrivals(
    double rps, double seconds, int input, int output, std::uint64_t seed) {
  std::vector<Arrival> out;
  Draws random{seed};
  for (double t = 0; out.size() < arrivals_max;) {
    t += -std::log(random.unit()) / rps;
    if (t >= seconds)
      break;
    out.push_back({t, input, output});
  }
  if (out.empty())
    out.push_back({0, input, output});
  return out;
}

Result<std::vector<Arrival>> trace_arrivals(std::string_view csv, double seconds, double speed) {
  const CsvTable table = BILLOW_TRY(parse_csv(csv, table_format));
  const std::size_t time = column_named(table, {"timestamp", "time", "arrival", "arrived_at", "t"}),
                    input = column_named(
                        table, {"contexttokens", "input_tokens", "input", "num_prefill_tokens"}),
                    output = column_named(
                        table, {"generatedtokens", "output_tokens", "output", "num_decode_tokens"});
  const auto cell = [&](std::size_t row, std::size_t column) {
    return column == std::string::npos ? std::string() : table.rows[row][column];
  };
  std::vector<Arrival> out;
  std::optional<double> begin;
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    const std::size_t line = table.lines[i];
    auto when = trace_time_s(cell(i, time));
    double in = BILLOW_TRY(tokens_in(cell(i, input), line));
    double o = BILLOW_TRY(tokens_in(cell(i, output), line));
    if (!when)
      return fail(Code::invalid, fmt::format("line {} of the trace has no timestamp", line),
                  "columns: timestamp, input_tokens, output_tokens");
    // No tokens requested, or invalid.
    if (!(in >= 1 && in <= 1e6) || !(o >= 1 && o <= 1e6))
      continue;
    if (!begin)
      begin = *when;
    double t = (*when - *begin) / speed;
    if (t < 0)
      return fail(Code::invalid,
                  fmt::format("line {} of the trace is earlier than the line before", line),
                  "sort the trace by time");
    if (t > seconds)
      break;
    if (out.size() >= arrivals_max)
      break;
    out.push_back({t, static_cast<int>(in), static_cast<int>(o)});
  }
  if (out.empty())
    return fail(Code::invalid, "the trace contains no requests",
                "columns: timestamp, input_tokens, output_tokens");
  return out;
}

void AnswerStream::line(std::string_view text, double now_s) {
  if (!text.starts_with("data:"))
    return;
  auto data = trim(text.substr(5));
  ++events_;
  if (data == "[DONE]" || data.empty())
    return;
  auto doc = parse_json(data);
  if (!doc)
    return;
  if (auto& e = (*doc)["error"]; !e.is_null())
    error_ = std::string(e.is_string() ? e.str_or("")
                                       : e["message"].str_or("the server reported an error"));
  if (auto n = doc->at("usage", "completion_tokens").int_or(0); n > 0)
    usage_ = static_cast<int>(std::min<std::int64_t>(n, 10'000'000));
  bool text_came = false;
  for (auto& choice : (*doc)["choices"].items()) {
    auto& delta = choice["delta"];
    text_came |= !choice["text"].str_or("").empty() || !delta["content"].str_or("").empty() ||
                 !delta["reasoning_content"].str_or("").empty();
  }
  // Formats other than OpenAI's: {"token": …}, {"text": …}, {"content": …}.
  text_came |= !(*doc)["content"].str_or("").empty() || !(*doc)["text"].str_or("").empty() ||
               (*doc)["token"].is_object() || (*doc)["token"].is_string();
  if (!text_came)
    return;
  ++counted_;
  if (first_s_ < 0)
    first_s_ = now_s;
  last_s_ = now_s;
}

void AnswerStream::feed(std::string_view bytes, double now_s) {
  if (bytes.empty())
    return;
  std::string first;
  if (!known_) {
    if (begun_s_ < 0)
      begun_s_ = now_s;
    head_.append(bytes);
    auto begin = head_.find_first_not_of("\r\n");
    if (begin == std::string::npos)
      return;
    auto text = std::string_view(head_).substr(begin);
    sse_ = text.starts_with("data:") || text.starts_with("event:") || text.starts_with(":");
    // Data may be split anywhere: "dat" does not yet reveal the format.
    if (!sse_ && (std::string_view("data:").starts_with(text) ||
                  std::string_view("event:").starts_with(text)))
      return;
    known_ = true;
    if (!sse_)
      first_s_ = begun_s_;
    first = std::move(head_);
    bytes = first;
  }
  if (!sse_) {
    last_s_ = now_s;
    if (plain_.size() < answer_bytes_kept_max)
      plain_.append(bytes.substr(0, answer_bytes_kept_max - plain_.size()));
    return;
  }
  rest_.append(bytes);
  std::size_t from = 0;
  for (auto end = rest_.find('\n'); end != std::string::npos; end = rest_.find('\n', from)) {
    line(trim(std::string_view(rest_).substr(from, end - from)), now_s);
    from = end + 1;
  }
  rest_.erase(0, from);
  if (rest_.size() > answer_bytes_kept_max) {
    rest_.clear();
    error_ = "the server sent an event that never ends";
  }
}

void AnswerStream::finish(double now_s) {
  if (!known_ && !head_.empty()) {
    first_s_ = last_s_ = begun_s_;
    plain_ = std::move(head_);
  }
  if (sse_) {
    if (!rest_.empty())
      line(trim(rest_), now_s);
    rest_.clear();
    return;
  }
  if (auto doc = parse_json(plain_)) {
    if (auto n = doc->at("usage", "completion_tokens").int_or(0); n > 0)
      usage_ = static_cast<int>(std::min<std::int64_t>(n, 10'000'000));
    if (auto& e = (*doc)["error"]; !e.is_null())
      error_ = std::string(e.is_string() ? e.str_or("")
                                         : e["message"].str_or("the server reported an error"));
  }
}

namespace {

// Which parts of the service level were missed, and caveats about the figures.
void judge(LoadReport& r, const ServiceLevel& level) {
  if (r.failed > level.errors_share_max * r.requests)
    r.missed.push_back(fmt::format("{} of {} requests failed", r.failed, r.requests));
  if (r.answered == 0)
    return;
  if (level.ttft_ms_max && r.ttft_ms.p95 > *level.ttft_ms_max)
    r.missed.push_back(fmt::format("time to first token: p95 is {:.0f} ms, the limit is {:.0f} ms",
                                   r.ttft_ms.p95, *level.ttft_ms_max));
  if (level.tokens_per_s_min) {
    if (!r.tpot_ms)
      r.missed.push_back("tokens per second are unknown: the answers were not streamed");
    else if (1e3 / r.tpot_ms->p95 < *level.tokens_per_s_min)
      r.missed.push_back(
          fmt::format("tokens per second per user: {:.1f} at p95, the minimum is {:.1f}",
                      1e3 / r.tpot_ms->p95, *level.tokens_per_s_min));
  }
  if (!r.tpot_ms)
    r.notes.push_back(
        "the answers were not streamed token by token: the time per token is unknown, and the "
        "first byte counts as the first token");
  if (r.late_ms_p99 > 50)
    r.notes.push_back(fmt::format(
        "requests were sent up to {:.0f} ms late (p99): this machine is too busy to generate the "
        "load",
        r.late_ms_p99));
  if (r.requests < 20)
    r.notes.push_back(
        fmt::format("only {} requests: the p95 is close to the slowest one", r.requests));
}

}  // namespace

LoadReport summarise(const std::vector<Answered>& answers, const ServiceLevel& level) {
  LoadReport r;
  std::map<std::string, int> errors;
  std::vector<double> ttft, tpot, late;
  double begin = 1e300, end = 0, last_due = 0, busy = 0, tokens = 0;
  for (auto& a : answers) {
    ++r.requests;
    begin = std::min(begin, a.sent_s);
    end = std::max(end, a.end_s);
    last_due = std::max(last_due, a.due_s);
    late.push_back(std::max(0.0, a.sent_s - a.due_s) * 1e3);
    busy += a.end_s - a.sent_s;
    if (!a.error.empty()) {
      ++r.failed;
      ++errors[a.error];
      continue;
    }
    ++r.answered;
    r.streamed += a.streamed;
    r.input_mean += a.input;
    r.output_mean += a.tokens;
    tokens += a.tokens;
    ttft.push_back((a.first_s - a.sent_s) * 1e3);
    if (a.streamed && a.tokens > 1 && a.last_s > a.first_s)
      tpot.push_back((a.last_s - a.first_s) * 1e3 / (a.tokens - 1));
  }
  for (auto& [text, n] : errors)
    r.errors.emplace_back(text, n);
  std::stable_sort(r.errors.begin(), r.errors.end(),
                   [](auto& a, auto& b) { return a.second > b.second; });
  if (answers.empty())
    return r;
  r.seconds = std::max(1e-9, end - begin);
  r.offered_rps = last_due > 0 ? static_cast<double>(r.requests) / std::max(last_due, 1e-9) : 0;
  r.rps = r.answered / r.seconds;
  r.tokens_per_s = tokens / r.seconds;
  r.concurrency = busy / r.seconds;
  if (r.answered > 0) {
    r.input_mean /= r.answered;
    r.output_mean /= r.answered;
  }
  r.late_ms_p99 = percentiles(late).p99;
  r.ttft_ms = percentiles(ttft);
  if (!tpot.empty())
    r.tpot_ms = percentiles(tpot);
  judge(r, level);
  return r;
}

Json load_json(const LoadReport& r) {
  Json errors = Json::array(), missed = Json::array(), notes = Json::array();
  for (auto& [text, n] : r.errors)
    errors.push(Json::object({{"error", text}, {"count", n}}));
  for (auto& m : r.missed)
    missed.push(m);
  for (auto& n : r.notes)
    notes.push(n);
  return Json::object({{"requests", r.requests},
                       {"answered", r.answered},
                       {"failed", r.failed},
                       {"streamed", r.streamed},
                       {"seconds", r.seconds},
                       {"offered_rps", r.offered_rps},
                       {"rps", r.rps},
                       {"tokens_per_s", r.tokens_per_s},
                       {"concurrency", r.concurrency},
                       {"input_mean", r.input_mean},
                       {"output_mean", r.output_mean},
                       {"ttft_ms", percentiles_json(r.ttft_ms)},
                       {"tpot_ms", r.tpot_ms ? percentiles_json(*r.tpot_ms) : Json()},
                       {"late_ms_p99", r.late_ms_p99},
                       {"meets", r.meets()},
                       {"missed", missed},
                       {"errors", errors},
                       {"notes", notes}});
}

std::string load_text(const LoadReport& r) {
  std::string out = fmt::format(
      "{} requests in {:.1f} s ({:.2f}/s offered): {} answered, {} failed; {:.1f} in flight on "
      "average\n",
      r.requests, r.seconds, r.offered_rps, r.answered, r.failed, r.concurrency);
  if (r.answered > 0) {
    out += fmt::format("time to first token  p50 {:>7.0f} ms   p95 {:>7.0f} ms   p99 {:>7.0f} ms\n",
                       r.ttft_ms.p50, r.ttft_ms.p95, r.ttft_ms.p99);
    if (r.tpot_ms)
      out += fmt::format(
          "time per token       p50 {:>7.2f} ms   p95 {:>7.2f} ms   p99 {:>7.2f} ms   ({:.0f} "
          "tokens/s per user at p50)\n",
          r.tpot_ms->p50, r.tpot_ms->p95, r.tpot_ms->p99, 1e3 / r.tpot_ms->p50);
    out += fmt::format(
        "throughput           {:.2f} requests/s, {:.0f} tokens/s; {:.0f} tokens in, {:.0f} out on "
        "average\n",
        r.rps, r.tokens_per_s, r.input_mean, r.output_mean);
  }
  for (std::size_t i = 0; i < r.errors.size() && i < 5; ++i)
    out += fmt::format("  {} × {}\n", r.errors[i].second, r.errors[i].first);
  for (auto& n : r.notes)
    out += "note: " + n + "\n";
  for (auto& m : r.missed)
    out += "missed: " + m + "\n";
  return out;
}

std::string prompt_of(int tokens, std::uint64_t seed) {
  // Short common words are one token each in every tokenizer we know of.
  static constexpr const char* words[] = {
      "time",    "year",    "people",   "way",    "day",   "man",    "thing",   "woman",
      "life",    "child",   "world",    "school", "state", "family", "student", "group",
      "country", "problem", "hand",     "part",   "place", "case",   "week",    "company",
      "system",  "program", "question", "work",   "night", "point",  "home",    "water"};
  Draws random{seed};
  std::string out;
  for (int i = 0; i < tokens; ++i) {
    if (i)
      out += ' ';
    out += words[random.next() % std::size(words)];
  }
  return out;
}

}  // namespace billow::advise
