// GET /v1/events: a page of the journal, or a stream that continues. Every follower reads the
// journal itself, at its own pace, whether it is far behind or up to date.
#include <fmt/format.h>

#include "api/call.h"
#include "base/crypto.h"
#include "base/text.h"
#include "net/http/sse.h"
#include "view/event_document.h"

namespace billow::api::streams {
namespace {

constexpr std::size_t records_per_read = 512;
constexpr Duration sign_of_life_every = seconds(15);

struct Tail : std::enable_shared_from_this<Tail> {
  CallPtr call;
  Seq sent = 0;
  bool reading = false, again = false, done = false;
  std::unique_ptr<net::Subscription> live;
  net::Timer heartbeat, rights;

  void begin() {
    call->exchange->start_stream(
        200, {{"Content-Type", "text/event-stream"}, {"Cache-Control", "no-store"}});
    live = call->host.watch_events([weak = weak_from_this()](const Event&) {
      if (auto self = weak.lock())
        self->pump();
    });
    heartbeat = call->host.loop().every(sign_of_life_every, [self = shared_from_this()] {
      if (!self->done)
        (void)self->call->exchange->write(net::format_sse_comment("alive"));
    });
    rights = call->host.loop().every(rights_every, [weak = weak_from_this()] {
      if (auto self = weak.lock(); self && !self->done)
        self->look_at_rights();
    });
    call->exchange->on_close([self = shared_from_this()] { self->end(); });
    pump();
  }
  // The callbacks hold this object; they are dropped outside of any of them.
  void end() {
    done = true;
    call->host.loop().post([self = shared_from_this()] {
      self->live.reset();
      self->heartbeat.cancel();
      self->rights.cancel();
    });
  }
  void look_at_rights() {
    const Status still = call->still_allowed();
    if (still)
      return;
    (void)call->exchange->write(
        net::format_sse({.id = "", .event = "error", .data = still.error().message}));
    call->exchange->finish();
    end();
  }
  // Reads on from the journal, on a worker.
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
          (void)journal.read(from, records_per_read, [&](const Record& r) {
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
    if (records.size() == records_per_read || again)
      pump();
  }
};

// What a reader needs to check the record's link without seeing the stored payload, which can hold
// hashes of tokens and sealed values.
Json chain_of(const Record& record) {
  Json chain = Json::object({{"epoch", record.epoch},
                             {"at_ns", record.at.ns},
                             {"payload_sha256", sha256_hex(record.payload)},
                             {"link", record.link}});
  if (record.link_before)
    chain.set("link_before", *record.link_before);
  return chain;
}

void answer_page(const CallPtr& call, Seq after, std::uint64_t limit, bool with_chain) {
  const Status queued = call->host.workers().submit(
      [&journal = call->host.journal(), after, limit, with_chain] {
        Json list = Json::array();
        const auto last = journal.read(after, limit, [&](const Record& r) {
          auto event = control::decode_event(r.seq, r.at, r.kind, r.payload);
          // A record that cannot be read still has its place in the chain.
          Json document = event ? view::event_document(*event)
                                : Json::object({{"seq", r.seq}, {"kind", r.kind}});
          if (with_chain)
            document.set("chain", chain_of(r));
          if (event || with_chain)
            list.push(std::move(document));
          return true;
        });
        return Json::object({{"events", std::move(list)}, {"next", last.value_or(after)}});
      },
      [call](Json document) { call->reply(200, document); });
  if (!queued)
    call->fail(queued.error());
}

}  // namespace

void events(CallPtr call) {
  const net::Request& request = call->request();
  auto after = number_param(request, "after", 0);
  const auto limit = number_param(request, "limit", limits::page_items_default);
  if (!after || !limit)
    return call->fail(!after ? after.error() : limit.error());
  if (const auto resume = parse_int(request.headers.get("Last-Event-ID"), 0, INT64_MAX))
    *after = static_cast<std::uint64_t>(*resume);
  if (request.param("follow") != "1")
    return answer_page(call, *after, std::min<std::uint64_t>(*limit, limits::page_items_max),
                       request.param("chain") == "1");
  // Without a position a follower gets what happens from now on.
  if (request.param("after").empty() && request.headers.get("Last-Event-ID").empty())
    *after = call->host.journal().durable_seq();
  auto tail = std::make_shared<Tail>();
  tail->call = call;
  tail->sent = *after;
  tail->begin();
}

}  // namespace billow::api::streams
