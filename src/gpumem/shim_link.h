// One process of a job, as the GPU memory service sees it: a SOCK_SEQPACKET connection on which the
// GPU memory service asks and the shim answers. Requests may overlap; an answer finds its request
// by sequence number. The connection's end is the process's end.
//
// The process is not trusted: it belongs to a job, and the service serves all jobs of the node. An
// answer that was not asked for is dropped, lists have an end, and a process that does not read
// what it is sent is disconnected, so no process makes the service wait, or keep more than was
// asked.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "shim/abi.h"

namespace billow::gpumem {

struct Answer {
  billow_message head{};
  std::vector<unsigned char> items;
  std::vector<Fd> descriptors;

  template <class T>
  std::vector<T> as() const {
    std::vector<T> out(std::min<std::size_t>(head.count, items.size() / sizeof(T)));
    if (!out.empty())
      std::memcpy(out.data(), items.data(), out.size() * sizeof(T));
    return out;
  }
};

// Of one list that a process tells page by page: more than all GPUs of a node have memory for.
inline constexpr std::uint64_t list_items_max = 1u << 21;

// Reads one packet with its descriptors. unavailable: the connection has ended.
Result<Answer> receive_packet(int socket);
// Never waits. unavailable: the process has ended or does not read.
Status send_packet(int socket,
                   const billow_message& head,
                   std::span<const unsigned char> items,
                   std::span<const int> descriptors = {});

class ShimLink {
 public:
  ShimLink(Fd socket, int pid) : socket_(std::move(socket)), pid_(pid) {}

  int pid() const { return pid_; }  // in the GPU memory service's own namespace
  int socket() const { return socket_.get(); }
  std::uint32_t slot = 0;
  // A driver error while it allocated its memory again that no second try can mend; 0: none.
  std::atomic<int> broken{0};

  // Sends a request and returns its sequence number for `poll` and `wait`.
  Result<std::uint32_t> send(std::uint16_t type,
                             std::uint64_t arg0,
                             std::span<const std::uint64_t> ids = {},
                             std::span<const Fd> descriptors = {});
  Result<Answer> wait(std::uint32_t sequence, int timeout_ms);
  // Takes the answer if it has arrived.
  bool poll(std::uint32_t sequence, Answer& out);
  Result<Answer> ask(std::uint16_t type,
                     std::uint64_t arg0,
                     std::span<const std::uint64_t> ids,
                     int timeout_ms);
  // All pages of a list: of the chunks (BILLOW_LIST), or of the memory of other processes
  // (BILLOW_FOREIGN).
  template <class T>
  Result<std::vector<T>> list(std::uint16_t type) {
    std::vector<T> all;
    for (std::uint64_t next = 0; next != UINT64_MAX;) {
      const Answer answer = BILLOW_TRY(list_page(type, next));
      for (const T& item : answer.as<T>())
        all.push_back(item);
      next = answer.head.arg0;
    }
    return all;
  }

  // Called by the reader thread.
  void deliver(Answer answer);
  void close();
  bool closed() const { return closed_; }
  // It has said that its process is about to end.
  bool ending() const { return ending_; }

 private:
  Result<Answer> list_page(std::uint16_t type, std::uint64_t next);

  Fd socket_;
  int pid_;
  std::mutex lock_;
  std::condition_variable arrived_;
  std::map<std::uint32_t, std::uint16_t> asked_;  // types of the requests without an answer yet
  std::map<std::uint32_t, Answer> answers_;
  std::uint32_t next_ = 1;
  std::atomic<bool> closed_{false}, ending_{false};
};

}  // namespace billow::gpumem
