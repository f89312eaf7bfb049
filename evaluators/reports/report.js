// Search, filters and keys of the page. Without it, everything is still there to read.
(() => {
  "use strict";
  const field = document.getElementById("find");
  if (!field) return;
  const items = [...document.querySelectorAll("[data-find]")];
  const buttons = [...document.querySelectorAll("button[data-filter]")];
  const count = document.getElementById("count");
  const texts = new Map();
  const textOf = (item) => {
    if (!texts.has(item)) texts.set(item, item.textContent.toLowerCase());
    return texts.get(item);
  };
  const pressed = (kind) =>
    buttons.filter((b) => b.dataset.filter === kind && b.getAttribute("aria-pressed") === "true").map((b) => b.value);

  const apply = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    const severities = pressed("severity");
    const states = pressed("state");
    let faults = 0;
    let shown = 0;
    for (const item of items) {
      const fits =
        (!severities.length || !("severity" in item.dataset) || severities.includes(item.dataset.severity)) &&
        (!states.length || !("state" in item.dataset) || states.includes(item.dataset.state)) &&
        words.every((word) => textOf(item).includes(word));
      item.hidden = !fits;
      if (item.matches(".fault-card")) {
        faults += 1;
        shown += fits;
      }
    }
    const all = !words.length && !severities.length && !states.length;
    count.textContent = all ? "" : `${shown} of ${faults} faults`;
  };

  let timer = 0;
  field.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(apply, 60);
  });
  for (const button of buttons) {
    button.addEventListener("click", () => {
      button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true"));
      apply();
    });
  }

  const step = (by) => {
    const heads = [...document.querySelectorAll(".fault-card:not([hidden]) > summary")];
    if (!heads.length) return;
    const at = heads.indexOf(document.activeElement);
    const next = heads[at < 0 ? (by > 0 ? 0 : heads.length - 1) : Math.min(Math.max(at + by, 0), heads.length - 1)];
    next.focus();
    next.scrollIntoView({ block: "nearest" });
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape" && document.activeElement === field) {
      field.value = "";
      apply();
      field.blur();
    } else if (document.activeElement === field) {
      return;
    } else if (event.key === "/") {
      event.preventDefault();
      field.focus();
    } else if (event.key === "j" || event.key === "k") {
      step(event.key === "j" ? 1 : -1);
    }
  });

  // A link into a fault that is folded, or filtered away, still leads to its place.
  const reveal = () => {
    const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    if (!target) return;
    for (let node = target; node; node = node.parentElement) {
      node.hidden = false;
      if (node.tagName === "DETAILS") node.open = true;
    }
    target.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  reveal();
  addEventListener("beforeprint", () => {
    for (const fault of document.querySelectorAll("details.fault-card, details.story, #resolved")) fault.open = true;
  });
})();
