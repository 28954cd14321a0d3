// GET /v1/jobs/{id}/logs: a job's log, raw, as server-sent events or as the records of the log,
// once or as it is written; all of it, from a time on, or the lines with a text in them.
#include <fmt/format.h>

#include <cstring>

#include "api/log_pull.h"
#include "base/crypto.h"
#include "base/limits.h"
#include "base/text.h"
#include "core/control/quotas.h"
#include "core/wire/log_frames.h"
#include "net/http/sse.h"

namespace billow::api::streams {
namespace {

using wire::agent_v1::LogChunk;

// Passes on the records from a time on; of a search, each line that matches as a record of its own,
// with the time at which the line began.
class RecordFilter {
 public:
  WallTime since;
  std::string needle;  // in lower case if the case is ignored
  bool any_case = false;
  using Pass = std::function<void(const wire::LogRecord&)>;

  bool passes_all() const { return since.ns == 0 && needle.empty(); }
  void take(const wire::LogRecord& record, const Pass& pass) {
    if (needle.empty()) {
      if (record.time >= since)
        pass(record);
      return;
    }
    Line& line = lines_[record.stream == wire::LogStream::err];
    if (line.text.empty())
      line.began = record;
    const std::size_t newline = record.data.rfind('\n');
    if (newline == std::string_view::npos) {
      line.text += record.data;
      if (line.text.size() >= line_bytes_max)
        cut(line, pass);
      return;
    }
    line.text += record.data.substr(0, newline + 1);
    search(line, pass);
    line.text = record.data.substr(newline + 1);
    line.began = record;
  }
  // The log ends: what is left of it is a line.
  void end(const Pass& pass) {
    for (Line& line : lines_) {
      if (line.text.empty())
        continue;
      line.text += '\n';
      search(line, pass);
      line.text.clear();
    }
  }

 private:
  static constexpr std::size_t line_bytes_max = 1 << 20;
  struct Line {
    std::string text;
    wire::LogRecord began;
  };
  // A line too long to be kept whole is searched in parts. The next part begins with what could be
  // the beginning of a match here; it is shorter than a match, so nothing is found twice.
  void cut(Line& line, const Pass& pass) const {
    search(line, pass);
    line.text.erase(0, line.text.size() - std::min(line.text.size(), needle.size() - 1));
  }
  void search(const Line& lines, const Pass& pass) const {
    if (needle.empty() || lines.text.empty() || lines.began.time < since)
      return;
    const std::string folded = any_case ? lower(lines.text) : std::string();
    const std::string_view text = lines.text, looked_at = any_case ? folded : text;
    for (std::size_t at = looked_at.find(needle); at != std::string_view::npos;) {
      const std::size_t before = at == 0 ? std::string_view::npos : text.rfind('\n', at - 1);
      std::size_t from = before == std::string_view::npos ? 0 : before + 1;
      const std::size_t newline = text.find('\n', at);
      const std::size_t to = newline == std::string_view::npos ? text.size() : newline + 1;
      const std::size_t next = to;
      for (; from < to; from += wire::record_data_bytes_max) {
        wire::LogRecord found = lines.began;
        found.data =
            text.substr(from, std::min<std::size_t>(to - from, wire::record_data_bytes_max));
        pass(found);
      }
      at = looked_at.find(needle, next);
    }
  }
  Line lines_[2];
};

void put_record(std::string& out,
                std::uint8_t stream,
                std::string_view data,
                WallTime time = {},
                std::uint8_t flags = 0) {
  const wire::RecordHead head{static_cast<std::uint32_t>(data.size()), stream, flags, 0, time.ns};
  out.append(reinterpret_cast<const char*>(&head), sizeof(head)).append(data);
}
void put_number(std::string& out, std::uint8_t stream, std::uint64_t number) {
  put_record(out, stream, {reinterpret_cast<const char*>(&number), sizeof(number)});
}

struct LogStream : std::enable_shared_from_this<LogStream> {
  CallPtr call;
  JobId job;
  std::int64_t rank = 0;
  std::uint64_t attempt = 0;  // only the log of this one; 0: of the newest
  bool sse = false, records = false, follow = false;
  RecordFilter filter;
  std::uint64_t offset = 0;
  std::int64_t tail = -1;
  std::optional<TaskPlace> earlier;  // where the log of `attempt` is
  std::shared_ptr<LogPull> pull;
  std::unique_ptr<net::Subscription> changes;
  TaskId at;             // the task being followed
  bool waiting = false;  // its log has ended; next comes another attempt or the job's end
  bool done = false;
  int patience = absence_tries;
  net::Timer retry, rights;
  ProjectId project;

  bool streaming = false;
  // A plain read starts its response with the first piece of log, so that an unreachable node can
  // still be reported as an error.
  void open() {
    if (std::exchange(streaming, true))
      return;
    call->exchange->start_stream(
        200, {{"Content-Type", sse ? "text/event-stream" : "application/octet-stream"},
              {"Cache-Control", "no-store"},
              {"X-Content-Type-Options", "nosniff"}});
  }
  void send(std::string_view data) {
    open();
    if (!call->exchange->write(data))
      call->exchange->abort();  // the follower resumes by offset
  }
  void begin() {
    if (follow)
      open();
    call->exchange->on_close([weak = weak_from_this()] {
      if (auto self = weak.lock())
        self->close();
    });
    call->exchange->on_drain([weak = weak_from_this()] {
      if (auto self = weak.lock())
        self->drained();
    });
    if (follow) {
      // The stream keeps itself alive through this subscription until it is closed.
      changes =
          call->host.watch_job(job, [self = shared_from_this()](const Event&) { self->look(); });
      rights = call->host.loop().every(rights_every, [weak = weak_from_this()] {
        if (auto self = weak.lock(); self && !self->done)
          if (const Status still = may_still_see(*self->call, self->project); !still)
            self->give_up(still.error().message);
      });
    }
    look();
  }
  void close() {
    done = true;
    rights = {};
    pull.reset();
    call->host.loop().post([self = shared_from_this()] { self->changes.reset(); });
  }
  void finish(const Json& document) {
    if (done)
      return;
    open();
    if (sse)
      send(net::format_sse({.id = "", .event = "end", .data = document.dump()}));
    if (records) {
      std::string end;
      put_record(end, wire::stream_end, {});
      send(end);
    }
    call->exchange->finish();
    close();
  }
  // The log cannot be read. In a raw stream that has begun, cutting it short is the only way to say
  // so.
  void give_up(const std::string& why) {
    if (records) {
      std::string error;
      put_record(error, wire::stream_error,
                 std::string_view(why).substr(0, wire::record_data_bytes_max));
      send(error);
      call->exchange->finish();
    } else if (!streaming && !sse) {
      call->fail({Code::unavailable, why, "try again when the node is back; see `billow nodes`"});
    } else if (!sse) {
      call->exchange->abort();
    } else {
      send(net::format_sse({.id = "", .event = "error", .data = why}));
      call->exchange->finish();
    }
    close();
  }
  // The job may have been placed, placed again, or ended since the last look.
  void look() {
    if (done)
      return;
    with_job_document(call, job, [self = shared_from_this()](Json document) {
      if (self->done)
        return;
      const auto place = self->attempt ? self->earlier : place_of(document, self->rank);
      // A new attempt is followed once the log of the previous one has been sent completely.
      if (place && place->task != self->at && (!self->at || self->waiting))
        return self->start(*place);
      const bool last = self->attempt && document["attempt"].uint_or(0) != self->attempt;
      if (self->waiting && (document["final"].bool_or(false) || !self->follow || last))
        return self->finish(document);
      if (!place && (document["final"].bool_or(false) || !self->follow))
        self->finish(document);
    });
  }
  void start(TaskPlace place) {
    if (at) {  // a new attempt has its own log
      offset = 0;
      tail = -1;
    }
    at = place.task;
    waiting = false;
    pull = std::make_shared<LogPull>(
        call->host, LogPull::Options{place, offset, tail, follow},
        [weak = weak_from_this()](const LogChunk& chunk, std::string_view frames) {
          if (auto self = weak.lock())
            self->take(chunk, frames);
        });
    keep = shared_from_this();
    pull->next();
  }
  std::shared_ptr<LogStream> keep;  // while waiting for a piece of log
  void take(const LogChunk& chunk, std::string_view frames) {
    const auto self = std::move(keep);
    if (done)
      return;
    if (!chunk.error.empty())
      return try_again(chunk, self);
    patience = absence_tries;
    std::string out;
    say_gap(chunk, frames, out);
    add_records(chunk, frames, out);
    if (!out.empty())
      send(out);
    if (done)
      return;
    if (chunk.end) {
      waiting = true;
      return look();
    }
    if (call->exchange->buffered() < ahead_bytes_max)
      return again();
    behind = true;
    keep = self;
  }
  // Says in the log itself that its beginning is missing, and why.
  void say_gap(const LogChunk& chunk, std::string_view frames, std::string& out) const {
    if (!chunk.lost_bytes)
      return;
    // Beside the lines of a search it would be taken for one of them.
    if (records && !filter.passes_all())
      return put_number(out, wire::stream_gap, chunk.lost_bytes);
    if (sse) {
      out +=
          net::format_sse({.id = "", .event = "gap", .data = fmt::format("{}", chunk.lost_bytes)});
      return;
    }
    const auto& state = call->host.state();
    const auto limit =
        control::quota_of(state, QuotaScope::project, project.value, QuotaKind::task_log_bytes);
    const std::string text = fmt::format(
        "billow: {} of earlier output were removed here: a log keeps its newest {} (an admin sets "
        "`billow quota set --{} task-log-bytes SIZE`)\n",
        format_bytes(chunk.lost_bytes), format_bytes(static_cast<std::uint64_t>(limit.limit)),
        control::quota_owner(state, QuotaScope::project, project.value));
    WallTime at = call->host.now();
    if (wire::RecordHead head; frames.size() >= sizeof(head)) {
      std::memcpy(&head, frames.data(), sizeof(head));
      at = WallTime{head.wall_ns};
    }
    if (records)
      put_record(out, static_cast<std::uint8_t>(wire::LogStream::err), text, at,
                 wire::record_notice);
    else
      out += text;
  }
  void add_records(const LogChunk& chunk, std::string_view frames, std::string& out) {
    if (records && filter.passes_all()) {
      out += frames;
      return put_number(out, wire::stream_resume, chunk.next_offset);
    }
    const RecordFilter::Pass pass = [&](const wire::LogRecord& record) {
      if (records)
        put_record(out, static_cast<std::uint8_t>(record.stream), record.data, record.time);
      else if (sse)
        out += net::format_sse({.id = fmt::format("{}", record.next_offset()),
                                .event = record.stream == wire::LogStream::err ? "err" : "out",
                                .data = base64(record.data)});
      else
        out += record.data;
    };
    wire::for_each_record(frames, chunk.offset,
                          [&](const wire::LogRecord& record) { filter.take(record, pass); });
    if (chunk.end)
      filter.end(pass);
    if (records)
      put_number(out, wire::stream_resume, chunk.next_offset);
  }
  // The node did not answer; it may be back in a moment.
  void try_again(const LogChunk& chunk, const std::shared_ptr<LogStream>& self) {
    if (const std::string away = away_words(call->host, pull->place().node); !away.empty())
      return give_up(away);
    patience = std::min(patience, follow ? absence_tries : absence_tries_once);
    if (--patience <= 0 || chunk.end)
      return give_up(chunk.error);
    retry = call->host.loop().after(absence_pause, [self] { self->again(); });
  }
  bool behind = false;  // the client has not taken the last piece yet
  void drained() {
    if (!std::exchange(behind, false))
      return;
    again();
  }
  void again() {
    if (done || !pull)
      return;
    keep = shared_from_this();
    pull->next();
  }
};

void begin_at_attempt(const std::shared_ptr<LogStream>& stream, const Json& document) {
  if (stream->attempt == document["attempt"].uint_or(0) && !document["tasks"].items().empty()) {
    stream->attempt = 0;
    return stream->begin();
  }
  with_place(stream->call, {stream->job, stream->rank, stream->attempt}, document,
             [stream](std::optional<TaskPlace> place) {
               stream->earlier = place;
               stream->begin();
             });
}

}  // namespace

void logs(CallPtr call) {
  const net::Request& request = call->request();
  const auto ref = parse_job_ref(*call, call->parts[0]);
  if (!ref)
    return call->fail(ref.error());
  auto stream = std::make_shared<LogStream>();
  stream->call = call;
  stream->job = ref->id;
  stream->sse = request.param("format") == "sse";
  stream->records = request.param("format") == "records";
  stream->follow = request.param("follow") == "1";
  const auto rank = number_param(request, "rank", 0);
  const std::string_view last_id = request.headers.get("Last-Event-ID");
  const auto offset = number_param(request, "offset", 0);
  const auto attempt = number_param(request, "attempt", 0);
  if (!rank || !offset || !attempt)
    return call->fail(!rank ? rank.error() : !offset ? offset.error() : attempt.error());
  stream->attempt = *attempt;
  stream->rank = static_cast<std::int64_t>(*rank);
  stream->offset = *offset;
  if (const auto resume = parse_int(last_id, 0, INT64_MAX); resume && stream->sse)
    stream->offset = static_cast<std::uint64_t>(*resume);
  const auto since = number_param(request, "since_ns", 0);
  if (!since)
    return call->fail(since.error());
  stream->filter.since = WallTime{static_cast<std::int64_t>(*since)};
  stream->filter.any_case = request.param("ignore_case") == "1";
  const std::string_view search = request.param("search");
  if (search.size() > limits::words_bytes_max || search.find('\n') != std::string_view::npos)
    return call->fail({Code::invalid, fmt::format("search must be at most {} bytes, on one line",
                                                  limits::words_bytes_max)});
  stream->filter.needle = stream->filter.any_case ? lower(search) : std::string(search);
  if (!request.param("tail").empty()) {
    const auto tail = number_param(request, "tail", 0);
    if (!tail)
      return call->fail(tail.error());
    stream->tail = static_cast<std::int64_t>(*tail);
  }
  // A job that does not exist must be a 404, not an empty stream.
  with_job_document(call, ref->id, [stream](Json document) {
    stream->project = project_of(*stream->call, document);
    if (document.find("elements"))
      return stream->call->fail(
          {Code::invalid, "an array has no log; each of its elements has one",
           fmt::format("name an element: billow logs {}.0", document["id"].int_or(0))});
    const std::uint64_t ranks = document["members"].uint_or(document["nodes"].uint_or(1));
    if (static_cast<std::uint64_t>(stream->rank) >= ranks)
      return stream->call->fail(
          {Code::not_found,
           ranks == 1 ? fmt::format("job {} runs on one node and has no rank {}",
                                    document["label"].str_or("?"), stream->rank)
                      : fmt::format("job {} has the ranks 0 to {}, and no rank {}",
                                    document["label"].str_or("?"), ranks - 1, stream->rank),
           ranks == 1 ? "omit --rank" : ""});
    // Between two attempts, the newest that has ended.
    if (!stream->attempt && !stream->follow && document["tasks"].items().empty())
      stream->attempt = document["attempt"].uint_or(0);
    if (stream->attempt)
      return begin_at_attempt(stream, document);
    stream->begin();
  });
}

}  // namespace billow::api::streams
