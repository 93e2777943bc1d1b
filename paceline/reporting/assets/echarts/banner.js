/*! Apache ECharts 6.1.0 with ZRender 6.1.0 and tslib 2.3.0, a build of the parts that are used here.
 * ECharts: Copyright 2017-2026 The Apache Software Foundation, Apache License 2.0; parts from d3.js: Copyright 2010-2016
 * Mike Bostock, BSD 3-Clause. ZRender: Copyright (c) 2017, Baidu Inc., BSD 3-Clause. tslib: Copyright (c) Microsoft
 * Corporation, 0BSD. The licences are in the folder of this file in the Python package paceline, report/assets/echarts.
 */
