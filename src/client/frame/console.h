// What commands share when they speak: answers on stdout, everything else on stderr, and one exit
// code per kind of failure.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "client/frame/client.h"
#include "client/frame/command.h"

namespace billow::client {

inline constexpr int exit_failed = 1;        // refused, or it did not work
inline constexpr int exit_usage = 2;         // the command line is wrong
inline constexpr int exit_unreachable = 69;  // no head answers (EX_UNAVAILABLE)

// Of a write: the reader has closed the pipe, which is not a failure.
bool is_closed_pipe(const Error& error);
// To stdout, whole. A reader that has gone away (`| head`) ends the program quietly, as SIGPIPE
// would; a full disk ends it with an error.
void print(std::string_view text);
void print_json(const Json& json);  // indented on a terminal, one line elsewhere
void say(std::string_view line);    // "billow: line" on stderr

// "billow: message" and "hint: …" on stderr; returns the exit code.
int report(const Error& error);
int report_usage(const Error& error);

ConnectOptions connect_options(const Parsed& parsed, bool may_start = false);
// For commands of the form "ask, then show".
Result<Client> connect(const Parsed& parsed, bool may_start = false);
// For commands that submit a job: a head is started if none runs, but not for a job with GPUs on a
// machine that has none.
Result<Client> connect_for_job(const Parsed& parsed, bool needs_gpus);

Result<std::string> one_operand(const Parsed& parsed,
                                std::string_view command,
                                std::string_view what);

WallTime now();

}  // namespace billow::client
