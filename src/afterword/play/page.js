// What was typed is kept in the address after #, the answer comes from the server as HTML.

const WAIT = 200; // milliseconds without typing before the server is asked

const form = document.querySelector("form");
const fields = [...form.elements];
const [error, answers, status] = ["error", "answers", "status"].map((id) => document.getElementById(id));

form.elements.other.selectedIndex = Math.min(2, form.elements.other.options.length - 1);
const start = Object.fromEntries(fields.map((field) => [field.name, field.value]));
let view = "pair";

/** Fill the form from the address; what is not in it has its first value. */
function read() {
  const kept = new URLSearchParams(location.hash.slice(1));
  for (const field of fields) {
    field.value = kept.get(field.name) ?? start[field.name];
    if (field.selectedIndex === -1) field.value = start[field.name]; // a method that is not offered
  }
  view = kept.get("view") === "words" ? "words" : "pair";
  for (const part of form.querySelectorAll("[data-view]")) part.hidden = part.dataset.view !== view;
  write();
}

/** Keep the form in the address and in the links to the views. */
function write() {
  const typed = fields.filter((field) => field.value !== start[field.name]).map((field) => [field.name, field.value]);
  const address = (name) => "#" + new URLSearchParams([["view", name], ...typed]);
  history.replaceState(null, "", address(view));
  for (const link of document.querySelectorAll("nav a")) {
    link.href = address(link.dataset.view);
    if (link.dataset.view === view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

let asking = false;
let changed = false;

/** What is typed, or null if a field is empty. */
function question() {
  const names = view === "pair" ? ["a", "b"] : ["word", "texts"];
  const typed = Object.fromEntries(names.map((name) => [name, form.elements[name].value]));
  return Object.values(typed).every((text) => text.trim()) ? typed : null;
}

/** Ask the server for what is typed now; while it computes, changes wait for one more question. */
async function ask() {
  changed = true;
  if (question()) {
    answers.setAttribute("aria-busy", "true");
    status.textContent = "computing …";
  } else {
    show([], [view === "pair" ? "Type two texts." : "Type a word and texts that contain it."]);
  }
  if (asking) return;
  asking = true;
  while (changed) {
    changed = false;
    const typed = question();
    if (typed) await answer(typed);
  }
  asking = false;
}

async function answer(typed) {
  const methods = [...new Set([form.elements.method.value, form.elements.other.value])].filter(Boolean);
  const began = performance.now();
  try {
    const response = await fetch(view, { method: "POST", body: JSON.stringify({ methods, ...typed }) });
    const found = await response.json();
    if (changed) return; // this answers what was typed before
    show(found.filter((one) => one.picture), found.map((one) => one.error).filter(Boolean));
    status.textContent = `${((performance.now() - began) / 1000).toFixed(2)} s`;
  } catch {
    show([], ["The server does not answer: start afterword play again."]);
  }
}

/** Show the answers and, once each, the errors. */
function show(found, errors) {
  error.textContent = [...new Set(errors)].join("\n");
  status.textContent = "";
  answers.setAttribute("aria-busy", "false");
  answers.replaceChildren(...found.map(section));
}

function section({ method, picture, warnings }) {
  const made = document.createElement("section");
  const about = [...form.elements.method.options].find((option) => option.value === method).dataset.about;
  made.append(element("h2", method), element("p", about));
  made.insertAdjacentHTML("beforeend", picture);
  for (const scroll of made.querySelectorAll(".scroll")) scroll.tabIndex = 0;
  made.append(...warnings.map((warning) => element("p", warning)));
  return made;
}

function element(name, text) {
  const made = document.createElement(name);
  made.textContent = text;
  return made;
}

let timer;
form.addEventListener("input", () => {
  write();
  clearTimeout(timer);
  timer = setTimeout(ask, WAIT);
});
form.addEventListener("submit", (event) => event.preventDefault());
addEventListener("hashchange", () => {
  read();
  ask();
});
read();
ask();
