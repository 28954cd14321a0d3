#include "control/core.h"

#include <deque>

#include "wire/codec.h"

namespace billow::control {

void Core::forget_finished() {
  state_.finished_jobs.clear();
  state_.finished_arrays.clear();
}

void Core::follow(std::vector<EventBody> bodies, const Cause& cause, const Context& context, Step& step) {
  // Depth first: an event's own consequences come before the next event of the decision, so that each is decided against a
  // state in which what went before has been followed through.
  std::deque<EventBody> pending(std::make_move_iterator(bodies.begin()), std::make_move_iterator(bodies.end()));
  while (!pending.empty()) {
    Event event{.seq = state_.seq + 1, .at = context.now, .actor = cause.actor, .request_id = cause.request_id, .body = std::move(pending.front())};
    pending.pop_front();
    // A suspend or resume closes a lease and the task goes on with the next: the row is of what it was before.
    std::visit([&](const auto& body) {
      if constexpr (requires { body.task; body.lease_to; body.cost; body.rate; }) {
        Task task = state_.tasks.at(body.task);
        task.lease_to = body.lease_to;
        const Job& job = state_.jobs.at(task.job);
        step.leases.push_back({std::move(task), job.project, job.user, body.cost});
      }
    }, event.body);
    apply(state_, event);
    for (Effect& effect : effects_of(state_, event)) step.effects.push_back(std::move(effect));
    if (const auto* ended = std::get_if<TaskEnded>(&event.body)) {
      const Task& task = state_.tasks.at(ended->task);
      const Job& job = state_.jobs.at(task.job);
      step.leases.push_back({task, job.project, job.user, ended->cost});
    }
    std::vector<EventBody> more = react(state_, event.body, context);
    pending.insert(pending.begin(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
    step.events.push_back(std::move(event));
    std::move(state_.finished_jobs.begin(), state_.finished_jobs.end(), std::back_inserter(step.jobs));
    std::move(state_.finished_arrays.begin(), state_.finished_arrays.end(), std::back_inserter(step.arrays));
    forget_finished();
  }
}

Result<Step> Core::execute(const Command& command, const Cause& cause, WallTime now) {
  const Context context{std::max(state_.at, now), &prices_};
  auto bodies = BILLOW_TRY(decide(state_, command, context));
  Step step;
  follow(std::move(bodies), cause, context, step);
  return step;
}

Step Core::plan(WallTime now) {
  static const Cause cause{"head", ""};
  const Context context{std::max(state_.at, now), &prices_};
  const sched::Plan plan = sched::plan(state_.index, context.now);
  more_ = plan.more;
  wake_at_ = plan.wake_at;
  Step step;
  follow(carry_out(state_, plan, context), cause, context, step);
  return step;
}

std::string encode_event(const Event& event) {
  std::string out = "{";
  bool first = true;
  const auto text = [&](const char* name, const std::string& value) {
    if (value.empty()) return;
    out += first ? "\"" : ",\"";
    first = false;
    out += name;
    out += "\":";
    append_json_string(out, value);
  };
  text("actor", event.actor);
  text("request", event.request_id);
  out += first ? "\"event\":" : ",\"event\":";
  std::visit([&](const auto& body) { wire::JsonWriter::write(out, body); }, event.body);
  out += '}';
  return out;
}

Result<Event> decode_event(Seq seq, WallTime at, std::string_view kind, std::string_view payload) {
  const Json json = BILLOW_TRY(parse_json(payload));
  auto body = wire::variant_from_json<EventBody>(kind, json["event"]);
  if (!body) return pass(body.error(), "journal record " + std::to_string(seq));
  return Event{.seq = seq, .at = at, .actor = std::string(json["actor"].str_or("")), .request_id = std::string(json["request"].str_or("")), .body = std::move(*body)};
}

}  // namespace billow::control
