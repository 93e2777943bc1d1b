"use strict";
// What all figures have in common: how numbers are said, how a table is read, axes, colours, the box at the pointer.
// Names come from outside: they only ever become text, by textContent or as text of a drawing.

const digits = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
const MANY_LINES = 12;
const DASHES = ["solid", [7, 3], [2, 3]];

function sayNumber(value) {
  if (value === null || value === undefined) return "\u2013";
  return Math.abs(value) >= 1e15 || (value !== 0 && Math.abs(value) < 1e-4) ? value.toPrecision(3) : digits.format(value);
}

// Seconds in the unit that suits the largest of them, so that an axis has one unit.
function scaleOf(unit, largest) {
  if (unit !== "s") return { factor: 1, unit };
  if (largest < 1e-3) return { factor: 1e6, unit: "\u00b5s" };
  return largest < 1 ? { factor: 1e3, unit: "ms" } : { factor: 1, unit };
}

function say(value, unit) {
  if (value === null || value === undefined) return "\u2013";
  const scale = scaleOf(unit, Math.abs(value) || 1);
  return sayNumber(value * scale.factor) + (scale.unit ? "\u00a0" + scale.unit : "");
}

function column(table, name) {
  const found = table.columns.find((c) => c.name === name);
  if (!found) throw new Error("no column " + name);
  return found;
}

function cell(col, row) {
  return col.words ? col.words[col.at[row]] : col.values[row];
}

function everyRow(table) {
  return Array.from({ length: table.rows }, (_, row) => row);
}

// The box that is shown at the pointer: a heading, and rows of colour, name and value.
function tip(heading, rows) {
  const box = document.createElement("div");
  box.className = "tip";
  const head = document.createElement("b");
  head.textContent = heading;
  box.append(head);
  for (const [colour, name, value] of rows) {
    const line = document.createElement("div");
    const mark = document.createElement("i");
    mark.style.background = colour || "transparent";
    const said = document.createElement("span");
    said.textContent = name;
    const figure = document.createElement("span");
    figure.textContent = value;
    line.append(mark, said, figure);
    box.append(line);
  }
  return box;
}

function partColour(name, place, look) {
  return look.colours[look.parts[name] || "c" + (place % 8)];
}

function basis(look, legend) {
  const c = look.colours;
  const written = look.saving && legend ? legend.reduce((sum, name) => sum + 38 + 6.8 * name.length, 0) : 0;
  return {
    animation: false,
    textStyle: { fontFamily: "system-ui, -apple-system, 'Segoe UI', Roboto, Arial, sans-serif", color: c.ink },
    grid: { left: 4, right: 18, top: 30 + 18 * Math.ceil(written / (look.width - 20)), bottom: 28, outerBoundsMode: "same", outerBoundsContain: "axisLabel" },
    // On the page the legend is a list of buttons; a saved drawing has its own.
    legend: {
      show: Boolean(look.saving && legend), top: 0, left: 0, itemWidth: 18, itemHeight: 9, data: legend || [],
      textStyle: { color: c.ink, fontSize: 12 },
    },
    tooltip: {
      confine: true, backgroundColor: c.paper, borderColor: c.rule, padding: [8, 10], transitionDuration: 0,
      textStyle: { color: c.ink, fontSize: 13 }, extraCssText: "box-shadow:0 2px 12px rgba(0,0,0,.18)",
    },
  };
}

function axis(look, more) {
  const c = look.colours;
  return {
    axisLine: { lineStyle: { color: c.rule } }, axisTick: { lineStyle: { color: c.rule } },
    splitLine: { lineStyle: { color: c.rule } }, nameTextStyle: { color: c.soft, fontSize: 12 },
    ...more, axisLabel: { color: c.soft, fontSize: 12, hideOverlap: true, ...(more.axisLabel || {}) },
  };
}

function valueAxis(look, col, largest, more) {
  const scale = scaleOf(col.unit, largest);
  const named = [col.name === "value" ? "" : col.name, scale.unit].filter(Boolean).join(", ");
  return axis(look, { type: "value", name: named, ...more, axisLabel: { formatter: (v) => sayNumber(v * scale.factor) } });
}

const below = { nameLocation: "middle", nameGap: 28 };
const above = { nameLocation: "end", nameGap: 12, nameTextStyle: { align: "left" } };

function upwards(look, axisMade) {
  return { ...axisMade, nameTextStyle: { ...axisMade.nameTextStyle, align: "left", padding: [0, 0, 0, -18] } };
}

function largestOf(values) {
  let most = 0;
  for (const v of values) if (v !== null && Math.abs(v) > most) most = Math.abs(v);
  return most;
}

// How many times the least the greatest is; of what is not all above zero, once.
function reach(values) {
  let [least, most] = [Infinity, 0];
  for (const v of values) if (v !== null) [least, most] = [Math.min(least, v), Math.max(most, v)];
  return least > 0 && most > 0 ? most / least : 1;
}
