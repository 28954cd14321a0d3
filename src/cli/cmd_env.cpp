// Environments: a directory tree or an image's files, saved under a name, that jobs run in on any node; and running a job again as it
// ran.
#include <fcntl.h>
#include <fmt/format.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "box/namespaces.h"
#include "box/podman.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/environments.h"
#include "cli/progress.h"
#include "cli/sync.h"
#include "cli/table.h"
#include "files/image.h"
#include "wire/codec.h"

namespace billow::cli {
namespace {

constexpr OptionSpec save_options[] = {
    {"project", 'p', "NAME", "whose it is; without it your first project"},
    {"shared", 0, nullptr, "a template: other projects may use it too"},
};
constexpr OptionSpec create_options[] = {
    {"image", 0, "NAME", "the container image to take the files from"},
    {"project", 'p', "NAME", "whose it is; without it your first project"},
    {"shared", 0, nullptr, "a template: other projects may use it too"},
};
constexpr OptionSpec project_option[] = {{"project", 'p', "NAME", "of this project"}};

// Beside the user's other caches, and gone with this object.
class Staging {
 public:
  static Result<std::unique_ptr<Staging>> create() {
    const char* cache = ::getenv("XDG_CACHE_HOME");
    const char* home = ::getenv("HOME");
    std::string base = cache && *cache ? cache : home && *home ? std::string(home) + "/.cache" : "/tmp";
    base += "/billow";
    BILLOW_TRY_VOID(make_directories(base, 0700));
    std::string path = base + "/env-XXXXXX";
    if (!::mkdtemp(path.data())) return fail_errno(path, errno);
    return std::unique_ptr<Staging>(new Staging(base, path));
  }
  ~Staging() { (void)remove_tree(path); }
  const std::string base, path;

 private:
  Staging(std::string b, std::string p) : base(std::move(b)), path(std::move(p)) {}
};

bool is_directory(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

// What kind of tree it is decides where it is seen and which variables come with it.
files::ImageSource describe_tree(const std::string& directory) {
  files::ImageSource source{.directory = directory, .place = directory, .variables = {}, .programs = {}, .command = {}, .start_directory = {}, .progress = {}};
  const bool root = is_directory(directory + "/etc") && (is_directory(directory + "/usr/bin") || is_directory(directory + "/bin")) && (is_directory(directory + "/usr/lib") || is_directory(directory + "/lib") || file_exists(directory + "/bin/busybox"));
  if (root) {
    source.place = "/";
    return source;
  }
  if (file_exists(directory + "/pyvenv.cfg")) source.variables["VIRTUAL_ENV"] = directory;
  if (is_directory(directory + "/conda-meta")) {
    source.variables["CONDA_PREFIX"] = directory;
    source.variables["CONDA_DEFAULT_ENV"] = directory.substr(directory.rfind('/') + 1);
  }
  if (is_directory(directory + "/bin")) source.programs.push_back("bin");
  return source;
}

int finish_save(const Parsed& parsed, Client& client, const std::string& name, const std::string& staged, const files::WrittenImage& written, const std::string& place, const std::string& origin, const Json& variables) {
  auto sent = upload_directory(client, staged);
  if (!sent) return report(sent.error());
  const Json body = Json::object({{"project", parsed.get("project")}, {"digest", sent->digest}, {"path", place}, {"origin", origin}, {"bytes", written.bytes}, {"stored_bytes", written.stored_bytes},
                                  {"variables", variables}, {"shared", parsed.has("shared")}});
  auto saved = client.put("/v1/environments/" + name, body.dump());
  if (!saved) return report(saved.error());
  for (const std::string& path : written.left_out) say("left out: " + printable(path));
  if (parsed.has("json")) print_json(*saved);
  else print(fmt::format("environment {} is saved: {} in {} files, {} stored, {} sent; seen at {}\n", name, format_bytes(written.bytes), written.files, format_bytes(written.stored_bytes), format_bytes(sent->sent_bytes), place));
  return 0;
}

int cmd_env_save(const Parsed& parsed) {
  if (parsed.operands.empty() || parsed.operands.size() > 2) return report_usage({Code::invalid, "env save takes a name and a directory", "billow env save torch ./venv"});
  const std::string name = parsed.operands[0];
  if (const Status ok = check_name("environment", name); !ok) return report_usage(ok.error());
  std::string directory = parsed.operands.size() > 1 ? parsed.operands[1] : "";
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (const char* active = ::getenv(variable); directory.empty() && active && *active) directory = active;
  if (directory.empty()) return report_usage({Code::invalid, "which directory?", "name it (billow env save torch ./venv), or activate a virtual environment first"});
  char resolved[PATH_MAX];
  if (!::realpath(directory.c_str(), resolved)) return report(fail_errno(directory, errno).error());
  if (std::string_view(resolved) == "/") return report({Code::invalid, "the machine's own / cannot be saved", "name a directory that holds a root file system, or use env create --image"});
  auto client = connect(parsed, true);
  if (!client) return report(client.error());
  auto staging = Staging::create();
  if (!staging) return report(staging.error());
  files::ImageSource source = describe_tree(resolved);
  Json variables = Json::object();
  for (const auto& [key, value] : source.variables) variables.set(key, value);
  Result<files::WrittenImage> written = fail(Code::internal, "");
  {
    Progress progress("pack " + name, ProgressUnit::bytes);
    source.progress = [&](std::uint64_t done, std::uint64_t total) { progress.update(done, total); };
    written = files::write_image(source, (*staging)->path);
  }
  if (!written) return report(written.error());
  char host[256] = "";
  (void)::gethostname(host, sizeof host - 1);
  return finish_save(parsed, *client, name, (*staging)->path, *written, source.place, fmt::format("{} on {}", resolved, host), variables);
}

struct Captured {
  std::uint64_t bytes = 0, stored_bytes = 0, files = 0;
  std::vector<std::string> left_out;
  std::string name, digest, error, hint;
  template <class V>
  void fields(V& v) { v("bytes", bytes); v("stored_bytes", stored_bytes); v("files", files); v("left_out", left_out); v("name", name); v("digest", digest); v("error", error); v("hint", hint); }
};

// In a process of its own, which enters namespaces.
Result<Captured> capture_image(const ImageName& image, const Staging& staging) {
  const std::string store = staging.base + "/box";
  BILLOW_TRY_VOID(make_directories(store, 0700));
  Progress progress("", ProgressUnit::bytes);
  const box::LocalImage found = BILLOW_TRY(box::provide_image({.store = store, .name = image, .note = [&](const std::string& text) { progress.update(0, 0, text); }}));
  const std::string top = staging.path + ".room";
  for (const char* part : {"/upper", "/work", "/root"}) BILLOW_TRY_VOID(make_directories(top + part, 0700));
  BILLOW_TRY_VOID(box::mount_overlay({.directory = box::layers_dir(store), .lower = found.layers, .upper = top + "/upper", .work = top + "/work", .target = top + "/root"}));
  files::ImageSource source{.directory = top + "/root", .place = "/", .variables = {}, .programs = {}, .command = found.config.entrypoint, .start_directory = found.config.directory,
                            .progress = [&](std::uint64_t done, std::uint64_t total) { progress.update(done, total, "pack"); }};
  for (const std::string& entry : found.config.env)
    if (const auto equals = entry.find('='); equals != std::string::npos) source.variables[entry.substr(0, equals)] = entry.substr(equals + 1);
  const files::WrittenImage written = BILLOW_TRY(files::write_image(source, staging.path));
  return Captured{written.bytes, written.stored_bytes, written.files, written.left_out, found.name, found.digest, "", ""};
}

Result<Captured> capture_apart(const ImageName& image, const Staging& staging) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail_errno("pipe", errno);
  const pid_t pid = ::fork();
  if (pid < 0) return fail_errno("fork", errno);
  if (pid == 0) {
    auto captured = capture_image(image, staging);
    if (!captured) captured = Captured{.error = captured.error().message, .hint = captured.error().hint};
    (void)write_all(ends[1], wire::to_json_text(*captured));
    ::_exit(0);
  }
  ::close(ends[1]);
  const Fd from(ends[0]);
  std::string text;
  char buffer[65536];
  for (ssize_t n = 0; (n = ::read(from.get(), buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<std::size_t>(n));
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
  (void)remove_tree(staging.path + ".room");
  const Captured out = BILLOW_TRY(wire::from_json_text<Captured>(text));
  if (!out.error.empty()) return fail(Code::unavailable, out.error, out.hint);
  return out;
}

int cmd_env_create(const Parsed& parsed) {
  if (parsed.operands.size() != 1 || !parsed.has("image")) return report_usage({Code::invalid, "env create takes a name and --image", "billow env create torch --image docker.io/pytorch/pytorch"});
  const std::string name = parsed.operands[0];
  if (const Status ok = check_name("environment", name); !ok) return report_usage(ok.error());
  const auto image = parse_image_name(parsed.get("image"));
  if (!image) return report_usage(image.error());
  auto client = connect(parsed, true);
  if (!client) return report(client.error());
  auto staging = Staging::create();
  if (!staging) return report(staging.error());
  const auto captured = capture_apart(*image, **staging);
  if (!captured) return report(captured.error());
  const files::WrittenImage written{captured->bytes, captured->stored_bytes, static_cast<std::size_t>(captured->files), captured->left_out};
  return finish_save(parsed, *client, name, (*staging)->path, written, "/", fmt::format("{} ({})", captured->name, captured->digest.substr(0, 19)), Json::object());
}

std::string query_of(const Parsed& parsed, const std::string& name) {
  std::vector<std::pair<std::string, std::string>> query;
  if (parsed.has("project")) query.emplace_back("project", parsed.get("project"));
  return with_query("/v1/environments/" + name, query);
}

int cmd_env_list(const Parsed& parsed) {
  auto client = connect(parsed, true);
  if (!client) return report(client.error());
  auto all = client->get("/v1/environments");
  if (!all) return report(all.error());
  if (parsed.has("json")) return print_json(*all), 0;
  Table table({{"NAME"}, {"PROJECT"}, {"SIZE", Table::Align::right}, {"STORED", Table::Align::right}, {"SEEN AT"}, {"FROM"}, {"SAVED"}});
  for (const Json& e : (*all)["environments"].items())
    table.row({std::string(e["name"].str_or("?")), fmt::format("{}{}", e["project"].str_or(""), e["shared"].bool_or(false) ? " (shared)" : ""), format_bytes(e["bytes"].uint_or(0)), format_bytes(e["stored_bytes"].uint_or(0)),
               printable(e["path"].str_or("")), printable(e["origin"].str_or("")), std::string(e["at"].str_or(""))});
  print(table.text(look_at(STDOUT_FILENO)));
  return 0;
}

int cmd_env_show(const Parsed& parsed) {
  if (parsed.operands.size() != 1) return report_usage({Code::invalid, "env show takes a name", "see `billow env list`"});
  auto client = connect(parsed, true);
  if (!client) return report(client.error());
  auto e = client->get(query_of(parsed, parsed.operands[0]));
  if (!e) return report(e.error());
  if (parsed.has("json")) return print_json(*e), 0;
  std::string text;
  const auto add = [&](const char* name, std::string_view value) { if (!value.empty()) text += fmt::format("{:>10}  {}\n", name, printable(value)); };
  add("name", (*e)["name"].str_or(""));
  add("project", fmt::format("{}{}", (*e)["project"].str_or(""), (*e)["shared"].bool_or(false) ? " (shared with all projects)" : ""));
  add("digest", (*e)["digest"].str_or(""));
  add("seen at", (*e)["path"].str_or(""));
  add("from", (*e)["origin"].str_or(""));
  add("size", fmt::format("{}, {} stored", format_bytes((*e)["bytes"].uint_or(0)), format_bytes((*e)["stored_bytes"].uint_or(0))));
  for (const auto& [name, value] : (*e)["variables"].members()) add("sets", fmt::format("{}={}", name, value.str_or("")));
  add("saved", fmt::format("{} by {}", (*e)["at"].str_or(""), (*e)["by"].str_or("")));
  add("in use by", fmt::format("{} jobs", (*e)["jobs"].uint_or(0)));
  print(text);
  return 0;
}

int cmd_env_rm(const Parsed& parsed) {
  if (parsed.operands.size() != 1) return report_usage({Code::invalid, "env rm takes a name", "see `billow env list`"});
  auto client = connect(parsed, true);
  if (!client) return report(client.error());
  auto gone = client->del(query_of(parsed, parsed.operands[0]));
  if (!gone) return report(gone.error());
  if (parsed.has("json")) print_json(*gone);
  else print(fmt::format("environment {} is gone; jobs that use it keep it\n", parsed.operands[0]));
  return 0;
}

int cmd_rerun(const Parsed& parsed) {
  if (parsed.operands.size() != 1) return report_usage({Code::invalid, "rerun takes a job", "see `billow ps -a`"});
  if (auto ok = check_job_label(parsed.operands[0]); !ok) return report_usage(ok.error());
  auto client = connect(parsed, true);
  if (!client) return report(client.error());
  auto job = client->post(path_of_job(parsed.operands[0], "rerun"), "{}");
  if (!job) return report(job.error());
  if (parsed.has("json")) print_json(*job);
  else print(fmt::format("job {} is job {} again; to watch it: billow attach {}\n", (*job)["id"].uint_or(0), parsed.operands[0], (*job)["id"].uint_or(0)));
  return 0;
}

}  // namespace

Status prepare_environment(Client& client, JobRequest& request) {
  const std::string& name = request.spec.surroundings.environment;
  if (name.empty()) return {};
  std::vector<std::pair<std::string, std::string>> query;
  const Json found = BILLOW_TRY(client.get(with_query("/v1/environments/" + name, query)));
  // Another root file system has its own programs and users: what describes this machine would mislead there.
  if (found["path"].str_or("") == "/") request.env.none = true;
  return {};
}

void add_environment_commands(CommandTable& table) {
  table.push_back({.name = "env save",
                   .summary = "save a directory (a virtual environment, conda, a root file system) for jobs to run in",
                   .example = "billow env save torch ./venv\nbillow run --env torch -- python train.py",
                   .run = cmd_env_save,
                   .usage = "NAME [DIR]",
                   .details = "Jobs with --env NAME see it at the path it was saved from, on any node, with what they write into it kept to themselves. A directory with\n"
                              "etc, bin and lib in it is a root file system, which such jobs see as /. Without DIR the active virtual environment is saved.",
                   .options = {save_options},
                   .operands = Operands::some,
                   .completes = Completes::directory,
                   .group = "jobs"});
  table.push_back({.name = "env create", .summary = "make an environment out of a container image", .example = "billow env create torch --image docker.io/pytorch/pytorch:2.4", .run = cmd_env_create, .usage = "NAME",
                   .details = "The image is brought by podman on this machine; nodes then need neither podman nor the registry.", .options = {create_options}, .operands = Operands::some, .group = "jobs"});
  table.push_back({.name = "env list", .summary = "saved environments", .example = "billow env list", .run = cmd_env_list, .group = "jobs"});
  table.push_back({.name = "env show", .summary = "what an environment is", .example = "billow env show torch", .run = cmd_env_show, .usage = "NAME", .options = {project_option}, .operands = Operands::some, .group = "jobs"});
  table.push_back({.name = "env rm", .summary = "forget an environment; jobs that use it keep it", .example = "billow env rm torch", .run = cmd_env_rm, .usage = "NAME", .options = {project_option}, .operands = Operands::some, .group = "jobs"});
  table.push_back({.name = "rerun", .summary = "run a job again as it ran: command, files, image or environment, variables", .example = "billow rerun 12", .run = cmd_rerun, .usage = "JOB",
                   .operands = Operands::some, .completes = Completes::job, .group = "jobs"});
}

}  // namespace billow::cli
