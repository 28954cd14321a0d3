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

// Two processes of one job: each exports a large and a small plain allocation by legacy handles and
// one of its own by descriptor, and writes into all of the other's, in turns, until told to end.
inline void sharing() {
  int pair[2];
  EXPECT(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0);
  const pid_t other = fork();  // before CUDA
  const int side = other == 0, s = pair[side];
  close(pair[1 - side]);
  start();
  constexpr size_t large = 300 * MiB;  // more than one chunk
  constexpr size_t brief = 5000;
  CUdeviceptr mine[2] = {}, theirs[3] = {}, mapped = 0;
  EXPECT(alloc(&mine[0], side ? 4 * MiB : large) == CUDA_OK && alloc(&mine[1], brief) == CUDA_OK);
  CUmemAllocationProp prop{};
  prop.type = ALLOCATION_PINNED;
  prop.requestedHandleTypes = HANDLE_POSIX_FD;
  prop.location = {LOCATION_DEVICE, 0};
  const CUmemAccessDesc access{{LOCATION_DEVICE, 0}, ACCESS_READ_WRITE};
  const auto map = [&](CUmemHandle h) {
    CUdeviceptr at = 0;
    EXPECT(cu("cuMemAddressReserve", &at, 4 * MiB, size_t{0}, CUdeviceptr{0}, 0ull) == CUDA_OK);
    EXPECT(cu("cuMemMap", at, 4 * MiB, size_t{0}, h, 0ull) == CUDA_OK);
    EXPECT(cu("cuMemSetAccess", at, 4 * MiB, &access, size_t{1}) == CUDA_OK);
    EXPECT(cu("cuMemRelease", h) == CUDA_OK);
    return at;
  };
  CUmemHandle h = 0;
  EXPECT(cu("cuMemCreate", &h, 4 * MiB, static_cast<const CUmemAllocationProp*>(&prop), 0ull) ==
         CUDA_OK);
  int fd = -1, their_fd = -1;
  EXPECT(cu("cuMemExportToShareableHandle", static_cast<void*>(&fd), h, int{HANDLE_POSIX_FD},
            0ull) == CUDA_OK);
  mapped = map(h);
  IpcHandle handles[2] = {}, got[2] = {};
  EXPECT(cu("cuIpcGetMemHandle", &handles[0], mine[0] + 100) == CUDA_OK &&
         cu("cuIpcGetMemHandle", &handles[1], mine[1]) == CUDA_OK);
  send_to(s, handles, sizeof handles, fd);
  close(fd);
  receive_from(s, got, sizeof got, &their_fd);
  CUdeviceptr none = 0;
  EXPECT(cu("cuIpcOpenMemHandle_v2", &none, handles[0], 1u) == CUDA_INVALID_CONTEXT);
  EXPECT(cu("cuIpcOpenMemHandle_v2", &theirs[0], got[0], 1u) == CUDA_OK &&
         cu("cuIpcOpenMemHandle_v2", &theirs[1], got[1], 1u) == CUDA_OK);
  EXPECT(cu("cuMemImportFromShareableHandle", &h,
            reinterpret_cast<void*>(static_cast<intptr_t>(their_fd)),
            int{HANDLE_POSIX_FD}) == CUDA_OK);
  close(their_fd);
  theirs[2] = map(h);
  CUdeviceptr base = 0;
  size_t size = 0;
  EXPECT(cu("cuMemGetAddressRange_v2", &base, &size, theirs[1] + 7) == CUDA_OK &&
         base == theirs[1] && size == brief);
  const size_t ends[3] = {(side ? large : 4 * MiB) - 8, brief - 8, 4 * MiB - 8};
  const size_t my_ends[3] = {(side ? 4 * MiB : large) - 8, brief - 8, 4 * MiB - 8};
  const CUdeviceptr own[3] = {mine[0], mine[1], mapped};
  if (!side) {
    std::puts("ready");
    std::fflush(stdout);
  }
  std::atomic<bool> stop{false};
  std::thread reader;
  if (!side)
    reader = std::thread([&] {
      getchar();
      stop = true;
    });
  uint64_t round = 0;
  for (bool last = false; !last;) {  // side 0 writes round r, side 1 checks and answers
    uint64_t word = 0;
    const auto write_all = [&](uint64_t value) {
      for (int i = 0; i < 3; i++)
        EXPECT(cu("cuMemcpyHtoD_v2", theirs[i] + ends[i], static_cast<const void*>(&value),
                  size_t{8}) == CUDA_OK);
      EXPECT(cu("cuCtxSynchronize") == CUDA_OK);  // the copy may still be on its way
    };
    const auto check_all = [&](uint64_t value) {
      for (int i = 0; i < 3; i++) {
        EXPECT(cu("cuMemcpyDtoH_v2", static_cast<void*>(&word), own[i] + my_ends[i], size_t{8}) ==
               CUDA_OK);
        if (word != value)
          std::fprintf(stderr, "side %d region %d: %llx instead of %llx\n", side, i,
                       static_cast<unsigned long long>(word),
                       static_cast<unsigned long long>(value));
        EXPECT(word == value);
      }
    };
    uint64_t message[2] = {++round, stop};
    if (!side) {
      write_all(round);
      send_to(s, message, sizeof message, -1);
      receive_from(s, message, sizeof message, nullptr);
      check_all(~round);
      last = message[1];
    } else {
      receive_from(s, message, sizeof message, nullptr);
      check_all(round);
      write_all(~round);
      send_to(s, message, sizeof message, -1);
      last = message[1];
    }
    usleep(200);
  }
  EXPECT(cu("cuIpcCloseMemHandle", theirs[0]) == CUDA_OK &&
         cu("cuIpcCloseMemHandle", theirs[1]) == CUDA_OK);
  EXPECT(cu("cuMemUnmap", theirs[2], 4 * MiB) == CUDA_OK);
  if (side)
    std::exit(0);
  reader.join();
  int status = 0;
  EXPECT(waitpid(other, &status, 0) == other && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT(cu("cuMemUnmap", mapped, 4 * MiB) == CUDA_OK && cu("cuMemFree_v2", mine[0]) == CUDA_OK &&
         cu("cuMemFree_v2", mine[1]) == CUDA_OK);
  CUdeviceptr p = 0;  // frees what only closed descriptors named
  EXPECT(alloc(&p, 2 * MiB) == CUDA_OK && cu("cuMemFree_v2", p) == CUDA_OK);
  EXPECT(free_now() == 768 * MiB);
  std::printf("right %llu\n", static_cast<unsigned long long>(round));
}
