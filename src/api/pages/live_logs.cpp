#include "api/pages/live_logs.h"

#include <fmt/format.h>

#include "api/log_pull.h"
#include "base/append_format.h"
#include "base/crypto.h"
#include "base/text.h"
#include "core/wire/log_frames.h"
#include "net/http/sse.h"
#include "view/stored.h"

namespace billow::api::streams {

using wire::agent_v1::LogChunk;

class FollowedLog : public std::enable_shared_from_this<FollowedLog> {
 public:
  FollowedLog(CallPtr call, LogWish wish, LiveLogs::Write write)
      : call_(std::move(call)), wish_(std::move(wish)), write_(std::move(write)) {}

  void begin() {
    changes_ = call_->host.watch_job(wish_.job, [weak = weak_from_this()](const Event&) {
      if (const auto self = weak.lock())
        self->look();
    });
    look();
  }
  void close() {
    done_ = true;
    pull_.reset();
    call_->host.loop().post([self = shared_from_this()] { self->changes_.reset(); });
  }
  void drained() {
    if (std::exchange(behind_, false))
      again();
  }

 private:
  // What is known of the job now: where its log is, and whether it has ended.
  struct Seen {
    std::optional<TaskPlace> place;
    std::uint64_t attempt = 0;
    bool final = false;
    std::string state;
  };

  void look() {
    if (done_ || reading_)
      return;
    const control::State& state = call_->host.state();
    if (const Job* job = state.find_job(wish_.job)) {
      if (!may_see(*call_, job->project))
        return give_up(no_job(wish_.job).message);
      Seen seen{.attempt = job->attempt};
      for (const TaskId id : job->tasks)
        if (const Task& task = state.tasks.at(id); task.rank == wish_.rank)
          seen.place = TaskPlace{task.id, task.node};
      return saw(seen);
    }
    if (const auto document = call_->host.recently_finished(wish_.job))
      return saw_ended(*document);
    reading_ = true;
    const Status queued = call_->host.workers().submit(
        [&queries = call_->host.queries(), job = wish_.job] { return queries.get_job(job); },
        [self = shared_from_this()](const Result<std::optional<JobRow>>& row) {
          self->reading_ = false;
          const auto document = row && *row ? view::stored_document((*row)->doc)
                                            : Result<Json>(pass(no_job(self->wish_.job)));
          if (self->done_)
            return;
          if (!document)
            return self->give_up(document.error().message);
          self->saw_ended(*document);
        });
    if (!queued)
      reading_ = false;
  }
  void saw_ended(const Json& document) {
    if (!may_see(*call_, project_of(*call_, document)))
      return give_up(no_job(wish_.job).message);
    if (document.find("elements"))
      return give_up("an array has no log; each of its elements has one");
    saw({place_of(document, wish_.rank), document["attempt"].uint_or(0), true,
         std::string(document["state"].str_or(""))});
  }
  void saw(const Seen& seen) {
    if (seen.place && seen.place->task != at_ && (!at_ || waiting_))
      return start(*seen.place, seen.attempt);
    if (seen.final && (waiting_ || !seen.place))
      end(seen.state);
  }

  void start(TaskPlace place, std::uint64_t attempt) {
    attempt_ = attempt;
    if (at_) {  // another attempt has its own log
      wish_.from = 0;
      wish_.tail = -1;
      if (!say(fmt::format(",\"attempt\":{},\"restarted\":true", attempt)))
        return;
    }
    at_ = place.task;
    waiting_ = false;
    // The record that holds the place may begin before it.
    constexpr std::uint64_t longest = sizeof(wire::RecordHead) + wire::record_data_bytes_max;
    const std::uint64_t from = wish_.from > longest ? wish_.from - longest : 0;
    pull_ = std::make_shared<LogPull>(
        call_->host, LogPull::Options{place, from, wish_.tail, true},
        [weak = weak_from_this()](const LogChunk& chunk, std::string_view frames) {
          if (const auto self = weak.lock())
            self->take(chunk, frames);
        });
    again();
  }
  void again() {
    if (!done_ && pull_)
      pull_->next();
  }
  void take(const LogChunk& chunk, std::string_view frames) {
    if (done_)
      return;
    if (!chunk.error.empty())
      return absent(chunk);
    patience_ = absence_tries;
    if (!frames.empty() && !say_records(chunk, frames))
      return;
    if (chunk.end) {
      waiting_ = true;
      // Not inside of the pull's own call.
      call_->host.loop().post([self = shared_from_this()] { self->look(); });
      return;
    }
    behind_ = call_->exchange->buffered() >= ahead_bytes_max;
    if (!behind_)
      call_->host.loop().post([self = shared_from_this()] { self->again(); });
  }
  bool say_records(const LogChunk& chunk, std::string_view frames) {
    if (chunk.lost_bytes && wish_.tail < 0 && chunk.offset > wish_.from &&
        !say(fmt::format(",\"gap\":{}", chunk.offset - wish_.from)))
      return false;
    std::string records;
    wire::for_each_record(frames, chunk.offset, [&](const wire::LogRecord& record) {
      std::uint64_t place = record.offset + sizeof(wire::RecordHead);
      std::string_view data = record.data;
      if (wish_.from > place) {
        const auto skipped = std::min<std::uint64_t>(wish_.from - place, data.size());
        data.remove_prefix(skipped);
        place += skipped;
      }
      if (!data.empty())
        append_format(records, "{}[\"{}\",{},{},\"{}\"]", records.empty() ? "" : ",",
                      record.stream == wire::LogStream::err ? "err" : "out",
                      record.time.ns / 1'000'000, place, base64(data));
    });
    wish_.from = std::max(wish_.from, chunk.next_offset);
    return records.empty() || say(fmt::format(",\"attempt\":{},\"records\":[{}],\"next\":{}",
                                              attempt_, records, chunk.next_offset));
  }
  void absent(const LogChunk& chunk) {
    const std::string away = away_words(call_->host, pull_->place().node);
    if (!away.empty() || --patience_ <= 0 || chunk.end)
      return give_up(away.empty() ? chunk.error : away);
    retry_ = call_->host.loop().after(absence_pause, [weak = weak_from_this()] {
      if (const auto self = weak.lock())
        self->again();
    });
  }
  void end(const std::string& state) {
    if (say(fmt::format(",\"end\":true,\"state\":\"{}\"", state)))
      close();
  }
  void give_up(const std::string& why) {
    std::string text = ",\"error\":";
    append_json_string(text, why);
    if (say(text))
      close();
  }
  bool say(const std::string& rest) {
    std::string data = "{\"job\":";
    append_json_string(data, wish_.label);
    append_format(data, ",\"rank\":{}{}}}", wish_.rank, rest);
    return write_(net::format_sse({.id = "", .event = "log", .data = std::move(data)}));
  }

  CallPtr call_;
  LogWish wish_;
  LiveLogs::Write write_;
  std::unique_ptr<net::Subscription> changes_;
  std::shared_ptr<LogPull> pull_;
  net::Timer retry_;
  TaskId at_;
  std::uint64_t attempt_ = 0;
  bool waiting_ = false;  // its log has ended; another attempt or the job's end comes next
  bool reading_ = false, behind_ = false, done_ = false;
  int patience_ = absence_tries;
};

LiveLogs::LiveLogs(CallPtr call, Write write) : call_(std::move(call)), write_(std::move(write)) {}
LiveLogs::~LiveLogs() = default;

void LiveLogs::set(const std::vector<LogWish>& wishes) {
  decltype(logs_) kept;
  std::vector<std::shared_ptr<FollowedLog>> fresh;
  for (const LogWish& wish : wishes) {
    const std::pair key(wish.label, wish.rank);
    if (kept.contains(key))
      continue;
    if (const auto found = logs_.find(key); found != logs_.end()) {
      kept[key] = std::move(found->second);
      logs_.erase(found);
      continue;
    }
    kept[key] = std::make_shared<FollowedLog>(call_, wish, write_);
    fresh.push_back(kept[key]);
  }
  for (const auto& [key, log] : logs_)
    log->close();
  logs_ = std::move(kept);
  for (const auto& log : fresh)
    log->begin();
}

void LiveLogs::drained() {
  for (const auto& [key, log] : logs_)
    log->drained();
}

void LiveLogs::close() {
  for (const auto& [key, log] : logs_)
    log->close();
  logs_.clear();
}

namespace {

// Where to read; the job beside it may be a number or a label.
struct LogPlace {
  std::int64_t rank = 0;
  std::uint64_t from_byte = 0;
  std::int64_t tail = -1;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("rank", s.rank);
    v("from_byte", s.from_byte);
    v("tail", s.tail);
  }
};

}  // namespace

Result<LogWish> parse_wish(const Call& call, const Json& item) {
  LogWish wish;
  wish.label = item["job"].is_string() ? std::string(item["job"].str_or(""))
                                       : fmt::format("{}", item["job"].uint_or(0));
  wish.job = BILLOW_TRY(parse_job_ref(call, wish.label)).id;
  if (const auto owner = owner_of(call.host.state(), wish.job);
      owner && !may_see(call, owner->project))
    return pass(no_job(wish.job));
  const auto place = BILLOW_TRY(wire::from_json<LogPlace>(item));
  wish.rank = place.rank;
  wish.from = place.from_byte;
  wish.tail = place.tail;
  return wish;
}

void subscribe(CallPtr call) {
  const auto body = call->body();
  if (!body)
    return call->fail(body.error());
  const auto* stream = call->live->find(call->parts[0]);
  if (!stream || stream->token != call->principal.token || stream->user != call->principal.user)
    return call->fail({Code::not_found,
                       fmt::format("there is no open stream \"{}\"", call->parts[0]),
                       "open a new one: GET /v1/live"});
  if ((*body)["logs"].items().size() > live_logs_max)
    return call->fail(
        {Code::invalid, fmt::format("a stream can follow at most {} logs", live_logs_max)});
  std::vector<LogWish> wishes;
  Json logs = Json::array();
  for (const Json& item : (*body)["logs"].items()) {
    auto wish = parse_wish(*call, item);
    if (!wish)
      return call->fail(wish.error());
    logs.push(Json::object({{"job", wish->label}, {"rank", wish->rank}}));
    wishes.push_back(std::move(*wish));
  }
  stream->set(wishes);
  call->reply(200, Json::object({{"logs", std::move(logs)}}));
}

}  // namespace billow::api::streams
