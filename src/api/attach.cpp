// GET /v1/jobs/{id}/attach: a terminal, or `billow run`, attached to a job over a WebSocket: its
// output, its state, and what the client types.
#include <fmt/format.h>

#include <utility>

#include "api/log_pull.h"
#include "base/text.h"
#include "core/control/decide/decide.h"
#include "core/wire/log_frames.h"

namespace billow::api::streams {
namespace {

using wire::agent_v1::LogChunk;

bool may_type_into(const Call& call, JobId job) {
  const auto owner = owner_of(call.host.state(), job);
  return owner && call.principal.scope != TokenScope::read && may_enter(call, *owner).has_value();
}

constexpr std::size_t input_ahead_bytes_max = 256 << 10;
constexpr Duration waits_every = milliseconds(500);
constexpr Duration wake_again_after = seconds(2);

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
  std::unique_ptr<net::Subscription> changes, input;
  // Input. A client that must neither lose nor repeat a byte, whichever process fails on the way,
  // sends the offset of its bytes and keeps them until they are acknowledged. It is told how far
  // the input has come when the task starts, and again whenever it has to go back.
  std::uint64_t input_sent = 0, input_taken = 0, input_acknowledged = 0;
  bool positioned = false;  // this client sends offsets
  bool deaf = false;        // it was asked to go back; input is ignored until it does
  bool synced = false;      // the agent has said how far the input has come
  net::Timer sync_again;
  std::string early;  // typed before the task was placed
  bool early_eof = false;
  bool waiting = false, done = false;
  bool told_away = false;  // the client knows that the node is unreachable
  TaskId at;
  NodeId node;
  std::optional<TerminalWindows::Size> window;  // of the client's terminal
  net::Timer waits, rights;
  ProjectId project;
  std::string waits_for;
  bool telling = false;            // earlier attempts are being sent; the newest follows
  bool history = false;            // attached from the beginning: earlier attempts are sent too
  std::vector<TaskPlace> earlier;  // their tasks, oldest first

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
  // A caller that may no longer see the job is disconnected; one that may no longer act on it can
  // only watch.
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
      fit(call->windows->remove(at, this));
      look(true);
    }
  }
  // The job has no event for what a starting task waits for or what a pool does for it, so both
  // are polled.
  void look_what_it_waits_for() {
    show_in_window();  // if the terminal could not be told before
    const Job* live = call->host.state().find_job(job);
    std::string text;
    if (live && !done)
      for (const TaskId task : live->tasks)
        text += call->host.waits_for(task);
    if (live && !done && live->state == JobState::queued)
      for (std::string& note : control::pool_notes(call->host.state(), *live, call->host.now())) {
        // The time since an order is not news: the number and its unit ("486 ms", "1.5 s").
        bool number = false;
        for (const std::string& word : split(note, ' ')) {
          const bool unit = std::exchange(number, false) && word.size() <= 2;
          number = !word.empty() && word.front() >= '0' && word.front() <= '9';
          if (!number && !unit)
            text += word;
        }
      }
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
    fit(call->windows->remove(at, this));
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
  // For a job that failed and restarted before anybody could attach. True: its earlier tasks are
  // looked up and their logs sent first.
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
          for (const auto& attempt : places_by_attempt(self->call->host.state(),
                                                       rows ? *rows : std::vector<LeaseRow>{}, 1))
            for (const TaskPlace& place : attempt)
              if (place.task < now.task)
                self->earlier.push_back(place);
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
        call->host, LogPull::Options{.place = place},
        [weak = weak_from_this()](const LogChunk& chunk, std::string_view frames) {
          const auto self = weak.lock();
          if (!self || self->done)
            return;
          // A client that reconnects resumes at the beginning of the newest attempt.
          self->tell(chunk, frames, 0);
          if (chunk.end || !chunk.error.empty())
            return self->call->host.loop().post([self] { self->next_earlier(); });
          if (self->socket->buffered() < ahead_bytes_max)
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
    wire::for_each_record(frames, chunk.offset, [&](const wire::LogRecord& record) {
      // 0x80: the offset to resume at follows, eight bytes, little endian.
      message.assign(1, static_cast<char>(0x80 | (record.stream == wire::LogStream::err ? 2 : 1)));
      const std::uint64_t next = resume_at.value_or(record.next_offset());
      for (int i = 0; i < 8; ++i)
        message += static_cast<char>(next >> (8 * i));
      message += record.data;
      socket->send_binary(message);
    });
  }
  void start(TaskPlace place, std::uint64_t its_attempt) {
    const bool first = !at;
    fit(call->windows->remove(at, this));
    at = place.task;
    node = place.node;
    show_in_window();
    waiting = false;
    const bool resuming = first && (!attempt || attempt == its_attempt);
    pull = std::make_shared<LogPull>(
        call->host, LogPull::Options{place, resuming ? offset : 0, resuming ? tail : -1, true},
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
      if (!away.empty() || --patience > 0) {  // the node may be back in a moment
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
    if (socket->buffered() < ahead_bytes_max)
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
  // Asks until there is an answer: the task may not have started, or its node may be unreachable.
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
    // More than was sent from here means that somebody else typed before; do not wait for that.
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
  // A key in the terminal of a suspended job resumes it, and reaches it then.
  void wake() {
    const Job* live = call->host.state().find_job(job);
    if (waking || !live || live->state != JobState::suspended || !live->spec->pty)
      return;
    waking = true;
    woke = call->host.loop().after(wake_again_after, [weak = weak_from_this()] {
      if (auto self = weak.lock())
        self->waking = false;
    });
    call->host.execute(
        ResumeJob{job}, call->cause(),
        [weak = weak_from_this()](const Result<std::vector<Event>>& events) {
          if (auto self = weak.lock(); self && !events)
            self->say(Json::object({{"type", "error"}, {"detail", events.error().message}}));
        });
  }
  bool waking = false;
  net::Timer woke;
  void type(std::string_view data) {
    if (done || !may_type)
      return;
    wake();
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
      if (rows > 0 && cols > 0 && rows < 10000 && cols < 10000)
        window = TerminalWindows::Size{static_cast<std::uint16_t>(rows),
                                       static_cast<std::uint16_t>(cols)};
      show_in_window();
    }
  }
  void show_in_window() {
    if (at && window && !done)
      fit(call->windows->set(at, this, *window));
  }
  void fit(std::optional<TerminalWindows::Size> terminal) {
    if (terminal &&
        !call->host.send(node, wire::agent_v1::Resize{at, terminal->rows, terminal->cols}, {}))
      call->windows->missed(at);  // its node is away, as all are when a head has just started
  }
};

}  // namespace

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
          {Code::invalid, "you cannot attach to an array, only to one of its elements",
           fmt::format("name an element: {}.0", document["id"].int_or(0))});
    auto socket = attachment->call->exchange->upgrade_websocket({});
    if (!socket)
      return attachment->call->fail(socket.error());
    attachment->socket = std::move(*socket);
    // Not the owner's own, which every `billow run` is.
    if (const auto owner = owner_of(attachment->call->host.state(), attachment->job);
        owner && owner->user != attachment->call->principal.user)
      record_entry(*attachment->call, attachment->job,
                   attachment->may_type ? "attach" : "attach (watches only)");
    attachment->begin();
  });
}

}  // namespace billow::api::streams
