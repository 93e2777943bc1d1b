// What the pages need of Apache ECharts, and nothing else. To build echarts.min.js again, in an empty folder:
//   npm install echarts@6.1.0 esbuild@0.28.2 && cp .../paceline/report/assets/echarts/{entry,banner}.js .
//   npx esbuild entry.js --bundle --minify --format=iife --global-name=echarts --target=es2019 \
//     --legal-comments=none --banner:js="$(cat banner.js)" --outfile=echarts.min.js
// The licences of what is inside (ECharts, ZRender, tslib, parts of D3) are beside this file.
import { init, use } from "echarts/core";
import { BarChart, CustomChart, LineChart, ScatterChart } from "echarts/charts";
import {
  DataZoomInsideComponent,
  DataZoomSliderComponent,
  GridComponent,
  LegendComponent,
  TooltipComponent,
} from "echarts/components";
import { CanvasRenderer, SVGRenderer } from "echarts/renderers";

use([
  BarChart,
  CustomChart,
  LineChart,
  ScatterChart,
  DataZoomInsideComponent,
  DataZoomSliderComponent,
  GridComponent,
  LegendComponent,
  TooltipComponent,
  CanvasRenderer,
  SVGRenderer,
]);

export { init };
