// Figures of the kind timeline: one row a worker, one rectangle a span

function depths(spans) {
  let [open, row] = [[], null];
  for (const span of spans) {
    if (span[0] !== row) [open, row] = [[], span[0]];
    while (open.length && open[open.length - 1] <= span[1]) open.pop();
    span[3] = Math.min(open.length, 3);
    open.push(span[2]);
  }
}

function drawTimeline(table, options, look) {
  const [who, what] = [column(table, options.row), column(table, options.what)];
  const [start, end, note] = [column(table, options.start), column(table, options.end), column(table, "note")];
  const names = [...new Set(everyRow(table).map((row) => cell(who, row)))];
  const place = new Map(names.map((name, i) => [name, i]));
  const spans = everyRow(table).map((row) => [place.get(cell(who, row)), cell(start, row), cell(end, row), 0, row]);
  depths(spans);
  const kinds = [...new Set(everyRow(table).map((row) => cell(what, row)))];
  let [first, last] = [Infinity, -Infinity];
  let [from, to] = [Infinity, -Infinity]; // where the workers work, without what was before and after
  for (const span of spans) {
    [first, last] = [Math.min(first, span[1]), Math.max(last, span[2])];
    if (cell(who, span[4]) === "main" || cell(what, span[4]) === "wait") continue;
    [from, to] = [Math.min(from, span[1]), Math.max(to, span[2])];
  }
  if (first > 0 && first < (last - first) / 100) first = 0;
  const margin = (to - from) / 20;
  const part = to > from && to - from < 0.6 * (last - first) ? { startValue: Math.max(first, from - margin), endValue: Math.min(last, to + margin) } : {};
  const option = basis(look, kinds);
  const rows = Math.min(names.length, 48);
  option.grid = { ...option.grid, top: option.grid.top - 22, bottom: look.printing ? 40 : 74, right: names.length > rows ? 34 : 18 };
  option.yAxis = categoryAxis(look, names, { inverse: true });
  Object.assign(option.yAxis.axisLabel, { width: look.narrow ? 70 : 120, formatter: null });
  option.xAxis = valueAxis(look, { name: "", unit: "s" }, last - first, { ...below, nameGap: 24, min: first, max: last });
  Object.assign(option.xAxis.axisLabel, { showMinLabel: false, showMaxLabel: false });
  option.dataZoom = [
    { type: "slider", show: !look.printing, xAxisIndex: 0, ...part, filterMode: "weakFilter", height: 22, bottom: 8, left: look.narrow ? 30 : 90, right: 40, brushSelect: false, showDetail: false,
      borderColor: look.colours.rule, fillerColor: look.colours.c0 + "33", handleStyle: { color: look.colours.c0 }, showDataShadow: false },
  ];
  if (look.pointer) option.dataZoom.push({ type: "inside", xAxisIndex: 0, filterMode: "weakFilter", zoomOnMouseWheel: "ctrl", moveOnMouseWheel: false, ...part });
  if (names.length > rows)
    option.dataZoom.push({ type: "slider", yAxisIndex: 0, filterMode: "weakFilter", startValue: 0, endValue: rows - 1, right: 2, width: 18, brushSelect: false, showDetail: false, showDataShadow: false,
      borderColor: look.colours.rule, fillerColor: look.colours.c0 + "33", handleStyle: { color: look.colours.c0 } });
  option.series = kinds.map((kind, i) => {
    const colour = partColour(kind, i, look);
    return {
      type: "custom", name: kind, color: colour, progressive: 0, clip: true, encode: { x: [1, 2], y: 0 },
      data: spans.filter((s) => cell(what, s[4]) === kind),
      renderItem(_, api) {
        const a = api.coord([api.value(1), api.value(0)]);
        const b = api.coord([api.value(2), api.value(0)]);
        const height = api.size([0, 1])[1] * (0.78 - 0.2 * api.value(3));
        return { type: "rect", shape: { x: a[0], y: a[1] - height / 2, width: Math.max(0.6, b[0] - a[0]), height }, style: { fill: colour } };
      },
    };
  });
  option.tooltip.trigger = "item";
  option.tooltip.formatter = (f) => {
    const row = f.value[4];
    const rowsOf = [["", "takes", say(f.value[2] - f.value[1], "s")], ["", "from", say(f.value[1], "s")], ["", "to", say(f.value[2], "s")]];
    const said = cell(note, row);
    return tip(`${cell(who, row)}: ${cell(what, row)}${said ? " " + said : ""}`, rowsOf);
  };
  const named = kinds.map((name, i) => ({ name, colour: partColour(name, i, look), block: true }));
  return { option, named, height: (look.printing ? 70 : 104) + rows * (rows > 24 ? 15 : 24), canvas: true };
}
