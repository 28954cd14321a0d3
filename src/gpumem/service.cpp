// Jobs, their pages and their processes. See suspend.cpp and resume.cpp for the moves.
#include "gpumem/service.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "gpumem/steady.h"

namespace billow::gpumem {

namespace {
// Space for the largest chunk at least, and for two batches of a resume at most.
std::size_t staging_slots(std::size_t arena_slots) {
  constexpr std::size_t chunk = (256u << 20) / Arena::slot_bytes;
  constexpr std::size_t batches = (1ull << 30) / Arena::slot_bytes;
  return std::max(std::min(chunk, arena_slots / 2), std::min(batches, arena_slots / 8));
}

// A page in a memory file. Sealed: only mappings made before the seal (ours) can write; a job that
// gets the descriptor can only read.
Result<std::pair<Fd, void*>> make_page(const char* name, std::size_t bytes, bool sealed) {
  Fd fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd || ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0)
    return fail_errno("create a page for the job", errno);
  void* page = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (page == MAP_FAILED)
    return fail_errno("map a page for the job", errno);
  constexpr int future_write = 0x0010;  // F_SEAL_FUTURE_WRITE, since Linux 5.1
  const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | (sealed ? future_write : 0);
  if (fcntl(fd.get(), F_ADD_SEALS, seals) != 0)
    return fail_errno("seal the job's limits", errno);
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
  }
  return "running";
}

Job::~Job() {
  if (limit)
    munmap(limit, sizeof *limit);
  if (usage)
    munmap(usage, sizeof *usage);
}

Result<std::unique_ptr<Service>> Service::create(Options options) {
  std::unique_ptr<Service> service(new Service);
  service->options_ = options;
  // Only suspend needs the driver; limits and turns work without it.
  if (auto driver = Driver::load()) {
    service->driver_ = std::make_unique<Driver>(*driver);
    int count = 0;
    service->driver_->device_count(&count);
    for (int i = 0; i < count; i++) {
      CUuuid uuid{};
      service->driver_->device_uuid(&uuid, i);
      std::array<std::uint8_t, 16> bytes;
      std::memcpy(bytes.data(), uuid.bytes, 16);
      service->uuids_.push_back(bytes);
    }
  }
  if (options.arena_bytes) {
    Arena::Options arena{options.arena_bytes, options.threads, {}};
    if (service->driver_ && !service->uuids_.empty()) {
      // Memory is registered once as portable, so that every GPU's context may use it. The first
      // context is created here, ahead of need.
      auto gpu = Gpu::create(service->driver_.get(), 0);
      if (!gpu)
        return pass(gpu.error());
      Gpu* first = gpu->get();
      service->gpus_[0] = std::move(*gpu);
      arena.register_memory = [first](void* memory, std::uint64_t bytes) {
        return first->use().has_value() &&
               first->driver().host_register(memory, bytes, HOST_REGISTER_PORTABLE) == CUDA_OK;
      };
    }
    service->arena_ = BILLOW_TRY(Arena::create(arena));
    service->library_.arena = service->arena_.get();
    LowerTiers::Options lower = options.lower;
    lower.threads = options.threads;
    service->lower_ = std::make_unique<LowerTiers>(lower);
    service->library_.lower = service->lower_.get();
    if (service->lower_->any())
      service->library_.staging_slots = staging_slots(service->arena_->slots());
    service->tiers_ = std::make_unique<Tiers>(&service->library_);
  }
  Service* n = service.get();
  service->arbiter_thread_ = std::thread([n] { n->arbitrate(); });
  return service;
}

Service::~Service() {
  stop_ = true;
  if (arbiter_thread_.joinable())
    arbiter_thread_.join();
}

std::shared_ptr<Job> Service::find(const std::string& name) {
  const std::lock_guard guard(lock_);
  const auto found = jobs_.find(name);
  return found == jobs_.end() ? nullptr : found->second;
}

Status Service::add_job(const JobSpec& spec) {
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
    return fail(Code::conflict,
                "job " + spec.name + " is already registered with the GPU memory service");
  job->tenant = next_tenant_++;
  if (spec.reserve_bytes) {
    if (!arena_)
      return fail(Code::unsupported, "this node keeps no memory for suspended jobs",
                  "start billow-gpumem with --arena");
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

Status Service::remove_job(const std::string& name) {
  std::shared_ptr<Job> job;
  {
    const std::lock_guard guard(lock_);
    const auto found = jobs_.find(name);
    if (found == jobs_.end())
      return fail(Code::not_found, "the GPU memory service has no job " + name);
    job = found->second;
    jobs_.erase(found);
    for (auto& entry : arbiters_)
      entry.second.remove(job->tenant);
  }
  {
    const std::lock_guard guard(job->lock);
    for (auto& link : job->links)
      link->close();
  }
  const std::lock_guard operation(job->operation);
  const std::lock_guard guard(library_.lock);
  const auto store = library_.stores.find(job->tenant);
  if (arena_ && store != library_.stores.end()) {
    tiers_->forget(job->tenant);
    Freed freed;
    store->second->clear(freed);
    library_.give(job->tenant, freed);
    lower_->forget(job->tenant);
    arena_->unreserve(job->tenant);
    arena_->scrub_tenant(job->tenant);
  }
  library_.stores.erase(job->tenant);
  return {};
}

Result<std::shared_ptr<ShimLink>> Service::welcome(Fd socket, int pid, const Answer& packet) {
  billow_hello hello{};
  if (packet.head.version != BILLOW_ABI_VERSION || packet.head.type != BILLOW_HELLO ||
      packet.items.size() < sizeof hello)
    return fail(Code::invalid, "a process sent a hello of another version");
  std::memcpy(&hello, packet.items.data(), sizeof hello);
  hello.token[sizeof hello.token - 1] = 0;
  const std::shared_ptr<Job> job = find_by_token(hello.token);
  if (!job)
    return fail(Code::unauthorized, "a process sent a token that no job has");
  auto link = std::make_shared<ShimLink>(std::move(socket), pid);
  const std::lock_guard guard(job->lock);
  std::uint32_t slot = 0;
  const auto taken = [&](std::uint32_t s) {
    return std::any_of(job->links.begin(), job->links.end(),
                       [&](const auto& other) { return other->slot == s; });
  };
  while (slot < BILLOW_PROCESSES_MAX && taken(slot))
    slot++;
  if (slot == BILLOW_PROCESSES_MAX)
    return fail(Code::exhausted, "the job already has 128 processes on the GPU");
  link->slot = slot;
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
  BILLOW_TRY_VOID(send_packet(link->socket(), head,
                              {reinterpret_cast<const unsigned char*>(&answer), sizeof answer},
                              descriptors));
  job->links.push_back(link);
  if (job->phase == JobPhase::suspended) {
    std::vector<std::shared_ptr<ShimLink>> others = job->links;
    others.pop_back();
    hold_newcomers(*job, others);
  }
  return link;
}

void Service::ended(const std::shared_ptr<ShimLink>& link) {
  link->close();
  std::vector<std::shared_ptr<Job>> jobs;
  {
    const std::lock_guard guard(lock_);
    for (const auto& entry : jobs_)
      jobs.push_back(entry.second);
  }
  for (const auto& job : jobs) {
    const std::lock_guard guard(job->lock);
    if (!std::erase(job->links, link))
      continue;
    // Its memory is gone with it; the generation stays, so that a late reader sees the change.
    billow_process_slot& slot = job->usage->slots[link->slot];
    const std::uint32_t generation = slot.generation;
    std::memset(&slot, 0, sizeof slot);
    slot.generation = generation;
    job->draining.erase(link.get());
  }
  // An operation in progress may be using the image; it drops it at its end.
  for (const auto& job : jobs)
    if (const std::unique_lock operation(job->operation, std::try_to_lock); operation)
      drop_ended(*job);
}

void Service::drop_ended(Job& job) {
  const std::lock_guard guard(job.lock);
  std::erase_if(job.images, [&](auto& image) {
    if (!image.first->closed())
      return false;
    drop_image(job, image.second);
    return true;
  });
}

void Service::drop_image(const Job& job,
                         const std::map<std::uint32_t, std::vector<ChunkImage>>& image) {
  const std::lock_guard guard(library_.lock);
  const auto store = library_.stores.find(job.tenant);
  if (store == library_.stores.end())
    return;
  Freed freed;
  for (const auto& [place, chunks] : image)
    for (const ChunkImage& chunk : chunks)
      for (const Piece& piece : chunk.pieces)
        if (piece.referred)
          store->second->unrefer(piece.key, freed);
  library_.give(job.tenant, freed);
}

Result<Gpu*> Service::gpu_of(const Job& job, std::uint32_t place) {
  if (!driver_)
    return fail(Code::unsupported, "the GPU memory service found no CUDA driver on this node");
  static const std::uint8_t unnamed[16] = {};
  int ordinal = -1;
  const std::uint8_t* uuid = job.spec.devices.at(place).uuid;
  if (!std::memcmp(uuid, unnamed, 16))
    ordinal = static_cast<int>(place);
  for (std::size_t i = 0; i < uuids_.size(); i++)
    if (!std::memcmp(uuid, uuids_[i].data(), 16))
      ordinal = static_cast<int>(i);
  if (ordinal < 0 || ordinal >= static_cast<int>(uuids_.size()))
    return fail(Code::not_found, "the GPU memory service cannot find the job's GPU");
  const std::lock_guard guard(gpus_lock_);
  auto& gpu = gpus_[ordinal];
  if (!gpu)
    gpu = BILLOW_TRY(Gpu::create(driver_.get(), ordinal));
  return gpu.get();
}

// Moves every chunk that is not yet where it belongs, with one thread per device and process.
Result<MoveCounts> Service::move(Job& job,
                                 bool out,
                                 std::function<bool(std::uint64_t)> may_create) {
  struct Task {
    std::shared_ptr<ShimLink> link;
    std::uint32_t place;
    std::vector<ChunkImage>* chunks;
    Gpu* gpu;
    Result<MoveCounts> result;
  };
  std::vector<Task> tasks;
  {
    const std::lock_guard guard(job.lock);
    for (auto& [link, places] : job.images)
      if (!link->closed() && !link->broken)
        for (auto& [place, chunks] : places)
          tasks.push_back({link, place, &chunks, nullptr, MoveCounts{}});
  }
  for (Task& task : tasks)
    task.gpu = BILLOW_TRY(gpu_of(job, task.place));
  const auto run = [&](Task& task) {
    Gpu::Job move{task.link.get(),
                  &library_,
                  tiers_.get(),
                  job.tenant,
                  task.chunks,
                  may_create,
                  [&](std::int64_t bytes) { job.resident_bytes += bytes; },
                  [&] { return job.swapping && !job.space_wanted; },
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
    // The memory of a process that has ended is gone with it.
    if (!task.result && task.link->closed())
      continue;
    if (!task.result)
      return pass(task.result.error());
    sum.bytes += task.result->bytes;
    sum.copied_bytes += task.result->copied_bytes;
    sum.zero_bytes += task.result->zero_bytes;
    sum.known_bytes += task.result->known_bytes;
    sum.copies += task.result->copies;
    sum.waited_seconds += task.result->waited_seconds;
  }
  return sum;
}

void Service::open(Job& job) {
  std::vector<std::shared_ptr<ShimLink>> links;
  {
    const std::lock_guard guard(job.lock);
    links = job.links;
  }
  for (auto& link : links)
    (void)link->ask(BILLOW_OPEN, link->broken ? 1 : 0, {}, 10000);
}

void Service::hold_newcomers(Job& job, const std::vector<std::shared_ptr<ShimLink>>& held) {
  for (auto& link : job.links)
    if (std::find(held.begin(), held.end(), link) == held.end())
      (void)link->send(BILLOW_PREPARE, 30000);
}

void Service::set_phase(Job& job, JobPhase phase) {
  const std::lock_guard guard(job.lock);
  job.phase = phase;
}

bool Service::idle() {
  const std::lock_guard guard(lock_);
  return jobs_.empty();
}

Status Service::set_context_bytes(const std::string& name, std::uint64_t bytes) {
  const auto job = find(name);
  if (!job)
    return fail(Code::not_found, "the GPU memory service has no job " + name);
  for (std::uint32_t i = 0; i < job->limit->device_count; i++)
    job->limit->devices[i].context_bytes = bytes;
  return {};
}

}  // namespace billow::gpumem
