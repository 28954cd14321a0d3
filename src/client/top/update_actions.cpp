// Stopping, suspending, resuming, draining: first a question, then the request, then the head's
// answer. People without the permission get a sentence instead of a question.
#include <fmt/format.h>

#include "client/frame/client.h"
#include "client/top/update.h"
#include "client/top/words.h"

namespace billow::client::top {
namespace {

bool may_change(State& state, const char* verb) {
  if (state.acting) {
    say_message(state, "the head has not answered the last request yet", true);
    return false;
  }
  if (state.fleet.you.may_change_jobs())
    return true;
  say_message(state,
              state.fleet.you.role == "viewer"
                  ? fmt::format("you cannot {} jobs: your role is viewer", verb)
                  : fmt::format("you cannot {} jobs: your token is read-only", verb),
              true);
  return false;
}

void ask_first(State& state, Action action) {
  state.message.clear();
  state.question = std::move(action);
}

// The job under the cursor, and its row where the stream still has it.
struct Chosen {
  Subject job;
  const JobEntry* row = nullptr;
  std::string state;
};
std::optional<Chosen> chosen_job(State& state, const char* verb) {
  if (!may_change(state, verb))
    return std::nullopt;
  const auto job = job_of_cursor(state);
  if (!job) {
    say_message(state, job.error().message, true);
    return std::nullopt;
  }
  Chosen out{*job, state.fleet.job(job->id), {}};
  if (out.row)
    out.state = out.row->state;
  else
    out.state = std::string(state.answer("detail", detail_path(*job))["state"].str_or(""));
  const bool final =
      (out.row && out.row->has_ended()) ||
      (!out.row && state.answer("detail", detail_path(*job))["final"].bool_or(false));
  if (final) {
    say_message(state, fmt::format("job {} has already ended", job->name), true);
    return std::nullopt;
  }
  return out;
}

std::string about_job(const State& state, const Chosen& chosen) {
  if (!chosen.row)
    return fmt::format("job {}", chosen.job.name);
  const JobEntry& row = *chosen.row;
  std::string text = fmt::format("{} {} {}", row.array ? "array" : "job", row.label, row.name);
  if (!row.user.empty() && row.user != state.fleet.you.user)
    text += fmt::format(" of {}", row.user);
  if (row.gpu_milli && row.state == "running" && !row.array)
    text += fmt::format(" ({} GPU{}, {})", gpus_text(row.gpu_milli),
                        row.gpu_milli == 1000 ? "" : "s", lasting(row.spent_ms(state.now_ms)));
  return text;
}

void ask_about_job(State& state, const Chosen& chosen, Action::Kind kind, const char* verb) {
  ask_first(state,
            {kind, fmt::format("job {}", chosen.job.name), path_of_job(chosen.job.name, verb),
             kind == Action::Kind::suspend ? R"({"mode":"warm"})" : "{}",
             fmt::format("{}{} {}?", static_cast<char>(verb[0] - 32), verb + 1,
                         about_job(state, chosen))});
}

// The node and card of a row that can be drained.
struct Place {
  const NodeEntry* node = nullptr;
  int card = -1;
};
Place drainable(const State& state, bool whole_node) {
  const Subject at = cursor(state);
  if (at.kind != Subject::Kind::gpu && at.kind != Subject::Kind::node)
    return {};
  return {state.fleet.node_by_name(at.name),
          whole_node || at.kind == Subject::Kind::node ? -1 : at.card};
}

std::string answer_text(const Action& action, const Json& answer) {
  const std::string phase(answer.at("suspension", "phase").str_or(""));
  switch (action.kind) {
    case Action::Kind::stop:
      return fmt::format("{} {}", action.what,
                         answer["final"].bool_or(false) ? "was stopped" : "is being stopped");
    case Action::Kind::suspend:
    case Action::Kind::resume:
      if (phase == "suspended" && answer.at("suspension", "resumes_by_itself").bool_or(false))
        return fmt::format("{} resumes as soon as its GPUs are free", action.what);
      return fmt::format("{} is {}", action.what,
                         phase.empty() ? std::string(answer["state"].str_or("?")) : phase);
    case Action::Kind::drain:
      return fmt::format("{} takes no new jobs; running jobs continue", action.what);
    case Action::Kind::undrain:
      return fmt::format("{} takes new jobs again", action.what);
  }
  return {};
}

}  // namespace

void ask_to_stop(State& state) {
  if (const auto chosen = chosen_job(state, "stop"))
    ask_about_job(state, *chosen, Action::Kind::stop, "stop");
}

void ask_to_suspend(State& state) {
  const auto chosen = chosen_job(state, "suspend");
  if (!chosen)
    return;
  if (chosen->state != "running")
    return say_message(state,
                       fmt::format("job {} is {}; only running jobs can be suspended",
                                   chosen->job.name, chosen->state),
                       true);
  ask_about_job(state, *chosen, Action::Kind::suspend, "suspend");
}

void ask_to_resume(State& state) {
  const auto chosen = chosen_job(state, "resume");
  if (!chosen)
    return;
  if (chosen->state == "running" || chosen->state == "queued")
    return say_message(state,
                       fmt::format("job {} is {}; only suspended jobs can be resumed",
                                   chosen->job.name, chosen->state),
                       true);
  ask_about_job(state, *chosen, Action::Kind::resume, "resume");
}

void ask_to_drain(State& state, bool whole_node) {
  if (state.acting)
    return say_message(state, "the head has not answered the last request yet", true);
  if (!state.fleet.you.may_drain())
    return say_message(state, "you cannot drain nodes: only an admin may", true);
  const Place place = drainable(state, whole_node);
  if (!place.node)
    return say_message(state, "choose a GPU or a node to drain (key 1)", true);
  const bool card = place.card >= 0 && place.card < std::ssize(place.node->cards);
  // A card of a drained node takes jobs again only with its node.
  const bool drained =
      card ? !place.node->cards[static_cast<std::size_t>(place.card)].trouble.empty()
           : place.node->state == "drained";
  if (card && !drained && place.node->state == "drained")
    return say_message(state,
                       fmt::format("node {} is drained; D lets the whole node take jobs "
                                   "again",
                                   place.node->name),
                       true);
  const char* verb = drained ? "undrain" : "drain";
  const std::string base = "/v1/nodes/" + net::percent_encode(place.node->name);
  const std::string what = card ? fmt::format("GPU {} of {}", place.card, place.node->name)
                                : fmt::format("node {}", place.node->name);
  ask_first(state, {drained ? Action::Kind::undrain : Action::Kind::drain, what,
                    card ? fmt::format("{}/gpus/{}/{}", base, place.card, verb)
                         : fmt::format("{}/{}", base, verb),
                    drained ? "{}" : R"({"reason":"drained by request"})",
                    drained ? fmt::format("Let {} take jobs again?", what)
                            : fmt::format("Drain {}? It takes no new jobs; running jobs continue.",
                                          what)});
}

void on_acted(State& state, const Acted& acted) {
  state.acting = false;
  if (acted.answer)
    return say_message(state, answer_text(acted.action, *acted.answer), false);
  const Error& error = acted.answer.error();
  say_message(
      state, error.hint.empty() ? error.message : fmt::format("{} ({})", error.message, error.hint),
      true);
}

Result<Subject> job_of_cursor(const State& state) {
  const Subject at = cursor(state);
  switch (at.kind) {
    case Subject::Kind::job:
      return at;
    case Subject::Kind::gpu: {
      const NodeEntry* node = state.fleet.node_by_name(at.name);
      if (!node || at.card < 0 || at.card >= std::ssize(node->cards))
        break;
      std::vector<const JobEntry*> jobs;
      for (const std::uint64_t id : node->cards[static_cast<std::size_t>(at.card)].jobs)
        if (const JobEntry* job = state.fleet.job(id))
          jobs.push_back(job);
      if (jobs.empty())
        return fail(Code::not_found, "no job of yours runs on this GPU");
      if (jobs.size() > 1)
        return fail(Code::conflict, fmt::format("{} jobs share this GPU; choose one under Jobs "
                                                "(key 2)",
                                                jobs.size()));
      return Subject{Subject::Kind::job, jobs.front()->label, jobs.front()->id};
    }
    case Subject::Kind::endpoint: {
      // The newest replica stands for its endpoint.
      const auto found = state.fleet.endpoints.find(at.name);
      std::uint64_t newest = 0;
      if (found != state.fleet.endpoints.end())
        for (const Json& replica : found->second.document["replicas"].items())
          newest = std::max(newest, replica["job"].uint_or(0));
      if (newest == 0)
        return fail(Code::not_found, fmt::format("endpoint {} has no replica now", at.name));
      return Subject{Subject::Kind::job, fmt::format("{}", newest), newest};
    }
    case Subject::Kind::node:
      return fail(Code::invalid, "this row is a node; choose a job (key 2) or a GPU (key n)");
    case Subject::Kind::account:
      return fail(Code::invalid, "this row is a budget; choose a job (key 2)");
    case Subject::Kind::none:
      break;
  }
  return fail(Code::not_found, "there is nothing under the cursor");
}

}  // namespace billow::client::top
