#include "head/notices/forms.h"

#include <algorithm>
#include <ctime>

#include <fmt/format.h>

#include "base/crypto.h"
#include "base/json.h"
#include "base/text.h"

namespace billow::head {
namespace {

constexpr std::size_t discord_characters_max = 2000;
constexpr std::size_t slack_bytes_max = 30'000;
constexpr std::size_t ntfy_bytes_max = 4000;

// Not in the middle of a character.
std::string shortened(std::string text, std::size_t bytes_max) {
  if (text.size() <= bytes_max)
    return text;
  std::size_t end = bytes_max - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80)
    --end;
  text.resize(end);
  return text + "…";
}

std::string one_line(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 32; }, ' ');
  return text;
}

std::string for_slack(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else
      out += c;
  }
  return out;
}

std::string for_discord(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (std::string_view("\\*_~`|>#[]").find(c) != std::string_view::npos)
      out += '\\';
    out += c;
  }
  return out;
}

// RFC 2047, in pieces of at most 45 bytes, none of which cuts a character.
std::string encoded_header(const std::string& text) {
  if (std::all_of(text.begin(), text.end(), [](char c) { return c >= 32 && c < 127; }) &&
      text.size() < 60)
    return text;
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = std::min(text.size(), at + 45);
    while (end < text.size() && end > at && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80)
      --end;
    out += fmt::format("{}=?UTF-8?B?{}?=", out.empty() ? "" : "\r\n ",
                       base64(text.substr(at, end - at)));
    at = end;
  }
  return out;
}

std::string mail_date(WallTime at) {
  const std::time_t seconds_now = at.ns / 1'000'000'000;
  std::tm parts{};
  ::gmtime_r(&seconds_now, &parts);
  static constexpr const char* days[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr const char* months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                           "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  return fmt::format("{}, {:02} {} {} {:02}:{:02}:{:02} +0000", days[parts.tm_wday], parts.tm_mday,
                     months[parts.tm_mon], parts.tm_year + 1900, parts.tm_hour, parts.tm_min,
                     parts.tm_sec);
}

}  // namespace

std::string NoticeMessage::title() const {
  const PersonalNotice& first = notices.front();
  if (notices.size() == 1)
    return one_line(first.title);
  return one_line(fmt::format("{}, and {} more notices", first.title, notices.size() - 1));
}

std::string NoticeMessage::text() const {
  if (notices.size() == 1)
    return notices.front().text;
  std::string out;
  for (const PersonalNotice& notice : notices)
    out += fmt::format("{}{}{}{}", out.empty() ? "" : "\n", notice.title,
                       notice.text.empty() ? "" : ": ", notice.text);
  return out;
}

std::string slack_body(const NoticeMessage& message) {
  return Json::object({{"text", shortened(fmt::format("*{}*\n{}", for_slack(message.title()),
                                                      for_slack(message.text())),
                                          slack_bytes_max)}})
      .dump();
}

std::string discord_body(const NoticeMessage& message) {
  return Json::object({{"content", shortened(fmt::format("**{}**\n{}", for_discord(message.title()),
                                                         for_discord(message.text())),
                                             discord_characters_max)},
                       {"allowed_mentions", Json::object({{"parse", Json::array()}})}})
      .dump();
}

std::string ntfy_body(const NoticeMessage& message, const std::string& topic) {
  const bool urgent =
      std::any_of(message.notices.begin(), message.notices.end(), [](const PersonalNotice& notice) {
        return notice.on == NoticeOn::budget || notice.on == NoticeOn::fails;
      });
  Json tags = Json::array();
  tags.push(enum_name(message.notices.front().on));
  const std::string text = message.text();
  return Json::object(
             {{"topic", topic},
              {"title", shortened(message.title(), 250)},
              {"message", shortened(text.empty() ? message.title() : text, ntfy_bytes_max)},
              {"priority", urgent ? 4 : 3},
              {"tags", std::move(tags)}})
      .dump();
}

std::string mail_text(const NoticeMessage& message, const MailHeaders& headers) {
  const std::string domain = headers.from.substr(headers.from.find('@') + 1);
  const std::string text = message.text();
  const std::string body =
      base64(fmt::format("{}\n\n{}{}-- \nYou chose these notices: billow notify list\n",
                         message.title(), text, text.empty() ? "" : "\n\n"));
  std::string out = fmt::format(
      "From: Billow <{}>\r\nTo: <{}>\r\nSubject: {}\r\nDate: {}\r\nMessage-ID: <{}@{}>\r\n"
      "Auto-Submitted: auto-generated\r\nMIME-Version: 1.0\r\n"
      "Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: base64\r\n\r\n",
      headers.from, headers.to, encoded_header(shortened(message.title(), 200)),
      mail_date(headers.date), message.id, domain);
  for (std::size_t at = 0; at < body.size(); at += 76)
    out += body.substr(at, 76) + "\r\n";
  return out;
}

}  // namespace billow::head
