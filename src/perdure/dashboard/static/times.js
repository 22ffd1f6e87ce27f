// Times in the reader's zone. The page has them in UTC, which stays in the tooltip.

const FORMAT = new Intl.DateTimeFormat(undefined, {
  year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23",
});
const ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;

function localize(root) {
  for (const element of root.querySelectorAll("time[datetime]:not([title])")) {
    element.title = element.textContent;
    element.textContent = FORMAT.format(new Date(element.dateTime));
  }
}

document.getElementById("zone").textContent = ZONE;
localize(document);
document.addEventListener("perdure:changed", (event) => localize(event.target));
