// GET /v1/jobs/{id}/log/range and /log/search: lines of a log by number, place or text, so that a
// page shows a part of a log of any size. The work is done where the log lies, a bounded part per
// message (core/wire/log_query.h); here the parts become one answer.
#include <fmt/format.h>

#include "api/log_pull.h"
#include "base/limits.h"
#include "base/text.h"
#include "core/wire/log_query.h"

namespace billow::api::streams {
namespace {

using wire::agent_v1::LogChunk;
using wire::agent_v1::LogRead;

constexpr std::int64_t lines_default = 1000, range_lines_max = 10'000, matches_max = 1000;
constexpr std::size_t answer_bytes_max = 4u << 20;  // the page asks for the rest

struct LineQuery : std::enable_shared_from_this<LineQuery> {
  CallPtr call;
  WantedLog wanted;
  LogRead read;
  Json document;
  TaskPlace place;
  std::unique_ptr<net::Subscription> asked;
  std::string lines;
  std::size_t count = 0;
  int patience = absence_tries_once;
  net::Timer retry;

  bool search() const { return read.query == "search"; }

  void begin(std::optional<TaskPlace> at) {
    if (!at) {  // it has not started: its log is empty
      LogChunk nothing;
      nothing.end = true;
      nothing.next_offset = read.offset;
      nothing.line = nothing.first_line = 1;
      return answer(nothing);
    }
    place = *at;
    read.task = at->task;
    ask();
  }
  void ask() {
    asked = call->host.read_log(
        place.node, read,
        [self = shared_from_this()](const LogChunk& chunk, std::string_view frames) {
          // The subscription must not end inside of its own call.
          self->call->host.loop().post([self, chunk, text = std::string(frames)] {
            self->asked.reset();
            self->take(chunk, text);
          });
        });
  }
  void take(const LogChunk& chunk, const std::string& found) {
    if (!call->exchange->open())
      return;
    if (!chunk.error.empty())
      return absent(chunk);
    if (!chunk.answered)
      return call->fail({Code::unsupported,
                         "the agent of the job's node is too old to search its logs",
                         "upgrade billow on the node, or use `billow logs`"});
    if (!found.empty()) {
      lines += lines.empty() ? "" : ",";
      lines += found;
      // Objects begin with their number.
      for (std::size_t at = 0; (at = found.find("{\"line\":", at)) != std::string::npos; ++at)
        ++count;
    }
    if (!chunk.more || count >= read.lines_max || lines.size() >= answer_bytes_max)
      return answer(chunk);
    if (search()) {
      read.offset = chunk.next_offset;
      read.lines_max -=
          static_cast<std::uint32_t>(std::min<std::size_t>(count_taken(), read.lines_max - 1));
    }
    ask();
  }
  std::size_t count_taken() {
    const std::size_t fresh = count - taken_;
    taken_ = count;
    return fresh;
  }
  std::size_t taken_ = 0;

  void absent(const LogChunk& chunk) {
    const std::string away = away_words(call->host, place.node);
    if (away.empty() && !chunk.end && --patience > 0) {
      retry = call->host.loop().after(absence_pause, [self = shared_from_this()] { self->ask(); });
      return;
    }
    if (away.empty())
      return call->fail({Code::unavailable, chunk.error});
    call->fail({Code::unavailable, away, "try again when the node is back; see `billow nodes`"});
  }
  void answer(const LogChunk& last) const {
    std::string out = fmt::format("{{\"job\":\"{}\",\"rank\":{},\"attempt\":{},\"{}\":[{}]",
                                  document["label"].str_or("?"), wanted.rank,
                                  wanted.attempt ? wanted.attempt : document["attempt"].uint_or(0),
                                  search() ? "matches" : "lines", lines);
    if (search())
      out += fmt::format(",\"lines\":{},\"bytes\":{}", last.line > 0 ? last.line - 1 : 0,
                         last.next_offset);
    else
      out += fmt::format(",\"first_line\":{},\"next_line\":{},\"lost_bytes\":{}", last.first_line,
                         last.line, last.lost_bytes);
    out += fmt::format(",\"next_byte\":{},\"end\":{},\"final\":{}}}", last.next_offset, last.end,
                       document["final"].bool_or(false));
    call->exchange->respond(net::Response::json(200, out));
  }
};

void run_query(const std::shared_ptr<LineQuery>& query) {
  const CallPtr& call = query->call;
  const auto ref = parse_job_ref(*call, call->parts[0]);
  const auto rank = number_param(call->request(), "rank", 0);
  const auto attempt = number_param(call->request(), "attempt", 0);
  const auto from = number_param(call->request(), "from_byte", 0);
  if (!ref || !rank || !attempt || !from)
    return call->fail(!ref       ? ref.error()
                      : !rank    ? rank.error()
                      : !attempt ? attempt.error()
                                 : from.error());
  query->wanted = {ref->id, static_cast<std::int64_t>(*rank), *attempt};
  query->read.offset = *from;
  with_job_document(call, ref->id, [query](Json document) {
    if (document.find("elements"))
      return query->call->fail({Code::invalid, "an array has no log; each of its elements has one",
                                fmt::format("name an element: {}.0", document["id"].int_or(0))});
    query->document = document;
    with_place(query->call, query->wanted, document,
               [query](std::optional<TaskPlace> place) { query->begin(place); });
  });
}

Result<std::uint32_t> lines_param(const net::Request& request, std::int64_t most) {
  if (request.param("limit").empty())
    return static_cast<std::uint32_t>(lines_default);
  return static_cast<std::uint32_t>(BILLOW_TRY(parse_int(request.param("limit"), 1, most)));
}

}  // namespace

void log_range(CallPtr call) {
  auto query = std::make_shared<LineQuery>();
  query->call = call;
  query->read.query = "range";
  const auto limit = lines_param(call->request(), range_lines_max);
  const auto line = number_param(call->request(), "from_line", 0);
  const auto tail = number_param(call->request(), "tail", 0);
  if (!limit || !line || !tail)
    return call->fail(!limit ? limit.error() : !line ? line.error() : tail.error());
  query->read.lines_max = *limit;
  query->read.from_line = *line;
  query->read.tail_lines = std::min<std::uint64_t>(*tail, range_lines_max);
  run_query(query);
}

void log_search(CallPtr call) {
  auto query = std::make_shared<LineQuery>();
  query->call = call;
  query->read.query = "search";
  const net::Request& request = call->request();
  const auto limit = lines_param(request, matches_max);
  if (!limit)
    return call->fail(limit.error());
  query->read.lines_max = *limit;
  query->read.text = std::string(request.param("q"));
  query->read.regex = request.param("regex") == "1";
  query->read.any_case = request.param("ignore_case") == "1";
  const std::string& text = query->read.text;
  if (text.empty() || text.size() > limits::words_bytes_max || text.find('\n') != text.npos)
    return call->fail({Code::invalid, fmt::format("q must have 1 to {} bytes, on one line",
                                                  limits::words_bytes_max)});
  if (const Status ok = wire::check_query(wire::query_of(query->read)); !ok)
    return call->fail(ok.error());
  run_query(query);
}

}  // namespace billow::api::streams
