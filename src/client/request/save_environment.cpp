#include "client/request/save_environment.h"

#include <fmt/format.h>
#include <stdlib.h>

#include "base/text.h"
#include "client/frame/console.h"
#include "client/frame/table.h"
#include "client/request/sync.h"

namespace billow::client {

Result<std::unique_ptr<Staging>> Staging::create() {
  std::string base = cache_directory();
  if (base.empty())
    base = "/tmp/billow";
  BILLOW_TRY_VOID(make_directories(base, 0700));
  std::string path = base + "/env-XXXXXX";
  if (!::mkdtemp(path.data()))
    return fail_errno(path, errno);
  return std::unique_ptr<Staging>(new Staging(base, path));
}

int finish_save(const Parsed& parsed,
                Client& client,
                const std::string& name,
                const std::string& staged,
                const files::WrittenImage& written,
                const std::string& place,
                const std::string& origin,
                const Json& variables) {
  auto sent = upload_directory(client, staged);
  if (!sent)
    return report(sent.error());
  const Json body = Json::object({{"project", parsed.get("project")},
                                  {"digest", sent->digest},
                                  {"path", place},
                                  {"origin", origin},
                                  {"bytes", written.bytes},
                                  {"stored_bytes", written.stored_bytes},
                                  {"variables", variables},
                                  {"shared", parsed.has("shared")}});
  auto saved = client.put("/v1/environments/" + name, body.dump());
  if (!saved)
    return report(saved.error());
  for (const std::string& path : written.left_out)
    say("left out: " + printable(path));
  if (parsed.has("json"))
    print_json(*saved);
  else
    print(fmt::format("environment {} is saved: {} in {} files, {} stored, {} sent; seen at {}\n",
                      name, format_bytes(written.bytes), written.files,
                      format_bytes(written.stored_bytes), format_bytes(sent->sent_bytes), place));
  return 0;
}

}  // namespace billow::client
