// Functions that can be expected to fail return Result<T>. An Error says what was wrong, where, and
// what to do about it.
#pragma once

#include <expected>
#include <string>
#include <string_view>
#include <utility>

namespace billow {

// The kinds of error that callers handle differently. The API maps each to one HTTP status and the
// CLI to one exit code.
enum class Code {
  invalid,       // the request itself is wrong; a retry cannot help
  unauthorized,  // the caller is not authenticated
  forbidden,     // the caller lacks the permission
  not_found,     // it does not exist
  conflict,      // its current state does not allow this
  infeasible,    // no hardware of this installation could ever satisfy it
  exhausted,     // a limit, quota or budget is used up for now
  unavailable,   // the peer does not answer; retry later
  storage_full,  // the disk is full
  unsupported,   // this machine, driver or version cannot do it
  too_large,     // a body, header or file is over its limit
  timed_out,
  internal,  // a bug in Billow
};

const char* code_name(Code code);

struct Error {
  Code code = Code::internal;
  std::string message;  // what was wrong, as a sentence a user can act on
  std::string hint;     // what to do; may be empty

  // Defined in result.cpp: an Error is made, moved and destroyed in thousands of places, none of
  // them on a path that has to be fast.
  Error();
  Error(Code code, std::string message, std::string hint = {});
  Error(const Error&);
  Error(Error&&) noexcept;
  Error& operator=(const Error&);
  Error& operator=(Error&&) noexcept;
  ~Error();

  // The same error with context in front: "context: message".
  Error in(std::string_view context) &&;
  bool operator==(const Error&) const = default;
};

template <class T>
using Result = std::expected<T, Error>;
using Status = std::expected<void, Error>;

[[nodiscard]] std::unexpected<Error> fail(Code code, const char* message, const char* hint = "");
[[nodiscard]] std::unexpected<Error> fail(Code code, std::string message);
[[nodiscard]] std::unexpected<Error> fail(Code code, std::string message, std::string hint);
// Returns the error of one Result as that of another, optionally with context in front.
[[nodiscard]] std::unexpected<Error> pass(Error&& error);
[[nodiscard]] std::unexpected<Error> pass(const Error& error);
[[nodiscard]] std::unexpected<Error> pass(Error error, std::string_view context);
// The error of a failed system call: "what: No such file or directory".
[[nodiscard]] std::unexpected<Error> fail_errno(std::string_view what, int error_number);

// For `auto x = BILLOW_TRY(f());` inside a function that returns a Result (a GNU statement
// expression: g++ and clang).
#define BILLOW_TRY(...)                                            \
  ({                                                               \
    auto billow_try_result = (__VA_ARGS__);                        \
    if (!billow_try_result)                                        \
      return ::billow::pass(std::move(billow_try_result.error())); \
    std::move(*billow_try_result);                                 \
  })
#define BILLOW_TRY_VOID(...)                                       \
  do {                                                             \
    auto billow_try_result = (__VA_ARGS__);                        \
    if (!billow_try_result)                                        \
      return ::billow::pass(std::move(billow_try_result.error())); \
  } while (0)

}  // namespace billow
