// A shell script that carries its own options, as Slurm's scripts do:
//
//   #!/bin/bash
//   #BILLOW --gpus 1 --time 2h
//   #BILLOW --name train
//   python train.py "$@"
//
// #SBATCH lines of a script without #BILLOW lines are translated; `notes` says line by line what
// they mean here.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "client/request/job_request.h"

namespace billow::client {

struct JobScript : JobRequest {
  std::vector<std::string> notes;  // shown before the job is submitted
};

// The options and the interpreter of the script at this path. Nothing where the file is no script
// with such lines: then the words are a plain command. A script of the current directory needs no
// such lines, and no "./" before its name. Shows the notes, unless `quiet`. A command is always
// plain; if it is a script with #SBATCH lines, a note says that they are not read.
Result<std::optional<JobScript>> read_job_script(const std::vector<std::string>& words,
                                                 bool quiet,
                                                 bool command);
// An error if the program of a command is a file that should be here and is not: `billow submit
// nofile.sh`. Where another place may have it (an absolute path, an image, --cwd, volumes), or if
// the command stands after --, it is a warning instead, or nothing can be said.
Status check_program(const JobRequest& request, bool quiet, bool command);
// The same of a text: `words` is the path and the script's arguments.
Result<std::optional<JobScript>> parse_job_script(std::string_view text,
                                                  const std::vector<std::string>& words);

}  // namespace billow::client
