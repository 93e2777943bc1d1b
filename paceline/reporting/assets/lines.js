// Figures of the kind lines: one for each name in the column `line`, coloured by `group`

// Repetitions are called by their group and something more: a median is shown as long as one of them is.
function isShown(label, shown) {
  return shown.has(label) || [...shown].some((name) => name.startsWith(label + " \u00b7 "));
}

function collectLines(table, options, shown) {
  const name = column(table, options.line);
  const group = column(table, options.group || options.line);
  const [x, y] = [column(table, options.x), column(table, options.y)];
  const low = options.low && column(table, options.low);
  const high = options.high && column(table, options.high);
  const ideal = options.ideal && column(table, options.ideal);
  const lines = new Map();
  for (const row of everyRow(table)) {
    const label = cell(name, row);
    if (shown && options.line === "run" && !isShown(label, shown)) continue;
    if (cell(x, row) === null) continue;
    if (!lines.has(label)) lines.set(label, { label, group: cell(group, row), points: [], ends: [], ideal: [] });
    const line = lines.get(label);
    line.points.push([cell(x, row), cell(y, row)]);
    if (low) line.ends.push([cell(x, row), cell(low, row), cell(high, row)]);
    if (ideal) line.ideal.push([cell(x, row), cell(ideal, row)]);
  }
  return { lines: [...lines.values()].filter((l) => l.points.some((p) => p[1] !== null)), x, y };
}

function whiskers(line, colour) {
  return {
    type: "custom", name: line.group, silent: true, tooltip: { show: false }, z: 3,
    data: line.ends.filter((e) => e[1] !== null && e[2] !== null && e[2] > e[1]),
    encode: { x: 0, y: [1, 2] },
    renderItem(_, api) {
      const [a, b] = [api.coord([api.value(0), api.value(1)]), api.coord([api.value(0), api.value(2)])];
      const part = (x1, y1, x2, y2) => ({ type: "line", shape: { x1, y1, x2, y2 }, style: { stroke: colour, lineWidth: 1.5 } });
      return { type: "group", children: [part(a[0], a[1], b[0], b[1]), part(a[0] - 4, a[1], a[0] + 4, a[1]), part(b[0] - 4, b[1], b[0] + 4, b[1])] };
    },
  };
}

function drawLines(table, options, look) {
  const { lines, x, y } = collectLines(table, options, look.shown);
  const groups = [...new Set(lines.map((l) => l.group))];
  const many = lines.length > MANY_LINES;
  const xs = lines.flatMap((l) => l.points.map((p) => p[0]));
  const ys = lines.flatMap((l) => l.points.map((p) => p[1])).filter((v) => v !== null);
  const wide = (options.whole || options.points) && reach(xs) > 16;
  const far = options.points || (options.both && !options.ideal) ? 16 : options.zero ? Infinity : 2000;
  const steep = wide && options.both ? reach(ys) > 1 : reach(ys) > far;
  const styleOf = (group) => {
    const place = groups.indexOf(group);
    const [hue, dash] = (options.styles && options.styles[group]) || [place, group === "training" ? 1 : Math.floor(place / 8)];
    return { colour: partColour(group, hue, look), dash: DASHES[dash % DASHES.length] };
  };
  const series = [];
  const longest = Math.max(0, ...lines.map((l) => l.points.length));
  for (const line of lines) {
    const { colour, dash } = styleOf(line.group);
    series.push({
      type: "line", name: line.group, id: line.label, data: line.points, color: colour, z: 3 - lines.indexOf(line) / lines.length,
      showSymbol: options.points || (!many && longest <= 60), symbol: "circle", symbolSize: options.points ? 11 : 6, triggerLineEvent: true,
      lineStyle: { width: many ? 1.25 : 2.25, type: dash, opacity: many ? 0.65 : 1 },
      emphasis: { focus: lines.length <= 60 ? "series" : "none", lineStyle: { width: 3.5, opacity: 1 } },
    });
    if (line.ends.length) series.push(whiskers(line, colour));
    if (line.ideal.length > 1)
      series.push({
        type: "line", name: "ideal", id: "ideal " + line.label, data: line.ideal, color: look.colours.soft, silent: true,
        showSymbol: false, lineStyle: { width: 1, type: [3, 4], opacity: 0.9 }, z: 1,
      });
  }
  const legend = groups.length > 1 || series.some((s) => s.name === "ideal") ? [...groups, ...(options.ideal ? ["ideal"] : [])] : null;
  const option = basis(look, legend);
  option.xAxis = valueAxis(look, x, largestOf(xs), {
    ...below, ...(wide ? { type: "log", logBase: options.whole ? 2 : 10 } : {}), ...(options.whole || x.name === "epoch" ? { minInterval: 1 } : {}),
    splitLine: { show: false }, ...(x.name === "epoch" || (options.whole && !wide) ? { min: "dataMin", max: "dataMax" } : {}),
  });
  const levels = [...new Set(xs)].sort((a, b) => a - b);
  if (levels.length === 1 || (options.whole && levels.length <= (look.narrow ? 6 : 10))) {
    Object.assign(option.xAxis.axisLabel, { customValues: levels });
    option.xAxis.axisTick = { ...option.xAxis.axisTick, customValues: levels };
    option.xAxis.max = "dataMax";
  }
  if (levels.length === 1) Object.assign(option.xAxis, { min: levels[0] - 1, max: levels[0] + 1 });
  option.yAxis = upwards(look, valueAxis(look, y, largestOf(ys), {
    ...above, ...(steep ? { type: "log" } : {}), scale: !options.zero,
    axisLine: { show: false }, axisTick: { show: false },
  }));
  option.series = series;
  option.tooltip.trigger = options.points ? "item" : "axis";
  option.tooltip.axisPointer = { type: "line", lineStyle: { color: look.colours.soft } };
  option.tooltip.formatter = (hit) => {
    const found = [hit].flat();
    const told = found.filter((f) => f.seriesType === "line" && f.seriesName !== "ideal" && f.value[1] !== null);
    told.sort((a, b) => b.value[1] - a.value[1]);
    const rows = told.slice(0, 10).map((f) => [f.color, f.seriesId.replace(/\u0000.*/, ""), say(f.value[1], y.unit)]);
    if (told.length > 10) rows.push(["", `and ${told.length - 10} more`, ""]);
    return told.length ? tip(`${x.name} ${say(told[0].value[0], x.unit)}`, rows) : "";
  };
  const named = (legend || []).map((name) => {
    if (name === "ideal") return { name, colour: look.colours.soft, dashed: true };
    const { colour, dash } = styleOf(name);
    return { name, colour, dashed: dash !== "solid", block: options.points };
  });
  return { option, named, height: look.narrow ? 290 : 330, canvas: lines.length > 60 };
}
