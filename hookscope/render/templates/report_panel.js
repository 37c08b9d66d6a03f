"use strict";
// The words beside a picture, and the other results of the same photograph below it.

const MOST_SIBLINGS = 60;

class Panel {
  constructor(entries, go) {
    this.entries = entries;
    this.go = go;
    for (const id of ["panel", "headline", "subline", "verdicts", "facts", "links", "strip"]) {
      this[id] = document.getElementById(id);
    }
  }

  show(entry) {
    this.panel.scrollTop = 0;
    this.describe(entry);
    this.showFamily(entry);
  }

  describe(entry) {
    const { record } = entry;
    this.headline.textContent = entry.headline;
    const share = typeof record.probability === "number" ? percent(record.probability) : null;
    this.subline.textContent = [share, ...entry.details].filter(Boolean).join(" · ");
    const notes = entry.verdicts.map((verdict) => note(verdict.level, verdict.label, verdict.sentence));
    if (record.error) notes.unshift(note("error", "error", record.error));
    else if (record.reason) notes.unshift(note(record.status, record.status === "ok" ? "note" : record.status, record.reason));
    this.verdicts.replaceChildren(...notes);
    this.facts.replaceChildren(...list(entry.facts));
    const feeding = list(entry.feeding);
    if (feeding.length) this.facts.append(element("dt", "part", "Preprocessing"), ...feeding);
    const links = Object.entries(entry.files).map(([kind, [name]]) => anchor(entry.link(kind), titleOf(kind), name));
    if (entry.original) links.push(anchor(entry.original, "Original", record.image));
    this.links.replaceChildren(...links);
  }

  /** The other results of the same picture. */
  showFamily(entry) {
    const family = this.entries.filter((one) => one.thumbnail && entry.record.image && one.record.image === entry.record.image);
    this.strip.hidden = family.length < 2;
    const start = Math.max(0, Math.min(family.indexOf(entry) - MOST_SIBLINGS / 2, family.length - MOST_SIBLINGS));
    const shown = this.strip.hidden ? [] : family.slice(start, start + MOST_SIBLINGS);
    const differs = entry.aspects.map((_, place) => new Set(shown.map((one) => one.aspects[place])).size > 1);
    this.strip.replaceChildren(...shown.map((one) => this.sibling(one, one === entry, one.aspects.filter((text, place) => text && differs[place]))));
    this.strip.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  sibling(entry, current, aspects) {
    const button = element("button", "sibling");
    button.type = "button";
    const image = element("img");
    image.loading = "lazy";
    image.alt = "";
    image.src = entry.thumbnail;
    button.append(image, ...aspects.map((text) => element("span", null, text)));
    if (current) button.setAttribute("aria-current", "true");
    button.addEventListener("click", () => this.go(entry.id));
    return button;
  }
}

function list(facts) {
  return facts.flatMap(([title, text]) => [element("dt", null, title), element("dd", null, text)]);
}

function note(level, label, sentence) {
  const box = element("p", `note ${level}`);
  box.append(element("strong", null, label), ` ${sentence}`);
  return box;
}

function anchor(link, text, name) {
  const made = element("a", null, text);
  made.href = link;
  made.title = name;
  made.target = "_blank";
  made.rel = "noopener noreferrer";
  return made;
}
