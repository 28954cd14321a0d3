// Search, menu, theme and copy buttons of the documentation site. Texts from the index are only ever set as text.
"use strict";

const results_max = 12;

function words_of(text) {
  return text.toLowerCase().split(/[^\p{L}\p{N}_-]+/u).filter((word) => word.length > 0);
}

// [score, entry]: every word must occur. Headings count most, whole words more than beginnings.
function score_of(entry, words) {
  const [, title, heading, body] = entry;
  let sum = 0;
  for (const word of words) {
    let best = 0;
    for (const [text, weight] of [[heading, 12], [title, 8], [body, 2]]) {
      const lower = text.toLowerCase();
      const at = lower.indexOf(word);
      if (at < 0) continue;
      const before = at === 0 || /[^\p{L}\p{N}]/u.test(lower[at - 1]);
      const after = at + word.length >= lower.length || /[^\p{L}\p{N}]/u.test(lower[at + word.length]);
      best = Math.max(best, weight * (before ? (after ? 3 : 2) : 0.5));
    }
    if (best === 0) return 0;
    sum += best;
  }
  return sum;
}

function search(text) {
  const words = words_of(text);
  if (words.length === 0) return [];
  const scored = [];
  for (const entry of window.billowDocs || []) {
    const score = score_of(entry, words);
    if (score > 0) scored.push([score, entry]);
  }
  scored.sort((a, b) => b[0] - a[0]);
  return scored.slice(0, results_max).map((pair) => pair[1]);
}

// The part of a section around the first word that was found.
function excerpt(body, words) {
  const lower = body.toLowerCase();
  const places = words.map((word) => lower.indexOf(word)).filter((at) => at >= 0);
  const begin = Math.max(0, (places.length ? Math.min(...places) : 0) - 40);
  return (begin > 0 ? "… " : "") + body.slice(begin, begin + 130);
}

function show_results(list, text) {
  const words = words_of(text);
  const found = search(text);
  list.replaceChildren();
  found.forEach((entry, number) => {
    const [address, title, heading, body] = entry;
    const link = document.createElement("a");
    link.href = address;
    link.tabIndex = -1;
    const head = document.createElement("b");
    head.textContent = heading && heading !== title ? `${title} › ${heading}` : title;
    const below = document.createElement("span");
    below.textContent = excerpt(body, words);
    link.append(head, below);
    const item = document.createElement("li");
    item.id = `found-${number}`;
    item.setAttribute("role", "option");
    item.append(link);
    list.append(item);
  });
  if (found.length === 0 && words.length > 0) {
    const item = document.createElement("li");
    item.className = "none";
    item.textContent = "Nothing found.";
    list.append(item);
  }
  list.hidden = words.length === 0;
}

function set_up_search() {
  const input = document.getElementById("search");
  const list = document.getElementById("found");
  let chosen = -1;
  const choose = (number) => {
    const items = list.querySelectorAll("li[role=option]");
    if (items.length === 0) return;
    chosen = (number + items.length) % items.length;
    items.forEach((item, i) => item.setAttribute("aria-selected", String(i === chosen)));
    input.setAttribute("aria-activedescendant", items[chosen].id);
    items[chosen].scrollIntoView({ block: "nearest" });
  };
  const update = () => {
    chosen = -1;
    show_results(list, input.value);
    input.setAttribute("aria-expanded", String(!list.hidden));
    input.removeAttribute("aria-activedescendant");
  };
  const close = () => {
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
  };
  input.addEventListener("input", update);
  input.addEventListener("focus", update);
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown") choose(chosen + 1);
    else if (event.key === "ArrowUp") choose(chosen - 1);
    else if (event.key === "Escape") close();
    else if (event.key === "Enter") {
      const link = list.querySelectorAll("li[role=option] a")[Math.max(0, chosen)];
      if (link) link.click();
    } else return;
    event.preventDefault();
  });
  list.addEventListener("click", close);
  document.addEventListener("click", (event) => {
    if (!event.target.closest(".search")) close();
  });
  document.addEventListener("keydown", (event) => {
    const typing = /^(INPUT|TEXTAREA)$/.test(document.activeElement.tagName);
    if (event.key === "/" && !typing) {
      input.focus();
      event.preventDefault();
    }
  });
}

function set_up_menu() {
  const button = document.getElementById("menu");
  button.addEventListener("click", () => {
    const open = document.body.classList.toggle("menu-open");
    button.setAttribute("aria-expanded", String(open));
  });
}

function set_up_theme() {
  document.getElementById("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme
      ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    try {
      localStorage.setItem("billow-docs-theme", root.dataset.theme);
    } catch (error) {
      // The choice then lasts for this page only.
    }
  });
}

// What a person would type: of a console block only the commands.
function text_to_copy(block) {
  const commands = [...block.querySelectorAll("b")].map((b) => b.textContent);
  const whole = block.querySelector("code").textContent;
  return block.dataset.language === "console" ? commands.join("\n") : whole;
}

function set_up_copying() {
  if (!navigator.clipboard) return;
  for (const block of document.querySelectorAll(".code")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(text_to_copy(block));
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy"), 1500);
    });
    block.append(button);
  }
}

set_up_search();
set_up_menu();
set_up_theme();
set_up_copying();
