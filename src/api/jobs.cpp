// The routes of jobs: submit, look, wait, stop, signal, explain. (list_jobs.cpp lists them.)
#include <algorithm>

#include <fmt/format.h>

#include "api/call.h"
#include "api/files.h"
#include "api/rerun.h"
#include "base/limits.h"
#include "base/text.h"
#include "core/control/fabric.h"
#include "core/control/renting/quote.h"
#include "core/wire/codec.h"
#include "view/job_document.h"
#include "view/spec_document.h"
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

// What the job would rent; null: nothing.
Json rents_document(const Host& host, const JobSpec& spec, ProjectId project) {
  const auto quote = control::rent_quote(host.state(), spec, project, host.now());
  if (!quote)
    return {};
  return Json::object({{"pool", quote->pool},
                       {"text", quote->text},
                       {"usd_per_h", static_cast<double>(quote->per_hour.value) / 1e9},
                       {"ask", quote->per_hour > quote->ask_above_h || quote->per_hour.value == 0},
                       {"old_price", quote->old_price}});
}

// What a submission would do: rent machines, start or wait.
Json quote_document(const Host& host, const SubmitJob& command, ProjectId project) {
  Json out = Json::object({{"rents", rents_document(host, command.spec, project)}});
  const auto start =
      control::start_quote(host.state(), command.spec, project, command.user, host.now());
  if (start)
    out.set("starts", Json::object({{"now", start->now},
                                    {"text", start->now ? std::string("It can start now.")
                                                        : "It will wait: " + start->reason}}));
  return out;
}

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
    if (const auto at = host.state().arrays.find(first); at != host.state().arrays.end()) {
      array = true;
      count = at->second.count;
    }
  }
  Json document = Json::object({{"id", first.value}, {"count", count}, {"array", array}});
  const Job* job = host.state().find_job(first);
  document.set("state", job ? enum_name(job->state) : array ? "queued" : "ended");
  if (job) {
    auto notes = control::fabric_notes(host.state(), *job);
    if (std::string larger = view::larger_slice(host.state(), *job); !larger.empty())
      notes.push_back(std::move(larger));
    if (!notes.empty()) {
      Json warnings = Json::array();
      for (const std::string& note : notes)
        warnings.push(note);
      document.set("warnings", std::move(warnings));
    }
    document.set("reason", job->reason);
    if (job->state == JobState::queued)
      if (Json rents = rents_document(host, *job->spec, job->project); !rents.is_null())
        document.set("rents", std::move(rents));
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

// A secret that cannot be the login of a registry is found now, and not on a node. One that does
// not exist is found when the job is decided on.
Status check_registry_secrets(const Host& host, SubmitJob& command) {
  const auto& state = host.state();
  const auto own = control::default_project(state, command.user);
  const Project* project = !command.project.empty() ? state.project_by_name(command.project)
                           : own                    ? &state.projects.at(*own)
                                                    : nullptr;
  Status out;
  each_options(command.spec, [&](auto& options) {
    const std::string& name = options.surroundings.registry_secret;
    if (name.empty() || !project || !out)
      return;
    if (const auto found = state.secrets.find({project->id, name}); found != state.secrets.end())
      out = host.check_login(found->second);
  });
  return out;
}

}  // namespace

void submit(CallPtr call) {
  auto body = read_body<SubmitBody>(call);
  if (!body)
    return;
  SubmitJob command;
  command.spec = std::move(body->spec);
  each_options(command.spec, [](auto& options) {
    options.surroundings.environment_digest
        .clear();  // only what the name stands for now counts; older content is for reruns
  });
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
  if (const Status login = check_registry_secrets(call->host, command); !login)
    return call->fail(login.error());
  if (call->request().has_param("quote")) {
    const Project* of = call->host.state().project_by_name(command.project);
    return call->reply(200, quote_document(call->host, command, of ? of->id : ProjectId{}));
  }
  const std::string key = call->principal.name + ":" + command.idempotency_key;
  with_finished(
      call, command.spec.after, [call, command, key](std::map<JobId, JobState> finished) mutable {
        command.finished = std::move(finished);
        submit_for(call, std::move(command), [call, key](const std::vector<Event>& events) {
          return submitted_document(call->host, events, key);
        });
      });
}

void get(CallPtr call) {
  const auto ref = parse_job_ref(*call, call->parts[0]);
  if (!ref)
    return call->fail(ref.error());
  with_job_document(call, ref->id, [call, id = ref->id](Json document) {
    if (std::string digest = image_digest_of(call->host, id, document); !digest.empty())
      document.set("image_digest", std::move(digest));
    // Lists of live jobs go without it, because of its size.
    if (const Job* job = call->host.state().find_job(id); job && !document["spec"].is_object())
      document.set("spec", parse_json(wire::to_json_text(*job->spec)).value_or(Json()));
    view::cover_variables(document);
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
  // The time that an answer takes says nothing about jobs that the caller may not see.
  if (const Job* job = call->host.state().find_job(ref->id); job && !may_see(*call, job->project))
    return call->fail(
        {Code::not_found, fmt::format("there is no job {}", call->parts[0]), "see `billow ps -a`"});
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
    with_job_document(call, id, [call](Json document) {
      view::cover_variables(document);
      call->reply(200, document);
    });
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

namespace {

// A large array is stopped a few elements at a time, because each of them is an event of its own.
void stop_in_turns(CallPtr call, StopJob command, bool again) {
  call->host.execute(
      command, call->cause(), [call, command, again](Result<std::vector<Event>> events) {
        // The last elements may have ended meanwhile by themselves.
        if (!events && !(again && events.error().code == Code::not_found))
          return call->fail(events.error());
        const auto ended = [](const Event& event) {
          return get_if<JobEnded>(&event.body) != nullptr;
        };
        if (events && static_cast<std::size_t>(std::count_if(events->begin(), events->end(),
                                                             ended)) >= command.elements_max)
          return call->turns->add([call, command] {
            stop_in_turns(call, command, true);
            return true;
          });
        with_job_document(call, command.job, [call](Json document) { call->reply(200, document); });
      });
}

}  // namespace

namespace {

struct StopBody {
  std::string reason;
  bool force = false;  // kill at once
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("reason", s.reason);
    v("force", s.force);
  }
};
struct SignalBody {
  std::int32_t signal = 0;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("signal", s.signal);
  }
};

}  // namespace

void stop(CallPtr call) {
  const auto ref = parse_job_ref(*call, call->parts[0]);
  if (!ref)
    return call->fail(ref.error());
  const auto body = read_body<StopBody>(call);
  if (!body)
    return;
  const auto owner = owner_of(call->host.state(), ref->id);
  if (!owner) {  // ended already (asking twice is no error), or never existed
    return with_job_document(call, ref->id, [call](Json document) { call->reply(200, document); });
  }
  const bool foreign = call->principal.agent && owner->agent != call->principal.agent;
  // What its user may stop, an agent may ask for.
  if (const Status ok =
          may_act_on(*call, ref->id,
                     {owner->project, owner->user, foreign ? call->principal.agent : owner->agent});
      !ok)
    return call->fail(ok.error());
  std::string reason(utf8_prefix(body->reason, limits::reason_bytes_max));
  if (reason.empty())
    reason = "stopped by " + call->caller();
  const StopJob command{.job = ref->id,
                        .reason = reason,
                        .force = body->force,
                        .elements_max = limits::jobs_stopped_per_turn};
  if (!foreign)
    return stop_in_turns(call, command, false);
  with_approval(call, ApprovalAction::stop_job,
                fmt::format("stop job {}, which another token submitted", ref->id.value),
                [call, command] { stop_in_turns(call, command, false); });
}

void signal(CallPtr call) {
  const auto ref = parse_job_ref(*call, call->parts[0]);
  if (!ref)
    return call->fail(ref.error());
  const auto body = read_body<SignalBody>(call);
  if (!body)
    return;
  if (body->signal < 1 || body->signal > 64)
    return call->fail({Code::invalid, "signal must be a number from 1 to 64", ""});
  const Job* job = call->host.state().find_job(ref->id);
  if (!job)
    return with_job_document(call, ref->id, [call, id = ref->id](Json) {
      call->fail({Code::conflict, fmt::format("job {} is not running", id.value), ""});
    });
  if (const Status ok = may_act_on(*call, ref->id, {job->project, job->user, job->agent}); !ok)
    return call->fail(ok.error());
  if (job->state != JobState::running)
    return call->fail(
        {Code::conflict,
         fmt::format("job {} is {}, not running", ref->id.value, enum_name(job->state)), ""});
  for (TaskId id : job->tasks)
    call->host.send(call->host.state().tasks.at(id).node, wire::agent_v1::Signal{id, body->signal});
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

// What the job's nodes report about it: an image that is fetched, a wrong port, idleness with what
// follows from it.
void add_running_notes(Json& answer, const Host& host, const Job& job) {
  Json reasons = answer["reasons"];
  const auto because = [&](const char* kind, std::string text) {
    if (!text.empty())
      reasons.push(Json::object({{"kind", kind}, {"text", std::move(text)}}));
  };
  for (const TaskId id : job.state == JobState::running ? job.tasks : std::vector<TaskId>{}) {
    because("node", host.waits_for(id));
    because("idle",
            view::idle_text(host.state(), id, host.readings(host.state().tasks.at(id).node)));
  }
  answer.set("reasons", std::move(reasons));
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
  Json answer = view::explain_document(state, *job, call->host.moment(), for_array);
  add_running_notes(answer, call->host, *job);
  call->reply_durable(200, std::move(answer));
}

}  // namespace billow::api::jobs
