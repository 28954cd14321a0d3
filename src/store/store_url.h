// Passes the database URL to a head without exposing the password: every user of the machine can
// read command lines (ps), so the password comes from a file, a variable or libpq's password file;
// if it is in the arguments all the same, it is overwritten there as soon as it has been read.
// Processes that the head starts (agents, provider tools, hooks) never get it.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace billow {

struct StoreUrlSources {
  std::string url;        // --store
  std::string file;       // --store-file: one line, the URL
  bool variables = true;  // BILLOW_STORE and PGPASSWORD count
};
// Empty if nothing names a database. PGPASSWORD becomes part of the URL; it and BILLOW_STORE are
// removed from the environment.
Result<std::string> store_url(const StoreUrlSources& sources);

bool has_password(std::string_view url);
// Overwrites passwords of database URLs in the arguments of this process, as ps shows them. True if
// there was one.
bool cover_passwords_in_arguments();
// The same in a buffer of arguments with zero bytes between them.
bool cover_passwords(char* begin, char* end);

}  // namespace billow
