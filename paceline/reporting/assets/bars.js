// Figures of the kinds stack, bars and intervals: parts of a whole in one bar, or values side by side

function barRows(table, options, values) {
  const names = column(table, options.category);
  let rows = everyRow(table).map((row) => ({ name: cell(names, row), row, values: values.map((v) => cell(v, row)) }));
  if (options.most && rows.length > options.most) {
    if (options.first) return rows.slice(0, options.most);
    const size = (r) => r.values.reduce((sum, v) => sum + (v || 0), 0);
    const kept = new Set([...rows].sort((a, b) => size(b) - size(a)).slice(0, options.most));
    const rest = rows.filter((r) => !kept.has(r));
    const sums = values.map((_, i) => rest.reduce((sum, r) => sum + (r.values[i] || 0), 0));
    rows = [...rows.filter((r) => kept.has(r)), { name: `(${rest.length} others)`, row: -1, values: sums }];
  }
  return rows;
}

// Names stand beside their bars in as many lines as they need, up to four; what is longer ends in dots.
const NAME_LINES = 4;
const PAPER_HEIGHT = 820; // of all bars of a figure, so that it fits on a page

function nameSize(look) {
  const [width, fontSize] = [Math.round(look.width * (look.narrow ? 0.42 : 0.3)), look.printing ? 10 : look.narrow ? 11 : 12];
  return { width, fontSize, lineHeight: fontSize + 2, letters: Math.floor(width / (0.56 * fontSize)) };
}

function nameLines(name, letters) {
  const lines = [""];
  for (const word of String(name).split(" ")) {
    const longer = lines[lines.length - 1] ? lines[lines.length - 1] + " " + word : word;
    if (longer.length <= letters || !lines[lines.length - 1]) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines.length > NAME_LINES ? [...lines.slice(0, NAME_LINES - 1), lines[NAME_LINES - 1] + "\u2026"] : lines;
}

function rowHeight(look, rows, least) {
  const { lineHeight, letters } = nameSize(look);
  const lines = Math.max(1, ...rows.map((r) => nameLines(r.name, letters).length));
  const wanted = Math.max(least, lines * lineHeight + (lines > 1 ? 6 : 0));
  return look.printing ? Math.min(wanted, Math.max(14, PAPER_HEIGHT / rows.length)) : wanted;
}

function categoryAxis(look, names, more) {
  const { width, fontSize, lineHeight, letters } = nameSize(look);
  return axis(look, {
    type: "category", data: names, axisTick: { show: false }, ...more,
    axisLabel: {
      width, overflow: "truncate", lineHeight, hideOverlap: false, interval: 0, color: look.colours.ink, fontSize,
      formatter: (name) => nameLines(name, letters).join("\n"), ...(more.axisLabel || {}),
    },
  });
}

function drawStack(table, options, look) {
  const parts = options.parts.map((name) => column(table, name));
  const rows = barRows(table, options, parts);
  const total = (r) => r.values.reduce((sum, v) => sum + Math.max(0, v || 0), 0);
  const most = largestOf(rows.map(total));
  const told = parts.filter((_, i) => rows.some((r) => r.values[i] > 0));
  const option = basis(look, told.map((p) => p.name));
  option.yAxis = categoryAxis(look, rows.map((r) => r.name), { inverse: true, axisLabel: { show: rows.length > 1 } });
  option.xAxis = valueAxis(look, { name: "", unit: parts[0].unit }, most, { ...below, nameGap: 26, max: options.whole || null });
  option.grid.top -= 22;
  option.series = told.map((part, place) => {
    const i = parts.indexOf(part);
    return {
      type: "bar", stack: "all", name: part.name, color: partColour(part.name, place, look), barMaxWidth: rows.length > 1 ? 22 : 44,
      itemStyle: { borderColor: look.colours.paper, borderWidth: rows.length > 1 ? 0.5 : 1 },
      emphasis: { focus: "series" }, data: rows.map((r) => r.values[i]),
      label: rows.length > 1 ? undefined : {
        show: rows[0].values[i] / total(rows[0]) > 0.07, color: look.parts[part.name] === "quiet" ? look.colours.ink : look.colours.paper,
        formatter: () => Math.round((100 * rows[0].values[i]) / total(rows[0])) + " %",
      },
    };
  });
  option.tooltip.trigger = "axis";
  option.tooltip.axisPointer = { type: "shadow" };
  option.tooltip.formatter = (found) => {
    const r = rows[found[0].dataIndex];
    const all = total(r);
    const said = (p, i) => [
      partColour(p.name, told.indexOf(p), look), p.name,
      say(r.values[i], p.unit) + (p.unit === "%" ? "" : ` (${all ? Math.round((1000 * r.values[i]) / all) / 10 : 0} %)`),
    ];
    const lines = parts.map((p, i) => [p, i]).filter(([, i]) => r.values[i] > 0).map(([p, i]) => said(p, i));
    return tip(`${r.name}: ${say(all, parts[0].unit)}`, lines);
  };
  const named = told.map((part, place) => ({ name: part.name, colour: partColour(part.name, place, look), block: true }));
  return { option, named, height: 66 + (rows.length > 1 ? rows.length * rowHeight(look, rows, rows.length > 16 ? 20 : 28) : 56) };
}

function drawBars(table, options, look) {
  const values = options.values.map((name) => column(table, name));
  const rows = barRows(table, options, values);
  const most = largestOf(rows.flatMap((r) => r.values));
  const option = basis(look, values.length > 1 ? values.map((v) => v.name) : null);
  const size = valueAxis(look, values[0], most, options.upright ? above : { ...below, nameGap: 26 });
  if (values.length > 1) size.name = scaleOf(values[0].unit, most).unit;
  if (options.upright) {
    const upright = { ...below, name: options.category, axisLabel: { interval: "auto", hideOverlap: true, width: undefined, overflow: "none" } };
    option.xAxis = categoryAxis(look, rows.map((r) => r.name), upright);
    option.yAxis = upwards(look, { ...size, axisLine: { show: false } });
  } else {
    option.yAxis = categoryAxis(look, rows.map((r) => r.name), { inverse: true });
    option.xAxis = size;
    option.grid.top -= 22;
  }
  option.series = values.map((value, i) => ({
    type: "bar", name: value.name, color: partColour(value.name, i, look), data: rows.map((r) => r.values[i]),
    barMaxWidth: 26, barGap: "8%", barCategoryGap: options.upright ? "12%" : "30%",
  }));
  option.tooltip.trigger = "axis";
  option.tooltip.axisPointer = { type: "shadow" };
  option.tooltip.formatter = (found) => {
    const r = rows[found[0].dataIndex];
    return tip(r.name, values.map((v, i) => [partColour(v.name, i, look), v.name, say(r.values[i], v.unit)]));
  };
  const height = options.upright ? (look.narrow ? 260 : 300) : 60 + rows.length * rowHeight(look, rows, 16 + 16 * values.length);
  const named = values.length > 1 ? values.map((v, i) => ({ name: v.name, colour: partColour(v.name, i, look), block: true })) : [];
  return { option, named, height };
}

// Intervals: what was expected, from where to where, and what came
const BAND = "90 % interval";

function drawIntervals(table, options, look) {
  const cols = ["value", "low", "high", "other"].map((key) => column(table, options[key]));
  const names = column(table, options.category);
  const rows = everyRow(table).map((row) => ({ name: cell(names, row), values: cols.map((c) => cell(c, row)) }));
  const all = rows.flatMap((r) => r.values).filter((v) => v !== null);
  const steep = reach(all) > 30;
  const [expected, came] = [partColour("predicted", 0, look), partColour("measured", 1, look)];
  const told = rows.some((r) => r.values[3] !== null);
  const banded = rows.some((r) => r.values[1] !== null && r.values[2] !== null);
  const option = basis(look, [cols[0].name, ...(banded ? [BAND] : []), ...(told ? [cols[3].name] : [])]);
  option.grid.top -= 22;
  option.yAxis = categoryAxis(look, rows.map((r) => r.name), { inverse: true, splitLine: { show: true, lineStyle: { color: look.colours.rule, type: "dotted" } } });
  option.xAxis = valueAxis(look, { name: "", unit: cols[0].unit }, largestOf(all), { ...below, nameGap: 26, ...(steep ? { type: "log" } : {}) });
  if (steep && cols[0].unit === "s") Object.assign(option.xAxis, { name: "", axisLabel: { ...option.xAxis.axisLabel, formatter: (v) => say(v, "s") } });
  option.series = [
    {
      type: "custom", name: BAND, silent: true, color: expected, encode: { x: [1, 2], y: 0 },
      data: rows.map((r, i) => [i, r.values[1], r.values[2]]).filter((d) => d[1] !== null && d[2] !== null),
      renderItem(_, api) {
        const [a, b] = [api.coord([api.value(1), api.value(0)]), api.coord([api.value(2), api.value(0)])];
        return { type: "rect", shape: { x: a[0], y: a[1] - 5, width: Math.max(1, b[0] - a[0]), height: 10, r: 5 }, style: { fill: expected, opacity: 0.32 } };
      },
    },
    { type: "scatter", name: cols[0].name, color: expected, symbol: "circle", symbolSize: 11, data: rows.map((r, i) => [r.values[0], i]) },
  ];
  if (told)
    option.series.push({ type: "scatter", name: cols[3].name, color: came, symbol: "diamond", symbolSize: 13, z: 4, data: rows.map((r, i) => [r.values[3], i]).filter((d) => d[0] !== null) });
  option.tooltip.trigger = "axis";
  option.tooltip.axisPointer = { type: "shadow", axis: "y" };
  option.tooltip.formatter = (found) => {
    const r = rows[found[0].value[found[0].seriesType === "custom" ? 0 : 1]];
    const [value, low, high, other] = r.values;
    const lines = [[expected, "predicted", say(value, cols[0].unit)]];
    if (low !== null && high !== null) lines.push(["", "between", `${say(low, cols[0].unit)} and ${say(high, cols[0].unit)}`]);
    if (other !== null) lines.push([came, "measured", say(other, cols[0].unit)], ["", "error", `${sayNumber(100 * (value / other - 1))} %`]);
    return tip(r.name, lines);
  };
  const named = [{ name: cols[0].name, colour: expected, block: true }];
  if (banded) named.push({ name: BAND, colour: expected + "52", block: true });
  if (told) named.push({ name: cols[3].name, colour: came, block: true });
  return { option, named, height: 66 + rows.length * rowHeight(look, rows, 30) };
}
