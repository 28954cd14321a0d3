#include "head/certificates/authority.h"

#include <unistd.h>

#include <fmt/format.h>

#include "base/file.h"

namespace billow::head {
namespace {

constexpr std::size_t pem_bytes_max = 1 << 20;

std::string this_host() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

// The next block of a PEM text, which is removed from it; empty: none is left.
std::string take_block(std::string_view& text) {
  const auto begin = text.find("-----BEGIN");
  if (begin == std::string_view::npos)
    return "";
  const auto end = text.find("-----END", begin);
  const auto line = end == std::string_view::npos ? end : text.find('\n', end);
  const std::string block(text.substr(begin, line == std::string_view::npos ? line : line - begin));
  text.remove_prefix(line == std::string_view::npos ? text.size() : line);
  return block + "\n";
}

net::CertAndKey take_pair(std::string_view& text) {
  net::CertAndKey pair;
  pair.cert_pem = take_block(text);
  pair.key_pem = take_block(text);
  return pair;
}

}  // namespace

Result<std::string> Authority::fingerprints() const {
  std::string out = BILLOW_TRY(net::cert_fingerprint(current.cert_pem));
  if (next)
    out += "," + BILLOW_TRY(net::cert_fingerprint(next->cert_pem));
  return out;
}

Result<WallTime> Authority::next_since() const {
  if (!next)
    return WallTime{};
  return BILLOW_TRY(net::cert_dates(next->cert_pem)).not_before + net::cert_backdated;
}

std::string Authority::text() const {
  return current.cert_pem + current.key_pem + (next ? next->cert_pem + next->key_pem : "");
}

Result<Authority> Authority::parse(const std::string& text) {
  std::string_view rest = text;
  Authority out;
  out.current = take_pair(rest);
  if (net::CertAndKey next = take_pair(rest); !next.key_pem.empty())
    out.next = std::move(next);
  if (out.current.key_pem.find("PRIVATE KEY") == std::string::npos)
    return fail(Code::internal, "the authority kept in the store is damaged");
  return out;
}

Result<Authority> Authority::open(const std::string& dir) {
  BILLOW_TRY_VOID(make_directories(dir, 0700));
  const std::string cert = dir + "/ca.pem", key = dir + "/ca.key", next = dir + "/next.pem";
  Authority out;
  if (!file_exists(cert) || !file_exists(key)) {
    out.current = BILLOW_TRY(net::make_ca("Billow authority of " + this_host()));
    BILLOW_TRY_VOID(out.save(dir));
    return out;
  }
  out.current = {BILLOW_TRY(read_file(cert, pem_bytes_max)),
                 BILLOW_TRY(read_file(key, pem_bytes_max))};
  if (!file_exists(next))
    return out;
  const std::string text = BILLOW_TRY(read_file(next, pem_bytes_max));
  std::string_view rest = text;
  out.next = take_pair(rest);
  // The head ended while it changed over: ca.key is the first file that it writes.
  if (out.next->key_pem == out.current.key_pem) {
    out.current = *out.next;
    out.next.reset();
    BILLOW_TRY_VOID(out.save(dir));
  }
  return out;
}

Status Authority::save(const std::string& dir) const {
  if (next)
    return write_file_atomic(dir + "/next.pem", next->cert_pem + next->key_pem, 0600, true);
  BILLOW_TRY_VOID(write_file_atomic(dir + "/ca.key", current.key_pem, 0600, true));
  BILLOW_TRY_VOID(write_file_atomic(dir + "/ca.pem", current.cert_pem, 0644, true));
  if (::unlink((dir + "/next.pem").c_str()) != 0 && errno != ENOENT)
    return fail_errno(dir + "/next.pem", errno);
  return {};
}

}  // namespace billow::head
