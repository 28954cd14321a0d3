#include "head/logs/kept_logs.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cstring>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "core/control/quotas.h"
#include "core/wire/codec.h"
#include "core/wire/log_frames.h"
#include "core/wire/log_query.h"

namespace billow::head {
namespace {

constexpr std::size_t taken_at_once = 8;
// A task that runs is copied after this time, and then at a tenth of its age.
constexpr Duration copy_after_min = seconds(30);
constexpr Duration copy_after_max = minutes(5);
// An empty file takes a block of the disk and an entry of the directory.
constexpr std::uint64_t file_bytes_min = 4096;

// How a task ended, for the bucket: its readers may have no head to ask.
std::string end_text(const TaskEnded& ended, NodeId node) {
  auto text = parse_json(wire::to_json_text(ended));
  if (!text)
    return "{}";
  text->set("node", node.value);
  return text->dump();
}

}  // namespace

KeptLogs::KeptLogs(Options options)
    : options_(std::move(options)),
      writer_(std::make_unique<net::Workers>(
          *options_.loop, net::Workers::Options{.threads = 1, .queue_max = 4096})),
      readers_(std::make_unique<net::Workers>(
          *options_.loop, net::Workers::Options{.threads = 2, .queue_max = 4096})) {}

Result<std::unique_ptr<KeptLogs>> KeptLogs::open(Options options) {
  std::unique_ptr<KeptLogs> logs(new KeptLogs(std::move(options)));
  BILLOW_TRY_VOID(logs->load());
  return logs;
}

// ---- the directory

std::string KeptLogs::path(ProjectId project, TaskId task, const Known& known) const {
  const std::string stem = fmt::format("{}/{}/{}", options_.directory, project.value, task.value);
  switch (known.kind) {
    case Kind::whole:
      return stem + ".log";
    case Kind::part:
      return fmt::format("{}.{}.part", stem, known.node.value);
    case Kind::gone:
      return stem + ".gone";
  }
  return stem;
}

Status KeptLogs::load() {
  BILLOW_TRY_VOID(make_directories(options_.directory, 0700));
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(options_.directory.c_str()), ::closedir);
  if (!dir)
    return fail_errno("list " + options_.directory, errno);
  while (const dirent* entry = ::readdir(dir.get()))
    if (const auto project = parse_int(entry->d_name, 1, INT64_MAX))
      load_shelf(ProjectId(static_cast<std::uint64_t>(*project)),
                 options_.directory + "/" + entry->d_name);
  for (const auto& [id, task] : state().tasks)
    if (const Job* job = state().find_job(task.job); job && task.state != TaskState::ended)
      placed_[id] = {id, task.node, job->project, true, {}};
  return {};
}

void KeptLogs::load_shelf(ProjectId project, const std::string& directory) {
  const std::unique_ptr<DIR, int (*)(DIR*)> dir(::opendir(directory.c_str()), ::closedir);
  if (!dir)
    return;
  while (const dirent* entry = ::readdir(dir.get())) {
    const auto words = split(entry->d_name, '.');
    const auto task = parse_int(words.front(), 1, INT64_MAX);
    if (!task || words.size() < 2)
      continue;
    if (words[1] == "sent" && options_.bucket)
      options_.bucket->note_kept(TaskId(static_cast<std::uint64_t>(*task)));
    Known known;
    if (words[1] == "log" && words.size() == 2) {
      known.kind = Kind::whole;
    } else if (words[1] == "gone" && words.size() == 2) {
      known.kind = Kind::gone;
    } else if (const auto node = parse_int(words[1], 0, INT64_MAX);
               node && words.size() == 3 && words[2] == "part") {
      known.node = NodeId(static_cast<std::uint64_t>(*node));
    } else {
      continue;
    }
    struct stat info {};
    if (::fstatat(::dirfd(dir.get()), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0)
      known.bytes = std::max(file_bytes_min, static_cast<std::uint64_t>(info.st_size));
    set(project, TaskId(static_cast<std::uint64_t>(*task)), known);
  }
}

void KeptLogs::set(ProjectId project, TaskId task, Known known) {
  if (!shelves_.contains(project))
    (void)make_directories(fmt::format("{}/{}", options_.directory, project.value), 0700);
  Shelf& shelf = shelves_[project];
  Known& slot = shelf.logs[task];
  shelf.bytes += known.bytes - slot.bytes;
  slot = known;
  project_of_[task] = project;
}

std::optional<KeptLogs::Found> KeptLogs::find(TaskId task) const {
  const auto project = project_of_.find(task);
  if (project == project_of_.end())
    return std::nullopt;
  const Known& known = shelves_.at(project->second).logs.at(task);
  return Found{path(project->second, task, known), known, project->second};
}

std::uint64_t KeptLogs::bytes_of(ProjectId project) const {
  const auto shelf = shelves_.find(project);
  return shelf == shelves_.end() ? 0 : shelf->second.bytes;
}

std::optional<std::uint64_t> KeptLogs::project_bytes_max(ProjectId project) const {
  const std::int64_t limit =
      control::quota_of(state(), QuotaScope::project, project.value, QuotaKind::kept_log_bytes)
          .limit;
  return limit < 0 ? std::nullopt : std::optional(static_cast<std::uint64_t>(limit));
}

std::uint64_t KeptLogs::task_bytes_max(ProjectId project) const {
  return static_cast<std::uint64_t>(
      control::quota_of(state(), QuotaScope::project, project.value, QuotaKind::task_log_bytes)
          .limit);
}

// Removes the oldest logs of a project that holds more than it may. An empty file stays behind, to
// say why there is none; beyond the number of logs, that goes too.
void KeptLogs::trim(ProjectId project) {
  Shelf& shelf = shelves_[project];
  const auto most = project_bytes_max(project);
  for (auto at = shelf.logs.begin(); at != shelf.logs.end();) {
    const bool too_many = shelf.logs.size() > limits::kept_logs_max;
    if (!too_many && (!most || shelf.bytes <= *most))
      return;
    const auto [task, known] = *at;
    ++at;
    if (taking_.contains(task) || (known.kind == Kind::gone && !too_many))
      continue;
    if (options_.bucket && known.kind != Kind::gone && !options_.bucket->has(task))
      continue;  // the bucket does not have it yet
    const std::string old = path(project, task, known);
    const std::string marker = path(project, task, {.kind = Kind::gone});
    set(project, task, {.kind = Kind::gone});
    if (too_many) {
      shelf.logs.erase(task);
      project_of_.erase(task);
    }
    (void)writer_->submit([old, marker, too_many]() -> std::function<void()> {
      if (too_many)
        ::unlink(old.c_str());
      else if (::truncate(old.c_str(), 0) == 0)
        ::rename(old.c_str(), marker.c_str());
      return [] {
      };
    });
  }
}

// ---- taking logs from nodes

// A job whose last task ends has left the state when its events are heard, so tasks are remembered
// from their placement on.
std::function<void()> KeptLogs::heard(const control::State& state, const Event& event) {
  if (const auto* placed = get_if<JobPlaced>(&event.body)) {
    if (const Job* job = state.find_job(placed->job))
      for (const Task& task : placed->tasks)
        placed_[task.id] = {task.id, task.node, job->project, true, {}};
    return {};
  }
  if (get_if<QuotaSet>(&event.body) || get_if<QuotaRemoved>(&event.body))
    return [this] {
      for (const auto& [project, shelf] : shelves_)
        trim(project);
    };
  const auto* ended = get_if<TaskEnded>(&event.body);
  const auto found = ended ? placed_.find(ended->task) : placed_.end();
  if (found == placed_.end())
    return {};
  Wanted wanted = found->second;
  placed_.erase(found);
  return [this, wanted, end = options_.bucket ? end_text(*ended, wanted.node) : ""]() mutable {
    if (options_.bucket)
      options_.bucket->keep_end(wanted.task, std::move(end));
    wanted.since = options_.clock->steady();
    next_copy_.erase(wanted.task);
    want(wanted);
    take_next();
  };
}

void KeptLogs::want(Wanted wanted) {
  const auto found = find(wanted.task);
  if (found && found->known.kind != Kind::part)
    return;
  if (!found) {
    const Known known{.kind = Kind::part, .node = wanted.node, .end = 0};
    set(wanted.project, wanted.task, known);
    // The file tells the next head that this log is to be taken.
    (void)writer_->submit(
        [file = path(wanted.project, wanted.task, known)]() -> std::function<void()> {
          (void)files::append_log(file, 0, {}, limits::task_log_bytes);
          return [] {
          };
        });
  }
  // A copy of a task that has ended meanwhile becomes its last.
  if (const auto taking = taking_.find(wanted.task); taking != taking_.end()) {
    taking->second.wanted.ended = taking->second.wanted.ended || wanted.ended;
    return;
  }
  queue_.push_back(wanted);
}

void KeptLogs::take_next() {
  while (taking_.size() < taken_at_once && !queue_.empty()) {
    const Wanted wanted = queue_.front();
    queue_.pop_front();
    const auto found = find(wanted.task);
    if (!found || found->known.kind != Kind::part || taking_.contains(wanted.task))
      continue;
    if (!state().nodes.contains(wanted.node)) {
      send(wanted.task);  // what has come so far is all there will be
      continue;
    }
    if (!options_.agents->connected(wanted.node)) {
      away_.push_back(wanted);
      continue;
    }
    taking_[wanted.task].wanted = wanted;
    if (found->known.end) {
      ask(wanted.task);
      continue;
    }
    const Status queued =
        writer_->submit([path = found->path] { return files::log_span(path); },
                        [this, task = wanted.task](const Result<files::LogSpan>& span) {
                          const auto part = find(task);
                          if (!part || !span)
                            return done(task);
                          Known known = part->known;
                          known.end = span->end;
                          set(part->project, task, known);
                          ask(task);
                        });
    if (!queued)
      done(wanted.task);
  }
}

void KeptLogs::ask(TaskId task) {
  const auto found = find(task);
  Taking& taking = taking_.at(task);
  taking.request = options_.agents->read_log(
      taking.wanted.node,
      LogRead{.subscription = 0, .task = task, .offset = found->known.end.value_or(0)},
      [this, task](const LogChunk& chunk, std::string_view frames) { took(task, chunk, frames); });
}

void KeptLogs::took(TaskId task, const LogChunk& chunk, std::string_view frames) {
  const auto taking = taking_.find(task);
  if (taking == taking_.end())
    return;
  if (!chunk.error.empty()) {
    // The node has removed it, or does not answer now.
    if (!chunk.end && taking->second.wanted.ended)
      away_.push_back(taking->second.wanted);
    return done(task);
  }
  store(task, chunk, frames);
}

void KeptLogs::store(TaskId task, const LogChunk& chunk, std::string_view frames) {
  const auto found = find(task);
  const bool last = chunk.end;
  const bool whole = last && taking_.at(task).wanted.ended;
  const std::string to = path(found->project, task, {.kind = Kind::whole});
  const Status queued = writer_->submit(
      [from = found->path, to, offset = chunk.offset, bytes = std::string(frames), whole,
       most = task_bytes_max(found->project)]() -> Result<files::LogSpan> {
        const files::LogSpan span = BILLOW_TRY(files::append_log(from, offset, bytes, most));
        if (whole && ::rename(from.c_str(), to.c_str()) != 0)
          return fail_errno("rename " + from, errno);
        return span;
      },
      [this, task, last, whole](const Result<files::LogSpan>& span) {
        if (const auto part = find(task); part && span) {
          Known known = part->known;
          known.kind = whole ? Kind::whole : Kind::part;
          known.bytes = std::max(file_bytes_min, span->stored_bytes);
          known.end = span->end;
          set(part->project, task, known);
          if (whole)
            send(task);
        }
        stored(task, last, span);
      });
  if (!queued)
    done(task);
}

void KeptLogs::stored(TaskId task, bool last, const Result<files::LogSpan>& span) {
  const auto found = find(task);
  if (!span)
    log_warn("the log of task {} cannot be kept: {}", task.value, span.error().message);
  const auto taking = taking_.find(task);
  if (taking == taking_.end() || !found)
    return;
  // It ended while it was copied: there may be more.
  const bool more = !last || (taking->second.wanted.ended && found->known.kind == Kind::part);
  if (span && more)
    return ask(task);
  const ProjectId project = found->project;
  done(task);
  trim(project);
}

void KeptLogs::done(TaskId task) {
  taking_.erase(task);
  take_next();
}

// ---- on a timer

void KeptLogs::catch_up() {
  caught_up_ = true;
  const SteadyTime now = options_.clock->steady();
  for (const auto& [project, shelf] : shelves_)
    for (const auto& [task, known] : shelf.logs) {
      const Task* live = state().find_task(task);
      if (known.kind == Kind::part && (!live || live->state == TaskState::ended))
        queue_.push_back({task, known.node, project, true, now});
      else if (known.kind == Kind::whole)
        send(task);
    }
}

void KeptLogs::look() {
  const SteadyTime now = options_.clock->steady();
  if (!caught_up_)
    catch_up();
  std::vector<Wanted> still_away;
  for (const Wanted& wanted : away_) {
    if (options_.agents->connected(wanted.node))
      queue_.push_back(wanted);
    else if (state().nodes.contains(wanted.node))
      still_away.push_back(wanted);
  }
  away_ = std::move(still_away);
  look_at_running(now);
  take_next();
  let_go();
  if (options_.bucket)
    options_.bucket->look();
}

void KeptLogs::send(TaskId task) {
  const auto found = find(task);
  if (options_.bucket && found && !options_.bucket->has(task))
    options_.bucket->keep(task, found->path, found->known.kind == Kind::whole);
}

// Tasks on this machine are left alone: what takes its disk takes the copy too.
void KeptLogs::look_at_running(SteadyTime now) {
  std::erase_if(next_copy_, [&](const auto& entry) { return !state().find_task(entry.first); });
  for (const auto& [node, tasks] : state().tasks_on) {
    if (!options_.agents->connected(node) || options_.agents->is_own(node))
      continue;
    for (const TaskId id : tasks) {
      auto [next, fresh] = next_copy_.try_emplace(id, now + copy_after_min);
      if (fresh || now < next->second)
        continue;
      const Task& task = state().tasks.at(id);
      const Duration age = options_.clock->wall() - task.lease_from;
      next->second = now + std::clamp(age / 10, copy_after_min, copy_after_max);
      want({id, node, state().jobs.at(task.job).project, false, now});
    }
  }
}

bool KeptLogs::taking_from(NodeId node) const {
  const SteadyTime now = options_.clock->steady();
  const auto counts = [&](const Wanted& wanted) {
    return wanted.node == node && wanted.ended && now - wanted.since < limits::kept_logs_patience;
  };
  return std::ranges::any_of(taking_,
                             [&](const auto& entry) { return counts(entry.second.wanted); }) ||
         std::ranges::any_of(queue_, counts);
}

bool KeptLogs::holds(const control::Effect& effect) {
  const auto* leave = get_if<wire::agent_v1::Leave>(&effect.message);
  if (!leave || !leave->give_back || !taking_from(effect.node))
    return false;
  held_.push_back(effect);
  return true;
}

void KeptLogs::let_go() {
  std::vector<control::Effect> ready;
  std::erase_if(held_, [&](const control::Effect& effect) {
    if (taking_from(effect.node))
      return false;
    ready.push_back(effect);
    return true;
  });
  for (const control::Effect& effect : ready)
    options_.agents->deliver(effect);
}

}  // namespace billow::head
