// How errors are shown: as text for people, or as JSON for programs.
#pragma once

namespace billow::client {

// While it lives, errors are shown in this form. As JSON they are objects on stderr: {"error",
// "hint", "code"}.
class ErrorForm {
 public:
  explicit ErrorForm(bool as_json);
  ~ErrorForm();
  ErrorForm(const ErrorForm&) = delete;
  ErrorForm& operator=(const ErrorForm&) = delete;

 private:
  bool before_;
};

}  // namespace billow::client
