// Manual pages: billow(1), and one for each command, from the same declarations as --help and
// docs/cli.md.
#include <fmt/format.h>

#include "base/text.h"
#include "client/frame/command.h"

namespace billow::client {
namespace {

// Text for troff: no line begins a request, and signs keep their meaning.
std::string roff(std::string_view text) {
  std::string out;
  bool line_begins = true;
  for (const char c : text) {
    if (line_begins && (c == '.' || c == '\''))
      out += "\\&";
    line_begins = c == '\n';
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
  }
  return out;
}

std::string page_name(std::string_view command) {
  std::string name = command.empty() ? "billow" : "billow-" + std::string(command);
  for (char& c : name)
    if (c == ' ')
      c = '-';
  return name;
}

std::string header(std::string_view command, std::string_view summary, std::string_view version) {
  std::string title = page_name(command);
  for (char& c : title)
    if (c >= 'a' && c <= 'z')
      c = static_cast<char>(c - 32);
  return fmt::format(".TH \"{}\" 1 \"\" \"billow {}\" \"Billow\"\n.SH NAME\n{} \\- {}\n", title,
                     version, roff(page_name(command)), roff(summary));
}

std::string example(std::string_view lines) {
  return fmt::format(".SH EXAMPLES\n.nf\n{}\n.fi\n", roff(lines));
}

std::string option_entry(const OptionSpec& option) {
  std::string out = ".TP\n";
  if (option.letter)
    out += fmt::format("\\fB\\-{}\\fR, ", option.letter);
  out += fmt::format("\\fB\\-\\-{}\\fR", roff(option.name));
  if (option.value)
    out += fmt::format(" \\fI{}\\fR", roff(option.value));
  return out + "\n" + roff(option.help) + "\n";
}

}  // namespace

std::string man_page(const CommandSpec& c, std::string_view version) {
  std::string out = header(c.name, c.summary, version);
  out += fmt::format(".SH SYNOPSIS\n\\fBbillow {}\\fR [\\fIoptions\\fR] {}\n", roff(c.name),
                     roff(c.usage));
  if (!c.details.empty())
    out += fmt::format(".SH DESCRIPTION\n{}\n", roff(c.details));
  const auto options = options_of(c);
  if (!options.empty())
    out += ".SH OPTIONS\n";
  for (const OptionSpec* option : options)
    out += option_entry(*option);
  return out + example(c.example) + ".SH SEE ALSO\n\\fBbillow\\fR(1), \\fBbillow docs\\fR\n";
}

std::string man_overview(const std::vector<CommandSpec>& commands, std::string_view version) {
  std::string out = header("", "your own GPU cloud, in one program", version);
  out +=
      ".SH SYNOPSIS\n\\fBbillow\\fR \\fICOMMAND\\fR [\\fIoptions\\fR]\n"
      ".SH DESCRIPTION\nBillow turns GPUs that you own, rent or hold in a cluster into a GPU cloud "
      "for you or your team.\n\\fBbillow run \\-\\-gpus 1 \\-\\- python train.py\\fR runs a "
      "command on a GPU; it starts Billow if it is not running yet.\n"
      ".SH COMMANDS\n";
  for (const CommandSpec& c : commands)
    out += fmt::format(".TP\n\\fB{}\\fR(1)\n{}\n", roff(page_name(c.name)), roff(c.summary));
  out +=
      ".SH EXIT STATUS\nrun, shell, attach and wait return the exit code of the job (128 + signal "
      "if a signal ended it, 124 for its time limit). Otherwise 0 is success, 1 means refused or "
      "failed, 2 a mistake in the command line, 69 that no head answers.\n"
      ".SH FILES\n.TP\n\\fI/var/lib/billow\\fR, \\fI~/.local/share/billow\\fR\nthe data of a head: "
      "of root, and of other users\n"
      ".TP\n\\fI/run/billow/head.sock\\fR\nwhere the users of a machine find its head (billow up "
      "\\-\\-system)\n"
      ".TP\n\\fI/etc/billow/node.policy\\fR\nthe accounts that jobs run as on this machine\n"
      ".TP\n\\fI~/.config/billow\\fR\nheads that this user logged in to, and settings\n"
      ".SH SEE ALSO\n\\fBbillow docs\\fR lists the pages of the documentation.\n";
  return out;
}

std::vector<ManPage> man_pages(const std::vector<CommandSpec>& commands, std::string_view version) {
  std::vector<ManPage> out{{page_name("") + ".1", man_overview(commands, version)}};
  for (const CommandSpec& c : commands)
    out.push_back({page_name(c.name) + ".1", man_page(c, version)});
  return out;
}

}  // namespace billow::client
