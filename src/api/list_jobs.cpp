// Lists jobs: what is live, merged with what the store holds of ended ones. A search looks at the
// words of both (store/job_words.h). By id a listing is paged without an end; in another order it
// is made of the newest matches, up to a limit.
#include <algorithm>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "api/call.h"
#include "base/limits.h"
#include "base/text.h"
#include "store/job_words.h"
#include "view/job_document.h"
#include "view/names.h"
#include "view/rows.h"
#include "view/spec_document.h"
#include "view/stored.h"
#include "view/waiting.h"

namespace billow::api::jobs {
namespace {

enum class SortBy { id, started, ran, cost };

// Matches that are sorted: of ended jobs, and of live ones, whose documents cost the loop's time.
constexpr std::size_t sorted_stored_max = 10'000, sorted_live_max = 2'000;

struct Listing {
  JobFilter filter;
  std::string node;  // the beginning of the name of one of its nodes
  SortBy sort = SortBy::id;
  bool ascending = false;
  bool newest_first() const { return sort == SortBy::id && !ascending; }
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

Status add_states(Listing& out, std::string_view names) {
  out.live = false;
  for (const std::string& name : split(names, ',')) {
    const auto s = enum_value<JobState>(name);
    if (!s)
      return fail(Code::invalid, fmt::format("unknown job state \"{}\"", name),
                  did_you_mean_state(name));
    out.states.insert(*s);
    if (is_final(*s)) {
      out.finished = true;
      out.filter.states.push_back(name);
    } else {
      out.live = true;
    }
  }
  return {};
}

Status list_user(Listing& out, const Call& call, std::string_view name) {
  const User* user = call.host.state().user_by_name(name);
  if (!user)
    return fail(Code::not_found, fmt::format("there is no user \"{}\"", name),
                "see `billow user list`");
  out.filter.user = user->id;
  return {};
}

// One word of a search: a condition such as user:ana, or words that the job must have.
Status add_search_word(Listing& out, const Call& call, const std::string& text) {
  const std::size_t colon = text.find(':');
  const std::string key = colon == std::string::npos ? "" : text.substr(0, colon);
  const std::string value = colon == std::string::npos ? text : text.substr(colon + 1);
  if (key == "user")
    return list_user(out, call, value);
  if (key == "state" && value == "all") {
    out.finished = out.live = true;
    return {};
  }
  if (key == "state") {
    out.states.clear();
    out.filter.states.clear();
    out.finished = false;
    return add_states(out, value);
  }
  if (key == "project") {
    out.filter.project = BILLOW_TRY(visible_project(call, value))->id;
    return {};
  }
  if (const std::size_t equals = value.find('='); key == "label" && equals != std::string::npos) {
    out.filter.labels.push_back({value.substr(0, equals), value.substr(equals + 1)});
    return {};
  }
  if (key == "node")
    out.node = lower(value);
  const bool known = key == "node" || key == "label" || key == "type";
  for (std::string& word : search_words(known ? value : text))
    out.filter.words.push_back(std::move(word));
  return {};
}

Status add_search(Listing& out, const Call& call, std::string_view search) {
  constexpr std::size_t words_max = 16;
  if (search.size() > limits::words_bytes_max)
    return fail(Code::invalid,
                fmt::format("a search has at most {} bytes", limits::words_bytes_max));
  for (const std::string& text : split(search, ' '))
    if (!text.empty())
      BILLOW_TRY_VOID(add_search_word(out, call, text));
  if (out.filter.words.size() > words_max)
    return fail(Code::invalid, fmt::format("a search has at most {} words", words_max));
  return {};
}

Status add_order(Listing& out, std::string_view sort) {
  out.ascending = !sort.starts_with('-');
  const std::string_view name = out.ascending ? sort : sort.substr(1);
  for (const auto& [by, known] :
       {std::pair(SortBy::id, "id"), std::pair(SortBy::started, "started"),
        std::pair(SortBy::ran, "ran"), std::pair(SortBy::cost, "cost")})
    if (name == known) {
      out.sort = by;
      return {};
    }
  return fail(Code::invalid, fmt::format("jobs cannot be sorted by \"{}\"", name),
              "use id, started, ran or cost, with - before it for the largest first");
}

Result<Listing> parse_listing(const Call& call) {
  const net::Request& request = call.request();
  const auto& state = call.host.state();
  Listing out;
  const std::string_view wanted = request.has_param("state") ? request.param("state") : "active";
  if (wanted == "all") {
    out.finished = true;
  } else if (wanted != "active") {
    BILLOW_TRY_VOID(add_states(out, wanted));
  }
  if (request.has_param("project")) {
    out.filter.project = BILLOW_TRY(visible_project(call, request.param("project")))->id;
  }
  if (request.has_param("user"))
    BILLOW_TRY_VOID(list_user(out, call, request.param("user")));
  BILLOW_TRY_VOID(add_search(out, call, request.param("search")));
  if (!request.param("sort").empty())
    BILLOW_TRY_VOID(add_order(out, request.param("sort")));
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
  // "9.38" names an element.
  const bool names_element =
      std::any_of(out.filter.words.begin(), out.filter.words.end(),
                  [](const std::string& word) { return word.find('.') != std::string::npos; });
  out.expand = out.expand || request.param("expand") == "1" || names_element;
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
  if (!request.param("ended_after").empty()) {
    out.filter.ended_from.ns =
        BILLOW_TRY(parse_int(request.param("ended_after"), 0, INT64_MAX / 1'000'000)) * 1'000'000;
    out.live = false;
    out.finished = true;
  }
  if (request.has_param("limit"))
    out.limit = static_cast<std::size_t>(BILLOW_TRY(
        parse_int(request.param("limit"), 1, static_cast<std::int64_t>(limits::page_items_max))));
  const std::string_view cursor =
      request.has_param("before") ? request.param("before") : request.param("cursor");
  if (!cursor.empty()) {
    const auto below = parse_int(cursor, 1, INT64_MAX);
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
  if (f.visible && std::find(f.visible->begin(), f.visible->end(), project) == f.visible->end())
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

bool has_words(const Listing& listing, JobId id, const std::string& words) {
  return std::all_of(listing.filter.words.begin(), listing.filter.words.end(),
                     [&](const std::string& word) {
                       return has_word(words, word) || word == fmt::format("{}", id.value);
                     });
}

bool has_live_words(const Listing& listing, const control::State& state, const Job& job) {
  if (listing.filter.words.empty())
    return true;
  std::vector<Task> tasks;
  for (const TaskId id : job.tasks)
    tasks.push_back(state.tasks.at(id));
  const auto there = [&](const Task& task) {
    return lower(view::node_name(state, task.node)).starts_with(listing.node);
  };
  return has_words(listing, job.id, view::words_of(state, job, tasks)) &&
         (listing.node.empty() || std::any_of(tasks.begin(), tasks.end(), there));
}

// What a listing is sorted by, of one job.
struct SortedJob {
  std::int64_t key = 0;
  std::uint64_t id = 0;
  Json document;       // of a live one
  std::string stored;  // of an ended one

  static std::int64_t key_of(
      const Listing& listing, JobId id, WallTime started, WallTime until, NanoUsd cost) {
    switch (listing.sort) {
      case SortBy::id:
        return static_cast<std::int64_t>(id.value);
      case SortBy::started:
        return started.ns;
      case SortBy::ran:
        return started ? (until - started).ns : 0;
      case SortBy::cost:
        return cost.value;
    }
    return 0;
  }
};

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
      : call_(std::move(call)),
        listing_(std::move(listing)),
        below_(listing_.newest_first() ? listing_.below : UINT64_MAX),
        most_(listing_.newest_first() ? listing_.limit : sorted_live_max) {
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
      if (found_.size() > most_ || below_ <= end_ ||
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
  std::vector<SortedJob> take_sorted() {
    std::vector<SortedJob> out;
    for (std::size_t i = 0; i < found_.size(); ++i) {
      const std::uint64_t id = found_[i]["id"].uint_or(0);
      out.push_back({keys_[i], id, std::move(found_[i]), {}});
    }
    return out;
  }
  bool more() const { return found_.size() > most_; }

 private:
  void look_at(const control::ArrayState& a) {
    const bool state_ok =
        listing_.states.empty() ||
        listing_.states.contains(a.running ? JobState::running : JobState::queued);
    if (listing_.filter.array || !state_ok || !listing_.node.empty() ||
        !wanted(listing_, *a.spec, a.project, a.user, {}) || !may_see(*call_, a.project))
      return;
    if (!listing_.filter.words.empty() &&
        !has_words(listing_, a.id, view::words_of(call_->host.state(), a)))
      return;
    found_.push_back(view::live_array_document(call_->host.state(), a));
    keys_.push_back(SortedJob::key_of(listing_, a.id, a.submitted_at, call_->host.now(), a.cost));
  }
  void look_at(const Job& j) {
    const bool state_ok = listing_.states.empty() || listing_.states.contains(j.state);
    if (!state_ok || !wanted(listing_, *j.spec, j.project, j.user, j.array) ||
        !may_see(*call_, j.project) || !has_live_words(listing_, call_->host.state(), j))
      return;
    found_.push_back(live_document(call_->host, j));
    Json& document = found_.back();
    keys_.push_back(SortedJob::key_of(listing_, j.id, j.started_at, call_->host.now(),
                                      {document["cost_nano_usd"].int_or(0)}));
    add_start_note(document, call_->host, j);
    if (listing_.reasons && j.state == JobState::queued && j.reason.empty() &&
        document["reason"].str_or("").empty())
      explain_in_list(document, call_->host.state(), j, call_->host.now(), explained_);
  }

  CallPtr call_;
  Listing listing_;
  std::uint64_t below_;
  std::uint64_t end_ = 0;
  std::size_t most_;
  std::vector<Json> found_;
  std::vector<std::int64_t> keys_;
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
    for (Json& document : documents) {
      view::cover_variables(document);
      jobs.push(std::move(document));
    }
    call->reply_durable(200, Json::object({{"jobs", std::move(jobs)}, {"next", next}}));
  });
}

bool ran_on(const JobRow& row, const std::string& node) {
  return node.empty() ||
         std::any_of(row.nodes.begin(), row.nodes.end(),
                     [&](const std::string& name) { return lower(name).starts_with(node); });
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
        // A search that finds little answers with what it has, and where to continue.
        const int tries_max = listing.filter.words.empty() && !listing.filter.ended_from ? 50 : 1;
        for (int tries = 0; tries < tries_max; ++tries) {
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
          if (may_see(*call, row.project) && ran_on(row, listing.node))
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

// A page of the sorted matches, after the job that the caller has seen last.
void answer_sorted(CallPtr call, const Listing& listing, std::vector<SortedJob> all, bool more) {
  const bool up = listing.ascending;
  std::sort(all.begin(), all.end(), [up](const SortedJob& a, const SortedJob& b) {
    return up ? std::tie(a.key, a.id) < std::tie(b.key, b.id)
              : std::tie(a.key, a.id) > std::tie(b.key, b.id);
  });
  auto from = all.begin();
  if (listing.below != UINT64_MAX) {
    from = std::find_if(all.begin(), all.end(),
                        [&](const SortedJob& job) { return job.id == listing.below; });
    if (from != all.end())
      ++from;
  }
  const auto left = static_cast<std::size_t>(all.end() - from);
  const auto to = from + static_cast<std::ptrdiff_t>(std::min(left, listing.limit));
  std::vector<Json> page;
  for (auto job = from; job != to; ++job) {
    if (job->stored.empty())
      page.push_back(std::move(job->document));
    else if (auto document = view::stored_document(job->stored))
      page.push_back(std::move(*document));
  }
  const std::string next = to == all.end() || to == from ? "" : fmt::format("{}", (to - 1)->id);
  with_times(call, std::move(page), [call, next, more](std::vector<Json> documents) {
    Json jobs = Json::array();
    for (Json& document : documents) {
      view::cover_variables(document);
      jobs.push(std::move(document));
    }
    Json answer = Json::object({{"jobs", std::move(jobs)}, {"next", next}});
    if (more)
      answer.set("truncated", true);
    call->reply_durable(200, answer);
  });
}

struct SortedRows {
  std::vector<SortedJob> jobs;
  bool more = false;
};

Result<SortedRows> read_sorted(const Queries& queries, const Listing& listing) {
  SortedRows out;
  std::string at;
  for (int pages = 0; pages < 20; ++pages) {
    auto page = queries.list_jobs(listing.filter, JobOrder::newest, at, limits::page_items_max);
    if (!page)
      return pass(page.error());
    for (JobRow& row : page->jobs)
      if (ran_on(row, listing.node))
        out.jobs.push_back(
            {SortedJob::key_of(listing, row.id, row.started_at, row.ended_at, row.charge),
             row.id.value,
             {},
             std::move(row.doc)});
    at = page->next;
    if (at.empty())
      return out;
    if (out.jobs.size() >= sorted_stored_max)
      break;
  }
  out.more = true;
  return out;
}

void answer_in_order(CallPtr call, const Listing& listing, std::vector<SortedJob> live, bool more) {
  if (!listing.finished)
    return answer_sorted(call, listing, std::move(live), more);
  call->host.when_durable([call, listing, live = std::move(live), more]() mutable {
    const Status queued = call->host.workers().submit(
        [&queries = call->host.queries(), listing] { return read_sorted(queries, listing); },
        [call, listing, live, more](Result<SortedRows> found) mutable {
          if (!found)
            return call->fail(found.error());
          std::set<std::uint64_t> ended;
          for (const SortedJob& job : found->jobs)
            ended.insert(job.id);
          // A job that ended between the two looks is in both.
          for (SortedJob& job : live)
            if (!ended.contains(job.id))
              found->jobs.push_back(std::move(job));
          answer_sorted(call, listing, std::move(found->jobs), more || found->more);
        });
    if (!queued)
      call->fail(queued.error());
  });
}

void answer_walk(CallPtr call, const Listing& listing, Walk& walk) {
  if (listing.newest_first())
    return answer_with(std::move(call), listing, walk.take());
  const bool more = walk.more();
  answer_in_order(std::move(call), listing, walk.take_sorted(), more);
}

}  // namespace

void list(CallPtr call) {
  const auto listing = parse_listing(*call);
  if (!listing)
    return call->fail(listing.error());
  if (!listing->live)
    return listing->newest_first() ? answer_with(call, *listing, {})
                                   : answer_in_order(call, *listing, {}, false);
  const auto walk = std::make_shared<Walk>(call, *listing);
  if (walk->step())
    return answer_walk(call, *listing, *walk);
  call->turns->add([call, listing = *listing, walk] {
    if (!walk->step())
      return false;
    answer_walk(call, listing, *walk);
    return true;
  });
}

}  // namespace billow::api::jobs
