/* Joining a job, and the thread that answers the GPU memory service.
 *
 * The thread starts with the first cuInit that finds a job, blocks all signals, and only reads its
 * socket. If the service ends, the arbiter's gate opens and the limits stay in force (the pages
 * stay mapped); the thread tries once a second to connect to a new service. If the service held
 * memory of this process when it ended, that memory is lost: every call then fails with
 * CUDA_ERROR_DEVICE_UNAVAILABLE instead of reading memory that does not exist.
 *
 * exit() is a call like any other: it waits at the gate while the job is suspended, because the
 * driver's own exit handlers make every later call fail, and the memory could not come back. After
 * it, the process takes no further request that needs the driver. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "shim/internal.h"

namespace shim {
namespace {

pthread_mutex_t join_lock = PTHREAD_MUTEX_INITIALIZER;
int service_socket = -1;
bool thread_started, joined_devices, out_of_service;
// Held while the control thread works for the service, so that exit() does not run the driver's
// exit handlers under it.
pthread_mutex_t answer_lock = PTHREAD_MUTEX_INITIALIZER;
bool ending;  // guarded by answer_lock: the driver is being torn down and is not called any more
pid_t watched_pid;

struct Packet {
  billow_message head;
  unsigned char items[BILLOW_MESSAGE_BYTES_MAX - sizeof(billow_message)];
};
static_assert(sizeof(Packet) == BILLOW_MESSAGE_BYTES_MAX);
constexpr uint16_t chunks_per_list =
    (BILLOW_MESSAGE_BYTES_MAX - sizeof(billow_message)) / sizeof(billow_chunk);

bool send_packet(
    int socket, const Packet& packet, size_t item_bytes, const int* fds, int fd_count) {
  iovec part{const_cast<Packet*>(&packet), sizeof packet.head + item_bytes};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * BILLOW_BATCH_MAX)];
  if (fd_count) {
    memset(control, 0, sizeof control);
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(sizeof(int) * static_cast<size_t>(fd_count));
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int) * static_cast<size_t>(fd_count));
    memcpy(CMSG_DATA(c), fds, sizeof(int) * static_cast<size_t>(fd_count));
  }
  ssize_t n;
  do
    n = sendmsg(socket, &message, MSG_NOSIGNAL);
  while (n < 0 && errno == EINTR);
  return n > 0;
}

// The length of the packet, 0 at the end of the connection. `fds` has space for a batch.
ssize_t receive_packet(int socket, Packet* packet, int* fds, int* fd_count) {
  iovec part{packet, sizeof *packet};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * BILLOW_BATCH_MAX)];
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t n;
  do
    n = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  while (n < 0 && errno == EINTR);
  *fd_count = 0;
  if (n <= 0)
    return 0;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
      continue;
    const int count = static_cast<int>((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    for (int i = 0; i < count; i++) {
      int fd;
      memcpy(&fd, CMSG_DATA(c) + static_cast<size_t>(i) * sizeof(int), sizeof fd);
      if (*fd_count < BILLOW_BATCH_MAX)
        fds[(*fd_count)++] = fd;
      else
        close(fd);
    }
  }
  return n;
}

int connect_service() {
  const char* path = getenv(BILLOW_ENV_SOCKET);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (!path || strlen(path) >= sizeof address.sun_path)
    return -1;
  strcpy(address.sun_path, path);
  const int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (s < 0)
    return -1;
  if (connect(s, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0)
    return s;
  close(s);
  return -1;
}

// Greets the GPU memory service and takes over the pages it answers with.
bool greet(int s) {
  Packet packet{};
  packet.head.version = BILLOW_ABI_VERSION;
  packet.head.type = BILLOW_HELLO;
  packet.head.count = 1;
  billow_hello hello{};
  const char* token = getenv(BILLOW_ENV_TOKEN);
  if (token)
    strncpy(hello.token, token, sizeof hello.token - 1);
  hello.pid = static_cast<uint32_t>(getpid());
  memcpy(packet.items, &hello, sizeof hello);
  if (!send_packet(s, packet, sizeof hello, nullptr, 0))
    return false;
  int fds[BILLOW_BATCH_MAX], fd_count = 0;
  const ssize_t n = receive_packet(s, &packet, fds, &fd_count);
  bool good = n >= static_cast<ssize_t>(sizeof packet.head + sizeof(billow_welcome)) &&
              packet.head.version == BILLOW_ABI_VERSION && packet.head.type == BILLOW_HELLO &&
              packet.head.status == 0 && fd_count == 2;
  billow_welcome welcome;
  memcpy(&welcome, packet.items, sizeof welcome);
  if (good && welcome.slot < BILLOW_PROCESSES_MAX) {
    void* limit = mmap(nullptr, sizeof(billow_limit_page), PROT_READ, MAP_SHARED, fds[0], 0);
    void* usage =
        mmap(nullptr, sizeof(billow_usage_page), PROT_READ | PROT_WRITE, MAP_SHARED, fds[1], 0);
    const auto* l = static_cast<const billow_limit_page*>(limit);
    auto* u = static_cast<billow_usage_page*>(usage);
    good = limit != MAP_FAILED && usage != MAP_FAILED && l->magic == BILLOW_LIMIT_MAGIC &&
           u->magic == BILLOW_USAGE_MAGIC && l->version == BILLOW_ABI_VERSION;
    if (good) {
      account_attach(l, u, welcome.slot);
      gate_attach(&l->gate);
    }
  } else {
    good = false;
  }
  for (int i = 0; i < fd_count; i++)
    close(fds[i]);
  return good;
}

// ---- answers
template <class Each>
void answer_batch(Packet* packet, int s, Each each, bool with_descriptors) {
  uint64_t ids[BILLOW_BATCH_MAX];
  int fds[BILLOW_BATCH_MAX] = {};
  int count = packet->head.count, fd_count = 0;
  if (count > BILLOW_BATCH_MAX)
    count = BILLOW_BATCH_MAX;
  memcpy(ids, packet->items, sizeof(uint64_t) * static_cast<size_t>(count));
  packet->head.status = 0;
  int done = 0;
  for (; done < count; done++) {
    int fd = -1;
    packet->head.status = each(static_cast<uint32_t>(ids[done]), &fd);
    if (packet->head.status)
      break;
    if (with_descriptors)
      fds[fd_count++] = fd;
  }
  // Report the completed chunks even after a failure: the GPU memory service must know where each
  // chunk is.
  packet->head.count = static_cast<uint16_t>(done);
  send_packet(s, *packet, sizeof(uint64_t) * static_cast<size_t>(done), fds, fd_count);
  for (int i = 0; i < fd_count; i++)
    close(fds[i]);
}

void with_device_of(uint32_t id) {
  const Chunk* c = chunk_at(id);
  if (c)
    if (CUcontext context = context_of_device(c->prop.location.id))
      REAL(cuCtxSetCurrent, context);
}

void answer_prepare(Packet* packet) {
  const int timeout_ms =
      packet->head.arg0 > 3600000 ? 3600000 : static_cast<int>(packet->head.arg0);
  packet->head.count = 0;
  packet->head.arg0 = packet->head.arg1 = 0;
  if (chunks_away()) {
    packet->head.status = EALREADY;
    return;
  }
  if (packet->head.type == BILLOW_STEP)
    gate_step();
  const bool closed = !__atomic_load_n(&exit_wanted, __ATOMIC_ACQUIRE) && gate_close(timeout_ms);
  if (!closed) {
    packet->head.status = __atomic_load_n(&exit_wanted, __ATOMIC_ACQUIRE) ? ESHUTDOWN : EBUSY;
    return;
  }
  pools_trim_all();
  packet->head.status = 0;
  for (uint32_t i = 0; i < chunk_slots(); i++)
    if (const Chunk* c = chunk_at(i))
      packet->head.arg0 += c->device >= 0;
  packet->head.arg1 = pages.slot->residue_bytes;
}

size_t answer_list(Packet* packet) {
  auto* out = reinterpret_cast<billow_chunk*>(packet->items);
  uint16_t n = 0;
  uint64_t id = packet->head.arg0;
  for (; id < chunk_slots() && n < chunks_per_list; id++) {
    const Chunk* c = chunk_at(static_cast<uint32_t>(id));
    if (!c || c->device < 0)
      continue;
    out[n++] = billow_chunk{id, c->bytes, static_cast<uint32_t>(c->device), 0};
  }
  packet->head.count = n;
  packet->head.arg0 = id < chunk_slots() ? id : UINT64_MAX;
  packet->head.status = 0;
  return n * sizeof(billow_chunk);
}

void answer_drain(Packet* packet) {
  packet->head.status = ending || drain(600000) ? 0 : EBUSY;
  timespec rested;
  clock_gettime(CLOCK_MONOTONIC, &rested);
  packet->head.arg0 =
      static_cast<uint64_t>(rested.tv_sec) * 1000000000u + static_cast<uint64_t>(rested.tv_nsec);
}

void answer_open(Packet* packet) {
  // arg0: the memory cannot come back; calls fail from now on.
  packet->head.status = 0;
  if (!chunks_away())
    gate_open();
  else if (packet->head.arg0)
    gate_lose();
  else
    packet->head.status = EBUSY;
}

bool needs_driver(uint16_t type) {
  return type != BILLOW_DRAIN && type != BILLOW_OPEN && type != BILLOW_SUSPENDED;
}

void answer_share(Packet* packet, int s) {
  uint64_t asked[3] = {};
  memcpy(asked, packet->items, sizeof asked);
  billow_shared_chunk out[BILLOW_BATCH_MAX];
  int fds[BILLOW_BATCH_MAX], fd_count = 0;
  packet->head.arg0 = packet->head.arg1 = 0;
  packet->head.status = share_chunks(asked[0], asked[1], asked[2], out, fds, &fd_count,
                                     &packet->head.arg0, &packet->head.arg1);
  packet->head.count = static_cast<uint16_t>(fd_count);
  const size_t bytes = sizeof out[0] * static_cast<size_t>(fd_count);
  memcpy(packet->items, out, bytes);
  send_packet(s, *packet, bytes, fds, fd_count);
  for (int i = 0; i < fd_count; i++)
    close(fds[i]);
}

size_t answer_foreign(Packet* packet) {
  constexpr uint16_t most =
      (BILLOW_MESSAGE_BYTES_MAX - sizeof(billow_message)) / sizeof(billow_foreign);
  auto* out = reinterpret_cast<billow_foreign*>(packet->items);
  uint16_t n = 0;
  uint64_t id = packet->head.arg0;
  for (; id < chunk_slots() && n < most; id++)
    if (const Chunk* c = chunk_at(static_cast<uint32_t>(id)); c && c->foreign)
      out[n++] = {id, c->owner_slot, c->owner_generation, c->serial};
  packet->head.count = n;
  packet->head.arg0 = id < chunk_slots() ? id : UINT64_MAX;
  packet->head.status = 0;
  return n * sizeof(billow_foreign);
}

int detach_all() {
  int status = 0;
  for (uint32_t i = 0; i < chunk_slots(); i++)
    if (const Chunk* c = chunk_at(i); c && c->foreign)
      if (const int r = chunk_release(i))
        status = r;
  return status;
}
int attach(const Packet& packet, const int* fds, int fd_count) {
  int status = 0;
  for (int i = 0; i < fd_count; i++) {
    uint64_t id = 0;
    memcpy(&id, packet.items + sizeof id * static_cast<size_t>(i), sizeof id);
    if (const int r = chunk_attach(static_cast<uint32_t>(id), fds[i]))
      status = r;
  }
  return status;
}

void answer(Packet* packet, int s, const int* fds, int fd_count) {
  size_t item_bytes = 0;
  Guard guard(&answer_lock);
  if (ending && needs_driver(packet->head.type)) {
    packet->head.status = ESHUTDOWN;
    packet->head.count = 0;
    send_packet(s, *packet, 0, nullptr, 0);
    return;
  }
  switch (packet->head.type) {
    case BILLOW_DRAIN:
      answer_drain(packet);
      break;
    case BILLOW_STEP:
    case BILLOW_PREPARE:
      answer_prepare(packet);
      break;
    case BILLOW_LIST:
      item_bytes = answer_list(packet);
      break;
    case BILLOW_EXPORT:
      return answer_batch(
          packet, s,
          [](uint32_t id, int* fd) {
            with_device_of(id);
            return chunk_export(id, fd);
          },
          true);
    case BILLOW_RELEASE:
      return answer_batch(
          packet, s,
          [](uint32_t id, int*) {
            with_device_of(id);
            return chunk_release(id);
          },
          false);
    case BILLOW_CREATE:
      return answer_batch(
          packet, s,
          [](uint32_t id, int* fd) {
            with_device_of(id);
            return chunk_restore(id, fd);
          },
          true);
    case BILLOW_SHARE:
      return answer_share(packet, s);
    case BILLOW_FOREIGN:
      item_bytes = answer_foreign(packet);
      break;
    case BILLOW_DETACH:
      packet->head.status = detach_all();
      break;
    case BILLOW_ATTACH:
      packet->head.status = attach(*packet, fds, fd_count);
      break;
    case BILLOW_SUSPENDED:
      packet->head.status = 0;
      break;
    case BILLOW_OPEN:
      answer_open(packet);
      break;
    default:
      packet->head.status = ENOTSUP;
      break;
  }
  if (packet->head.type != BILLOW_LIST && packet->head.type != BILLOW_FOREIGN)
    packet->head.count = 0;
  send_packet(s, *packet, item_bytes, nullptr, 0);
}

void serve(int s) {
  static Packet packet;
  int fds[BILLOW_BATCH_MAX], fd_count;
  for (;;) {
    const ssize_t n = receive_packet(s, &packet, fds, &fd_count);
    const bool good =
        n >= static_cast<ssize_t>(sizeof packet.head) && packet.head.version == BILLOW_ABI_VERSION;
    if (good)
      answer(&packet, s, fds, fd_count);
    for (int i = 0; i < fd_count; i++)
      close(fds[i]);
    if (!good)
      return;
  }
}

void* control_thread(void*) {
  int mode = CAPTURE_MODE_RELAXED;  // calls of this thread must not end a capture of another thread
  pthread_mutex_lock(&answer_lock);
  if (!ending)
    REAL(cuThreadExchangeStreamCaptureMode, &mode);
  pthread_mutex_unlock(&answer_lock);
  for (;;) {
    serve(service_socket);
    gate_attach(nullptr);
    if (chunks_away())
      gate_lose();
    else if (__atomic_load_n(&local_gate, __ATOMIC_ACQUIRE) == local_closed)
      gate_open();
    close(service_socket);
    service_socket = -1;
    for (;;) {
      timespec second{1, 0};
      nanosleep(&second, nullptr);
      const int s = connect_service();
      if (s < 0)
        continue;
      if (greet(s)) {
        service_socket = s;
        break;
      }
      close(s);
    }
  }
  return nullptr;
}

bool start_thread() {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 256 << 10);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_t thread;
  const bool good = pthread_create(&thread, &attributes, control_thread, nullptr) == 0;
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return good;
}

bool join_pages_locked(int attempts) {
  if (pages.slot)
    return true;
  if (out_of_service || !getenv(BILLOW_ENV_SOCKET))
    return false;
  for (int i = 0; i < attempts; i++) {
    const int s = connect_service();
    if (s >= 0 && greet(s)) {
      service_socket = s;
      return true;
    }
    if (s >= 0)
      close(s);
    timespec pause{0, 50000000};
    if (i + 1 < attempts)
      nanosleep(&pause, nullptr);
  }
  return false;
}

}  // namespace

bool join_pages() {
  if (pages.slot)
    return true;
  Guard guard(&join_lock);
  const bool good = join_pages_locked(1);
  if (!good)
    out_of_service = !getenv(BILLOW_ENV_SOCKET);
  return good;
}

CUresult join_job() {
  Guard guard(&join_lock);
  if (thread_started || !getenv(BILLOW_ENV_SOCKET))
    return CUDA_OK;
  const int saved_errno = errno;
  // Failing here loses no work, because the job has not begun. Running without limits would harm
  // other jobs.
  if (!join_pages_locked(40)) {
    static const char message[] =
        "billow: this job's GPU share could not be set up (no GPU memory service answers at "
        "BILLOW_VAULT_SOCKET); CUDA stays off\n";
    if (write(2, message, sizeof message - 1) < 0) {}
    errno = saved_errno;
    return CUDA_SYSTEM_NOT_READY;
  }
  if (!joined_devices)
    account_devices();
  joined_devices = true;
  watch_exit();
  thread_started = start_thread();
  errno = saved_errno;
  return thread_started ? CUDA_OK : CUDA_SYSTEM_NOT_READY;
}

int fetch_shared(const ShareName& name,
                 billow_shared_chunk** chunks,
                 int** fds,
                 uint32_t* count,
                 uint64_t* offset) {
  const int s = connect_service();
  if (s < 0)
    return ENOTSUP;
  const timeval limit{20, 0};
  setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  Packet packet{};
  uint64_t total = 1;
  int status = 0;
  while (!status && *count < total) {
    packet.head = {};
    packet.head.version = BILLOW_ABI_VERSION;
    packet.head.type = BILLOW_FETCH;
    packet.head.count = 1;
    billow_fetch wanted{{}, name.slot, name.generation, name.kind, name.key, *count};
    if (const char* token = getenv(BILLOW_ENV_TOKEN))
      strncpy(wanted.token, token, sizeof wanted.token - 1);
    memcpy(packet.items, &wanted, sizeof wanted);
    int got[BILLOW_BATCH_MAX], got_count = 0;
    if (!send_packet(s, packet, sizeof wanted, nullptr, 0) ||
        receive_packet(s, &packet, got, &got_count) < static_cast<ssize_t>(sizeof packet.head) ||
        packet.head.type != BILLOW_FETCH)
      status = ENOTSUP;
    else
      status = packet.head.status;
    const uint32_t sum = *count + static_cast<uint32_t>(got_count);
    void* more_fds = realloc(*fds, sum * sizeof(int));
    void* more_chunks = realloc(*chunks, sum * sizeof(billow_shared_chunk));
    *fds = more_fds ? static_cast<int*>(more_fds) : *fds;
    *chunks = more_chunks ? static_cast<billow_shared_chunk*>(more_chunks) : *chunks;
    if (!status && (!got_count || packet.head.count != got_count))
      status = EPROTO;
    if (status || !more_fds || !more_chunks) {
      for (int i = 0; i < got_count; i++)
        close(got[i]);
      status = status ? status : ENOMEM;
      break;
    }
    memcpy(*fds + *count, got, sizeof(int) * static_cast<size_t>(got_count));
    memcpy(*chunks + *count, packet.items,
           sizeof(billow_shared_chunk) * static_cast<size_t>(got_count));
    *count = sum;
    total = packet.head.arg0;
    *offset = packet.head.arg1;
  }
  close(s);
  return status;
}

void control_after_fork() {
  pthread_mutex_init(&join_lock, nullptr);
  if (service_socket >= 0)
    close(service_socket);
  service_socket = -1;
  thread_started = joined_devices = ending = false;
  pthread_mutex_init(&answer_lock, nullptr);
}

namespace {
void before_exit() {
  if (getpid() != watched_pid)
    return;  // a child of fork: it has not joined
  __atomic_store_n(&exit_wanted, 1u, __ATOMIC_RELEASE);
  for (;;) {
    gate_wait_open();
    Guard guard(&answer_lock);
    if (__atomic_load_n(&local_gate, __ATOMIC_ACQUIRE) == local_closed)
      continue;
    ending = true;
    return;
  }
}
}  // namespace

void watch_exit() {
  watched_pid = getpid();
  atexit(before_exit);
}

namespace {
void child_after_fork() {
  control_after_fork();
  account_after_fork();
  contexts_after_fork();
  gate_after_fork();
  memory_after_fork();
  pools_after_fork();
}
__attribute__((constructor)) void loaded() {
  gate_init();
  pthread_atfork(nullptr, nullptr, child_after_fork);
}
}  // namespace
}  // namespace shim
