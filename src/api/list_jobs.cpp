// Lists jobs: what is live, merged with what the store holds of ended ones.
#include <algorithm>

#include <fmt/format.h>

#include "api/call.h"
#include "base/limits.h"
#include "base/text.h"
#include "view/job_document.h"
#include "view/stored.h"
#include "view/waiting.h"

namespace billow::api::jobs {
namespace {

struct Listing {
  JobFilter filter;
  bool live = true, finished = false, expand = false;
  bool reasons = false;  // explain why jobs wait: walks the queue for each of them
  std::set<JobState> states;
  std::size_t limit = limits::page_items_default;
  std::uint64_t below = UINT64_MAX;  // page through numbers below this one
};

std::string did_you_mean_state(const std::string& name) {
  const std::vector<std::string> known = {"held",   "queued",  "running", "suspended", "succeeded",
                                          "failed", "stopped", "lost",    "active",    "all"};
  const std::string close = nearest(name, known);
  return (close.empty() ? "" : fmt::format("did you mean {}? ", close)) +
         "states: " + join(known, ", ");
}

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
                    did_you_mean_state(name));
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

// Looks at live jobs and arrays with numbers below the cursor, newest first, a bounded number per
// turn of the loop: a filter that matches little must not make everybody wait while millions of
// jobs are looked at. Between two turns jobs may come and go; the walk continues below the number
// it has reached.
class Walk {
 public:
  Walk(CallPtr call, Listing listing)
      : call_(std::move(call)), listing_(std::move(listing)), below_(listing_.below) {
    // The elements of an array have the numbers after its own.
    if (const JobId of = listing_.filter.array) {
      const auto array = call_->host.state().arrays.find(of);
      const std::uint64_t count =
          array == call_->host.state().arrays.end() ? 0 : array->second.count;
      below_ = std::min(below_, of.value + count + 1);
      end_ = of.value + 1;
    }
  }

  // One turn. True: the page is full, or nothing is left.
  bool step() {
    const auto& state = call_->host.state();
    auto job = state.jobs.lower_bound(JobId(below_));
    auto array = state.arrays.lower_bound(JobId(below_));
    for (std::size_t looked = 0; looked < limits::jobs_walked_per_turn; ++looked) {
      if (found_.size() > listing_.limit || below_ <= end_ ||
          (job == state.jobs.begin() && array == state.arrays.begin()))
        return true;
      const bool take_array =
          array != state.arrays.begin() &&
          (job == state.jobs.begin() || std::prev(array)->first > std::prev(job)->first);
      if (take_array) {
        below_ = (--array)->first.value;
        look_at(array->second);
        continue;
      }
      const Job& j = (--job)->second;
      below_ = j.id.value;
      if (j.array && !listing_.expand)
        // The array's own row stands for its elements: skip them all at once.
        job = state.jobs.lower_bound(JobId(j.array.value + 1));
      else
        look_at(j);
    }
    return !call_->exchange->open();  // nobody waits for the rest
  }
  std::vector<Json> take() { return std::move(found_); }

 private:
  void look_at(const control::ArrayState& a) {
    const bool state_ok =
        listing_.states.empty() ||
        listing_.states.contains(a.running ? JobState::running : JobState::queued);
    if (!listing_.filter.array && state_ok && wanted(listing_, *a.spec, a.project, a.user, {}) &&
        may_see(*call_, a.project))
      found_.push_back(view::live_array_document(call_->host.state(), a));
  }
  void look_at(const Job& j) {
    const bool state_ok = listing_.states.empty() || listing_.states.contains(j.state);
    if (!state_ok || !wanted(listing_, *j.spec, j.project, j.user, j.array) ||
        !may_see(*call_, j.project))
      return;
    found_.push_back(live_document(call_->host, j));
    Json& document = found_.back();
    add_start_note(document, call_->host, j);
    if (listing_.reasons && j.state == JobState::queued && j.reason.empty() &&
        document["reason"].str_or("").empty())
      explain_in_list(document, call_->host.state(), j, call_->host.now(), explained_);
  }

  CallPtr call_;
  Listing listing_;
  std::uint64_t below_;
  std::uint64_t end_ = 0;
  std::vector<Json> found_;
  std::size_t explained_ = 0;
};

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

void answer_with(CallPtr call, const Listing& listing, std::vector<Json> live) {
  if (!listing.finished)
    return answer_page(call, listing, std::move(live), {});
  // A job that has just left the state is in the store once the events that ended it are durable;
  // before that it would be in neither.
  call->host.when_durable(
      [call, listing, live = std::move(live)] { add_finished(call, listing, live); });
}

}  // namespace

void list(CallPtr call) {
  const auto listing = parse_listing(*call);
  if (!listing)
    return call->fail(listing.error());
  if (!listing->live)
    return answer_with(call, *listing, {});
  const auto walk = std::make_shared<Walk>(call, *listing);
  if (walk->step())
    return answer_with(call, *listing, walk->take());
  call->turns->add([call, listing = *listing, walk] {
    if (!walk->step())
      return false;
    answer_with(call, listing, walk->take());
    return true;
  });
}

}  // namespace billow::api::jobs
