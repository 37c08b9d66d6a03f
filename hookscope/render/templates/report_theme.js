"use strict";
// Before the first paint, so that a dark page never flashes white.
const theme = {
  dark: matchMedia("(prefers-color-scheme: dark)"),
  chosen: null,
  show() {
    const dark = this.chosen === null ? this.dark.matches : this.chosen === "dark";
    document.documentElement.dataset.theme = dark ? "dark" : "light";
  },
  turn() {
    this.chosen = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    try {
      localStorage.setItem("hookscope-theme", this.chosen);
    } catch {
      // A page on a disk may have no storage: the choice lasts as long as the page.
    }
    this.show();
  },
};
try {
  theme.chosen = localStorage.getItem("hookscope-theme");
} catch {
  theme.chosen = null;
}
theme.dark.addEventListener("change", () => theme.show());
theme.show();
