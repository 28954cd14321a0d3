/* The job's limit and usage pages, and the only function that reserves memory.
 *
 * reserve() adds to this process's slot and then sums all slots of the job. If processes race, at
 * least the last one sees all the others, so the sum never stays above the limit; a process that
 * exceeds it undoes its addition. Two processes that refuse each other at the limit retry one after
 * the other. A process that is killed in between leaves nothing: its slot is cleared. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "shim/internal.h"

namespace shim {

Pages pages;

namespace {
int index_of_device[BILLOW_DEVICES_MAX];  // by the process's device number
CUdevice device_of[BILLOW_DEVICES_MAX];   // by index in the limit page
bool devices_known;

void reap_dead() {
  // Clear only slots whose process, in our own pid namespace, no longer exists. The GPU memory
  // service does the same when a connection ends.
  for (auto& slot : pages.usage->slots) {
    const uint32_t pid = __atomic_load_n(&slot.pid, __ATOMIC_RELAXED);
    if (pid == 0 || &slot == pages.slot)
      continue;
    const int saved = errno;
    if (kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH)
      for (auto& used : slot.used_bytes)
        __atomic_store_n(&used, 0u, __ATOMIC_SEQ_CST);
    errno = saved;
  }
}
}  // namespace

bool suspendable() {
  return pages.limit && (pages.limit->flags & BILLOW_JOB_SUSPENDABLE);
}

int visible_devices(uint8_t (*uuids)[16], int max) {
  int count = 0;
  if (REAL(cuDeviceGetCount, &count) != CUDA_OK)
    return 0;
  if (count > max)
    count = max;
  for (int i = 0; i < count; i++) {
    CUuuid uuid{};
    if (!have(api_cuDeviceGetUuid_v2) || REAL(cuDeviceGetUuid_v2, &uuid, i) != CUDA_OK)
      REAL(cuDeviceGetUuid, &uuid, i);
    memcpy(uuids[i], uuid.bytes, 16);
  }
  return count;
}

void account_devices() {
  for (int& i : index_of_device)
    i = -1;
  for (CUdevice& d : device_of)
    d = -1;
  uint8_t uuids[BILLOW_DEVICES_MAX][16];
  const int count = visible_devices(uuids, BILLOW_DEVICES_MAX);
  static const uint8_t unnamed[16] = {};
  for (int device = 0; device < count; device++) {
    for (uint32_t place = 0; place < pages.limit->device_count && place < BILLOW_DEVICES_MAX;
         place++) {
      const billow_device_limit& limit = pages.limit->devices[place];
      // A limit without a UUID belongs to the device with the same index.
      const bool same = memcmp(limit.uuid, unnamed, 16) ? !memcmp(limit.uuid, uuids[device], 16)
                                                        : static_cast<int>(place) == device;
      if (!same)
        continue;
      index_of_device[device] = static_cast<int>(place);
      device_of[place] = device;
    }
  }
  devices_known = true;
}

void account_attach(const billow_limit_page* limit, billow_usage_page* usage, uint32_t slot) {
  billow_process_slot* before = pages.slot;
  billow_process_slot* mine = &usage->slots[slot];
  mine->pid = static_cast<uint32_t>(getpid());
  // A new GPU memory service: this process's reservations move into the new page.
  if (before && before != mine) {
    for (int i = 0; i < BILLOW_DEVICES_MAX; i++)
      __atomic_store_n(&mine->used_bytes[i], before->used_bytes[i], __ATOMIC_SEQ_CST);
    mine->features = before->features;
    mine->residue_bytes = before->residue_bytes;
    mine->backed_bytes = before->backed_bytes;
    mine->contexts = before->contexts;
    mine->context_devices = before->context_devices;
  }
  pages.limit = limit;
  pages.usage = usage;
  __atomic_store_n(&pages.slot, mine, __ATOMIC_RELEASE);
}

int device_index(CUdevice device) {
  return pages.slot && devices_known && device >= 0 && device < BILLOW_DEVICES_MAX
             ? index_of_device[device]
             : -1;
}
CUdevice device_of_index(int index) {
  return index >= 0 && index < BILLOW_DEVICES_MAX ? device_of[index] : -1;
}

uint64_t limit_of(int index) {
  return index < 0 || !pages.limit ? 0 : pages.limit->devices[index].memory_bytes;
}

uint64_t used_by_job(int index) {
  uint64_t sum = 0;
  if (index < 0 || !pages.usage)
    return 0;
  for (const auto& slot : pages.usage->slots)
    sum += __atomic_load_n(&slot.used_bytes[index], __ATOMIC_SEQ_CST);
  return sum;
}

bool reserve(int index, uint64_t bytes) {
  if (index < 0 || bytes == 0)
    return true;
  uint64_t* mine = &pages.slot->used_bytes[index];
  const uint64_t limit = limit_of(index);
  if (limit && bytes > limit) {
    __atomic_fetch_add(&pages.slot->refused, 1u, __ATOMIC_RELAXED);
    return false;
  }
  for (int attempt = 0; attempt < 8; attempt++) {
    __atomic_fetch_add(mine, bytes, __ATOMIC_SEQ_CST);
    if (limit == 0 || used_by_job(index) <= limit)
      return true;
    __atomic_fetch_sub(mine, bytes, __ATOMIC_SEQ_CST);
    if (attempt == 0)
      reap_dead();
    // Another process may have been refused because of us: wait for a time that differs between
    // processes.
    if (used_by_job(index) + bytes > limit && attempt > 1)
      break;
    timespec pause{0, static_cast<long>((getpid() % 16 + 1) * 5000)};
    nanosleep(&pause, nullptr);
  }
  __atomic_fetch_add(&pages.slot->refused, 1u, __ATOMIC_RELAXED);
  return false;
}

void unreserve(int index, uint64_t bytes) {
  if (index >= 0 && bytes && pages.slot)
    __atomic_fetch_sub(&pages.slot->used_bytes[index], bytes, __ATOMIC_SEQ_CST);
}

void add_residue(int64_t bytes) {
  if (pages.slot)
    __atomic_fetch_add(&pages.slot->residue_bytes, static_cast<uint64_t>(bytes), __ATOMIC_RELAXED);
}
void add_backed(int64_t bytes) {
  if (pages.slot)
    __atomic_fetch_add(&pages.slot->backed_bytes, static_cast<uint64_t>(bytes), __ATOMIC_RELAXED);
}
void uses(uint64_t features) {
  if (pages.slot && (pages.slot->features & features) != features)
    __atomic_fetch_or(&pages.slot->features, features, __ATOMIC_RELAXED);
}

bool current_device(CUdevice* device, int* index) {
  *index = -1;
  if (REAL(cuCtxGetDevice, device) != CUDA_OK)
    return false;
  *index = device_index(*device);
  return true;
}

void account_after_fork() {
  pages = Pages{};  // the slot is the parent's; a child that uses CUDA joins again
  devices_known = false;
}

}  // namespace shim
