"use strict";
// Puts the parts together.

const entries = readEntries();
const nothing = document.getElementById("nothing");
const gallery = new Gallery(document.getElementById("gallery"), nothing);
const filters = new Filters(entries, (shown, number) => gallery.show(shown, number));
const viewer = new Viewer(entries, gallery);

history.scrollRestoration = "manual"; // the gallery itself goes to the card that was left
nothing.textContent = entries.length
  ? "Nothing matches all of these filters."
  : "There are no results in this folder yet.";
document.getElementById("theme").addEventListener("click", () => theme.turn());
document.getElementById("size").addEventListener("input", (event) => gallery.resize(Number(event.target.value)));
addEventListener("keydown", (event) => {
  if (viewer.viewer.open || event.altKey || event.ctrlKey || event.metaKey) return;
  const writing = event.target.closest("input, select, textarea");
  if (event.key === "/" && !writing) {
    event.preventDefault();
    filters.search.focus();
  } else if (event.key === "Escape" && event.target === filters.search) {
    filters.search.blur();
  } else if (event.key === "ArrowDown" && (event.target === filters.search || event.target === document.body)) {
    event.preventDefault();
    gallery.enter();
  }
});
filters.apply();
viewer.follow();
document.documentElement.dataset.ready = "true";
