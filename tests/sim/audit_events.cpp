// The audit's part in events: what each one that is durable says of jobs, suspensions and
// reservations.
#include <fmt/format.h>

#include <algorithm>

#include "audit.h"

namespace billow::sim {

void Audit::take_of_jobs(const Event& event) {
  if (const auto* e = get_if<JobsSubmitted>(&event.body))
    submitted(*e);
  else if (const auto* e = get_if<JobPlaced>(&event.body))
    placed(*e, event.billed_at(), event.at);
  else if (const auto* e = get_if<TaskStarted>(&event.body))
    task_began(*e, event.billed_at());
  else if (const auto* e = get_if<TaskEnded>(&event.body))
    task_ended(*e, event.billed_at());
  else if (const auto* e = get_if<JobRequeued>(&event.body))
    requeued(*e);
  else if (const auto* e = get_if<JobEnded>(&event.body))
    job_ended(*e);
  else if (const auto* e = get_if<MemberReplaced>(&event.body))
    replaced(*e, event.billed_at());
  else if (const auto* e = get_if<MembersRestarting>(&event.body)) {
    restarting_.insert(e->tasks.begin(), e->tasks.end());
    world_.trace("journal: job {}: {} members restart", e->job.value, e->tasks.size());
  } else if (const auto* e = get_if<TaskRerated>(&event.body))
    rerated(*e, event.billed_at());
  else if (const auto* e = get_if<JobImageFound>(&event.body)) {
    const JobStory& job = jobs_.at(e->job);
    if (job.spec->surroundings.image.empty() || ends_.contains(e->job))
      broken(fmt::format("job {} is said to run in an image, and does not", e->job.value));
  } else if (const auto* e = get_if<JobStopping>(&event.body)) {
    JobStory& job = jobs_.at(e->job);
    job.stopping = e->cause;
    world_.trace("journal: job {} is stopping ({})", e->job.value, enum_name(e->cause));
    if (e->cause == StopCause::preempted && !job.spec->spot && !on_rented(job))
      broken(fmt::format("job {} was preempted and is not spot", e->job.value));
  }
}

void Audit::take_of_suspensions(const Event& event) {
  if (const auto* e = get_if<TaskSuspended>(&event.body))
    task_suspended(*e, event.billed_at());
  else if (const auto* e = get_if<JobResuming>(&event.body))
    resuming(*e, event.billed_at(), event.at);
  else if (const auto* e = get_if<JobSuspending>(&event.body)) {
    JobStory& job = jobs_.at(e->job);
    job.resume_wanted = e->resume_wanted;
    world_.trace("journal: job {} is suspending ({})", e->job.value, enum_name(e->cause));
    if (e->cause == SuspendCause::preempted && !job.spec->spot)
      broken(fmt::format("job {} was preempted and is not spot", e->job.value));
    if (!job.running || job.stopping != StopCause::none)
      broken(fmt::format("job {} is told to suspend and does not run", e->job.value));
  } else if (const auto* e = get_if<SuspensionChanged>(&event.body)) {
    jobs_.at(e->job).resume_wanted = e->resume_wanted;
  } else if (const auto* e = get_if<TaskResumed>(&event.body)) {
    const Process* p = tasks_.at(e->task).process.get();
    if (p && p->alive && p->frozen)
      broken(fmt::format("task {} is recorded as resumed and is frozen", e->task.value));
  }
}

void Audit::take_of_reservations(const Event& event) {
  if (const auto* e = get_if<ReservationMade>(&event.body)) {
    reservations_[e->reservation.id] = e->reservation;
    world_.trace("journal: reservation {} from {:.3f} s to {:.3f} s from now",
                 e->reservation.id.value,
                 static_cast<double>((e->reservation.from - event.at).ns) / 1e9,
                 static_cast<double>((e->reservation.until - event.at).ns) / 1e9);
  } else if (const auto* e = get_if<ReservationMoved>(&event.body))
    reservations_.at(e->reservation).places = e->places;
  else if (const auto* e = get_if<ReservationEnded>(&event.body)) {
    reservation_over_[e->reservation] = std::min(event.at, reservations_.at(e->reservation).until);
    reservations_.erase(e->reservation);
  } else if (const auto* e = get_if<ReservationLeft>(&event.body))
    jobs_.at(e->job).left_reservation = true;
}

}  // namespace billow::sim
