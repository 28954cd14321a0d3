// See node.h. Suspend and resume, step by step; each step that fails leaves the job running or
// suspended, never between.
#include "gpumem/node.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

namespace billow::gpumem {

namespace {
std::int64_t steady_ns() {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}
double seconds_since(std::int64_t start_ns) {
  return static_cast<double>(steady_ns() - start_ns) / 1e9;
}

// A page in a memory file. Sealed: only mappings made before (ours) can write; a job gets the
// descriptor and can only read.
Result<std::pair<Fd, void*>> make_page(const char* name, std::size_t bytes, bool sealed) {
  Fd fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd || ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0)
    return fail_errno("a page for the job cannot be made", errno);
  void* page = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (page == MAP_FAILED)
    return fail_errno("a page for the job cannot be mapped", errno);
  constexpr int future_write = 0x0010;  // F_SEAL_FUTURE_WRITE, since Linux 5.1
  const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | (sealed ? future_write : 0);
  if (fcntl(fd.get(), F_ADD_SEALS, seals) != 0)
    return fail_errno("the job's limits cannot be sealed", errno);
  return std::pair{std::move(fd), page};
}
}  // namespace

const char* phase_name(JobPhase phase) {
  switch (phase) {
    case JobPhase::running:
      return "running";
    case JobPhase::suspending:
      return "suspending";
    case JobPhase::suspended:
      return "suspended";
    case JobPhase::resuming:
      return "resuming";
    case JobPhase::lost:
      return "lost";
  }
  return "lost";
}

Job::~Job() {
  if (limit)
    munmap(limit, sizeof *limit);
  if (usage)
    munmap(usage, sizeof *usage);
}

Result<std::unique_ptr<Node>> Node::create(Options options) {
  std::unique_ptr<Node> node(new Node);
  node->options_ = options;
  // Without a driver the vault still limits and arbitrates; only suspend needs it.
  if (auto driver = Driver::load()) {
    node->driver_ = std::make_unique<Driver>(*driver);
    int count = 0;
    node->driver_->device_count(&count);
    for (int i = 0; i < count; i++) {
      CUuuid uuid{};
      node->driver_->device_uuid(&uuid, i);
      std::array<std::uint8_t, 16> bytes;
      std::memcpy(bytes.data(), uuid.bytes, 16);
      node->uuids_.push_back(bytes);
    }
  }
  if (options.arena_bytes) {
    Arena::Options arena{options.arena_bytes, options.threads, {}};
    if (node->driver_ && !node->uuids_.empty()) {
      // Memory is registered once and portable: every GPU's context may use it. The first context
      // is made here, ahead of need.
      auto gpu = Gpu::create(node->driver_.get(), 0);
      if (!gpu)
        return pass(gpu.error());
      Gpu* first = gpu->get();
      node->gpus_[0] = std::move(*gpu);
      arena.register_memory = [first](void* memory, std::uint64_t bytes) {
        return first->use().has_value() &&
               first->driver().host_register(memory, bytes, HOST_REGISTER_PORTABLE) == CUDA_OK;
      };
    }
    node->arena_ = BILLOW_TRY(Arena::create(arena));
    node->library_.arena = node->arena_.get();
  }
  Node* n = node.get();
  node->arbiter_thread_ = std::thread([n] { n->arbitrate(); });
  return node;
}

Node::~Node() {
  stop_ = true;
  if (arbiter_thread_.joinable())
    arbiter_thread_.join();
}

std::shared_ptr<Job> Node::find(const std::string& name) {
  const std::lock_guard guard(lock_);
  const auto found = jobs_.find(name);
  return found == jobs_.end() ? nullptr : found->second;
}

Status Node::add_job(const JobSpec& spec) {
  if (spec.name.empty() || spec.name.size() > 63 || spec.token.size() < 8 || spec.token.size() > 71)
    return fail(Code::invalid, "a job needs a name of 1 to 63 and a token of 8 to 71 characters");
  if (spec.devices.empty() || spec.devices.size() > BILLOW_DEVICES_MAX)
    return fail(Code::invalid, "a job needs 1 to 16 devices");
  auto job = std::make_shared<Job>();
  job->spec = spec;
  auto limit = BILLOW_TRY(make_page("billow-limit", sizeof(billow_limit_page), true));
  job->limit_fd = std::move(limit.first);
  job->limit = static_cast<billow_limit_page*>(limit.second);
  auto usage = BILLOW_TRY(make_page("billow-usage", sizeof(billow_usage_page), false));
  job->usage_fd = std::move(usage.first);
  job->usage = static_cast<billow_usage_page*>(usage.second);
  job->usage->magic = BILLOW_USAGE_MAGIC;
  job->usage->version = BILLOW_ABI_VERSION;
  job->usage->bytes = sizeof(billow_usage_page);
  billow_limit_page& page = *job->limit;
  page.magic = BILLOW_LIMIT_MAGIC;
  page.version = BILLOW_ABI_VERSION;
  page.bytes = sizeof(billow_limit_page);
  page.flags = spec.suspendable ? BILLOW_JOB_SUSPENDABLE : 0;
  page.device_count = static_cast<std::uint32_t>(spec.devices.size());
  std::memcpy(page.job, spec.name.data(), spec.name.size());
  for (std::size_t i = 0; i < spec.devices.size(); i++) {
    std::memcpy(page.devices[i].uuid, spec.devices[i].uuid, 16);
    page.devices[i].memory_bytes = spec.devices[i].memory_bytes;
    page.devices[i].context_bytes = spec.devices[i].context_bytes;
    page.devices[i].share_milli = spec.devices[i].share_milli;
  }
  const std::lock_guard guard(lock_);
  if (jobs_.contains(spec.name))
    return fail(Code::conflict, "the vault has a job " + spec.name + " already");
  job->tenant = next_tenant_++;
  if (spec.reserve_bytes) {
    if (!arena_)
      return fail(Code::unsupported, "this vault has no arena, so no job can be suspended",
                  "start billow-vault with --arena");
    BILLOW_TRY_VOID(arena_->reserve(job->tenant, spec.reserve_bytes));
  }
  {
    const std::lock_guard library_guard(library_.lock);
    library_.stores[job->tenant] = std::make_shared<PieceStore>();
  }
  for (const DeviceLimit& device : spec.devices) {
    const std::string key(reinterpret_cast<const char*>(device.uuid), 16);
    auto [arbiter, fresh] = arbiters_.try_emplace(key, options_.arbiter);
    arbiter->second.add(job->tenant, device.share_milli, spec.strict, steady_ns());
  }
  jobs_[spec.name] = std::move(job);
  return {};
}

Status Node::remove_job(const std::string& name) {
  std::shared_ptr<Job> job;
  {
    const std::lock_guard guard(lock_);
    const auto found = jobs_.find(name);
    if (found == jobs_.end())
      return fail(Code::not_found, "the vault has no job " + name);
    job = found->second;
    jobs_.erase(found);
    for (auto& entry : arbiters_)
      entry.second.remove(job->tenant);
  }
  {
    const std::lock_guard guard(job->lock);
    for (auto& session : job->sessions)
      session->close();
  }
  const std::lock_guard operation(job->operation);
  const std::lock_guard guard(library_.lock);
  const auto store = library_.stores.find(job->tenant);
  if (arena_ && store != library_.stores.end()) {
    arena_->give(job->tenant, store->second->clear());
    arena_->unreserve(job->tenant);
    arena_->scrub_tenant(job->tenant);
  }
  library_.stores.erase(job->tenant);
  return {};
}

Result<std::shared_ptr<Session>> Node::welcome(Fd socket, int pid, const Answer& packet) {
  billow_hello hello{};
  if (packet.head.version != BILLOW_ABI_VERSION || packet.head.type != BILLOW_HELLO ||
      packet.items.size() < sizeof hello)
    return fail(Code::invalid, "a process greeted in another version");
  std::memcpy(&hello, packet.items.data(), sizeof hello);
  hello.token[sizeof hello.token - 1] = 0;
  std::shared_ptr<Job> job;
  {
    const std::lock_guard guard(lock_);
    for (const auto& entry : jobs_)
      if (entry.second->spec.token == hello.token)
        job = entry.second;
  }
  if (!job)
    return fail(Code::unauthorized, "a process greeted with a token no job has");
  auto session = std::make_shared<Session>(std::move(socket), pid);
  const std::lock_guard guard(job->lock);
  std::uint32_t slot = 0;
  const auto taken = [&](std::uint32_t s) {
    return std::any_of(job->sessions.begin(), job->sessions.end(),
                       [&](const auto& other) { return other->slot == s; });
  };
  while (slot < BILLOW_PROCESSES_MAX && taken(slot))
    slot++;
  if (slot == BILLOW_PROCESSES_MAX)
    return fail(Code::exhausted, "the job has 128 processes on the GPU already");
  session->slot = slot;
  billow_process_slot& entry = job->usage->slots[slot];
  const std::uint32_t generation = entry.generation + 1;
  std::memset(&entry, 0, sizeof entry);
  entry.generation = generation;
  billow_message head{};
  head.version = BILLOW_ABI_VERSION;
  head.type = BILLOW_HELLO;
  head.count = 1;
  const billow_welcome answer{slot, generation};
  const int descriptors[] = {job->limit_fd.get(), job->usage_fd.get()};
  BILLOW_TRY_VOID(send_packet(session->socket(), head,
                              {reinterpret_cast<const unsigned char*>(&answer), sizeof answer},
                              descriptors));
  job->sessions.push_back(session);
  return session;
}

void Node::ended(const std::shared_ptr<Session>& session) {
  session->close();
  std::vector<std::shared_ptr<Job>> jobs;
  {
    const std::lock_guard guard(lock_);
    for (const auto& entry : jobs_)
      jobs.push_back(entry.second);
  }
  for (const auto& job : jobs) {
    const std::lock_guard guard(job->lock);
    if (!std::erase(job->sessions, session))
      continue;
    // What it held is gone with it; the generation stays, so that a late reader sees the change.
    billow_process_slot& slot = job->usage->slots[session->slot];
    const std::uint32_t generation = slot.generation;
    std::memset(&slot, 0, sizeof slot);
    slot.generation = generation;
    job->draining.erase(session.get());
    if (const auto image = job->images.find(session.get()); image != job->images.end()) {
      const std::lock_guard library_guard(library_.lock);
      const auto store = library_.stores.find(job->tenant);
      for (auto& [place, chunks] : image->second)
        for (ChunkImage& chunk : chunks)
          for (Piece& piece : chunk.pieces)
            if (piece.referred && store != library_.stores.end())
              store->second->unrefer(piece.key);
      job->images.erase(image);
    }
  }
}

Result<Gpu*> Node::gpu_of(const Job& job, std::uint32_t place) {
  if (!driver_)
    return fail(Code::unsupported, "this node's vault found no CUDA driver");
  static const std::uint8_t unnamed[16] = {};
  int ordinal = -1;
  const std::uint8_t* uuid = job.spec.devices.at(place).uuid;
  if (!std::memcmp(uuid, unnamed, 16))
    ordinal = static_cast<int>(place);
  for (std::size_t i = 0; i < uuids_.size(); i++)
    if (!std::memcmp(uuid, uuids_[i].data(), 16))
      ordinal = static_cast<int>(i);
  if (ordinal < 0 || ordinal >= static_cast<int>(uuids_.size()))
    return fail(Code::not_found, "the vault does not see the job's GPU");
  const std::lock_guard guard(gpus_lock_);
  auto& gpu = gpus_[ordinal];
  if (!gpu)
    gpu = BILLOW_TRY(Gpu::create(driver_.get(), ordinal));
  return gpu.get();
}

// Closes every process's gate, waits for the GPU, and learns which chunks there are.
Status Node::quiesce(Job& job,
                     std::vector<std::shared_ptr<Session>>& sessions,
                     int timeout_ms,
                     MoveReport& report) {
  std::vector<std::pair<std::shared_ptr<Session>, std::uint32_t>> asked;
  for (auto& session : sessions)
    asked.emplace_back(
        session, BILLOW_TRY(session->send(BILLOW_PREPARE, static_cast<std::uint64_t>(timeout_ms))));
  Status worst;
  for (auto& [session, sequence] : asked) {
    auto answer = session->wait(sequence, timeout_ms + 5000);
    if (!answer) {
      if (answer.error().code != Code::unavailable)
        worst = pass(answer.error());
      continue;
    }
    if (answer->head.status == EBUSY)
      worst = fail(Code::timed_out,
                   "the GPU did not come to rest within " + std::to_string(timeout_ms) +
                       " ms (a kernel or a call runs on)",
                   "try again, or give more time");
    else if (answer->head.status)
      worst = fail_errno("a process could not be stopped at its gate", answer->head.status);
    else
      report.residue_bytes += answer->head.arg1;
  }
  if (!worst)
    return worst;
  const std::lock_guard guard(job.lock);
  for (auto& session : sessions) {
    if (session->closed())
      continue;
    auto& image = job.images[session.get()];
    std::map<std::uint32_t, std::vector<ChunkImage>> fresh;
    for (std::uint64_t next = 0; next != UINT64_MAX;) {
      const Answer answer = BILLOW_TRY(session->ask(BILLOW_LIST, next, {}, 10000));
      for (const billow_chunk& chunk : answer.as<billow_chunk>())
        if (chunk.device < job.spec.devices.size())
          fresh[chunk.device].push_back({chunk.id, chunk.bytes, {}, false, false});
      next = answer.head.arg0;
    }
    image = std::move(fresh);
  }
  return {};
}

// Moves every chunk that is not yet where it should be, each device of each process on its own
// thread.
Result<MoveCounts> Node::move(Job& job, bool out, std::function<bool(std::uint64_t)> may_create) {
  struct Task {
    std::shared_ptr<Session> session;
    std::uint32_t place;
    std::vector<ChunkImage>* chunks;
    Gpu* gpu;
    Result<MoveCounts> result;
  };
  std::vector<Task> tasks;
  {
    const std::lock_guard guard(job.lock);
    for (auto& session : job.sessions)
      if (const auto image = job.images.find(session.get()); image != job.images.end())
        for (auto& [place, chunks] : image->second)
          tasks.push_back({session, place, &chunks, nullptr, MoveCounts{}});
  }
  for (Task& task : tasks)
    task.gpu = BILLOW_TRY(gpu_of(job, task.place));
  const auto run = [&](Task& task) {
    Gpu::Job move{task.session.get(),
                  &library_,
                  job.tenant,
                  task.chunks,
                  may_create,
                  [&](std::int64_t bytes) { job.resident_bytes += bytes; },
                  [&] { return job.swapping && !job.room_wanted; },
                  60000};
    task.result = out ? task.gpu->move_out(std::move(move)) : task.gpu->move_in(std::move(move));
  };
  std::vector<std::thread> threads;
  for (std::size_t i = 1; i < tasks.size(); i++)
    threads.emplace_back(run, std::ref(tasks[i]));
  if (!tasks.empty())
    run(tasks[0]);
  for (std::thread& thread : threads)
    thread.join();
  MoveCounts sum;
  for (Task& task : tasks) {
    if (!task.result)
      return pass(task.result.error());
    sum.bytes += task.result->bytes;
    sum.copied_bytes += task.result->copied_bytes;
    sum.zero_bytes += task.result->zero_bytes;
    sum.known_bytes += task.result->known_bytes;
  }
  return sum;
}

void Node::open(Job& job) {
  std::vector<std::shared_ptr<Session>> sessions;
  {
    const std::lock_guard guard(job.lock);
    sessions = job.sessions;
  }
  for (auto& session : sessions)
    (void)session->ask(BILLOW_OPEN, 0, {}, 10000);
}

// Half-restored memory goes back: what was not yet filled is given up, what was is saved again.
Status Node::put_back(Job& job) {
  {
    const std::lock_guard guard(job.lock);
    for (auto& session : job.sessions) {
      const auto image = job.images.find(session.get());
      if (image == job.images.end())
        continue;
      for (auto& [place, chunks] : image->second) {
        for (ChunkImage& chunk : chunks) {
          if (!chunk.arriving)
            continue;
          const std::uint64_t id = chunk.id;
          const Answer answer = BILLOW_TRY(session->ask(BILLOW_RELEASE, 0, {&id, 1}, 10000));
          if (answer.head.status)
            return fail_errno("half-restored memory could not be given back", answer.head.status);
          chunk.arriving = false;
          chunk.out = true;
          job.resident_bytes -= static_cast<std::int64_t>(chunk.bytes);
        }
      }
    }
  }
  const auto moved = move(job, true, {});
  return moved ? Status{} : Status(pass(moved.error()));
}

Result<MoveReport> Node::suspend(const std::string& name, bool cold, int timeout_ms) {
  const std::int64_t start = steady_ns();
  const auto job = find(name);
  if (!job)
    return fail(Code::not_found, "the vault has no job " + name);
  if (!job->spec.suspendable)
    return fail(Code::conflict, "job " + name + " was started as not suspendable");
  if (!arena_ || !driver_)
    return fail(Code::unsupported,
                "this node's vault has no arena or no CUDA driver, so nothing can be suspended");
  const std::lock_guard operation(job->operation);
  std::vector<std::shared_ptr<Session>> sessions;
  std::uint64_t features = 0, backed = 0;
  {
    const std::lock_guard guard(job->lock);
    if (job->phase != JobPhase::running)
      return fail(Code::conflict, "job " + name + " is " + phase_name(job->phase));
    sessions = job->sessions;
    for (const auto& slot : job->usage->slots) {
      features |= slot.features;
      backed += slot.backed_bytes;
    }
  }
  if (features & BILLOW_BLOCKS_SUSPEND)
    return fail(Code::unsupported,
                std::string("job ") + name + " uses " +
                    (features & BILLOW_USES_UVM        ? "managed memory"
                     : features & BILLOW_USES_IPC      ? "memory shared between processes"
                     : features & BILLOW_USES_EXTERNAL ? "memory of another graphics API or device"
                                                       : "NVLink multicast") +
                    ", which cannot be suspended");
  if (backed / Arena::slot_bytes > library_.available())
    if (!arena_->wait_ready(std::min<std::uint64_t>(backed, arena_->slots() * Arena::slot_bytes),
                            timeout_ms) ||
        backed / Arena::slot_bytes > library_.available() + arena_->slots() / 2)
      return fail(Code::exhausted,
                  "the suspend arena has no room for " + std::to_string(backed >> 20) + " MiB",
                  "start the vault with a larger --arena");
  MoveReport report;
  {
    const std::lock_guard guard(job->lock);
    job->phase = JobPhase::suspending;
  }
  const auto back_to_running = [&](Error error) -> Result<MoveReport> {
    open(*job);
    const std::lock_guard guard(job->lock);
    job->phase = JobPhase::running;
    return pass(std::move(error));
  };
  if (const Status rest = quiesce(*job, sessions, timeout_ms, report); !rest)
    return back_to_running(rest.error());
  report.quiesce_seconds = seconds_since(start);
  job->resident_bytes = static_cast<std::int64_t>(backed);
  const auto moved = move(*job, true, {});
  if (!moved) {
    // Whatever had left comes back before the job goes on.
    const auto returned = move(*job, false, {});
    if (returned)
      return back_to_running(moved.error());
    const std::lock_guard guard(job->lock);
    job->phase = JobPhase::lost;
    return pass(returned.error(), "suspending failed, and so did undoing it");
  }
  report.counts = *moved;
  {
    const std::lock_guard guard(library_.lock);
    PieceStore& store = *library_.stores[job->tenant];
    arena_->give(job->tenant,
                 store.evict(store.unreferred()));  // older contents that this image no longer has
  }
  const std::int64_t residue = steady_ns();
  if (cold)
    if (const Status done = checkpoint(*job); !done)
      report.cold_error = done.error().message;
  report.residue_seconds = seconds_since(residue);
  const std::lock_guard guard(job->lock);
  job->phase = JobPhase::suspended;
  report.cold = job->checkpointed;
  report.seconds = seconds_since(start);
  return report;
}

Status Node::checkpoint(Job& job) {
  std::vector<int> pids;
  {
    const std::lock_guard guard(job.lock);
    for (const auto& session : job.sessions)
      pids.push_back(session->pid());
  }
  BILLOW_TRY_VOID(checkpoint_pids(pids));
  const std::lock_guard guard(job.lock);
  job.checkpointed = true;
  job.checkpointed_pids = std::move(pids);
  return {};
}

Status Node::restore(Job& job) {
  std::vector<int> pids;
  {
    const std::lock_guard guard(job.lock);
    pids = job.checkpointed_pids;
  }
  for (int pid : pids) {
    BILLOW_TRY_VOID(restore_pids({pid}));
    const std::lock_guard guard(job.lock);
    std::erase(job.checkpointed_pids, pid);
  }
  const std::lock_guard guard(job.lock);
  job.checkpointed = false;
  return {};
}

Result<MoveReport> Node::resume(const std::string& name,
                                std::uint64_t allowance_bytes,
                                Job* leaving) {
  const std::int64_t start = steady_ns();
  const auto job = find(name);
  if (!job)
    return fail(Code::not_found, "the vault has no job " + name);
  const std::lock_guard operation(job->operation);
  std::map<std::uint32_t, std::uint64_t> needed;
  {
    const std::lock_guard guard(job->lock);
    if (job->phase != JobPhase::suspended)
      return fail(Code::conflict, "job " + name + " is " + phase_name(job->phase));
    for (auto& [session, places] : job->images)
      for (auto& [place, chunks] : places)
        for (const ChunkImage& chunk : chunks)
          needed[place] += chunk.out ? chunk.bytes : 0;
  }
  // Room first: a restore that runs out of memory half way is the one thing that destroys jobs.
  if (!leaving) {
    for (const auto& [place, bytes] : needed) {
      const std::uint64_t room = BILLOW_TRY(BILLOW_TRY(gpu_of(*job, place))->free_bytes());
      if (room < bytes + (job->checkpointed ? job->spec.devices[place].context_bytes : 0))
        return fail(Code::exhausted,
                    "the GPU has " + std::to_string(room >> 20) + " MiB free, job " + name +
                        " needs " + std::to_string(bytes >> 20) + " MiB",
                    "suspend or stop another job first");
    }
  }
  {
    const std::lock_guard guard(job->lock);
    job->phase = JobPhase::resuming;
  }
  MoveReport report;
  report.cold = job->checkpointed;
  const auto still_suspended = [&](Error error) -> Result<MoveReport> {
    const std::lock_guard guard(job->lock);
    job->phase = JobPhase::suspended;
    return pass(std::move(error));
  };
  if (job->checkpointed)
    if (const Status restored = restore(*job); !restored)
      return still_suspended(restored.error());
  report.residue_seconds = seconds_since(start);
  std::function<bool(std::uint64_t)> may_create;
  if (leaving) {
    may_create = [&](std::uint64_t bytes) {
      const std::int64_t deadline = steady_ns() + 120'000'000'000;
      while (job->resident_bytes + leaving->resident_bytes + static_cast<std::int64_t>(bytes) >
             static_cast<std::int64_t>(allowance_bytes)) {
        leaving->room_wanted = true;
        if (steady_ns() > deadline)
          return false;
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
      leaving->room_wanted = false;
      return true;
    };
  }
  const auto moved = move(*job, false, may_create);
  if (!moved) {
    const Status undone = put_back(*job);
    if (undone)
      return still_suspended(moved.error());
    const std::lock_guard guard(job->lock);
    job->phase = JobPhase::lost;
    return pass(undone.error(),
                "resuming failed (" + moved.error().message + "), and so did undoing it");
  }
  report.counts = *moved;
  open(*job);
  const std::lock_guard guard(job->lock);
  job->phase = JobPhase::running;
  report.seconds = seconds_since(start);
  return report;
}

Result<std::pair<MoveReport, MoveReport>> Node::swap(const std::string& out,
                                                     const std::string& in,
                                                     std::uint64_t allowance_bytes,
                                                     int timeout_ms) {
  const auto leaving = find(out), coming = find(in);
  if (!leaving || !coming || leaving == coming)
    return fail(Code::not_found, "a swap needs two jobs the vault knows");
  std::uint64_t backed = 0;
  for (const auto& slot : leaving->usage->slots)
    backed += slot.backed_bytes;
  leaving->resident_bytes = static_cast<std::int64_t>(backed);
  coming->resident_bytes = 0;
  if (!allowance_bytes) {
    allowance_bytes = backed;
    for (std::uint32_t place = 0; place < coming->spec.devices.size(); place++)
      allowance_bytes += BILLOW_TRY(BILLOW_TRY(gpu_of(*coming, place))->free_bytes()) * 15 /
                         16;  // page tables and fragments want some of it
  }
  leaving->room_wanted = false;
  leaving->swapping = true;
  Result<MoveReport> left = MoveReport{}, came = MoveReport{};
  std::thread going([&] { left = suspend(out, false, timeout_ms); });
  came = resume(in, allowance_bytes, leaving.get());
  leaving->swapping = false;
  going.join();
  if (!left)
    return pass(left.error(), "the job that should leave");
  if (!came)
    return pass(came.error(), "the job that should come");
  return std::pair{*left, *came};
}

Status Node::checkpoint_pids(const std::vector<int>& pids) {
  if (!driver_ || !driver_->checkpoint_lock || !driver_->checkpoint_checkpoint)
    return fail(Code::unsupported,
                "this driver cannot checkpoint processes (570 or newer is needed)");
  std::vector<int> done;
  for (int pid : pids) {
    CUcheckpointLockArgs lock{};
    lock.timeoutMs = 10000;
    CUcheckpointArgs none{};
    CUresult r = driver_->checkpoint_lock(pid, &lock);
    if (r == CUDA_OK) {
      r = driver_->checkpoint_checkpoint(pid, &none);
      if (r != CUDA_OK)
        driver_->checkpoint_unlock(pid, &none);
    }
    if (r != CUDA_OK) {
      (void)restore_pids(done);
      return pass(cuda_error("the driver's checkpoint", r));
    }
    done.push_back(pid);
  }
  return {};
}

Status Node::restore_pids(const std::vector<int>& pids) {
  if (!driver_ || !driver_->checkpoint_restore)
    return fail(Code::unsupported,
                "this driver cannot checkpoint processes (570 or newer is needed)");
  for (int pid : pids) {
    CUcheckpointArgs none{};
    if (const CUresult r = driver_->checkpoint_restore(pid, &none); r != CUDA_OK)
      return pass(cuda_error("cuCheckpointProcessRestore", r));
    if (const CUresult r = driver_->checkpoint_unlock(pid, &none); r != CUDA_OK)
      return pass(cuda_error("cuCheckpointProcessUnlock", r));
  }
  return {};
}

bool Node::idle() {
  const std::lock_guard guard(lock_);
  return jobs_.empty();
}

Status Node::set_context_bytes(const std::string& name, std::uint64_t bytes) {
  const auto job = find(name);
  if (!job)
    return fail(Code::not_found, "the vault has no job " + name);
  for (std::uint32_t i = 0; i < job->limit->device_count; i++)
    job->limit->devices[i].context_bytes = bytes;
  return {};
}

std::string Node::status_text() {
  std::string out;
  const auto number = [](std::uint64_t n) {
    return std::to_string(n);
  };
  if (arena_)
    out += "arena bytes=" + number(arena_->slots() * Arena::slot_bytes) +
           " ready=" + number(arena_->ready_bytes()) +
           " free=" + number(arena_->free_slots() * Arena::slot_bytes) +
           " available=" + number(library_.available() * Arena::slot_bytes) +
           " dirty=" + number(arena_->dirty_slots() * Arena::slot_bytes) +
           " reserved=" + number(arena_->reserved_bytes()) + "\n";
  const std::lock_guard guard(lock_);
  for (const auto& [name, job] : jobs_) {
    const std::lock_guard job_guard(job->lock);
    std::uint64_t used = 0, features = 0, residue = 0, backed = 0, launches = 0, refused = 0,
                  passed_by = 0, metered = 0, waiters = 0;
    for (const auto& slot : job->usage->slots) {
      for (std::uint64_t bytes : slot.used_bytes)
        used += bytes;
      features |= slot.features;
      residue += slot.residue_bytes;
      backed += slot.backed_bytes;
      launches += slot.launches;
      refused += slot.refused;
      passed_by += slot.passed_by;
      metered += slot.metered_ns;
      waiters += slot.waiters;
    }
    std::int64_t turn_ns = 0;
    std::uint64_t turns = 0;
    for (auto& entry : arbiters_) {
      turn_ns += entry.second.used_ns(job->tenant);
      turns += entry.second.turns(job->tenant);
    }
    std::string pids;
    for (const auto& session : job->sessions)
      pids += (pids.empty() ? "" : ",") + std::to_string(session->pid());
    out += "job name=" + name + " phase=" + phase_name(job->phase) +
           " cold=" + (job->checkpointed ? "1" : "0") + " pids=" + (pids.empty() ? "-" : pids) +
           " used=" + number(used) + " backed=" + number(backed) + " residue=" + number(residue) +
           " features=" + number(features) +
           " blocks_suspend=" + number(features & BILLOW_BLOCKS_SUSPEND ? 1 : 0) +
           " launches=" + number(launches) + " refused=" + number(refused) +
           " passed_by=" + number(passed_by) + " metered_ns=" + number(metered) +
           " waiters=" + number(waiters) + " gpu_ns=" + std::to_string(turn_ns) +
           " turns=" + number(turns) + " gate=" + number(job->limit->gate) + "\n";
  }
  return out;
}

}  // namespace billow::gpumem
