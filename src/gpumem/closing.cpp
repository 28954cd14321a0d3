// Closes the gates of a job's processes and waits until their GPUs are idle.
//
// Kernels of different processes may wait for each other (collective operations), and gates never
// close at the same launch: a process that was ahead waits on the GPU for a kernel that another has
// not launched. So while some processes are idle and others stay busy, the idle ones let one call
// pass at a time, until the busy ones have what they wait for. A process that goes too far is busy
// itself then, and the others follow it.
#include <algorithm>
#include <cerrno>

#include "gpumem/service.h"
#include "gpumem/steady.h"

namespace billow::gpumem {
namespace {

constexpr int first_patience_ms = 50;  // before the first step: most work ends within it
constexpr int step_patience_ms = 1, patience_max_ms = 16;
constexpr int answer_ms = 5000;  // beyond the time that a process was given

class Gates {
 public:
  Gates(const std::vector<std::shared_ptr<ShimLink>>& links, int timeout_ms)
      : timeout_ms_(timeout_ms), began_ns_(steady_ns()) {
    for (const auto& link : links)
      processes_.push_back({.link = link});
    for (Process& p : processes_)
      ask(p, BILLOW_PREPARE);
  }

  Status close() {
    int patience = first_patience_ms;
    const ShimLink* waited_for = nullptr;  // since the last step
    for (;;) {
      std::erase_if(processes_, [](const Process& p) { return p.gone; });
      Process* busy = longest_busy();
      if (!busy)
        return worst_;
      const auto answer = busy->link->wait(busy->sequence, patience);
      if (answer)
        take(*busy, *answer);
      else if (busy->link->closed())
        busy->gone = true;
      else if (left_ms() < -answer_ms)
        return pass(answer.error());
      else if (step()) {
        // A process that went too far gets a little more time before the others follow.
        const bool turned = waited_for && waited_for != busy->link.get();
        patience =
            turned ? std::min(2 * patience, patience_max_ms) : std::min(patience, step_patience_ms);
        waited_for = busy->link.get();
      }
    }
  }

  void collect(std::vector<std::shared_ptr<ShimLink>>& links, MoveReport& report) const {
    for (const Process& p : processes_) {
      links.push_back(p.link);
      report.residue_bytes += p.residue_bytes;
    }
  }

 private:
  struct Process {
    std::shared_ptr<ShimLink> link;
    std::uint32_t sequence = 0;
    std::uint64_t order = 0;  // when it was asked, among all; 0: stopped, and its GPU is idle
    std::uint64_t residue_bytes = 0;
    bool can_step = true;
    bool gone = false;
  };

  std::int64_t left_ms() const { return timeout_ms_ - (steady_ns() - began_ns_) / 1000000; }

  void ask(Process& p, std::uint16_t type) {
    const auto sent =
        p.link->send(type, static_cast<std::uint64_t>(std::max<std::int64_t>(left_ms(), 1)));
    p.gone = !sent;
    p.sequence = sent ? *sent : 0;
    p.order = ++asked_;
  }

  Process* longest_busy() {
    Process* found = nullptr;
    for (Process& p : processes_)
      if (p.order && (!found || p.order < found->order))
        found = &p;
    return found;
  }

  void take(Process& p, const Answer& answer) {
    p.order = 0;
    switch (answer.head.status) {
      case 0:
        p.residue_bytes = answer.head.arg1;
        return;
      case ENOTSUP:
        p.can_step = false;
        return;
      case ESHUTDOWN:
        p.gone = true;  // it is ending
        return;
      case EBUSY:
        worst_ = fail(Code::timed_out,
                      "the GPU was still busy after " + std::to_string(timeout_ms_) +
                          " ms: a kernel or a call is still running",
                      "try again, or allow more time");
        break;
      default:
        worst_ = fail_errno("a process's GPU calls could not be paused", answer.head.status);
    }
    p.gone = true;
  }

  // Whether an idle process was asked to let a call pass.
  bool step() {
    bool any = false;
    for (Process& p : processes_) {
      Answer answer;
      if (p.order && p.link->poll(p.sequence, answer))
        take(p, answer);
      if (p.order || p.gone || !p.can_step || !worst_ || left_ms() <= 0)
        continue;
      ask(p, BILLOW_STEP);
      any = true;
    }
    return any;
  }

  std::vector<Process> processes_;
  std::int64_t timeout_ms_, began_ns_;
  std::uint64_t asked_ = 0;
  Status worst_;
};

}  // namespace

Status Service::close_gates(Job& job,
                            std::vector<std::shared_ptr<ShimLink>>& links,
                            int timeout_ms,
                            MoveReport& report) {
  const bool any = !links.empty();
  Gates gates(links, timeout_ms);
  Status closed = gates.close();
  links.clear();
  gates.collect(links, report);
  if (closed && any && links.empty())
    return fail(Code::conflict, "job " + job.spec.name + " is ending");
  return closed;
}

}  // namespace billow::gpumem
