"use strict";
// All entries as cards, of which only those near the window exist.

const CAPTION = 78;
const AHEAD = 600; // pixels above and below the window that are ready

class Gallery {
  constructor(box, nothing) {
    this.box = box;
    this.nothing = nothing;
    this.shown = [];
    this.places = new Map();
    this.cards = new Map();
    this.wanted = 220;
    this.number = null;
    this.waiting = false;
    addEventListener("scroll", () => this.soon(), { passive: true });
    new ResizeObserver(() => this.soon()).observe(box);
    box.addEventListener("keydown", (event) => this.key(event));
  }

  /** Shows these entries; ``number``: the key of a number that each card has to tell. */
  show(entries, number) {
    this.shown = entries;
    this.places = new Map(entries.map((entry, place) => [entry.id, place]));
    this.number = number;
    this.clear();
    this.nothing.hidden = entries.length > 0;
    const top = this.box.offsetTop - this.above();
    if (scrollY > top) scrollTo(0, top);
    this.draw();
  }

  resize(wanted) {
    this.wanted = wanted;
    this.clear();
    this.draw();
  }

  clear() {
    this.box.replaceChildren();
    this.cards.clear();
  }

  soon() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => {
      this.waiting = false;
      this.draw();
    });
  }

  measure() {
    const width = this.box.clientWidth;
    const narrow = width < 560;
    const gap = narrow ? 10 : 16;
    const wanted = narrow ? Math.min(this.wanted, Math.max(140, (width - gap) / 2)) : this.wanted;
    const columns = Math.max(1, Math.floor((width + gap) / (wanted + gap)));
    const card = (width - gap * (columns - 1)) / columns;
    return { columns, card, gap, row: Math.round(card * 0.75) + CAPTION + gap };
  }

  draw() {
    const plan = this.plan = this.measure();
    const rows = Math.ceil(this.shown.length / plan.columns);
    this.box.style.height = `${Math.max(0, rows * plan.row - plan.gap)}px`;
    const above = this.box.getBoundingClientRect().top;
    const first = Math.max(0, Math.floor((-above - AHEAD) / plan.row)) * plan.columns;
    const behind = Math.ceil((innerHeight - above + AHEAD) / plan.row) * plan.columns;
    const wanted = this.shown.slice(first, Math.max(first, behind));
    const ids = new Set(wanted.map((entry) => entry.id));
    for (const [id, card] of this.cards) {
      if (!ids.has(id)) {
        card.remove();
        this.cards.delete(id);
      }
    }
    // In the order of the page, so that Tab follows it; what is there stays, and keeps its focus.
    let next = this.box.firstChild;
    wanted.forEach((entry, offset) => {
      let card = this.cards.get(entry.id);
      if (card && card === next) next = card.nextSibling;
      else {
        card = this.card(entry);
        this.cards.set(entry.id, card);
        this.box.insertBefore(card, next);
      }
      const place = first + offset;
      card.style.width = `${plan.card}px`;
      card.style.height = `${plan.row - plan.gap}px`;
      card.style.left = `${(place % plan.columns) * (plan.card + plan.gap)}px`;
      card.style.top = `${Math.floor(place / plan.columns) * plan.row}px`;
    });
  }

  card(entry) {
    const card = element("a", `card ${entry.record.status}`);
    card.href = `#${entry.id}`;
    card.append(this.well(entry));
    const share = entry.record.probability;
    const bar = element("span", "share");
    if (typeof share === "number") {
      bar.append(element("span"));
      bar.firstChild.style.width = `${100 * Math.min(1, Math.max(0, share))}%`;
    }
    const head = element("span", "head");
    head.append(element("span", "name", entry.headline));
    if (typeof share === "number") head.append(element("span", "number", percent(share)));
    const [second, third] = entry.details;
    const foot = element("span", "foot");
    foot.append(element("span", "name", third));
    if (this.number && this.number !== "probability" && entry.numbers.has(this.number)) {
      const told = element("span", "number told", numberText(entry.numbers.get(this.number)));
      told.title = titleOf(this.number);
      foot.append(told);
    }
    const caption = element("span", "caption");
    caption.append(bar, head, element("span", "line", second), foot);
    card.append(caption);
    card.title = [entry.headline, second, third].filter(Boolean).join("\n");
    return card;
  }

  well(entry) {
    const well = element("span", "well");
    if (entry.thumbnail) {
      const image = element("img");
      image.loading = "lazy";
      image.decoding = "async";
      image.alt = `${entry.headline}: ${entry.picture ?? ""}`;
      image.addEventListener("error", () => {
        const words = entry.kinds.length ? "The picture is not there any more" : entry.inNumbers;
        image.replaceWith(element("span", "words", words));
      });
      image.src = entry.thumbnail;
      well.append(image);
    } else {
      well.append(element("span", "words", entry.record.error ?? entry.record.reason ?? entry.inNumbers));
    }
    const badges = element("span", "badges");
    if (entry.record.status !== "ok") badges.append(element("span", `badge ${entry.record.status}`, entry.record.status));
    for (const verdict of entry.verdicts) {
      if (verdict.level !== "good") badges.append(element("span", `badge ${verdict.level}`, verdict.label));
    }
    well.append(badges);
    return well;
  }

  /** The height of what stays above the cards when the page is scrolled. */
  above() {
    return document.getElementById("toolbar").offsetHeight + 12;
  }

  key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const card = event.target.closest(".card");
    if (!card) return;
    const place = this.places.get(Number(card.hash.slice(1)));
    const last = this.shown.length - 1;
    const steps = {
      ArrowLeft: place - 1,
      ArrowRight: place + 1,
      ArrowUp: place - this.plan.columns,
      ArrowDown: place + this.plan.columns,
      Home: 0,
      End: last,
    };
    if (!(event.key in steps)) return;
    event.preventDefault();
    const target = steps[event.key];
    if (target >= 0 && target <= last) this.focus(this.shown[target].id);
  }

  /** Gives the focus to the first card in the window. */
  enter() {
    const top = scrollY + this.above() - this.box.offsetTop;
    const row = Math.max(0, Math.ceil(top / this.plan.row - 0.5));
    const entry = this.shown[row * this.plan.columns];
    if (entry) this.focus(entry.id);
  }

  /** Brings an entry into view and gives it the focus. */
  focus(id) {
    const place = this.places.get(id);
    if (place === undefined) return;
    const top = Math.floor(place / this.plan.columns) * this.plan.row + this.box.offsetTop;
    const height = this.plan.row - this.plan.gap;
    if (top - this.above() < scrollY) scrollTo(0, top - this.above());
    else if (top + height > scrollY + innerHeight) scrollTo(0, top + height - innerHeight + 12);
    this.draw();
    this.cards.get(id)?.focus({ preventScroll: true });
  }
}
