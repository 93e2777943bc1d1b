// Brings the page to life: draws what comes into sight, follows light and dark, the choices, the filter and the printer.

(() => {
  const DRAW = { lines: drawLines, stack: drawStack, bars: drawBars, intervals: drawIntervals, timeline: drawTimeline };
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const ROWS_AT_ONCE = data.rows_at_once;
  const PRINTED_WIDTH = 680;
  let shown = null; // names of runs that the filter left, or null for all
  let printing = false;

  const isDark = () => !printing && (root.dataset.theme ? root.dataset.theme === "dark" : prefersDark.matches);

  const figures = [...document.querySelectorAll("figure[data-figure]")].map((element) => ({
    element, box: element.querySelector(".chart"), made: data.figures[element.dataset.figure], view: 0, chart: null, canvas: null,
    legend: element.querySelector(".legend"), hidden: {},
  }));

  const tableOf = (figure) => data.tables[figure.made.views[figure.view].table];

  function lookFor(width, dark) {
    return {
      width, narrow: width < 480, shown, parts: data.parts, colours: dark ? data.colours.dark : data.colours.light,
      pointer: matchMedia("(pointer: fine)").matches, printing,
    };
  }

  function draw(figure) {
    const width = printing ? PRINTED_WIDTH : figure.box.clientWidth;
    const { options } = figure.made.views[figure.view];
    const { option, named, height, canvas } = DRAW[figure.made.kind](tableOf(figure), options, lookFor(width, isDark()));
    option.legend.selected = figure.hidden;
    if (figure.chart && figure.canvas !== Boolean(canvas)) {
      figure.chart.dispose();
      figure.chart = null;
    }
    figure.box.style.height = height + "px";
    if (!figure.chart) {
      figure.canvas = Boolean(canvas);
      figure.chart = echarts.init(figure.box, null, { renderer: canvas ? "canvas" : "svg", width, height });
    } else figure.chart.resize({ width, height });
    figure.chart.setOption(option, { notMerge: true });
    figure.width = width;
    fillLegend(figure, named);
    figure.element.dataset.drawn = figure.view;
  }

  // A button for each colour: pressed, it is shown.
  function fillLegend(figure, named) {
    figure.legend.hidden = !named.length;
    figure.legend.replaceChildren(...named.map(({ name, colour, dashed, block }) => {
      const [item, button, mark] = ["li", "button", "i"].map((tag) => document.createElement(tag));
      mark.className = block ? "block" : "";
      mark.style[block ? "background" : "borderTopColor"] = colour;
      if (dashed) mark.style.borderTopStyle = "dashed";
      button.type = "button";
      button.setAttribute("aria-pressed", figure.hidden[name] !== false);
      button.append(mark, name);
      button.addEventListener("click", () => {
        figure.hidden[name] = figure.hidden[name] === false;
        button.setAttribute("aria-pressed", figure.hidden[name]);
        figure.chart.dispatchAction({ type: figure.hidden[name] ? "legendSelect" : "legendUnSelect", name });
      });
      item.append(button);
      return item;
    }));
  }

  function redraw(which) {
    for (const figure of figures) if (figure.chart && (!which || which(figure))) draw(figure);
  }

  const seen = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        seen.unobserve(entry.target);
        draw(figures.find((figure) => figure.box === entry.target));
      }
    },
    { rootMargin: "400px" },
  );
  const sized = new ResizeObserver((entries) => {
    for (const entry of entries) {
      const figure = figures.find((f) => f.box === entry.target);
      if (figure.chart && !printing && Math.abs(figure.box.clientWidth - figure.width) > 1) draw(figure);
    }
  });
  for (const figure of figures) {
    seen.observe(figure.box);
    sized.observe(figure.box);
  }

  // ---- choices, zoom, downloads

  const nameOf = (id) => `${document.title.replace(/[^\w.]+/g, "-").replace(/^-+|-+$/g, "").slice(0, 60)}-${id}`;

  function zoom(figure, how) {
    const now = figure.chart.getOption().dataZoom[0];
    const width = now.end - now.start;
    let [start, end] = [now.start, now.end];
    if (how === "in") [start, end] = [start + width / 4, end - width / 4];
    if (how === "out") [start, end] = [start - width / 2, end + width / 2];
    if (how === "earlier") [start, end] = [start - width / 2, end - width / 2];
    if (how === "later") [start, end] = [start + width / 2, end + width / 2];
    if (how === "all") [start, end] = [0, 100];
    if (start < 0) [start, end] = [0, Math.min(100, how === "out" ? end : width)];
    if (end > 100) [start, end] = [Math.max(0, how === "out" ? start : 100 - width), 100];
    figure.chart.dispatchAction({ type: "dataZoom", dataZoomIndex: 0, start, end });
    figure.element.dataset.zoom = `${start.toFixed(3)} ${end.toFixed(3)}`;
  }

  // Always dark on light: it is meant for paper.
  function saveDrawing(figure) {
    const { options } = figure.made.views[figure.view];
    const { option, height } = DRAW[figure.made.kind](tableOf(figure), options, { ...lookFor(900, false), saving: true });
    const chart = echarts.init(null, null, { renderer: "svg", ssr: true, width: 900, height: height + 26 });
    chart.setOption({ ...option, legend: { ...option.legend, selected: figure.hidden }, backgroundColor: "#ffffff" });
    save(chart.renderToSVGString(), nameOf(figure.element.dataset.figure) + ".svg", "image/svg+xml");
    chart.dispose();
  }

  for (const figure of figures) {
    figure.element.querySelector("[data-views]")?.addEventListener("change", (event) => {
      figure.view = Number(event.target.value);
      figure.hidden = {};
      const table = tableOf(figure);
      draw(figure);
      refill(figure.element.querySelector("table"), table, ROWS_AT_ONCE);
      const more = figure.element.querySelector(".more");
      more.hidden = table.rows <= ROWS_AT_ONCE;
      more.textContent = `The first ${ROWS_AT_ONCE} of ${table.rows.toLocaleString("en")} rows; the CSV has them all.`;
    });
    figure.element.addEventListener("click", (event) => {
      const { zoom: how, save: what } = event.target.dataset || {};
      if (how && figure.chart) zoom(figure, how);
      if (what === "csv") save(csvOf(tableOf(figure)), nameOf(figure.element.dataset.figure) + ".csv", "text/csv");
      if (what === "svg") saveDrawing(figure);
    });
  }
  for (const button of document.querySelectorAll("[data-save-listing]"))
    button.addEventListener("click", () => {
      const id = button.dataset.saveListing;
      save(csvOf(data.tables[data.listings[id]]), nameOf(id) + ".csv", "text/csv");
    });

  const input = document.getElementById("filter");
  if (input) {
    const ofRuns = (figure) => figure.made.views[figure.view].options.line === "run";
    filterRows(document.querySelector("[data-runs]"), input, document.getElementById("filtered"), (left) => {
      shown = left;
      redraw(ofRuns);
    });
  }

  // ---- light and dark, print, where the reader is

  const theme = document.getElementById("theme");
  const label = () => (theme.textContent = isDark() ? "light" : "dark");
  theme.setAttribute("aria-label", "Change between light and dark colours");
  try {
    const kept = localStorage.getItem("paceline-theme");
    if (kept === "light" || kept === "dark") root.dataset.theme = kept;
  } catch { /* a page without storage forgets */ }
  theme.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try {
      localStorage.setItem("paceline-theme", root.dataset.theme);
    } catch { /* the same */ }
    label();
    redraw();
  });
  prefersDark.addEventListener("change", () => {
    label();
    redraw();
  });
  label();
  theme.hidden = false;

  const print = document.getElementById("print");
  print.hidden = false;
  print.addEventListener("click", () => window.print());
  addEventListener("beforeprint", () => {
    printing = true;
    figures.forEach(draw);
  });
  addEventListener("afterprint", () => {
    printing = false;
    figures.forEach(draw);
  });

  const links = new Map([...document.querySelectorAll("nav a")].map((a) => [a.getAttribute("href").slice(1), a]));
  const here = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        links.forEach((a) => a.removeAttribute("aria-current"));
        links.get(entry.target.id)?.setAttribute("aria-current", "true");
      }
    },
    { rootMargin: "-20% 0px -70% 0px" },
  );
  document.querySelectorAll("main > section").forEach((section) => here.observe(section));
})();
