#include "gpumem/tiers.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "gpumem/steady.h"

namespace billow::gpumem {

namespace {
constexpr std::size_t round_pieces = 128;  // 256 MiB at a time, so that order can change
constexpr std::uint64_t tier_rated_bytes = 64u << 20;  // smaller amounts say little about a rate
using Place = LowerCopy::Place;
}  // namespace

Tiers::Tiers(Library* library) : library_(*library) {
  if (library_.lower->any())
    thread_ = std::thread([this] { work(); });
}

Tiers::~Tiers() {
  {
    const std::lock_guard guard(library_.lock);
    stop_ = true;
  }
  library_.short_of_slots.notify_all();
  if (thread_.joinable())
    thread_.join();
}

void Tiers::asleep(std::uint64_t tenant) {
  const std::lock_guard guard(lock_);
  const std::int64_t now = steady_ns();
  Sleeper sleeper{tenant, now, 0};
  if (const auto before = woken_.find(tenant); before != woken_.end())
    sleeper.wakes = faded(before->second.wakes, now - before->second.since_ns);
  woken_.erase(tenant);
  asleep_[tenant] = sleeper;
}

void Tiers::awake(std::uint64_t tenant, bool counts) {
  const std::lock_guard guard(lock_);
  const auto found = asleep_.find(tenant);
  if (found == asleep_.end())
    return;
  const std::int64_t now = steady_ns();
  Sleeper woken{tenant, now,
                faded(found->second.wakes, now - found->second.since_ns) + (counts ? 1.0 : 0.0)};
  woken_[tenant] = woken;
  asleep_.erase(found);
}

void Tiers::forget(std::uint64_t tenant) {
  const std::lock_guard guard(lock_);
  asleep_.erase(tenant);
  woken_.erase(tenant);
}

std::vector<Sleeper> Tiers::sleepers() const {
  const std::lock_guard guard(lock_);
  std::vector<Sleeper> out;
  for (const auto& entry : asleep_)
    out.push_back(entry.second);
  return out;
}

std::shared_ptr<PieceStore> Tiers::store_of(std::uint64_t tenant) {
  const auto found = library_.stores.find(tenant);
  return found == library_.stores.end() ? nullptr : found->second;
}

// An eighth of the arena is kept free, so that the next suspend need not wait.
std::size_t Tiers::shortage() {
  const auto missing = [](std::size_t needed, std::size_t there) {
    return needed - std::min(needed, there);
  };
  const std::size_t reserve = library_.arena->ready_bytes() / Arena::slot_bytes / 8;
  return std::max(missing(library_.wanted, library_.arena->free_slots()),
                  missing(reserve, library_.available()));
}

void Tiers::work() {
  std::unique_lock guard(library_.lock);
  while (!stop_) {
    guard.unlock();
    const std::size_t missing = shortage();
    const bool moved = missing ? spill(missing) > 0 : prefetch();
    guard.lock();
    if (!moved && !stop_)
      library_.short_of_slots.wait_for(guard, std::chrono::milliseconds(missing ? 5 : 250));
  }
}

// Frees slots, one round: the order can have changed by the next.
std::size_t Tiers::spill(std::size_t slots) {
  const std::size_t round = std::min(slots, round_pieces);
  const std::vector<std::uint64_t> order = spill_order(sleepers());
  for (const std::uint64_t tenant : order) {
    if (library_.lower->memory_free() < round * Arena::slot_bytes)
      make_memory(order, tenant);
    if (const std::size_t left = spill_from(tenant, round, false))
      return left;
  }
  return 0;
}

// Moves memory of jobs that sleep at least as long as `until` to the file.
void Tiers::make_memory(const std::vector<std::uint64_t>& order, std::uint64_t until) {
  if (!library_.lower->memory_bytes() || library_.lower->file_stuck() ||
      library_.lower->file_free() < round_pieces * Arena::slot_bytes)
    return;
  for (const std::uint64_t tenant : order)
    if (spill_from(tenant, round_pieces, true) || tenant == until)
      return;
}

// One round. Returns how many pieces left.
std::size_t Tiers::spill_from(std::uint64_t tenant, std::size_t count, bool from_memory) {
  std::shared_ptr<PieceStore> store;
  std::vector<PieceKey> keys;
  {
    const std::lock_guard guard(library_.lock);
    store = store_of(tenant);
    if (store)
      keys = store->begin_spill(count, from_memory);
  }
  LowerTiers& lower = *library_.lower;
  const std::int64_t start = steady_ns();
  std::atomic<std::size_t> left{0};
  std::atomic<std::uint64_t> into_memory{0}, into_file{0};
  in_parallel(keys.size(), lower.threads(), [&](std::size_t i) {
    const PieceKey& key = keys[i];
    std::uint32_t slot = no_slot;
    LowerCopy before;
    {
      const std::lock_guard guard(library_.lock);
      slot = store->slot(key);
      before = store->lower(key);
    }
    Result<LowerCopy> made = LowerCopy{};
    if (from_memory)
      made = lower.sink(tenant, before);
    else if (before.place == Place::none) {
      made = lower.store(tenant, library_.arena->at(slot), key.bytes, Place::memory);
      if (!made)
        made = lower.store(tenant, library_.arena->at(slot), key.bytes, Place::file);
    }
    Freed freed;
    {
      const std::lock_guard guard(library_.lock);
      store->end_spill(key, made ? *made : LowerCopy{}, from_memory, freed);
    }
    left += from_memory ? made.has_value() : !freed.slots.empty();
    if (made && made->place == Place::memory)
      into_memory += key.bytes;
    if (made && made->place == Place::file)
      into_file += made->bytes;
    library_.give(tenant, freed);
  });
  library_.spilled += left;
  const double seconds = seconds_since(start);
  if (into_file >= tier_rated_bytes && !into_memory)
    lower.rated(LowerTiers::Rated::write, static_cast<double>(into_file), seconds);
  return left;
}

struct Tiers::Load {
  PieceKey key;
  LowerCopy from;
  Status result;
};

Status Tiers::raise(std::uint64_t tenant, const std::vector<PieceKey>& keys, int timeout_ms) {
  std::vector<Load> loads;
  std::vector<PieceKey> elsewhere;  // another thread loads these
  std::shared_ptr<PieceStore> store;
  {
    const std::lock_guard guard(library_.lock);
    store = store_of(tenant);
    if (!store)
      return fail(Code::not_found, "the job has ended");
    for (const PieceKey& key : keys) {
      store->pin(key);
      if (store->begin_load(key))
        loads.push_back({key, store->lower(key), {}});
      else if (store->loading(key))
        elsewhere.push_back(key);
    }
  }
  const Status loaded = loads.empty() ? Status() : load(tenant, *store, loads, timeout_ms);
  const Status others = elsewhere.empty() ? Status() : await(*store, elsewhere, timeout_ms);
  return loaded ? others : loaded;
}

// Reads pieces into slots, on several threads.
Status Tiers::load(std::uint64_t tenant,
                   PieceStore& store,
                   std::vector<Load>& loads,
                   int timeout_ms) {
  const std::vector<std::uint32_t> slots =
      library_.take(tenant, loads.size(), timeout_ms, Library::Purpose::load);
  const bool has_slots = slots.size() == loads.size();
  const std::int64_t start = steady_ns();
  in_parallel(has_slots ? loads.size() : 0, library_.lower->threads(), [&](std::size_t i) {
    char* into = library_.arena->at(slots[i]);
    loads[i].result = library_.lower->load(tenant, loads[i].from, into, loads[i].key.bytes);
    std::memset(into + loads[i].key.bytes, 0, Arena::slot_bytes - loads[i].key.bytes);
  });
  rate_load(loads, seconds_since(start));
  Status outcome;
  if (!has_slots)
    outcome = fail(Code::exhausted, "the arena has no space to load suspended memory into",
                   "try again when another suspend or resume has ended");
  Freed freed;
  std::unique_lock guard(library_.lock);
  for (std::size_t i = 0; i < loads.size(); i++) {
    const bool loaded = has_slots && loads[i].result;
    if (has_slots && !loaded) {
      freed.slots.push_back(slots[i]);
      outcome = outcome ? pass(loads[i].result.error(), "the job stays suspended") : outcome;
    }
    store.end_load(loads[i].key, loaded ? slots[i] : no_slot, freed);
  }
  guard.unlock();
  library_.give(tenant, {std::move(freed.slots), {}});
  in_parallel(freed.lower.size(), library_.lower->threads(),
              [&](std::size_t i) { library_.lower->release(tenant, freed.lower[i]); });
  return outcome;
}

// A load from one tier says how fast that tier is.
void Tiers::rate_load(const std::vector<Load>& loads, double seconds) {
  std::uint64_t file = 0, memory = 0, packed = 0;
  for (const Load& load : loads) {
    if (!load.result)
      return;
    (load.from.place == Place::file ? file : memory) += load.from.bytes;
    packed += load.from.packed ? load.key.bytes : 0;
  }
  LowerTiers& lower = *library_.lower;
  if (file >= tier_rated_bytes && !memory && !packed)
    lower.rated(LowerTiers::Rated::read, static_cast<double>(file), seconds);
  if (memory >= tier_rated_bytes && !file && !packed)
    lower.rated(LowerTiers::Rated::memory, static_cast<double>(memory), seconds);
  if (packed >= tier_rated_bytes && !file)
    lower.rated(LowerTiers::Rated::unpack, static_cast<double>(packed), seconds);
}

Status Tiers::await(PieceStore& store, const std::vector<PieceKey>& keys, int timeout_ms) {
  const std::int64_t deadline = steady_ns() + std::int64_t{timeout_ms} * 1'000'000;
  for (const PieceKey& key : keys) {
    for (;; std::this_thread::sleep_for(std::chrono::milliseconds(1))) {
      const std::lock_guard guard(library_.lock);
      if (store.slot(key) != no_slot)
        break;
      if (!store.loading(key) || steady_ns() > deadline)
        return fail(Code::unavailable,
                    "suspended memory could not be loaded; the job stays suspended");
    }
  }
  return {};
}

void Tiers::unpin(std::uint64_t tenant, const std::vector<PieceKey>& keys) {
  const std::lock_guard guard(library_.lock);
  if (const auto store = store_of(tenant))
    for (const PieceKey& key : keys)
      store->unpin(key);
}

// Brings up pieces of jobs that are expected to be resumed, while a quarter of the arena is free.
bool Tiers::prefetch() {
  if (library_.wanted)
    return false;
  const std::size_t keep = library_.arena->slots() / 4;
  const std::size_t free_now = library_.arena->free_slots();
  if (free_now <= keep)
    return false;
  for (const std::uint64_t tenant : wake_order(sleepers())) {
    std::vector<PieceKey> keys;
    {
      const std::lock_guard guard(library_.lock);
      if (const auto store = store_of(tenant))
        keys = store->without_slot(std::min(free_now - keep, round_pieces));
    }
    if (keys.empty())
      continue;
    const Status raised = raise(tenant, keys, 0);
    unpin(tenant, keys);
    return raised.has_value();
  }
  return false;
}

PieceStore::Amounts Tiers::amounts(std::uint64_t tenant) {
  const std::lock_guard guard(library_.lock);
  const auto store = store_of(tenant);
  return store ? store->amounts() : PieceStore::Amounts{};
}

double Tiers::wake_seconds(const PieceStore::Amounts& a) const {
  return gpumem::wake_seconds(library_.lower->rates(),
                              {a.arena, a.memory, a.memory_stored, a.file, a.file_stored});
}

std::uint64_t Tiers::capacity() {
  return library_.available() * Arena::slot_bytes + library_.lower->memory_free() +
         (library_.lower->file_stuck() ? 0 : library_.lower->file_free());
}

}  // namespace billow::gpumem
