// Before the page is painted, so that it does not flash in the other theme.
(function () {
  try {
    const chosen = localStorage.getItem("billow-docs-theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch (error) {
    // Without storage, the system's theme applies.
  }
})();
