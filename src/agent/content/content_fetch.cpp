#include "agent/content/content_fetch.h"

#include <fmt/format.h>

#include <unordered_map>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "files/pack.h"
#include "files/store.h"
#include "files/tree.h"
#include "net/http/blocking_client.h"

namespace billow::agent {
namespace {

class ContentHead {
 public:
  explicit ContentHead(const ContentSource& source)
      : http_({.endpoint = source.head, .tls = source.tls}), credential_(source.credential) {}
  Result<std::string> call(net::Method method, std::string target, std::string body = {}) {
    net::BlockingClient::Call call{.method = method,
                                   .target = std::move(target),
                                   .body = std::move(body),
                                   .timeout = seconds(120)};
    if (credential_)
      call.headers.set("Authorization",
                       BILLOW_TRY(credential_->authorization(method, call.target)));
    if (!call.body.empty())
      call.headers.set("Content-Type", "application/octet-stream");
    auto response = BILLOW_TRY(http_.request(call));
    if (response.status < 300)
      return std::move(response.body);
    std::string why = fmt::format("the head answered {}", response.status);
    if (const auto json = parse_json(response.body); json && json->is_object())
      why = std::string((*json)["detail"].str_or(why));
    return fail(net::code_of_status(response.status), why);
  }

 private:
  net::BlockingClient http_;
  std::shared_ptr<const net::NodeCredential> credential_;
};

}  // namespace

Result<std::string> ask_head(const ContentSource& source,
                             net::Method method,
                             std::string target,
                             std::string body) {
  ContentHead head(source);
  return head.call(method, std::move(target), std::move(body));
}

Status tell_image(const ContentSource& source, std::uint64_t task, const std::string& digest) {
  BILLOW_TRY_VOID(
      ask_head(source, net::Method::put, fmt::format("/v1/tasks/{}/image", task), digest));
  return {};
}

Status fetch_content(const ContentSource& source,
                     const std::string& digest,
                     const ContentSink& sink) {
  const Sha256 wanted = BILLOW_TRY(files::parse_digest(digest));
  ContentHead head(source);
  const std::string list = BILLOW_TRY(head.call(net::Method::get, "/v1/files/trees/" + digest));
  if (sha256(list) != wanted)
    return fail(Code::invalid, "the list of files does not match its digest");
  const files::Tree tree = BILLOW_TRY(files::decode(list));
  BILLOW_TRY_VOID(sink.list(list));
  std::vector<std::pair<Sha256, std::size_t>> order;
  for (const files::Entry& e : tree.entries)
    for (std::size_t i = 0; i < e.pieces.size(); ++i)
      order.emplace_back(e.pieces[i], files::piece_size(e, i));
  const std::uint64_t total = tree.bytes();
  std::uint64_t done = 0;
  for (std::size_t at = 0; at < order.size();) {
    if (sink.cancelled && sink.cancelled())
      return fail(Code::unavailable, "cancelled");
    std::vector<Sha256> batch;
    std::size_t bytes = 0, end = at;
    for (; end < order.size(); ++end) {
      bytes += order[end].second + files::pack_header_bytes;
      if (!batch.empty() && bytes > files::pack_bytes_wanted)
        break;
      batch.push_back(order[end].first);
    }
    std::unordered_map<Sha256, std::string, files::DigestHash> here;
    const std::string pack = BILLOW_TRY(head.call(
        net::Method::post, "/v1/files/pieces?tree=" + digest, files::encode_digests(batch)));
    BILLOW_TRY_VOID(
        files::each_piece(pack, [&](const Sha256& one, std::string_view content) -> Status {
          here[one] = std::string(content);
          return {};
        }));
    for (; at < end; ++at) {
      const auto found = here.find(order[at].first);
      if (found == here.end())
        return fail(Code::internal, "the head did not send all requested pieces");
      BILLOW_TRY_VOID(sink.piece(found->second));
      done += found->second.size();
    }
    if (sink.progress)
      sink.progress(done, total);
  }
  return {};
}

}  // namespace billow::agent
