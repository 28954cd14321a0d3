// The routes of jobs: submit, list, look, wait, stop, signal, explain.
#include <algorithm>

#include <fmt/format.h>

#include "api/call.h"
#include "api/files.h"
#include "api/rerun.h"
#include "base/limits.h"
#include "base/text.h"
#include "core/control/fabric.h"
#include "core/wire/codec.h"
#include "view/job_document.h"
#include "view/stored.h"
#include "view/waiting.h"

namespace billow::api::jobs {
namespace {

struct SubmitBody {
  JobSpec spec;
  Environment env;
  std::string project;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("spec", s.spec);
    v("env", s.env);
    v("project", s.project);
  }
};

// Runs `then` with the final states of those dependencies that have left the state: the core cannot
// look them up.
void with_finished(CallPtr call,
                   const std::vector<Dependency>& after,
                   std::function<void(std::map<JobId, JobState>)> then) {
  const auto& state = call->host.state();
  std::vector<JobId> unknown;
  std::map<JobId, JobState> finished;
  // A job that the caller may not see answers like one that does not exist.
  const auto none = [](JobId job) {
    return Error{Code::not_found, fmt::format("--after {}: there is no such job", job.value),
                 "see `billow ps -a`"};
  };
  for (const Dependency& d : after) {
    if (const auto owner = owner_of(state, d.job)) {
      if (!may_see(*call, owner->project))
        return call->fail(none(d.job));
    } else if (const auto document = call->host.recently_finished(d.job)) {
      const Project* project = state.project_by_name((*document)["project"].str_or(""));
      if (!project || !may_see(*call, project->id))
        return call->fail(none(d.job));
      if (const auto ended = enum_value<JobState>((*document)["state"].str_or("")))
        finished[d.job] = *ended;
    } else {
      unknown.push_back(d.job);
    }
  }
  if (unknown.empty())
    return then(std::move(finished));
  const Status queued = call->host.workers().submit(
      [&queries = call->host.queries(), unknown, visible = visible_projects(*call),
       finished = std::move(finished)]() mutable {
        for (JobId id : unknown) {
          const auto row = queries.get_job(id);
          if (!row || !*row ||
              std::find(visible.begin(), visible.end(), (*row)->project) == visible.end())
            continue;
          if (const auto ended = enum_value<JobState>((*row)->state))
            finished[id] = *ended;
        }
        return std::move(finished);
      },
      [then](std::map<JobId, JobState> result) { then(std::move(result)); });
  if (!queued)
    call->fail(queued.error());
}

// Explaining why a job waits walks the whole queue; behind a longer queue than this, only `explain`
// does it.
constexpr std::size_t reason_queue_max = 1'000;

Json submitted_document(const Host& host,
                        const std::vector<Event>& events,
                        const std::string& key) {
  JobId first;
  std::uint64_t count = 1;
  bool array = false;
  for (const Event& event : events) {
    if (const auto* submitted = get_if<JobsSubmitted>(&event.body)) {
      first = submitted->first;
      array = submitted->spec->array.has_value();
      count = array ? submitted->count - 1 : 1;
    }
  }
  if (!first) {  // the key was used before: the same answer again
    const auto known = host.state().job_by_key.find(key);
    if (known != host.state().job_by_key.end())
      first = known->second;
    if (const auto at = host.state().arrays.find(first); at != host.state().arrays.end())
      array = true, count = at->second.count;
  }
  Json document = Json::object({{"id", first.value}, {"count", count}, {"array", array}});
  const Job* job = host.state().find_job(first);
  document.set("state", job ? enum_name(job->state) : array ? "queued" : "ended");
  if (job) {
    if (const auto notes = control::fabric_notes(host.state(), *job); !notes.empty()) {
      Json warnings = Json::array();
      for (const std::string& note : notes)
        warnings.push(note);
      document.set("warnings", std::move(warnings));
    }
    document.set("reason", job->reason);
    // An explanation walks the whole queue; behind a long one the submitter should not wait for it.
    const std::size_t queued = host.state().index.queued_count();
    if (queued <= reason_queue_max)
      view::add_waiting_reason(document, host.state(), *job, host.now());
    else if (job->state == JobState::queued && job->reason.empty())
      document.set("reason", fmt::format("{} jobs are queued; for details: billow explain {}",
                                         queued, first.value));
  }
  return document;
}

struct Listing {
  JobFilter filter;
  bool live = true, finished = false, expand = false;
  bool reasons = false;  // explain why jobs wait: walks the queue for each of them
  std::set<JobState> states;
  std::size_t limit = limits::page_items_default;
  std::uint64_t below = UINT64_MAX;  // page through numbers below this one
};

Result<Listing> parse_listing(const Call& call) {
  const net::Request& request = call.request();
  const auto& state = call.host.state();
  Listing out;
  const std::string_view wanted = request.has_param("state") ? request.param("state") : "active";
  if (wanted == "all") {
    out.finished = true;
  } else if (wanted != "active") {
    out.live = false;
    for (const std::string& name : split(wanted, ',')) {
      const auto s = enum_value<JobState>(name);
      if (!s)
        return fail(Code::invalid, fmt::format("unknown job state \"{}\"", name),
                    "one of held, queued, running, suspended, succeeded, failed, stopped, lost; or "
                    "active, all");
      out.states.insert(*s);
      if (is_final(*s))
        out.finished = true, out.filter.states.push_back(name);
      else
        out.live = true;
    }
  }
  if (request.has_param("project")) {
    out.filter.project = BILLOW_TRY(visible_project(call, request.param("project")))->id;
  }
  if (request.has_param("user")) {
    const User* user = state.user_by_name(request.param("user"));
    if (!user)
      return fail(Code::not_found, fmt::format("there is no user \"{}\"", request.param("user")));
    out.filter.user = user->id;
  }
  // What the caller may not see is left out before anything is counted.
  if (auto visible = visible_projects(call); visible.size() < state.projects.size()) {
    if (visible.size() == 1)
      out.filter.project = visible.front();
    else
      out.filter.visible = std::move(visible);
  }
  out.filter.name = std::string(request.param("name"));
  if (request.has_param("array")) {
    out.filter.array = JobId(
        static_cast<std::uint64_t>(BILLOW_TRY(parse_int(request.param("array"), 1, INT64_MAX))));
    out.expand = true;
  }
  out.expand = out.expand || request.param("expand") == "1";
  out.filter.elements = out.expand;
  out.reasons = request.param("reasons") == "1";
  for (const auto& [key, value] : request.query) {
    if (key != "label")
      continue;
    const auto equals = value.find('=');
    if (equals == std::string::npos)
      return fail(Code::invalid, fmt::format("label \"{}\" is not key=value", value));
    out.filter.labels.push_back({value.substr(0, equals), value.substr(equals + 1)});
  }
  if (request.has_param("limit"))
    out.limit = static_cast<std::size_t>(BILLOW_TRY(
        parse_int(request.param("limit"), 1, static_cast<std::int64_t>(limits::page_items_max))));
  if (!request.param("cursor").empty()) {
    const auto below = parse_int(request.param("cursor"), 1, INT64_MAX);
    if (!below)
      return fail(Code::invalid, "invalid cursor: it does not belong to this listing");
    out.below = static_cast<std::uint64_t>(*below);
  }
  return out;
}

bool wanted(
    const Listing& listing, const JobSpec& spec, ProjectId project, UserId user, JobId array) {
  const JobFilter& f = listing.filter;
  if (f.project && f.project != project)
    return false;
  if (f.user && f.user != user)
    return false;
  if (f.array && f.array != array)
    return false;
  if (!f.name.empty() && f.name != spec.name)
    return false;
  for (const auto& [key, value] : f.labels) {
    const auto found = spec.labels.find(key);
    if (found == spec.labels.end() || found->second != value)
      return false;
  }
  return true;
}

// Each explanation walks the whole queue: a few per page, and none behind a long queue.
void explain_in_list(Json& document,
                     const control::State& state,
                     const Job& job,
                     WallTime now,
                     std::size_t& explained) {
  constexpr std::size_t explained_max = 20;
  if (explained++ < explained_max && state.index.queued_count() <= reason_queue_max)
    view::add_waiting_reason(document, state, job, now);
  else
    document.set("reason", fmt::format("{} jobs are queued; for details: billow explain {}",
                                       state.index.queued_count(), job.id.value));
}

// Live jobs and arrays with numbers below the cursor, newest first.
std::vector<Json> live_page(const Call& call, const Listing& listing) {
  const auto& state = call.host.state();
  std::vector<Json> out;
  std::size_t explained = 0;
  auto job = state.jobs.lower_bound(JobId(listing.below));
  auto array = state.arrays.lower_bound(JobId(listing.below));
  while (out.size() <= listing.limit &&
         (job != state.jobs.begin() || array != state.arrays.begin())) {
    const bool take_array =
        array != state.arrays.begin() &&
        (job == state.jobs.begin() || std::prev(array)->first > std::prev(job)->first);
    if (take_array) {
      const auto& a = (--array)->second;
      const bool state_ok =
          listing.states.empty() ||
          listing.states.contains(a.running ? JobState::running : JobState::queued);
      if (!listing.filter.array && state_ok && wanted(listing, *a.spec, a.project, a.user, {}) &&
          may_see(call, a.project))
        out.push_back(view::live_array_document(state, a));
    } else {
      const Job& j = (--job)->second;
      if (j.array &&
          !listing.expand) {  // the array's own row stands for its elements: skip them all at once
        job = state.jobs.lower_bound(JobId(j.array.value + 1));
        continue;
      }
      const bool state_ok = listing.states.empty() || listing.states.contains(j.state);
      if (state_ok && wanted(listing, *j.spec, j.project, j.user, j.array) &&
          may_see(call, j.project)) {
        out.push_back(live_document(call.host, j));
        add_start_note(out.back(), call.host, j);
        if (listing.reasons && j.state == JobState::queued && j.reason.empty() &&
            out.back()["reason"].str_or("").empty())
          explain_in_list(out.back(), state, j, call.host.now(), explained);
      }
    }
  }
  return out;
}

// A page of documents, newest first: what is live merged with what the store holds.
// `looked_to`: the store was read down to this number only, and the page ends there; 0: to its end.
void answer_page(CallPtr call,
                 const Listing& listing,
                 std::vector<Json> live,
                 std::vector<Json> finished,
                 std::uint64_t looked_to = 0) {
  std::vector<Json> all = std::move(live);
  if (looked_to)
    std::erase_if(all, [&](const Json& document) { return document["id"].uint_or(0) < looked_to; });
  std::move(finished.begin(), finished.end(), std::back_inserter(all));
  std::stable_sort(all.begin(), all.end(), [](const Json& a, const Json& b) {
    return a["id"].int_or(0) > b["id"].int_or(0);
  });
  // A job that ended between the two looks is in both.
  all.erase(std::unique(all.begin(), all.end(),
                        [](const Json& a, const Json& b) { return a["id"] == b["id"]; }),
            all.end());
  const bool more = all.size() > listing.limit;
  if (more)
    all.resize(listing.limit);
  const std::string next = more        ? fmt::format("{}", all.back()["id"].int_or(0))
                           : looked_to ? fmt::format("{}", looked_to)
                                       : "";
  with_times(call, std::move(all), [call, next](std::vector<Json> documents) {
    Json jobs = Json::array();
    for (Json& document : documents)
      jobs.push(std::move(document));
    call->reply_durable(200, Json::object({{"jobs", std::move(jobs)}, {"next", next}}));
  });
}

struct Found {
  std::vector<JobRow> rows;
  std::uint64_t looked_to = 0;
};

// What the store holds of ended jobs, beside what is live.
void add_finished(CallPtr call, const Listing& listing, std::vector<Json> live) {
  const Status queued = call->host.workers().submit(
      [&queries = call->host.queries(), listing]() -> Result<Found> {
        // The store looks at so many rows at once and no more, so one page here may take several of
        // its own.
        std::vector<JobRow> rows;
        std::string at = listing.below == UINT64_MAX ? "" : fmt::format("n{}", listing.below);
        for (int tries = 0; tries < 50; ++tries) {
          auto page = queries.list_jobs(listing.filter, JobOrder::newest, at, listing.limit + 1);
          if (!page)
            return pass(page.error());
          std::move(page->jobs.begin(), page->jobs.end(), std::back_inserter(rows));
          at = page->next;
          if (at.empty() || rows.size() > listing.limit)
            break;
        }
        const bool all = at.empty() || rows.size() > listing.limit;
        return Found{std::move(rows), all ? 0
                                          : static_cast<std::uint64_t>(BILLOW_TRY(parse_int(
                                                std::string_view(at).substr(1), 1, INT64_MAX)))};
      },
      [call, listing, live = std::move(live)](Result<Found> found) mutable {
        if (!found)
          return call->fail(found.error());
        std::vector<Json> finished;
        for (const JobRow& row : found->rows)
          if (may_see(*call, row.project))
            if (auto document = view::stored_document(row.doc))
              finished.push_back(std::move(*document));
        answer_page(call, listing, std::move(live), std::move(finished), found->looked_to);
      });
  if (!queued)
    call->fail(queued.error());
}

}  // namespace

void submit(CallPtr call) {
  auto body = read_body<SubmitBody>(call);
  if (!body)
    return;
  SubmitJob command;
  command.spec = std::move(body->spec);
  command.spec.surroundings.environment_digest
      .clear();  // only what the name stands for now counts; older content is for reruns
  command.env = std::move(body->env);
  command.user = call->principal.user;
  command.idempotency_key = std::string(call->request().headers.get("Idempotency-Key"));
  if (command.idempotency_key.size() > 255 || !valid_utf8(command.idempotency_key))
    return call->fail({Code::invalid, "an Idempotency-Key must be text of at most 255 bytes", ""});
  auto project = project_to_submit_to(*call, body->project);
  if (!project)
    return call->fail(project.error());
  command.project = std::move(*project);
  if (const Status files = files::may_use(*call, command.env, command.project); !files)
    return call->fail(files.error());
  const std::string key = call->principal.name + ":" + command.idempotency_key;
  with_finished(
      call, command.spec.after, [call, command, key](std::map<JobId, JobState> finished) mutable {
        command.finished = std::move(finished);
        call->execute(std::move(command), 201, [call, key](const std::vector<Event>& events) {
          return submitted_document(call->host, events, key);
        });
      });
}

void list(CallPtr call) {
  auto listing = parse_listing(*call);
  if (!listing)
    return call->fail(listing.error());
  std::vector<Json> live;
  if (listing->live)
    live = live_page(*call, *listing);
  if (!listing->finished)
    return answer_page(call, *listing, std::move(live), {});
  // A job that has just left the state is in the store once the events that ended it are durable;
  // before that it would be in neither.
  call->host.when_durable(
      [call, listing = *listing, live = std::move(live)] { add_finished(call, listing, live); });
}

void get(CallPtr call) {
  const auto ref = parse_job_ref(*call, call->parts[0]);
  if (!ref)
    return call->fail(ref.error());
  with_job_document(call, ref->id, [call, id = ref->id](Json document) {
    if (std::string digest = image_digest_of(call->host, id, document); !digest.empty())
      document.set("image_digest", std::move(digest));
    call->reply(200, document);
  });
}

void wait(CallPtr call) {
  const auto ref = parse_job_ref(*call, call->parts[0]);
  if (!ref)
    return call->fail(ref.error());
  const auto timeout = call->request().has_param("timeout_s")
                           ? parse_int(call->request().param("timeout_s"), 0, 3600)
                           : Result<std::int64_t>(30);
  if (!timeout)
    return call->fail(timeout.error());
  struct Waiter {
    std::unique_ptr<net::Subscription> subscription;
    net::Timer timer;
    bool done = false;
  };
  auto waiter = std::make_shared<Waiter>();
  const JobId id = ref->id;
  // Answers at the job's end or at the time limit; not at all if the client disconnects first.
  const auto finish = [call, waiter, id](bool reply) {
    if (waiter->done)
      return;
    waiter->done = true;
    call->host.loop().post([waiter] {
      waiter->subscription.reset();
      waiter->timer.cancel();
    });
    if (!reply)
      return;
    if (const Status still = call->still_allowed(); !still)
      return call->fail(still.error());
    with_job_document(call, id, [call](Json document) { call->reply(200, document); });
  };
  if (!owner_of(call->host.state(), id) || *timeout == 0)
    return finish(true);
  waiter->subscription = call->host.watch_job(id, [call, finish, id](const Event& event) {
    const auto* ended = get_if<JobEnded>(&event.body);
    if (ended && !owner_of(call->host.state(), id))
      finish(true);
  });
  waiter->timer = call->host.loop().after(seconds(*timeout), [finish] { finish(true); });
  call->exchange->on_close([finish] { finish(false); });
}

void stop(CallPtr call) {
  const auto ref = parse_job_ref(*call, call->parts[0]);
  if (!ref)
    return call->fail(ref.error());
  const auto body = call->body();
  if (!body)
    return call->fail(body.error());
  const auto owner = owner_of(call->host.state(), ref->id);
  if (!owner) {  // ended already (asking twice is no error), or never existed
    return with_job_document(call, ref->id, [call](Json document) { call->reply(200, document); });
  }
  if (const Status ok = may_act_on(*call, ref->id, *owner); !ok)
    return call->fail(ok.error());
  std::string reason(utf8_prefix((*body)["reason"].str_or(""), limits::reason_bytes_max));
  if (reason.empty())
    reason = "stopped by " + call->principal.name;
  call->host.execute(StopJob{ref->id, reason, (*body)["force"].bool_or(false)}, call->cause(),
                     [call, id = ref->id](Result<std::vector<Event>> events) {
                       if (!events)
                         return call->fail(events.error());
                       with_job_document(call, id,
                                         [call](Json document) { call->reply(200, document); });
                     });
}

void signal(CallPtr call) {
  const auto ref = parse_job_ref(*call, call->parts[0]);
  if (!ref)
    return call->fail(ref.error());
  const auto body = call->body();
  if (!body)
    return call->fail(body.error());
  const std::int64_t number = (*body)["signal"].int_or(0);
  if (number < 1 || number > 64)
    return call->fail({Code::invalid, "signal must be a number from 1 to 64", ""});
  const Job* job = call->host.state().find_job(ref->id);
  if (!job)
    return with_job_document(call, ref->id, [call, id = ref->id](Json) {
      call->fail({Code::conflict, fmt::format("job {} is not running", id.value), ""});
    });
  if (const Status ok = may_act_on(*call, ref->id, {job->project, job->user}); !ok)
    return call->fail(ok.error());
  if (job->state != JobState::running)
    return call->fail(
        {Code::conflict,
         fmt::format("job {} is {}, not running", ref->id.value, enum_name(job->state)), ""});
  for (TaskId id : job->tasks)
    call->host.send(call->host.state().tasks.at(id).node,
                    wire::agent_v1::Signal{id, static_cast<std::int32_t>(number)});
  call->reply(202, Json::object({{"ok", true}}));
}

namespace {

// Of a job that has ended: how, and where to look.
Json ended_explanation(const Json& document) {
  const std::string state(document["state"].str_or("")), reason(document["reason"].str_or("")),
      exit(document.at("exit", "text").str_or(""));
  std::string text = reason;
  if (!exit.empty() && reason.find(exit) == std::string::npos &&
      (state != "stopped" || reason.empty()))
    text += (text.empty() ? "" : "; ") + exit;
  if (text.empty())
    text = "it has ended";
  Json reasons = Json::array();
  reasons.push(Json::object({{"kind", "ended"}, {"text", text}}));
  if (state == "failed" && !document["started_at"].str_or("").empty())
    reasons.push(Json::object(
        {{"kind", "ended"},
         {"text", fmt::format("its output: billow logs {}", document["label"].str_or(""))}}));
  return Json::object({{"id", document["id"]},
                       {"state", document["state"]},
                       {"reasons", std::move(reasons)},
                       {"earliest_start", Json()},
                       {"would_start_now", Json()},
                       {"expected", Json()}});
}

}  // namespace

void explain(CallPtr call) {
  const auto ref = parse_job_ref(*call, call->parts[0]);
  if (!ref)
    return call->fail(ref.error());
  const auto& state = call->host.state();
  const Job* job = state.find_job(ref->id);
  const bool for_array = state.arrays.contains(ref->id);
  if (for_array) {
    // An array waits for what its first waiting element waits for.
    for (auto at = state.jobs.lower_bound(JobId(ref->id.value + 1));
         at != state.jobs.end() && at->second.array == ref->id; ++at) {
      job = &at->second;
      if (job->state != JobState::running)
        break;
    }
  }
  if (!job)
    return with_job_document(
        call, ref->id, [call](Json document) { call->reply(200, ended_explanation(document)); });
  if (!may_see(*call, job->project))
    return call->fail(no_job(ref->id));
  call->reply_durable(200, view::explain_document(state, *job, call->host.moment(), for_array));
}

}  // namespace billow::api::jobs
