#include "gateway/pure/forwarded.h"

#include <arpa/inet.h>

#include <cstring>

#include <fmt/format.h>

#include "base/text.h"

namespace billow::gateway {
namespace {

constexpr std::size_t hops_max = 32;

// IPv4 addresses in the form of IPv6 (::ffff:10.0.0.7), so that one comparison does for both.
std::optional<std::array<unsigned char, 16>> bytes_of(std::string_view text) {
  const std::string address(text);
  std::array<unsigned char, 16> out{};
  if (::inet_pton(AF_INET6, address.c_str(), out.data()) == 1)
    return out;
  out = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  if (::inet_pton(AF_INET, address.c_str(), out.data() + 12) == 1)
    return out;
  return std::nullopt;
}

std::string text_of(const std::array<unsigned char, 16>& bytes) {
  char text[INET6_ADDRSTRLEN] = "";
  constexpr unsigned char mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  if (std::memcmp(bytes.data(), mapped, sizeof mapped) == 0)
    ::inet_ntop(AF_INET, bytes.data() + 12, text, sizeof text);
  else
    ::inet_ntop(AF_INET6, bytes.data(), text, sizeof text);
  return text;
}

// "10.0.0.7", "10.0.0.7:80", "[2001:db8::1]:80", "\"[2001:db8::1]\"".
std::string_view bare(std::string_view hop) {
  hop = trim(hop);
  if (hop.size() >= 2 && hop.starts_with('"') && hop.ends_with('"'))
    hop = hop.substr(1, hop.size() - 2);
  if (hop.starts_with('['))
    return hop.substr(1, hop.find(']') - 1);
  // One colon separates a port; an IPv6 address has more.
  if (hop.find(':') != hop.npos && hop.find(':') == hop.rfind(':'))
    return hop.substr(0, hop.find(':'));
  return hop;
}

struct Hop {
  std::string address;  // as it was written: perhaps "unknown" or a hidden name
  std::string proto;
};

// Separators inside of quotes separate nothing. Nothing: a quote does not end. A client could hide
// what a proxy appends behind it.
std::vector<std::string_view> split_unquoted(std::string_view text, char separator) {
  std::vector<std::string_view> out;
  bool quoted = false;
  std::size_t from = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (quoted && text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      quoted = !quoted;
    } else if (!quoted && text[i] == separator) {
      out.push_back(text.substr(from, i - from));
      from = i + 1;
    }
  }
  if (quoted)
    return {};
  out.push_back(text.substr(from));
  return out;
}

void add_forwarded(std::vector<Hop>& hops, std::string_view value) {
  const auto elements = split_unquoted(value, ',');
  if (elements.empty())
    hops.push_back({});
  for (const std::string_view element : elements) {
    Hop hop;
    for (const std::string_view pair : split_unquoted(element, ';')) {
      const auto equals = pair.find('=');
      if (equals == std::string_view::npos)
        continue;
      const std::string name = lower(trim(pair.substr(0, equals)));
      const std::string_view text = pair.substr(equals + 1);
      if (name == "for")
        hop.address = bare(text);
      else if (name == "proto")
        hop.proto = lower(bare(text));
    }
    hops.push_back(std::move(hop));
  }
}

// The client of a chain, read from its end; without an address if the chain names none.
Hop client_of_chain(const std::vector<Hop>& hops, const Networks& trusted) {
  Hop client;
  for (std::size_t i = hops.size(); i > 0 && hops.size() - i < hops_max; --i) {
    const Hop& hop = hops[i - 1];
    const auto bytes = bytes_of(hop.address);
    if (!bytes)
      break;  // hidden or invented: the last known one counts
    client = {text_of(*bytes), hop.proto};
    if (!trusted.contains(client.address))
      break;
  }
  return client;
}

// The last value counts: proxies append, and clients can only send what stands before.
std::string told_proto(const net::Headers& headers) {
  std::string_view last;
  for (const auto& [name, value] : headers)
    if (net::equal_nocase(name, "X-Forwarded-Proto"))
      last = value;
  return lower(trim(last.substr(last.rfind(',') == last.npos ? 0 : last.rfind(',') + 1)));
}

}  // namespace

Result<Networks> Networks::parse(const std::vector<std::string>& texts) {
  Networks out;
  for (const std::string& given : texts)
    for (const std::string& text : split(given, ',')) {
      const auto slash = text.find('/');
      const auto bytes = bytes_of(trim(std::string_view(text).substr(0, slash)));
      const bool v4 = text.find(':') == std::string::npos;
      std::int64_t bits = v4 ? 32 : 128;
      if (slash != std::string::npos)
        bits = parse_int(trim(std::string_view(text).substr(slash + 1)), 0, bits).value_or(-1);
      if (!bytes || bits < 0)
        return fail(Code::invalid, fmt::format("\"{}\" is not a network", text),
                    "write an address or a network, such as 10.0.0.0/8 or fd00::/8");
      out.all_.push_back({*bytes, static_cast<unsigned>(v4 ? bits + 96 : bits)});
    }
  return out;
}

bool Networks::contains(std::string_view address) const {
  const auto bytes = bytes_of(address);
  if (!bytes)
    return false;
  for (const Network& network : all_) {
    const std::size_t whole = network.bits / 8, rest = network.bits % 8;
    if (std::memcmp(bytes->data(), network.bytes.data(), whole) != 0)
      continue;
    const auto mask = static_cast<unsigned char>(0xff00 >> rest);
    if (rest == 0 || ((*bytes)[whole] & mask) == (network.bytes[whole] & mask))
      return true;
  }
  return false;
}

std::string_view address_of_peer(std::string_view peer) {
  const auto colon = peer.rfind(':');
  if (colon == peer.npos)
    return peer;
  peer = peer.substr(0, colon);
  if (peer.starts_with('[') && peer.ends_with(']'))
    peer = peer.substr(1, peer.size() - 2);
  return peer;
}

Client client_of(const net::Headers& headers, const Networks& trusted) {
  std::vector<Hop> standard, usual;
  for (const auto& [name, value] : headers) {
    if (net::equal_nocase(name, "Forwarded"))
      add_forwarded(standard, value);
    else if (net::equal_nocase(name, "X-Forwarded-For"))
      for (const std::string& hop : split(value, ','))
        usual.push_back({std::string(bare(hop)), ""});
  }
  const Hop by_standard = client_of_chain(standard, trusted);
  const Hop by_usual = client_of_chain(usual, trusted);
  if (!standard.empty() && !usual.empty() && by_standard.address != by_usual.address)
    return {};
  const std::string proto = told_proto(headers);
  Client out;
  out.address = usual.empty() ? by_standard.address : by_usual.address;
  const bool by_either = by_standard.proto == "https" || proto == "https";
  out.https = by_either && (by_standard.proto.empty() || by_standard.proto == "https") &&
              (proto.empty() || proto == "https");
  return out;
}

namespace {

// "PROXY TCP4 203.0.113.7 10.0.0.1 4711 443\r\n", or "PROXY UNKNOWN …\r\n".
std::optional<ProxyHeader> read_proxy_line(std::string_view data) {
  constexpr std::size_t line_bytes_max = 107;
  const auto end = data.substr(0, line_bytes_max).find("\r\n");
  if (end == std::string_view::npos)
    return std::nullopt;
  ProxyHeader out{.bytes = end + 2, .peer = {}};
  const std::vector<std::string> words = split(data.substr(0, end), ' ');
  if (words.size() >= 2 && words[1] == "UNKNOWN")
    return out;
  if (words.size() != 6 || (words[1] != "TCP4" && words[1] != "TCP6"))
    return std::nullopt;
  const bool v6 = words[1] == "TCP6";
  for (const std::string& address : {words[2], words[3]}) {
    in6_addr read{};
    if (::inet_pton(v6 ? AF_INET6 : AF_INET, address.c_str(), &read) != 1)
      return std::nullopt;
  }
  for (const std::string& port : {words[4], words[5]})
    if (!parse_int(port, 0, 65535))
      return std::nullopt;
  out.peer = fmt::format("{}{}{}:{}", v6 ? "[" : "", words[2], v6 ? "]" : "", words[4]);
  return out;
}

}  // namespace

std::optional<ProxyHeader> read_proxy_header(std::string_view data) {
  if (data.starts_with(proxy_word))
    return read_proxy_line(data);
  constexpr std::size_t fixed = 16;
  if (data.size() < fixed || !data.starts_with(proxy_signature))
    return std::nullopt;
  const auto byte = [&](std::size_t at) {
    return static_cast<unsigned char>(data[at]);
  };
  const std::size_t length = byte(14) * 256U + byte(15);
  if (byte(12) >> 4 != 2 || fixed + length > proxy_header_bytes_max || data.size() < fixed + length)
    return std::nullopt;
  ProxyHeader out{.bytes = fixed + length, .peer = {}};
  const unsigned command = byte(12) & 15U, family = byte(13);
  if (command == 0)
    return out;
  if (command != 1)
    return std::nullopt;
  char text[INET6_ADDRSTRLEN] = "";
  constexpr unsigned tcp4 = 0x11, tcp6 = 0x21;
  if (family == tcp4 && length >= 12) {
    ::inet_ntop(AF_INET, data.data() + fixed, text, sizeof text);
    out.peer = fmt::format("{}:{}", text, byte(fixed + 8) * 256U + byte(fixed + 9));
  } else if (family == tcp6 && length >= 36) {
    ::inet_ntop(AF_INET6, data.data() + fixed, text, sizeof text);
    out.peer = fmt::format("[{}]:{}", text, byte(fixed + 32) * 256U + byte(fixed + 33));
  } else {
    return std::nullopt;  // other kinds of sockets have no address that could be used
  }
  return out;
}

}  // namespace billow::gateway
