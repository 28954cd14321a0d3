// libFuzzer over what people submit: job files (TOML), scripts with #BILLOW or #SBATCH lines, and
// Slurm's options. The first byte chooses the reader. An error of a file names the file; what is
// accepted becomes a body that the head can read.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "base/text.h"
#include "client/frame/slurm.h"
#include "client/request/job_request.h"
#include "client/request/job_script.h"
#include "core/wire/codec.h"

// Notes are shown to nobody here: console.cpp would bring the whole client.
namespace billow::client {
void say(std::string_view) {}
}  // namespace billow::client

namespace {

using namespace billow;
using namespace billow::client;

void check_request(JobRequest request) {
  if (!complete(request))
    return;
  const std::string body = submit_body(request, {});
  if (!valid_utf8(body))
    return;  // words of the command line may be any bytes; the head refuses them
  const auto json = parse_json(body);
  BILLOW_CHECK(json.has_value(), "a body is JSON");
}

void file(std::string_view text) {
  const auto request = parse_job_file(text, "job.toml", "/nowhere");
  if (!request) {
    BILLOW_CHECK(request.error().message.starts_with("job.toml"), "an error names the file");
    return;
  }
  for (const JobRequest& role : request->roles)
    BILLOW_CHECK(!role.spec.name.empty() && !role.spec.argv.empty(), "a role has a command");
  check_request(*request);
}

void script(std::string_view text) {
  const auto read = parse_job_script(text, {"dir/train.sh", "more"});
  if (!read) {
    BILLOW_CHECK(read.error().message.starts_with("dir/train.sh:"), "an error names the line");
    return;
  }
  if (!*read)
    return;
  BILLOW_CHECK((*read)->spec.argv.size() >= 3, "an interpreter, the script and its arguments");
  BILLOW_CHECK((*read)->spec.argv.back() == "more", "arguments stay last");
  check_request(**read);
}

// "NAME\0VALUE\0NAME\0VALUE": as #SBATCH lines, and as options of a command line.
void slurm(std::string_view bytes) {
  std::vector<SlurmLine> lines;
  std::string name;
  for (const std::string& word : split(bytes, '\0')) {
    if (name.empty()) {
      name = word;
      continue;
    }
    if (const auto meaning = slurm_option(name, word))
      BILLOW_CHECK(!meaning->words.empty() || !meaning->note.empty(), "it means something");
    lines.push_back({lines.size() + 1, {name, word}});
    (void)slurm_takes_value(name);
    (void)slurm_states(word);
    (void)slurm_command({name, word});
    name.clear();
  }
  (void)translate_slurm(lines);
  (void)slurm_prelude(bytes);
  (void)slurm_remains(bytes, bytes.size() % 2 == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0)
    return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 4) {
    case 0:
    case 1:
      file(bytes);
      break;
    case 2:
      script(bytes);
      break;
    default:
      slurm(bytes);
  }
  return 0;
}
