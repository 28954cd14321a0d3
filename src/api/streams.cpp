// What flows from a job: its log, and a terminal or `run` attached to it. Each follower pulls one
// piece of log at a time from the agent and asks for the next when its client has taken the last,
// so nothing piles up in the head and a slow reader slows nobody but itself.
#include <fmt/format.h>

#include "agent/task/log_reader.h"
#include "api/call.h"
#include "api/documents.h"
#include "base/crypto.h"
#include "base/log.h"
#include "base/text.h"
#include "core/wire/codec.h"
#include "net/http/sse.h"

namespace billow::api::streams {
namespace {

using wire::agent_v1::LogChunk;
using wire::agent_v1::LogRead;

struct TaskPlace {
  TaskId task;
  NodeId node;
};
// The task whose log stands for the job: the given rank of the newest attempt.
std::optional<TaskPlace> place_of(const Json& document, std::int64_t rank) {
  for (const Json& task : document["tasks"].items())
    if (task["rank"].int_or(-1) == rank)
      return TaskPlace{TaskId(task["id"].uint_or(0)), NodeId(task["node_id"].uint_or(0))};
  return std::nullopt;
}

// Follows the log of one task and hands out whole records. The owner calls next() when it can take
// more.
class LogPull : public std::enable_shared_from_this<LogPull> {
 public:
  using OnRecords = std::function<void(const LogChunk&, std::string_view frames)>;
  LogPull(Host& host,
          TaskPlace place,
          std::uint64_t offset,
          std::int64_t tail,
          bool follow,
          OnRecords fn)
      : host_(host),
        place_(place),
        offset_(offset),
        tail_(tail),
        follow_(follow),
        fn_(std::move(fn)) {}
  void next() {
    LogRead request{.subscription = 0,
                    .task = place_.task,
                    .offset = offset_,
                    .tail_bytes = tail_,
                    .follow = follow_};
    request_ =
        host_.read_log(place_.node, request,
                       [weak = weak_from_this()](const LogChunk& chunk, std::string_view frames) {
                         const auto self = weak.lock();
                         if (!self)
                           return;
                         if (chunk.error.empty()) {
                           self->offset_ = chunk.next_offset;
                           self->tail_ = -1;
                         }
                         self->fn_(chunk, frames);
                       });
  }
  std::uint64_t offset() const { return offset_; }
  TaskPlace place() const { return place_; }

 private:
  Host& host_;
  TaskPlace place_;
  std::uint64_t offset_;
  std::int64_t tail_;
  bool follow_;
  OnRecords fn_;
  std::unique_ptr<Subscription> request_;
};

// A node that does not answer is asked again for this long before its reader is told.
constexpr Duration absence_pause = milliseconds(200);
constexpr int absence_tries = 150;
constexpr int absence_tries_once = 25;  // for a reader who wants what is there now

// What to say of a node that is known not to answer; empty: it does, or may in a moment.
std::string away_words(Host& host, NodeId id) {
  const control::State& state = host.state();
  const auto node = state.nodes.find(id);
  // A head that has just begun hears of its nodes in a moment.
  if (node == state.nodes.end() || node->second.reachable ||
      host.now() - node->second.unreachable_since < seconds(5))
    return {};
  const Duration away = seconds(
      std::max<std::int64_t>(0, (host.now() - node->second.unreachable_since).ns / 1'000'000'000));
  return fmt::format("its node {} has been unreachable for {}; what the job wrote is there",
                     node->second.offer.name, format_duration(away));
}

// For a stream of a job that stays open.
Status may_still_see(Call& call, ProjectId project) {
  BILLOW_TRY_VOID(call.still_allowed());
  if (may_see(call, project))
    return {};
  return fail(Code::forbidden, "you do not belong to the job's project any more");
}

// ---- logs
// ---------------------------------------------------------------------------------------------------------

struct LogStream : std::enable_shared_from_this<LogStream> {
  CallPtr call;
  JobId job;
  std::int64_t rank = 0;
  bool sse = false, follow = false;
  std::uint64_t offset = 0;
  std::int64_t tail = -1;
  std::shared_ptr<LogPull> pull;
  std::unique_ptr<Subscription> changes;
  TaskId at;             // the task being followed
  bool waiting = false;  // its log has ended; another attempt or the job's end is awaited
  bool done = false;
  int patience = absence_tries;
  net::Timer retry, rights;
  ProjectId project;

  bool streaming = false;
  // A plain read begins its answer with the first piece of log, so that a node that is away can
  // still be an error.
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
    call->exchange->finish();
    close();
  }
  // Nobody answers for the log. Where the answer has begun, cutting it short is the only way to say
  // so in a raw stream.
  void give_up(const std::string& why) {
    if (!streaming && !sse)
      call->fail({Code::unavailable, why, "try again when the node is back; see `billow nodes`"});
    else if (!sse)
      call->exchange->abort();
    else
      open(), send(net::format_sse({.id = "", .event = "error", .data = why})),
          call->exchange->finish();
    close();
  }
  // The job may have been placed, placed again, or ended since the last look.
  void look() {
    if (done)
      return;
    with_job_document(call, job, [self = shared_from_this()](Json document) {
      if (self->done)
        return;
      const auto place = place_of(document, self->rank);
      // A new attempt is followed when the log of the one before has been passed on to its end.
      if (place && place->task != self->at && (!self->at || self->waiting))
        return self->start(*place);
      if (self->waiting && (document["final"].bool_or(false) || !self->follow))
        return self->finish(document);
      if (!place && (document["final"].bool_or(false) || !self->follow))
        self->finish(document);
    });
  }
  void start(TaskPlace place) {
    if (at)
      offset = 0, tail = -1;  // a new attempt has a log of its own
    at = place.task;
    waiting = false;
    pull = std::make_shared<LogPull>(
        call->host, place, offset, tail, follow,
        [weak = weak_from_this()](const LogChunk& chunk, std::string_view frames) {
          if (auto self = weak.lock())
            self->take(chunk, frames);
        });
    keep = shared_from_this();
    pull->next();
  }
  std::shared_ptr<LogStream> keep;  // while a piece of log is being awaited
  void take(const LogChunk& chunk, std::string_view frames) {
    const auto self = std::move(keep);
    if (done)
      return;
    if (!chunk.error.empty()) {
      if (const std::string away = away_words(call->host, pull->place().node); !away.empty())
        return give_up(away);
      patience = std::min(patience, follow ? absence_tries : absence_tries_once);
      if (--patience <= 0 || chunk.end)
        return give_up(chunk.error);
      retry = call->host.loop().after(
          absence_pause, [s = self] { s->again(); });  // its node may be back in a moment
      return;
    }
    patience = absence_tries;
    if (chunk.lost_bytes && sse)
      send(
          net::format_sse({.id = "", .event = "gap", .data = fmt::format("{}", chunk.lost_bytes)}));
    std::string out;
    agent::for_each_record(frames, chunk.offset, [&](const agent::LogRecord& record) {
      if (!sse) {
        out += record.data;
        return;
      }
      out += net::format_sse({.id = fmt::format("{}", record.offset + record.data.size() +
                                                          sizeof(supervise::RecordHead)),
                              .event = record.stream == supervise::Stream::err ? "err" : "out",
                              .data = base64(record.data)});
    });
    if (!out.empty())
      send(out);
    if (done)
      return;
    if (chunk.end) {
      waiting = true;
      return look();
    }
    if (call->exchange->buffered() < (256 << 10))
      return again();
    behind = true;
    keep = self;
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

// ---- attach
// -------------------------------------------------------------------------------------------------------

bool may_type_into(const Call& call, JobId job) {
  const auto owner = owner_of(call.host.state(), job);
  return owner && call.principal.scope != TokenScope::read &&
         may_act(call, owner->project, owner->user).has_value();
}

constexpr std::size_t input_ahead_bytes_max = 256 << 10;
constexpr Duration waits_every = milliseconds(500);

struct Attachment : std::enable_shared_from_this<Attachment> {
  CallPtr call;
  JobId job;
  std::shared_ptr<net::WebSocket> socket;
  bool may_type = false;
  std::uint64_t offset = 0;
  std::int64_t tail = -1;
  std::uint64_t attempt = 0;  // the attempt that `offset` belongs to; 0: the first seen
  int patience = absence_tries;
  net::Timer retry;
  std::shared_ptr<LogPull> pull;
  std::unique_ptr<Subscription> changes, input;
  // Input. A client that wants none of it lost or doubled, whoever dies on the way, says at which
  // offset its bytes are and keeps them until they are taken: it is told how far the input has come
  // when the task is there, and again whenever it has to go back.
  std::uint64_t input_sent = 0, input_taken = 0, input_acknowledged = 0;
  bool positioned = false;  // this client counts
  bool deaf = false;        // it was told to go back, and what comes before it does is of no use
  bool synced = false;      // the agent has said how far the input has come
  net::Timer sync_again;
  std::string early;  // typed before the task was placed
  bool early_eof = false;
  bool waiting = false, done = false;
  bool told_away = false;  // that its node is known not to answer
  TaskId at;
  NodeId node;
  net::Timer waits, rights;
  ProjectId project;
  std::string waits_for;
  bool telling = false;  // of earlier attempts; the newest one's turn comes after
  bool history = false;  // whoever attaches from the beginning wants what earlier attempts said too
  std::vector<TaskPlace> earlier;  // their tasks, the first first

  void begin() {
    socket->on_message([self = shared_from_this()](std::string_view data, bool binary) {
      binary ? self->type(data) : self->control(data);
    });
    socket->on_close([self = shared_from_this()](const net::WebSocket::Closed&) { self->close(); });
    socket->on_drain([weak = weak_from_this()] {
      if (auto self = weak.lock())
        self->drained();
    });
    changes = call->host.watch_job(job, [weak = weak_from_this()](const Event&) {
      if (auto self = weak.lock())
        self->look(true);
    });
    waits = call->host.loop().every(waits_every, [weak = weak_from_this()] {
      if (auto self = weak.lock())
        self->look_what_it_waits_for();
    });
    rights = call->host.loop().every(rights_every, [weak = weak_from_this()] {
      if (auto self = weak.lock())
        self->look_at_rights();
    });
    look(true);
  }
  // Who may not see the job any more sees no more of it; who may not act on it any more only
  // watches.
  void look_at_rights() {
    if (done)
      return;
    if (const Status still = may_still_see(*call, project); !still) {
      say(Json::object({{"type", "error"}, {"detail", still.error().message}}));
      socket->close(net::WebSocket::close_policy, still.error().message);
      return close();
    }
    if (const bool may = may_type && may_type_into(*call, job); may != may_type) {
      may_type = may;
      look(true);
    }
  }
  // No event tells of it. Once there is output, nothing is waited for any more.
  void look_what_it_waits_for() {
    const Job* live = call->host.state().find_job(job);
    std::string text;
    if (live && !done)
      for (const TaskId task : live->tasks)
        text += call->host.waits_for(task);
    if (text == waits_for)
      return;
    waits_for = std::move(text);
    look(true);
  }
  void close() {
    if (done)
      return;
    done = true;
    waits = {};
    rights = {};
    pull.reset();
    // The callbacks hold this object; let go of them outside of any of them.
    call->host.loop().post([self = shared_from_this()] {
      self->changes.reset();
      self->input.reset();
      self->socket->on_message(nullptr);
      self->socket->on_close(nullptr);
    });
  }
  void say(const Json& message) {
    if (!done)
      socket->send_text(message.dump());
  }

  void look(bool announce) {
    if (done)
      return;
    with_job_document(call, job, [self = shared_from_this(), announce](Json document) {
      if (self->done)
        return;
      const bool final = document["final"].bool_or(false);
      const auto place = place_of(document, 0);
      if (self->telling || (place && self->history && self->tell_history(*place, document)))
        return;
      if (announce && !final)
        self->say(
            Json::object({{"type", "state"}, {"job", document}, {"may_type", self->may_type}}));
      if (place && place->task != self->at && (!self->at || self->waiting))
        return self->start(*place, document["attempt"].uint_or(0));
      if (final && (self->waiting || self->told_away || !place)) {
        self->say(Json::object({{"type", "end"}, {"job", document}}));
        self->socket->close();
      }
    });
  }
  // A job that failed and was started again before anybody could attach. True: its earlier tasks
  // are looked up, and told first.
  bool tell_history(TaskPlace now, const Json& document) {
    history = false;
    if (document["attempt"].uint_or(0) < 2 || document["nodes"].uint_or(1) > 1)
      return false;
    telling = true;
    const Status queued = call->host.workers().submit(
        [&queries = call->host.queries(), job = job] {
          return queries.leases(
              {.project = {}, .job = job, .from = {}, .before = {}, .after = {}, .limit = 1000});
        },
        [self = shared_from_this(), now](Result<std::vector<LeaseRow>> rows) {
          std::map<TaskId, NodeId> before;  // a suspended one has several leases
          for (const LeaseRow& row : rows ? *rows : std::vector<LeaseRow>{})
            if (const Node* on = self->call->host.state().node_by_name(row.node_name);
                on && row.task < now.task)
              before[row.task] = on->id;
          for (const auto& [task, on] : before)
            self->earlier.push_back({task, on});
          self->next_earlier();
        });
    return telling = queued.has_value();
  }
  void next_earlier() {
    if (done)
      return;
    if (earlier.empty()) {
      telling = false;
      pull.reset();
      return look(true);
    }
    const TaskPlace place = earlier.front();
    earlier.erase(earlier.begin());
    pull = std::make_shared<LogPull>(
        call->host, place, 0, -1, false,
        [weak = weak_from_this()](const LogChunk& chunk, std::string_view frames) {
          const auto self = weak.lock();
          if (!self || self->done)
            return;
          // Where to resume is in the newest attempt, at its beginning.
          self->tell(chunk, frames, 0);
          if (chunk.end || !chunk.error.empty())
            return self->call->host.loop().post([self] { self->next_earlier(); });
          if (self->socket->buffered() < (256 << 10))
            self->pull->next();
          else
            self->behind = true;
        });
    pull->next();
  }
  void tell(const LogChunk& chunk,
            std::string_view frames,
            std::optional<std::uint64_t> resume_at) {
    std::string message;
    agent::for_each_record(frames, chunk.offset, [&](const agent::LogRecord& record) {
      // 0x80: the offset to resume at follows, eight bytes, little endian.
      message.assign(1,
                     static_cast<char>(0x80 | (record.stream == supervise::Stream::err ? 2 : 1)));
      const std::uint64_t next =
          resume_at.value_or(record.offset + sizeof(supervise::RecordHead) + record.data.size());
      for (int i = 0; i < 8; ++i)
        message += static_cast<char>(next >> (8 * i));
      message += record.data;
      socket->send_binary(message);
    });
  }
  void start(TaskPlace place, std::uint64_t its_attempt) {
    const bool first = !at;
    at = place.task;
    node = place.node;
    waiting = false;
    const bool resuming = first && (!attempt || attempt == its_attempt);
    pull = std::make_shared<LogPull>(
        call->host, place, resuming ? offset : 0, resuming ? tail : -1, true,
        [weak = weak_from_this()](const LogChunk& chunk, std::string_view frames) {
          if (auto self = weak.lock())
            self->take(chunk, frames);
        });
    input_sent = input_taken = input_acknowledged = 0;
    deaf = positioned;
    input = call->host.watch_input(
        at, [weak = weak_from_this()](const wire::agent_v1::InputTaken& taken) {
          if (auto self = weak.lock())
            self->took(taken);
        });
    const Job* live = call->host.state().find_job(job);
    if (may_type && live && (live->spec->use_stdin || live->spec->pty))
      sync();
    if (!early.empty() || early_eof) {
      forward(early, early_eof);
      early.clear();
      early_eof = false;
    }
    pull->next();
  }
  void take(const LogChunk& chunk, std::string_view frames) {
    if (done)
      return;
    if (!chunk.error.empty()) {
      const std::string away = away_words(call->host, pull->place().node);
      if (!away.empty() && !std::exchange(told_away, true)) {
        say(Json::object({{"type", "error"}, {"detail", away + "; waiting for it"}}));
        look(true);
        if (done)
          return;
      }
      if (!away.empty() || --patience > 0) {  // its node may be back in a moment
        if (synced)
          sync();
        retry = call->host.loop().after(away.empty() ? absence_pause : seconds(1),
                                        [weak = weak_from_this()] {
                                          const auto self = weak.lock();
                                          if (self && !self->done && self->pull)
                                            self->pull->next();
                                        });
        return;
      }
      say(Json::object({{"type", "error"}, {"detail", chunk.error}}));
      waiting = true;
      return look(false);
    }
    patience = absence_tries;
    told_away = false;
    if (chunk.lost_bytes)
      say(Json::object({{"type", "gap"}, {"bytes", chunk.lost_bytes}}));
    tell(chunk, frames, std::nullopt);
    if (done)
      return;
    if (chunk.end) {
      waiting = true;
      return look(false);
    }
    if (socket->buffered() < (256 << 10))
      pull->next();
    else
      behind = true;
  }
  bool behind = false;
  void drained() {
    if (!behind || done || !pull)
      return;
    behind = false;
    pull->next();
  }

  // ---- what the client types
  // Asks until there is an answer: the task may not have begun, or its node be away.
  void sync() {
    synced = false;
    call->host.send(node, wire::agent_v1::Input{.task = at});
    sync_again = call->host.loop().after(absence_pause, [weak = weak_from_this()] {
      if (auto self = weak.lock(); self && !self->synced && !self->done && !self->waiting)
        self->sync();
    });
  }
  void forward(std::string_view data, bool eof) {
    if (deaf)
      return;
    const bool sent = call->host.send(
        node,
        wire::agent_v1::Input{at, eof, positioned ? static_cast<std::int64_t>(input_sent) : -1},
        data);
    if (!sent && synced)
      sync();
    input_sent += data.size();
    if (input_sent - std::min(input_sent, input_taken) > input_ahead_bytes_max)
      socket->pause();
  }
  void took(const wire::agent_v1::InputTaken& taken) {
    if (done)
      return;
    if (!synced || taken.refused) {
      synced = true;
      deaf = positioned;
      input_sent = taken.received;
      say(Json::object({{"type", "input"}, {"received", taken.received}}));
    }
    // More than was sent from here means that somebody typed before, and is not this attachment's
    // to wait for.
    input_sent = std::max(input_sent, taken.bytes);
    input_taken = std::max(input_taken, taken.bytes);
    if (input_sent - input_taken <= input_ahead_bytes_max || deaf)
      socket->resume();
    if (positioned && taken.accepted > input_acknowledged &&
        (taken.accepted - input_acknowledged >= input_ahead_bytes_max / 4 ||
         taken.accepted >= input_sent)) {
      input_acknowledged = taken.accepted;
      say(Json::object({{"type", "taken"}, {"bytes", taken.accepted}}));
    }
  }
  void type(std::string_view data) {
    if (done || !may_type)
      return;
    if (at)
      return forward(data, false);
    early += data;
    if (early.size() > input_ahead_bytes_max)
      socket->pause();
  }
  void control(std::string_view text) {
    const auto json = parse_json(text);
    if (!json || done)
      return;
    const std::string_view kind = (*json)["type"].str_or("");
    if (!may_type)
      return;
    if (kind == "eof") {
      if (at)
        forward({}, true);
      else
        early_eof = true;
    } else if (kind == "input") {
      positioned = true;
      deaf = false;
      input_sent = (*json)["offset"].uint_or(0);
    } else if (kind == "signal") {
      const std::int64_t number = (*json)["signal"].int_or(0);
      if (at && number >= 1 && number <= 64)
        call->host.send(node, wire::agent_v1::Signal{at, static_cast<std::int32_t>(number)});
    } else if (kind == "resize") {
      const std::int64_t rows = (*json)["rows"].int_or(0), cols = (*json)["cols"].int_or(0);
      if (at && rows > 0 && cols > 0 && rows < 10000 && cols < 10000)
        call->host.send(node, wire::agent_v1::Resize{at, static_cast<std::uint16_t>(rows),
                                                     static_cast<std::uint16_t>(cols)});
    }
  }
};

ProjectId project_of(const Call& call, const Json& document) {
  const Project* project = call.host.state().project_by_name(document["project"].str_or(""));
  return project ? project->id : ProjectId{};
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
  stream->follow = request.param("follow") == "1";
  const auto rank = number_param(request, "rank", 0);
  const std::string_view last_id = request.headers.get("Last-Event-ID");
  const auto offset = number_param(request, "offset", 0);
  if (!rank || !offset)
    return call->fail(!rank ? rank.error() : offset.error());
  stream->rank = static_cast<std::int64_t>(*rank);
  stream->offset = *offset;
  if (const auto resume = parse_int(last_id, 0, INT64_MAX); resume && stream->sse)
    stream->offset = static_cast<std::uint64_t>(*resume);
  if (!request.param("tail").empty()) {
    const auto tail = number_param(request, "tail", 0);
    if (!tail)
      return call->fail(tail.error());
    stream->tail = static_cast<std::int64_t>(*tail);
  }
  // A job that is not there must be a 404, not an empty stream.
  with_job_document(call, ref->id, [stream](Json document) {
    stream->project = project_of(*stream->call, document);
    if (document.find("elements"))
      return stream->call->fail(
          {Code::invalid, "an array has no log of its own",
           fmt::format("name an element: billow logs {}.0", document["id"].int_or(0))});
    stream->begin();
  });
}

void attach(CallPtr call) {
  const net::Request& request = call->request();
  const auto ref = parse_job_ref(*call, call->parts[0]);
  if (!ref)
    return call->fail(ref.error());
  const auto offset = number_param(request, "offset", 0),
             attempt = number_param(request, "attempt", 0), tail = number_param(request, "tail", 0);
  if (!offset || !attempt || !tail)
    return call->fail(!offset ? offset.error() : !attempt ? attempt.error() : tail.error());
  auto attachment = std::make_shared<Attachment>();
  attachment->call = call;
  attachment->job = ref->id;
  attachment->offset = *offset;
  attachment->attempt = *attempt;
  if (!request.param("tail").empty())
    attachment->tail = static_cast<std::int64_t>(*tail);
  attachment->history = *offset == 0 && *attempt == 0 && request.param("tail").empty();
  attachment->may_type = may_type_into(*call, ref->id);
  with_job_document(call, ref->id, [attachment](Json document) {
    attachment->project = project_of(*attachment->call, document);
    if (document.find("elements"))
      return attachment->call->fail(
          {Code::invalid, "an array cannot be attached to",
           fmt::format("name an element: {}.0", document["id"].int_or(0))});
    auto socket = attachment->call->exchange->upgrade_websocket({});
    if (!socket)
      return attachment->call->fail(socket.error());
    attachment->socket = std::move(*socket);
    attachment->begin();
  });
}

}  // namespace billow::api::streams
