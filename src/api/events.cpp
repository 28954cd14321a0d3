// GET /v1/events: the journal as it stands, a page of it or as a stream that goes on. A follower
// that was away and one that is live read the journal in the same way, each at its own pace.
#include <fmt/format.h>

#include "api/call.h"
#include "base/text.h"
#include "net/http/sse.h"
#include "view/event_document.h"

namespace billow::api::streams {

void events(CallPtr call) {
  const net::Request& request = call->request();
  auto after = number_param(request, "after", 0);
  const auto limit = number_param(request, "limit", limits::page_items_default);
  if (!after || !limit)
    return call->fail(!after ? after.error() : limit.error());
  if (const auto resume = parse_int(request.headers.get("Last-Event-ID"), 0, INT64_MAX))
    *after = static_cast<std::uint64_t>(*resume);
  const bool follow = request.param("follow") == "1";
  if (follow && request.param("after").empty() && request.headers.get("Last-Event-ID").empty())
    *after = call->host.journal().durable_seq();

  struct Tail : std::enable_shared_from_this<Tail> {
    CallPtr call;
    Seq sent = 0;
    bool reading = false, again = false, done = false;
    std::unique_ptr<net::Subscription> live;
    net::Timer heartbeat, rights;
    // Reads on from the journal itself, on a worker: a follower that was away and one that is live
    // go the same way.
    void pump() {
      if (done)
        return;
      if (reading) {
        again = true;
        return;
      }
      reading = true;
      again = false;
      const Status queued = call->host.workers().submit(
          [&journal = call->host.journal(), from = sent] {
            std::vector<Record> records;
            (void)journal.read(from, 512, [&](const Record& r) {
              records.push_back(r);
              return true;
            });
            return records;
          },
          [self = shared_from_this()](std::vector<Record> records) {
            self->took(std::move(records));
          });
      if (!queued)
        call->exchange->abort();
    }
    void took(std::vector<Record> records) {
      reading = false;
      if (done)
        return;
      std::string out;
      for (const Record& r : records) {
        sent = r.seq;
        const auto event = control::decode_event(r.seq, r.at, r.kind, r.payload);
        if (event)
          out += net::format_sse({.id = fmt::format("{}", r.seq),
                                  .event = r.kind,
                                  .data = view::event_document(*event).dump()});
      }
      if (!out.empty() && !call->exchange->write(out))
        return call->exchange->abort();
      if (records.size() == 512 || again)
        pump();
    }
  };
  if (follow) {
    auto tail = std::make_shared<Tail>();
    tail->call = call;
    tail->sent = *after;
    call->exchange->start_stream(
        200, {{"Content-Type", "text/event-stream"}, {"Cache-Control", "no-store"}});
    tail->live = call->host.watch_events([weak = std::weak_ptr(tail)](const Event&) {
      if (auto t = weak.lock())
        t->pump();
    });
    tail->heartbeat = call->host.loop().every(seconds(15), [tail] {
      if (!tail->done)
        (void)tail->call->exchange->write(net::format_sse_comment("alive"));
    });
    tail->rights = call->host.loop().every(rights_every, [weak = std::weak_ptr(tail)] {
      const auto t = weak.lock();
      if (!t || t->done)
        return;
      const Status still = t->call->still_allowed();
      if (still)
        return;
      t->done = true;
      (void)t->call->exchange->write(
          net::format_sse({.id = "", .event = "error", .data = still.error().message}));
      t->call->exchange->finish();
      t->call->host.loop().post([t] {
        t->live.reset();
        t->heartbeat.cancel();
        t->rights.cancel();
      });
    });
    call->exchange->on_close([tail] {
      tail->done = true;
      tail->call->host.loop().post([tail] {
        tail->live.reset();
        tail->heartbeat.cancel();
        tail->rights.cancel();
      });
    });
    return tail->pump();
  }
  const Status queued = call->host.workers().submit(
      [&journal = call->host.journal(), from = *after,
       limit = std::min<std::uint64_t>(*limit, limits::page_items_max)] {
        Json list = Json::array();
        const auto last = journal.read(from, limit, [&](const Record& r) {
          if (const auto event = control::decode_event(r.seq, r.at, r.kind, r.payload))
            list.push(view::event_document(*event));
          return true;
        });
        return Json::object({{"events", std::move(list)}, {"next", last.value_or(from)}});
      },
      [call](Json document) { call->reply(200, document); });
  if (!queued)
    call->fail(queued.error());
}

}  // namespace billow::api::streams
