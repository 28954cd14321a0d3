// Which processes of a job a signal from Billow may go to: only those that handle it, because the
// others would die of it. A program that has not installed its handler yet counts as one that does
// not.
#pragma once

#include <string>
#include <vector>

namespace billow::agent {

enum class SignalTo {
  main,   // the main process; behind a wrapper (sh -c, torchrun) those nearest to it that handle it
  group,  // in the main process's process group, those that handle it
  all,    // of all processes of the job, those that handle it
};

// As the job's variables say (BILLOW_CHECKPOINT_TO); main otherwise.
SignalTo signal_to(const std::vector<std::string>& env);

// Of `pids`, the processes of the job, as /proc shows them now.
std::vector<int> handlers_of(int signal, const std::vector<int>& pids, int main_pid, SignalTo to);

}  // namespace billow::agent
