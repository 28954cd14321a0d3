#include "client/jobs/renting.h"

#include <fmt/format.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "client/frame/console.h"
#include "client/frame/table.h"

namespace billow::client {

std::string rent_line(const Json& rents) {
  return fmt::format("no free machine here: renting {} from {}{}",
                     printable(rents["text"].str_or("?")), printable(rents["pool"].str_or("?")),
                     rents["old_price"].bool_or(false)
                         ? "; the price is older than 90 days: billow cloud prices --refresh"
                         : "");
}

Status may_rent(const Parsed& parsed, Client& client, const std::string& submission) {
  if (parsed.has("yes") || ::isatty(STDIN_FILENO) != 1 || ::isatty(STDERR_FILENO) != 1)
    return {};
  const auto quote = client.post("/v1/jobs?quote=yes", submission);
  if (!quote || (*quote)["rents"].is_null() || !(*quote)["rents"]["ask"].bool_or(true))
    return {};  // the submission itself reports what is wrong
  (void)write_all(STDERR_FILENO, fmt::format("{}\nRent it? [y/N] ", rent_line((*quote)["rents"])));
  char answer[16] = {};
  const ssize_t got = ::read(STDIN_FILENO, answer, sizeof answer - 1);
  if (got > 0 && (answer[0] == 'y' || answer[0] == 'Y'))
    return {};
  return fail(Code::conflict, "nothing was rented",
              "use --yes to rent without a question, or --max-price to limit the price");
}

}  // namespace billow::client
