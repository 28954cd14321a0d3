// A job's name in place of its number: `billow logs train`. It means the asker's own job of that
// name, the newest that runs; of jobs that only wait, or have ended, the newest. Where several are
// alive, commands that look say which one they took, and those that change something take none.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "client/frame/client.h"
#include "client/frame/command.h"

namespace billow::client {

enum class NameUse { look, change };

// Its number. Numbers are handed back as they are, without asking.
Result<std::string> job_of(Client& client, const std::string& word, NameUse use);
// What `submit --lines` gives its jobs, so that those of one call are known from those of another
// with the same name.
inline constexpr const char* lines_label = "lines";
// Where all that bear the name are meant (to wait for them): those of them that are alive, else the
// newest; and where that one came with `submit --lines`, all that came with it, whether they have
// ended or not. Oldest first.
Result<std::vector<std::string>> all_jobs_of(Client& client, const std::string& word);
Result<std::vector<std::string>> jobs_of(Client& client,
                                         const std::vector<std::string>& words,
                                         NameUse use);

// The operands of a command, each checked to be a job's number or a possible name; at least one.
Result<std::vector<std::string>> job_operands(const Parsed& parsed, std::string_view command);

}  // namespace billow::client
