/* The interface between libbillow-cuda.so (inside a job), billow-gpumem (one per node) and the
 * agent.
 *
 * A process of a job that calls cuInit connects to the GPU memory service's socket
 * (BILLOW_VAULT_SOCKET), names its job by a token (BILLOW_JOB_TOKEN) and gets two descriptors back:
 * the limit page, which it can only read (the memory file carries F_SEAL_FUTURE_WRITE, so not even
 * root in the job can map it for writing), and the usage page, which all processes of the job share
 * and write. The connection stays open: it carries suspend and resume, and its end shows that the
 * process has ended.
 *
 * Plain C, fixed sizes, little-endian, no pointers: the three sides may be built separately. A
 * change of any layout raises BILLOW_ABI_VERSION; a shim and a GPU memory service of different
 * versions refuse each other.
 */
#ifndef BILLOW_SHIM_ABI_H
#define BILLOW_SHIM_ABI_H

#include <stdint.h>

#define BILLOW_ABI_VERSION 1u
#define BILLOW_LIMIT_MAGIC 0x314d494c574c4942ull /* "BILWLIM1" */
#define BILLOW_USAGE_MAGIC 0x31455355574c4942ull /* "BILWUSE1" */

enum {
  BILLOW_DEVICES_MAX = 16,    /* GPUs of one job on one node */
  BILLOW_PROCESSES_MAX = 128, /* processes of one job that use CUDA */
  BILLOW_BATCH_MAX = 64,      /* descriptors in one message; the kernel allows 253 */
  BILLOW_MESSAGE_BYTES_MAX = 16384
};

/* The service's socket and the job's token. Unset: the shim forwards every call and limits
 * nothing. The names are those of 0.1, so that jobs survive an upgrade of the node. */
#define BILLOW_ENV_SOCKET "BILLOW_VAULT_SOCKET"
#define BILLOW_ENV_TOKEN "BILLOW_JOB_TOKEN"

/* Flags of a job, in the limit page. */
#define BILLOW_JOB_SUSPENDABLE \
  1u /* device memory is backed so that it can be taken away and given back */

/* The gate word of the limit page, written by the arbiter. 0: open, the GPU is not shared. */
#define BILLOW_GATE_CLOSED 1u /* it is another job's turn: launches wait */
#define BILLOW_GATE_METERED \
  2u                       /* open, but work is measured and kept short, so that a turn can end */
#define BILLOW_GATE_FAR 4u /* all jobs run together: work may be queued further ahead */

typedef struct billow_device_limit {
  uint8_t uuid[16];
  uint64_t memory_bytes;  /* 0: no limit */
  uint64_t context_bytes; /* charged once per process with a context; measured by the agent */
  uint32_t share_milli;   /* 1000: the whole device's time */
  uint32_t reserved;
} billow_device_limit;

typedef struct billow_limit_page {
  uint64_t magic;
  uint32_t version;
  uint32_t bytes;
  uint32_t flags;
  uint32_t device_count;
  char job[64];
  billow_device_limit devices[BILLOW_DEVICES_MAX];
  uint32_t gate __attribute__((
      aligned(64))); /* alone on its line: read on every launch; waiters sleep on it as a futex */
  uint32_t turn;     /* counts turns, for DRAIN */
  uint32_t reserved[14];
} billow_limit_page;

/* Features a process used that prevent a suspend, or that a user should know of. */
#define BILLOW_USES_UVM 1ull       /* managed memory: no suspend */
#define BILLOW_USES_IPC 2ull       /* memory pools shared with other processes: no suspend */
#define BILLOW_USES_EXTERNAL 4ull  /* Vulkan, DirectX or RDMA memory: no suspend */
#define BILLOW_USES_MULTICAST 8ull /* NVLink multicast: no suspend */
#define BILLOW_USES_POOLS \
  16ull /* stream-ordered pools: leave with the driver's checkpoint only (cold) */
#define BILLOW_USES_ARRAYS 32ull       /* CUDA arrays: likewise */
#define BILLOW_USES_GRAPH_MEMORY 64ull /* memory nodes of graphs: likewise */
#define BILLOW_USES_PLAIN 128ull /* allocations made before the job was suspendable: likewise */
#define BILLOW_USES_SHARED                                              \
  256ull /* memory shared between the job's processes: suspended as one \
          */
#define BILLOW_USES_IPC_EVENTS 512ull /* events shared between processes: the driver's */
#define BILLOW_USES_HOST_MAPPED                                                                  \
  1024ull /* host memory of cuMemCreate or of a pool: never suspended cold, because the driver's \
             checkpoint unmaps it also for the CPU */
#define BILLOW_BLOCKS_SUSPEND \
  (BILLOW_USES_UVM | BILLOW_USES_IPC | BILLOW_USES_EXTERNAL | BILLOW_USES_MULTICAST)

/* One process of the job. The GPU memory service assigns the slot and clears it when the connection
 * ends; slots never move. Memory is limited by adding to one's own used_bytes first and then
 * summing all slots: whatever the order, no two racers both overlook each other, and what a killed
 * process held is gone with its slot. */
typedef struct billow_process_slot {
  uint32_t pid;        /* in the process's own namespace; 0: free */
  uint32_t generation; /* raised by the GPU memory service at each assignment */
  uint64_t used_bytes[BILLOW_DEVICES_MAX];
  uint64_t features;      /* BILLOW_USES_… */
  uint64_t residue_bytes; /* device memory that only the driver's checkpoint can move */
  uint64_t backed_bytes;  /* device memory the GPU memory service can move */
  uint64_t launches;      /* counted while metered */
  uint64_t refused;       /* allocations refused because of the limit */
  uint64_t passed_by;     /* entry points handed out that the shim knows but could not hook */
  uint64_t metered_ns;    /* GPU time between markers, measured by events */
  uint32_t waiters;       /* threads that wait at the closed gate */
  uint32_t contexts;
  uint64_t passed_ns;       /* CLOCK_MONOTONIC when a waiting thread last passed the gate */
  uint64_t context_devices; /* bit i: it has a context on device i of the limit page */
  uint64_t reserved[6];
} billow_process_slot;

typedef struct billow_usage_page {
  uint64_t magic;
  uint32_t version;
  uint32_t bytes;
  uint64_t reserved[6];
  billow_process_slot slots[BILLOW_PROCESSES_MAX] __attribute__((aligned(64)));
} billow_usage_page;

/* Messages on the GPU memory service's socket (SOCK_SEQPACKET): one header, then `count` items. The
 * GPU memory service asks, the shim answers with the same type and sequence number; HELLO alone
 * goes the other way. status is 0 or an errno. */
enum billow_message_type {
  BILLOW_HELLO =
      1, /* shim -> service: billow_hello; answer: billow_welcome + 2 descriptors (limit, usage) */
  BILLOW_DRAIN = 2,   /* the turn is over: wait for the GPU; answer: arg0 = CLOCK_MONOTONIC
                         ns when it became idle */
  BILLOW_PREPARE = 3, /* close the gate, wait for the GPU (arg0 ms at most); answer: arg0 chunks to
                         move, arg1 bytes of residue */
  BILLOW_LIST = 4,    /* arg0: first index; answer: billow_chunk items */
  BILLOW_EXPORT = 5,  /* items: uint64 chunk ids; answer: the same ids, one descriptor each */
  BILLOW_RELEASE = 6, /* items: ids of chunks that are saved: unmap and free the memory */
  BILLOW_CREATE = 7,  /* items: chunk ids: allocate memory, map it at the old address; answer: one
                         descriptor each */
  BILLOW_OPEN = 8,    /* all is restored (or the suspend is cancelled): open the gate */
  BILLOW_SUSPENDED = 9, /* all chunks are saved: the job is suspended now */
  BILLOW_FETCH = 10,    /* process -> service, on a connection of its own: billow_fetch; answer: the
                           owner's answer to SHARE */
  BILLOW_SHARE = 11,   /* items: uint64 kind, key, first; answer: billow_shared_chunk items with one
                          descriptor each, arg0 chunks in all, arg1 offset of the memory in them */
  BILLOW_FOREIGN = 12, /* arg0: first index; answer: billow_foreign items, arg0 the next index */
  BILLOW_DETACH = 13,  /* unmap the memory of other processes */
  BILLOW_ATTACH = 14,  /* items: ids of foreign chunks, one descriptor each: map them again */
  BILLOW_STEP = 15 /* let one call pass the closed gate, then as BILLOW_PREPARE; a shim that does
                      not know it answers ENOTSUP and stays closed */
};

typedef struct billow_message {
  uint32_t version;
  uint16_t type;
  uint16_t count;
  uint32_t sequence;
  int32_t status;
  uint64_t arg0;
  uint64_t arg1;
} billow_message;

typedef struct billow_hello {
  char token[72];
  uint32_t pid;
  uint32_t device_count;
  uint8_t uuids[BILLOW_DEVICES_MAX][16];
} billow_hello;

typedef struct billow_welcome {
  uint32_t slot;
  uint32_t generation;
} billow_welcome;

typedef struct billow_chunk {
  uint64_t id;
  uint64_t bytes;
  uint32_t device; /* index into the limit page's devices */
  uint32_t flags;
} billow_chunk;

/* Memory of one process of the job that another one maps. */
enum { BILLOW_SHARE_REGION = 0, BILLOW_SHARE_CHUNK = 1 };
typedef struct billow_fetch {
  char token[72];
  uint32_t slot, generation; /* of the owner */
  uint64_t kind, key;        /* REGION: the allocation's address; CHUNK: its serial number */
  uint64_t first;            /* index of the first chunk wanted */
} billow_fetch;
typedef struct billow_shared_chunk {
  uint64_t serial; /* of the owner's chunk; never used again */
  uint64_t bytes;
} billow_shared_chunk;
typedef struct billow_foreign {
  uint64_t id; /* in the process that maps it */
  uint32_t slot, generation;
  uint64_t serial;
} billow_foreign;

/* The GPU hashes each 2 MiB piece: 128 bits, and whether any bit is set. See billow_hash_piece in
 * hash.h. */
#define BILLOW_PIECE_BYTES (2u << 20)

#endif
