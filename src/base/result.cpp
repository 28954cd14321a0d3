#include "base/result.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/check.h"

namespace billow {

const char* code_name(Code code) {
  switch (code) {
    case Code::invalid:
      return "invalid";
    case Code::unauthorized:
      return "unauthorized";
    case Code::forbidden:
      return "forbidden";
    case Code::not_found:
      return "not_found";
    case Code::conflict:
      return "conflict";
    case Code::infeasible:
      return "infeasible";
    case Code::exhausted:
      return "exhausted";
    case Code::unavailable:
      return "unavailable";
    case Code::storage_full:
      return "storage_full";
    case Code::unsupported:
      return "unsupported";
    case Code::too_large:
      return "too_large";
    case Code::timed_out:
      return "timed_out";
    case Code::internal:
      return "internal";
  }
  return "internal";
}

Error::Error() = default;
Error::Error(Code c, std::string text, std::string advice)
    : code(c), message(std::move(text)), hint(std::move(advice)) {}
Error::Error(const Error&) = default;
Error::Error(Error&&) noexcept = default;
Error& Error::operator=(const Error&) = default;
Error& Error::operator=(Error&&) noexcept = default;
Error::~Error() = default;

Error Error::in(std::string_view context) && {
  message = std::string(context) + ": " + message;
  return std::move(*this);
}

std::unexpected<Error> fail(Code code, const char* message, const char* hint) {
  return std::unexpected<Error>(std::in_place, code, message, hint);
}
std::unexpected<Error> fail(Code code, std::string message) {
  return std::unexpected<Error>(std::in_place, code, std::move(message));
}
std::unexpected<Error> fail(Code code, std::string message, std::string hint) {
  return std::unexpected<Error>(std::in_place, code, std::move(message), std::move(hint));
}
std::unexpected<Error> pass(Error&& error) {
  return std::unexpected<Error>(std::move(error));
}
std::unexpected<Error> pass(const Error& error) {
  return std::unexpected<Error>(error);
}
std::unexpected<Error> pass(Error error, std::string_view context) {
  return std::unexpected<Error>(std::move(error).in(context));
}
std::unexpected<Error> fail_errno(std::string_view what, int error_number) {
  Code code = Code::internal;
  if (error_number == ENOENT)
    code = Code::not_found;
  if (error_number == EACCES || error_number == EPERM)
    code = Code::forbidden;
  if (error_number == ENOSPC || error_number == EDQUOT)
    code = Code::storage_full;
  if (error_number == ECONNREFUSED || error_number == EAGAIN)
    code = Code::unavailable;
  return fail(code, std::string(what) + ": " + std::strerror(error_number));
}

void check_failed(const char* expression, const char* file, int line, const char* why) {
  std::fprintf(stderr, "billow: bug at %s:%d: %s (%s)\n", file, line, why, expression);
  std::abort();
}

}  // namespace billow
