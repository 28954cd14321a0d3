// env create: an environment out of a container image, which podman brings on this machine, in
// namespaces of its own.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "client/frame/console.h"
#include "client/frame/progress.h"
#include "client/frame/server_commands.h"
#include "client/request/save_environment.h"
#include "container/namespaces.h"
#include "container/podman.h"
#include "core/wire/codec.h"
#include "process/spawn.h"

namespace billow::client {
namespace {

constexpr OptionSpec create_options[] = {
    {"image", 0, "NAME", "container image to create it from"},
    {"project", 'p', "NAME", "project of the environment (default: your default project)"},
    {"shared", 0, nullptr, "share it with all projects"},
};

struct Captured {
  std::uint64_t bytes = 0, stored_bytes = 0, files = 0;
  std::vector<std::string> left_out;
  std::string name, digest, error, hint;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("bytes", s.bytes);
    v("stored_bytes", s.stored_bytes);
    v("files", s.files);
    v("left_out", s.left_out);
    v("name", s.name);
    v("digest", s.digest);
    v("error", s.error);
    v("hint", s.hint);
  }
};

// In a process of its own, which enters namespaces.
Result<Captured> capture_image(const ImageName& image, const Staging& staging) {
  const std::string store = staging.base + "/box";
  BILLOW_TRY_VOID(make_directories(store, 0700));
  Progress progress("", ProgressUnit::bytes);
  const auto brought = BILLOW_TRY(container::provide_image(
      {.store = store, .name = image, .note = [&](const std::string& text) {
         progress.update(0, 0, text);
       }}));
  if (!brought)
    return fail(Code::conflict, fmt::format("another command is already fetching {}", image.text()),
                "try again when it has finished");
  const container::LocalImage& found = *brought;
  const std::string top = staging.path + ".room";
  for (const char* part : {"/upper", "/work", "/root"})
    BILLOW_TRY_VOID(make_directories(top + part, 0700));
  BILLOW_TRY_VOID(container::mount_overlay({.directory = container::layers_dir(store),
                                            .lower = found.layers,
                                            .upper = top + "/upper",
                                            .work = top + "/work",
                                            .target = top + "/root"}));
  files::ImageSource source{.directory = top + "/root",
                            .place = "/",
                            .variables = {},
                            .programs = {},
                            .command = found.config.entrypoint,
                            .start_directory = found.config.directory,
                            .progress = [&](std::uint64_t done, std::uint64_t total) {
                              progress.update(done, total, "pack");
                            }};
  for (const std::string& entry : found.config.env)
    if (const auto equals = entry.find('='); equals != std::string::npos)
      source.variables[entry.substr(0, equals)] = entry.substr(equals + 1);
  const files::WrittenImage written = BILLOW_TRY(files::write_image(source, staging.path));
  return Captured{written.bytes,
                  written.stored_bytes,
                  written.files,
                  written.left_out,
                  found.name,
                  found.digest,
                  "",
                  ""};
}

Result<Captured> capture_apart(const ImageName& image, const Staging& staging) {
  process::Pipe pipe = BILLOW_TRY(process::Pipe::create());
  process::Spawn request;
  request.in = request.out = request.err = process::inherited;
  request.group = process::Group::ours;
  request.body = [&] {
    auto captured = capture_image(image, staging);
    if (!captured)
      captured = Captured{.error = captured.error().message, .hint = captured.error().hint};
    (void)write_all(pipe.write.get(), wire::to_json_text(*captured));
    return 0;
  };
  process::Child child = BILLOW_TRY(process::spawn(request));
  pipe.write.reset();
  std::string text;
  char buffer[65536];
  for (ssize_t n = 0; (n = ::read(pipe.read.get(), buffer, sizeof buffer)) > 0;)
    text.append(buffer, static_cast<std::size_t>(n));
  (void)child.wait();
  (void)remove_tree(staging.path + ".room");
  const Captured out = BILLOW_TRY(wire::from_json_text<Captured>(text));
  if (!out.error.empty())
    return fail(Code::unavailable, out.error, out.hint);
  return out;
}

int cmd_env_create(const Parsed& parsed) {
  if (parsed.operands.size() != 1 || !parsed.has("image"))
    return report_usage({Code::invalid, "env create needs a name and --image",
                         "for example: billow env create torch --image docker.io/pytorch/pytorch"});
  const std::string name = parsed.operands[0];
  if (const Status ok = check_name("environment", name); !ok)
    return report_usage(ok.error());
  const auto image = parse_image_name(parsed.get("image"));
  if (!image)
    return report_usage(image.error());
  auto client = connect(parsed, true);
  if (!client)
    return report(client.error());
  auto staging = Staging::create();
  if (!staging)
    return report(staging.error());
  const auto captured = capture_apart(*image, **staging);
  if (!captured)
    return report(captured.error());
  const files::WrittenImage written{captured->bytes, captured->stored_bytes,
                                    static_cast<std::size_t>(captured->files), captured->left_out};
  return finish_save(parsed, *client, name, (*staging)->path, written, "/",
                     fmt::format("{} ({})", captured->name, captured->digest.substr(0, 19)),
                     Json::object());
}

}  // namespace

void add_image_commands(CommandTable& table) {
  table.push_back({.name = "env create",
                   .summary = "create an environment from a container image",
                   .example = "billow env create torch --image docker.io/pytorch/pytorch:2.4",
                   .run = cmd_env_create,
                   .usage = "NAME",
                   .details = "Podman on this machine fetches the image; the nodes then need "
                              "neither podman nor the registry.",
                   .options = {create_options},
                   .operands = Operands::some,
                   .group = "jobs"});
}

}  // namespace billow::client
