// The case `sharing` of the shim's tests: two processes of a job that share memory by CUDA IPC.
#pragma once

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "tests/unit/shim/child.h"

struct IpcHandle {
  char bytes[64];
};
inline void send_to(int socket, const void* data, size_t bytes, int fd) {
  iovec part{const_cast<void*>(data), bytes};
  msghdr m{};
  m.msg_iov = &part;
  m.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof fd)] = {};
  if (fd >= 0) {
    m.msg_control = control;
    m.msg_controllen = sizeof control;
    cmsghdr* c = CMSG_FIRSTHDR(&m);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof fd);
    std::memcpy(CMSG_DATA(c), &fd, sizeof fd);
  }
  EXPECT(sendmsg(socket, &m, 0) == static_cast<ssize_t>(bytes));
}
inline void receive_from(int socket, void* data, size_t bytes, int* fd) {
  iovec part{data, bytes};
  msghdr m{};
  m.msg_iov = &part;
  m.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof *fd)] = {};
  m.msg_control = control;
  m.msg_controllen = sizeof control;
  EXPECT(recvmsg(socket, &m, 0) == static_cast<ssize_t>(bytes));
  if (fd && CMSG_FIRSTHDR(&m))
    std::memcpy(fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof *fd);
}

// One of two processes of a job. Each exports a large and a small plain allocation by legacy
// handles and one of its own by descriptor, and writes into all of the other's.
class Sharer {
 public:
  Sharer(int side, int socket) : side_(side), socket_(socket) {
    EXPECT(alloc(&own_[0], side ? 4 * MiB : large) == CUDA_OK && alloc(&own_[1], brief) == CUDA_OK);
    CUmemAllocationProp prop{};
    prop.type = ALLOCATION_PINNED;
    prop.requestedHandleTypes = HANDLE_POSIX_FD;
    prop.location = {LOCATION_DEVICE, 0};
    CUmemHandle h = 0;
    EXPECT(cu("cuMemCreate", &h, 4 * MiB, static_cast<const CUmemAllocationProp*>(&prop), 0ull) ==
           CUDA_OK);
    EXPECT(cu("cuMemExportToShareableHandle", static_cast<void*>(&exported_), h,
              int{HANDLE_POSIX_FD}, 0ull) == CUDA_OK);
    own_[2] = map(h);
  }

  // Maps what the other exports, and gives it what this side exports.
  void exchange() {
    IpcHandle handles[2] = {}, got[2] = {};
    EXPECT(cu("cuIpcGetMemHandle", &handles[0], own_[0] + 100) == CUDA_OK &&
           cu("cuIpcGetMemHandle", &handles[1], own_[1]) == CUDA_OK);
    send_to(socket_, handles, sizeof handles, exported_);
    close(exported_);
    int received = -1;
    receive_from(socket_, got, sizeof got, &received);
    CUdeviceptr none = 0;
    EXPECT(cu("cuIpcOpenMemHandle_v2", &none, handles[0], 1u) == CUDA_INVALID_CONTEXT);
    EXPECT(cu("cuIpcOpenMemHandle_v2", &theirs_[0], got[0], 1u) == CUDA_OK &&
           cu("cuIpcOpenMemHandle_v2", &theirs_[1], got[1], 1u) == CUDA_OK);
    CUmemHandle h = 0;
    EXPECT(cu("cuMemImportFromShareableHandle", &h,
              reinterpret_cast<void*>(static_cast<intptr_t>(received)),
              int{HANDLE_POSIX_FD}) == CUDA_OK);
    close(received);
    theirs_[2] = map(h);
    CUdeviceptr base = 0;
    size_t size = 0;
    EXPECT(cu("cuMemGetAddressRange_v2", &base, &size, theirs_[1] + 7) == CUDA_OK &&
           base == theirs_[1] && size == brief);
  }

  // Side 0 writes the round's number and side 1 checks it and answers. True in the last round.
  bool play(uint64_t round, bool stop) {
    uint64_t message[2] = {round, stop};
    if (side_ == 0) {
      write_all(round);
      send_to(socket_, message, sizeof message, -1);
      receive_from(socket_, message, sizeof message, nullptr);
      check_all(~round);
    } else {
      receive_from(socket_, message, sizeof message, nullptr);
      check_all(round);
      write_all(~round);
      send_to(socket_, message, sizeof message, -1);
    }
    return message[1];
  }

  void close_theirs() {
    EXPECT(cu("cuIpcCloseMemHandle", theirs_[0]) == CUDA_OK &&
           cu("cuIpcCloseMemHandle", theirs_[1]) == CUDA_OK);
    EXPECT(cu("cuMemUnmap", theirs_[2], 4 * MiB) == CUDA_OK);
  }

  void free_own() {
    EXPECT(cu("cuMemUnmap", own_[2], 4 * MiB) == CUDA_OK &&
           cu("cuMemFree_v2", own_[0]) == CUDA_OK && cu("cuMemFree_v2", own_[1]) == CUDA_OK);
  }

 private:
  static constexpr size_t large = 300 * MiB;  // more than one chunk
  static constexpr size_t brief = 5000;

  static CUdeviceptr map(CUmemHandle h) {
    const CUmemAccessDesc access{{LOCATION_DEVICE, 0}, ACCESS_READ_WRITE};
    CUdeviceptr at = 0;
    EXPECT(cu("cuMemAddressReserve", &at, 4 * MiB, size_t{0}, CUdeviceptr{0}, 0ull) == CUDA_OK);
    EXPECT(cu("cuMemMap", at, 4 * MiB, size_t{0}, h, 0ull) == CUDA_OK);
    EXPECT(cu("cuMemSetAccess", at, 4 * MiB, &access, size_t{1}) == CUDA_OK);
    EXPECT(cu("cuMemRelease", h) == CUDA_OK);
    return at;
  }

  // The last word of each allocation of a side.
  static size_t end_of(int i, int side) {
    return (i == 1 ? brief : i == 0 && side == 0 ? large : 4 * MiB) - 8;
  }

  void write_all(uint64_t value) {
    for (int i = 0; i < 3; i++)
      EXPECT(cu("cuMemcpyHtoD_v2", theirs_[i] + end_of(i, 1 - side_),
                static_cast<const void*>(&value), size_t{8}) == CUDA_OK);
    EXPECT(cu("cuCtxSynchronize") == CUDA_OK);  // the copy may still be on its way
  }

  void check_all(uint64_t value) {
    for (int i = 0; i < 3; i++) {
      uint64_t word = 0;
      EXPECT(cu("cuMemcpyDtoH_v2", static_cast<void*>(&word), own_[i] + end_of(i, side_),
                size_t{8}) == CUDA_OK);
      if (word != value)
        std::fprintf(stderr, "side %d region %d: %llx instead of %llx\n", side_, i,
                     static_cast<unsigned long long>(word), static_cast<unsigned long long>(value));
      EXPECT(word == value);
    }
  }

  const int side_, socket_;
  int exported_ = -1;
  CUdeviceptr own_[3] = {}, theirs_[3] = {};
};

// Two processes of one job write into each other's memory in turns, until told to end.
inline void sharing() {
  int pair[2];
  EXPECT(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0);
  const pid_t other = fork();  // before CUDA
  const int side = other == 0;
  close(pair[1 - side]);
  start();
  Sharer sharer(side, pair[side]);
  sharer.exchange();
  std::atomic<bool> stop{false};
  std::thread reader;
  if (!side) {
    std::puts("ready");
    std::fflush(stdout);
    reader = std::thread([&] {
      getchar();
      stop = true;
    });
  }
  uint64_t round = 0;
  while (!sharer.play(++round, stop))
    usleep(200);
  sharer.close_theirs();
  if (side)
    std::exit(0);
  reader.join();
  int status = 0;
  EXPECT(waitpid(other, &status, 0) == other && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  sharer.free_own();
  CUdeviceptr p = 0;  // frees what only closed descriptors named
  EXPECT(alloc(&p, 2 * MiB) == CUDA_OK && cu("cuMemFree_v2", p) == CUDA_OK);
  EXPECT(free_now() == 768 * MiB);
  std::printf("right %llu\n", static_cast<unsigned long long>(round));
}
