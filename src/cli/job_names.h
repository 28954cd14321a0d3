// A job's name in place of its number: `billow logs train`. It means the asker's own job of that name, the newest that runs; of jobs that
// only wait, or have ended, the newest. Where several are alive, commands that look say which one they took, and those that change
// something take none.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/client.h"

namespace billow::cli {

enum class NameUse { look, change };

// Whether it can be a job at all: a number, or what may be a name. Asks nobody.
Status check_job_word(std::string_view word);

// Its number. Numbers are handed back as they are, without asking.
Result<std::string> job_of(Client& client, const std::string& word, NameUse use);
Result<std::vector<std::string>> jobs_of(Client& client, const std::vector<std::string>& words, NameUse use);

}  // namespace billow::cli
