// Keeps the parts of a page that say so up to date. The server sends the page again whenever it has changed; what a
// reader is in the middle of (a field with the focus, an open detail, a selection) stays.

const status = document.getElementById("live");
let source = null;

function isBusy(part) {
  const selection = getSelection();
  return part.contains(document.activeElement) && document.activeElement.matches("input, select, textarea")
    || !selection.isCollapsed && part.contains(selection.anchorNode);
}

function openDetails(part) {
  const all = [...part.querySelectorAll("details")];
  return new Set(all.filter((one) => one.open).map((one) => key(one)));
}

function key(detail) {
  const row = detail.closest("tr[id]");
  return `${row ? row.id : ""} ${detail.querySelector("summary").textContent}`;
}

function take(html) {
  const fresh = new DOMParser().parseFromString(html, "text/html");
  for (const part of document.querySelectorAll("[data-live]")) {
    const next = fresh.getElementById(part.id);
    if (!next || isBusy(part) || part.dataset.source === next.innerHTML) continue;
    const open = openDetails(part);
    const focused = part.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    part.dataset.source = next.innerHTML;
    part.replaceChildren(...document.importNode(next, true).childNodes);
    for (const one of part.querySelectorAll("details")) one.open = open.has(key(one));
    if (focused) part.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus();
    part.dispatchEvent(new Event("perdure:changed", { bubbles: true }));
  }
}

function listen() {
  if (source || !document.querySelector("[data-live]")) return;
  source = new EventSource(location.href);
  source.onmessage = (event) => { take(JSON.parse(event.data)); status.textContent = "Live"; };
  source.onerror = () => {
    status.textContent = "Not live";
    if (source.readyState === EventSource.CLOSED) source = null;
  };
}

function leave() {
  source?.close();
  source = null;
}

// A browser has few connections to one server: tabs that nobody looks at give theirs back.
document.addEventListener("visibilitychange", () => (document.hidden ? leave() : listen()));
addEventListener("pagehide", leave);
if (!document.hidden) listen();
