"use strict";
// Which entries are shown, and in which order.

const ORDERS = {
  picture: { title: "Picture", value: (entry) => entry.record.image ?? undefined, descending: false },
  mistakes: {
    title: "Mistakes first",
    value: (entry) => Number(entry.verdicts.some((one) => one.kind === "truth" && one.level === "bad")),
    descending: true,
  },
};
const STATUSES = ["ok", "degenerate", "skipped", "error"];

class Filters {
  constructor(entries, changed) {
    this.entries = entries;
    this.changed = changed;
    this.words = [];
    this.status = null;
    this.facets = new Map();
    this.orders = this.possibleOrders();
    this.order = "mistakes" in this.orders ? "mistakes" : "picture";
    this.descending = this.orders[this.order].descending;
    this.build();
  }

  /** The order of the pictures, and of every number that differs. */
  possibleOrders() {
    const { picture, mistakes } = ORDERS;
    const orders = { picture };
    if (this.entries.some((entry) => entry.verdicts.some((one) => one.kind === "truth"))) orders.mistakes = mistakes;
    const seen = new Map();
    const differ = new Set();
    for (const { numbers } of this.entries) {
      for (const [key, value] of numbers) {
        if (!seen.has(key)) seen.set(key, value);
        else if (seen.get(key) !== value) differ.add(key);
      }
    }
    const keys = [...seen.keys()].filter((key) => differ.has(key));
    for (const key of keys.sort((a, b) => (b === "probability") - (a === "probability"))) {
      orders[`number ${key}`] = { title: titleOf(key), key, value: (entry) => entry.numbers.get(key), descending: true };
    }
    return orders;
  }

  build() {
    const find = (id) => document.getElementById(id);
    this.search = find("search");
    this.search.addEventListener("input", () => {
      this.words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
      this.apply();
    });
    this.chips = new Map();
    for (const status of STATUSES) {
      if (!this.entries.some((entry) => entry.record.status === status)) continue;
      const chip = element("button", `chip ${status}`);
      chip.type = "button";
      chip.append(element("span", "dot"), element("span", null, status), element("span", "number"));
      chip.addEventListener("click", () => {
        this.status = this.status === status ? null : status;
        this.apply();
      });
      this.chips.set(status, chip);
    }
    if (this.chips.size > 1) find("statuses").append(...this.chips.values());
    this.selects = new Map();
    for (const key of FACETS) this.buildFacet(key, find("facets"));
    this.sort = find("sort");
    for (const [name, { title }] of Object.entries(this.orders)) this.sort.append(new Option(title, name));
    this.sort.value = this.order;
    this.sort.addEventListener("change", () => {
      this.order = this.sort.value;
      this.descending = this.orders[this.order].descending;
      this.apply();
    });
    this.direction = find("direction");
    this.direction.addEventListener("click", () => {
      this.descending = !this.descending;
      this.apply();
    });
    this.counter = find("count");
    this.clearer = find("clear");
    this.clearer.addEventListener("click", () => this.clear());
    const toolbar = find("toolbar");
    toolbar.addEventListener("submit", (event) => event.preventDefault());
    find("more").addEventListener("click", (event) => {
      const open = toolbar.classList.toggle("open");
      event.target.setAttribute("aria-expanded", open);
    });
  }

  /** A choice among the values that there are; none where there is nothing to choose. */
  buildFacet(key, box) {
    const counts = new Map();
    for (const entry of this.entries) {
      const value = entry.facet(key);
      if (typeof value === "string") counts.set(value, (counts.get(value) ?? 0) + 1);
    }
    if (counts.size < 2) return;
    const select = element("select");
    select.id = `facet-${key}`;
    select.setAttribute("aria-label", titleOf(key));
    select.append(new Option(`${titleOf(key)}: all ${counts.size}`, ""));
    const values = [...counts.keys()];
    if (key !== "layer") values.sort(natural.compare); // layers keep the order of the network
    values.forEach((value, index) => select.append(new Option(`${value} (${counts.get(value)})`, String(index))));
    select.addEventListener("change", () => {
      if (select.value) this.facets.set(key, values[Number(select.value)]);
      else this.facets.delete(key);
      select.classList.toggle("chosen", select.value !== "");
      this.apply();
    });
    box.append(select);
    this.selects.set(key, select);
  }

  clear() {
    this.search.value = "";
    this.words = [];
    this.status = null;
    this.facets.clear();
    for (const select of this.selects.values()) {
      select.value = "";
      select.classList.remove("chosen");
    }
    this.apply();
  }

  apply() {
    const counts = new Map();
    const found = [];
    for (const entry of this.entries) {
      if (!this.takes(entry)) continue;
      counts.set(entry.record.status, (counts.get(entry.record.status) ?? 0) + 1);
      if (this.status === null || entry.record.status === this.status) found.push(entry);
    }
    const { value, key } = this.orders[this.order];
    found.sort((a, b) => compare(value(a), value(b), this.descending) || a.id - b.id);
    for (const [status, chip] of this.chips) {
      chip.lastChild.textContent = (counts.get(status) ?? 0).toLocaleString("en");
      chip.setAttribute("aria-pressed", this.status === status);
    }
    const [all, some] = [this.entries.length, found.length].map((count) => count.toLocaleString("en"));
    const filtered = this.status !== null || this.words.length > 0 || this.facets.size > 0;
    this.counter.textContent = filtered ? `${some} of ${all}` : all;
    this.clearer.hidden = !filtered;
    document.getElementById("more").textContent =
      this.facets.size + (this.status !== null) ? `Filters (${this.facets.size + (this.status !== null)})` : "Filters";
    this.direction.textContent = this.descending ? "↓" : "↑";
    this.direction.setAttribute("aria-label", this.descending ? "Descending" : "Ascending");
    this.changed(found, key ?? null);
  }

  takes(entry) {
    for (const [key, value] of this.facets) if (entry.facet(key) !== value) return false;
    return this.words.every((word) => entry.words.includes(word));
  }
}

/** What has no value comes last, whatever the direction. */
function compare(a, b, descending) {
  if (a === undefined || b === undefined) return (a === undefined) - (b === undefined);
  const order = typeof a === "number" ? a - b : natural.compare(a, b);
  return descending ? -order : order;
}
