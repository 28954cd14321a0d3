/* The gate: every call that touches device memory passes it, and it closes for two reasons.
 *
 *   local_gate    this process is being suspended: nothing may touch device memory until the gate
 *                 opens again
 *   arbiter_gate  it is another job's turn on the GPU: new work waits, everything else continues
 *
 * An open gate costs a store, a load and a store to the calling thread's own cache line. To close
 * it, a thread sets the word, lets the kernel issue a memory barrier in every running thread
 * (membarrier), and waits until no thread is inside a call; then nothing new reaches the GPU. While
 * jobs share the GPU the gate is "metered": launches are counted, and every few of them an event
 * marks the stream. Few such marks are outstanding, so little work is queued when a gate closes;
 * more while all jobs run together, so that a job has work queued for its next time slice.
 *
 * During a stream capture nothing here synchronises or records; a thread that captures is let
 * through, because a captured launch puts nothing on the GPU. */
#include <errno.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "shim/internal.h"

namespace shim {

uint32_t local_gate = local_open;
uint32_t exit_wanted;
namespace {
const uint32_t always_open = 0;
}
const volatile uint32_t* volatile arbiter_gate = &always_open;
__thread Thread* this_thread;
bool fence_on_entry = true;

namespace {

constexpr int threads_max = 4096;
Thread threads[threads_max];
uint32_t too_many_threads;  // threads beyond the limit are not tracked: the process continues, but
                            // cannot be suspended
int threads_high;
pthread_key_t thread_key;
uint32_t epoch;
uint32_t captures;
uint32_t steps;  // calls that may pass the closed local gate
constexpr uint64_t step_patience_ns = 20000000;

uint64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec);
}
void sleep_us(long us) {
  timespec t{0, us * 1000};
  nanosleep(&t, nullptr);
}
void futex_wait(const volatile uint32_t* word, uint32_t value, bool shared, long timeout_ms) {
  timespec t{timeout_ms / 1000, timeout_ms % 1000 * 1000000};
  syscall(SYS_futex, word, FUTEX_WAIT | (shared ? 0 : FUTEX_PRIVATE_FLAG), value, &t, nullptr, 0);
}

// The caller has already entered, so whoever withdraws the step sees that.
bool take_step() {
  uint32_t left = __atomic_load_n(&steps, __ATOMIC_SEQ_CST);
  while (left)
    if (__atomic_compare_exchange_n(&steps, &left, left - 1, false, __ATOMIC_SEQ_CST,
                                    __ATOMIC_SEQ_CST))
      return true;
  return false;
}

// Other destructors of the ending thread may still call the driver: they register again, because
// another thread may take this place at once.
void thread_ended(void* data) {
  auto* t = static_cast<Thread*>(data);
  this_thread = nullptr;
  t->depth = t->captures = t->metered = t->skip = 0;
  __atomic_store_n(&t->in_call, 0u, __ATOMIC_RELEASE);
  __atomic_store_n(&t->taken, 0u, __ATOMIC_RELEASE);
}

void barrier_everywhere() {
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  if (!fence_on_entry)
    syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
}

// Calls of a kind beyond `worst` may go on.
bool nobody_inside(uint64_t deadline_ns, uint32_t worst = waiting_inside) {
  const int high = __atomic_load_n(&threads_high, __ATOMIC_ACQUIRE);
  if (__atomic_load_n(&too_many_threads, __ATOMIC_ACQUIRE))
    return false;
  for (int i = 0; i < high; i++) {
    Thread& t = threads[i];
    for (int spins = 0;; spins++) {
      const uint32_t kind = __atomic_load_n(&t.in_call, __ATOMIC_ACQUIRE);
      if (kind == outside || kind > worst)
        break;
      if (now_ns() > deadline_ns || __atomic_load_n(&exit_wanted, __ATOMIC_ACQUIRE))
        return false;
      if (spins > 200)
        sleep_us(20);
    }
  }
  return true;
}

// ---- meters, one per stream that launched while metered
struct Meter {
  CUstream stream;
  Thread* owner;  // of a per-thread default stream; null for every other stream
  CUcontext context;
  CUevent marks[16];           // recorded and not known to be complete, oldest first
  uint32_t counts[16];         // launches that each mark covers
  uint32_t pauses[16];         // how often launches had waited at the gate before each mark
  uint32_t outstanding, most;  // how many may be
  CUevent last;                // the newest one known to be complete
  uint32_t last_pauses;
  float lately[4];  // times per launch, of the last marks; 0: none
  uint32_t at;      // where the next one goes
  CUevent spare;
  uint32_t launches, batch;
  uint64_t marked_ns;
};
constexpr int meters_max = 64;
Meter meters[meters_max];
int meter_count;
pthread_mutex_t meter_lock = PTHREAD_MUTEX_INITIALIZER;
constexpr uint64_t mark_interval_ns = 1000000;
constexpr uint32_t batch_max = 256;
constexpr uint32_t marks_max = 4;
constexpr uint32_t marks_far = 16;
constexpr float long_launch_ns = 2e6f;  // two such launches keep the GPU busy
constexpr float slice_ms = 8;           // another job's time slices take less than this
uint32_t pauses;                        // how often a launch waited at the gate

Meter* meter_of(CUstream stream, Thread* owner) {
  CUcontext context = nullptr;
  if (REAL(cuCtxGetCurrent, &context) != CUDA_OK || !context)
    return nullptr;
  for (int i = 0; i < meter_count; i++)
    if (meters[i].stream == stream && meters[i].owner == owner && meters[i].context == context)
      return &meters[i];
  Meter* m = &meters[meter_count < meters_max ? meter_count++ : meters_max - 1];
  *m = Meter{};  // the events of a displaced meter live until the context ends: at most
                 // seventeen
  m->stream = stream;
  m->owner = owner;
  m->context = context;
  m->batch = 1;
  m->most = marks_max;
  return m;
}

bool capturing(CUstream stream, bool per_thread) {
  if (!__atomic_load_n(&captures, __ATOMIC_ACQUIRE))
    return false;
  int status = 0;
  const CUresult r = per_thread ? REAL(cuStreamIsCapturing_ptsz, stream, &status)
                                : REAL(cuStreamIsCapturing, stream, &status);
  return r != CUDA_OK || status != 0;
}

// How long a launch takes, from the time between two marks. That contains the time slices of other
// jobs, so the shortest of the last few counts: a job whose queue is limited by longer ones would
// launch too little in advance, and lose its own slices.
float time_per_launch(Meter* m, float elapsed_ms, uint32_t launches) {
  const float now = elapsed_ms * 1e6f / static_cast<float>(launches);
  if (elapsed_ms > slice_ms)
    for (float& each : m->lately)
      each = now;
  m->lately[m->at++ % 4] = now;
  float least = now;
  for (const float each : m->lately)
    least = each > 0 && each < least ? each : least;
  return least;
}

// The oldest mark is complete: derive how many launches fill one interval. An interval in which
// launches waited at the gate says nothing about them.
void learn(Meter* m, CUevent done, uint32_t launches, uint32_t paused) {
  float elapsed_ms = 0;
  if (m->last && REAL(cuEventElapsedTime, &elapsed_ms, m->last, done) == CUDA_OK &&
      elapsed_ms > 0) {
    if (pages.slot)
      __atomic_fetch_add(&pages.slot->metered_ns, static_cast<uint64_t>(elapsed_ms * 1e6f),
                         __ATOMIC_RELAXED);
    if (paused == m->last_pauses) {
      const float per_launch_ns = time_per_launch(m, elapsed_ms, launches);
      m->most = per_launch_ns > long_launch_ns ? 2 : marks_max;
      float want = static_cast<float>(mark_interval_ns) / per_launch_ns;
      if (want > static_cast<float>(m->batch) * 2)
        want = static_cast<float>(m->batch) * 2;
      m->batch = want < 1 ? 1 : want > batch_max ? batch_max : static_cast<uint32_t>(want);
    }
  }
  if (m->last && !m->spare)
    m->spare = m->last;
  else if (m->last)
    REAL(cuEventDestroy_v2, m->last);
  m->last = done;
  m->last_pauses = paused;
}

}  // namespace

void meter_reset() {
  Guard guard(&meter_lock);
  meter_count = 0;
}

Thread* register_thread() {
  for (int i = 0; i < threads_max; i++) {
    uint32_t free = 0;
    if (threads[i].taken || !__atomic_compare_exchange_n(&threads[i].taken, &free, 1u, false,
                                                         __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
      continue;
    int high = __atomic_load_n(&threads_high, __ATOMIC_RELAXED);
    while (high < i + 1 && !__atomic_compare_exchange_n(&threads_high, &high, i + 1, false,
                                                        __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {}
    pthread_setspecific(thread_key, &threads[i]);
    return this_thread = &threads[i];
  }
  __atomic_store_n(&too_many_threads, 1u, __ATOMIC_RELEASE);
  return this_thread = static_cast<Thread*>(calloc(1, sizeof(Thread)));
}

void gate_init() {
  pthread_key_create(&thread_key, thread_ended);
  const long supported = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
  if (supported > 0 && (supported & MEMBARRIER_CMD_PRIVATE_EXPEDITED) &&
      syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0)
    fence_on_entry = false;
}

CUresult gate_slow(Thread* thread, bool waits_for_turn, uint32_t kind) {
  const int saved_errno = errno;
  CUresult result = CUDA_OK;
  bool counted = false;
  for (;;) {
    const uint32_t local = __atomic_load_n(&local_gate, __ATOMIC_ACQUIRE);
    const volatile uint32_t* turn_word = arbiter_gate;
    const uint32_t turn = waits_for_turn ? *turn_word : 0;
    if (local == local_lost) {
      result = CUDA_DEVICE_UNAVAILABLE;
      break;
    }
    thread->metered = turn & (BILLOW_GATE_METERED | BILLOW_GATE_FAR);
    const bool captures_here = thread->captures && __atomic_load_n(&captures, __ATOMIC_ACQUIRE);
    if ((!local && !(turn & BILLOW_GATE_CLOSED)) || captures_here)
      break;
    if (local == local_closed && !(turn & BILLOW_GATE_CLOSED) && take_step())
      break;
    // While this thread waits, a signal handler on it that calls the driver must find the gate
    // closed, too: at depth 0 it waits for itself.
    thread->depth = 0;
    __atomic_store_n(&thread->in_call, 0u, __ATOMIC_RELEASE);
    billow_process_slot* slot = pages.slot;
    if (slot && !counted) {
      counted = true;
      __atomic_fetch_add(&slot->waiters, 1u, __ATOMIC_RELAXED);
      __atomic_fetch_add(&pauses, 1u, __ATOMIC_RELAXED);
    }
    // With a timeout, because the arbiter may have ended: its word then never changes, but
    // arbiter_gate points elsewhere.
    if (local)
      futex_wait(&local_gate, local, false, 100);
    else
      futex_wait(turn_word, turn, true, 100);
    thread->depth = 1;
    __atomic_store_n(&thread->in_call, kind, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
  }
  if (counted && pages.slot) {
    __atomic_store_n(&pages.slot->passed_ns, now_ns(), __ATOMIC_RELAXED);
    __atomic_fetch_sub(&pages.slot->waiters, 1u, __ATOMIC_RELAXED);
  }
  errno = saved_errno;
  return result;
}

void meter(Thread* thread, CUstream stream, bool per_thread_stream) {
  const bool far = (thread->metered & BILLOW_GATE_FAR) != 0;
  thread->metered = 0;
  const bool own_stream =
      per_thread_stream && (stream == nullptr || stream == reinterpret_cast<CUstream>(2));
  if (pages.slot)
    __atomic_fetch_add(&pages.slot->launches, 1u, __ATOMIC_RELAXED);
  // Of many small launches most take this way: no lock, no clock.
  if (thread->skip && stream == thread->skip_stream) {
    thread->skip--;
    return;
  }
  const uint32_t skipped = stream == thread->skip_stream ? thread->skipped : 0;
  thread->skip = thread->skipped = 0;
  thread->skip_stream = stream;
  pthread_mutex_lock(&meter_lock);
  Meter* m = meter_of(stream, own_stream ? thread : nullptr);
  const uint64_t now = now_ns();
  if (!m || ((m->launches += 1 + skipped) < m->batch && now - m->marked_ns < mark_interval_ns) ||
      capturing(stream, per_thread_stream)) {
    if (m)
      thread->skip = thread->skipped = m->batch / 16;
    pthread_mutex_unlock(&meter_lock);
    return;
  }
  const uint32_t launches = m->launches;
  m->launches = 0;
  m->marked_ns = now;
  CUevent mark = m->spare;
  m->spare = nullptr;
  if (!mark && REAL(cuEventCreate, &mark, 0u) != CUDA_OK)
    mark = nullptr;
  const CUresult recorded = !mark               ? CUDA_UNKNOWN
                            : per_thread_stream ? REAL(cuEventRecord_ptsz, mark, stream)
                                                : REAL(cuEventRecord, mark, stream);
  if (recorded != CUDA_OK) {
    if (mark)
      REAL(cuEventDestroy_v2, mark);
    pthread_mutex_unlock(&meter_lock);
    return;
  }
  CUevent oldest = nullptr;
  uint32_t covered = 0, paused = 0;
  const uint32_t most = far && m->most == marks_max ? marks_far : m->most;
  while (m->outstanding >= most) {
    if (oldest)
      REAL(cuEventDestroy_v2, oldest);
    oldest = m->marks[0];
    covered += m->counts[0];
    paused = m->pauses[0];
    m->outstanding--;
    memmove(m->marks, m->marks + 1, sizeof m->marks[0] * m->outstanding);
    memmove(m->counts, m->counts + 1, sizeof m->counts[0] * m->outstanding);
    memmove(m->pauses, m->pauses + 1, sizeof m->pauses[0] * m->outstanding);
  }
  m->pauses[m->outstanding] = __atomic_load_n(&pauses, __ATOMIC_RELAXED);
  m->marks[m->outstanding] = mark;
  m->counts[m->outstanding++] = launches;
  pthread_mutex_unlock(&meter_lock);
  if (!oldest)
    return;
  REAL(cuEventSynchronize, oldest);
  Guard guard(&meter_lock);
  learn(m, oldest, covered, paused);
}

// Waits until the GPU has finished this process's work. Polls if the driver can record an event for
// a whole context, so that an endless kernel cannot block the caller beyond its timeout.
namespace {
enum class Settled { yes, no, capturing };
// A capture does not begin while a context's event is recorded, which would invalidate it.
pthread_mutex_t capture_lock = PTHREAD_MUTEX_INITIALIZER;

Settled settle(uint64_t deadline_ns) {
  CUcontext contexts[64];
  // A context does not end meanwhile: while jobs take turns, other threads call the driver.
  Guard guard(&teardown_lock);
  const int count = known_contexts(contexts, 64);
  for (int i = 0; i < count; i++) {
    if (REAL(cuCtxPushCurrent_v2, contexts[i]) != CUDA_OK)
      continue;
    CUevent event = nullptr;
    Settled outcome = Settled::yes;
    CUresult recorded = CUDA_UNKNOWN;
    if (have(api_cuCtxRecordEvent) &&
        REAL(cuEventCreate, &event, static_cast<unsigned>(EVENT_DISABLE_TIMING)) == CUDA_OK) {
      Guard no_capture(&capture_lock);
      if (any_capture())
        outcome = Settled::capturing;
      else
        recorded = REAL(cuCtxRecordEvent, contexts[i], event);
    }
    if (recorded == CUDA_OK) {
      for (int polls = 0; REAL(cuEventQuery, event) == CUDA_NOT_READY; polls++) {
        if (now_ns() > deadline_ns || __atomic_load_n(&exit_wanted, __ATOMIC_ACQUIRE)) {
          outcome = Settled::no;
          break;
        }
        if (polls > 2000)
          sleep_us(50);
      }
    } else if (any_capture()) {
      outcome = Settled::capturing;
    } else if (outcome == Settled::yes) {
      REAL(cuCtxSynchronize);
    }
    if (event)
      REAL(cuEventDestroy_v2, event);
    CUcontext popped;
    REAL(cuCtxPopCurrent_v2, &popped);
    if (outcome != Settled::yes)
      return outcome;
  }
  return Settled::yes;
}
constexpr uint64_t capture_patience_ns = 20000000;
}  // namespace

bool drain(int timeout_ms) {
  const uint64_t begun = now_ns();
  const uint64_t deadline = begun + static_cast<uint64_t>(timeout_ms) * 1000000u;
  barrier_everywhere();
  if (!nobody_inside(deadline, inside))
    return false;
  for (;;) {
    const Settled settled = any_capture() ? Settled::capturing : settle(deadline);
    if (settled != Settled::capturing)
      return settled == Settled::yes;
    // A process that captures puts nothing new on the GPU: after a while it counts as idle.
    if (now_ns() - begun > capture_patience_ns)
      return true;
    sleep_us(200);
  }
}

bool gate_close(int timeout_ms) {
  const uint64_t deadline = now_ns() + static_cast<uint64_t>(timeout_ms) * 1000000u;
  __atomic_fetch_add(&epoch, 1u, __ATOMIC_SEQ_CST);
  __atomic_store_n(&local_gate, static_cast<uint32_t>(local_closed), __ATOMIC_SEQ_CST);
  barrier_everywhere();
  while (nobody_inside(deadline)) {
    // A capture in progress may finish; only then may the contexts be synchronised.
    const Settled settled = any_capture() ? Settled::capturing : settle(deadline);
    if (settled == Settled::yes)
      return true;
    if (settled == Settled::no)
      break;
    if (now_ns() > deadline || __atomic_load_n(&exit_wanted, __ATOMIC_ACQUIRE))
      break;
    sleep_us(200);
  }
  gate_open();
  return false;
}

// A kernel of another process of the job may wait for one that this process has not launched. The
// caller closes the gate again, which waits for the call that passed.
void gate_step() {
  if (__atomic_load_n(&local_gate, __ATOMIC_SEQ_CST) != local_closed)
    return;
  const uint64_t deadline = now_ns() + step_patience_ns;
  __atomic_store_n(&steps, 1u, __ATOMIC_SEQ_CST);
  gate_wake();
  while (__atomic_load_n(&steps, __ATOMIC_SEQ_CST) && now_ns() < deadline &&
         !__atomic_load_n(&exit_wanted, __ATOMIC_ACQUIRE))
    sleep_us(20);
  __atomic_store_n(&steps, 0u, __ATOMIC_SEQ_CST);
  if (__atomic_load_n(&exit_wanted, __ATOMIC_ACQUIRE))
    gate_open();  // as when a gate cannot be closed: the process ends, and is left out
}

void gate_attach(const volatile uint32_t* word) {
  arbiter_gate = word ? word : &always_open;
}

void gate_wake() {
  syscall(SYS_futex, &local_gate, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 0x7fffffff, nullptr, nullptr, 0);
}
void gate_open() {
  // What was fetched while the gate was closed may be gone, too.
  __atomic_fetch_add(&epoch, 1u, __ATOMIC_SEQ_CST);
  __atomic_store_n(&local_gate, static_cast<uint32_t>(local_open), __ATOMIC_SEQ_CST);
  gate_wake();
}
uint32_t gate_epoch() {
  return __atomic_load_n(&epoch, __ATOMIC_SEQ_CST);
}
void gate_wait_open() {
  const int saved_errno = errno;
  while (__atomic_load_n(&local_gate, __ATOMIC_ACQUIRE) == local_closed)
    futex_wait(&local_gate, local_closed, false, 100);
  errno = saved_errno;
}
void gate_lose() {
  __atomic_store_n(&local_gate, static_cast<uint32_t>(local_lost), __ATOMIC_SEQ_CST);
  gate_wake();
}

void capture_began() {
  Thread* t = this_thread ? this_thread : register_thread();
  t->captures++;
  Guard guard(&capture_lock);
  __atomic_fetch_add(&captures, 1u, __ATOMIC_ACQ_REL);
}
void capture_ended() {
  Thread* t = this_thread ? this_thread : register_thread();
  if (t->captures)
    t->captures--;
  uint32_t now = __atomic_load_n(&captures, __ATOMIC_ACQUIRE);
  while (now && !__atomic_compare_exchange_n(&captures, &now, now - 1, false, __ATOMIC_ACQ_REL,
                                             __ATOMIC_ACQUIRE)) {}
}
bool any_capture() {
  return __atomic_load_n(&captures, __ATOMIC_ACQUIRE) != 0;
}

void gate_after_fork() {
  memset(threads, 0, sizeof threads);
  threads_high = 0;
  too_many_threads = 0;
  this_thread = nullptr;
  captures = 0;
  exit_wanted = 0;
  steps = 0;
  local_gate = local_open;
  arbiter_gate = &always_open;
  meter_count = 0;
  pthread_mutex_init(&meter_lock, nullptr);
  pthread_mutex_init(&capture_lock, nullptr);
  // The membarrier registration belongs to the memory map and is inherited with it.
}

}  // namespace shim
