// Tables that can be sorted and filtered with mouse or keyboard, refilled, and saved as CSV.

function valueOf(td) {
  return td.dataset.value !== undefined ? Number(td.dataset.value) : td.textContent;
}

function compare(a, b) {
  const empty = (v) => v === "" || v === "\u2013";
  if (empty(a) || empty(b)) return empty(a) - empty(b); // what is not known comes last
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a).localeCompare(String(b), "en", { numeric: true });
}

function sortBy(table, place) {
  const heads = [...table.tHead.rows[0].cells];
  const down = heads[place].getAttribute("aria-sort") === "ascending";
  heads.forEach((head, i) => (i === place ? head.setAttribute("aria-sort", down ? "descending" : "ascending") : head.removeAttribute("aria-sort")));
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row) => [valueOf(row.cells[place]), row]);
  const unknown = (v) => v === "\u2013" || v === "";
  rows.sort(([a], [b]) => (unknown(a) || unknown(b) ? compare(a, b) : down ? compare(b, a) : compare(a, b)));
  body.append(...rows.map(([, row]) => row));
}

document.addEventListener("click", (event) => {
  const head = event.target.closest("table.sortable thead button");
  if (head) sortBy(head.closest("table"), head.closest("th").cellIndex);
});

// A word is found where a word begins with it, a number where there is just that number; `workers=8` looks in a column.
function isFound(word, cells, heads) {
  const [, head, wanted] = word.match(/^([^=]+)=(.*)$/) || [null, "", word];
  const number = wanted !== "" && Number.isFinite(Number(wanted));
  return cells.some(
    (text, i) => heads[i].startsWith(head) && text.split(/[\s\u00b7,()]+/).some((w) => (number ? w === wanted : w.startsWith(wanted))),
  );
}

// All words must be somewhere in a row. `changed` is told the names in the first cells of what is left.
function filterRows(region, input, status, changed) {
  const rows = [...region.querySelectorAll("tbody tr")];
  const texts = rows.map((row) => [...row.cells].map((td) => td.textContent.toLowerCase()));
  const heads = [...region.querySelectorAll("thead th")].map((th) => th.textContent.toLowerCase());
  const apply = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const left = new Set();
    rows.forEach((row, i) => {
      row.hidden = !words.every((word) => isFound(word, texts[i], heads));
      if (!row.hidden) left.add(row.cells[0].textContent);
    });
    const many = rows.filter((row) => !row.hidden).length;
    status.textContent = words.length ? `${many} of ${rows.length} rows; figures of single runs show these` : "";
    changed(words.length ? left : null);
  };
  input.addEventListener("input", apply);
  if (input.value) apply();
}

// The table of a figure, when another view of it was chosen.
function refill(element, table, most) {
  const sizes = table.columns.map((col) => (col.unit === "s" && col.values ? largestOf(col.values) : 0));
  const alike = (size) => (size ? Math.min(...sizes.filter((other) => other > size / 10)) : 1);
  const scales = table.columns.map((col, i) => scaleOf(col.unit, alike(sizes[i])));
  const heads = table.columns.map((col, i) => {
    const head = document.createElement("th");
    head.scope = "col";
    if (col.values) head.className = "number";
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = col.unit ? `${col.name}, ${scales[i].unit}` : col.name;
    head.append(button);
    return head;
  });
  element.tHead.rows[0].replaceChildren(...heads);
  const rows = everyRow(table).slice(0, most).map((row) => {
    const line = document.createElement("tr");
    table.columns.forEach((col, i) => {
      const value = cell(col, row);
      const box = document.createElement(i === 0 && col.words ? "th" : "td");
      if (box.tagName === "TH") box.scope = "row";
      if (col.values) box.className = "number";
      if (typeof value === "number") box.dataset.value = value;
      box.textContent = typeof value === "number" ? sayNumber(value * scales[i].factor) : value === null ? "\u2013" : value;
      line.append(box);
    });
    return line;
  });
  element.tBodies[0].replaceChildren(...rows);
}

function csvOf(table) {
  const quoted = (value) => {
    if (value === null || value === undefined) return "";
    let text = String(value);
    if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) text = "'" + text; // a spreadsheet would run it
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const lines = [table.columns.map((col) => quoted(col.unit ? `${col.name} [${col.unit}]` : col.name)).join(",")];
  for (const row of everyRow(table)) lines.push(table.columns.map((col) => quoted(cell(col, row))).join(","));
  return lines.join("\r\n") + "\r\n";
}

function save(text, name, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
