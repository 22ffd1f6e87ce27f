// Keys, for who does not want to leave them. They do nothing while somebody types.

let going = false;

function rows() {
  return [...document.querySelectorAll("table.rows tbody tr")].map((row) => row.querySelector("a, summary")).filter(Boolean);
}

function step(by) {
  const all = rows();
  const at = all.findIndex((one) => one.closest("tr").contains(document.activeElement));
  const next = all[Math.min(Math.max(at + by, 0), all.length - 1)];
  next?.focus();
}

function follow(selector) {
  document.querySelector(selector)?.click();
}

document.querySelector(".keys").hidden = false;
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea")) return;
  if (going) {
    going = false;
    follow(`nav a[data-key="${CSS.escape(event.key)}"]`);
    return;
  }
  switch (event.key) {
    case "g": going = true; break;
    case "j": step(1); break;
    case "k": step(-1); break;
    case "ArrowLeft": follow("main .pager a[rel=prev]"); break;
    case "ArrowRight": follow("main .pager a[rel=next]"); break;
    case "/": {
      event.preventDefault();
      document.querySelector("form[role=search] input")?.focus();
    }
  }
});
