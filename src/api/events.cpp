// GET /v1/events: a page of the journal, or a stream that continues. Every follower reads the
// journal itself, at its own pace, whether it is far behind or up to date.
#include <fmt/format.h>

#include "api/call.h"
#include "base/crypto.h"
#include "base/text.h"
#include "net/http/sse.h"
#include "view/event_document.h"
#include "view/names.h"

namespace billow::api::streams {
namespace {

constexpr std::size_t records_per_read = 512;
constexpr Duration sign_of_life_every = seconds(15);

// Events name their job by its number, and events of a task only the task. People know a job by its
// label ("12", or "12.3" for element 3 of array 12) and its name. A worker finds those of jobs that
// have ended in the store; the state, on the loop, has the others.
struct Named {
  std::string label, name;
};
struct Page {
  std::vector<Json> events;
  Seq next = 0;
  std::map<JobId, Named> jobs;
  std::map<TaskId, JobId> tasks;
};

JobId job_in(const Json& document) {
  return JobId(document.at("event", "job").uint_or(0));
}
TaskId task_in(const Json& document) {
  return TaskId(document.at("event", "task").uint_or(0));
}

// The first lease of a task has the task's number (ledger::lease_id).
JobId job_of_ended(const Queries& queries, TaskId task) {
  const auto leases = queries.leases({.after = LeaseId(task.value - 1), .limit = 1});
  return leases && !leases->empty() && leases->front().task == task ? leases->front().job : JobId{};
}

void name_ended_jobs(const Queries& queries, Page& page) {
  for (const Json& document : page.events) {
    JobId job = job_in(document);
    if (const TaskId task = task_in(document); !job && task) {
      const auto [known, is_new] = page.tasks.try_emplace(task);
      if (is_new)
        known->second = job_of_ended(queries, task);
      job = known->second;
    }
    if (!job || page.jobs.contains(job))
      continue;
    const auto row = queries.get_job(job);
    if (row && *row)
      page.jobs[job] = {(*row)->array
                            ? fmt::format("{}.{}", (*row)->array.value, (*row)->array_index)
                            : fmt::format("{}", job.value),
                        (*row)->name};
  }
}

void show_job_names(const control::State& state, Page& page) {
  for (Json& document : page.events) {
    JobId job = job_in(document);
    if (const TaskId task = task_in(document); !job && task) {
      const auto live = state.tasks.find(task);
      const auto ended = page.tasks.find(task);
      job = live != state.tasks.end()   ? live->second.job
            : ended != page.tasks.end() ? ended->second
                                        : JobId{};
    }
    if (!job)
      continue;
    Named named{fmt::format("{}", job.value), ""};
    if (const Job* live = state.find_job(job))
      named = {view::job_label(*live), live->spec->name};
    else if (const auto ended = page.jobs.find(job); ended != page.jobs.end())
      named = ended->second;
    document.set("job", named.label);
    if (!named.name.empty())
      document.set("job_name", named.name);
  }
}

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
        [&journal = call->host.journal(), &queries = call->host.queries(), from = sent] {
          std::size_t records = 0;
          Page page{.events = {}, .next = from};
          (void)journal.read(from, records_per_read, [&](const Record& r) {
            ++records;
            page.next = r.seq;
            if (const auto event = control::decode_event(r.seq, r.at, r.kind, r.payload))
              page.events.push_back(view::event_document(*event));
            return true;
          });
          name_ended_jobs(queries, page);
          return std::pair(std::move(page), records == records_per_read);
        },
        [self = shared_from_this()](std::pair<Page, bool> read) {
          self->took(std::move(read.first), read.second);
        });
    if (!queued)
      call->exchange->abort();
  }
  void took(Page page, bool more) {
    reading = false;
    if (done)
      return;
    sent = page.next;
    show_job_names(call->host.state(), page);
    std::string out;
    for (const Json& event : page.events)
      out += net::format_sse({.id = fmt::format("{}", event["seq"].uint_or(0)),
                              .event = std::string(event["kind"].str_or("")),
                              .data = event.dump()});
    if (!out.empty() && !call->exchange->write(out))
      return call->exchange->abort();
    if (more || again)
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
      [&journal = call->host.journal(), &queries = call->host.queries(), after, limit, with_chain] {
        Page page;
        const auto last = journal.read(after, limit, [&](const Record& r) {
          auto event = control::decode_event(r.seq, r.at, r.kind, r.payload);
          // A record that cannot be read still has its place in the chain.
          Json document = event ? view::event_document(*event)
                                : Json::object({{"seq", r.seq}, {"kind", r.kind}});
          if (with_chain)
            document.set("chain", chain_of(r));
          if (event || with_chain)
            page.events.push_back(std::move(document));
          return true;
        });
        page.next = last.value_or(after);
        if (!with_chain)  // an export has only what the journal has
          name_ended_jobs(queries, page);
        return page;
      },
      [call, with_chain](Page page) {
        if (!with_chain)
          show_job_names(call->host.state(), page);
        call->reply(200,
                    Json::object({{"events", Json(std::move(page.events))}, {"next", page.next}}));
      });
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
