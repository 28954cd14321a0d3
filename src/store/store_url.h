// How a head is told its database without telling everybody: a URL on the command line can be read
// by every user of the machine (ps), so the password comes by a file, by a variable or by libpq's
// own password file; where it stands in the arguments all the same, it is covered there as soon as
// it has been read. What the head starts (agents, an engine's tools, hooks) never gets it.
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
// Empty where nothing names a database. PGPASSWORD is in the URL from then on; it and BILLOW_STORE
// leave the environment.
Result<std::string> store_url(const StoreUrlSources& sources);

bool has_password(std::string_view url);
// Overwrites the passwords of database URLs among the arguments of this process, as ps shows them.
// True: there was one.
bool cover_passwords_in_arguments();
// The same in a buffer of arguments with zero bytes between them.
bool cover_passwords(char* begin, char* end);

}  // namespace billow
