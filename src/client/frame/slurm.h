// What people write for Slurm, in Billow's options: for hints on the command line and for scripts
// with #SBATCH lines. Pure text; nothing here decides what a job gets.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace billow::client {

// The meaning of one Slurm option. Without words it changes nothing here, for the reason in `note`.
struct SlurmMeaning {
  std::vector<std::string> words;  // {"--gpus", "2"}
  std::string note;
  bool lost = false;  // a job without it would not do what was asked; `note` says what to do
};

// `name` is "--gres" or "-G"; nothing if Slurm has no such option. Counts that Slurm gives for the
// whole job are read as those of one node.
std::optional<SlurmMeaning> slurm_option(std::string_view name, std::string_view value);

// Whether the option takes a value: "-N 2" is one option, "--exclusive train.sh" is not.
bool slurm_takes_value(std::string_view name);

// One #SBATCH line.
struct SlurmLine {
  std::size_t number = 0;
  std::vector<std::string> words;
};
// All lines of a script together, because counts depend on each other: `--ntasks=8 --nodes=2` are
// four processes per node.
struct SlurmScript {
  std::vector<std::string> words;  // options of `billow submit`
  std::vector<std::string> notes;  // what each line means here: "3: --gres=gpu:2 → --gpus 2"
};
Result<SlurmScript> translate_slurm(const std::vector<SlurmLine>& lines);
// One line of shell that goes before such a script: it sets Slurm's variables to the values of
// ours, and makes `srun COMMAND` the command itself if the script gives srun no options.
std::string slurm_prelude(std::string_view script);
// What the commands of such a script use that does not exist here: variables, srun. `prepared`:
// the prelude goes before it.
std::vector<std::string> slurm_remains(std::string_view script, bool prepared);

// For the states of `squeue -t`, such as "PD,R": "Slurm's PD is queued here: …". Empty if none is
// Slurm's.
std::string slurm_states(std::string_view states);

// The command for "squeue" or "scontrol show job 12": "use `billow ps`". Empty if Slurm has no such
// command.
std::string slurm_command(const std::vector<std::string>& args);

}  // namespace billow::client
