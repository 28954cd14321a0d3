// The routes of files that follow jobs: lists of trees, packs of content, and what jobs left as
// their outputs. Bodies are octets, not JSON, because there are many of them and they are large.
// Hashing and disks are a worker's business, not the loop's.
//
// The head keeps the same content once, and tells nobody that it has what they did not bring: which
// pieces are missing is answered from what the asker has shown to have. A tree may be read, and
// used for a job, by those who brought it and by the members of projects whose jobs used or left
// it. Nodes may read the trees of jobs that are on them, and of those jobs' projects.
#include "api/files.h"

#include <fmt/format.h>

#include "base/file.h"
#include "base/text.h"
#include "core/control/quotas.h"
#include "core/control/residency.h"
#include "core/model/surroundings.h"
#include "files/pack.h"
#include "files/root.h"

namespace billow::api::files {
namespace {

using billow::Sha256;
using billow::files::Store;
namespace content = billow::files;

void octets(const CallPtr& call, std::string body) {
  net::Response response;
  response.headers = {{"Content-Type", "application/octet-stream"},
                      {"Cache-Control", "no-store"},
                      {"X-Content-Type-Options", "nosniff"}};
  response.body = std::move(body);
  call->exchange->respond(std::move(response));
}

std::string project_owner(ProjectId project) {
  return fmt::format("project:{}", project.value);
}
std::string tree_owner(const Call& call) {
  if (call.principal.scope != TokenScope::node)
    return fmt::format("user:{}", call.principal.user.value);
  const auto token = call.host.state().tokens.find(call.principal.token);
  return "node:" + (token == call.host.state().tokens.end() ? "" : token->second.node);
}

bool may_read(const Call& call, Store& store, const Sha256& tree) {
  if (call.principal.scope == TokenScope::node || store.owned(tree_owner(call), tree))
    return true;
  for (const auto& [id, project] : call.host.state().projects)
    if (call.may(Permission::jobs_read, id) && store.owned(project_owner(id), tree))
      return true;
  return false;
}
// The same answer for trees that do not exist and for those of others.
Error no_tree(const Sha256& digest) {
  return {Code::not_found,
          fmt::format("the head does not have the tree {}", content::digest_hex(digest)),
          "submit the job again: its files are then uploaded again"};
}

// Runs on a worker and answers with octets, or with what went wrong.
void on_worker(CallPtr call,
               std::function<Result<std::string>(Store&, const std::string& body)> work) {
  const Status queued = call->host.workers().submit(
      [&store = call->host.files(), call, work = std::move(work)] {
        return work(store, call->request().body);
      },
      [call](Result<std::string> out) {
        if (!out)
          call->fail(out.error());
        else
          octets(call, std::move(*out));
      });
  if (!queued)
    call->fail(queued.error());
}

std::string outputs_path(const Host& host, JobId job, std::uint32_t rank) {
  return fmt::format("{}/{}.{}", host.outputs_dir(), job.value, rank);
}

// The node that the caller's credential speaks for; null: none.
const Node* node_of_caller(const Call& call) {
  const auto& state = call.host.state();
  const auto token = state.tokens.find(call.principal.token);
  if (token == state.tokens.end())
    return nullptr;
  for (const auto& [id, node] : state.nodes)
    if (control::speaks_for(state, token->second, node.offer.name))
      return &node;
  return nullptr;
}

// A node gets the list of a tree, without which nobody knows what to ask for, only for a job that
// is on it: one that names the tree, or one of a project that the tree was given to; and only where
// that project's data may be.
Status may_bring(const Call& call, Store& store, const Sha256& digest) {
  if (call.principal.scope != TokenScope::node)
    return {};
  const auto& state = call.host.state();
  const Node* node = node_of_caller(call);
  if (!node)
    return fail(Code::forbidden, "this credential does not belong to a node that has joined", "");
  for (ProjectId project : control::projects_at(state, node->id))
    if (store.owned(project_owner(project), digest))
      return {};
  return control::may_send(state, node->id, content::digest_hex(digest));
}

}  // namespace

void add_tree(CallPtr call) {
  on_worker(
      call,
      [owner = tree_owner(*call)](Store& store, const std::string& body) -> Result<std::string> {
        const content::Tree tree = BILLOW_TRY(content::decode(body));
        std::vector<Sha256> pieces;
        for (const auto& entry : tree.entries)
          pieces.insert(pieces.end(), entry.pieces.begin(), entry.pieces.end());
        const std::vector<Sha256> missing = store.missing(owner, pieces);
        if (missing.empty())
          BILLOW_TRY_VOID(store.add_tree(owner, sha256(body), body));
        return content::encode_digests(missing);
      });
}

namespace {

// What the caller may bring at most.
content::OwnerLimit limit_of(const Call& call) {
  const QuotaKey key{QuotaScope::user, call.principal.user.value, QuotaKind::file_bytes};
  const auto& state = call.host.state();
  const std::int64_t most = control::quota_of(state, key.scope, key.of, key.kind).limit;
  if (call.principal.scope == TokenScope::node || most < 0)
    return {};
  return {static_cast<std::uint64_t>(most),
          [most, owner = control::quota_owner(state, key.scope, key.of),
           kind = key.kind](std::uint64_t wanted) {
            return control::quota_error(owner, kind, static_cast<std::int64_t>(wanted), most);
          }};
}

}  // namespace

void add_pack(CallPtr call) {
  on_worker(call,
            [owner = tree_owner(*call), limit = limit_of(*call)](
                Store& store, const std::string& body) -> Result<std::string> {
              BILLOW_TRY_VOID(store.add(owner, body, limit));
              return std::string();
            });
}

// For a client on this machine: content goes to a socket of its own, see files/door.h.
void open_door(CallPtr call) {
  const auto ticket = call->host.file_ticket(tree_owner(*call), limit_of(*call));
  if (!ticket)
    return call->fail(ticket.error());
  call->reply(200, Json::object({{"socket", ticket->socket},
                                 {"ticket", ticket->ticket},
                                 {"uid", std::int64_t{ticket->uid}}}));
}

// A node tells whose data it has in its caches, and hears whose must go.
void residency(CallPtr call) {
  const auto body = call->body();
  if (!body)
    return call->fail(body.error());
  const auto& state = call->host.state();
  const std::string name((*body)["node"].str_or(""));
  const Node* node = state.node_by_name(name);
  const auto token = state.tokens.find(call->principal.token);
  const bool own = token != state.tokens.end() && control::speaks_for(state, token->second, name);
  if (!node || !own)
    return call->fail(
        {Code::forbidden, fmt::format("this credential does not belong to node \"{}\"", name), ""});
  std::vector<std::string> projects;
  for (const Json& project : (*body)["projects"].items())
    projects.emplace_back(project.str_or(""));
  Json leave = Json::array();
  for (const std::string& project : control::must_leave(state, node->id, projects))
    leave.push(project);
  call->reply_durable(200, Json::object({{"leave", std::move(leave)}}));
}

void get_tree(CallPtr call) {
  const auto digest = content::parse_digest(call->parts[0]);
  if (!digest)
    return call->fail(digest.error());
  Store& store = call->host.files();
  if (!may_read(*call, store, *digest))
    return call->fail(no_tree(*digest));
  if (const Status ok = may_bring(*call, store, *digest); !ok)
    return call->fail(ok.error());
  on_worker(call, [digest = *digest](Store& store, const std::string&) {
    return store.read_tree(digest);
  });
}

namespace {

// For an agent that sees the head's own files: it copies from them, and nothing is sent.
Result<std::string> places(Store& store, const std::vector<Sha256>& digests, bool sees_them) {
  std::vector<content::PieceFile> out;
  for (std::size_t i = 0; sees_them && i < digests.size(); ++i)
    out.push_back(BILLOW_TRY(store.locate(digests[i])));
  return content::encode_places(out);
}

}  // namespace

// Of one tree, which says who may have them. Agents of version 0.1 do not name it: they get pieces
// of the trees that jobs on their node name.
void get_pieces(CallPtr call) {
  const bool node = call->principal.scope == TokenScope::node;
  Store& store = call->host.files();
  std::vector<Sha256> trees;
  if (const auto named = call->request().param("tree"); !node || !named.empty()) {
    const auto digest = content::parse_digest(named);
    if (!digest)
      return call->fail({Code::invalid, "the tree of these pieces is missing", "add ?tree=DIGEST"});
    if (!may_read(*call, store, *digest))
      return call->fail(no_tree(*digest));
    if (const Status ok = may_bring(*call, store, *digest); !ok)
      return call->fail(ok.error());
    trees.push_back(*digest);
  } else if (const Node* asks = node_of_caller(*call)) {
    for (const std::string& text : control::trees_at(call->host.state(), asks->id))
      if (const auto digest = content::parse_digest(text))
        trees.push_back(*digest);
  }
  const std::string root(call->request().param("places"));
  on_worker(
      call, [trees, node, root](Store& store, const std::string& body) -> Result<std::string> {
        const auto digests = BILLOW_TRY(content::decode_digests(body));
        content::DigestSet inside;
        for (const Sha256& tree : trees) {
          const auto list = store.read_tree(tree);
          if (!list && trees.size() == 1)
            return pass(list.error());
          if (!list)
            continue;
          for (const auto& entry : BILLOW_TRY(content::decode(*list)).entries)
            inside.insert(entry.pieces.begin(), entry.pieces.end());
        }
        for (const Sha256& digest : digests)
          if (!inside.contains(digest))
            return fail(Code::not_found,
                        fmt::format("the tree has no content {}", content::digest_hex(digest)));
        if (!root.empty())
          return places(store, digests, node && root == content::root_id());
        std::string pack;
        for (const Sha256& digest : digests) {
          const std::string bytes = BILLOW_TRY(store.read(digest));
          content::add_piece(pack, digest, bytes);
          if (pack.size() > content::pack_bytes_max)
            return fail(Code::too_large, "too many pieces for one answer", "ask for fewer at once");
        }
        return pack;
      });
}

Status may_use(const Call& call, const Environment& env, const std::string& project) {
  const auto named = env.find(surroundings::files);
  if (named == env.end())
    return {};
  const Sha256 digest = BILLOW_TRY(content::parse_digest(named->second));
  return may_give(call, digest, project);
}

Status may_give(const Call& call, const Sha256& digest, const std::string& project) {
  Store& store = call.host.files();
  if (!may_read(call, store, digest))
    return pass(no_tree(digest));
  // From now on the members of the project may have it: they may see the job, and run it again.
  const auto& state = call.host.state();
  const Project* named = state.project_by_name(project);
  if (named)
    return store.give(project_owner(named->id), digest);
  if (!project.empty())
    return {};
  const auto chosen = control::default_project(state, call.principal.user);
  return chosen ? store.give(project_owner(*chosen), digest) : Status{};
}

// From the node that ran it: what the task left behind, as the tree with this digest.
void set_outputs(CallPtr call) {
  const auto task = task_of_caller(*call);
  const auto digest = content::parse_digest(trim(call->request().body));
  if (!task)
    return call->fail(task.error());
  if (!digest)
    return call->fail(digest.error());
  const auto& state = call->host.state();
  // A node gives a job what it brought here for it, or what the job's project has; a digest alone
  // is nobody's output.
  Store& store = call->host.files();
  const auto job = state.jobs.find((*task)->job);
  if (!store.owned(tree_owner(*call), *digest) &&
      (job == state.jobs.end() || !store.owned(project_owner(job->second.project), *digest)))
    return call->fail(no_tree(*digest));
  const Status written = write_file_atomic(outputs_path(call->host, (*task)->job, (*task)->rank),
                                           content::digest_hex(*digest) + "\n", 0600);
  if (!written)
    return call->fail(written.error());
  if (job != state.jobs.end())
    if (const Status given = store.give(project_owner(job->second.project), *digest); !given)
      return call->fail(given.error());
  call->reply(200, Json::object({{"ok", true}}));
}

void outputs(CallPtr call) {
  const auto ref = parse_job_ref(*call, call->parts[0]);
  if (!ref)
    return call->fail(ref.error());
  with_job_document(call, ref->id, [call, id = ref->id](Json document) {
    Json list = Json::array();
    for (std::uint32_t rank = 0; rank < document["nodes"].uint_or(1); ++rank)
      if (const auto text = read_file(outputs_path(call->host, id, rank), 256))
        list.push(Json::object({{"rank", rank}, {"tree", std::string(trim(*text))}}));
    call->reply(200, Json::object({{"outputs", std::move(list)}}));
  });
}

namespace {

struct CopyBody {
  std::string tree;  // into the job; empty: out of it
  std::string path;
  std::uint32_t rank = 0;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("tree", s.tree);
    v("path", s.path);
    v("rank", s.rank);
  }
};

}  // namespace

// Into or out of a job that runs, for those who may enter it: what a job has in its directory it
// did not declare.
void copy(CallPtr call) {
  const auto ref = parse_job_ref(*call, call->parts[0]);
  if (!ref)
    return call->fail(ref.error());
  const auto body = read_body<CopyBody>(call);
  if (!body)
    return;
  const auto& state = call->host.state();
  const auto job = state.jobs.find(ref->id);
  if (job == state.jobs.end())
    return with_job_document(call, ref->id, [call, id = ref->id](Json) {
      call->fail({Code::conflict, fmt::format("job {} is not running", id.value),
                  "its outputs (--output) can be fetched: billow cp JOB: DIRECTORY"});
    });
  const Owner owner{job->second.project, job->second.user, job->second.agent};
  if (const Status may = may_act_on(*call, ref->id, owner); !may)
    return call->fail(may.error());
  if (const Status may = may_enter(*call, owner); !may)
    return call->fail(may.error());
  Store& store = call->host.files();
  const std::uint32_t rank = body->rank;
  const Task* task = nullptr;
  for (const TaskId id : job->second.tasks)
    if (const auto found = state.tasks.find(id);
        found != state.tasks.end() && found->second.rank == rank &&
        found->second.state != TaskState::ended && found->second.state != TaskState::starting)
      task = &found->second;
  if (!task)
    return call->fail({Code::conflict,
                       fmt::format("job {} is not running{}", ref->id.value,
                                   rank ? fmt::format(" on its node {}", rank) : ""),
                       "files can be copied only while it runs"});
  wire::agent_v1::CopyFiles request{
      .request = 0, .task = task->id, .tree = body->tree, .path = body->path};
  if (!request.tree.empty()) {
    const auto digest = content::parse_digest(request.tree);
    if (!digest)
      return call->fail(digest.error());
    if (!may_read(*call, store, *digest))
      return call->fail(no_tree(*digest));
    if (const Status given = store.give(project_owner(job->second.project), *digest); !given)
      return call->fail(given.error());
  }
  record_entry(*call, ref->id, request.tree.empty() ? "cp out" : "cp in");
  call->host.copy_files(task->node, std::move(request),
                        [call, &store, owner = tree_owner(*call)](Result<std::string> tree) {
                          if (!tree)
                            return call->fail(tree.error());
                          if (const auto digest = content::parse_digest(*tree))
                            if (const Status given = store.give(owner, *digest); !given)
                              return call->fail(given.error());
                          call->reply(200, Json::object({{"tree", *tree}}));
                        });
}

}  // namespace billow::api::files
