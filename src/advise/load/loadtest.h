// The arithmetic of a load test: when requests are sent, how a streamed answer becomes times, and
// how the results compare with a service level. Sockets and clocks belong to the caller
// (client/advice/cmd_loadtest.cpp); time is an argument here.
//
// Requests are sent when due, whether or not earlier ones were answered: a slow server must not
// reduce the load that it is judged by.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace billow::advise {

struct Arrival {
  double at_s = 0;
  int input = 0, output = 0;  // tokens
};

// A time in a trace: seconds, or "2023-11-16 18:15:46.68" as seconds since 1970; empty if it is
// neither.
std::optional<double> trace_time_s(const std::string& text);

// Evenly random arrivals at a mean rate, the same for the same seed.
std::vector<Arrival> random_arrivals(
    double rps, double seconds, int input, int output, std::uint64_t seed);
// From a CSV of arrivals (timestamp, input tokens, output tokens): the first `seconds` of it, times
// divided by `speed`. Times are seconds, or "2023-11-16 18:15:46.68".
Result<std::vector<Arrival>> trace_arrivals(std::string_view csv, double seconds, double speed);

// The load of a trace: the rate of its busiest minute (or of all of a shorter one) and the mean
// lengths of its requests.
struct TraceLoad {
  double rps = 0, input = 0, output = 0;
};
TraceLoad load_of(const std::vector<Arrival>& arrivals);

// One answer in transit. Server-sent events with OpenAI's documents are counted token by token (an
// event with text is one, unless a usage count at the end is more accurate); any other body gives a
// first byte and an end.
class AnswerStream {
 public:
  void feed(std::string_view bytes, double now_s);
  double first_s() const { return first_s_; }  // of the first token (or byte); < 0: none yet
  double last_s() const { return last_s_; }
  int tokens() const { return usage_ > 0 ? usage_ : counted_; }
  bool streamed() const { return events_ > 1; }
  const std::string& error() const { return error_; }
  void finish(double now_s);  // the body is over

 private:
  void line(std::string_view text, double now_s);
  std::string head_, rest_, plain_;  // head_: the first bytes, until the format is known
  double begun_s_ = -1, first_s_ = -1, last_s_ = -1;
  int counted_ = 0, events_ = 0, usage_ = 0;
  bool known_ = false, sse_ = false;
  std::string error_;
};

struct Answered {
  double due_s = 0, sent_s = 0, first_s = 0, end_s = 0, last_s = 0;
  int input = 0, tokens = 0;
  bool streamed = false;
  std::string error;  // empty: it was answered
};

struct ServiceLevel {
  std::optional<double> ttft_ms_max, tokens_per_s_min;
  double errors_share_max = 0.01;
};

struct Percentiles {
  double p50 = 0, p95 = 0, p99 = 0, mean = 0;
};
Percentiles percentiles(std::vector<double> values);

struct LoadReport {
  int requests = 0, answered = 0, failed = 0, streamed = 0;
  std::vector<std::pair<std::string, int>> errors;  // most frequent first
  double seconds = 0;                               // from the first request to the last answer
  double offered_rps = 0, rps = 0, tokens_per_s = 0;
  double concurrency = 0;  // mean requests in flight
  double input_mean = 0, output_mean = 0;
  double late_ms_p99 = 0;  // how late requests were sent: the client's own delay
  Percentiles ttft_ms;
  std::optional<Percentiles> tpot_ms;  // empty if answers were not streamed
  std::vector<std::string> missed;  // "TTFT p95 812 ms > 500 ms"; empty: the service level is met
  std::vector<std::string> notes;
  bool meets() const { return missed.empty(); }
};
LoadReport summarise(const std::vector<Answered>& answers, const ServiceLevel& level);
Json load_json(const LoadReport& report);
std::string load_text(const LoadReport& report);

// About `tokens` tokens of plain text, different for every request so that no cache answers.
std::string prompt_of(int tokens, std::uint64_t seed);

}  // namespace billow::advise
