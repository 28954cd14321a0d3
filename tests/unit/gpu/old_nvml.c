/* One card behind a driver from before GPM, MIG and events: only what every NVML has, plus the first process list. */
#include <stdio.h>

typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned pid; unsigned long long used; } process_t;
static int the_card;

int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned* count) { *count = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) { *device = &the_card; return index == 0 ? 0 : 2; }
int nvmlDeviceGetName(void* device, char* name, unsigned length) { (void)device; snprintf(name, length, "Tesla K80"); return 0; }
int nvmlDeviceGetUUID(void* device, char* uuid, unsigned length) { (void)device; snprintf(uuid, length, "GPU-old"); return 0; }
int nvmlDeviceGetMemoryInfo(void* device, memory_t* memory) {
  (void)device;
  memory->total = 11441ull << 20;
  memory->used = 100ull << 20;
  memory->free = memory->total - memory->used;
  return 0;
}
int nvmlDeviceGetComputeRunningProcesses(void* device, unsigned* count, process_t* list) {
  unsigned room = list ? *count : 0;
  (void)device;
  *count = 1;
  if (room < 1) return 7;
  list[0].pid = 4242;
  list[0].used = 100ull << 20;
  return 0;
}
